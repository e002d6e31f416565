// RUN: amk-opt %s -p fuse --split-input-file | filecheck %s
// RUN: amk-opt %s -p 'fuse{whole-heads=reader}' --split-input-file | filecheck %s --check-prefix=READER

// Q, K and V read one norm, which nothing else needs: one stage, the norm in its prologue.
// CHECK-LABEL: func.func @step(%x: tensor<1x1x8xf32>
// CHECK:       lm.stage "attn.q+k" {
// CHECK-NEXT:    lm.rms_norm %x
// CHECK-NEXT:    lm.linear {{.*}}, %wq
// CHECK-NEXT:    lm.reshape
// CHECK-NEXT:    lm.linear {{.*}}, %wk
// CHECK-NEXT:    lm.yield
// CHECK:       func.return
func.func @step(%x: tensor<1x1x8xf32>, %pos: index) -> (tensor<1x1x2x4xf32>, tensor<1x1x4xf32>) {
  %wq = lm.weight "attn.q.weight" : tensor<8x8xf32>
  %wk = lm.weight "attn.k.weight" : tensor<4x8xf32>
  %n = lm.rms_norm %x {eps = 1.0e-5 : f64} : tensor<1x1x8xf32>
  %q = lm.linear %n, %wq : tensor<1x1x8xf32>, tensor<8x8xf32> -> tensor<1x1x8xf32>
  %h = lm.reshape %q : tensor<1x1x8xf32> -> tensor<1x1x2x4xf32>
  %k = lm.linear %n, %wk : tensor<1x1x8xf32>, tensor<4x8xf32> -> tensor<1x1x4xf32>
  func.return %h, %k : tensor<1x1x2x4xf32>, tensor<1x1x4xf32>
}
// -----
// A row that two stages need is stored by the first; the residual joins the epilogue.
// CHECK-LABEL: func.func @step(%a: tensor<1x1x8xf32>
// CHECK:       [[x:%.+]], [[y:%.+]] = lm.stage "up" {
// CHECK-NEXT:    [[r:%.+]] = lm.add %a, %a
// CHECK-NEXT:    lm.linear [[r]], %wu
// CHECK-NEXT:    lm.yield [[r]]
// CHECK:       lm.stage "down" {
// CHECK-NEXT:    lm.linear [[y]], %wd
// CHECK-NEXT:    lm.add [[x]]
func.func @step(%a: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
  %wu = lm.weight "up.weight" : tensor<12x8xf32>
  %wd = lm.weight "down.weight" : tensor<8x12xf32>
  %x = lm.add %a, %a : tensor<1x1x8xf32>, tensor<1x1x8xf32> -> tensor<1x1x8xf32>
  %u = lm.linear %x, %wu : tensor<1x1x8xf32>, tensor<12x8xf32> -> tensor<1x1x12xf32>
  %d = lm.linear %u, %wd : tensor<1x1x12xf32>, tensor<8x12xf32> -> tensor<1x1x8xf32>
  %y = lm.add %x, %d : tensor<1x1x8xf32>, tensor<1x1x8xf32> -> tensor<1x1x8xf32>
  func.return %y : tensor<1x1x8xf32>
}
// -----
// A norm over all features cannot be cut like a contraction: it starts the next stage.
// CHECK-LABEL: func.func @step(%b: tensor<1x1x8xf32>
// CHECK:       [[l:%.+]] = lm.stage "one" {
// CHECK-NEXT:    lm.linear %b, %w1
// CHECK-NEXT:    lm.yield
// CHECK:       lm.stage "two" {
// CHECK-NEXT:    lm.rms_norm [[l]]
// CHECK-NEXT:    lm.linear
func.func @step(%b: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
  %w1 = lm.weight "one.weight" : tensor<8x8xf32>
  %w2 = lm.weight "two.weight" : tensor<8x8xf32>
  %l = lm.linear %b, %w1 : tensor<1x1x8xf32>, tensor<8x8xf32> -> tensor<1x1x8xf32>
  %n = lm.rms_norm %l {eps = 1.0e-5 : f64} : tensor<1x1x8xf32>
  %y = lm.linear %n, %w2 : tensor<1x1x8xf32>, tensor<8x8xf32> -> tensor<1x1x8xf32>
  func.return %y : tensor<1x1x8xf32>
}
// -----
// A norm a head, on the other hand, is cut by heads.
// CHECK-LABEL: func.func @step(%c: tensor<1x1x8xf32>
// CHECK:       lm.stage "q" {
// CHECK-NEXT:    lm.linear
// CHECK-NEXT:    lm.reshape
// CHECK-NEXT:    lm.rms_norm
// CHECK-NEXT:    lm.yield
func.func @step(%c: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x2x4xf32> {
  %w = lm.weight "q.weight" : tensor<8x8xf32>
  %l = lm.linear %c, %w : tensor<1x1x8xf32>, tensor<8x8xf32> -> tensor<1x1x8xf32>
  %h = lm.reshape %l : tensor<1x1x8xf32> -> tensor<1x1x2x4xf32>
  %n = lm.rms_norm %h {eps = 1.0e-5 : f64} : tensor<1x1x2x4xf32>
  func.return %n : tensor<1x1x2x4xf32>
}
// -----
// Attention and the join of its partials: two stages, the join in the prologue of the second.
// CHECK-LABEL: func.func @step(%q: tensor<1x4x1x8xf32>
// CHECK:       [[o:%.+]], [[m:%.+]], [[l:%.+]] = lm.stage "attention_split" {
// CHECK-NEXT:    lm.attention_split %q
// CHECK:       lm.stage "o" {
// CHECK-NEXT:    lm.attention_combine [[o]], [[m]], [[l]]
// CHECK-NEXT:    lm.reshape
// CHECK-NEXT:    lm.linear
func.func @step(%q: tensor<1x4x1x8xf32>, %pos: index, %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">) -> tensor<1x1x8xf32> {
  %w = lm.weight "o.weight" : tensor<8x32xf32>
  %o, %m, %l = lm.attention_split %q, %k, %k at %pos {scale = 0.5 : f64, chunk = 16 : i64} : tensor<1x4x1x8xf32>, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x8xf32, axis = 2, policy = "static"> -> tensor<2x2x1x2x8xf32>, tensor<2x2x1x2xf32>, tensor<2x2x1x2xf32>
  %j = lm.attention_combine %o, %m, %l at %pos {chunk = 16 : i64} : tensor<2x2x1x2x8xf32>, tensor<2x2x1x2xf32>, tensor<2x2x1x2xf32> -> tensor<1x1x4x8xf32>
  %f = lm.reshape %j : tensor<1x1x4x8xf32> -> tensor<1x1x32xf32>
  %y = lm.linear %f, %w : tensor<1x1x32xf32>, tensor<8x32xf32> -> tensor<1x1x8xf32>
  func.return %y : tensor<1x1x8xf32>
}
// -----
// No contraction at all: the returned row is a stage of its own.
// CHECK-LABEL: func.func @step(%d: tensor<1x1x8xf32>
// CHECK:       [[y:%.+]] = lm.stage "neg" {
// CHECK-NEXT:    lm.neg %d
// CHECK-NEXT:    lm.yield
// CHECK:       func.return [[y]]
func.func @step(%d: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
  %y = lm.neg %d : tensor<1x1x8xf32>
  func.return %y : tensor<1x1x8xf32>
}
// -----
// A table row depends on the position alone and stays outside; @init is left alone.
// CHECK-LABEL: func.func @init
// CHECK-NOT:   lm.stage
// CHECK-LABEL: func.func @step(%e: tensor<1x1x8xf32>
// CHECK-NEXT:  lm.weight "@init/t"
// CHECK-NEXT:  lm.rows
// CHECK-NEXT:  lm.stage "add"
func.func @init() -> tensor<32x8xf32> {
  %w = lm.weight "w" : tensor<32x8xf32>
  %n = lm.neg %w : tensor<32x8xf32>
  func.return %n : tensor<32x8xf32>
}
func.func @step(%e: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
  %t = lm.weight "@init/t" : tensor<32x8xf32>
  %r = lm.rows %t, %pos : tensor<32x8xf32> -> tensor<1x1x8xf32>
  %y = lm.add %e, %r : tensor<1x1x8xf32>, tensor<1x1x8xf32> -> tensor<1x1x8xf32>
  func.return %y : tensor<1x1x8xf32>
}
// -----
// A third contraction of the first's input waits for the second, so it cannot move to the first.
// CHECK-LABEL: func.func @step(%f: tensor<1x1x8xf32>
// CHECK:       [[a:%.+]] = lm.stage "one" {
// CHECK:       [[b:%.+]] = lm.stage "two" {
// CHECK-NEXT:    lm.softmax [[a]]
// CHECK:       lm.stage "three" {
// CHECK-NEXT:    lm.linear %f, %w3
// CHECK-NEXT:    lm.add {{.*}}, [[b]]
func.func @step(%f: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
  %w1 = lm.weight "one.weight" : tensor<8x8xf32>
  %w2 = lm.weight "two.weight" : tensor<8x8xf32>
  %w3 = lm.weight "three.weight" : tensor<8x8xf32>
  %a = lm.linear %f, %w1 : tensor<1x1x8xf32>, tensor<8x8xf32> -> tensor<1x1x8xf32>
  %e = lm.exp %a : tensor<1x1x8xf32>
  %s = lm.softmax %e {dim = 2 : i64} : tensor<1x1x8xf32>
  %b = lm.linear %s, %w2 : tensor<1x1x8xf32>, tensor<8x8xf32> -> tensor<1x1x8xf32>
  %c = lm.linear %f, %w3 : tensor<1x1x8xf32>, tensor<8x8xf32> -> tensor<1x1x8xf32>
  %y = lm.add %c, %b : tensor<1x1x8xf32>, tensor<1x1x8xf32> -> tensor<1x1x8xf32>
  func.return %y : tensor<1x1x8xf32>
}
// -----
// A norm over a head stays in the epilogue, whose tiles then hold whole heads, or goes to its reader.
// CHECK-LABEL: func.func @step(%x: tensor<1x1x8xf32>
// CHECK:       lm.stage "attn.q" {
// CHECK-NEXT:    lm.linear
// CHECK-NEXT:    lm.reshape
// CHECK-NEXT:    lm.rms_norm
// CHECK-NEXT:    lm.rope
// CHECK-NEXT:    lm.yield
// READER-LABEL: lm.stage "attn.q" {
// READER-NEXT:    lm.linear
// READER-NEXT:    [[h:%.+]] = lm.reshape
// READER-NEXT:    lm.yield [[h]]
// READER:       lm.stage "rms_norm" {
// READER-NEXT:    lm.rms_norm
// READER-NEXT:    lm.rope
// READER-NEXT:    lm.yield
func.func @step(%x: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x2x4xf32> {
  %wq = lm.weight "attn.q.weight" : tensor<8x8xf32>
  %c = lm.weight "cos" : tensor<4xf32>
  %q = lm.linear %x, %wq : tensor<1x1x8xf32>, tensor<8x8xf32> -> tensor<1x1x8xf32>
  %h = lm.reshape %q : tensor<1x1x8xf32> -> tensor<1x1x2x4xf32>
  %n = lm.rms_norm %h {eps = 1.0e-5 : f64} : tensor<1x1x2x4xf32>
  %r = lm.rope %n, %c, %c : tensor<1x1x2x4xf32>, tensor<4xf32>, tensor<4xf32> -> tensor<1x1x2x4xf32>
  func.return %r : tensor<1x1x2x4xf32>
}
