// RUN: amk-opt %s -p 'kv-policy{max-seq=1024 tokens=16}' | filecheck %s
// RUN: amk-opt %s -p 'kv-policy{max-seq=32 tokens=16}' | filecheck %s --check-prefix=SHORT
// RUN: amk-opt %s -p 'kv-policy{max-seq=1024 policy=static windowed=keep}' | filecheck %s --check-prefix=KEEP

// Two layers: one sees all rows, one the last 24.
// CHECK: %a: !kv.cache<1x2x?x8xf32, axis = 2, policy = "doubling">
// CHECK-SAME: %b: !kv.cache<1x2x?x8xf32, axis = 2, policy = "ring", rows = 48, window = 24, sinks = 0>
// SHORT: %b: !kv.cache<1x2x?x8xf32, axis = 2, policy = "doubling">
// KEEP: %b: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">
!cache = !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">
func.func @step(%x: tensor<1x2x1x8xf32>, %q: tensor<1x4x1x8xf32>, %pos: index, %a: !cache, %b: !cache)
    -> (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, !cache, !cache) {
  %a1 = kv.append %a, %x : tensor<1x2x1x8xf32> -> !cache
  %b1 = kv.append %b, %x : tensor<1x2x1x8xf32> -> !cache
  %o = lm.attention %q, %a1, %a1 at %pos {scale = 1.0 : f64}
    : tensor<1x4x1x8xf32>, !cache, !cache -> tensor<1x1x4x8xf32>
  %w = lm.attention %q, %b1, %b1 at %pos {scale = 1.0 : f64, window = 24 : i64}
    : tensor<1x4x1x8xf32>, !cache, !cache -> tensor<1x1x4x8xf32>
  func.return %o, %w, %a1, %b1 : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, !cache, !cache
}
