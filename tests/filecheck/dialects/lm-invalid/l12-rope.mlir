// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// an odd number of features
func.func @f(%x: tensor<1x2x1x5xf32>, %c: tensor<1x5xf32>) {
  %y = lm.rope %x, %c, %c : tensor<1x2x1x5xf32>, tensor<1x5xf32>, tensor<1x5xf32> -> tensor<1x2x1x5xf32>
  func.return
}
// CHECK: the input is invalid: lm L12: rope rotates an even number of features, at lm.rope
// -----
// a table that is wider
func.func @f(%x: tensor<1x2x1x4xf32>, %c: tensor<3x4xf32>) {
  %y = lm.rope %x, %c, %c : tensor<1x2x1x4xf32>, tensor<3x4xf32>, tensor<3x4xf32> -> tensor<1x2x1x4xf32>
  func.return
}
// CHECK: the input is invalid: lm L12: cos and sin broadcast to x, at lm.rope
