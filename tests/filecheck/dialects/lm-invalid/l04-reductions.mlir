// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// an axis that is not there
func.func @f(%x: tensor<2x3xf32>) {
  %y = lm.sum %x {dims = array<i64: 2>, keepdim = true} : tensor<2x3xf32> -> tensor<2x1xf32>
  func.return
}
// CHECK: the input is invalid: lm L4: reduced axes are distinct axes of the operand, at lm.sum
// -----
// an axis twice
func.func @f(%x: tensor<2x3xf32>) {
  %y = lm.sum %x {dims = array<i64: 1, 1>, keepdim = true} : tensor<2x3xf32> -> tensor<2x1xf32>
  func.return
}
// CHECK: the input is invalid: lm L4: reduced axes are distinct axes of the operand, at lm.sum
// -----
// another shape
func.func @f(%x: tensor<2x3xf32>) {
  %y = lm.sum %x {dims = array<i64: 1>, keepdim = false} : tensor<2x3xf32> -> tensor<2x1xf32>
  func.return
}
// CHECK: the input is invalid: lm L4: the reduced shape is (2,), at lm.sum
// -----
// argmax that keeps the axis
func.func @f(%x: tensor<2x3xf32>) {
  %y = lm.argmax %x : tensor<2x3xf32> -> tensor<2x1xi64>
  func.return
}
// CHECK: the input is invalid: lm L4: argmax drops one axis, at lm.argmax
