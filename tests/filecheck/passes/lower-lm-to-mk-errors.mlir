// RUN: amk-opt %s -p lower-lm-to-mk --split-input-file --verify-diagnostics | filecheck %s

// CHECK: lower-lm-to-mk: the module has no func.func @step with a body
builtin.module attributes {amk.max_seq = 64 : i64} {
  func.func @other(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
    func.return %x : tensor<1x4xf32>
  }
}
// -----
// CHECK: lower-lm-to-mk: give max-seq, or set amk.max_seq on the module
func.func @step(%t: tensor<1x1xi64>, %pos: index) {
  func.return
}
// -----
// CHECK: lower-lm-to-mk: max-seq 2 is below the 3 new tokens
builtin.module attributes {amk.max_seq = 2 : i64} {
  func.func @step(%t: tensor<1x3xi64>, %pos: index) {
    func.return
  }
}
// -----
// CHECK: lower-lm-to-mk: the first argument of @step is the tokens [1, S]
builtin.module attributes {amk.max_seq = 64 : i64} {
  func.func @step() {
    func.return
  }
}
// -----
// CHECK: lower-lm-to-mk: kv.append outside a stage; run place-kv-append
builtin.module attributes {amk.max_seq = 64 : i64} {
  func.func @step(%t: tensor<1x1xi64>, %pos: index, %k: !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">) -> !kv.cache<1x2x?x4xf32, axis = 2, policy = "static"> {
    %w = lm.weight "w" : tensor<1x2x1x4xf32>
    %k1 = kv.append %k, %w : tensor<1x2x1x4xf32> -> !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
    func.return %k1 : !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
  }
}
// -----
// CHECK: lower-lm-to-mk: lm.cos inside a stage, at lm.cos; mk has ('neg', 'abs',
builtin.module attributes {amk.max_seq = 64 : i64} {
  func.func @step(%t: tensor<1x1xi64>, %pos: index) -> tensor<4xf32> {
    %w = lm.weight "w" : tensor<4xf32>
    %y = lm.stage "s" {
      %c = lm.cos %w : tensor<4xf32>
      lm.yield %c : tensor<4xf32>
    } : tensor<4xf32>
    func.return %y : tensor<4xf32>
  }
}
// -----
// CHECK: lower-lm-to-mk: lm.pow inside a stage, at lm.pow; mk has ('add',
builtin.module attributes {amk.max_seq = 64 : i64} {
  func.func @step(%t: tensor<1x1xi64>, %pos: index) -> tensor<4xf32> {
    %w = lm.weight "w" : tensor<4xf32>
    %y = lm.stage "s" {
      %c = lm.pow %w, %w : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
      lm.yield %c : tensor<4xf32>
    } : tensor<4xf32>
    func.return %y : tensor<4xf32>
  }
}
// -----
// CHECK: lower-lm-to-mk: pow by 1.5; powers 0.5, 2 and 3 are known
builtin.module attributes {amk.max_seq = 64 : i64} {
  func.func @step(%t: tensor<1x1xi64>, %pos: index) -> tensor<4xf32> {
    %w = lm.weight "w" : tensor<4xf32>
    %y = lm.stage "s" {
      %c = lm.pow_scalar %w, 1.5 : f64 : tensor<4xf32> -> tensor<4xf32>
      lm.yield %c : tensor<4xf32>
    } : tensor<4xf32>
    func.return %y : tensor<4xf32>
  }
}
// -----
// CHECK: lower-lm-to-mk: lm.cast of i64, at lm.cast
builtin.module attributes {amk.max_seq = 64 : i64} {
  func.func @step(%t: tensor<1x1xi64>, %pos: index) -> tensor<1x1xf32> {
    %y = lm.stage "s" {
      %c = lm.cast %t : tensor<1x1xi64> -> tensor<1x1xf32>
      lm.yield %c : tensor<1x1xf32>
    } : tensor<1x1xf32>
    func.return %y : tensor<1x1xf32>
  }
}
// -----
// CHECK: lower-lm-to-mk: no rule for lm.matmul inside a stage
builtin.module attributes {amk.max_seq = 64 : i64} {
  func.func @step(%t: tensor<1x1xi64>, %pos: index) -> tensor<4x4xf32> {
    %w = lm.weight "w" : tensor<4x4xf32>
    %y = lm.stage "s" {
      %c = lm.matmul %w, %w : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
      lm.yield %c : tensor<4x4xf32>
    } : tensor<4x4xf32>
    func.return %y : tensor<4x4xf32>
  }
}
// -----
// CHECK: lower-lm-to-mk: stage 's' yields a value twice
builtin.module attributes {amk.max_seq = 64 : i64} {
  func.func @step(%t: tensor<1x1xi64>, %pos: index) -> tensor<4xf32> {
    %w = lm.weight "w" : tensor<4xf32>
    %y, %z = lm.stage "s" {
      %c = lm.neg %w : tensor<4xf32>
      lm.yield %c, %c : tensor<4xf32>, tensor<4xf32>
    } : tensor<4xf32>, tensor<4xf32>
    func.return %y : tensor<4xf32>
  }
}
