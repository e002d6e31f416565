// RUN: amk-opt %s | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

func.func @f(%x: tensor<1x3x4xf32>, %h: tensor<1x2x3x4xf32>, %w: tensor<4xf32>, %c: tensor<1x3x4xf32>, %pos: index) {
  %plain = lm.rms_norm %x {eps = 0.5 : f64} : tensor<1x3x4xf32>
  %rms = lm.rms_norm %x weight %w : tensor<4xf32> {eps = 0.5 : f64} : tensor<1x3x4xf32>
  %ln = lm.layer_norm %x weight %w : tensor<4xf32> bias %w : tensor<4xf32> {eps = 0.5 : f64} : tensor<1x3x4xf32>
  %rope = lm.rope %h, %c, %c : tensor<1x2x3x4xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x2x3x4xf32>
  %act = lm.gated_act "silu" %x, %x : tensor<1x3x4xf32>
  func.return
}

// CHECK-LABEL: func.func @f(
// CHECK-NEXT: %plain = lm.rms_norm %x {eps = 5.000000e-01 : f64} : tensor<1x3x4xf32>
// CHECK-NEXT: %rms = lm.rms_norm %x weight %w : tensor<4xf32> {eps = 5.000000e-01 : f64} : tensor<1x3x4xf32>
// CHECK-NEXT: %ln = lm.layer_norm %x weight %w : tensor<4xf32> bias %w : tensor<4xf32> {eps = 5.000000e-01 : f64} : tensor<1x3x4xf32>
// CHECK-NEXT: %rope = lm.rope %h, %c, %c : tensor<1x2x3x4xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x2x3x4xf32>
// CHECK-NEXT: %act = lm.gated_act "silu" %x, %x : tensor<1x3x4xf32>

// GENERIC: %plain = "lm.rms_norm"(%x) <{eps = 5.000000e-01 : f64, operandSegmentSizes = array<i32: 1, 0, 0>}> : (tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
// GENERIC-NEXT: %rms = "lm.rms_norm"(%x, %w) <{eps = 5.000000e-01 : f64, operandSegmentSizes = array<i32: 1, 1, 0>}> : (tensor<1x3x4xf32>, tensor<4xf32>) -> tensor<1x3x4xf32>
// GENERIC-NEXT: %ln = "lm.layer_norm"(%x, %w, %w) <{eps = 5.000000e-01 : f64, operandSegmentSizes = array<i32: 1, 1, 1>}> : (tensor<1x3x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x3x4xf32>
// GENERIC-NEXT: %rope = "lm.rope"(%h, %c, %c) : (tensor<1x2x3x4xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>) -> tensor<1x2x3x4xf32>
// GENERIC-NEXT: %act = "lm.gated_act"(%x, %x) <{activation = "silu"}> : (tensor<1x3x4xf32>, tensor<1x3x4xf32>) -> tensor<1x3x4xf32>
