// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// a batch
func.func @f(%q: tensor<2x4x1x8xf32>, %pos: index, %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">) {
  %o = lm.attention %q, %k, %k at %pos {scale = 0.5 : f64} : tensor<2x4x1x8xf32>, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static"> -> tensor<1x1x4x8xf32>
  func.return
}
// CHECK: the input is invalid: lm L14: attention ranks are 4, batch 1, at lm.attention
// -----
// kv heads that do not divide
func.func @f(%q: tensor<1x3x1x8xf32>, %pos: index, %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">) {
  %o = lm.attention %q, %k, %k at %pos {scale = 0.5 : f64} : tensor<1x3x1x8xf32>, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static"> -> tensor<1x1x4x8xf32>
  func.return
}
// CHECK: the input is invalid: lm L14: kv heads divide query heads, at lm.attention
// -----
// another depth
func.func @f(%q: tensor<1x4x1x6xf32>, %pos: index, %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">) {
  %o = lm.attention %q, %k, %k at %pos {scale = 0.5 : f64} : tensor<1x4x1x6xf32>, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static"> -> tensor<1x1x4x8xf32>
  func.return
}
// CHECK: the input is invalid: lm L14: queries and keys have one depth, at lm.attention
// -----
// a window of no rows
func.func @f(%q: tensor<1x4x1x8xf32>, %pos: index, %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">) {
  %o = lm.attention %q, %k, %k at %pos {scale = 0.5 : f64, window = 0 : i64} : tensor<1x4x1x8xf32>, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static"> -> tensor<1x1x4x8xf32>
  func.return
}
// CHECK: the input is invalid: lm L14: a window is positive, at lm.attention
// -----
// a result of another shape
func.func @f(%q: tensor<1x4x1x8xf32>, %pos: index, %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">) {
  %o = lm.attention %q, %k, %k at %pos {scale = 0.5 : f64} : tensor<1x4x1x8xf32>, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static"> -> tensor<1x4x1x8xf32>
  func.return
}
// CHECK: the input is invalid: lm L14: result [1, S, Hq, Dv], at lm.attention
// -----
// sinks of another size
func.func @f(%q: tensor<1x4x1x8xf32>, %pos: index, %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, %s: tensor<3xf32>) {
  %o = lm.attention %q, %k, %k at %pos sinks %s : tensor<3xf32> {scale = 0.5 : f64} : tensor<1x4x1x8xf32>, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static"> -> tensor<1x1x4x8xf32>
  func.return
}
// CHECK: the input is invalid: lm L14: sinks are [Hq], at lm.attention
// -----
// first rows that stay without a window
func.func @f(%q: tensor<1x4x1x8xf32>, %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, %pos: index) {
  %o = lm.attention %q, %k, %k at %pos {scale = 0.5 : f64, first_rows = 2 : i64} : tensor<1x4x1x8xf32>, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static"> -> tensor<1x1x4x8xf32>
  func.return
}
// CHECK: the input is invalid: lm L14: first rows that stay are some, and beside a window, at lm.attention
