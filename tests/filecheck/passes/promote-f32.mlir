// RUN: amk-opt %s -p promote-f32 | filecheck %s

// CHECK: func.func @step(%tokens: tensor<1x1xi64>, %pos: index, %k: !kv.cache<1x1x?x4xbf16, axis = 2, policy = "static">)
// CHECK-SAME: -> (tensor<1x1x4xf32>, !kv.cache<1x1x?x4xbf16, axis = 2, policy = "static">)
func.func @step(%tokens: tensor<1x1xi64>, %pos: index, %k: !kv.cache<1x1x?x4xbf16, axis = 2, policy = "static">) -> (tensor<1x1x4xbf16>, !kv.cache<1x1x?x4xbf16, axis = 2, policy = "static">) {
  // CHECK-NEXT: %e = lm.weight "embed" : tensor<9x4xbf16>
  // CHECK-NEXT: [[e:%.+]] = lm.cast %e : tensor<9x4xbf16> -> tensor<9x4xf32>
  // CHECK-NEXT: %x = lm.embedding [[e]], %tokens : tensor<9x4xf32>, tensor<1x1xi64> -> tensor<1x1x4xf32>
  %e = lm.weight "embed" : tensor<9x4xbf16>
  %x = lm.embedding %e, %tokens : tensor<9x4xbf16>, tensor<1x1xi64> -> tensor<1x1x4xbf16>
  // A weight in f32 needs no cast, a constant becomes f32.
  // CHECK-NEXT: %n = lm.weight "norm" : tensor<4xf32>
  // CHECK-NEXT: %c = lm.constant dense<5.000000e-01> : tensor<4xf32>
  // CHECK-NEXT: %a = lm.mul %x, %n : tensor<1x1x4xf32>, tensor<4xf32> -> tensor<1x1x4xf32>
  // CHECK-NEXT: %d = lm.mul %a, %c : tensor<1x1x4xf32>, tensor<4xf32> -> tensor<1x1x4xf32>
  %n = lm.weight "norm" : tensor<4xf32>
  %c = lm.constant dense<0.5> : tensor<4xbf16>
  %f = lm.cast %x : tensor<1x1x4xbf16> -> tensor<1x1x4xf32>
  %a = lm.mul %f, %n : tensor<1x1x4xf32>, tensor<4xf32> -> tensor<1x1x4xf32>
  %b = lm.cast %a : tensor<1x1x4xf32> -> tensor<1x1x4xbf16>
  %d = lm.mul %b, %c : tensor<1x1x4xbf16>, tensor<4xbf16> -> tensor<1x1x4xbf16>
  // Integers stay; a cast from them goes to f32.
  // CHECK-NEXT: %p = lm.positions %pos : tensor<1x1xi64>
  // CHECK-NEXT: %g = lm.cast %p : tensor<1x1xi64> -> tensor<1x1xf32>
  %p = lm.positions %pos : tensor<1x1xi64>
  %g = lm.cast %p : tensor<1x1xi64> -> tensor<1x1xbf16>
  %h = lm.add %d, %g : tensor<1x1x4xbf16>, tensor<1x1xbf16> -> tensor<1x1x4xbf16>
  // An append rounds to the storage dtype of its cache.
  // CHECK: kv.append %k, %r : tensor<1x1x1x4xf32> -> !kv.cache<1x1x?x4xbf16, axis = 2, policy = "static">
  %r = lm.reshape %h : tensor<1x1x4xbf16> -> tensor<1x1x1x4xbf16>
  %k1 = kv.append %k, %r : tensor<1x1x1x4xbf16> -> !kv.cache<1x1x?x4xbf16, axis = 2, policy = "static">
  func.return %h, %k1 : tensor<1x1x4xbf16>, !kv.cache<1x1x?x4xbf16, axis = 2, policy = "static">
}
