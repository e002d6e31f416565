// RUN: amk-opt %s -p verify-mk --split-input-file --verify-diagnostics | filecheck %s

// V7: weights, constants and inputs are never written.

// An output is.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// A weight, from position 3 on.
// CHECK: verify-mk: wrong: V7 at P = 3: a weight is written, v: mk.store of v in stage 'a', part 0, tile t0 = 0
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %v = mk.buffer "weight" "v" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "a" prologue {
    mk.yield
  } parts {
    mk.part[P floordiv 3] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x1xf32>
      %2 = mk.reshape %1 : tensor<1x1xf32> -> tensor<1xf32>
      mk.store %2, %v[t0] : tensor<1xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %3 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %4 = mk.reshape %3 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %4, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}
