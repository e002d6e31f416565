// RUN: amk-opt %s -p 'verify-mk{several-steps=true}' --split-input-file --verify-diagnostics | filecheck %s

// Several steps a launch: the next step waits for the token alone, so everything comes before it.

// The token waits for the logits, which wait for the rest.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<8x4xf32>
  %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
  %x = mk.buffer "activation" "x" : !mk.buffer<1x4xf32>
  %next = mk.buffer "output" "next" : !mk.buffer<1x1xi64>
  %y = mk.buffer "output" "logits" : !mk.buffer<1x4xf32>
  %a = mk.event
  %b = mk.event
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
  mk.stage "pick" waits(%b) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %x[0, 0] : !mk.buffer<1x4xf32> -> tensor<1x1xf32>
      mk.store %1, %next[0, 0] : tensor<1x1xf32> -> !mk.buffer<1x1xi64>
    }
  }
}

// -----

// A cache that grows: the token waits for the append too.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<8x4xf32>
  %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
  %x = mk.buffer "activation" "x" : !mk.buffer<1x4xf32>
  %next = mk.buffer "output" "next" : !mk.buffer<1x1xi64>
  %rows = mk.buffer "cache" "rows" : !mk.buffer<2x?x4xf32>
  %z = mk.buffer "activation" "z" : !mk.buffer<1x4xf32>
  %a = mk.event
  %c = mk.event
  %d = mk.event
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
  mk.stage "old" signals(%d) prologue {
    mk.yield
  } parts {
    mk.part[min(P, 1)] {
      %1 = mk.load %rows[0, P - 1, 0] : !mk.buffer<2x?x4xf32> -> tensor<1x1x4xf32>
      %2 = mk.reshape %1 : tensor<1x1x4xf32> -> tensor<1x4xf32>
      mk.store %2, %z[0, 0] : tensor<1x4xf32> -> !mk.buffer<1x4xf32>
    }
  }
  mk.stage "pick" waits(%a, %c, %d) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %x[0, 0] : !mk.buffer<1x4xf32> -> tensor<1x1xf32>
      mk.store %1, %next[0, 0] : tensor<1x1xf32> -> !mk.buffer<1x1xi64>
    }
  }
}

// -----

// One worker: its list ends with the token.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "static", workers = 1 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<8x4xf32>
  %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
  %x = mk.buffer "activation" "x" : !mk.buffer<1x4xf32>
  %next = mk.buffer "output" "next" : !mk.buffer<1x1xi64>
  %y = mk.buffer "output" "logits" : !mk.buffer<1x4xf32>
  %a = mk.event
  %b = mk.event
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
  mk.stage "pick" waits(%a) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %x[0, 0] : !mk.buffer<1x4xf32> -> tensor<1x1xf32>
      mk.store %1, %next[0, 0] : tensor<1x1xf32> -> !mk.buffer<1x1xi64>
    }
  }
}

// -----

// V5: nothing waits for the logits, so the next step may write what they read.
// CHECK: verify-mk: wrong: V5 at P = 0: the next step may write what this one still touches, x[0:1, 0:2]: mk.load of x in stage 'logits', part 0, tile t0 = 0; mk.store of x in stage 'embed', part 0, tile t0 = 0, of the next step; chain: stage 'logits', tile t0 = 0 → %b, for which stage 'pick' does not wait, the next step waits for stage 'pick', part 0, tile t0 = 0 alone
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<8x4xf32>
  %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
  %x = mk.buffer "activation" "x" : !mk.buffer<1x4xf32>
  %next = mk.buffer "output" "next" : !mk.buffer<1x1xi64>
  %y = mk.buffer "output" "logits" : !mk.buffer<1x4xf32>
  %a = mk.event
  %b = mk.event
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
  mk.stage "pick" waits(%a) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %x[0, 0] : !mk.buffer<1x4xf32> -> tensor<1x1xf32>
      mk.store %1, %next[0, 0] : tensor<1x1xf32> -> !mk.buffer<1x1xi64>
    }
  }
}

// -----

// V4: nothing waits for the append, so the next step may read the row before it is there.
// CHECK: verify-mk: wrong: V4 at P = 0: the next step may read before this one has written, rows[0:1, 0:1, 0:4]: mk.store of rows in stage 'append', part 0, tile t0 = 0; mk.load of rows in stage 'old', part 0, tile t0 = 0, of the next step; chain: stage 'append', tile t0 = 0 → %c, for which stage 'pick' does not wait
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<8x4xf32>
  %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
  %x = mk.buffer "activation" "x" : !mk.buffer<1x4xf32>
  %next = mk.buffer "output" "next" : !mk.buffer<1x1xi64>
  %rows = mk.buffer "cache" "rows" : !mk.buffer<2x?x4xf32>
  %z = mk.buffer "activation" "z" : !mk.buffer<1x4xf32>
  %a = mk.event
  %c = mk.event
  %d = mk.event
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
  mk.stage "old" signals(%d) prologue {
    mk.yield
  } parts {
    mk.part[min(P, 1)] {
      %1 = mk.load %rows[0, P - 1, 0] : !mk.buffer<2x?x4xf32> -> tensor<1x1x4xf32>
      %2 = mk.reshape %1 : tensor<1x1x4xf32> -> tensor<1x4xf32>
      mk.store %2, %z[0, 0] : tensor<1x4xf32> -> !mk.buffer<1x4xf32>
    }
  }
  mk.stage "pick" waits(%a, %d) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %x[0, 0] : !mk.buffer<1x4xf32> -> tensor<1x1xf32>
      mk.store %1, %next[0, 0] : tensor<1x1xf32> -> !mk.buffer<1x1xi64>
    }
  }
}

