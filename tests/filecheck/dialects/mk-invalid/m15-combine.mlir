// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// partials of other shapes
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %o = mk.buffer "activation" "o" : !mk.buffer<4x2x1x1x8xf32>
  %m = mk.buffer "activation" "m" : !mk.buffer<3x2x1x1xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %y = mk.combine %o, %m, %m over[0, 3] : !mk.buffer<4x2x1x1x8xf32>, !mk.buffer<3x2x1x1xf32>, !mk.buffer<3x2x1x1xf32> -> tensor<1x2x8xf32>
    }
  }
}
// CHECK: the input is invalid: mk M15: partials agree, at mk.combine
// -----
// a result of another shape
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %o = mk.buffer "activation" "o" : !mk.buffer<4x2x1x1x8xf32>
  %m = mk.buffer "activation" "m" : !mk.buffer<4x2x1x1xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %y = mk.combine %o, %m, %m over[0, 3] : !mk.buffer<4x2x1x1x8xf32>, !mk.buffer<4x2x1x1xf32>, !mk.buffer<4x2x1x1xf32> -> tensor<2x1x8xf32>
    }
  }
}
// CHECK: the input is invalid: mk M15: the result is (1, 2, 8), at mk.combine
// -----
// no end
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %o = mk.buffer "activation" "o" : !mk.buffer<4x2x1x1x8xf32>
  %m = mk.buffer "activation" "m" : !mk.buffer<4x2x1x1xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %y = mk.combine %o, %m, %m over[0] : !mk.buffer<4x2x1x1x8xf32>, !mk.buffer<4x2x1x1xf32>, !mk.buffer<4x2x1x1xf32> -> tensor<1x2x8xf32>
    }
  }
}
// CHECK: the input is invalid: mk M15: ranks of combine, at mk.combine
