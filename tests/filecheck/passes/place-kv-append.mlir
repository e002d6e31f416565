// RUN: amk-opt %s -p place-kv-append | filecheck %s
// RUN: amk-opt %s -p 'place-kv-append{at=epilogue}' | filecheck %s
// RUN: amk-opt %s -p 'place-kv-append{at=stage}' | filecheck %s --check-prefix=STAGE
// RUN: not amk-opt %s -p 'place-kv-append{at=best}' 2>&1 | filecheck %s --check-prefix=CHOICE

// CHOICE: place-kv-append: at 'best'; known: auto, epilogue, attention, stage

// The rows of %k go into the cache alone; those of %v are read again, so they are kept as well.
// CHECK:       [[k:%.+]], [[v:%.+]], [[c:%.+]] = lm.stage "kv" {
// CHECK-NEXT:    [[a:%.+]] = lm.neg %x
// CHECK-NEXT:    [[b:%.+]] = lm.abs %x
// CHECK-NEXT:    [[ka:%.+]] = kv.append %kc, [[a]]
// CHECK-NEXT:    [[vb:%.+]] = kv.append %vc, [[b]]
// CHECK-NEXT:    lm.yield [[ka]], [[b]], [[vb]]
// CHECK:       lm.stage "use" {
// CHECK-NEXT:    lm.exp [[v]]
// CHECK:       func.return {{.*}}, [[k]], [[c]]

// STAGE:       [[k:%.+]], [[v:%.+]] = lm.stage "kv" {
// STAGE:       lm.stage "kv.append" {
// STAGE-NEXT:    kv.append %kc, [[k]]
// STAGE:       lm.stage "kv.append" {
// STAGE-NEXT:    kv.append %vc, [[v]]
func.func @step(%x: tensor<1x2x1x4xf32>, %pos: index, %kc: !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, %vc: !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">) -> (tensor<1x2x1x4xf32>, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">) {
  %k, %v = lm.stage "kv" {
    %a = lm.neg %x : tensor<1x2x1x4xf32>
    %b = lm.abs %x : tensor<1x2x1x4xf32>
    lm.yield %a, %b : tensor<1x2x1x4xf32>, tensor<1x2x1x4xf32>
  } : tensor<1x2x1x4xf32>, tensor<1x2x1x4xf32>
  %k1 = kv.append %kc, %k : tensor<1x2x1x4xf32> -> !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
  %v1 = kv.append %vc, %v : tensor<1x2x1x4xf32> -> !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
  %y = lm.stage "use" {
    %e = lm.exp %v : tensor<1x2x1x4xf32>
    lm.yield %e : tensor<1x2x1x4xf32>
  } : tensor<1x2x1x4xf32>
  func.return %y, %k1, %v1 : tensor<1x2x1x4xf32>, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">, !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
}
