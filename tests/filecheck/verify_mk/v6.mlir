// RUN: amk-opt %s -p verify-mk --split-input-file --verify-diagnostics | filecheck %s

// V6: buffers that share bytes of the arena take turns.

// After the last reader.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, arena = 96 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" {offset = 0 : i64} : !mk.buffer<8xf32>
  %z = mk.buffer "activation" "z" {offset = 16 : i64} : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %e = mk.event
  %f = mk.event
  %q = mk.buffer "activation" "q" {offset = 64 : i64} : !mk.buffer<8xf32>
  mk.stage "a" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "b" waits(%e) signals(%f) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %3 = mk.load %x[t0 * 4] : !mk.buffer<8xf32> -> tensor<4xf32>
      mk.store %3, %q[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "c" waits(%f) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %4 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %5 = mk.reshape %4 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %5, %z[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %6 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %7 = mk.reshape %6 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %7, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// After the writer alone.
// CHECK: verify-mk: wrong: V6 at P = 0: shared bytes are touched in no order, x and z, arena cell 4: mk.load of x in stage 'b', part 0, tile t0 = 1; mk.store of z in stage 'c', part 0, tile t0 = 0; chain: stage 'b', tile t0 = 1 → %f, for which stage 'c', tile t0 = 0 does not wait
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, arena = 96 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" {offset = 0 : i64} : !mk.buffer<8xf32>
  %z = mk.buffer "activation" "z" {offset = 16 : i64} : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %e = mk.event
  %f = mk.event
  %q = mk.buffer "activation" "q" {offset = 64 : i64} : !mk.buffer<8xf32>
  mk.stage "a" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "b" waits(%e) signals(%f) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %3 = mk.load %x[t0 * 4] : !mk.buffer<8xf32> -> tensor<4xf32>
      mk.store %3, %q[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "c" waits(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %4 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %5 = mk.reshape %4 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %5, %z[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %6 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %7 = mk.reshape %6 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %7, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}
