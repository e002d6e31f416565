// RUN: amk-opt %s -p split-init | filecheck %s
// CHECK: @init
func.func @step(%x: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
  %w = lm.weight "norm.weight" : tensor<8xf32>
  %s = lm.add_scalar %w, 1.0 : f64 : tensor<8xf32> -> tensor<8xf32>
  %y = lm.mul %x, %s : tensor<1x1x8xf32>, tensor<8xf32> -> tensor<1x1x8xf32>
  func.return %y : tensor<1x1x8xf32>
}
