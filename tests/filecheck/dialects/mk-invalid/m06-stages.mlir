// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// a prologue without yield
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
  } parts {
    mk.part[1] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M6: a prologue ends in mk.yield, at mk.stage
// -----
// parts that take something else
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
    mk.yield %x : tensor<4x16xf32>
  } parts {
    mk.part[1] {
      %y = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M6: the parts take what the prologue yields, at mk.stage
// -----
// work between parts
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
  }
}
// CHECK: the input is invalid: mk M6: a stage holds parts, not mk.load, at mk.stage
// -----
// a prologue that stores
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
    mk.store %x, %a[0, 0] : tensor<4x16xf32> -> !mk.buffer<4x16xf32>
    mk.yield
  } parts {
    mk.part[1] {
      %y = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M6: a prologue stores nothing, at mk.stage
// -----
// a prologue that waits
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  %e = mk.event
  mk.stage "s" prologue {
    mk.wait %e[0, 1]
    mk.yield
  } parts {
    mk.part[1] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M6: waits and signals are a part's, at mk.stage
