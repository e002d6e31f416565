// RUN: amk-opt %s -p legal-mk --split-input-file --verify-diagnostics | filecheck %s

// CHECK: legal-mk: @step is left; run lower-lm-to-mk, at func.func
func.func @step(%x: tensor<1x4xf32>, %pos: index) -> tensor<1x4xf32> {
  func.return %x : tensor<1x4xf32>
}
// -----
// CHECK: legal-mk: the module has no mk.program; run lower-lm-to-mk, at builtin.module
func.func @init() {
  func.return
}
// -----
// CHECK: legal-mk: lm.neg in a program, at stage 's' (lm.neg)
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %x = mk.load %w[0] : !mk.buffer<4xf32> -> tensor<4xf32>
      %y = lm.neg %x : tensor<4xf32>
    }
  }
}
// -----
// CHECK: legal-mk: a store into a buffer of kind 'weight', which is read only, at stage 's' (mk.store)
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<4xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %x = mk.load %w[0] : !mk.buffer<4xf32> -> tensor<4xf32>
      mk.store %x, %w[0] : tensor<4xf32> -> !mk.buffer<4xf32>
    }
  }
}
// -----
// CHECK: legal-mk: weight of mk.matmul of kind 'activation', not weight or constant, at stage 's' (mk.matmul)
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %w = mk.buffer "activation" "w" : !mk.buffer<4x4xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %x = mk.load %w[0, 0] : !mk.buffer<4x4xf32> -> tensor<4x4xf32>
      %y = mk.matmul %x, %w[0, 0] {reduction = #mk.reduction<lanes = 16, chains = 2>} : tensor<4x4xf32>, !mk.buffer<4x4xf32> -> tensor<4x4xf32>
    }
  }
}
// -----
// CHECK: legal-mk: 'a#0' is read before a stage has written it, at stage 's' (mk.load)
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a#0" : !mk.buffer<4xf32>
  mk.stage "s" prologue {
    %x = mk.load %a[0] : !mk.buffer<4xf32> -> tensor<4xf32>
    mk.yield %x : tensor<4xf32>
  } parts {
  ^bb0(%x: tensor<4xf32>):
    mk.part[1] {
      mk.store %x, %a[0] : tensor<4xf32> -> !mk.buffer<4xf32>
    }
  }
}
// -----
// CHECK: legal-mk: cache 'k0' is written by no stage, at mk.buffer
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %k = mk.buffer "cache" "k0" : !mk.buffer<1x2x?x4xf32>
}
// -----
// CHECK: legal-mk: two weight buffers have the source 'w', at mk.buffer
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "weight" "w" : !mk.buffer<4xf32>
  %b = mk.buffer "weight" "w" : !mk.buffer<8xf32>
}
// -----
// CHECK: legal-mk: the program has no input buffer 'tokens', at mk.program
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "weight" "w" : !mk.buffer<4xf32>
}
// -----
// CHECK: legal-mk: the program has no output buffer 'logits', at mk.program
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %t = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
}
// -----
// CHECK: mk.program "legal"
// CHECK: mk.gather
mk.program "legal" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %t = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
  %w = mk.buffer "weight" "w" : !mk.buffer<8x4xf32>
  %y = mk.buffer "output" "logits" : !mk.buffer<1x4xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[1] {
      %x = mk.gather %w, %t[0] : !mk.buffer<8x4xf32>, !mk.buffer<1x1xi64> -> tensor<1x4xf32>
      mk.store %x, %y[0, 0] : tensor<1x4xf32> -> !mk.buffer<1x4xf32>
    }
  }
}
