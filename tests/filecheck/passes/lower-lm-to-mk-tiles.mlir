// RUN: amk-opt %s -p 'lower-lm-to-mk{tile-bytes=512 max-seq=64}' --split-input-file | filecheck %s

// Sixteen features a tile, and one tile of the three that are left; the bias is loaded by tiles, the
// input once a worker.
// CHECK-LABEL: mk.stage "down" prologue {
// CHECK-NEXT:    [[x:%.+]] = mk.load %tokens_row
// CHECK-NEXT:    [[f:%.+]] = mk.reshape [[x]]
// CHECK-NEXT:    mk.yield [[f]]
// CHECK:       mk.part[14] {
// CHECK-NEXT:    mk.matmul {{.*}}, %down_weight[t0 * 16, 0]
// CHECK-NEXT:    mk.load %down_bias[t0 * 16]
// CHECK-NEXT:    mk.binary "add"
// CHECK:         mk.store {{.*}}, %logits[0, 0, t0 * 16]
// CHECK:       mk.part[1] {
// CHECK-NEXT:    mk.matmul {{.*}}, %down_weight[t0 * 3 + 224, 0]
// CHECK:         mk.store {{.*}}, %logits[0, 0, t0 * 3 + 224]
func.func @step(%t: tensor<1x1xi64>, %pos: index) -> tensor<1x1x227xf32> {
  %e = lm.weight "tokens_row" : tensor<1x1x8xf32>
  %w = lm.weight "down.weight" : tensor<227x8xf32>
  %b = lm.weight "down.bias" : tensor<227xf32>
  %y = lm.stage "down" {
    %l = lm.linear %e, %w bias %b : tensor<227xf32> : tensor<1x1x8xf32>, tensor<227x8xf32> -> tensor<1x1x227xf32>
    lm.yield %l : tensor<1x1x227xf32>
  } : tensor<1x1x227xf32>
  func.return %y : tensor<1x1x227xf32>
}
// -----
// Heads stay whole: a tile holds two heads of four features. The append lands at row P.
// CHECK:       mk.buffer "cache" "k" : !mk.buffer<1x8x?x4xbf16>
// CHECK-LABEL: mk.stage "k" prologue {
// CHECK:       mk.part[2] {
// CHECK-NEXT:    mk.matmul {{.*}}, %k_weight[t0 * 16, 0]
// CHECK:         mk.store {{.*}}, %k[0, t0 * 4, P, 0] : tensor<1x4x1x4xf32> -> !mk.buffer<1x8x?x4xbf16>
func.func @step(%t: tensor<1x1xi64>, %pos: index, %k: !kv.cache<1x8x?x4xbf16, axis = 2, policy = "static">) -> (tensor<1x1x8xf32>, !kv.cache<1x8x?x4xbf16, axis = 2, policy = "static">) {
  %e = lm.weight "row" : tensor<1x1x8xf32>
  %w = lm.weight "k.weight" : tensor<32x8xf32>
  %c, %y = lm.stage "k" {
    %l = lm.linear %e, %w : tensor<1x1x8xf32>, tensor<32x8xf32> -> tensor<1x1x32xf32>
    %h = lm.reshape %l : tensor<1x1x32xf32> -> tensor<1x1x8x4xf32>
    %p = lm.transpose %h {permutation = array<i64: 0, 2, 1, 3>} : tensor<1x1x8x4xf32> -> tensor<1x8x1x4xf32>
    %n = kv.append %k, %p : tensor<1x8x1x4xf32> -> !kv.cache<1x8x?x4xbf16, axis = 2, policy = "static">
    %m = lm.neg %e : tensor<1x1x8xf32>
    lm.yield %n, %m : !kv.cache<1x8x?x4xbf16, axis = 2, policy = "static">, tensor<1x1x8xf32>
  } : !kv.cache<1x8x?x4xbf16, axis = 2, policy = "static">, tensor<1x1x8xf32>
  func.return %y, %c : tensor<1x1x8xf32>, !kv.cache<1x8x?x4xbf16, axis = 2, policy = "static">
}
// -----
// Attention under a window: tiles over kv heads and the chunks from the first that is in sight;
// the join reads those chunks alone.
// CHECK-LABEL: mk.stage "attention" prologue {
// CHECK:       mk.part[2, (P + 2) floordiv 16 - max(0, P - 4) floordiv 16 + 1] {
// CHECK:         mk.attention {{.*}} at[t0, max(0, P - 4) floordiv 16 + t1] {
// CHECK-SAME:    window = 5 : i64
// CHECK:       mk.stage "join" prologue {
// CHECK-NEXT:    mk.combine {{.*}} over[max(0, P - 4) floordiv 16, (P + 2) floordiv 16 + 1]
func.func @step(%t: tensor<1x3xi64>, %pos: index, %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">) -> tensor<1x3x4x8xf32> {
  %q = lm.weight "row" : tensor<1x4x3x8xf32>
  %o, %m, %l = lm.stage "attention" {
    %a, %b, %c = lm.attention_split %q, %k, %k at %pos {scale = 0.5 : f64, chunk = 16 : i64, window = 5 : i64} : tensor<1x4x3x8xf32>, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static"> -> tensor<4x2x3x2x8xf32>, tensor<4x2x3x2xf32>, tensor<4x2x3x2xf32>
    lm.yield %a, %b, %c : tensor<4x2x3x2x8xf32>, tensor<4x2x3x2xf32>, tensor<4x2x3x2xf32>
  } : tensor<4x2x3x2x8xf32>, tensor<4x2x3x2xf32>, tensor<4x2x3x2xf32>
  %y = lm.stage "join" {
    %j = lm.attention_combine %o, %m, %l at %pos {chunk = 16 : i64} : tensor<4x2x3x2x8xf32>, tensor<4x2x3x2xf32>, tensor<4x2x3x2xf32> -> tensor<1x3x4x8xf32>
    lm.yield %j : tensor<1x3x4x8xf32>
  } : tensor<1x3x4x8xf32>
  func.return %y : tensor<1x3x4x8xf32>
}
// -----
// A greedy head: each tile leaves its best, one more stage picks among them.
// CHECK:       mk.buffer "output" "next" : !mk.buffer<1x1xi64>
// CHECK:       %maxima = mk.buffer "activation" "argmax.maxima" : !mk.buffer<1x3xf32>
// CHECK:       %positions = mk.buffer "activation" "argmax.positions" : !mk.buffer<1x3xf32>
// CHECK-LABEL: mk.stage "head" prologue {
// CHECK:       mk.part[2] {
// CHECK:         [[t:%.+]], [[i:%.+]] = mk.argmax {{.*}} from[t0 * 16]
// CHECK-NEXT:    mk.store [[t]], %maxima[0, t0]
// CHECK-NEXT:    mk.store [[i]], %positions[0, t0]
// CHECK:       mk.part[1] {
// CHECK:         mk.argmax {{.*}} from[t0 * 3 + 32]
// CHECK-NEXT:    mk.store {{.*}}, %maxima[0, t0 + 2]
// CHECK:       mk.stage "head.argmax" prologue {
// CHECK:         mk.pick {{.*}} : tensor<1x3xf32>, tensor<1x3xf32> -> tensor<1x1xf32>
// CHECK:         mk.store {{.*}}, %next[0, 0] : tensor<1x1xf32> -> !mk.buffer<1x1xi64>
func.func @step(%t: tensor<1x1xi64>, %pos: index) -> (tensor<1x1x35xf32>, tensor<1x1xi64>) {
  %e = lm.weight "row" : tensor<1x1x8xf32>
  %w = lm.weight "head.weight" : tensor<35x8xf32>
  %y, %n = lm.stage "head" {
    %l = lm.linear %e, %w : tensor<1x1x8xf32>, tensor<35x8xf32> -> tensor<1x1x35xf32>
    %a = lm.argmax %l : tensor<1x1x35xf32> -> tensor<1x1xi64>
    lm.yield %l, %a : tensor<1x1x35xf32>, tensor<1x1xi64>
  } : tensor<1x1x35xf32>, tensor<1x1xi64>
  func.return %y, %n : tensor<1x1x35xf32>, tensor<1x1xi64>
}
// -----
// A weight that two stages read is one buffer, in its storage dtype; rows of a table are read at P.
// CHECK:       mk.buffer "weight" "table" : !mk.buffer<64x8xbf16>
// CHECK-NOT:   mk.buffer "weight" "table"
// CHECK:       mk.load %table[P, 0] : !mk.buffer<64x8xbf16> -> tensor<1x8xf32>
func.func @step(%t: tensor<1x1xi64>, %pos: index) -> tensor<1x1x8xf32> {
  %w = lm.weight "table" : tensor<64x8xbf16>
  %v = lm.weight "table" : tensor<64x8xbf16>
  %f = lm.cast %w : tensor<64x8xbf16> -> tensor<64x8xf32>
  %g = lm.cast %v : tensor<64x8xbf16> -> tensor<64x8xf32>
  %r = lm.rows %f, %pos : tensor<64x8xf32> -> tensor<1x1x8xf32>
  %s = lm.rows %g, %pos : tensor<64x8xf32> -> tensor<1x1x8xf32>
  %y = lm.stage "a" {
    %n = lm.add %r, %s : tensor<1x1x8xf32>, tensor<1x1x8xf32> -> tensor<1x1x8xf32>
    lm.yield %n : tensor<1x1x8xf32>
  } : tensor<1x1x8xf32>
  func.return %y : tensor<1x1x8xf32>
}
