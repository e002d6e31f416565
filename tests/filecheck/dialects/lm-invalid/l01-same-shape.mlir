// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// a scalar op that changes the shape
func.func @f(%x: tensor<2x3xf32>) {
  %y = lm.mul_scalar %x, 2.0 : f64 : tensor<2x3xf32> -> tensor<3x2xf32>
  func.return
}
// CHECK: the input is invalid: lm L1: a scalar op keeps the shape, at lm.mul_scalar
// -----
// a cast that changes the shape
func.func @f(%x: tensor<2x3xf32>) {
  %y = lm.cast %x : tensor<2x3xf32> -> tensor<6xbf16>
  func.return
}
// CHECK: the input is invalid: lm L1: a cast keeps the shape, at lm.cast
