// RUN: amk-opt %s -p raise | filecheck %s

// x² as a product, factors the other way round, a computed weight.
// CHECK-LABEL: @gemma
func.func @gemma(%x: tensor<1x3x8xf32>) -> tensor<1x3x8xf32> {
  // CHECK: [[w:%.+]] = lm.add_scalar
  // CHECK-NEXT: %y = lm.rms_norm %x weight [[w]] : tensor<8xf32> {eps = 1.000000e-06 : f64} : tensor<1x3x8xf32>
  // CHECK-NEXT: func.return %y
  %w = lm.weight "norm.weight" : tensor<8xf32>
  %s = lm.add_scalar %w, 1.0 : f64 : tensor<8xf32> -> tensor<8xf32>
  %p = lm.mul %x, %x : tensor<1x3x8xf32>, tensor<1x3x8xf32> -> tensor<1x3x8xf32>
  %m = lm.mean %p {dims = array<i64: 2>, keepdim = true} : tensor<1x3x8xf32> -> tensor<1x3x1xf32>
  %a = lm.add_scalar %m, 1.0e-6 : f64 : tensor<1x3x1xf32> -> tensor<1x3x1xf32>
  %r = lm.rsqrt %a : tensor<1x3x1xf32>
  %n = lm.mul %r, %x : tensor<1x3x1xf32>, tensor<1x3x8xf32> -> tensor<1x3x8xf32>
  %y = lm.mul %n, %s : tensor<1x3x8xf32>, tensor<8xf32> -> tensor<1x3x8xf32>
  func.return %y : tensor<1x3x8xf32>
}

// As a power, without a weight, over the features of a head.
// CHECK-LABEL: @without_weight
func.func @without_weight(%x: tensor<1x2x3x8xf32>) -> tensor<1x2x3x8xf32> {
  // CHECK-NEXT: %n = lm.rms_norm %x {eps = 1.000000e-06 : f64} : tensor<1x2x3x8xf32>
  %p = lm.pow_scalar %x, 2.0 : f64 : tensor<1x2x3x8xf32> -> tensor<1x2x3x8xf32>
  %m = lm.mean %p {dims = array<i64: 3>, keepdim = true} : tensor<1x2x3x8xf32> -> tensor<1x2x3x1xf32>
  %a = lm.add_scalar %m, 1.0e-6 : f64 : tensor<1x2x3x1xf32> -> tensor<1x2x3x1xf32>
  %r = lm.pow_scalar %a, -0.5 : f64 : tensor<1x2x3x1xf32> -> tensor<1x2x3x1xf32>
  %n = lm.mul %x, %r : tensor<1x2x3x8xf32>, tensor<1x2x3x1xf32> -> tensor<1x2x3x8xf32>
  func.return %n : tensor<1x2x3x8xf32>
}

// A weight for each head is no vector: it stays a product.
// CHECK-LABEL: @weight_per_head
func.func @weight_per_head(%x: tensor<1x3x2x8xf32>) -> tensor<1x3x2x8xf32> {
  // CHECK: %n = lm.layer_norm %x {eps = 1.000000e-05 : f64} : tensor<1x3x2x8xf32>
  // CHECK: %y = lm.mul %w, %n
  %w = lm.weight "q_norm.weight" : tensor<2x8xf32>
  %m = lm.mean %x {dims = array<i64: 3>, keepdim = true} : tensor<1x3x2x8xf32> -> tensor<1x3x2x1xf32>
  %c = lm.sub %x, %m : tensor<1x3x2x8xf32>, tensor<1x3x2x1xf32> -> tensor<1x3x2x8xf32>
  %p = lm.pow_scalar %c, 2.0 : f64 : tensor<1x3x2x8xf32> -> tensor<1x3x2x8xf32>
  %v = lm.mean %p {dims = array<i64: 3>, keepdim = true} : tensor<1x3x2x8xf32> -> tensor<1x3x2x1xf32>
  %a = lm.add_scalar %v, 1.0e-5 : f64 : tensor<1x3x2x1xf32> -> tensor<1x3x2x1xf32>
  %r = lm.rsqrt %a : tensor<1x3x2x1xf32>
  %n = lm.mul %c, %r : tensor<1x3x2x8xf32>, tensor<1x3x2x1xf32> -> tensor<1x3x2x8xf32>
  %y = lm.mul %w, %n : tensor<2x8xf32>, tensor<1x3x2x8xf32> -> tensor<1x3x2x8xf32>
  func.return %y : tensor<1x3x2x8xf32>
}

