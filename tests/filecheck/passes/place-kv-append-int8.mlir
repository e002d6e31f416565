// RUN: not amk-opt %s -p 'place-kv-append{at=epilogue}' 2>&1 | filecheck %s --check-prefix=EPILOGUE
// RUN: amk-opt %s -p place-kv-append --pass-statistics 2>&1 | filecheck %s --check-prefix=AUTO
// RUN: amk-opt %s -p 'place-kv-append,lower-lm-to-mk{max-seq=64},legal-mk,plan-buffers,schedule,verify-mk' | filecheck %s

// One kv head of 256 elements: tiles of the projection hold a part of it, and a row of i8 has one
// scale. So the attention stage appends.
// EPILOGUE: at=epilogue at kv.append: a tile holds a part of a head, and a row of i8 has one scale for all of it
// AUTO: place-kv-append: 1 attention
// CHECK: mk.stage "attend"
// CHECK: mk.store {{.*}} %k_scale[0, t0, P, 0]
// CHECK: mk.store {{.*}} %k[0, t0, P, 0]
// CHECK: mk.attention
!cache = !kv.cache<1x1x?x256xi8, axis = 2, policy = "doubling">
func.func @step(%t: tensor<1x1xi64>, %pos: index, %k: !cache)
    -> (tensor<1x1x1x256xf32>, !cache) {
  %e = lm.weight "embed.weight" : tensor<8x64xf32>
  %w = lm.weight "v_proj.weight" : tensor<256x64xf32>
  %h, %q = lm.stage "v_proj" {
    %x = lm.embedding %e, %t : tensor<8x64xf32>, tensor<1x1xi64> -> tensor<1x1x64xf32>
    %y = lm.linear %x, %w : tensor<1x1x64xf32>, tensor<256x64xf32> -> tensor<1x1x256xf32>
    %r = lm.reshape %y : tensor<1x1x256xf32> -> tensor<1x1x1x256xf32>
    %n = lm.neg %r : tensor<1x1x1x256xf32>
    lm.yield %r, %n : tensor<1x1x1x256xf32>, tensor<1x1x1x256xf32>
  } : tensor<1x1x1x256xf32>, tensor<1x1x1x256xf32>
  %next = kv.append %k, %h : tensor<1x1x1x256xf32> -> !cache
  %p, %m, %s = lm.stage "attend" {
    %p, %m, %s = lm.attention_split %q, %next, %next at %pos {scale = 0.5 : f64, chunk = 16 : i64}
      : tensor<1x1x1x256xf32>, !cache, !cache
      -> tensor<4x1x1x1x256xf32>, tensor<4x1x1x1xf32>, tensor<4x1x1x1xf32>
    lm.yield %p, %m, %s : tensor<4x1x1x1x256xf32>, tensor<4x1x1x1xf32>, tensor<4x1x1x1xf32>
  } : tensor<4x1x1x1x256xf32>, tensor<4x1x1x1xf32>, tensor<4x1x1x1xf32>
  %o = lm.stage "join" {
    %o = lm.attention_combine %p, %m, %s at %pos {chunk = 16 : i64}
      : tensor<4x1x1x1x256xf32>, tensor<4x1x1x1xf32>, tensor<4x1x1x1xf32> -> tensor<1x1x1x256xf32>
    lm.yield %o : tensor<1x1x1x256xf32>
  } : tensor<1x1x1x256xf32>
  func.return %o, %next : tensor<1x1x1x256xf32>, !cache
}
