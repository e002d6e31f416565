// RUN: amk-opt %s -p 'lower-lm-to-mk{tile-bytes=128 workers=8 max-seq=64}' --split-input-file | filecheck %s

// Four elements of a head a tile. A rotation makes element i from i and i + 4: the tile holds two
// columns of each half, and each half of its result is stored for itself. Values keep their order.
// CHECK-LABEL: mk.stage "qv" prologue {
// CHECK:       mk.part[4, 2] {
// CHECK-NEXT:    [[l:%.+]] = mk.matmul {{.*}}, %q_weight[t0 * 8 + t1 * 2, 0]
// CHECK:         [[low:%.+]] = mk.transpose
// CHECK-NEXT:    [[h:%.+]] = mk.matmul {{.*}}, %q_weight[t0 * 8 + t1 * 2 + 4, 0]
// CHECK:         [[high:%.+]] = mk.transpose
// CHECK-NEXT:    [[minus:%.+]] = mk.unary "neg" [[high]]
// CHECK-NEXT:    mk.load %cos[P, t1 * 2]
// CHECK:         mk.binary "mul" [[low]]
// CHECK-NEXT:    mk.binary "mul" [[minus]]
// CHECK-NEXT:    [[y:%.+]] = mk.binary "add"
// CHECK-NEXT:    mk.store [[y]], %logits[0, t0, 0, t1 * 2]
// CHECK-NEXT:    mk.load %cos[P, t1 * 2 + 4]
// CHECK:         mk.binary "mul" [[high]]
// CHECK-NEXT:    mk.binary "mul" [[low]]
// CHECK:         mk.store {{.*}}, %logits[0, t0, 0, t1 * 2 + 4]
// CHECK:       mk.part[2, 2] {
// CHECK-NEXT:    mk.matmul {{.*}}, %v_weight[t0 * 8 + t1 * 4, 0]
// CHECK:         mk.store {{.*}}, %v[0, t0, P, t1 * 4] : tensor<1x1x1x4xf32>
func.func @step(%t: tensor<1x1xi64>, %pos: index, %v: !kv.cache<1x2x?x8xbf16, axis = 2, policy = "static">) -> (tensor<1x4x1x8xf32>, !kv.cache<1x2x?x8xbf16, axis = 2, policy = "static">) {
  %x = lm.weight "row" : tensor<1x1x8xf32>
  %wq = lm.weight "q.weight" : tensor<32x8xf32>
  %wv = lm.weight "v.weight" : tensor<16x8xf32>
  %c = lm.weight "cos" : tensor<64x8xf32>
  %s = lm.weight "sin" : tensor<64x8xf32>
  %cos = lm.rows %c, %pos : tensor<64x8xf32> -> tensor<1x1x8xf32>
  %sin = lm.rows %s, %pos : tensor<64x8xf32> -> tensor<1x1x8xf32>
  %q, %next = lm.stage "qv" {
    %l = lm.linear %x, %wq : tensor<1x1x8xf32>, tensor<32x8xf32> -> tensor<1x1x32xf32>
    %h = lm.reshape %l : tensor<1x1x32xf32> -> tensor<1x1x4x8xf32>
    %p = lm.transpose %h {permutation = array<i64: 0, 2, 1, 3>} : tensor<1x1x4x8xf32> -> tensor<1x4x1x8xf32>
    %r = lm.rope %p, %cos, %sin : tensor<1x4x1x8xf32>, tensor<1x1x8xf32>, tensor<1x1x8xf32> -> tensor<1x4x1x8xf32>
    %m = lm.linear %x, %wv : tensor<1x1x8xf32>, tensor<16x8xf32> -> tensor<1x1x16xf32>
    %n = lm.reshape %m : tensor<1x1x16xf32> -> tensor<1x1x2x8xf32>
    %o = lm.transpose %n {permutation = array<i64: 0, 2, 1, 3>} : tensor<1x1x2x8xf32> -> tensor<1x2x1x8xf32>
    %a = kv.append %v, %o : tensor<1x2x1x8xf32> -> !kv.cache<1x2x?x8xbf16, axis = 2, policy = "static">
    lm.yield %r, %a : tensor<1x4x1x8xf32>, !kv.cache<1x2x?x8xbf16, axis = 2, policy = "static">
  } : tensor<1x4x1x8xf32>, !kv.cache<1x2x?x8xbf16, axis = 2, policy = "static">
  func.return %q, %next : tensor<1x4x1x8xf32>, !kv.cache<1x2x?x8xbf16, axis = 2, policy = "static">
}
// -----
// A norm over a head needs all of it, and so does the scale of a row of i8.
// CHECK-LABEL: mk.stage "k" prologue {
// CHECK:       mk.part[2] {
// CHECK-NEXT:    mk.matmul {{.*}}, %k_weight[t0 * 8, 0]
// CHECK-LABEL: mk.stage "v" prologue {
// CHECK:       mk.part[2] {
// CHECK-NEXT:    mk.matmul {{.*}}, %v_weight[t0 * 8, 0]
func.func @step(%t: tensor<1x1xi64>, %pos: index, %v: !kv.cache<1x2x?x8xi8, axis = 2, policy = "static">) -> (tensor<1x1x2x8xf32>, !kv.cache<1x2x?x8xi8, axis = 2, policy = "static">) {
  %x = lm.weight "row" : tensor<1x1x8xf32>
  %wk = lm.weight "k.weight" : tensor<16x8xf32>
  %wv = lm.weight "v.weight" : tensor<16x8xf32>
  %g = lm.weight "norm" : tensor<8xf32>
  %y = lm.stage "k" {
    %l = lm.linear %x, %wk : tensor<1x1x8xf32>, tensor<16x8xf32> -> tensor<1x1x16xf32>
    %h = lm.reshape %l : tensor<1x1x16xf32> -> tensor<1x1x2x8xf32>
    %n = lm.rms_norm %h weight %g : tensor<8xf32> {eps = 1.0e-5 : f64} : tensor<1x1x2x8xf32>
    lm.yield %n : tensor<1x1x2x8xf32>
  } : tensor<1x1x2x8xf32>
  %next = lm.stage "v" {
    %m = lm.linear %x, %wv : tensor<1x1x8xf32>, tensor<16x8xf32> -> tensor<1x1x16xf32>
    %n = lm.reshape %m : tensor<1x1x16xf32> -> tensor<1x1x2x8xf32>
    %o = lm.transpose %n {permutation = array<i64: 0, 2, 1, 3>} : tensor<1x1x2x8xf32> -> tensor<1x2x1x8xf32>
    %a = kv.append %v, %o : tensor<1x2x1x8xf32> -> !kv.cache<1x2x?x8xi8, axis = 2, policy = "static">
    lm.yield %a : !kv.cache<1x2x?x8xi8, axis = 2, policy = "static">
  } : !kv.cache<1x2x?x8xi8, axis = 2, policy = "static">
  func.return %y, %next : tensor<1x1x2x8xf32>, !kv.cache<1x2x?x8xi8, axis = 2, policy = "static">
}
// -----
// Sizes for eight workers: 35 features in tiles of 3 give no worker more than 6, in tiles of 4 the
// first would have 4 + 3.
// CHECK-LABEL: mk.stage "down" prologue {
// CHECK:       mk.part[11] {
// CHECK-NEXT:    mk.matmul {{.*}}, %down_weight[t0 * 3, 0]
// CHECK:       mk.part[1] {
// CHECK-NEXT:    mk.matmul {{.*}}, %down_weight[t0 * 2 + 33, 0]
func.func @step(%t: tensor<1x1xi64>, %pos: index) -> tensor<1x1x35xf32> {
  %e = lm.weight "row" : tensor<1x1x8xf32>
  %w = lm.weight "down.weight" : tensor<35x8xf32>
  %y = lm.stage "down" {
    %l = lm.linear %e, %w : tensor<1x1x8xf32>, tensor<35x8xf32> -> tensor<1x1x35xf32>
    lm.yield %l : tensor<1x1x35xf32>
  } : tensor<1x1x35xf32>
  func.return %y : tensor<1x1x35xf32>
}
