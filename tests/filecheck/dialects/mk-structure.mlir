// RUN: amk-opt %s | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

mk.program "decode" attributes {tokens = 1 : i64, max_seq = 64 : i64, arena = 256 : i64, schedule = "claimed"} {
  %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
  %w = mk.buffer "weight" "w" : !mk.buffer<32x16xbf16>
  %c = mk.buffer "cache" "k0" : !mk.buffer<1x2x?x16xf16>
  %k = mk.buffer "constant" "k" : !mk.buffer<16xf32>
  %a = mk.buffer "activation" "a" {offset = 0 : i64, lifetime = array<i64: 0, 1>} : !mk.buffer<1x16xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<1x16xf32>
  %e = mk.event
  mk.stage "first" signals(%e) prologue {
    %r = mk.load %a[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
    mk.yield %r : tensor<1x16xf32>
  } parts {
  ^bb0(%x: tensor<1x16xf32>):
    mk.part[2, min(8, P) + 1] {
      mk.store %x, %a[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
    }
    mk.part[1] {
      mk.store %x, %y[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
    }
  }
  mk.stage "second" waits(%e) prologue {
    mk.yield
  } parts {
    mk.part[4] {
      %q = mk.load %k[t0 * 4] : !mk.buffer<16xf32> -> tensor<4xf32>
    }
  }
}

// CHECK-LABEL: mk.program "decode" attributes {tokens = 1 : i64, max_seq = 64 : i64, arena = 256 : i64, schedule = "claimed"} {
// CHECK-NEXT: %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
// CHECK-NEXT: %w = mk.buffer "weight" "w" : !mk.buffer<32x16xbf16>
// CHECK-NEXT: %c = mk.buffer "cache" "k0" : !mk.buffer<1x2x?x16xf16>
// CHECK-NEXT: %k = mk.buffer "constant" "k" : !mk.buffer<16xf32>
// CHECK-NEXT: %a = mk.buffer "activation" "a" {offset = 0 : i64, lifetime = array<i64: 0, 1>} : !mk.buffer<1x16xf32>
// CHECK-NEXT: %y = mk.buffer "output" "logits" : !mk.buffer<1x16xf32>
// CHECK-NEXT: %e = mk.event
// CHECK-NEXT: mk.stage "first" signals(%e) prologue {
// CHECK-NEXT: %r = mk.load %a[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
// CHECK-NEXT: mk.yield %r : tensor<1x16xf32>
// CHECK-NEXT: } parts {
// CHECK-NEXT: ^bb0(%x: tensor<1x16xf32>):
// CHECK-NEXT: mk.part[2, min(8, P) + 1] {
// CHECK-NEXT: mk.store %x, %a[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
// CHECK-NEXT: }
// CHECK-NEXT: mk.part[1] {
// CHECK-NEXT: mk.store %x, %y[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK-NEXT: mk.stage "second" waits(%e) prologue {
// CHECK-NEXT: mk.yield
// CHECK-NEXT: } parts {
// CHECK-NEXT: mk.part[4] {
// CHECK-NEXT: %q = mk.load %k[t0 * 4] : !mk.buffer<16xf32> -> tensor<4xf32>
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK-NEXT: }

// GENERIC: "mk.program"() <{sym_name = "decode", tokens = 1 : i64, max_seq = 64 : i64, arena = 256 : i64, schedule = "claimed"}> ({
// GENERIC: %tokens = "mk.buffer"() <{kind = "input", source = "tokens"}> : () -> !mk.buffer<1x1xi64>
// GENERIC: %w = "mk.buffer"() <{kind = "weight", source = "w"}> : () -> !mk.buffer<32x16xbf16>
// GENERIC: %c = "mk.buffer"() <{kind = "cache", source = "k0"}> : () -> !mk.buffer<1x2x?x16xf16>
// GENERIC: %k = "mk.buffer"() <{kind = "constant", source = "k"}> : () -> !mk.buffer<16xf32>
// GENERIC: %a = "mk.buffer"() <{kind = "activation", source = "a", offset = 0 : i64, lifetime = array<i64: 0, 1>}> : () -> !mk.buffer<1x16xf32>
// GENERIC: %y = "mk.buffer"() <{kind = "output", source = "logits"}> : () -> !mk.buffer<1x16xf32>
// GENERIC: %e = "mk.event"() : () -> !mk.event
// GENERIC: "mk.stage"(%e) <{sym_name = "first", operandSegmentSizes = array<i32: 0, 1>}> ({
// GENERIC: %r = "mk.load"(%a) <{offsets = #mk.exprs<[0, 0]>}> : (!mk.buffer<1x16xf32>) -> tensor<1x16xf32>
// GENERIC: "mk.yield"(%r) : (tensor<1x16xf32>) -> ()
// GENERIC: "mk.part"() <{grid = #mk.exprs<[2, min(8, P) + 1]>}> ({
// GENERIC: "mk.store"(%x, %a) <{offsets = #mk.exprs<[0, 0]>}> : (tensor<1x16xf32>, !mk.buffer<1x16xf32>) -> ()
// GENERIC: "mk.part"() <{grid = #mk.exprs<[1]>}> ({
// GENERIC: "mk.store"(%x, %y) <{offsets = #mk.exprs<[0, 0]>}> : (tensor<1x16xf32>, !mk.buffer<1x16xf32>) -> ()
// GENERIC: "mk.stage"(%e) <{sym_name = "second", operandSegmentSizes = array<i32: 1, 0>}> ({
// GENERIC: "mk.yield"() : () -> ()
// GENERIC: "mk.part"() <{grid = #mk.exprs<[4]>}> ({
// GENERIC: %q = "mk.load"(%k) <{offsets = #mk.exprs<[t0 * 4]>}> : (!mk.buffer<16xf32>) -> tensor<4xf32>
