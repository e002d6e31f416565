// RUN: amk-opt %s -p pack-weights --split-input-file | filecheck %s

// Rows of 6 do not fit in either dtype: 12 bytes become 64, and 24 become 64. Each weight is padded
// once, and so is the input for each number of zeros. The rows of %k fit and stay.
// CHECK:      func.func @init() -> (tensor<8x32xbf16>, tensor<1x1x26xf32>, tensor<8x16xf32>, tensor<1x1x10xf32>)
// CHECK-SAME: amk.names = ["w|32", "zeros", "v|16", "zeros_2"]
// CHECK:      func.func @step
// CHECK:      [[z:%.+]] = lm.weight "@init/zeros" : tensor<1x1x26xf32>
// CHECK-NEXT: [[e:%.+]] = lm.expand [[z]] : tensor<1x1x26xf32> -> tensor<1x3x26xf32>
// CHECK-NEXT: [[x:%.+]] = lm.concat %x, [[e]]
// CHECK-NEXT: %y = lm.linear [[x]], {{%.+}} bias %b
// CHECK:      %s = lm.linear [[x]]
// CHECK:      [[x2:%.+]] = lm.concat %x, {{.*}} -> tensor<1x3x16xf32>
// CHECK-NEXT: %u = lm.linear [[x2]]
// CHECK-NEXT: %t = lm.linear %y, %k
func.func @step(%x: tensor<1x3x6xf32>, %pos: index) -> (tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>) {
  %w = lm.weight "w" : tensor<8x6xbf16>
  %f = lm.cast %w : tensor<8x6xbf16> -> tensor<8x6xf32>
  %v = lm.weight "v" : tensor<8x6xf32>
  %k = lm.weight "k" : tensor<8x8xf32>
  %b = lm.weight "b" : tensor<8xf32>
  %y = lm.linear %x, %f bias %b : tensor<8xf32> : tensor<1x3x6xf32>, tensor<8x6xf32> -> tensor<1x3x8xf32>
  %s = lm.linear %x, %f : tensor<1x3x6xf32>, tensor<8x6xf32> -> tensor<1x3x8xf32>
  %u = lm.linear %x, %v : tensor<1x3x6xf32>, tensor<8x6xf32> -> tensor<1x3x8xf32>
  %t = lm.linear %y, %k : tensor<1x3x8xf32>, tensor<8x8xf32> -> tensor<1x3x8xf32>
  func.return %s, %u, %t : tensor<1x3x8xf32>, tensor<1x3x8xf32>, tensor<1x3x8xf32>
}
// -----
// Nothing to pad: no @init appears.
// CHECK-NOT:  func.func @init
// CHECK:      %y = lm.linear %x, %w
func.func @step(%x: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
  %w = lm.weight "w" : tensor<8x8xf32>
  %y = lm.linear %x, %w : tensor<1x1x8xf32>, tensor<8x8xf32> -> tensor<1x1x8xf32>
  func.return %y : tensor<1x1x8xf32>
}
