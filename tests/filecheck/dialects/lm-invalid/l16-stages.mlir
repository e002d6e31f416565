// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// another type
func.func @f(%x: tensor<4xf32>) {
  %y = lm.stage "s" {
    lm.yield %x : tensor<4xf32>
  } : tensor<5xf32>
  func.return
}
// CHECK: the input is invalid: lm L16: a stage yields the types of its results, at lm.stage
// -----
// no yield
func.func @f(%x: tensor<4xf32>) {
  %y = lm.stage "s" {
    %z = lm.neg %x : tensor<4xf32>
  } : tensor<4xf32>
  func.return
}
// CHECK: the input is invalid: 'lm.stage' terminates with operation lm.neg instead of lm.yield, at lm.stage
