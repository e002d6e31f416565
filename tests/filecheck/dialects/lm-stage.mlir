// RUN: amk-opt %s | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | amk-opt | filecheck %s

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a, %b = lm.stage "mlp" {
    %n = lm.neg %x : tensor<4xf32>
    %m = lm.abs %n : tensor<4xf32>
    lm.yield %n, %m : tensor<4xf32>, tensor<4xf32>
  } : tensor<4xf32>, tensor<4xf32>
  func.return %b : tensor<4xf32>
}

// CHECK:      %a, %b = lm.stage "mlp" {
// CHECK-NEXT:   %n = lm.neg %x : tensor<4xf32>
// CHECK-NEXT:   %m = lm.abs %n : tensor<4xf32>
// CHECK-NEXT:   lm.yield %n, %m : tensor<4xf32>, tensor<4xf32>
// CHECK-NEXT: } : tensor<4xf32>, tensor<4xf32>