// CHECK-LABEL: @layer_norm
func.func @layer_norm(%x: tensor<1x3x8xf32>) -> tensor<1x3x8xf32> {
  // CHECK: %y = lm.layer_norm %x weight %w : tensor<8xf32> bias %b : tensor<8xf32> {eps = 1.000000e-05 : f64}
  // CHECK-NEXT: func.return %y
  %w = lm.weight "norm.weight" : tensor<8xf32>
  %b = lm.weight "norm.bias" : tensor<8xf32>
  %m = lm.mean %x {dims = array<i64: 2>, keepdim = true} : tensor<1x3x8xf32> -> tensor<1x3x1xf32>
  %c = lm.sub %x, %m : tensor<1x3x8xf32>, tensor<1x3x1xf32> -> tensor<1x3x8xf32>
  %p = lm.mul %c, %c : tensor<1x3x8xf32>, tensor<1x3x8xf32> -> tensor<1x3x8xf32>
  %v = lm.mean %p {dims = array<i64: 2>, keepdim = true} : tensor<1x3x8xf32> -> tensor<1x3x1xf32>
  %a = lm.add_scalar %v, 1.0e-5 : f64 : tensor<1x3x1xf32> -> tensor<1x3x1xf32>
  %r = lm.rsqrt %a : tensor<1x3x1xf32>
  %n = lm.mul %c, %r : tensor<1x3x8xf32>, tensor<1x3x1xf32> -> tensor<1x3x8xf32>
  %s = lm.mul %w, %n : tensor<8xf32>, tensor<1x3x8xf32> -> tensor<1x3x8xf32>
  %y = lm.add %s, %b : tensor<1x3x8xf32>, tensor<8xf32> -> tensor<1x3x8xf32>
  func.return %y : tensor<1x3x8xf32>
}

// The mean of another tensor, over another axis, of another power: no norm.
// CHECK-LABEL: @not_norms
func.func @not_norms(%x: tensor<1x3x8xf32>, %z: tensor<1x3x8xf32>) -> (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>) {
  // CHECK-NOT: lm.rms_norm
  %p = lm.pow_scalar %x, 2.0 : f64 : tensor<1x3x8xf32> -> tensor<1x3x8xf32>
  %m = lm.mean %p {dims = array<i64: 2>, keepdim = true} : tensor<1x3x8xf32> -> tensor<1x3x1xf32>
  %a = lm.add_scalar %m, 1.0e-6 : f64 : tensor<1x3x1xf32> -> tensor<1x3x1xf32>
  %r = lm.rsqrt %a : tensor<1x3x1xf32>
  %n = lm.mul %z, %r : tensor<1x3x8xf32>, tensor<1x3x1xf32> -> tensor<1x3x8xf32>
  %m2 = lm.mean %p {dims = array<i64: 1>, keepdim = true} : tensor<1x3x8xf32> -> tensor<1x1x8xf32>
  %a2 = lm.add_scalar %m2, 1.0e-6 : f64 : tensor<1x1x8xf32> -> tensor<1x1x8xf32>
  %r2 = lm.rsqrt %a2 : tensor<1x1x8xf32>
  %n2 = lm.mul %x, %r2 : tensor<1x3x8xf32>, tensor<1x1x8xf32> -> tensor<1x3x8xf32>
  %p3 = lm.pow_scalar %x, 3.0 : f64 : tensor<1x3x8xf32> -> tensor<1x3x8xf32>
  %m3 = lm.mean %p3 {dims = array<i64: 2>, keepdim = true} : tensor<1x3x8xf32> -> tensor<1x3x1xf32>
  %a3 = lm.add_scalar %m3, 1.0e-6 : f64 : tensor<1x3x1xf32> -> tensor<1x3x1xf32>
  %r3 = lm.rsqrt %a3 : tensor<1x3x1xf32>
  %n3 = lm.mul %x, %r3 : tensor<1x3x8xf32>, tensor<1x3x1xf32> -> tensor<1x3x8xf32>
  func.return %n, %n2, %n3 : tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>
}

// A normed value that others read keeps its own op.
// CHECK-LABEL: @normed_is_read_twice
func.func @normed_is_read_twice(%x: tensor<1x3x8xf32>, %w: tensor<8xf32>) -> (tensor<1x3x8xf32>, tensor<1x3x8xf32>) {
  // CHECK-NEXT: %n = lm.rms_norm %x {eps
  // CHECK-NEXT: %y = lm.mul %w, %n
  %p = lm.pow_scalar %x, 2.0 : f64 : tensor<1x3x8xf32> -> tensor<1x3x8xf32>
  %m = lm.mean %p {dims = array<i64: 2>, keepdim = true} : tensor<1x3x8xf32> -> tensor<1x3x1xf32>
  %a = lm.add_scalar %m, 1.0e-6 : f64 : tensor<1x3x1xf32> -> tensor<1x3x1xf32>
  %r = lm.rsqrt %a : tensor<1x3x1xf32>
  %n = lm.mul %x, %r : tensor<1x3x8xf32>, tensor<1x3x1xf32> -> tensor<1x3x8xf32>
  %y = lm.mul %w, %n : tensor<8xf32>, tensor<1x3x8xf32> -> tensor<1x3x8xf32>
  func.return %n, %y : tensor<1x3x8xf32>, tensor<1x3x8xf32>
}
