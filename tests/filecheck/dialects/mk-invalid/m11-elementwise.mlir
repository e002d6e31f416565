// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// an unknown function of one
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.unary "cos" %x : tensor<4x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M11: unary 'cos'; known: ('neg', 'abs', 'exp', 'sqrt', 'rsqrt', 'tanh', 'sigmoid', 'silu', 'relu', 'erf', 'gelu', 'gelu_tanh'), at mk.unary
// -----
// an unknown function of two
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.binary "pow" %x, %x : tensor<4x16xf32>, tensor<4x16xf32> -> tensor<4x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M11: binary 'pow'; known: ('add', 'sub', 'mul', 'div', 'max', 'min'), at mk.binary
// -----
// an unknown function of a literal
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.scalar "pow" %x, 2.0 : f64 : tensor<4x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M11: scalar 'pow'; known: ('add', 'sub', 'mul', 'div', 'max', 'min'), at mk.scalar
// -----
// another shape
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.binary "add" %x, %x : tensor<4x16xf32>, tensor<4x16xf32> -> tensor<4x1xf32>
    }
  }
}
// CHECK: the input is invalid: mk M11: the broadcast shape is (4, 16), at mk.binary
