// RUN: amk-opt %s -p legal-lm --split-input-file --verify-diagnostics | filecheck %s

// CHECK: legal-lm: lm.matmul is left; run canonicalize, at lm.matmul
func.func @step(%x: tensor<1x4xf32>, %y: tensor<4x4xf32>, %pos: index) -> tensor<1x4xf32> {
  %z = lm.matmul %x, %y : tensor<1x4xf32>, tensor<4x4xf32> -> tensor<1x4xf32>
  func.return %z : tensor<1x4xf32>
}
// -----
// CHECK: legal-lm: lm.attention is left; run split-kv, at lm.attention
func.func @step(%q: tensor<1x4x1x8xf32>, %pos: index, %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, %v: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">) -> tensor<1x1x4x8xf32> {
  %o = lm.attention %q, %k, %v at %pos {scale = 0.5 : f64} : tensor<1x4x1x8xf32>, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static"> -> tensor<1x1x4x8xf32>
  func.return %o : tensor<1x1x4x8xf32>
}
// -----
// CHECK: legal-lm: arithmetic that is not f32; run promote-f32, at lm.neg
func.func @step(%x: tensor<1x4xbf16>, %pos: index) -> tensor<1x4xbf16> {
  %z = lm.neg %x : tensor<1x4xbf16>
  func.return %z : tensor<1x4xbf16>
}
// -----
// CHECK: legal-lm: depends on weights and constants alone; run split-init, at lm.exp
func.func @step(%x: tensor<1x4xf32>, %pos: index) -> tensor<1x4xf32> {
  %w = lm.weight "w" : tensor<4xf32>
  %e = lm.exp %w : tensor<4xf32>
  %z = lm.mul %x, %e : tensor<1x4xf32>, tensor<4xf32> -> tensor<1x4xf32>
  func.return %z : tensor<1x4xf32>
}
// -----
// CHECK: legal-lm: the table has 16 rows; compile for max_seq ≤ 16, at lm.rows
builtin.module attributes {amk.max_seq = 17 : i64} {
  func.func @step(%x: tensor<1x1x4xf32>, %pos: index) -> tensor<1x1x4xf32> {
    %w = lm.weight "wpe" : tensor<16x4xf32>
    %r = lm.rows %w, %pos : tensor<16x4xf32> -> tensor<1x1x4xf32>
    %z = lm.add %x, %r : tensor<1x1x4xf32>, tensor<1x1x4xf32> -> tensor<1x1x4xf32>
    func.return %z : tensor<1x1x4xf32>
  }
}
// -----
// CHECK: legal-lm: the module has no func.func @step with a body
func.func @other(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
  func.return %x : tensor<1x4xf32>
}
// -----
// CHECK: func.func @step
// CHECK: lm.cast
func.func @step(%x: tensor<1x4xf32>, %pos: index) -> tensor<1x4xf32> {
  %w = lm.weight "w" : tensor<4xbf16>
  %e = lm.cast %w : tensor<4xbf16> -> tensor<4xf32>
  %z = lm.mul %x, %e : tensor<1x4xf32>, tensor<4xf32> -> tensor<1x4xf32>
  func.return %z : tensor<1x4xf32>
}
// -----
// CHECK: legal-lm: lm.constant is left; run split-init, at lm.constant
func.func @step(%x: tensor<1x4xf32>, %pos: index) -> tensor<1x4xf32> {
  %c = lm.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %z = lm.mul %x, %c : tensor<1x4xf32>, tensor<4xf32> -> tensor<1x4xf32>
  func.return %z : tensor<1x4xf32>
}
