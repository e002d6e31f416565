// RUN: amk-opt %s -p verify-mk --split-input-file --verify-diagnostics | filecheck %s

// V4: every read happens after the writes it needs.

// Groups that hold what each tile reads.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %g = mk.event {groups = #mk.exprs<[2]>}
  mk.stage "a" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
      mk.signal %g[t0]
    }
  }
  mk.stage "b" prologue {
    mk.yield
  } parts {
    mk.part[4] {
      mk.wait %g[t0 floordiv 2, 1]
      %3 = mk.load %x[t0 * 2] : !mk.buffer<8xf32> -> tensor<2xf32>
      mk.store %3, %y[t0 * 2] : tensor<2xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// The other group.
// CHECK: verify-mk: wrong: V4 at P = 0: a read may come before its write, x[0:2]: mk.store of x in stage 'a', part 0, tile t0 = 0; mk.load of x in stage 'b', part 0, tile t0 = 0; chain: stage 'a', tile t0 = 0 → %g[0], while stage 'b', tile t0 = 0 waits for %g[1]
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %g = mk.event {groups = #mk.exprs<[2]>}
  mk.stage "a" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
      mk.signal %g[t0]
    }
  }
  mk.stage "b" prologue {
    mk.yield
  } parts {
    mk.part[4] {
      mk.wait %g[1 - t0 floordiv 2, 1]
      %3 = mk.load %x[t0 * 2] : !mk.buffer<8xf32> -> tensor<2xf32>
      mk.store %3, %y[t0 * 2] : tensor<2xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// No wait at all.
// CHECK: verify-mk: wrong: V4 at P = 0: a read may come before its write, x[0:4]: mk.store of x in stage 'a', part 0, tile t0 = 0; mk.load of x in stage 'b', part 0, tile t0 = 0; chain: stage 'a', tile t0 = 0, which signals no event
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "a" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "b" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %3 = mk.load %x[t0 * 4] : !mk.buffer<8xf32> -> tensor<4xf32>
      mk.store %3, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// One worker runs its list in order.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "static", workers = 1 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "a" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "b" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %3 = mk.load %x[t0 * 4] : !mk.buffer<8xf32> -> tensor<4xf32>
      mk.store %3, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// Two workers, each reads what it wrote.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "static", workers = 2 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "a" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "b" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %3 = mk.load %x[t0 * 4] : !mk.buffer<8xf32> -> tensor<4xf32>
      mk.store %3, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// Two workers, shifted by one.
// CHECK: verify-mk: wrong: V4 at P = 0: a read may come before its write, x[0:4]: mk.store of x in stage 'a', part 0, tile t0 = 0; mk.load of x in stage 'b', part 0, tile t0 = 0; chain: stage 'a', tile t0 = 0, which signals no event
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "static", workers = 2 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  mk.stage "a" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "b" attributes {shift = 1 : i64} prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %3 = mk.load %x[t0 * 4] : !mk.buffer<8xf32> -> tensor<4xf32>
      mk.store %3, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// The wait passes through a stage that is empty at first.
// CHECK: verify-mk: wrong: V4 at P = 0: a read may come before its write, x[0:4]: mk.store of x in stage 'a', part 0, tile t0 = 0; mk.load of x in stage 'b', part 0, tile t0 = 0; chain: stage 'a', tile t0 = 0 → %e, for which stage 'b', tile t0 = 0 does not wait
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %z = mk.buffer "activation" "z" : !mk.buffer<8xf32>
  %e = mk.event
  %f = mk.event
  mk.stage "a" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "m" waits(%e) signals(%f) prologue {
    mk.yield
  } parts {
    mk.part[min(P, 1)] {
      %3 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %4 = mk.reshape %3 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %4, %z[0] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "b" waits(%f) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %5 = mk.load %x[t0 * 4] : !mk.buffer<8xf32> -> tensor<4xf32>
      mk.store %5, %y[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// The longest chain from the write goes through two stages, and breaks before the read.
// CHECK: verify-mk: wrong: V4 at P = 0: a read may come before its write, x[0:4]: mk.store of x in stage 'a', part 0, tile t0 = 0; mk.load of x in stage 'b', part 0, tile t0 = 0; chain: stage 'a', tile t0 = 0 → %e → stage 'm', tile t0 = 0 → %f → stage 'n' → %h, for which stage 'b' does not wait
mk.program "wrong" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %u = mk.buffer "activation" "u" : !mk.buffer<8xf32>
  %v = mk.buffer "activation" "v" : !mk.buffer<8xf32>
  %e = mk.event
  %f = mk.event
  %h = mk.event
  mk.stage "a" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "m" waits(%e) signals(%f) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %3 = mk.load %x[t0 * 4] : !mk.buffer<8xf32> -> tensor<4xf32>
      mk.store %3, %u[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "n" waits(%e, %f) signals(%h) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %4 = mk.load %u[0] : !mk.buffer<8xf32> -> tensor<8xf32>
      mk.store %4, %v[0] : tensor<8xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "b" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %5 = mk.load %x[0] : !mk.buffer<8xf32> -> tensor<8xf32>
      mk.store %5, %y[0] : tensor<8xf32> -> !mk.buffer<8xf32>
    }
  }
}

// -----

// With that wait it holds.
// CHECK: mk.program "right"
mk.program "right" attributes {tokens = 1 : i64, max_seq = 8 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4x4xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<8xf32>
  %u = mk.buffer "activation" "u" : !mk.buffer<8xf32>
  %v = mk.buffer "activation" "v" : !mk.buffer<8xf32>
  %e = mk.event
  %f = mk.event
  %h = mk.event
  mk.stage "a" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %1 = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<1x4xf32>
      %2 = mk.reshape %1 : tensor<1x4xf32> -> tensor<4xf32>
      mk.store %2, %x[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "m" waits(%e) signals(%f) prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %3 = mk.load %x[t0 * 4] : !mk.buffer<8xf32> -> tensor<4xf32>
      mk.store %3, %u[t0 * 4] : tensor<4xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "n" waits(%e, %f) signals(%h) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %4 = mk.load %u[0] : !mk.buffer<8xf32> -> tensor<8xf32>
      mk.store %4, %v[0] : tensor<8xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "b" waits(%h) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %5 = mk.load %x[0] : !mk.buffer<8xf32> -> tensor<8xf32>
      mk.store %5, %y[0] : tensor<8xf32> -> !mk.buffer<8xf32>
    }
  }
}
