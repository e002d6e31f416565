// RUN: amk-opt %s | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

func.func @f(%pos: index) {
  %w = lm.weight "model.norm.weight" : tensor<4xbf16>
  %i = lm.weight "@init/rope_cos" : tensor<16x4xf32>
  %c = lm.constant dense<[1.0, 0.5]> : tensor<2xf32>
  %p = lm.positions %pos : tensor<1x3xi64>
  func.return
}

// CHECK-LABEL: func.func @f(
// CHECK-NEXT: %w = lm.weight "model.norm.weight" : tensor<4xbf16>
// CHECK-NEXT: %i = lm.weight "@init/rope_cos" : tensor<16x4xf32>
// CHECK-NEXT: %c = lm.constant dense<[1.000000e+00, 5.000000e-01]> : tensor<2xf32>
// CHECK-NEXT: %p = lm.positions %pos : tensor<1x3xi64>

// GENERIC: %w = "lm.weight"() <{key = "model.norm.weight"}> : () -> tensor<4xbf16>
// GENERIC-NEXT: %i = "lm.weight"() <{key = "@init/rope_cos"}> : () -> tensor<16x4xf32>
// GENERIC-NEXT: %c = "lm.constant"() <{value = dense<[1.000000e+00, 5.000000e-01]> : tensor<2xf32>}> : () -> tensor<2xf32>
// GENERIC-NEXT: %p = "lm.positions"(%pos) : (index) -> tensor<1x3xi64>
