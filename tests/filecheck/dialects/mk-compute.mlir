// RUN: amk-opt %s | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | amk-opt | filecheck %s
// RUN: amk-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

mk.program "compute" attributes {tokens = 2 : i64, max_seq = 64 : i64} {
  %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x2xi64>
  %w = mk.buffer "weight" "w" : !mk.buffer<32x16xbf16>
  %keys = mk.buffer "cache" "k" : !mk.buffer<1x2x?x8xf32>
  %values = mk.buffer "cache" "v" : !mk.buffer<1x2x?x8xf32>
  %o = mk.buffer "activation" "o" : !mk.buffer<4x2x2x2x8xf32>
  %m = mk.buffer "activation" "m" : !mk.buffer<4x2x2x2xf32>
  %l = mk.buffer "activation" "l" : !mk.buffer<4x2x2x2xf32>
  mk.stage "all" prologue {
    mk.yield
  } parts {
    mk.part[2, 4] {
      %x = mk.load %w[t0 * 2, P] : !mk.buffer<32x16xbf16> -> tensor<2x16xf32>
      %g = mk.gather %w, %tokens[t1 * 4] : !mk.buffer<32x16xbf16>, !mk.buffer<1x2xi64> -> tensor<2x4xf32>
      %p = mk.matmul %x, %w[t0 * 4, 0] {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<2x16xf32>, !mk.buffer<32x16xbf16> -> tensor<2x4xf32>
      %u = mk.unary "silu" %x : tensor<2x16xf32>
      %b = mk.binary "add" %g, %p : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<2x4xf32>
      %s = mk.scalar "mul" %x, 0.5 : f64 : tensor<2x16xf32>
      %t = mk.scalar "sub" %x, -1.0 : f64 {reverse = 1 : i64} : tensor<2x16xf32>
      %r = mk.reduce "mean" %x {reduction = #mk.reduction<lanes = 16, chains = 1>} : tensor<2x16xf32> -> tensor<2x1xf32>
      %h = mk.reshape %x : tensor<2x16xf32> -> tensor<2x2x8xf32>
      %q = mk.transpose %h {permutation = array<i64: 1, 0, 2>} : tensor<2x2x8xf32> -> tensor<2x2x8xf32>
      %i = mk.slice %x[0, t1] : tensor<2x16xf32> -> tensor<2x3xf32>
      %j = mk.slice %x[0, 1] {steps = array<i64: 1, 4>} : tensor<2x16xf32> -> tensor<2x3xf32>
      %c = mk.concat %i, %j {dim = 1 : i64} : tensor<2x3xf32>, tensor<2x3xf32> -> tensor<2x6xf32>
      %d = mk.broadcast %r : tensor<2x1xf32> -> tensor<2x16xf32>
      %ao, %am, %al = mk.attention %q, %keys, %values at[t0, max(0, P - 5) floordiv 16 + t1] {chunk = 16 : i64, scale = 0.25 : f64, window = 6 : i64, softcap = 30.0 : f64} : tensor<2x2x8xf32>, !mk.buffer<1x2x?x8xf32>, !mk.buffer<1x2x?x8xf32> -> tensor<2x2x8xf32>, tensor<2x2xf32>, tensor<2x2xf32>
      %n = mk.combine %o, %m, %l over[0, (P + 1) floordiv 16 + 1] : !mk.buffer<4x2x2x2x8xf32>, !mk.buffer<4x2x2x2xf32>, !mk.buffer<4x2x2x2xf32> -> tensor<2x4x8xf32>
      %k = mk.reshape %al : tensor<2x2xf32> -> tensor<4xf32>
      %z = mk.combine %o, %m, %l sinks %k : tensor<4xf32> over[0, 1] : !mk.buffer<4x2x2x2x8xf32>, !mk.buffer<4x2x2x2xf32>, !mk.buffer<4x2x2x2xf32> -> tensor<2x4x8xf32>
      %top, %at = mk.argmax %x from[t0 * 16] : tensor<2x16xf32> -> tensor<2x1xf32>, tensor<2x1xf32>
      %best = mk.pick %x by %u : tensor<2x16xf32>, tensor<2x16xf32> -> tensor<2x1xf32>
      %boxed = mk.reshape %ao : tensor<2x2x8xf32> -> tensor<1x1x2x2x8xf32>
      mk.store %boxed, %o[t1, t0, 0, 0, 0] : tensor<1x1x2x2x8xf32> -> !mk.buffer<4x2x2x2x8xf32>
    }
  }
}

// CHECK-LABEL: mk.program "compute" attributes {tokens = 2 : i64, max_seq = 64 : i64} {
// CHECK-NEXT: %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x2xi64>
// CHECK-NEXT: %w = mk.buffer "weight" "w" : !mk.buffer<32x16xbf16>
// CHECK-NEXT: %keys = mk.buffer "cache" "k" : !mk.buffer<1x2x?x8xf32>
// CHECK-NEXT: %values = mk.buffer "cache" "v" : !mk.buffer<1x2x?x8xf32>
// CHECK-NEXT: %o = mk.buffer "activation" "o" : !mk.buffer<4x2x2x2x8xf32>
// CHECK-NEXT: %m = mk.buffer "activation" "m" : !mk.buffer<4x2x2x2xf32>
// CHECK-NEXT: %l = mk.buffer "activation" "l" : !mk.buffer<4x2x2x2xf32>
// CHECK-NEXT: mk.stage "all" prologue {
// CHECK-NEXT: mk.yield
// CHECK-NEXT: } parts {
// CHECK-NEXT: mk.part[2, 4] {
// CHECK-NEXT: %x = mk.load %w[t0 * 2, P] : !mk.buffer<32x16xbf16> -> tensor<2x16xf32>
// CHECK-NEXT: %g = mk.gather %w, %tokens[t1 * 4] : !mk.buffer<32x16xbf16>, !mk.buffer<1x2xi64> -> tensor<2x4xf32>
// CHECK-NEXT: %p = mk.matmul %x, %w[t0 * 4, 0] {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<2x16xf32>, !mk.buffer<32x16xbf16> -> tensor<2x4xf32>
// CHECK-NEXT: %u = mk.unary "silu" %x : tensor<2x16xf32>
// CHECK-NEXT: %b = mk.binary "add" %g, %p : tensor<2x4xf32>, tensor<2x4xf32> -> tensor<2x4xf32>
// CHECK-NEXT: %s = mk.scalar "mul" %x, 5.000000e-01 : f64 : tensor<2x16xf32>
// CHECK-NEXT: %t = mk.scalar "sub" %x, -1.000000e+00 : f64 {reverse = 1 : i64} : tensor<2x16xf32>
// CHECK-NEXT: %r = mk.reduce "mean" %x {reduction = #mk.reduction<lanes = 16, chains = 1>} : tensor<2x16xf32> -> tensor<2x1xf32>
// CHECK-NEXT: %h = mk.reshape %x : tensor<2x16xf32> -> tensor<2x2x8xf32>
// CHECK-NEXT: %q = mk.transpose %h {permutation = array<i64: 1, 0, 2>} : tensor<2x2x8xf32> -> tensor<2x2x8xf32>
// CHECK-NEXT: %i = mk.slice %x[0, t1] : tensor<2x16xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %j = mk.slice %x[0, 1] {steps = array<i64: 1, 4>} : tensor<2x16xf32> -> tensor<2x3xf32>
// CHECK-NEXT: %c = mk.concat %i, %j {dim = 1 : i64} : tensor<2x3xf32>, tensor<2x3xf32> -> tensor<2x6xf32>
// CHECK-NEXT: %d = mk.broadcast %r : tensor<2x1xf32> -> tensor<2x16xf32>
// CHECK-NEXT: %ao, %am, %al = mk.attention %q, %keys, %values at[t0, max(0, P - 5) floordiv 16 + t1] {chunk = 16 : i64, scale = 2.500000e-01 : f64, window = 6 : i64, softcap = 3.000000e+01 : f64} : tensor<2x2x8xf32>, !mk.buffer<1x2x?x8xf32>, !mk.buffer<1x2x?x8xf32> -> tensor<2x2x8xf32>, tensor<2x2xf32>, tensor<2x2xf32>
// CHECK-NEXT: %n = mk.combine %o, %m, %l over[0, (P + 1) floordiv 16 + 1] : !mk.buffer<4x2x2x2x8xf32>, !mk.buffer<4x2x2x2xf32>, !mk.buffer<4x2x2x2xf32> -> tensor<2x4x8xf32>
// CHECK-NEXT: %k = mk.reshape %al : tensor<2x2xf32> -> tensor<4xf32>
// CHECK-NEXT: %z = mk.combine %o, %m, %l sinks %k : tensor<4xf32> over[0, 1] : !mk.buffer<4x2x2x2x8xf32>, !mk.buffer<4x2x2x2xf32>, !mk.buffer<4x2x2x2xf32> -> tensor<2x4x8xf32>
// CHECK-NEXT: %top, %at = mk.argmax %x from[t0 * 16] : tensor<2x16xf32> -> tensor<2x1xf32>, tensor<2x1xf32>
// CHECK-NEXT: %best = mk.pick %x by %u : tensor<2x16xf32>, tensor<2x16xf32> -> tensor<2x1xf32>
// CHECK-NEXT: %boxed = mk.reshape %ao : tensor<2x2x8xf32> -> tensor<1x1x2x2x8xf32>
// CHECK-NEXT: mk.store %boxed, %o[t1, t0, 0, 0, 0] : tensor<1x1x2x2x8xf32> -> !mk.buffer<4x2x2x2x8xf32>
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK-NEXT: }

// GENERIC: "mk.program"() <{sym_name = "compute", tokens = 2 : i64, max_seq = 64 : i64}> ({
// GENERIC: %tokens = "mk.buffer"() <{kind = "input", source = "tokens"}> : () -> !mk.buffer<1x2xi64>
// GENERIC: %w = "mk.buffer"() <{kind = "weight", source = "w"}> : () -> !mk.buffer<32x16xbf16>
// GENERIC: %keys = "mk.buffer"() <{kind = "cache", source = "k"}> : () -> !mk.buffer<1x2x?x8xf32>
// GENERIC: %values = "mk.buffer"() <{kind = "cache", source = "v"}> : () -> !mk.buffer<1x2x?x8xf32>
// GENERIC: %o = "mk.buffer"() <{kind = "activation", source = "o"}> : () -> !mk.buffer<4x2x2x2x8xf32>
// GENERIC: %m = "mk.buffer"() <{kind = "activation", source = "m"}> : () -> !mk.buffer<4x2x2x2xf32>
// GENERIC: %l = "mk.buffer"() <{kind = "activation", source = "l"}> : () -> !mk.buffer<4x2x2x2xf32>
// GENERIC: "mk.stage"() <{sym_name = "all", operandSegmentSizes = array<i32: 0, 0>}> ({
// GENERIC: "mk.yield"() : () -> ()
// GENERIC: "mk.part"() <{grid = #mk.exprs<[2, 4]>}> ({
// GENERIC: %x = "mk.load"(%w) <{offsets = #mk.exprs<[t0 * 2, P]>}> : (!mk.buffer<32x16xbf16>) -> tensor<2x16xf32>
// GENERIC: %g = "mk.gather"(%w, %tokens) <{offsets = #mk.exprs<[t1 * 4]>}> : (!mk.buffer<32x16xbf16>, !mk.buffer<1x2xi64>) -> tensor<2x4xf32>
// GENERIC: %p = "mk.matmul"(%x, %w) <{offsets = #mk.exprs<[t0 * 4, 0]>, reduction = #mk.reduction<lanes = 16, chains = 2>}> : (tensor<2x16xf32>, !mk.buffer<32x16xbf16>) -> tensor<2x4xf32>
// GENERIC: %u = "mk.unary"(%x) <{function = "silu"}> : (tensor<2x16xf32>) -> tensor<2x16xf32>
// GENERIC: %b = "mk.binary"(%g, %p) <{function = "add"}> : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
// GENERIC: %s = "mk.scalar"(%x) <{function = "mul", value = 5.000000e-01 : f64}> : (tensor<2x16xf32>) -> tensor<2x16xf32>
// GENERIC: %t = "mk.scalar"(%x) <{function = "sub", value = -1.000000e+00 : f64, reverse = 1 : i64}> : (tensor<2x16xf32>) -> tensor<2x16xf32>
// GENERIC: %r = "mk.reduce"(%x) <{function = "mean", reduction = #mk.reduction<lanes = 16, chains = 1>}> : (tensor<2x16xf32>) -> tensor<2x1xf32>
// GENERIC: %h = "mk.reshape"(%x) : (tensor<2x16xf32>) -> tensor<2x2x8xf32>
// GENERIC: %q = "mk.transpose"(%h) <{permutation = array<i64: 1, 0, 2>}> : (tensor<2x2x8xf32>) -> tensor<2x2x8xf32>
// GENERIC: %i = "mk.slice"(%x) <{offsets = #mk.exprs<[0, t1]>}> : (tensor<2x16xf32>) -> tensor<2x3xf32>
// GENERIC: %j = "mk.slice"(%x) <{offsets = #mk.exprs<[0, 1]>, steps = array<i64: 1, 4>}> : (tensor<2x16xf32>) -> tensor<2x3xf32>
// GENERIC: %c = "mk.concat"(%i, %j) <{dim = 1 : i64}> : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
// GENERIC: %d = "mk.broadcast"(%r) : (tensor<2x1xf32>) -> tensor<2x16xf32>
// GENERIC: %ao, %am, %al = "mk.attention"(%q, %keys, %values) <{at = #mk.exprs<[t0, max(0, P - 5) floordiv 16 + t1]>, chunk = 16 : i64, scale = 2.500000e-01 : f64, window = 6 : i64, softcap = 3.000000e+01 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>}> : (tensor<2x2x8xf32>, !mk.buffer<1x2x?x8xf32>, !mk.buffer<1x2x?x8xf32>) -> (tensor<2x2x8xf32>, tensor<2x2xf32>, tensor<2x2xf32>)
// GENERIC: %n = "mk.combine"(%o, %m, %l) <{range = #mk.exprs<[0, (P + 1) floordiv 16 + 1]>}> : (!mk.buffer<4x2x2x2x8xf32>, !mk.buffer<4x2x2x2xf32>, !mk.buffer<4x2x2x2xf32>) -> tensor<2x4x8xf32>
// GENERIC: %k = "mk.reshape"(%al) : (tensor<2x2xf32>) -> tensor<4xf32>
// GENERIC: %z = "mk.combine"(%o, %m, %l, %k) <{range = #mk.exprs<[0, 1]>}> : (!mk.buffer<4x2x2x2x8xf32>, !mk.buffer<4x2x2x2xf32>, !mk.buffer<4x2x2x2xf32>, tensor<4xf32>) -> tensor<2x4x8xf32>
// GENERIC: %top, %at = "mk.argmax"(%x) <{first = #mk.exprs<[t0 * 16]>}> : (tensor<2x16xf32>) -> (tensor<2x1xf32>, tensor<2x1xf32>)
// GENERIC: %best = "mk.pick"(%u, %x) : (tensor<2x16xf32>, tensor<2x16xf32>) -> tensor<2x1xf32>
// GENERIC: %boxed = "mk.reshape"(%ao) : (tensor<2x2x8xf32>) -> tensor<1x1x2x2x8xf32>
// GENERIC: "mk.store"(%boxed, %o) <{offsets = #mk.exprs<[t1, t0, 0, 0, 0]>}> : (tensor<1x1x2x2x8xf32>, !mk.buffer<4x2x2x2x8xf32>) -> ()
