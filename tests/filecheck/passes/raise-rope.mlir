// RUN: amk-opt %s -p raise | filecheck %s

// CHECK-LABEL: @rotate_half
func.func @rotate_half(%x: tensor<1x2x3x4xf32>, %cos: tensor<1x3x4xf32>, %sin: tensor<1x3x4xf32>) -> tensor<1x2x3x4xf32> {
  // CHECK-NEXT: %y = lm.rope %x, %cos, %sin : tensor<1x2x3x4xf32>, tensor<1x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x2x3x4xf32>
  // CHECK-NEXT: func.return %y
  %a = lm.mul %cos, %x : tensor<1x3x4xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x3x4xf32>
  %l = lm.slice %x {dim = 3 : i64, start = 0 : i64, end = 2 : i64, step = 1 : i64} : tensor<1x2x3x4xf32> -> tensor<1x2x3x2xf32>
  %h = lm.slice %x {dim = 3 : i64, start = 2 : i64, end = 4 : i64, step = 1 : i64} : tensor<1x2x3x4xf32> -> tensor<1x2x3x2xf32>
  %n = lm.neg %h : tensor<1x2x3x2xf32>
  %r = lm.concat %n, %l {dim = 3 : i64} : tensor<1x2x3x2xf32>, tensor<1x2x3x2xf32> -> tensor<1x2x3x4xf32>
  %b = lm.mul %r, %sin : tensor<1x2x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x2x3x4xf32>
  %y = lm.add %b, %a : tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x3x4xf32>
  func.return %y : tensor<1x2x3x4xf32>
}

// On a part of each head: the slices and the concat stay around it.
// CHECK-LABEL: @partial
func.func @partial(%q: tensor<1x2x3x6xf32>, %cos: tensor<1x3x4xf32>, %sin: tensor<1x3x4xf32>) -> tensor<1x2x3x6xf32> {
  // CHECK-NEXT: %x = lm.slice %q
  // CHECK-NEXT: %p = lm.slice %q
  // CHECK-NEXT: %y = lm.rope %x, %cos, %sin
  // CHECK-NEXT: %z = lm.concat %y, %p
  %x = lm.slice %q {dim = 3 : i64, start = 0 : i64, end = 4 : i64, step = 1 : i64} : tensor<1x2x3x6xf32> -> tensor<1x2x3x4xf32>
  %p = lm.slice %q {dim = 3 : i64, start = 4 : i64, end = 6 : i64, step = 1 : i64} : tensor<1x2x3x6xf32> -> tensor<1x2x3x2xf32>
  %a = lm.mul %x, %cos : tensor<1x2x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x2x3x4xf32>
  %l = lm.slice %x {dim = 3 : i64, start = 0 : i64, end = 2 : i64, step = 1 : i64} : tensor<1x2x3x4xf32> -> tensor<1x2x3x2xf32>
  %h = lm.slice %x {dim = 3 : i64, start = 2 : i64, end = 4 : i64, step = 1 : i64} : tensor<1x2x3x4xf32> -> tensor<1x2x3x2xf32>
  %n = lm.neg %h : tensor<1x2x3x2xf32>
  %r = lm.concat %n, %l {dim = 3 : i64} : tensor<1x2x3x2xf32>, tensor<1x2x3x2xf32> -> tensor<1x2x3x4xf32>
  %b = lm.mul %r, %sin : tensor<1x2x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x2x3x4xf32>
  %y = lm.add %a, %b : tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x3x4xf32>
  %z = lm.concat %y, %p {dim = 3 : i64} : tensor<1x2x3x4xf32>, tensor<1x2x3x2xf32> -> tensor<1x2x3x6xf32>
  func.return %z : tensor<1x2x3x6xf32>
}

// Written on halves, with tables half as wide.
// CHECK-LABEL: @halves
func.func @halves(%x: tensor<1x2x3x4xf32>, %cos: tensor<1x3x2xf32>, %sin: tensor<1x3x2xf32>) -> tensor<1x2x3x4xf32> {
  // CHECK-NEXT: [[c:%.+]] = lm.concat %cos, %cos {dim = 2 : i64}
  // CHECK-NEXT: [[s:%.+]] = lm.concat %sin, %sin {dim = 2 : i64}
  // CHECK-NEXT: %y = lm.rope %x, [[c]], [[s]]
  // CHECK-NEXT: func.return %y
  %l = lm.slice %x {dim = 3 : i64, start = 0 : i64, end = 2 : i64, step = 1 : i64} : tensor<1x2x3x4xf32> -> tensor<1x2x3x2xf32>
  %h = lm.slice %x {dim = 3 : i64, start = 2 : i64, end = 4 : i64, step = 1 : i64} : tensor<1x2x3x4xf32> -> tensor<1x2x3x2xf32>
  %lc = lm.mul %l, %cos : tensor<1x2x3x2xf32>, tensor<1x3x2xf32> -> tensor<1x2x3x2xf32>
  %hs = lm.mul %h, %sin : tensor<1x2x3x2xf32>, tensor<1x3x2xf32> -> tensor<1x2x3x2xf32>
  %a = lm.sub %lc, %hs : tensor<1x2x3x2xf32>, tensor<1x2x3x2xf32> -> tensor<1x2x3x2xf32>
  %hc = lm.mul %h, %cos : tensor<1x2x3x2xf32>, tensor<1x3x2xf32> -> tensor<1x2x3x2xf32>
  %ls = lm.mul %l, %sin : tensor<1x2x3x2xf32>, tensor<1x3x2xf32> -> tensor<1x2x3x2xf32>
  %b = lm.add %hc, %ls : tensor<1x2x3x2xf32>, tensor<1x2x3x2xf32> -> tensor<1x2x3x2xf32>
  %y = lm.concat %a, %b {dim = 3 : i64} : tensor<1x2x3x2xf32>, tensor<1x2x3x2xf32> -> tensor<1x2x3x4xf32>
  func.return %y : tensor<1x2x3x4xf32>
}

// The other half negated turns the other way.
// CHECK-LABEL: @other_way
func.func @other_way(%x: tensor<1x2x3x4xf32>, %cos: tensor<1x3x4xf32>, %sin: tensor<1x3x4xf32>) -> tensor<1x2x3x4xf32> {
  // CHECK-NOT: lm.rope
  %a = lm.mul %x, %cos : tensor<1x2x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x2x3x4xf32>
  %l = lm.slice %x {dim = 3 : i64, start = 0 : i64, end = 2 : i64, step = 1 : i64} : tensor<1x2x3x4xf32> -> tensor<1x2x3x2xf32>
  %h = lm.slice %x {dim = 3 : i64, start = 2 : i64, end = 4 : i64, step = 1 : i64} : tensor<1x2x3x4xf32> -> tensor<1x2x3x2xf32>
  %n = lm.neg %l : tensor<1x2x3x2xf32>
  %r = lm.concat %h, %n {dim = 3 : i64} : tensor<1x2x3x2xf32>, tensor<1x2x3x2xf32> -> tensor<1x2x3x4xf32>
  %b = lm.mul %r, %sin : tensor<1x2x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x2x3x4xf32>
  %y = lm.add %a, %b : tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x3x4xf32>
  func.return %y : tensor<1x2x3x4xf32>
}
