// RUN: amk-opt %s | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

func.func @f(%x: tensor<2x4xf32>, %pos: index) {
  %reshape = lm.reshape %x : tensor<2x4xf32> -> tensor<8xf32>
  %transpose = lm.transpose %x {permutation = array<i64: 1, 0>} : tensor<2x4xf32> -> tensor<4x2xf32>
  %slice = lm.slice %x {dim = 1 : i64, start = 1 : i64, end = 4 : i64, step = 2 : i64} : tensor<2x4xf32> -> tensor<2x2xf32>
  %concat = lm.concat %x, %x {dim = 0 : i64} : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<4x4xf32>
  %expand = lm.expand %x : tensor<2x4xf32> -> tensor<3x2x4xf32>
  func.return
}

// CHECK-LABEL: func.func @f(
// CHECK-NEXT: %reshape = lm.reshape %x : tensor<2x4xf32> -> tensor<8xf32>
// CHECK-NEXT: %transpose = lm.transpose %x {permutation = array<i64: 1, 0>} : tensor<2x4xf32> -> tensor<4x2xf32>
// CHECK-NEXT: %slice = lm.slice %x {dim = 1 : i64, start = 1 : i64, end = 4 : i64, step = 2 : i64} : tensor<2x4xf32> -> tensor<2x2xf32>
// CHECK-NEXT: %concat = lm.concat %x, %x {dim = 0 : i64} : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<4x4xf32>
// CHECK-NEXT: %expand = lm.expand %x : tensor<2x4xf32> -> tensor<3x2x4xf32>

// GENERIC: %reshape = "lm.reshape"(%x) : (tensor<2x4xf32>) -> tensor<8xf32>
// GENERIC-NEXT: %transpose = "lm.transpose"(%x) <{permutation = array<i64: 1, 0>}> : (tensor<2x4xf32>) -> tensor<4x2xf32>
// GENERIC-NEXT: %slice = "lm.slice"(%x) <{dim = 1 : i64, start = 1 : i64, end = 4 : i64, step = 2 : i64}> : (tensor<2x4xf32>) -> tensor<2x2xf32>
// GENERIC-NEXT: %concat = "lm.concat"(%x, %x) <{dim = 0 : i64}> : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
// GENERIC-NEXT: %expand = "lm.expand"(%x) : (tensor<2x4xf32>) -> tensor<3x2x4xf32>
