// RUN: amk-opt %s | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

func.func @f(%x: tensor<2x4xf32>, %w: tensor<5x4xf32>, %b: tensor<5xf32>, %t: tensor<4x5xf32>, %ids: tensor<1x3xi64>, %pos: index) {
  %linear = lm.linear %x, %w : tensor<2x4xf32>, tensor<5x4xf32> -> tensor<2x5xf32>
  %biased = lm.linear %x, %w bias %b : tensor<5xf32> : tensor<2x4xf32>, tensor<5x4xf32> -> tensor<2x5xf32>
  %addmm = lm.addmm %b, %x, %t : tensor<5xf32>, tensor<2x4xf32>, tensor<4x5xf32> -> tensor<2x5xf32>
  %matmul = lm.matmul %x, %t : tensor<2x4xf32>, tensor<4x5xf32> -> tensor<2x5xf32>
  %embedding = lm.embedding %w, %ids : tensor<5x4xf32>, tensor<1x3xi64> -> tensor<1x3x4xf32>
  %rows = lm.rows %w, %pos : tensor<5x4xf32> -> tensor<1x3x4xf32>
  func.return
}

// CHECK-LABEL: func.func @f(
// CHECK-NEXT: %linear = lm.linear %x, %w : tensor<2x4xf32>, tensor<5x4xf32> -> tensor<2x5xf32>
// CHECK-NEXT: %biased = lm.linear %x, %w bias %b : tensor<5xf32> : tensor<2x4xf32>, tensor<5x4xf32> -> tensor<2x5xf32>
// CHECK-NEXT: %addmm = lm.addmm %b, %x, %t : tensor<5xf32>, tensor<2x4xf32>, tensor<4x5xf32> -> tensor<2x5xf32>
// CHECK-NEXT: %matmul = lm.matmul %x, %t : tensor<2x4xf32>, tensor<4x5xf32> -> tensor<2x5xf32>
// CHECK-NEXT: %embedding = lm.embedding %w, %ids : tensor<5x4xf32>, tensor<1x3xi64> -> tensor<1x3x4xf32>
// CHECK-NEXT: %rows = lm.rows %w, %pos : tensor<5x4xf32> -> tensor<1x3x4xf32>

// GENERIC: %linear = "lm.linear"(%x, %w) : (tensor<2x4xf32>, tensor<5x4xf32>) -> tensor<2x5xf32>
// GENERIC-NEXT: %biased = "lm.linear"(%x, %w, %b) : (tensor<2x4xf32>, tensor<5x4xf32>, tensor<5xf32>) -> tensor<2x5xf32>
// GENERIC-NEXT: %addmm = "lm.addmm"(%b, %x, %t) : (tensor<5xf32>, tensor<2x4xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
// GENERIC-NEXT: %matmul = "lm.matmul"(%x, %t) : (tensor<2x4xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
// GENERIC-NEXT: %embedding = "lm.embedding"(%w, %ids) : (tensor<5x4xf32>, tensor<1x3xi64>) -> tensor<1x3x4xf32>
// GENERIC-NEXT: %rows = "lm.rows"(%w, %pos) : (tensor<5x4xf32>, index) -> tensor<1x3x4xf32>
