// RUN: amk-opt %s -p 'stream-weights{ring-bytes=65536}' | filecheck %s
// RUN: amk-opt %s -p 'stream-weights{ring-bytes=65536 slot-bytes=1024}' | filecheck %s --check-prefix=SLOTS
// RUN: amk-opt %s -p 'stream-weights{ring-bytes=20000}' | filecheck %s --check-prefix=SMALL
// RUN: amk-opt %s -p 'stream-weights' | filecheck %s --check-prefix=SMALL

// Rows of 2 KB pass through slots of 16 KB. Rows of 10 bytes are no multiple of 16, and two rows at a
// time are a chunk's: both are read where they lie.
// CHECK:      [[ring:%.+]] = mk.stream {slots = 4 : i64, slot_bytes = 16384 : i64}
// CHECK-NOT:  mk.stream
// CHECK:      mk.matmul {{.*}}, %wide[t0 * 8, 0] through [[ring]]
// CHECK:      mk.matmul %{{.*}}, %odd[0, 0] {reduction
// CHECK:      mk.matmul %{{.*}}, %wide[0, 0] {reduction

// A slot as it is given must hold a row: none does.
// SLOTS-NOT:  mk.stream
// SLOTS-NOT:  through

// Less than two slots are no ring.
// SMALL-NOT:  mk.stream
// SMALL-NOT:  through
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64, schedule = "static", workers = 3 : i64} {
  %wide = mk.buffer "weight" "wide" : !mk.buffer<32x1024xbf16>
  %odd = mk.buffer "weight" "odd" : !mk.buffer<32x5xbf16>
  %y = mk.buffer "output" "logits" : !mk.buffer<1x32xf32>
  %z = mk.buffer "activation" "z" : !mk.buffer<3x32xf32>
  mk.stage "streams" prologue {
    %x = mk.load %wide[0, 0] : !mk.buffer<32x1024xbf16> -> tensor<1x1024xf32>
    mk.yield %x : tensor<1x1024xf32>
  } parts {
  ^bb0(%k: tensor<1x1024xf32>):
    mk.part[4] {
      %d = mk.matmul %k, %wide[t0 * 8, 0] {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<1x1024xf32>, !mk.buffer<32x1024xbf16> -> tensor<1x8xf32>
      mk.store %d, %y[0, t0 * 8] : tensor<1x8xf32> -> !mk.buffer<1x32xf32>
    }
  }
  mk.stage "reads" prologue {
    %x = mk.load %odd[0, 0] : !mk.buffer<32x5xbf16> -> tensor<1x5xf32>
    mk.yield %x : tensor<1x5xf32>
  } parts {
  ^bb0(%k: tensor<1x5xf32>):
    mk.part[1] {
      %d = mk.matmul %k, %odd[0, 0] {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<1x5xf32>, !mk.buffer<32x5xbf16> -> tensor<1x32xf32>
      mk.store %d, %z[0, 0] : tensor<1x32xf32> -> !mk.buffer<3x32xf32>
    }
  }
  mk.stage "pair" prologue {
    %x = mk.load %wide[0, 0] : !mk.buffer<32x1024xbf16> -> tensor<2x1024xf32>
    mk.yield %x : tensor<2x1024xf32>
  } parts {
  ^bb0(%k: tensor<2x1024xf32>):
    mk.part[1] {
      %d = mk.matmul %k, %wide[0, 0] {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<2x1024xf32>, !mk.buffer<32x1024xbf16> -> tensor<2x32xf32>
      mk.store %d, %z[1, 0] : tensor<2x32xf32> -> !mk.buffer<3x32xf32>
    }
  }
}
