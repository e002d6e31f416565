// RUN: amk-opt %s -p 'plan-buffers,schedule{kind=static workers=3 groups=true},verify-mk' | filecheck %s
// RUN: amk-opt %s -p 'plan-buffers,schedule{kind=static workers=3}' | filecheck %s --check-prefix=WHOLE
// RUN: not amk-opt %s -p 'schedule{kind=static}' 2>&1 | filecheck %s --check-prefix=WORKERS

// WORKERS: schedule: workers are given with kind=static, and only with it

// A tile of "halves" reads what two tiles of "makes" wrote: it waits for those two groups and for no
// stage. What reads the whole of %z waits for the whole stage. Stages go on from where the one before
// left the workers: 8 tiles mod 3, then 4 more, which is back at worker 0.
// CHECK:      schedule = "static", workers = 3 : i64
// CHECK:      [[halves:%.+]] = mk.event
// CHECK-NEXT: [[makes:%.+]] = mk.event {groups = #mk.exprs<[8]>}
// CHECK-NOT:  mk.event
// CHECK:      mk.stage "makes" prologue
// CHECK:        mk.part[8] {
// CHECK:          mk.store {{.*}}
// CHECK-NEXT:     mk.signal [[makes]][t0]
// CHECK:      mk.stage "halves" signals([[halves]]) attributes {shift = 2 : i64} prologue
// CHECK:        mk.part[4] {
// CHECK-NEXT:     mk.wait [[makes]][t0 * 2, 2]
// CHECK:      mk.stage "all" waits([[halves]]) prologue
// CHECK-NOT:  mk.wait

// WHOLE-NOT:  groups
// WHOLE:      mk.stage "makes" signals([[makes:%.+]]) prologue
// WHOLE:      mk.stage "halves" waits([[makes]]) signals([[halves:%.+]]) attributes {shift = 2 : i64}
// WHOLE:      mk.stage "all" waits([[halves]]) prologue
// WHOLE-NOT:  mk.wait
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<64x32xf32>
  %x = mk.buffer "activation" "x" : !mk.buffer<1x64xf32>
  %z = mk.buffer "activation" "z" : !mk.buffer<1x64xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<1x64xf32>
  mk.stage "makes" prologue {
    mk.yield
  } parts {
    mk.part[8] {
      %a = mk.load %w[t0, 0] : !mk.buffer<64x32xf32> -> tensor<1x8xf32>
      mk.store %a, %x[0, t0 * 8] : tensor<1x8xf32> -> !mk.buffer<1x64xf32>
    }
  }
  mk.stage "halves" prologue {
    mk.yield
  } parts {
    mk.part[4] {
      %a = mk.load %x[0, t0 * 16] : !mk.buffer<1x64xf32> -> tensor<1x16xf32>
      mk.store %a, %z[0, t0 * 16] : tensor<1x16xf32> -> !mk.buffer<1x64xf32>
    }
  }
  mk.stage "all" prologue {
    %a = mk.load %z[0, 0] : !mk.buffer<1x64xf32> -> tensor<1x64xf32>
    mk.yield %a : tensor<1x64xf32>
  } parts {
  ^bb0(%k: tensor<1x64xf32>):
    mk.part[1] {
      mk.store %k, %y[0, 0] : tensor<1x64xf32> -> !mk.buffer<1x64xf32>
    }
  }
}
