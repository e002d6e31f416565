// RUN: amk-opt %s -p place-kv-append | filecheck %s
// RUN: amk-opt %s -p 'place-kv-append{at=epilogue}' | filecheck %s --check-prefix=EPILOGUE

// A stage that makes the new rows for the append alone, and contracts nothing, moves into the
// attention that appends them; in its epilogue it would stay a stage.
// CHECK-LABEL: func.func @step
// CHECK-NOT:   lm.stage "row"
// CHECK:       lm.stage "attend" {
// CHECK-NEXT:    [[n:%.+]] = lm.rms_norm %x
// CHECK-NEXT:    [[a:%.+]] = kv.append %k, [[n]]
// CHECK-NEXT:    lm.attention_split %x, [[a]], [[a]]
// CHECK-NEXT:    lm.yield {{.*}}, [[a]]
// EPILOGUE:      lm.stage "row" {
// EPILOGUE-NEXT:   lm.rms_norm
// EPILOGUE-NEXT:   kv.append
// EPILOGUE:      lm.stage "attend" {
// EPILOGUE-NEXT:   lm.attention_split
func.func @step(%x: tensor<1x1x1x4xf32>, %pos: index, %k: !kv.cache<1x1x?x4xf32, axis = 2, policy = "static">) -> (tensor<4x1x1x1x4xf32>, !kv.cache<1x1x?x4xf32, axis = 2, policy = "static">) {
  %y = lm.stage "row" {
    %n = lm.rms_norm %x {eps = 1.0e-5 : f64} : tensor<1x1x1x4xf32>
    lm.yield %n : tensor<1x1x1x4xf32>
  } : tensor<1x1x1x4xf32>
  %next = kv.append %k, %y : tensor<1x1x1x4xf32> -> !kv.cache<1x1x?x4xf32, axis = 2, policy = "static">
  %o = lm.stage "attend" {
    %p, %m, %s = lm.attention_split %x, %next, %next at %pos {scale = 0.5 : f64, chunk = 16 : i64} : tensor<1x1x1x4xf32>, !kv.cache<1x1x?x4xf32, axis = 2, policy = "static">, !kv.cache<1x1x?x4xf32, axis = 2, policy = "static"> -> tensor<4x1x1x1x4xf32>, tensor<4x1x1x1xf32>, tensor<4x1x1x1xf32>
    lm.yield %p : tensor<4x1x1x1x4xf32>
  } : tensor<4x1x1x1x4xf32>
  func.return %o, %next : tensor<4x1x1x1x4xf32>, !kv.cache<1x1x?x4xf32, axis = 2, policy = "static">
}
