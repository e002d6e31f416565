// RUN: amk-opt %s -p 'assign-workers{workers=4}' | filecheck %s
// RUN: amk-opt %s -p 'assign-workers{workers=1}' | filecheck %s --check-prefix=ALONE
// RUN: not amk-opt %s -p assign-workers 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not amk-opt %s -p 'stream-weights{ring-bytes=65536}' 2>&1 | filecheck %s --check-prefix=STREAM

// STREAM: stream-weights: the schedule is not static; run assign-workers
// NONE: assign-workers: give workers, the number of blocks that run at once

// Tile l of a stage is worker (l + shift) mod 4's. Parts of a stage count together, 3 + 2 tiles; a
// grid that grows with the position counts as at position 0, one tile a chunk of 16 rows.
// CHECK: schedule = "static", workers = 4 : i64
// CHECK: mk.stage "five" prologue
// CHECK: mk.stage "grows" attributes {shift = 1 : i64} prologue
// CHECK: mk.stage "two" attributes {shift = 3 : i64} prologue
// CHECK: mk.stage "last" attributes {shift = 1 : i64} prologue

// ALONE:     workers = 1 : i64
// ALONE-NOT: shift
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<8x8xf32>
  %a = mk.buffer "activation" "a" : !mk.buffer<8x8xf32>
  %b = mk.buffer "activation" "b" : !mk.buffer<8x8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8x8xf32>
  mk.stage "five" prologue {
    mk.yield
  } parts {
    mk.part[3] {
      %x = mk.load %w[t0, 0] : !mk.buffer<8x8xf32> -> tensor<1x8xf32>
      mk.store %x, %a[t0, 0] : tensor<1x8xf32> -> !mk.buffer<8x8xf32>
    }
    mk.part[2] {
      %x = mk.load %w[t0, 0] : !mk.buffer<8x8xf32> -> tensor<1x8xf32>
      mk.store %x, %a[t0 + 3, 0] : tensor<1x8xf32> -> !mk.buffer<8x8xf32>
    }
  }
  mk.stage "grows" prologue {
    mk.yield
  } parts {
    mk.part[2, P floordiv 16 + 1] {
      %x = mk.load %w[t0, 0] : !mk.buffer<8x8xf32> -> tensor<1x1xf32>
      mk.store %x, %b[t0, t1] : tensor<1x1xf32> -> !mk.buffer<8x8xf32>
    }
  }
  mk.stage "two" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %w[t0, 0] : !mk.buffer<8x8xf32> -> tensor<1x4xf32>
      mk.store %x, %b[t0 + 2, 0] : tensor<1x4xf32> -> !mk.buffer<8x8xf32>
    }
  }
  mk.stage "last" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %x = mk.load %a[0, 0] : !mk.buffer<8x8xf32> -> tensor<1x8xf32>
      mk.store %x, %y[0, 0] : tensor<1x8xf32> -> !mk.buffer<8x8xf32>
    }
  }
}
