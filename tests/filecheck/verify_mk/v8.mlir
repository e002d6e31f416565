// RUN: amk-opt %s -p verify-mk --split-input-file --verify-diagnostics | filecheck %s

// V8: outputs are always produced.

// Whole.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[2, 2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x2xf32>
      %2 = mk.reshape %1 : tensor<1x2xf32> -> tensor<2xf32>
      mk.store %2, %y[t0 * 2 + t1 * 4] : tensor<2xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// The last element is left out.
// CHECK: verify-mk: wrong: V8 at P = 0: an element of an output is not written, y[7]
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[7] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x1xf32>
      %2 = mk.reshape %1 : tensor<1x1xf32> -> tensor<1xf32>
      mk.store %2, %y[t0] : tensor<1xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// Not at the first position.
// CHECK: verify-mk: wrong: V8 at P = 0: an element of an output is not written, y[4]
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[min(P + 1, 2)] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}
