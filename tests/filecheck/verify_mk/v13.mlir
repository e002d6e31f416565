// RUN: amk-opt %s -p verify-mk --split-input-file --verify-diagnostics | filecheck %s

// V13: address arithmetic fits the integer type of the emitter.

// 32 bits.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 4096 : i64, schedule = "claimed", amk.index_bits = 32 : i64} {
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

// 16 bits, and a cache of 4,096 rows.
// CHECK: verify-mk: wrong: V13 at P = 4095: byte 131072 does not fit a signed integer of 16 bits, c: mk.store of c in stage 'kv', part 0, tile t0 = 0
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 4096 : i64, schedule = "claimed", amk.index_bits = 16 : i64} {
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
