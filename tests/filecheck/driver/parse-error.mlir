// RUN: not amk-opt %s 2>&1 | filecheck %s

func.func @f(%x: tensor<4xf32>) {
  %y = lm.unheard_of %x : tensor<4xf32>
  func.return
}

// CHECK: amk-opt: error: {{.*}}parse-error.mlir:4:{{[0-9]+}}: Operation lm.unheard_of is not registered
