// RUN: amk-opt %s -p verify-mk --split-input-file --verify-diagnostics | filecheck %s

// V9: every wait is met, and every threshold is the number of signals.

// A threshold as stated, never reset.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %e = mk.event {threshold = #mk.exprs<[2]>, counter = "monotonic"}
  mk.stage "a" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "b" waits(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %3 = mk.load %x[t0 * 4] : !mk.buffer<8xf32> -> tensor<4xf32>
      mk.store %3, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// Too high, so it hangs.
// CHECK: verify-mk: wrong: V9 at P = 0: group 0 waits for 3 signals of 2, %e: stage 'a', part 0
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %e = mk.event {threshold = #mk.exprs<[3]>}
  mk.stage "a" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "b" waits(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %3 = mk.load %x[t0 * 4] : !mk.buffer<8xf32> -> tensor<4xf32>
      mk.store %3, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// Wrong at the last position.
// CHECK: verify-mk: wrong: V9 at P = 7: group 0 waits for 1 signals of 2, %e: stage 'a', part 0
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %e = mk.event {threshold = #mk.exprs<[2 - P floordiv 7]>}
  mk.stage "a" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "b" waits(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %3 = mk.load %x[t0 * 4] : !mk.buffer<8xf32> -> tensor<4xf32>
      mk.store %3, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// Never reset, and tiles that grow with the position.
// CHECK: verify-mk: wrong: V9 at P = 4: a counter that is never reset gets another number of signals than at P = 0, %e: stage 'a', part 0
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %e = mk.event {counter = "monotonic"}
  mk.stage "a" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[P floordiv 4 + 1] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "b" waits(%e) prologue {
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

// A wait for what comes later.
// CHECK: verify-mk: wrong: V9 at P = 0: a tile waits for what can only come later: stage 'b', part 0, tile t0 = 0; it waits for %e
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %e = mk.event
  mk.stage "b" waits(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "a" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %3 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %4 = mk.reshape %3 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %4, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// A group that is not there.
// CHECK: verify-mk: wrong: V9 at P = 0: a tile waits for groups [2, 3) of 2, %g: stage 'b', part 0, tile t0 = 2
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %g = mk.event {groups = #mk.exprs<[2]>}
  mk.stage "a" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
      mk.signal %g[t0]
    }
  }
  mk.stage "b" prologue {
    mk.yield
  } parts {
    mk.part[4] {
      mk.wait %g[t0, 1]
      %3 = mk.load %x[t0 * 2] : !mk.buffer<8xf32> -> tensor<2xf32>
      mk.store %3, %y[t0 * 2] : tensor<2xf32> -> !mk.buffer<8xf32>
    }
  }
}
