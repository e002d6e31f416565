// RUN: amk-opt %s -p split-init | filecheck %s
// RUN: amk-opt %s -p split-init,split-init | filecheck %s

// CHECK:      func.func @init() -> (tensor<4xf32>, tensor<2x4xbf16>, tensor<4x4xbf16>, tensor<4xf32>, tensor<4xf32>)
// CHECK-SAME: amk.names = ["a.weight+1", "m.weight[0:2]", "concat(m.weight,m.weight[2:4])[0:4]", "(a.weight*b.weight)", "constant"]
// CHECK:      func.return
// CHECK:      func.func @step
func.func @step(%x: tensor<1x1x4xf32>, %pos: index) -> (tensor<1x1x4xf32>, tensor<1x1x2xf32>, tensor<1x1x4xf32>, tensor<1x1x4xf32>) {
  // A weight and a cast of one stay; a constant becomes a result of @init.
  // CHECK: %k = lm.weight "@init/constant" : tensor<4xf32>
  // CHECK: %m = lm.weight "m.weight" : tensor<4x4xbf16>
  // CHECK: %mf = lm.cast %m : tensor<4x4xbf16> -> tensor<4x4xf32>
  %a = lm.weight "a.weight" : tensor<4xf32>
  %b = lm.weight "b.weight" : tensor<4xf32>
  %k = lm.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %m = lm.weight "m.weight" : tensor<4x4xbf16>
  %mf = lm.cast %m : tensor<4x4xbf16> -> tensor<4x4xf32>

  // Two layers with one computation share its result.
  // CHECK: %a1 = lm.weight "@init/a.weight+1" : tensor<4xf32>
  // CHECK-NEXT: %y = lm.rms_norm %x weight %a1
  // CHECK-NEXT: %z = lm.rms_norm %y weight %a1
  %a1 = lm.add_scalar %a, 1.0 : f64 : tensor<4xf32> -> tensor<4xf32>
  %y = lm.rms_norm %x weight %a1 : tensor<4xf32> {eps = 0.5 : f64} : tensor<1x1x4xf32>
  %a2 = lm.add_scalar %a, 1.0 : f64 : tensor<4xf32> -> tensor<4xf32>
  %z = lm.rms_norm %y weight %a2 : tensor<4xf32> {eps = 0.5 : f64} : tensor<1x1x4xf32>
  %zk = lm.mul %z, %k : tensor<1x1x4xf32>, tensor<4xf32> -> tensor<1x1x4xf32>
  %zm = lm.linear %zk, %mf : tensor<1x1x4xf32>, tensor<4x4xf32> -> tensor<1x1x4xf32>

  // A pure layout keeps the storage dtype.
  // CHECK: [[s:%.+]] = lm.weight "@init/m.weight[0:2]" : tensor<2x4xbf16>
  // CHECK-NEXT: %s = lm.cast [[s]] : tensor<2x4xbf16> -> tensor<2x4xf32>
  // CHECK-NEXT: lm.linear %zm, %s
  %s = lm.slice %mf {dim = 0 : i64, start = 0 : i64, end = 2 : i64, step = 1 : i64} : tensor<4x4xf32> -> tensor<2x4xf32>
  %l = lm.linear %zm, %s : tensor<1x1x4xf32>, tensor<2x4xf32> -> tensor<1x1x2xf32>
  // CHECK: lm.weight {{.*}} : tensor<4x4xbf16>
  // CHECK-NEXT: lm.cast
  %r = lm.slice %mf {dim = 0 : i64, start = 2 : i64, end = 4 : i64, step = 1 : i64} : tensor<4x4xf32> -> tensor<2x4xf32>
  %c = lm.concat %mf, %r {dim = 0 : i64} : tensor<4x4xf32>, tensor<2x4xf32> -> tensor<6x4xf32>
  %d = lm.slice %c {dim = 0 : i64, start = 0 : i64, end = 4 : i64, step = 1 : i64} : tensor<6x4xf32> -> tensor<4x4xf32>
  %n = lm.linear %zm, %d : tensor<1x1x4xf32>, tensor<4x4xf32> -> tensor<1x1x4xf32>

  // CHECK: lm.weight "@init/(a.weight*b.weight)"
  %ab = lm.mul %a, %b : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  %o = lm.mul %n, %ab : tensor<1x1x4xf32>, tensor<4xf32> -> tensor<1x1x4xf32>
  func.return %zm, %l, %n, %o : tensor<1x1x4xf32>, tensor<1x1x2xf32>, tensor<1x1x4xf32>, tensor<1x1x4xf32>
}
