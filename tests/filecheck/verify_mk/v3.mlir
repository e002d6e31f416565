// RUN: amk-opt %s -p verify-mk --split-input-file --verify-diagnostics | filecheck %s

// V3: nothing is read before it is written.

// Written whole, then read.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %e = mk.event
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

// Half is never written.
// CHECK: verify-mk: wrong: V3 at P = 0: an element is read that no tile writes, x[4]: mk.load of x in stage 'b', part 0, tile t0 = 1
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %e = mk.event
  mk.stage "a" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[1] {
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

// A tile less from position 5 on.
// CHECK: verify-mk: wrong: V3 at P = 5: an element is read that no tile writes, x[4]: mk.load of x in stage 'b', part 0, tile t0 = 1
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %e = mk.event
  mk.stage "a" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[max(2 - P floordiv 5, 1)] {
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

// The reader comes first.
// CHECK: verify-mk: wrong: V3 at P = 0: read before it is written, x[0:4]: mk.store of x in stage 'a', part 0, tile t0 = 0; mk.load of x in stage 'b', part 0, tile t0 = 0
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %e = mk.event
  mk.stage "b" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %x[t0 * 4] : !mk.buffer<8xf32> -> tensor<4xf32>
      mk.store %1, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "a" waits(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %2 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %3 = mk.reshape %2 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %3, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}
