// RUN: amk-opt %s | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

func.func @f(%c: !kv.cache<1x2x?x4xbf16, axis = 2, policy = "doubling">, %d: !kv.cache<1x2x?x4xbf16, axis = 2, policy = "doubling">, %x: tensor<1x2x3x4xf32>, %pos: index) {
  %n = kv.append %c, %x : tensor<1x2x3x4xf32> -> !kv.cache<1x2x?x4xbf16, axis = 2, policy = "doubling">
  %m = kv.append %n, %x : tensor<1x2x3x4xf32> -> !kv.cache<1x2x?x4xbf16, axis = 2, policy = "doubling">
  %len = kv.length %m : !kv.cache<1x2x?x4xbf16, axis = 2, policy = "doubling">
  func.return
}

// CHECK-LABEL: func.func @f(
// CHECK-NEXT: %n = kv.append %c, %x : tensor<1x2x3x4xf32> -> !kv.cache<1x2x?x4xbf16, axis = 2, policy = "doubling">
// CHECK-NEXT: %m = kv.append %n, %x : tensor<1x2x3x4xf32> -> !kv.cache<1x2x?x4xbf16, axis = 2, policy = "doubling">
// CHECK-NEXT: %len = kv.length %m : !kv.cache<1x2x?x4xbf16, axis = 2, policy = "doubling">

// GENERIC: %n = "kv.append"(%c, %x) : (!kv.cache<1x2x?x4xbf16, axis = 2, policy = "doubling">, tensor<1x2x3x4xf32>) -> !kv.cache<1x2x?x4xbf16, axis = 2, policy = "doubling">
// GENERIC-NEXT: %m = "kv.append"(%n, %x) : (!kv.cache<1x2x?x4xbf16, axis = 2, policy = "doubling">, tensor<1x2x3x4xf32>) -> !kv.cache<1x2x?x4xbf16, axis = 2, policy = "doubling">
// GENERIC-NEXT: %len = "kv.length"(%m) : (!kv.cache<1x2x?x4xbf16, axis = 2, policy = "doubling">) -> index
