// RUN: amk-opt %s -p verify-mk --split-input-file --verify-diagnostics | filecheck %s

// V12: a slot of a ring is refilled only after its last reader.

// Four pieces through two slots.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "static", workers = 1 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %m = mk.buffer "weight" "m" : !mk.buffer<8x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %s = mk.stream {slots = 2 : i64, slot_bytes = 32 : i64, ahead = 2 : i64}
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.matmul %1, %m[t0 * 4, 0] through %s {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<1x4xf32>, !mk.buffer<8x4xf32> -> tensor<1x4xf32>
      %3 = mk.reshape %2 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %3, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// Three ahead into two slots.
// CHECK: verify-mk: wrong: V12 at P = 0: 3 pieces are filled ahead into 2 slots, %s: worker 0 has 4 pieces, from stage 'out', part 0 on
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "static", workers = 1 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %m = mk.buffer "weight" "m" : !mk.buffer<8x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %s = mk.stream {slots = 2 : i64, slot_bytes = 32 : i64, ahead = 3 : i64}
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.matmul %1, %m[t0 * 4, 0] through %s {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<1x4xf32>, !mk.buffer<8x4xf32> -> tensor<1x4xf32>
      %3 = mk.reshape %2 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %3, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// Three ahead, but there are two pieces in all.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "static", workers = 1 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %m = mk.buffer "weight" "m" : !mk.buffer<8x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %s = mk.stream {slots = 2 : i64, slot_bytes = 64 : i64, ahead = 3 : i64}
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.matmul %1, %m[t0 * 4, 0] through %s {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<1x4xf32>, !mk.buffer<8x4xf32> -> tensor<1x4xf32>
      %3 = mk.reshape %2 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %3, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// A slot that holds no row.
// CHECK: verify-mk: wrong: V12 at P = 0: a row of 16 bytes passes through slots of 8 bytes, m: stage 'out', part 0
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "static", workers = 1 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %m = mk.buffer "weight" "m" : !mk.buffer<8x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %s = mk.stream {slots = 2 : i64, slot_bytes = 8 : i64, ahead = 2 : i64}
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.matmul %1, %m[t0 * 4, 0] through %s {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<1x4xf32>, !mk.buffer<8x4xf32> -> tensor<1x4xf32>
      %3 = mk.reshape %2 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %3, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}
