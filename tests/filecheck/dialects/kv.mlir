// RUN: amk-opt %s | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | amk-opt | filecheck %s

!cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
!grows = !kv.cache<?x2x4xbf16, axis = 0, policy = "doubling">

func.func @step(%x: tensor<1x2x3x4xf32>, %c: !cache) -> (index, !cache) {
  %n = kv.append %c, %x : tensor<1x2x3x4xf32> -> !cache
  %rows = kv.window %n [P + 3] : !cache -> tensor<1x2x?x4xf32>
  %copy = kv.pack %n [P] : !cache -> tensor<1x2x?x4xf32>
  %t = kv.truncate %n [P + 1] : !cache -> !cache
  %l = kv.length %n : !cache
  %k = kv.capacity %n : !cache
  kv.save %t to "k0" : !cache
  func.return %l, %t : index, !cache
}
// CHECK: kv.append %c, %x : tensor<1x2x3x4xf32> -> !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
// CHECK: kv.window %n[P + 3] : !kv.cache<1x2x?x4xf32, axis = 2, policy = "static"> -> tensor<1x2x?x4xf32>
// CHECK: kv.pack %n[P] : !kv.cache<1x2x?x4xf32, axis = 2, policy = "static"> -> tensor<1x2x?x4xf32>
// CHECK: kv.truncate %n[P + 1] :
// CHECK: kv.length %n : !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
// CHECK: kv.capacity %n : !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
// CHECK: kv.save %t to "k0" : !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">

func.func @other() -> !grows {
  %c = kv.load "k0" [Q] : !grows
  func.return %c : !grows
}
// CHECK: kv.load "k0"[Q] : !kv.cache<?x2x4xbf16, axis = 0, policy = "doubling">

func.func @ring(%c: !kv.cache<1x2x?x4xf32, axis = 2, policy = "ring", rows = 32, window = 16, sinks = 4>) {
  func.return
}
// CHECK: !kv.cache<1x2x?x4xf32, axis = 2, policy = "ring", rows = 32, window = 16, sinks = 4>
