// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// no literal
func.func @f() {
  %c = lm.constant 1.0 : f32
  func.return
}
// CHECK: lm L3: lm.constant takes a dense<…> literal
// -----
// a literal of another type
func.func @f() {
  %c = "lm.constant"() <{value = dense<1.0> : tensor<2xf32>}> : () -> tensor<3xf32>
  func.return
}
// CHECK: the input is invalid: lm L3: a constant has the type of its value, at lm.constant
