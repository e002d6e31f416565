// RUN: amk-opt %s -p verify-mk --split-input-file --verify-diagnostics | filecheck %s

// V5: no two unordered accesses conflict.

// Two writers of two halves.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "a" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %y[0] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "b" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %3 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %4 = mk.reshape %3 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %4, %y[4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// Two writers of one element.
// CHECK: verify-mk: wrong: V1 at P = 0: an element is written twice, y[3:4]: mk.store of y in stage 'a', part 0, tile t0 = 0; mk.store of y in stage 'b', part 0, tile t0 = 0
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "a" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "b" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %3 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x1xf32>
      %4 = mk.reshape %3 : tensor<1x1xf32> -> tensor<1xf32>
      mk.store %4, %y[3] : tensor<1xf32> -> !mk.buffer<8xf32>
    }
  }
}
