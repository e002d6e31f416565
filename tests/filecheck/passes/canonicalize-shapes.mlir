// RUN: amk-opt %s -p canonicalize | filecheck %s

// CHECK-LABEL: @reshapes
func.func @reshapes(%x: tensor<2x4xf32>) -> (tensor<8x1xf32>, tensor<2x4xf32>) {
  // CHECK-NEXT: %b = lm.reshape %x : tensor<2x4xf32> -> tensor<8x1xf32>
  // CHECK-NEXT: func.return %b, %x
  %a = lm.reshape %x : tensor<2x4xf32> -> tensor<8xf32>
  %b = lm.reshape %a : tensor<8xf32> -> tensor<8x1xf32>
  %c = lm.reshape %b : tensor<8x1xf32> -> tensor<2x4xf32>
  func.return %b, %c : tensor<8x1xf32>, tensor<2x4xf32>
}

// Result axis i of the second is axis first[second[i]] of the operand: 1, 2, 0 after 0, 2, 1.
// CHECK-LABEL: @transposes
func.func @transposes(%x: tensor<2x3x4xf32>) -> (tensor<3x2x4xf32>, tensor<2x3x4xf32>) {
  // CHECK-NEXT: %b = lm.transpose %x {permutation = array<i64: 1, 0, 2>} : tensor<2x3x4xf32> -> tensor<3x2x4xf32>
  // CHECK-NEXT: func.return %b, %x
  %a = lm.transpose %x {permutation = array<i64: 1, 2, 0>} : tensor<2x3x4xf32> -> tensor<3x4x2xf32>
  %b = lm.transpose %a {permutation = array<i64: 0, 2, 1>} : tensor<3x4x2xf32> -> tensor<3x2x4xf32>
  %c = lm.transpose %b {permutation = array<i64: 1, 0, 2>} : tensor<3x2x4xf32> -> tensor<2x3x4xf32>
  func.return %b, %c : tensor<3x2x4xf32>, tensor<2x3x4xf32>
}

// CHECK-LABEL: @slices
func.func @slices(%x: tensor<8xf32>) -> (tensor<2xf32>, tensor<8xf32>) {
  // CHECK-NEXT: %b = lm.slice %x {dim = 0 : i64, start = 3 : i64, end = 6 : i64, step = 2 : i64}
  // CHECK-NEXT: func.return %b, %x
  %a = lm.slice %x {dim = 0 : i64, start = 1 : i64, end = 8 : i64, step = 2 : i64} : tensor<8xf32> -> tensor<4xf32>
  %b = lm.slice %a {dim = 0 : i64, start = 1 : i64, end = 3 : i64, step = 1 : i64} : tensor<4xf32> -> tensor<2xf32>
  %c = lm.slice %x {dim = 0 : i64, start = 0 : i64, end = 8 : i64, step = 1 : i64} : tensor<8xf32> -> tensor<8xf32>
  func.return %b, %c : tensor<2xf32>, tensor<8xf32>
}

// A slice that others read stays: RoPE halves one value.
// CHECK-LABEL: @read_twice
func.func @read_twice(%x: tensor<8xf32>) -> (tensor<4xf32>, tensor<2xf32>) {
  // CHECK-NEXT: %a = lm.slice %x
  // CHECK-NEXT: %b = lm.slice %a
  %a = lm.slice %x {dim = 0 : i64, start = 0 : i64, end = 4 : i64, step = 1 : i64} : tensor<8xf32> -> tensor<4xf32>
  %b = lm.slice %a {dim = 0 : i64, start = 0 : i64, end = 2 : i64, step = 1 : i64} : tensor<4xf32> -> tensor<2xf32>
  func.return %a, %b : tensor<4xf32>, tensor<2xf32>
}

// CHECK-LABEL: @slice_of_concat
func.func @slice_of_concat(%x: tensor<2xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<2xf32>, tensor<4xf32>) {
  // CHECK-NEXT: %j = lm.concat %x, %y
  // CHECK-NEXT: %b = lm.slice %y {dim = 0 : i64, start = 1 : i64, end = 3 : i64, step = 1 : i64}
  // CHECK-NEXT: %c = lm.slice %j
  // CHECK-NEXT: func.return %y, %b, %c
  %j = lm.concat %x, %y {dim = 0 : i64} : tensor<2xf32>, tensor<4xf32> -> tensor<6xf32>
  %a = lm.slice %j {dim = 0 : i64, start = 2 : i64, end = 6 : i64, step = 1 : i64} : tensor<6xf32> -> tensor<4xf32>
  %b = lm.slice %j {dim = 0 : i64, start = 3 : i64, end = 5 : i64, step = 1 : i64} : tensor<6xf32> -> tensor<2xf32>
  %c = lm.slice %j {dim = 0 : i64, start = 1 : i64, end = 5 : i64, step = 1 : i64} : tensor<6xf32> -> tensor<4xf32>
  func.return %a, %b, %c : tensor<4xf32>, tensor<2xf32>, tensor<4xf32>
}

