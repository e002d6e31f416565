// RUN: amk-opt %s -p canonicalize | filecheck %s

// CHECK-LABEL: @conv1d
func.func @conv1d(%x: tensor<1x3x4xf32>) -> tensor<1x3x6xf32> {
  // CHECK-NEXT: %w = lm.weight "fc.weight" : tensor<4x6xf32>
  // CHECK-NEXT: %b = lm.weight "fc.bias" : tensor<6xf32>
  // CHECK-NEXT: [[t:%.+]] = lm.transpose %w {permutation = array<i64: 1, 0>}
  // CHECK-NEXT: [[y:%.+]] = lm.linear %x, [[t]] bias %b : tensor<6xf32> : tensor<1x3x4xf32>, tensor<6x4xf32> -> tensor<1x3x6xf32>
  // CHECK-NEXT: func.return [[y]]
  %w = lm.weight "fc.weight" : tensor<4x6xf32>
  %b = lm.weight "fc.bias" : tensor<6xf32>
  %f = lm.reshape %x : tensor<1x3x4xf32> -> tensor<3x4xf32>
  %a = lm.addmm %b, %f, %w : tensor<6xf32>, tensor<3x4xf32>, tensor<4x6xf32> -> tensor<3x6xf32>
  %y = lm.reshape %a : tensor<3x6xf32> -> tensor<1x3x6xf32>
  func.return %y : tensor<1x3x6xf32>
}

// CHECK-LABEL: @matmul_by_weight
func.func @matmul_by_weight(%x: tensor<1x3x4xf32>, %y: tensor<4x6xf32>) -> (tensor<1x3x6xf32>, tensor<1x3x6xf32>) {
  // CHECK-NEXT: %w = lm.weight "w" : tensor<6x4xf32>
  // CHECK-NEXT: %a = lm.linear %x, %w
  // CHECK-NEXT: %b = lm.matmul %x, %y
  %w = lm.weight "w" : tensor<6x4xf32>
  %t = lm.transpose %w {permutation = array<i64: 1, 0>} : tensor<6x4xf32> -> tensor<4x6xf32>
  %a = lm.matmul %x, %t : tensor<1x3x4xf32>, tensor<4x6xf32> -> tensor<1x3x6xf32>
  %b = lm.matmul %x, %y : tensor<1x3x4xf32>, tensor<4x6xf32> -> tensor<1x3x6xf32>
  func.return %a, %b : tensor<1x3x6xf32>, tensor<1x3x6xf32>
}

// Gate and up in one matrix.
// CHECK-LABEL: @gate_up
func.func @gate_up(%x: tensor<1x3x4xf32>) -> tensor<1x3x6xf32> {
  // CHECK: [[wg:%.+]] = lm.slice %w {dim = 0 : i64, start = 0 : i64, end = 6 : i64, step = 1 : i64}
  // CHECK: [[bg:%.+]] = lm.slice %b {dim = 0 : i64, start = 0 : i64, end = 6 : i64, step = 1 : i64}
  // CHECK: %g = lm.linear %x, [[wg]] bias [[bg]]
  // CHECK: [[wu:%.+]] = lm.slice %w {dim = 0 : i64, start = 6 : i64, end = 12 : i64, step = 1 : i64}
  // CHECK: [[bu:%.+]] = lm.slice %b {dim = 0 : i64, start = 6 : i64, end = 12 : i64, step = 1 : i64}
  // CHECK: %u = lm.linear %x, [[wu]] bias [[bu]]
  %w = lm.weight "gate_up.weight" : tensor<12x4xf32>
  %b = lm.weight "gate_up.bias" : tensor<12xf32>
  %y = lm.linear %x, %w bias %b : tensor<12xf32> : tensor<1x3x4xf32>, tensor<12x4xf32> -> tensor<1x3x12xf32>
  %g = lm.slice %y {dim = 2 : i64, start = 0 : i64, end = 6 : i64, step = 1 : i64} : tensor<1x3x12xf32> -> tensor<1x3x6xf32>
  %u = lm.slice %y {dim = 2 : i64, start = 6 : i64, end = 12 : i64, step = 1 : i64} : tensor<1x3x12xf32> -> tensor<1x3x6xf32>
  %s = lm.silu %g : tensor<1x3x6xf32>
  %m = lm.mul %s, %u : tensor<1x3x6xf32>, tensor<1x3x6xf32> -> tensor<1x3x6xf32>
  func.return %m : tensor<1x3x6xf32>
}

