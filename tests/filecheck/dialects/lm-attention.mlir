// RUN: amk-opt %s | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

func.func @f(%q: tensor<1x4x3x4xf32>, %k: !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, %v: !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, %s: tensor<4xf32>, %pos: index) {
  %plain = lm.attention %q, %k, %v at %pos {scale = 0.5 : f64} : tensor<1x4x3x4xf32>, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static"> -> tensor<1x3x4x4xf32>
  %all = lm.attention %q, %k, %v at %pos sinks %s : tensor<4xf32> {scale = 0.5 : f64, window = 5 : i64, softcap = 3.0 : f64} : tensor<1x4x3x4xf32>, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static"> -> tensor<1x3x4x4xf32>
  %o, %m, %l = lm.attention_split %q, %k, %v at %pos {scale = 0.5 : f64, window = 5 : i64, chunk = 8 : i64} : tensor<1x4x3x4xf32>, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static"> -> tensor<2x2x3x2x4xf32>, tensor<2x2x3x2xf32>, tensor<2x2x3x2xf32>
  %join = lm.attention_combine %o, %m, %l at %pos sinks %s : tensor<4xf32> {chunk = 8 : i64} : tensor<2x2x3x2x4xf32>, tensor<2x2x3x2xf32>, tensor<2x2x3x2xf32> -> tensor<1x3x4x4xf32>
  func.return
}

// CHECK-LABEL: func.func @f(
// CHECK-NEXT: %plain = lm.attention %q, %k, %v at %pos {scale = 5.000000e-01 : f64} : tensor<1x4x3x4xf32>, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static"> -> tensor<1x3x4x4xf32>
// CHECK-NEXT: %all = lm.attention %q, %k, %v at %pos sinks %s : tensor<4xf32> {scale = 5.000000e-01 : f64, window = 5 : i64, softcap = 3.000000e+00 : f64} : tensor<1x4x3x4xf32>, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static"> -> tensor<1x3x4x4xf32>
// CHECK-NEXT: %o, %m, %l = lm.attention_split %q, %k, %v at %pos {scale = 5.000000e-01 : f64, window = 5 : i64, chunk = 8 : i64} : tensor<1x4x3x4xf32>, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static"> -> tensor<2x2x3x2x4xf32>, tensor<2x2x3x2xf32>, tensor<2x2x3x2xf32>
// CHECK-NEXT: %join = lm.attention_combine %o, %m, %l at %pos sinks %s : tensor<4xf32> {chunk = 8 : i64} : tensor<2x2x3x2x4xf32>, tensor<2x2x3x2xf32>, tensor<2x2x3x2xf32> -> tensor<1x3x4x4xf32>

// GENERIC: %plain = "lm.attention"(%q, %k, %v, %pos) <{scale = 5.000000e-01 : f64}> : (tensor<1x4x3x4xf32>, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, index) -> tensor<1x3x4x4xf32>
// GENERIC-NEXT: %all = "lm.attention"(%s, %q, %k, %v, %pos) <{scale = 5.000000e-01 : f64, window = 5 : i64, softcap = 3.000000e+00 : f64}> : (tensor<4xf32>, tensor<1x4x3x4xf32>, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, index) -> tensor<1x3x4x4xf32>
// GENERIC-NEXT: %o, %m, %l = "lm.attention_split"(%q, %k, %v, %pos) <{scale = 5.000000e-01 : f64, window = 5 : i64, chunk = 8 : i64}> : (tensor<1x4x3x4xf32>, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, index) -> (tensor<2x2x3x2x4xf32>, tensor<2x2x3x2xf32>, tensor<2x2x3x2xf32>)
// GENERIC-NEXT: %join = "lm.attention_combine"(%o, %m, %l, %pos, %s) <{chunk = 8 : i64}> : (tensor<2x2x3x2x4xf32>, tensor<2x2x3x2xf32>, tensor<2x2x3x2xf32>, index, tensor<4xf32>) -> tensor<1x3x4x4xf32>
