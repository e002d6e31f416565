// RUN: amk-opt %s -p kv-window-outputs | filecheck %s
// RUN: amk-opt %s -p kv-window-outputs,kv-window-outputs | filecheck %s
// RUN: amk-opt %s -p kv-window-outputs --remarks 2>&1 | filecheck %s --check-prefix=SAYS

// SAYS: layers.1.attention (kv.pack): remark: kv-window-outputs: rows stay packed: lm.concat reads no strides
// SAYS: kv.pack: remark: kv-window-outputs: rows stay packed: it is an output
// SAYS: kv.pack: remark: kv-window-outputs: rows stay packed: nothing reads it
// SAYS: kv.pack: remark: kv-window-outputs: rows stay packed: a later append would make a view stale

!cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">

// CHECK-LABEL: func.func @all_read_strides(
// CHECK: kv.window %n[P + 1]
func.func @all_read_strides(%x: tensor<1x2x1x4xf32>, %c: !cache) -> (tensor<1x2x?x4xf32>, !cache) {
  %n = kv.append %c, %x : tensor<1x2x1x4xf32> -> !cache
  %rows = kv.pack %n[P + 1] : !cache -> tensor<1x2x?x4xf32>
  %a = lm.neg %rows : tensor<1x2x?x4xf32>
  %b = lm.abs %rows : tensor<1x2x?x4xf32>
  func.return %b, %n : tensor<1x2x?x4xf32>, !cache
}

// CHECK-LABEL: func.func @one_wants_packed(
// CHECK: kv.pack %n[P + 1]
func.func @one_wants_packed(%x: tensor<1x2x1x4xf32>, %c: !cache) -> (tensor<1x2x?x4xf32>, tensor<1x2x?x4xf32>, !cache) {
  %n = kv.append %c, %x : tensor<1x2x1x4xf32> -> !cache
  %rows = kv.pack %n[P + 1] : !cache -> tensor<1x2x?x4xf32> loc("layers.1.attention")
  %a = lm.neg %rows : tensor<1x2x?x4xf32>
  %b = lm.concat %rows, %x {dim = 2 : i64} : tensor<1x2x?x4xf32>, tensor<1x2x1x4xf32> -> tensor<1x2x?x4xf32>
  func.return %a, %b, %n : tensor<1x2x?x4xf32>, tensor<1x2x?x4xf32>, !cache
}

// CHECK-LABEL: func.func @output(
// CHECK: kv.pack %n[P + 1]
func.func @output(%x: tensor<1x2x1x4xf32>, %c: !cache) -> (tensor<1x2x?x4xf32>, !cache) {
  %n = kv.append %c, %x : tensor<1x2x1x4xf32> -> !cache
  %rows = kv.pack %n[P + 1] : !cache -> tensor<1x2x?x4xf32>
  func.return %rows, %n : tensor<1x2x?x4xf32>, !cache
}

// CHECK-LABEL: func.func @no_reader(
// CHECK: kv.pack %n[P + 1]
func.func @no_reader(%x: tensor<1x2x1x4xf32>, %c: !cache) -> !cache {
  %n = kv.append %c, %x : tensor<1x2x1x4xf32> -> !cache
  %rows = kv.pack %n[P + 1] : !cache -> tensor<1x2x?x4xf32>
  func.return %n : !cache
}

// CHECK-LABEL: func.func @appended_later(
// CHECK: kv.pack %c[P]
func.func @appended_later(%x: tensor<1x2x1x4xf32>, %c: !cache) -> (tensor<1x2x?x4xf32>, !cache) {
  %rows = kv.pack %c[P] : !cache -> tensor<1x2x?x4xf32>
  %n = kv.append %c, %x : tensor<1x2x1x4xf32> -> !cache
  %a = lm.neg %rows : tensor<1x2x?x4xf32>
  func.return %a, %n : tensor<1x2x?x4xf32>, !cache
}

// What is a window already stays one.
// CHECK-LABEL: func.func @window(
// CHECK: kv.window %c[P]
func.func @window(%c: !cache) -> tensor<1x2x?x4xf32> {
  %rows = kv.window %c[P] : !cache -> tensor<1x2x?x4xf32>
  %a = lm.neg %rows : tensor<1x2x?x4xf32>
  func.return %a : tensor<1x2x?x4xf32>
}
