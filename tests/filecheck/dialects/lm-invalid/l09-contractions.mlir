// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// a bias of another size
func.func @f(%x: tensor<2x3xf32>, %w: tensor<5x3xf32>, %b: tensor<4xf32>) {
  %y = lm.linear %x, %w bias %b : tensor<4xf32> : tensor<2x3xf32>, tensor<5x3xf32> -> tensor<2x5xf32>
  func.return
}
// CHECK: the input is invalid: lm L9: bias has N elements, at lm.linear
// -----
// addmm of a transposed weight
func.func @f(%x: tensor<2x3xf32>, %w: tensor<5x3xf32>, %b: tensor<5xf32>) {
  %y = lm.addmm %b, %x, %w : tensor<5xf32>, tensor<2x3xf32>, tensor<5x3xf32> -> tensor<2x5xf32>
  func.return
}
// CHECK: the input is invalid: lm L9: (2, 3) × (5, 3) do not contract, at lm.addmm
// -----
// matmul of another shape
func.func @f(%x: tensor<2x3xf32>, %w: tensor<3x5xf32>) {
  %y = lm.matmul %x, %w : tensor<2x3xf32>, tensor<3x5xf32> -> tensor<5x2xf32>
  func.return
}
// CHECK: the input is invalid: lm L9: the result is (2, 5), at lm.matmul
