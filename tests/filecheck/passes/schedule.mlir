// RUN: amk-opt %s -p schedule | filecheck %s
// RUN: not amk-opt %s -p 'schedule{kind=eager}' 2>&1 | filecheck %s --check-prefix=KIND
// RUN: not amk-opt %s -p schedule,schedule 2>&1 | filecheck %s --check-prefix=TWICE

// KIND: schedule: kind 'eager'; known:
// TWICE: schedule: the program is scheduled already

// Stage 1 reads what 0 wrote. Stage 2 depends on neither. Stage 3 reads what 0 and 1 wrote: the
// wait for 0 follows from that for 1. Stage 4 writes bytes that 3 reads (%b shares %a's place),
// stage 5 writes what 4 wrote; nobody waits for stage 5.
// CHECK:      schedule = "claimed"
// CHECK:      [[e0:%.+]] = mk.event
// CHECK-NEXT: [[e1:%.+]] = mk.event
// CHECK-NEXT: [[e3:%.+]] = mk.event
// CHECK-NEXT: [[e4:%.+]] = mk.event
// CHECK-NOT:  mk.event
// CHECK:      mk.stage "0" signals([[e0]]) prologue
// CHECK:      mk.stage "1" waits([[e0]]) signals([[e1]]) prologue
// CHECK:      mk.stage "2" prologue
// CHECK:      mk.stage "3" waits([[e1]]) signals([[e3]]) prologue
// CHECK:      mk.stage "4" waits([[e3]]) signals([[e4]]) prologue
// CHECK:      mk.stage "5" waits([[e4]]) prologue
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64, arena = 192 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<16xf32>
  %a = mk.buffer "activation" "a" {offset = 0 : i64, lifetime = array<i64: 0, 3>} : !mk.buffer<16xf32>
  %c = mk.buffer "activation" "c" {offset = 64 : i64, lifetime = array<i64: 1, 3>} : !mk.buffer<16xf32>
  %d = mk.buffer "activation" "d" {offset = 128 : i64, lifetime = array<i64: 2, 2>} : !mk.buffer<16xf32>
  %b = mk.buffer "activation" "b" {offset = 0 : i64, lifetime = array<i64: 4, 5>} : !mk.buffer<8xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<16xf32>
  mk.stage "0" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %x = mk.load %w[0] : !mk.buffer<16xf32> -> tensor<16xf32>
      mk.store %x, %a[0] : tensor<16xf32> -> !mk.buffer<16xf32>
    }
  }
  mk.stage "1" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %x = mk.load %a[0] : !mk.buffer<16xf32> -> tensor<16xf32>
      mk.store %x, %c[0] : tensor<16xf32> -> !mk.buffer<16xf32>
    }
  }
  mk.stage "2" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %x = mk.load %w[0] : !mk.buffer<16xf32> -> tensor<16xf32>
      mk.store %x, %d[0] : tensor<16xf32> -> !mk.buffer<16xf32>
    }
  }
  mk.stage "3" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %x = mk.load %a[0] : !mk.buffer<16xf32> -> tensor<16xf32>
      %z = mk.load %c[0] : !mk.buffer<16xf32> -> tensor<16xf32>
      %s = mk.binary "add" %x, %z : tensor<16xf32>, tensor<16xf32> -> tensor<16xf32>
      mk.store %s, %y[0] : tensor<16xf32> -> !mk.buffer<16xf32>
    }
  }
  mk.stage "4" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %x = mk.load %w[0] : !mk.buffer<16xf32> -> tensor<8xf32>
      mk.store %x, %b[0] : tensor<8xf32> -> !mk.buffer<8xf32>
    }
  }
  mk.stage "5" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %x = mk.load %w[0] : !mk.buffer<16xf32> -> tensor<8xf32>
      mk.store %x, %b[0] : tensor<8xf32> -> !mk.buffer<8xf32>
    }
  }
}
