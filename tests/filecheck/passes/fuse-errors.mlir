// RUN: amk-opt %s -p fuse --split-input-file --verify-diagnostics | filecheck %s

// CHECK: fuse: lm.matmul can neither start nor join a stage
func.func @step(%x: tensor<1x4xf32>, %y: tensor<4x4xf32>, %pos: index) -> tensor<1x4xf32> {
  %z = lm.matmul %x, %y : tensor<1x4xf32>, tensor<4x4xf32> -> tensor<1x4xf32>
  func.return %z : tensor<1x4xf32>
}
// -----
// CHECK: fuse: lm.attention can neither start nor join a stage
func.func @step(%q: tensor<1x4x1x8xf32>, %pos: index, %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">) -> tensor<1x1x4x8xf32> {
  %o = lm.attention %q, %k, %k at %pos {scale = 0.5 : f64} : tensor<1x4x1x8xf32>, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static"> -> tensor<1x1x4x8xf32>
  func.return %o : tensor<1x1x4x8xf32>
}
