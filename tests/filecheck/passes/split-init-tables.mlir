// RUN: amk-opt %s -p 'split-init{max-seq=64}' --split-input-file | filecheck %s
// RUN: not amk-opt %s -p split-init --split-input-file 2>&1 | filecheck %s --check-prefix=MISSING

// MISSING: split-init: give max-seq, or set amk.max_seq on the module

// S = 1, where every axis but the last has extent 1; positions arrive by a matrix product, as
// inverse frequencies [1, D/2, 1] times positions [1, 1, S].

// CHECK:      func.func @init() -> (tensor<64x4xf32>, tensor<64x4xf32>) attributes {amk.names = ["rope_cos", "rope_sin"]}
// CHECK:        lm.positions {{.*}} : tensor<1x64xi64>
// CHECK:        lm.matmul {{.*}} : tensor<1x2x1xf32>, tensor<1x1x64xf32> -> tensor<1x2x64xf32>
// CHECK:        lm.transpose {{.*}} : tensor<1x2x64xf32> -> tensor<1x64x2xf32>
// CHECK:      func.func @step
// CHECK:        [[c:%.+]] = lm.weight "@init/rope_cos" : tensor<64x4xf32>
// CHECK-NEXT:   lm.rows [[c]], %pos : tensor<64x4xf32> -> tensor<1x1x4xf32>
// CHECK:        lm.weight "@init/rope_sin" : tensor<64x4xf32>
// CHECK-NOT:    lm.positions
func.func @step(%x: tensor<1x2x1x4xf32>, %pos: index) -> (tensor<1x2x1x4xf32>, tensor<1x2x1x4xf32>) {
  %f = lm.constant dense<[[[1.0], [0.1]]]> : tensor<1x2x1xf32>
  %p = lm.positions %pos : tensor<1x1xi64>
  %u = lm.reshape %p : tensor<1x1xi64> -> tensor<1x1x1xi64>
  %g = lm.cast %u : tensor<1x1x1xi64> -> tensor<1x1x1xf32>
  %m = lm.matmul %f, %g : tensor<1x2x1xf32>, tensor<1x1x1xf32> -> tensor<1x2x1xf32>
  %t = lm.transpose %m {permutation = array<i64: 0, 2, 1>} : tensor<1x2x1xf32> -> tensor<1x1x2xf32>
  %e = lm.concat %t, %t {dim = 2 : i64} : tensor<1x1x2xf32>, tensor<1x1x2xf32> -> tensor<1x1x4xf32>
  %c = lm.cos %e : tensor<1x1x4xf32>
  %s = lm.sin %e : tensor<1x1x4xf32>
  %s2 = lm.mul_scalar %s, 0.5 : f64 : tensor<1x1x4xf32> -> tensor<1x1x4xf32>
  %cu = lm.reshape %c : tensor<1x1x4xf32> -> tensor<1x1x1x4xf32>
  %a = lm.mul %x, %cu : tensor<1x2x1x4xf32>, tensor<1x1x1x4xf32> -> tensor<1x2x1x4xf32>
  %b = lm.mul %x, %s2 : tensor<1x2x1x4xf32>, tensor<1x1x4xf32> -> tensor<1x2x1x4xf32>
  func.return %a, %b : tensor<1x2x1x4xf32>, tensor<1x2x1x4xf32>
}

// -----

// S = 3, positions on the last axis of the value: rows are read and turned.

// CHECK:      func.func @init() -> tensor<64x2xf32>
// CHECK:      func.func @step
// CHECK:        lm.rows {{.*}} : tensor<64x2xf32> -> tensor<1x3x2xf32>
// CHECK-NEXT:   lm.reshape {{.*}} : tensor<1x3x2xf32> -> tensor<3x2xf32>
// CHECK-NEXT:   lm.transpose {{.*}} {permutation = array<i64: 1, 0>} : tensor<3x2xf32> -> tensor<2x3xf32>
func.func @step(%x: tensor<2x3xf32>, %pos: index) -> tensor<2x3xf32> {
  %f = lm.constant dense<[[1.0], [0.1]]> : tensor<2x1xf32>
  %p = lm.positions %pos : tensor<1x3xi64>
  %g = lm.cast %p : tensor<1x3xi64> -> tensor<1x3xf32>
  %m = lm.mul %f, %g : tensor<2x1xf32>, tensor<1x3xf32> -> tensor<2x3xf32>
  %c = lm.cos %m : tensor<2x3xf32>
  %y = lm.add %x, %c : tensor<2x3xf32>, tensor<2x3xf32> -> tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}

// -----

// What depends on weights and positions, or mixes positions, or is an integer, stays.

// CHECK-NOT:  func.func @init
// CHECK:      func.func @step
// CHECK:        lm.positions
// CHECK:        lm.embedding
// CHECK:        lm.sum
func.func @step(%x: tensor<1x3x4xf32>, %pos: index) -> (tensor<1x3x4xf32>, tensor<1x3x4xf32>) {
  %p = lm.positions %pos : tensor<1x3xi64>
  %w = lm.weight "wpe.weight" : tensor<64x4xf32>
  %o = lm.add_scalar %p, 2.0 : f64 : tensor<1x3xi64> -> tensor<1x3xi64>
  %e = lm.embedding %w, %o : tensor<64x4xf32>, tensor<1x3xi64> -> tensor<1x3x4xf32>
  %a = lm.add %x, %e : tensor<1x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x3x4xf32>
  %g = lm.cast %p : tensor<1x3xi64> -> tensor<1x3xf32>
  %s = lm.sum %g {dims = array<i64: 1>, keepdim = true} : tensor<1x3xf32> -> tensor<1x1xf32>
  %b = lm.mul %x, %s : tensor<1x3x4xf32>, tensor<1x1xf32> -> tensor<1x3x4xf32>
  func.return %a, %b : tensor<1x3x4xf32>, tensor<1x3x4xf32>
}

// -----

// A constant in another shape, as frequencies from a buffer are: the table is made of it all the same.

// CHECK:      func.func @init() -> tensor<64x2xf32> attributes {amk.names = ["rope_cos"]}
// CHECK:        lm.matmul {{.*}} : tensor<1x2x1xf32>, tensor<1x1x64xf32> -> tensor<1x2x64xf32>
// CHECK:      func.func @step
// CHECK-NOT:    lm.matmul
func.func @step(%x: tensor<1x1x2xf32>, %pos: index) -> tensor<1x1x2xf32> {
  %b = lm.constant dense<[1.0, 0.1]> : tensor<2xf32>
  %f = lm.reshape %b : tensor<2xf32> -> tensor<1x2x1xf32>
  %p = lm.positions %pos : tensor<1x1xi64>
  %u = lm.reshape %p : tensor<1x1xi64> -> tensor<1x1x1xi64>
  %g = lm.cast %u : tensor<1x1x1xi64> -> tensor<1x1x1xf32>
  %m = lm.matmul %f, %g : tensor<1x2x1xf32>, tensor<1x1x1xf32> -> tensor<1x2x1xf32>
  %t = lm.transpose %m {permutation = array<i64: 0, 2, 1>} : tensor<1x2x1xf32> -> tensor<1x1x2xf32>
  %c = lm.cos %t : tensor<1x1x2xf32>
  %y = lm.mul %x, %c : tensor<1x1x2xf32>, tensor<1x1x2xf32> -> tensor<1x1x2xf32>
  func.return %y : tensor<1x1x2xf32>
}
