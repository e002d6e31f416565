// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

!cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
func.func @f(%x: tensor<1x2x1x4xf32>, %c: !cache) -> (tensor<1x2x?x4xf32>, !cache) {
  %w = kv.window %c [P] : !cache -> tensor<1x2x?x4xf32>
  %n = kv.append %c, %x : tensor<1x2x1x4xf32> -> !cache
  func.return %w, %n : tensor<1x2x?x4xf32>, !cache
}
// CHECK: kv C9: a window is used after a later append to its cache: use kv.pack, at kv.window
// -----
!cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
func.func @f(%x: tensor<1x2x1x4xf32>, %c: !cache) -> !cache {
  %n = kv.append %c, %x : tensor<1x2x1x4xf32> -> !cache
  %w = kv.window %c [P] : !cache -> tensor<1x2x?x4xf32>
  func.return %n : !cache
}
// CHECK: kv C9: a window is used after a later append
// -----
!cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
func.func @f(%x: tensor<1x2x1x4xf32>, %c: !cache) -> !cache {
  %n = kv.append %c, %x : tensor<1x2x1x4xf32> -> !cache
  %w = kv.window %n [P + 2] : !cache -> tensor<1x2x?x4xf32>
  func.return %n : !cache
}
// CHECK: kv C7: a window of P + 2 rows is not within the P + 1 live ones: the rest is spare
// -----
!cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
func.func @f(%c: !cache) -> tensor<1x2x?x4xf32> {
  %w = kv.pack %c [Q] : !cache -> tensor<1x2x?x4xf32>
  func.return %w : tensor<1x2x?x4xf32>
}
// CHECK: kv C7: a pack of Q rows is not within the P live ones
// -----
!cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
func.func @f(%c: !cache) -> !cache {
  %n = kv.truncate %c [P + 1] : !cache -> !cache
  func.return %n : !cache
}
// CHECK: kv C7: a truncation of P + 1 rows is not within the P live ones
// -----
!cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
func.func @f(%x: tensor<1x2x1x4xf32>, %c: !cache) -> (!cache, !cache) {
  %n = kv.append %c, %x : tensor<1x2x1x4xf32> -> !cache
  %t = kv.truncate %c [P] : !cache -> !cache
  func.return %n, %t : !cache, !cache
}
// CHECK: kv C6: a cache version has two later versions; each has one at most
// -----
!cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
func.func @f(%x: tensor<1x2x1x4xi64>, %c: !cache) -> !cache {
  %n = kv.append %c, %x : tensor<1x2x1x4xi64> -> !cache
  func.return %n : !cache
}
// CHECK: kv C5: what is appended are floats, at kv.append
// -----
!cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
func.func @f(%x: tensor<2x1x4xf32>, %c: !cache) -> !cache {
  %n = kv.append %c, %x : tensor<2x1x4xf32> -> !cache
  func.return %n : !cache
}
// CHECK: kv C4: append of (2, 1, 4) does not fit a cache of (1, 2, -1, 4), at kv.append
// -----
!ring = !kv.cache<1x2x?x4xf32, axis = 2, policy = "ring", rows = 16, window = 8, sinks = 0>
func.func @f(%c: !ring) -> tensor<1x2x?x4xf32> {
  %w = kv.window %c [P] : !ring -> tensor<1x2x?x4xf32>
  func.return %w : tensor<1x2x?x4xf32>
}
// CHECK: kv C8: the rows of a ring have no order in memory: no window, at kv.window
// -----
func.func @f(%c: !kv.cache<1x2x?x4xf32, axis = 2, policy = "ring", rows = 16, window = 14, sinks = 4>) {
  func.return
}
// CHECK: kv C2: a ring of 16 rows and 4 sinks has no room for a window of 14
