// RUN: amk-opt %s -p 'place-kv-append{at=attention}' | filecheck %s
// RUN: amk-opt %s -p 'place-kv-append{at=attention},lower-lm-to-mk{max-seq=64}' | filecheck %s --check-prefix=MK
// RUN: amk-opt %s -p 'place-kv-append{at=attention}' --remarks 2>&1 | filecheck %s --check-prefix=SAYS
// RUN: amk-opt %s -p 'place-kv-append' --pass-statistics 2>&1 | filecheck %s --check-prefix=COUNT

// SAYS: kv.append: remark: place-kv-append: in the attention
// SAYS-SAME: the tile of a kv head whose chunk holds rows [P, P + 3) of 'k' writes them before it reads them
// COUNT: place-kv-append: 1 epilogue

// CHECK:       lm.stage "kv"
// CHECK:       [[o:%.+]], {{%.+}}, {{%.+}}, [[next:%.+]] = lm.stage "attend" {
// CHECK-NEXT:    [[a:%.+]] = kv.append %k, {{%.+}}
// CHECK-NEXT:    lm.attention_split %x, [[a]], [[a]]
// CHECK:         lm.yield {{.*}}, [[a]]
// CHECK:       func.return [[o]], {{.*}}, [[next]]

// One part for the chunks before that of P, one where the rows lie in it, one where they reach into
// the next; only the last two store rows of the cache.
// MK:      mk.stage "attend"
// MK:      mk.part[2, P floordiv 16] {
// MK-NOT:    mk.store {{.*}} %k[
// MK:        mk.attention {{.*}} at[t0, t1]
// MK:      mk.part[2, {{.*}}] {
// MK:        mk.store {{.*}} %k[0, t0, P, 0]
// MK:        mk.attention {{.*}} at[t0, P floordiv 16]
// MK-NOT:    mk.attention
// MK:      mk.part[2, {{.*}}] {
// MK:        mk.store {{.*}} %k[0, t0, P, 0]
// MK:        mk.attention {{.*}} at[t0, P floordiv 16]
// MK:        mk.attention {{.*}} at[t0, P floordiv 16 + 1]

!cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
func.func @step(%t: tensor<1x3xi64>, %pos: index, %k: !cache)
    -> (tensor<4x2x3x1x4xf32>, tensor<4x2x3x1xf32>, tensor<4x2x3x1xf32>, !cache) {
  %w = lm.weight "embed.weight" : tensor<8x8xf32>
  %x, %y = lm.stage "kv" {
    %e = lm.embedding %w, %t : tensor<8x8xf32>, tensor<1x3xi64> -> tensor<1x3x8xf32>
    %r = lm.reshape %e : tensor<1x3x8xf32> -> tensor<1x3x2x4xf32>
    %h = lm.transpose %r {permutation = array<i64: 0, 2, 1, 3>} : tensor<1x3x2x4xf32> -> tensor<1x2x3x4xf32>
    %n = lm.neg %h : tensor<1x2x3x4xf32>
    lm.yield %h, %n : tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>
  } : tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>
  %next = kv.append %k, %y : tensor<1x2x3x4xf32> -> !cache
  %p, %m, %s = lm.stage "attend" {
    %p, %m, %s = lm.attention_split %x, %next, %next at %pos {scale = 0.5 : f64, chunk = 16 : i64}
      : tensor<1x2x3x4xf32>, !cache, !cache
      -> tensor<4x2x3x1x4xf32>, tensor<4x2x3x1xf32>, tensor<4x2x3x1xf32>
    lm.yield %p, %m, %s : tensor<4x2x3x1x4xf32>, tensor<4x2x3x1xf32>, tensor<4x2x3x1xf32>
  } : tensor<4x2x3x1x4xf32>, tensor<4x2x3x1xf32>, tensor<4x2x3x1xf32>
  func.return %p, %m, %s, %next : tensor<4x2x3x1x4xf32>, tensor<4x2x3x1xf32>, tensor<4x2x3x1xf32>, !cache
}
