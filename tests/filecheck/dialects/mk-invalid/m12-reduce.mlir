// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// an unknown reduction
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.reduce "prod" %x {reduction = #mk.reduction<lanes = 16, chains = 1>} : tensor<4x16xf32> -> tensor<4x1xf32>
    }
  }
}
// CHECK: the input is invalid: mk M12: reduce 'prod'; known: ('sum', 'mean', 'max'), at mk.reduce
// -----
// another axis
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.reduce "sum" %x {reduction = #mk.reduction<lanes = 16, chains = 1>} : tensor<4x16xf32> -> tensor<1x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M12: the reduced shape is (4, 1), at mk.reduce
