// RUN: amk-opt %s -p 'kv-policy{max-seq=1024 tokens=16}' | filecheck %s
// RUN: amk-opt %s -p 'split-kv{max-seq=1024},kv-policy{max-seq=1024},fuse,place-kv-append,lower-lm-to-mk{max-seq=1024},legal-mk,plan-buffers,schedule,verify-mk' | filecheck %s --check-prefix=MK
// RUN: not amk-opt %s -p 'split-kv{max-seq=1024},fuse,place-kv-append{at=attention}' 2>&1 | filecheck %s --check-prefix=PLACE

// 4 rows that stay, 24 − 1 + 16 others: 43, in multiples of 16.
// CHECK: %k: !kv.cache<1x1x?x8xf32, axis = 2, policy = "ring", rows = 48, window = 24, sinks = 4>

// The rows that stay are a partial of their own, which lies before that of the first visible chunk.
// MK: mk.buffer "cache" "k" {policy = "ring", rows = 48 : i64, window = 24 : i64, sinks = 4 : i64}

// MK: mk.attention {{.*}} at[t0, 0] {{.*}}high = 4 : i64
// MK: mk.store {{.*}}[max(0, P - 23) floordiv 256, t0, 0, 0, 0]
// MK: mk.part[1, {{.*}}] {
// MK: mk.attention {{.*}} {{.*}}window = 24 : i64{{.*}}low = 4 : i64
// MK: mk.combine

// PLACE: at=attention at kv.append: other tiles of it read the first rows, which may be new ones; use at=auto
!cache = !kv.cache<1x1x?x8xf32, axis = 2, policy = "static">
func.func @step(%t: tensor<1x1xi64>, %pos: index, %k: !cache) -> (tensor<1x1x2x8xf32>, !cache) {
  %w = lm.weight "embed.weight" : tensor<16x16xf32>
  %wk = lm.weight "k_proj.weight" : tensor<8x16xf32>
  %e = lm.embedding %w, %t : tensor<16x16xf32>, tensor<1x1xi64> -> tensor<1x1x16xf32>
  %q = lm.reshape %e : tensor<1x1x16xf32> -> tensor<1x2x1x8xf32>
  %p = lm.linear %e, %wk : tensor<1x1x16xf32>, tensor<8x16xf32> -> tensor<1x1x8xf32>
  %x = lm.reshape %p : tensor<1x1x8xf32> -> tensor<1x1x1x8xf32>
  %n = kv.append %k, %x : tensor<1x1x1x8xf32> -> !cache
  %o = lm.attention %q, %n, %n at %pos {scale = 1.0 : f64, window = 24 : i64, first_rows = 4 : i64}
    : tensor<1x2x1x8xf32>, !cache, !cache -> tensor<1x1x2x8xf32>
  %y = lm.neg %o : tensor<1x1x2x8xf32>
  func.return %y, %n : tensor<1x1x2x8xf32>, !cache
}
