// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// argmax of another shape
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %t, %i = mk.argmax %x from[0] : tensor<4x16xf32> -> tensor<4xf32>, tensor<4xf32>
    }
  }
}
// CHECK: the input is invalid: mk M18: the results are (4, 1), at mk.argmax
// -----
// two starts
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %t, %i = mk.argmax %x from[0, 0] : tensor<4x16xf32> -> tensor<4x1xf32>, tensor<4x1xf32>
    }
  }
}
// CHECK: the input is invalid: mk M18: argmax starts at one index, at mk.argmax
// -----
// fewer keys than values
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %z = mk.slice %x[0, 0] : tensor<4x16xf32> -> tensor<4x8xf32>
      %y = mk.pick %x by %z : tensor<4x16xf32>, tensor<4x8xf32> -> tensor<4x1xf32>
    }
  }
}
// CHECK: the input is invalid: mk M18: a key a value, at mk.pick