// -----

// V6: the token is read where the next one is already written.
// CHECK: verify-mk: wrong: V6 at P = 0: the next token may be written over one that is still read, tokens[0:1, 0:1]: mk.gather of tokens in stage 'pick', part 0, tile t0 = 0; mk.store of next in stage 'pick', part 0, tile t0 = 0; both stand in one tile, in the other order
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<8x4xf32>
  %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
  %x = mk.buffer "activation" "x" : !mk.buffer<1x4xf32>
  %next = mk.buffer "output" "next" : !mk.buffer<1x1xi64>
  %z = mk.buffer "activation" "z" : !mk.buffer<1x4xf32>
  %a = mk.event
  mk.stage "embed" signals(%a) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.gather %w, %tokens[0] : !mk.buffer<8x4xf32>, !mk.buffer<1x1xi64> -> tensor<1x4xf32>
      mk.store %1, %x[0, 0] : tensor<1x4xf32> -> !mk.buffer<1x4xf32>
    }
  }
  mk.stage "pick" waits(%a) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %x[0, 0] : !mk.buffer<1x4xf32> -> tensor<1x1xf32>
      mk.store %1, %next[0, 0] : tensor<1x1xf32> -> !mk.buffer<1x1xi64>
      %2 = mk.gather %w, %tokens[0] : !mk.buffer<8x4xf32>, !mk.buffer<1x1xi64> -> tensor<1x4xf32>
      mk.store %2, %z[0, 0] : tensor<1x4xf32> -> !mk.buffer<1x4xf32>
    }
  }
}

// -----

// V9: a row that nobody reads, but its tile would count towards %c in the next step.
// CHECK: verify-mk: wrong: V9 at P = 0: a tile may still run, and count towards its events, in the next step: stage 'append', part 0, tile t0 = 0; chain: stage 'append', tile t0 = 0 → %c, for which stage 'pick' does not wait
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
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
  mk.stage "pick" waits(%a) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %x[0, 0] : !mk.buffer<1x4xf32> -> tensor<1x1xf32>
      mk.store %1, %next[0, 0] : tensor<1x1xf32> -> !mk.buffer<1x1xi64>
    }
  }
}

// -----

// V12: the pieces of one step fit the ring, those of two do not.
// CHECK: verify-mk: wrong: V12 at P = 0: 2 pieces are filled ahead into 1 slots, those of the next step too, w: stage 'pick', part 0
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "static", workers = 1 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<8x4xf32>
  %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
  %x = mk.buffer "activation" "x" : !mk.buffer<1x4xf32>
  %next = mk.buffer "output" "next" : !mk.buffer<1x1xi64>
  %ring = mk.stream {slots = 1 : i64, slot_bytes = 128 : i64, ahead = 2 : i64}
  %a = mk.event
  mk.stage "embed" signals(%a) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.gather %w, %tokens[0] : !mk.buffer<8x4xf32>, !mk.buffer<1x1xi64> -> tensor<1x4xf32>
      mk.store %1, %x[0, 0] : tensor<1x4xf32> -> !mk.buffer<1x4xf32>
    }
  }
  mk.stage "pick" waits(%a) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %7 = mk.load %x[0, 0] : !mk.buffer<1x4xf32> -> tensor<1x4xf32>
      %8 = mk.matmul %7, %w[0, 0] through %ring {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<1x4xf32>, !mk.buffer<8x4xf32> -> tensor<1x8xf32>
      %1 = mk.load %x[0, 0] : !mk.buffer<1x4xf32> -> tensor<1x1xf32>
      mk.store %1, %next[0, 0] : tensor<1x1xf32> -> !mk.buffer<1x1xi64>
    }
  }
}

// -----

// Right at the only position there is: no step follows it.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 1 : i64, schedule = "claimed"} {
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
  mk.stage "pick" waits(%a) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %x[0, 0] : !mk.buffer<1x4xf32> -> tensor<1x1xf32>
      mk.store %1, %next[0, 0] : tensor<1x1xf32> -> !mk.buffer<1x1xi64>
    }
  }
}

// -----

// Without a token of its own a launch takes one step.
// CHECK: verify-mk: wrong: no greedy head, so a launch takes one step
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<8x4xf32>
  %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
  %x = mk.buffer "activation" "x" : !mk.buffer<1x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<1x4xf32>
  %a = mk.event
  %b = mk.event
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
}
