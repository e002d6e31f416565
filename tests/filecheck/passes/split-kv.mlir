// RUN: amk-opt %s -p 'split-kv{chunk=16 max-seq=40}' | filecheck %s
// RUN: not amk-opt %s -p 'split-kv{chunk=0 max-seq=40}' 2>&1 | filecheck %s --check-prefix=CHUNK
// RUN: not amk-opt %s -p 'split-kv{max-seq=0}' 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not amk-opt %s -p 'split-kv{max-seq=40},split-init{max-seq=41}' 2>&1 | filecheck %s --check-prefix=TWO

// CHUNK: split-kv: chunk is 0; give a positive number of rows
// NONE: split-kv: max-seq is 0; give a positive number of positions
// TWO: split-init: max-seq is 41, but the module has amk.max_seq = 40

// CHECK: amk.max_seq = 40 : i64
func.func @step(%x: tensor<1x4x3x8xf32>, %pos: index, %k: !kv.cache<1x2x?x8xbf16, axis = 2, policy = "static">, %v: !kv.cache<1x2x?x8xbf16, axis = 2, policy = "static">) -> tensor<1x3x4x8xf32> {
  // CHECK: %s = lm.weight "sinks" : tensor<4xf32>
  // CHECK: [[o:%.+]], [[m:%.+]], [[l:%.+]] = lm.attention_split %q, %k, %v at %pos {scale = 5.000000e-01 : f64, window = 5 : i64, softcap = 2.000000e+00 : f64, chunk = 16 : i64}
  // CHECK-SAME: -> tensor<3x2x3x2x8xf32>, tensor<3x2x3x2xf32>, tensor<3x2x3x2xf32>
  // CHECK-NEXT: %o = lm.attention_combine [[o]], [[m]], [[l]] at %pos sinks %s : tensor<4xf32> {chunk = 16 : i64}
  %s = lm.weight "sinks" : tensor<4xf32>
  %p = lm.positions %pos : tensor<1x3xi64>
  %g = lm.cast %p : tensor<1x3xi64> -> tensor<1x3xf32>
  %u = lm.reshape %g : tensor<1x3xf32> -> tensor<1x1x3x1xf32>
  %c = lm.cos %u : tensor<1x1x3x1xf32>
  %q = lm.mul %x, %c : tensor<1x4x3x8xf32>, tensor<1x1x3x1xf32> -> tensor<1x4x3x8xf32>
  %o = lm.attention %q, %k, %v at %pos sinks %s : tensor<4xf32> {scale = 0.5 : f64, window = 5 : i64, softcap = 2.0 : f64} : tensor<1x4x3x8xf32>, !kv.cache<1x2x?x8xbf16, axis = 2, policy = "static">, !kv.cache<1x2x?x8xbf16, axis = 2, policy = "static"> -> tensor<1x3x4x8xf32>
  func.return %o : tensor<1x3x4x8xf32>
}