// CHECK-LABEL: @concat_of_one
func.func @concat_of_one(%x: tensor<2xf32>) -> tensor<2xf32> {
  // CHECK-NEXT: func.return %x
  %a = lm.concat %x {dim = 0 : i64} : tensor<2xf32> -> tensor<2xf32>
  func.return %a : tensor<2xf32>
}

// A whole rotation leaves nothing of a head to join again.
// CHECK-LABEL: @concat_without_empty
func.func @concat_without_empty(%x: tensor<2xf32>) -> tensor<2xf32> {
  // CHECK-NEXT: %y = lm.neg %x
  // CHECK-NEXT: func.return %y
  %y = lm.neg %x : tensor<2xf32>
  %n = lm.slice %x {dim = 0 : i64, start = 2 : i64, end = 2 : i64, step = 1 : i64} : tensor<2xf32> -> tensor<0xf32>
  %a = lm.concat %y, %n {dim = 0 : i64} : tensor<2xf32>, tensor<0xf32> -> tensor<2xf32>
  func.return %a : tensor<2xf32>
}

// CHECK-LABEL: @casts
func.func @casts(%x: tensor<2xbf16>, %y: tensor<2xf32>) -> (tensor<2xbf16>, tensor<2xf32>) {
  // Widening and back loses nothing; narrowing and back does.
  // CHECK-NEXT: [[n:%.+]] = lm.cast %y : tensor<2xf32> -> tensor<2xbf16>
  // CHECK-NEXT: [[w:%.+]] = lm.cast [[n]] : tensor<2xbf16> -> tensor<2xf32>
  // CHECK-NEXT: func.return %x, [[w]]
  %a = lm.cast %x : tensor<2xbf16> -> tensor<2xf32>
  %b = lm.cast %a : tensor<2xf32> -> tensor<2xbf16>
  %c = lm.cast %y : tensor<2xf32> -> tensor<2xbf16>
  %d = lm.cast %c : tensor<2xbf16> -> tensor<2xf32>
  func.return %b, %d : tensor<2xbf16>, tensor<2xf32>
}

// CHECK-LABEL: @broadcasts
func.func @broadcasts(%x: tensor<2x4xf32>, %y: tensor<4xf32>, %s: tensor<1x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {
  // CHECK-NEXT: %c = lm.add %x, %y : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  // CHECK-NEXT: %d = lm.mul %x, %y : tensor<2x4xf32>, tensor<4xf32> -> tensor<2x4xf32>
  // One expand has to stay to keep the result's shape.
  // CHECK-NEXT: %e = lm.expand %s : tensor<1x4xf32> -> tensor<2x4xf32>
  // CHECK-NEXT: %f = lm.mul %s, %e : tensor<1x4xf32>, tensor<2x4xf32> -> tensor<2x4xf32>
  %a = lm.expand %y : tensor<4xf32> -> tensor<2x4xf32>
  %b = lm.reshape %y : tensor<4xf32> -> tensor<1x4xf32>
  %c = lm.add %x, %a : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<2x4xf32>
  %d = lm.mul %x, %b : tensor<2x4xf32>, tensor<1x4xf32> -> tensor<2x4xf32>
  %e = lm.expand %s : tensor<1x4xf32> -> tensor<2x4xf32>
  %f = lm.mul %e, %e : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<2x4xf32>
  func.return %c, %d, %f : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
}

// CHECK-LABEL: @weight_casts_move_behind
func.func @weight_casts_move_behind() -> tensor<4x2xf32> {
  // CHECK-NEXT: %w = lm.weight "w" : tensor<2x8xbf16>
  // CHECK-NEXT: lm.slice %w {{.*}} : tensor<2x8xbf16> -> tensor<2x4xbf16>
  // CHECK-NEXT: lm.transpose {{.*}} : tensor<2x4xbf16> -> tensor<4x2xbf16>
  // CHECK-NEXT: lm.cast {{.*}} : tensor<4x2xbf16> -> tensor<4x2xf32>
  %w = lm.weight "w" : tensor<2x8xbf16>
  %c = lm.cast %w : tensor<2x8xbf16> -> tensor<2x8xf32>
  %s = lm.slice %c {dim = 1 : i64, start = 0 : i64, end = 4 : i64, step = 1 : i64} : tensor<2x8xf32> -> tensor<2x4xf32>
  %t = lm.transpose %s {permutation = array<i64: 1, 0>} : tensor<2x4xf32> -> tensor<4x2xf32>
  func.return %t : tensor<4x2xf32>
}
