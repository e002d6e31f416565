// RUN: amk-opt %s -p fold-kv | filecheck %s
// RUN: amk-opt %s -p fold-kv,unfold-kv | filecheck %s --check-prefix=BACK

// CHECK-LABEL: func.func @folded(
// CHECK-SAME: %past: !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
// CHECK-NEXT: %0 = kv.append %past, %new
// CHECK-NEXT: func.return %0
// BACK-LABEL: func.func @folded(
// BACK-SAME: %past: tensor<1x2x?x4xf32>
// BACK-NEXT: lm.concat %past, %new {dim = 2 : i64}
func.func @folded(%new: tensor<1x2x1x4xf32>, %past: tensor<1x2x?x4xf32>) -> tensor<1x2x?x4xf32> {
  %all = lm.concat %past, %new {dim = 2 : i64}
    : tensor<1x2x?x4xf32>, tensor<1x2x1x4xf32> -> tensor<1x2x?x4xf32>
  func.return %all : tensor<1x2x?x4xf32>
}

// A prepend is not an append.
// CHECK-LABEL: func.func @prepend(
// CHECK-NEXT: lm.concat %new, %past
func.func @prepend(%new: tensor<1x2x1x4xf32>, %past: tensor<1x2x?x4xf32>) -> tensor<1x2x?x4xf32> {
  %all = lm.concat %new, %past {dim = 2 : i64}
    : tensor<1x2x1x4xf32>, tensor<1x2x?x4xf32> -> tensor<1x2x?x4xf32>
  func.return %all : tensor<1x2x?x4xf32>
}

// The result is open on two axes: rows are added on one and heads vary on another.
// CHECK-LABEL: func.func @two_axes(
// CHECK-NEXT: lm.concat %past, %new
func.func @two_axes(%new: tensor<1x?x1x4xf32>, %past: tensor<1x?x?x4xf32>) -> tensor<1x?x?x4xf32> {
  %all = lm.concat %past, %new {dim = 2 : i64}
    : tensor<1x?x?x4xf32>, tensor<1x?x1x4xf32> -> tensor<1x?x?x4xf32>
  func.return %all : tensor<1x?x?x4xf32>
}

// CHECK-LABEL: func.func @other_axis(
// CHECK-NEXT: lm.concat %past, %new {dim = 1 : i64}
func.func @other_axis(%new: tensor<1x1x?x4xf32>, %past: tensor<1x2x?x4xf32>) -> tensor<1x3x?x4xf32> {
  %all = lm.concat %past, %new {dim = 1 : i64}
    : tensor<1x2x?x4xf32>, tensor<1x1x?x4xf32> -> tensor<1x3x?x4xf32>
  func.return %all : tensor<1x3x?x4xf32>
}

// CHECK-LABEL: func.func @two_uses(
// CHECK-NEXT: lm.concat
// CHECK-NEXT: lm.neg
func.func @two_uses(%new: tensor<1x2x1x4xf32>, %past: tensor<1x2x?x4xf32>) -> (tensor<1x2x?x4xf32>, tensor<1x2x?x4xf32>) {
  %all = lm.concat %past, %new {dim = 2 : i64}
    : tensor<1x2x?x4xf32>, tensor<1x2x1x4xf32> -> tensor<1x2x?x4xf32>
  %n = lm.neg %past : tensor<1x2x?x4xf32>
  func.return %all, %n : tensor<1x2x?x4xf32>, tensor<1x2x?x4xf32>
}
