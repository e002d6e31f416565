// RUN: amk-opt %s -p cse,dce | filecheck %s

// Two caches that hold the same are still two, and one that is returned stays.
!cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
func.func @step(%x: tensor<1x2x1x4xf32>, %k: !cache, %v: !cache) -> (!cache, !cache, !cache) {
  %k1 = kv.append %k, %x : tensor<1x2x1x4xf32> -> !cache
  %v1 = kv.append %v, %x : tensor<1x2x1x4xf32> -> !cache
  %a = kv.load "a" [Q] : !cache
  func.return %k1, %v1, %a : !cache, !cache, !cache
}
// CHECK: kv.append %k, %x
// CHECK-NEXT: kv.append %v, %x
// CHECK-NEXT: kv.load "a"
