// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// indices that are floats
func.func @f(%w: tensor<5x4xf32>, %i: tensor<1x2xf32>) {
  %y = lm.embedding %w, %i : tensor<5x4xf32>, tensor<1x2xf32> -> tensor<1x2x4xf32>
  func.return
}
// CHECK: the input is invalid: lm L10: indices are i64, at lm.embedding
// -----
// rows of another width
func.func @f(%w: tensor<5x4xf32>, %i: tensor<1x2xi64>) {
  %y = lm.embedding %w, %i : tensor<5x4xf32>, tensor<1x2xi64> -> tensor<1x2x5xf32>
  func.return
}
// CHECK: the input is invalid: lm L10: the result is (1, 2, 4), at lm.embedding
// -----
// more rows than the table has
func.func @f(%w: tensor<5x4xf32>, %pos: index) {
  %y = lm.rows %w, %pos : tensor<5x4xf32> -> tensor<1x6x4xf32>
  func.return
}
// CHECK: the input is invalid: lm L10: rows of [max_seq, D] are [1, S, D], at lm.rows
