// RUN: not amk-opt %s -p 'split-kv{max-seq=40}' 2>&1 | filecheck %s

// CHECK: split-kv: queries are not f32 at lm.attention; run promote-f32 first
func.func @step(%q: tensor<1x4x1x8xbf16>, %pos: index, %k: !kv.cache<1x2x?x8xbf16, axis = 2, policy = "static">, %v: !kv.cache<1x2x?x8xbf16, axis = 2, policy = "static">) -> tensor<1x1x4x8xbf16> {
  %o = lm.attention %q, %k, %v at %pos {scale = 0.5 : f64} : tensor<1x4x1x8xbf16>, !kv.cache<1x2x?x8xbf16, axis = 2, policy = "static">, !kv.cache<1x2x?x8xbf16, axis = 2, policy = "static"> -> tensor<1x1x4x8xbf16>
  func.return %o : tensor<1x1x4x8xbf16>
}
