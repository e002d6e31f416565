// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// a coordinate that the part lacks
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[t1, 0] : !mk.buffer<4x16xf32> -> tensor<1x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M8: t1 uses a symbol that is not among ['P', 't0'], at mk.load
// -----
// a tile coordinate in a prologue
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    %x = mk.load %a[t0, 0] : !mk.buffer<4x16xf32> -> tensor<1x16xf32>
    mk.yield
  } parts {
    mk.part[1] {
      %y = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M8: t0 uses a symbol that is not among ['P'], at mk.load
// -----
// a ring that is loaded
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %k = mk.buffer "cache" "k" {policy = "ring", rows = 32 : i64, window = 8 : i64} : !mk.buffer<1x2x?x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %k[0, 0, 0, 0] : !mk.buffer<1x2x?x16xf32> -> tensor<1x1x1x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M8: a ring is read by attention alone, at mk.load
// -----
// a symbol of another program
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.slice %x[Q, 0] : tensor<4x16xf32> -> tensor<1x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M8: Q uses a symbol that is not among ['P', 't0'], at mk.slice
