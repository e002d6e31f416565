// The emitter takes what every pass has seen, and says which pass it lacks.
//
// RUN: not amk-opt %s -t cpu 2>&1 | filecheck %s --check-prefix=PLACE
// RUN: not amk-opt %s -p plan-buffers -t cpu 2>&1 | filecheck %s --check-prefix=SCHEDULE
// RUN: not amk-opt %s -p 'plan-buffers,schedule{kind=static workers=2}' -t cpu 2>&1 | filecheck %s --check-prefix=STATIC
// RUN: amk-opt %s -p plan-buffers,schedule -t cpu | filecheck %s --check-prefix=C
//
// Two activations of one name are two places, not one.
// PLACE: amk-opt: error: cpu: pair: activation 'x' has no place in the arena; run plan-buffers
// SCHEDULE: amk-opt: error: cpu: pair: the program is not scheduled; run schedule
// STATIC: amk-opt: error: cpu: workers claim tiles; schedule the program as claimed
// C: static const int operands_0_0[] = {0, 1}
// C: static const int operands_0_1[] = {1, 2}
// C: static const int operands_0_2[] = {2, 3}
mk.program "pair" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<1x16xf32>
  %a = mk.buffer "activation" "x" : !mk.buffer<1x16xf32>
  %b = mk.buffer "activation" "x" : !mk.buffer<1x16xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<1x16xf32>
  mk.stage "first" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %w[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
      mk.store %1, %a[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
    }
  }
  mk.stage "second" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %a[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
      mk.store %1, %b[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
    }
  }
  mk.stage "third" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %b[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
      mk.store %1, %y[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
    }
  }
}
