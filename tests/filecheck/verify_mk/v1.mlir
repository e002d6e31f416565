// RUN: amk-opt %s -p verify-mk --split-input-file --verify-diagnostics | filecheck %s

// V1: every element is written exactly once, a cache's rows P … P + S − 1 exactly.

// Two parts that share a buffer.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %y[0] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
    mk.part[2] {
      %3 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x2xf32>
      %4 = mk.reshape %3 : tensor<1x2xf32> -> tensor<2xf32>
      mk.store %4, %y[t0 * 2 + 4] : tensor<2xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// Tiles that overlap.
// CHECK: verify-mk: wrong: V1 at P = 0: an element is written twice, y[2:4]: mk.store of y in stage 'out', part 0, tile t0 = 0; mk.store of y in stage 'out', part 0, tile t0 = 1
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[3] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %y[t0 * 2] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// Two parts that overlap from a position on.
// CHECK: verify-mk: wrong: V1 at P = 4: an element is written twice, y[0:1]: mk.store of y in stage 'out', part 0, tile t0 = 0; mk.store of y in stage 'out', part 1, tile t0 = 0
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
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
    mk.part[P floordiv 4] {
      %3 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x1xf32>
      %4 = mk.reshape %3 : tensor<1x1xf32> -> tensor<1xf32>
      mk.store %4, %y[0] : tensor<1xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// An append of one row.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %c = mk.buffer "cache" "c" : !mk.buffer<1x2x?x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "kv" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<2x4xf32>
      %2 = mk.reshape %1 : tensor<2x4xf32> -> tensor<1x2x1x4xf32>
      mk.store %2, %c[0, 0, P, 0] : tensor<1x2x1x4xf32> -> !mk.buffer<1x2x?x4xf32>
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

// -----

// A row late.
// CHECK: verify-mk: wrong: V1 at P = 1: rows outside P … P + 1 − 1 are written, c[0:1, 0:2, 0:1, 0:4]: mk.store of c in stage 'kv', part 0, tile t0 = 0
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %c = mk.buffer "cache" "c" : !mk.buffer<1x2x?x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "kv" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<2x4xf32>
      %2 = mk.reshape %1 : tensor<2x4xf32> -> tensor<1x2x1x4xf32>
      mk.store %2, %c[0, 0, max(P - 1, 0), 0] : tensor<1x2x1x4xf32> -> !mk.buffer<1x2x?x4xf32>
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

// -----

// A head is missing.
// CHECK: verify-mk: wrong: V1 at P = 0: a row of the cache is not appended, c[0, 1, 0, 0]
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %c = mk.buffer "cache" "c" : !mk.buffer<1x2x?x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "kv" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<1x1x1x4xf32>
      mk.store %2, %c[0, 0, P, 0] : tensor<1x1x1x4xf32> -> !mk.buffer<1x2x?x4xf32>
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
