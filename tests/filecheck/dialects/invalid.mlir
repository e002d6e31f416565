// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

func.func @f(%x: tensor<2x3xf32>, %y: tensor<2xf32>) {
  %z = lm.add %x, %y : tensor<2x3xf32>, tensor<2xf32> -> tensor<2x3xf32>
  func.return
}
// CHECK: lm L2: shapes ((2, 3), (2,)) do not broadcast, at lm.add
// -----
func.func @f(%x: tensor<2x3xf32>) {
  %z = lm.reshape %x : tensor<2x3xf32> -> tensor<5xf32>
  func.return
}
// CHECK: lm L5: a reshape keeps the number of elements, at lm.reshape
// -----
func.func @f(%x: tensor<2x3xf32>) {
  %z = lm.transpose %x {permutation = array<i64: 0, 0>} : tensor<2x3xf32> -> tensor<2x2xf32>
  func.return
}
// CHECK: lm L6: not a permutation of the axes, at lm.transpose
// -----
func.func @f(%x: tensor<2x3xf32>) {
  %z = lm.slice %x {dim = 1 : i64, start = 1 : i64, end = 4 : i64, step = 1 : i64}
    : tensor<2x3xf32> -> tensor<2x3xf32>
  func.return
}
// CHECK: lm L7: 0 ≤ start ≤ end ≤ extent, at lm.slice
// -----
func.func @f(%x: tensor<2x3xf32>, %w: tensor<5x4xf32>) {
  %z = lm.linear %x, %w : tensor<2x3xf32>, tensor<5x4xf32> -> tensor<2x5xf32>
  func.return
}
// CHECK: lm L9: (2, 3) × (5, 4)ᵀ do not contract, at lm.linear
// -----
func.func @f(%x: tensor<1x3xf32>) {
  %z = lm.gated_act "gated" %x, %x : tensor<1x3xf32>
  func.return
}
// CHECK: lm L13: activation is one of
// -----
func.func @f(%c: !kv.cache<1x2x?x4xf32, axis = 1, policy = "static">) {
  func.return
}
// CHECK: kv C1: exactly the sequence axis of a cache is open
// -----
func.func @f(%c: !kv.cache<1x2x?x4xf32, axis = 2, policy = "some">) {
  func.return
}
// CHECK: kv C2: policy 'some'
// -----
func.func @f(%c: !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, %x: tensor<1x3x1x4xf32>) {
  %n = kv.append %c, %x : tensor<1x3x1x4xf32> -> !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
  func.return
}
// CHECK: kv C4: append of (1, 3, 1, 4) does not fit a cache of (1, 2, -1, 4), at kv.append
// -----
func.func @f(%c: !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, %x: tensor<1x2x1x4xf32>) {
  %n = kv.append %c, %x : tensor<1x2x1x4xf32> -> !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
  %m = kv.append %c, %x : tensor<1x2x1x4xf32> -> !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
  func.return
}
// CHECK: kv C6: a cache version has two appends; each has one at most, at kv.append
// -----
func.func @f(%x: tensor<4xf32>) {
  %a = "lm.neg"(%b) : (tensor<4xf32>) -> tensor<4xf32>
  %b = "lm.neg"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}
// CHECK: operand 0 is used before it is defined, at lm.neg
