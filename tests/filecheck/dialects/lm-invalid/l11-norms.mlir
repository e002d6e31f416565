// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// a weight of another size
func.func @f(%x: tensor<1x4xf32>, %w: tensor<5xf32>) {
  %y = lm.rms_norm %x weight %w : tensor<5xf32> {eps = 1.0e-5 : f64} : tensor<1x4xf32>
  func.return
}
// CHECK: the input is invalid: lm L11: norm weight is [H], at lm.rms_norm
// -----
// a bias of another rank
func.func @f(%x: tensor<1x4xf32>, %w: tensor<4xf32>, %b: tensor<1x4xf32>) {
  %y = lm.layer_norm %x weight %w : tensor<4xf32> bias %b : tensor<1x4xf32> {eps = 1.0e-5 : f64} : tensor<1x4xf32>
  func.return
}
// CHECK: the input is invalid: lm L11: norm weight is [H], at lm.layer_norm
