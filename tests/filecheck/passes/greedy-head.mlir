// RUN: amk-opt %s -p greedy-head | filecheck %s
// RUN: not amk-opt %s -p greedy-head,greedy-head 2>&1 | filecheck %s --check-prefix=TWICE

// The next token stands between the logits and the caches.
// CHECK:      func.func @step({{.*}}) -> (tensor<1x3x97xf32>, tensor<1x3xi64>, !kv.cache
// CHECK:      [[n:%.+]] = lm.argmax %x : tensor<1x3x97xf32> -> tensor<1x3xi64>
// CHECK-NEXT: func.return %x, [[n]], %c
// TWICE: greedy-head: @step returns the next tokens already
func.func @step(%x: tensor<1x3x97xf32>, %pos: index, %c: !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">) -> (tensor<1x3x97xf32>, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">) {
  func.return %x, %c : tensor<1x3x97xf32>, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
}
