// RUN: not amk-opt %s -p unfold-kv 2>&1 | filecheck %s

!cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
func.func @step(%x: tensor<1x2x1x4xf32>, %past: !cache) -> (index, !cache) {
  %n = kv.append %past, %x : tensor<1x2x1x4xf32> -> !cache
  %l = kv.length %n : !cache
  func.return %l, %n : index, !cache
}
// CHECK: unfold-kv: kv.length reads a cache, at kv.length
