// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// shapes that disagree
func.func @f(%x: tensor<2x3xf32>, %y: tensor<2xf32>) {
  %z = lm.add %x, %y : tensor<2x3xf32>, tensor<2xf32> -> tensor<2x3xf32>
  func.return
}
// CHECK: the input is invalid: lm L2: shapes ((2, 3), (2,)) do not broadcast, at lm.add
// -----
// a result that is not the broadcast
func.func @f(%x: tensor<2x3xf32>, %y: tensor<3xf32>) {
  %z = lm.add %x, %y : tensor<2x3xf32>, tensor<3xf32> -> tensor<3xf32>
  func.return
}
// CHECK: the input is invalid: lm L2: the broadcast shape is (2, 3), at lm.add
// -----
// an expand that shrinks
func.func @f(%x: tensor<2x3xf32>) {
  %z = lm.expand %x : tensor<2x3xf32> -> tensor<1x3xf32>
  func.return
}
// CHECK: the input is invalid: lm L2: expand broadcasts, at lm.expand
