// RUN: amk-opt %s -p verify-mk --split-input-file --verify-diagnostics | filecheck %s

// V2: every access lies inside its buffer, at every position.

// A table with a row for every position.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %t = mk.buffer "weight" "t" : !mk.buffer<8xf32>
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[8] {
      %1 = mk.load %t[P] : !mk.buffer<8xf32> -> tensor<1xf32>
      mk.store %1, %y[t0] : tensor<1xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// A row further, wrong at the last position.
// CHECK: verify-mk: wrong: V2 at P = 7: an access leaves its buffer of 8, t[8:9]: mk.load of t in stage 'out', part 0, tile t0 = 0
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %t = mk.buffer "weight" "t" : !mk.buffer<8xf32>
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[8] {
      %1 = mk.load %t[P + 1] : !mk.buffer<8xf32> -> tensor<1xf32>
      mk.store %1, %y[t0] : tensor<1xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// A tile past the end.
// CHECK: verify-mk: wrong: V2 at P = 0: an access leaves its buffer of 8, y[8:12]: mk.store of y in stage 'out', part 0, tile t0 = 2
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "out" prologue {
    mk.yield
  } parts {
    mk.part[3] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// A place past the arena.
// CHECK: verify-mk: wrong: V2 at P = 0: bytes 64 to 96 of an arena of 64 bytes, x
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, arena = 64 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" {offset = 64 : i64} : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "a" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[0] : tensor<4xf32> -> !mk.buffer<8xf32>
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
