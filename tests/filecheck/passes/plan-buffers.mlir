// RUN: amk-opt %s -p plan-buffers | filecheck %s
// RUN: amk-opt %s -p plan-buffers --pass-statistics 2>&1 | filecheck %s --check-prefix=COUNTS

// COUNTS: plan-buffers: 384 arena bytes before, 192 arena bytes after

// %a and %b live together; %c takes half the place of %a, %d the rest and that of %b. Each begins on
// a cache line.
// What nothing touches gets no place; weights, outputs and caches never do.
// CHECK: arena = 192 : i64
// CHECK: "a" {offset = 0 : i64, lifetime = array<i64: 0, 1>} : !mk.buffer<17xf32>
// CHECK: "b" {offset = 128 : i64, lifetime = array<i64: 0, 2>} : !mk.buffer<16xf32>
// CHECK: "c" {offset = 0 : i64, lifetime = array<i64: 2, 3>} : !mk.buffer<16xf32>
// CHECK: "d" {offset = 64 : i64, lifetime = array<i64: 3, 3>} : !mk.buffer<20xf32>
// CHECK: "unused" : !mk.buffer<16xf32>
// CHECK: mk.buffer "weight" "w" : !mk.buffer<20xf32>
// CHECK: mk.buffer "output" "logits" : !mk.buffer<16xf32>
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<17xf32>
  %b = mk.buffer "activation" "b" : !mk.buffer<16xf32>
  %c = mk.buffer "activation" "c" : !mk.buffer<16xf32>
  %d = mk.buffer "activation" "d" : !mk.buffer<20xf32>
  %u = mk.buffer "activation" "unused" : !mk.buffer<16xf32>
  %w = mk.buffer "weight" "w" : !mk.buffer<20xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<16xf32>
  mk.stage "0" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %x = mk.load %w[0] : !mk.buffer<20xf32> -> tensor<17xf32>
      %z = mk.load %w[0] : !mk.buffer<20xf32> -> tensor<16xf32>
      mk.store %x, %a[0] : tensor<17xf32> -> !mk.buffer<17xf32>
      mk.store %z, %b[0] : tensor<16xf32> -> !mk.buffer<16xf32>
    }
  }
  mk.stage "1" prologue {
    %x = mk.load %a[0] : !mk.buffer<17xf32> -> tensor<16xf32>
    mk.yield %x : tensor<16xf32>
  } parts {
  ^bb0(%x: tensor<16xf32>):
    mk.part[1] {
      mk.store %x, %y[0] : tensor<16xf32> -> !mk.buffer<16xf32>
    }
  }
  mk.stage "2" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %x = mk.load %b[0] : !mk.buffer<16xf32> -> tensor<16xf32>
      mk.store %x, %c[0] : tensor<16xf32> -> !mk.buffer<16xf32>
    }
  }
  mk.stage "3" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %x = mk.load %c[0] : !mk.buffer<16xf32> -> tensor<16xf32>
      %z = mk.load %w[0] : !mk.buffer<20xf32> -> tensor<20xf32>
      mk.store %z, %d[0] : tensor<20xf32> -> !mk.buffer<20xf32>
    }
  }
}
