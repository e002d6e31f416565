// RUN: amk-opt %s -p raise | filecheck %s
// RUN: amk-opt %s -p raise --pass-statistics 2>&1 | filecheck %s --check-prefix=COUNT

// COUNT: raise: 2 lm.gated_act, 1 lm.gelu_tanh

// CHECK-LABEL: @gated
func.func @gated(%g: tensor<1x3x4xf32>, %u: tensor<1x3x4xf32>) -> (tensor<1x3x4xf32>, tensor<1x3x4xf32>) {
  // CHECK-NEXT: %y = lm.gated_act "silu" %g, %u : tensor<1x3x4xf32>
  // CHECK-NEXT: %z = lm.gated_act "gelu" %g, %u : tensor<1x3x4xf32>
  %a = lm.silu %g : tensor<1x3x4xf32>
  %y = lm.mul %a, %u : tensor<1x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x3x4xf32>
  %b = lm.gelu %g : tensor<1x3x4xf32>
  %z = lm.mul %u, %b : tensor<1x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x3x4xf32>
  func.return %y, %z : tensor<1x3x4xf32>, tensor<1x3x4xf32>
}

// An activation others read, a factor that broadcasts, x · sigmoid(x): nothing is gated.
// CHECK-LABEL: @not_gated
func.func @not_gated(%g: tensor<1x3x4xf32>, %u: tensor<1x3x4xf32>, %w: tensor<4xf32>) -> (tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>) {
  // CHECK-NOT: lm.gated_act
  %a = lm.silu %g : tensor<1x3x4xf32>
  %y = lm.mul %a, %u : tensor<1x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x3x4xf32>
  %b = lm.relu %g : tensor<1x3x4xf32>
  %z = lm.mul %b, %w : tensor<1x3x4xf32>, tensor<4xf32> -> tensor<1x3x4xf32>
  %s = lm.sigmoid %u : tensor<1x3x4xf32>
  %t = lm.mul %u, %s : tensor<1x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x3x4xf32>
  func.return %a, %y, %z, %t : tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32>
}

// CHECK-LABEL: @gelu_new
func.func @gelu_new(%x: tensor<1x3x4xf32>) -> tensor<1x3x4xf32> {
  // CHECK-NEXT: %y = lm.gelu_tanh %x : tensor<1x3x4xf32>
  %h = lm.mul_scalar %x, 0.5 : f64 : tensor<1x3x4xf32> -> tensor<1x3x4xf32>
  %p = lm.pow_scalar %x, 3.0 : f64 : tensor<1x3x4xf32> -> tensor<1x3x4xf32>
  %c = lm.mul_scalar %p, 0.044715 : f64 : tensor<1x3x4xf32> -> tensor<1x3x4xf32>
  %a = lm.add %x, %c : tensor<1x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x3x4xf32>
  %s = lm.mul_scalar %a, 0.79788456080286541 : f64 : tensor<1x3x4xf32> -> tensor<1x3x4xf32>
  %t = lm.tanh %s : tensor<1x3x4xf32>
  %o = lm.add_scalar %t, 1.0 : f64 : tensor<1x3x4xf32> -> tensor<1x3x4xf32>
  %y = lm.mul %h, %o : tensor<1x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x3x4xf32>
  func.return %y : tensor<1x3x4xf32>
}
