// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// another number of rows
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  %w = mk.buffer "weight" "w" : !mk.buffer<8x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.matmul %x, %w[0, 0] {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<4x16xf32>, !mk.buffer<8x16xf32> -> tensor<2x8xf32>
    }
  }
}
// CHECK: the input is invalid: mk M10: [S, K] gives [S, N], at mk.matmul
// -----
// a weight that is too small
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  %w = mk.buffer "weight" "w" : !mk.buffer<8x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.matmul %x, %w[0, 0] {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<4x16xf32>, !mk.buffer<8x16xf32> -> tensor<4x9xf32>
    }
  }
}
// CHECK: the input is invalid: mk M9: box (9, 16) exceeds (8, 16), at mk.matmul
