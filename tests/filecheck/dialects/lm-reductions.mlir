// RUN: amk-opt %s | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

func.func @f(%x: tensor<2x3xf32>, %pos: index) {
  %mean = lm.mean %x {dims = array<i64: 1>, keepdim = true} : tensor<2x3xf32> -> tensor<2x1xf32>
  %sum = lm.sum %x {dims = array<i64: 0, 1>, keepdim = false} : tensor<2x3xf32> -> tensor<f32>
  %amax = lm.amax %x {dims = array<i64: 0>, keepdim = false} : tensor<2x3xf32> -> tensor<3xf32>
  %softmax = lm.softmax %x {dim = 1 : i64} : tensor<2x3xf32>
  %argmax = lm.argmax %x : tensor<2x3xf32> -> tensor<2xi64>
  func.return
}

// CHECK-LABEL: func.func @f(
// CHECK-NEXT: %mean = lm.mean %x {dims = array<i64: 1>, keepdim = true} : tensor<2x3xf32> -> tensor<2x1xf32>
// CHECK-NEXT: %sum = lm.sum %x {dims = array<i64: 0, 1>, keepdim = false} : tensor<2x3xf32> -> tensor<f32>
// CHECK-NEXT: %amax = lm.amax %x {dims = array<i64: 0>, keepdim = false} : tensor<2x3xf32> -> tensor<3xf32>
// CHECK-NEXT: %softmax = lm.softmax %x {dim = 1 : i64} : tensor<2x3xf32>
// CHECK-NEXT: %argmax = lm.argmax %x : tensor<2x3xf32> -> tensor<2xi64>

// GENERIC: %mean = "lm.mean"(%x) <{dims = array<i64: 1>, keepdim = true}> : (tensor<2x3xf32>) -> tensor<2x1xf32>
// GENERIC-NEXT: %sum = "lm.sum"(%x) <{dims = array<i64: 0, 1>, keepdim = false}> : (tensor<2x3xf32>) -> tensor<f32>
// GENERIC-NEXT: %amax = "lm.amax"(%x) <{dims = array<i64: 0>, keepdim = false}> : (tensor<2x3xf32>) -> tensor<3xf32>
// GENERIC-NEXT: %softmax = "lm.softmax"(%x) <{dim = 1 : i64}> : (tensor<2x3xf32>) -> tensor<2x3xf32>
// GENERIC-NEXT: %argmax = "lm.argmax"(%x) : (tensor<2x3xf32>) -> tensor<2xi64>
