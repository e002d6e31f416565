// RUN: amk-opt %s -p canonicalize | filecheck %s

// CHECK-LABEL: @neutral_scalars
func.func @neutral_scalars(%x: tensor<2xf32>) -> tensor<2xf32> {
  // CHECK-NEXT: func.return %x
  %a = lm.mul_scalar %x, 1.0 : f64 : tensor<2xf32> -> tensor<2xf32>
  %b = lm.div_scalar %a, 1.0 : f64 : tensor<2xf32> -> tensor<2xf32>
  %c = lm.sub_scalar %b, 0.0 : f64 : tensor<2xf32> -> tensor<2xf32>
  %d = lm.add_scalar %c, -0.0 : f64 : tensor<2xf32> -> tensor<2xf32>
  %e = lm.pow_scalar %d, 1.0 : f64 : tensor<2xf32> -> tensor<2xf32>
  %f = lm.neg %e : tensor<2xf32>
  %g = lm.neg %f : tensor<2xf32>
  func.return %g : tensor<2xf32>
}

// Adding +0.0 turns −0.0 into +0.0, and 0 − x is not x.
// CHECK-LABEL: @not_neutral
func.func @not_neutral(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  // CHECK-NEXT: lm.add_scalar
  // CHECK-NEXT: lm.rsub_scalar
  %a = lm.add_scalar %x, 0.0 : f64 : tensor<2xf32> -> tensor<2xf32>
  %b = lm.rsub_scalar %x, 0.0 : f64 : tensor<2xf32> -> tensor<2xf32>
  func.return %a, %b : tensor<2xf32>, tensor<2xf32>
}

// CHECK-LABEL: @one_number
func.func @one_number(%x: tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {
  // CHECK-NEXT: %a = lm.mul_scalar %x, 3.0{{.*}} : f64
  // CHECK-NEXT: %b = lm.add_scalar %x, 3.0{{.*}} : f64
  // CHECK-NEXT: %s = lm.sub_scalar %x, 3.0{{.*}} : f64
  // CHECK-NEXT: %r = lm.rsub_scalar %x, 3.0{{.*}} : f64
  // CHECK-NEXT: %p = lm.pow_scalar %x, 3.0{{.*}} : f64
  // CHECK-NEXT: func.return
  %c = lm.constant dense<3.0> : tensor<f32>
  %d = lm.constant dense<3.0> : tensor<1xf32>
  %a = lm.mul %c, %x : tensor<f32>, tensor<2x4xf32> -> tensor<2x4xf32>
  %b = lm.add %x, %d : tensor<2x4xf32>, tensor<1xf32> -> tensor<2x4xf32>
  %s = lm.sub %x, %c : tensor<2x4xf32>, tensor<f32> -> tensor<2x4xf32>
  %r = lm.sub %c, %x : tensor<f32>, tensor<2x4xf32> -> tensor<2x4xf32>
  %p = lm.pow %x, %c : tensor<2x4xf32>, tensor<f32> -> tensor<2x4xf32>
  func.return %a, %b, %s, %r, %p : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
}

// No scalar form: another shape, another dtype, a division by x.
// CHECK-LABEL: @number_stays
func.func @number_stays(%x: tensor<2xf32>, %h: tensor<2xbf16>) -> (tensor<1x2xf32>, tensor<2xbf16>, tensor<2xf32>) {
  // CHECK: lm.mul
  // CHECK: lm.mul
  // CHECK: lm.div
  %c = lm.constant dense<3.0> : tensor<1x1xf32>
  %d = lm.constant dense<3.0> : tensor<f32>
  %a = lm.mul %x, %c : tensor<2xf32>, tensor<1x1xf32> -> tensor<1x2xf32>
  %b = lm.mul %h, %d : tensor<2xbf16>, tensor<f32> -> tensor<2xbf16>
  %e = lm.div %d, %x : tensor<f32>, tensor<2xf32> -> tensor<2xf32>
  func.return %a, %b, %e : tensor<1x2xf32>, tensor<2xbf16>, tensor<2xf32>
}

// CHECK-LABEL: @learned_positions
func.func @learned_positions(%pos: index) -> (tensor<1x3x4xf32>, tensor<3x4xf32>) {
  // CHECK-NEXT: %w = lm.weight "wpe.weight" : tensor<16x4xf32>
  // CHECK-NEXT: %a = lm.rows %w, %pos : tensor<16x4xf32> -> tensor<1x3x4xf32>
  // CHECK-NEXT: [[t:%.+]] = lm.slice %w {dim = 0 : i64, start = 2 : i64, end = 16 : i64, step = 1 : i64}
  // CHECK-NEXT: [[r:%.+]] = lm.rows [[t]], %pos : tensor<14x4xf32> -> tensor<1x3x4xf32>
  // CHECK-NEXT: %b = lm.reshape [[r]] : tensor<1x3x4xf32> -> tensor<3x4xf32>
  %w = lm.weight "wpe.weight" : tensor<16x4xf32>
  %p = lm.positions %pos : tensor<1x3xi64>
  %a = lm.embedding %w, %p : tensor<16x4xf32>, tensor<1x3xi64> -> tensor<1x3x4xf32>
  %q = lm.reshape %p : tensor<1x3xi64> -> tensor<3xi64>
  %o = lm.add_scalar %q, 2.0 : f64 : tensor<3xi64> -> tensor<3xi64>
  %b = lm.embedding %w, %o : tensor<16x4xf32>, tensor<3xi64> -> tensor<3x4xf32>
  func.return %a, %b : tensor<1x3x4xf32>, tensor<3x4xf32>
}

// Rows before the first do not exist.
// CHECK-LABEL: @negative_offset
func.func @negative_offset(%pos: index) -> tensor<1x3x4xf32> {
  // CHECK: lm.embedding
  %w = lm.weight "wpe.weight" : tensor<16x4xf32>
  %p = lm.positions %pos : tensor<1x3xi64>
  %o = lm.sub_scalar %p, 1.0 : f64 : tensor<1x3xi64> -> tensor<1x3xi64>
  %a = lm.embedding %w, %o : tensor<16x4xf32>, tensor<1x3xi64> -> tensor<1x3x4xf32>
  func.return %a : tensor<1x3x4xf32>
}

// CHECK-LABEL: @equal_ops_are_shared
func.func @equal_ops_are_shared(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  // CHECK-NEXT: %a = lm.exp %x
  // CHECK-NEXT: func.return %a, %a
  %a = lm.exp %x : tensor<2xf32>
  %b = lm.exp %x : tensor<2xf32>
  %dead = lm.log %x : tensor<2xf32>
  func.return %a, %b : tensor<2xf32>, tensor<2xf32>
}
