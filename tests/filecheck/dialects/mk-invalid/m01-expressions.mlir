// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// a divisor of zero
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[t0 floordiv 0, 0] : !mk.buffer<4x16xf32> -> tensor<1x16xf32>
    }
  }
}
// CHECK: mk M1: the divisor of floordiv is a positive constant
// -----
// a product of two symbols
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[t0 * P, 0] : !mk.buffer<4x16xf32> -> tensor<1x16xf32>
    }
  }
}
// CHECK: Expected integer literal
