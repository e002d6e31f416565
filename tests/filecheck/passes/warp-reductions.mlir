// RUN: amk-opt %s -p warp-reductions | filecheck %s
// RUN: amk-opt %s -p warp-reductions,warp-reductions | filecheck %s

// 16 bytes a thread and a warp a row: 32 · 8 lanes of 16-bit weights, 32 · 4 of f32. A row of 256
// elements is the block's, a shorter one a warp's. A head of 64 takes eight threads of eight
// elements, so that 32 threads hold 4 · 8 rows of the cache.
// CHECK: mk.reduce "sum" {{.*}} {reduction = #mk.reduction<lanes = 256, chains = 1>} : tensor<1x256xf32>
// CHECK: mk.reduce "max" {{.*}} {reduction = #mk.reduction<lanes = 32, chains = 1>} : tensor<1x255xf32>
// CHECK: mk.matmul {{.*}} {reduction = #mk.reduction<lanes = 256, chains = 1>} : tensor<1x256xf32>, !mk.buffer<32x256xbf16>
// CHECK: mk.matmul {{.*}} {reduction = #mk.reduction<lanes = 256, chains = 1>} : tensor<1x256xf32>, !mk.buffer<32x256xf16>
// CHECK: mk.matmul {{.*}} {reduction = #mk.reduction<lanes = 128, chains = 1>} : tensor<1x256xf32>, !mk.buffer<32x256xf32>
// CHECK: mk.attention
// CHECK-SAME: dot = #mk.reduction<lanes = 64, chains = 1>
// CHECK-SAME: total = #mk.reduction<lanes = 32, chains = 1>
// CHECK-SAME: mix = #mk.reduction<lanes = 32, chains = 1>
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %b = mk.buffer "weight" "b" : !mk.buffer<32x256xbf16>
  %h = mk.buffer "weight" "h" : !mk.buffer<32x256xf16>
  %f = mk.buffer "weight" "f" : !mk.buffer<32x256xf32>
  %keys = mk.buffer "cache" "k" : !mk.buffer<1x2x?x64xbf16>
  %values = mk.buffer "cache" "v" : !mk.buffer<1x2x?x64xbf16>
  %o = mk.buffer "activation" "o" : !mk.buffer<1x1x64xf32>
  %m = mk.buffer "activation" "m" : !mk.buffer<1x1xf32>
  %l = mk.buffer "activation" "l" : !mk.buffer<1x1xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<1x96xf32>
  mk.stage "sums" prologue {
    %x = mk.load %f[0, 0] : !mk.buffer<32x256xf32> -> tensor<1x256xf32>
    %s = mk.reduce "sum" %x {reduction = #mk.reduction<lanes = 16, chains = 1>} : tensor<1x256xf32> -> tensor<1x1xf32>
    %n = mk.load %f[0, 0] : !mk.buffer<32x256xf32> -> tensor<1x255xf32>
    %t = mk.reduce "max" %n {reduction = #mk.reduction<lanes = 16, chains = 1>} : tensor<1x255xf32> -> tensor<1x1xf32>
    %u = mk.binary "mul" %s, %t : tensor<1x1xf32>, tensor<1x1xf32> -> tensor<1x1xf32>
    %z = mk.binary "mul" %x, %u : tensor<1x256xf32>, tensor<1x1xf32> -> tensor<1x256xf32>
    mk.yield %z : tensor<1x256xf32>
  } parts {
  ^bb0(%k: tensor<1x256xf32>):
    mk.part[1] {
      %d0 = mk.matmul %k, %b[0, 0] {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<1x256xf32>, !mk.buffer<32x256xbf16> -> tensor<1x32xf32>
      mk.store %d0, %y[0, 0] : tensor<1x32xf32> -> !mk.buffer<1x96xf32>
      %d1 = mk.matmul %k, %h[0, 0] {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<1x256xf32>, !mk.buffer<32x256xf16> -> tensor<1x32xf32>
      mk.store %d1, %y[0, 32] : tensor<1x32xf32> -> !mk.buffer<1x96xf32>
      %d2 = mk.matmul %k, %f[0, 0] {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<1x256xf32>, !mk.buffer<32x256xf32> -> tensor<1x32xf32>
      mk.store %d2, %y[0, 64] : tensor<1x32xf32> -> !mk.buffer<1x96xf32>
    }
  }
  mk.stage "attends" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %q = mk.load %f[0, 0] : !mk.buffer<32x256xf32> -> tensor<1x64xf32>
      %r = mk.reshape %q : tensor<1x64xf32> -> tensor<1x1x64xf32>
      %ao, %am, %al = mk.attention %r, %keys, %values at[0, 0] {chunk = 16 : i64, scale = 0.125 : f64} : tensor<1x1x64xf32>, !mk.buffer<1x2x?x64xbf16>, !mk.buffer<1x2x?x64xbf16> -> tensor<1x1x64xf32>, tensor<1x1xf32>, tensor<1x1xf32>
      mk.store %ao, %o[0, 0, 0] : tensor<1x1x64xf32> -> !mk.buffer<1x1x64xf32>
      mk.store %am, %m[0, 0] : tensor<1x1xf32> -> !mk.buffer<1x1xf32>
      mk.store %al, %l[0, 0] : tensor<1x1xf32> -> !mk.buffer<1x1xf32>
    }
  }
}
