// RUN: amk-opt %s | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

mk.program "order" attributes {tokens = 1 : i64, max_seq = 64 : i64, schedule = "static", workers = 4 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<32x16xf32>
  %a = mk.buffer "activation" "a" : !mk.buffer<1x32xf32>
  %e = mk.event {groups = #mk.exprs<[P floordiv 16 + 1]>, threshold = #mk.exprs<[min(4, g) + 1]>, counter = "monotonic"}
  %s = mk.stream {slots = 4 : i64, slot_bytes = 4096 : i64, ahead = 2 : i64}
  mk.stage "first" attributes {shift = 1 : i64} prologue {
    mk.yield
  } parts {
    mk.part[4, 2] {
      mk.signal %e[t0 - t1 + 1]
    }
  }
  mk.stage "second" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      mk.wait %e[0, t0 * 2 + 1]
      %x = mk.load %a[0, 0] : !mk.buffer<1x32xf32> -> tensor<1x16xf32>
      %y = mk.matmul %x, %w[t0 * 16, 0] through %s {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<1x16xf32>, !mk.buffer<32x16xf32> -> tensor<1x16xf32>
      mk.store %y, %a[0, t0 * 16] : tensor<1x16xf32> -> !mk.buffer<1x32xf32>
    }
  }
}

// CHECK-LABEL: mk.program "order" attributes {tokens = 1 : i64, max_seq = 64 : i64, schedule = "static", workers = 4 : i64} {
// CHECK-NEXT: %w = mk.buffer "weight" "w" : !mk.buffer<32x16xf32>
// CHECK-NEXT: %a = mk.buffer "activation" "a" : !mk.buffer<1x32xf32>
// CHECK-NEXT: %e = mk.event {groups = #mk.exprs<[P floordiv 16 + 1]>, threshold = #mk.exprs<[min(4, g) + 1]>, counter = "monotonic"}
// CHECK-NEXT: %s = mk.stream {slots = 4 : i64, slot_bytes = 4096 : i64, ahead = 2 : i64}
// CHECK-NEXT: mk.stage "first" attributes {shift = 1 : i64} prologue {
// CHECK-NEXT: mk.yield
// CHECK-NEXT: } parts {
// CHECK-NEXT: mk.part[4, 2] {
// CHECK-NEXT: mk.signal %e[t0 - t1 + 1]
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK-NEXT: mk.stage "second" prologue {
// CHECK-NEXT: mk.yield
// CHECK-NEXT: } parts {
// CHECK-NEXT: mk.part[2] {
// CHECK-NEXT: mk.wait %e[0, t0 * 2 + 1]
// CHECK-NEXT: %x = mk.load %a[0, 0] : !mk.buffer<1x32xf32> -> tensor<1x16xf32>
// CHECK-NEXT: %y = mk.matmul %x, %w[t0 * 16, 0] through %s {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<1x16xf32>, !mk.buffer<32x16xf32> -> tensor<1x16xf32>
// CHECK-NEXT: mk.store %y, %a[0, t0 * 16] : tensor<1x16xf32> -> !mk.buffer<1x32xf32>
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK-NEXT: }

// GENERIC: "mk.program"() <{sym_name = "order", tokens = 1 : i64, max_seq = 64 : i64, schedule = "static", workers = 4 : i64}> ({
// GENERIC: %w = "mk.buffer"() <{kind = "weight", source = "w"}> : () -> !mk.buffer<32x16xf32>
// GENERIC: %a = "mk.buffer"() <{kind = "activation", source = "a"}> : () -> !mk.buffer<1x32xf32>
// GENERIC: %e = "mk.event"() <{groups = #mk.exprs<[P floordiv 16 + 1]>, threshold = #mk.exprs<[min(4, g) + 1]>, counter = "monotonic"}> : () -> !mk.event
// GENERIC: %s = "mk.stream"() <{slots = 4 : i64, slot_bytes = 4096 : i64, ahead = 2 : i64}> : () -> !mk.stream
// GENERIC: "mk.stage"() <{sym_name = "first", shift = 1 : i64, operandSegmentSizes = array<i32: 0, 0>}> ({
// GENERIC: "mk.yield"() : () -> ()
// GENERIC: "mk.part"() <{grid = #mk.exprs<[4, 2]>}> ({
// GENERIC: "mk.signal"(%e) <{group = #mk.exprs<[t0 - t1 + 1]>}> : (!mk.event) -> ()
// GENERIC: "mk.stage"() <{sym_name = "second", operandSegmentSizes = array<i32: 0, 0>}> ({
// GENERIC: "mk.yield"() : () -> ()
// GENERIC: "mk.part"() <{grid = #mk.exprs<[2]>}> ({
// GENERIC: "mk.wait"(%e) <{groups = #mk.exprs<[0, t0 * 2 + 1]>}> : (!mk.event) -> ()
// GENERIC: %x = "mk.load"(%a) <{offsets = #mk.exprs<[0, 0]>}> : (!mk.buffer<1x32xf32>) -> tensor<1x16xf32>
// GENERIC: %y = "mk.matmul"(%x, %w, %s) <{offsets = #mk.exprs<[t0 * 16, 0]>, reduction = #mk.reduction<lanes = 16, chains = 2>}> : (tensor<1x16xf32>, !mk.buffer<32x16xf32>, !mk.stream) -> tensor<1x16xf32>
// GENERIC: "mk.store"(%y, %a) <{offsets = #mk.exprs<[0, t0 * 16]>}> : (tensor<1x16xf32>, !mk.buffer<1x32xf32>) -> ()
