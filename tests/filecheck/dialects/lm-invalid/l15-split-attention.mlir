// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// a chunk of no rows
func.func @f(%q: tensor<1x4x1x8xf32>, %pos: index, %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">) {
  %o, %m, %l = lm.attention_split %q, %k, %k at %pos {scale = 0.5 : f64, chunk = 0 : i64} : tensor<1x4x1x8xf32>, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static"> -> tensor<4x2x1x2x8xf32>, tensor<4x2x1x2xf32>, tensor<4x2x1x2xf32>
  func.return
}
// CHECK: the input is invalid: lm L15: a chunk is positive, at lm.attention_split
// -----
// outputs of another shape
func.func @f(%q: tensor<1x4x1x8xf32>, %pos: index, %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">) {
  %o, %m, %l = lm.attention_split %q, %k, %k at %pos {scale = 0.5 : f64, chunk = 16 : i64} : tensor<1x4x1x8xf32>, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static"> -> tensor<4x2x1x4x8xf32>, tensor<4x2x1x2xf32>, tensor<4x2x1x2xf32>
  func.return
}
// CHECK: the input is invalid: lm L15: outputs' shape, at lm.attention_split
// -----
// sums of another shape
func.func @f(%q: tensor<1x4x1x8xf32>, %pos: index, %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">) {
  %o, %m, %l = lm.attention_split %q, %k, %k at %pos {scale = 0.5 : f64, chunk = 16 : i64} : tensor<1x4x1x8xf32>, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static"> -> tensor<4x2x1x2x8xf32>, tensor<4x2x1x4xf32>, tensor<4x2x1x4xf32>
  func.return
}
// CHECK: the input is invalid: lm L15: partials' shape, at lm.attention_split
// -----
// partials without a depth
func.func @f(%o: tensor<4x2x1x2xf32>, %pos: index) {
  %y = lm.attention_combine %o, %o, %o at %pos {chunk = 16 : i64} : tensor<4x2x1x2xf32>, tensor<4x2x1x2xf32>, tensor<4x2x1x2xf32> -> tensor<1x1x4x8xf32>
  func.return
}
// CHECK: the input is invalid: lm L15: partial outputs are [n, Hkv, S, G, Dv], at lm.attention_combine
