// RUN: amk-opt %s -p minimize-waits --split-input-file | filecheck %s

// The token feeds the next step, which waits for nothing else: the wait for the append stays.
// CHECK: mk.program "feeds"
// CHECK: mk.stage "pick" waits(%{{a, %c|c, %a}})
mk.program "feeds" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<8x4xf32>
  %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
  %x = mk.buffer "activation" "x" : !mk.buffer<1x4xf32>
  %next = mk.buffer "output" "next" : !mk.buffer<1x1xi64>
  %rows = mk.buffer "cache" "rows" : !mk.buffer<2x?x4xf32>
  %a = mk.event
  %c = mk.event
  mk.stage "embed" signals(%a) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.gather %w, %tokens[0] : !mk.buffer<8x4xf32>, !mk.buffer<1x1xi64> -> tensor<1x4xf32>
      mk.store %1, %x[0, 0] : tensor<1x4xf32> -> !mk.buffer<1x4xf32>
    }
  }
  mk.stage "append" signals(%c) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[t0, 0] : !mk.buffer<8x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<1x1x4xf32>
      mk.store %2, %rows[t0, P, 0] : tensor<1x1x4xf32> -> !mk.buffer<2x?x4xf32>
    }
  }
  mk.stage "pick" waits(%a, %c) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %x[0, 0] : !mk.buffer<1x4xf32> -> tensor<1x1xf32>
      mk.store %1, %next[0, 0] : tensor<1x1xf32> -> !mk.buffer<1x1xi64>
    }
  }
}

// -----

// It goes where no step can follow.
// CHECK: mk.program "alone"
// CHECK: mk.stage "pick" waits(%a)
mk.program "alone" attributes {tokens = 1 : i64, max_seq = 1 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<8x4xf32>
  %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
  %x = mk.buffer "activation" "x" : !mk.buffer<1x4xf32>
  %next = mk.buffer "output" "next" : !mk.buffer<1x1xi64>
  %rows = mk.buffer "cache" "rows" : !mk.buffer<2x?x4xf32>
  %a = mk.event
  %c = mk.event
  mk.stage "embed" signals(%a) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.gather %w, %tokens[0] : !mk.buffer<8x4xf32>, !mk.buffer<1x1xi64> -> tensor<1x4xf32>
      mk.store %1, %x[0, 0] : tensor<1x4xf32> -> !mk.buffer<1x4xf32>
    }
  }
  mk.stage "append" signals(%c) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[t0, 0] : !mk.buffer<8x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<1x1x4xf32>
      mk.store %2, %rows[t0, P, 0] : tensor<1x1x4xf32> -> !mk.buffer<2x?x4xf32>
    }
  }
  mk.stage "pick" waits(%a, %c) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %x[0, 0] : !mk.buffer<1x4xf32> -> tensor<1x1xf32>
      mk.store %1, %next[0, 0] : tensor<1x1xf32> -> !mk.buffer<1x1xi64>
    }
  }
}

// -----

// And where several steps were wrong to begin with.
// CHECK: mk.program "wrong"
// CHECK: mk.stage "pick" waits(%a)
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<8x4xf32>
  %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
  %x = mk.buffer "activation" "x" : !mk.buffer<1x4xf32>
  %next = mk.buffer "output" "next" : !mk.buffer<1x1xi64>
  %y = mk.buffer "output" "logits" : !mk.buffer<1x4xf32>
  %rows = mk.buffer "cache" "rows" : !mk.buffer<2x?x4xf32>
  %a = mk.event
  %b = mk.event
  %c = mk.event
  mk.stage "embed" signals(%a) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.gather %w, %tokens[0] : !mk.buffer<8x4xf32>, !mk.buffer<1x1xi64> -> tensor<1x4xf32>
      mk.store %1, %x[0, 0] : tensor<1x4xf32> -> !mk.buffer<1x4xf32>
    }
  }
  mk.stage "logits" waits(%a) signals(%b) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %x[0, t0 * 2] : !mk.buffer<1x4xf32> -> tensor<1x2xf32>
      mk.store %1, %y[0, t0 * 2] : tensor<1x2xf32> -> !mk.buffer<1x4xf32>
    }
  }
  mk.stage "append" signals(%c) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[t0, 0] : !mk.buffer<8x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<1x1x4xf32>
      mk.store %2, %rows[t0, P, 0] : tensor<1x1x4xf32> -> !mk.buffer<2x?x4xf32>
    }
  }
  mk.stage "pick" waits(%a, %c) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %x[0, 0] : !mk.buffer<1x4xf32> -> tensor<1x1xf32>
      mk.store %1, %next[0, 0] : tensor<1x1xf32> -> !mk.buffer<1x1xi64>
    }
  }
}
