// RUN: amk-opt %s -p verify-mk --split-input-file --verify-diagnostics | filecheck %s

// V10: every block is resident at once.

// Two blocks a processor by shared memory.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "static", workers = 8 : i64, amk.resources = {threads = 256 : i64, registers = 64 : i64, shared_bytes = 100000 : i64, processors = 4 : i64, max_threads = 2048 : i64, max_registers = 65536 : i64, max_shared_bytes = 233472 : i64, max_blocks = 32 : i64}} {
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

// One block too many.
// CHECK: verify-mk: wrong: V10 at P = 0: 9 blocks, and the device holds 8 at once
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "static", workers = 9 : i64, amk.resources = {threads = 256 : i64, registers = 64 : i64, shared_bytes = 100000 : i64, processors = 4 : i64, max_threads = 2048 : i64, max_registers = 65536 : i64, max_shared_bytes = 233472 : i64, max_blocks = 32 : i64}} {
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
