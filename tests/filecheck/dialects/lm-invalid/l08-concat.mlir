// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// an axis that is not there
func.func @f(%x: tensor<2x3xf32>) {
  %y = lm.concat %x, %x {dim = 2 : i64} : tensor<2x3xf32>, tensor<2x3xf32> -> tensor<4x3xf32>
  func.return
}
// CHECK: the input is invalid: lm L8: the axis of a concat exists, at lm.concat
// -----
// ranks that differ
func.func @f(%x: tensor<2x3xf32>, %y: tensor<3xf32>) {
  %z = lm.concat %x, %y {dim = 0 : i64} : tensor<2x3xf32>, tensor<3xf32> -> tensor<3x3xf32>
  func.return
}
// CHECK: the input is invalid: lm L8: concat operands have one rank, at lm.concat
// -----
// extents that differ off the axis
func.func @f(%x: tensor<2x3xf32>, %y: tensor<2x4xf32>) {
  %z = lm.concat %x, %y {dim = 0 : i64} : tensor<2x3xf32>, tensor<2x4xf32> -> tensor<4x3xf32>
  func.return
}
// CHECK: the input is invalid: lm L8: concat operands agree off the axis, at lm.concat
// -----
// extents that do not add up
func.func @f(%x: tensor<2x3xf32>) {
  %z = lm.concat %x, %x {dim = 0 : i64} : tensor<2x3xf32>, tensor<2x3xf32> -> tensor<5x3xf32>
  func.return
}
// CHECK: the input is invalid: lm L8: extents add up, at lm.concat
