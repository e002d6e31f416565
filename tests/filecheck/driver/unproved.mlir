// RUN: not amk-opt %s -t cpu 2>&1 | filecheck %s

// Placed and scheduled by hand, and wrong: the second stage waits for nobody.
// CHECK: amk-opt: error: cpu: refuses a program that is not proved; verify-mk: pair: V4 at P = 0: a read may come before its write, x[0:1, 0:16]
mk.program "pair" attributes {tokens = 1 : i64, max_seq = 64 : i64, arena = 64 : i64, schedule = "claimed"} {
  %w = mk.buffer "weight" "w" : !mk.buffer<1x16xf32>
  %x = mk.buffer "activation" "x" {offset = 0 : i64} : !mk.buffer<1x16xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<1x16xf32>
  mk.stage "first" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %w[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
      mk.store %1, %x[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
    }
  }
  mk.stage "second" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %1 = mk.load %x[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
      mk.store %1, %y[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
    }
  }
}
