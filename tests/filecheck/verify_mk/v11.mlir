// RUN: amk-opt %s -p verify-mk --split-input-file --verify-diagnostics | filecheck %s

// V11: the order of every reduction is fixed.

// One size of chunk a cache.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %c = mk.buffer "cache" "c" : !mk.buffer<1x2x?x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %e = mk.event
  mk.stage "kv" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<2x4xf32>
      %2 = mk.reshape %1 : tensor<2x4xf32> -> tensor<1x2x1x4xf32>
      mk.store %2, %c[0, 0, P, 0] : tensor<1x2x1x4xf32> -> !mk.buffer<1x2x?x4xf32>
    }
  }
  mk.stage "at" waits(%e) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %3 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %4 = mk.reshape %3 : tensor<1x4xf32> -> tensor<1x1x4xf32>
      %5, %6, %7 = mk.attention %4, %c, %c at[0, 0] {scale = 1.0 : f64, chunk = 16 : i64} : tensor<1x1x4xf32>, !mk.buffer<1x2x?x4xf32>, !mk.buffer<1x2x?x4xf32> -> tensor<1x1x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>
      %9 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %10 = mk.reshape %9 : tensor<1x4xf32> -> tensor<1x1x4xf32>
      %11, %12, %13 = mk.attention %10, %c, %c at[0, 0] {scale = 1.0 : f64, chunk = 16 : i64} : tensor<1x1x4xf32>, !mk.buffer<1x2x?x4xf32>, !mk.buffer<1x2x?x4xf32> -> tensor<1x1x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>
    }
  }
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %15 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %16 = mk.reshape %15 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %16, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// Two sizes.
// CHECK: verify-mk: wrong: V11 at P = 0: one cache is reduced in chunks of two sizes, c: mk.attention
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %c = mk.buffer "cache" "c" : !mk.buffer<1x2x?x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %e = mk.event
  mk.stage "kv" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<2x4xf32>
      %2 = mk.reshape %1 : tensor<2x4xf32> -> tensor<1x2x1x4xf32>
      mk.store %2, %c[0, 0, P, 0] : tensor<1x2x1x4xf32> -> !mk.buffer<1x2x?x4xf32>
    }
  }
  mk.stage "at" waits(%e) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %3 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %4 = mk.reshape %3 : tensor<1x4xf32> -> tensor<1x1x4xf32>
      %5, %6, %7 = mk.attention %4, %c, %c at[0, 0] {scale = 1.0 : f64, chunk = 16 : i64} : tensor<1x1x4xf32>, !mk.buffer<1x2x?x4xf32>, !mk.buffer<1x2x?x4xf32> -> tensor<1x1x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>
      %9 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %10 = mk.reshape %9 : tensor<1x4xf32> -> tensor<1x1x4xf32>
      %11, %12, %13 = mk.attention %10, %c, %c at[0, 0] {scale = 1.0 : f64, chunk = 32 : i64} : tensor<1x1x4xf32>, !mk.buffer<1x2x?x4xf32>, !mk.buffer<1x2x?x4xf32> -> tensor<1x1x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>
    }
  }
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %15 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %16 = mk.reshape %15 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %16, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}
