// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// a ring seen without a window
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  %k = mk.buffer "cache" "k" {policy = "ring", rows = 32 : i64, window = 8 : i64} : !mk.buffer<1x2x?x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %q = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<1x16xf32>
      %q3 = mk.reshape %q : tensor<1x16xf32> -> tensor<1x1x16xf32>
      %o, %m, %l = mk.attention %q3, %k, %k at[0, 0] {chunk = 16 : i64, scale = 1.0 : f64} : tensor<1x1x16xf32>, !mk.buffer<1x2x?x16xf32>, !mk.buffer<1x2x?x16xf32> -> tensor<1x1x16xf32>, tensor<1x1xf32>, tensor<1x1xf32>
    }
  }
}
// CHECK: the input is invalid: mk M14: what reads a ring has a window within the ring's, or reads its sinks, at mk.attention
// -----
// a chunk of 24 rows
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  %k = mk.buffer "cache" "k" : !mk.buffer<1x2x?x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %q = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<1x16xf32>
      %q3 = mk.reshape %q : tensor<1x16xf32> -> tensor<1x1x16xf32>
      %o, %m, %l = mk.attention %q3, %k, %k at[0, 0] {chunk = 24 : i64, scale = 1.0 : f64} : tensor<1x1x16xf32>, !mk.buffer<1x2x?x16xf32>, !mk.buffer<1x2x?x16xf32> -> tensor<1x1x16xf32>, tensor<1x1xf32>, tensor<1x1xf32>
    }
  }
}
// CHECK: the input is invalid: mk M14: a chunk is a multiple of 16 rows, at mk.attention
// -----
// keys that are no cache
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  %k = mk.buffer "activation" "k" : !mk.buffer<1x2x32x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %q = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<1x16xf32>
      %q3 = mk.reshape %q : tensor<1x16xf32> -> tensor<1x1x16xf32>
      %o, %m, %l = mk.attention %q3, %k, %k at[0, 0] {chunk = 16 : i64, scale = 1.0 : f64} : tensor<1x1x16xf32>, !mk.buffer<1x2x32x16xf32>, !mk.buffer<1x2x32x16xf32> -> tensor<1x1x16xf32>, tensor<1x1xf32>, tensor<1x1xf32>
    }
  }
}
// CHECK: the input is invalid: mk M14: keys and values agree, at mk.attention
// -----
// one coordinate
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  %k = mk.buffer "cache" "k" : !mk.buffer<1x2x?x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %q = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<1x16xf32>
      %q3 = mk.reshape %q : tensor<1x16xf32> -> tensor<1x1x16xf32>
      %o, %m, %l = mk.attention %q3, %k, %k at[0] {chunk = 16 : i64, scale = 1.0 : f64} : tensor<1x1x16xf32>, !mk.buffer<1x2x?x16xf32>, !mk.buffer<1x2x?x16xf32> -> tensor<1x1x16xf32>, tensor<1x1xf32>, tensor<1x1xf32>
    }
  }
}
// CHECK: the input is invalid: mk M14: at [head, chunk index], at mk.attention
// -----
// results of another shape
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  %k = mk.buffer "cache" "k" : !mk.buffer<1x2x?x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %q = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<1x16xf32>
      %q3 = mk.reshape %q : tensor<1x16xf32> -> tensor<1x1x16xf32>
      %o, %m, %l = mk.attention %q3, %k, %k at[0, 0] {chunk = 16 : i64, scale = 1.0 : f64} : tensor<1x1x16xf32>, !mk.buffer<1x2x?x16xf32>, !mk.buffer<1x2x?x16xf32> -> tensor<1x2x16xf32>, tensor<1x1xf32>, tensor<1x1xf32>
    }
  }
}
// CHECK: the input is invalid: mk M14: results [S, G, Dv], [S, G], [S, G], at mk.attention