// Query, key and value side by side in every head: 2 heads of 3 × 2.
// CHECK-LABEL: @heads_of_qkv
func.func @heads_of_qkv(%x: tensor<1x3x4xf32>) -> (tensor<1x2x3x2xf32>, tensor<1x2x3x2xf32>) {
  // CHECK:      [[v:%.+]] = lm.reshape %w : tensor<12x4xf32> -> tensor<2x6x4xf32>
  // CHECK-NEXT: [[s:%.+]] = lm.slice [[v]] {dim = 1 : i64, start = 0 : i64, end = 2 : i64, step = 1 : i64} : tensor<2x6x4xf32> -> tensor<2x2x4xf32>
  // CHECK-NEXT: [[r:%.+]] = lm.reshape [[s]] : tensor<2x2x4xf32> -> tensor<4x4xf32>
  // CHECK-NEXT: [[l:%.+]] = lm.linear %x, [[r]] : tensor<1x3x4xf32>, tensor<4x4xf32> -> tensor<1x3x4xf32>
  // CHECK-NEXT: [[h:%.+]] = lm.reshape [[l]] : tensor<1x3x4xf32> -> tensor<1x3x2x2xf32>
  // CHECK-NEXT: %q = lm.transpose [[h]] {permutation = array<i64: 0, 2, 1, 3>} : tensor<1x3x2x2xf32> -> tensor<1x2x3x2xf32>
  // CHECK:      lm.slice [[v]] {dim = 1 : i64, start = 4 : i64, end = 6 : i64, step = 1 : i64}
  // CHECK:      %k = lm.transpose
  %w = lm.weight "qkv.weight" : tensor<12x4xf32>
  %y = lm.linear %x, %w : tensor<1x3x4xf32>, tensor<12x4xf32> -> tensor<1x3x12xf32>
  %h = lm.reshape %y : tensor<1x3x12xf32> -> tensor<1x3x2x6xf32>
  %t = lm.transpose %h {permutation = array<i64: 0, 2, 1, 3>} : tensor<1x3x2x6xf32> -> tensor<1x2x3x6xf32>
  %q = lm.slice %t {dim = 3 : i64, start = 0 : i64, end = 2 : i64, step = 1 : i64} : tensor<1x2x3x6xf32> -> tensor<1x2x3x2xf32>
  %k = lm.slice %t {dim = 3 : i64, start = 4 : i64, end = 6 : i64, step = 1 : i64} : tensor<1x2x3x6xf32> -> tensor<1x2x3x2xf32>
  func.return %q, %k : tensor<1x2x3x2xf32>, tensor<1x2x3x2xf32>
}

// Query, key and value as planes of one view: 3 × 2 heads × 2; a plane is a run of rows.
// CHECK-LABEL: @planes_of_qkv
func.func @planes_of_qkv(%x: tensor<1x3x4xf32>) -> (tensor<1x3x1x2x2xf32>, tensor<1x3x1x2x2xf32>) {
  // CHECK:      [[a:%.+]] = lm.slice %w {dim = 0 : i64, start = 0 : i64, end = 4 : i64, step = 1 : i64}
  // CHECK-NEXT: [[l:%.+]] = lm.linear %x, [[a]] : tensor<1x3x4xf32>, tensor<4x4xf32> -> tensor<1x3x4xf32>
  // CHECK-NEXT: %q = lm.reshape [[l]] : tensor<1x3x4xf32> -> tensor<1x3x1x2x2xf32>
  // CHECK-NEXT: [[c:%.+]] = lm.slice %w {dim = 0 : i64, start = 8 : i64, end = 12 : i64, step = 1 : i64}
  %w = lm.weight "qkv.weight" : tensor<12x4xf32>
  %y = lm.linear %x, %w : tensor<1x3x4xf32>, tensor<12x4xf32> -> tensor<1x3x12xf32>
  %h = lm.reshape %y : tensor<1x3x12xf32> -> tensor<1x3x3x2x2xf32>
  %q = lm.slice %h {dim = 2 : i64, start = 0 : i64, end = 1 : i64, step = 1 : i64} : tensor<1x3x3x2x2xf32> -> tensor<1x3x1x2x2xf32>
  %v = lm.slice %h {dim = 2 : i64, start = 2 : i64, end = 3 : i64, step = 1 : i64} : tensor<1x3x3x2x2xf32> -> tensor<1x3x1x2x2xf32>
  func.return %q, %v : tensor<1x3x1x2x2xf32>, tensor<1x3x1x2x2xf32>
}

// The parts meet again, as those of partial RoPE do: one projection.
// CHECK-LABEL: @parts_of_a_head
func.func @parts_of_a_head(%x: tensor<1x3x4xf32>) -> tensor<1x3x8xf32> {
  // CHECK: lm.linear %x, %w : tensor<1x3x4xf32>, tensor<8x4xf32> -> tensor<1x3x8xf32>
  // CHECK-NOT: lm.linear
  %w = lm.weight "q.weight" : tensor<8x4xf32>
  %y = lm.linear %x, %w : tensor<1x3x4xf32>, tensor<8x4xf32> -> tensor<1x3x8xf32>
  %a = lm.slice %y {dim = 2 : i64, start = 0 : i64, end = 4 : i64, step = 1 : i64} : tensor<1x3x8xf32> -> tensor<1x3x4xf32>
  %b = lm.slice %y {dim = 2 : i64, start = 4 : i64, end = 8 : i64, step = 1 : i64} : tensor<1x3x8xf32> -> tensor<1x3x4xf32>
  %s = lm.sin %a : tensor<1x3x4xf32>
  %c = lm.concat %s, %b {dim = 2 : i64} : tensor<1x3x4xf32>, tensor<1x3x4xf32> -> tensor<1x3x8xf32>
  func.return %c : tensor<1x3x8xf32>
}

// One reader of everything, or a slice of the tokens: one projection.
// CHECK-LABEL: @not_parts
func.func @not_parts(%x: tensor<1x3x4xf32>) -> (tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x1x8xf32>) {
  // CHECK: lm.linear
  // CHECK-NOT: lm.linear
  %w = lm.weight "q.weight" : tensor<8x4xf32>
  %y = lm.linear %x, %w : tensor<1x3x4xf32>, tensor<8x4xf32> -> tensor<1x3x8xf32>
  %a = lm.slice %y {dim = 2 : i64, start = 0 : i64, end = 4 : i64, step = 1 : i64} : tensor<1x3x8xf32> -> tensor<1x3x4xf32>
  %b = lm.slice %y {dim = 1 : i64, start = 2 : i64, end = 3 : i64, step = 1 : i64} : tensor<1x3x8xf32> -> tensor<1x1x8xf32>
  %n = lm.neg %y : tensor<1x3x8xf32>
  func.return %n, %a, %b : tensor<1x3x8xf32>, tensor<1x3x4xf32>, tensor<1x1x8xf32>
}
