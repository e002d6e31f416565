// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// a box of another rank
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0] : !mk.buffer<4x16xf32> -> tensor<16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M9: a box has the rank of its buffer, at mk.load
// -----
// a box that is too large
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, t0] : !mk.buffer<4x16xf32> -> tensor<1x17xf32>
    }
  }
}
// CHECK: the input is invalid: mk M9: box (1, 17) exceeds (4, 16), at mk.load
// -----
// an offset that leaves the buffer
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      mk.store %x, %a[1, 0] : tensor<4x16xf32> -> !mk.buffer<4x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M9: offset 1 leaves the buffer (4, 16), at mk.store
// -----
// a negative offset
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[-1, 0] : !mk.buffer<4x16xf32> -> tensor<1x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M9: offset -1 leaves the buffer (4, 16), at mk.load
// -----
// indices that are floats
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  %w = mk.buffer "weight" "w" : !mk.buffer<8x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %g = mk.gather %w, %a[0] : !mk.buffer<8x16xf32>, !mk.buffer<4x16xf32> -> tensor<16x4xf32>
    }
  }
}
// CHECK: the input is invalid: mk M9: indices are i64, at mk.gather
// -----
// a load of whole numbers
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %t = mk.buffer "input" "tokens" : !mk.buffer<1x2xi64>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %g = mk.load %t[0, 0] : !mk.buffer<1x2xi64> -> tensor<1x2xf32>
    }
  }
}
// CHECK: the input is invalid: mk M9: a load widens floats; i64 is read by mk.gather, at mk.load
// -----
// two rows an index
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %w = mk.buffer "weight" "w" : !mk.buffer<8x16xf32>
  %t = mk.buffer "input" "tokens" : !mk.buffer<1x2xi64>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %g = mk.gather %w, %t[0] : !mk.buffer<8x16xf32>, !mk.buffer<1x2xi64> -> tensor<4x4xf32>
    }
  }
}
// CHECK: the input is invalid: mk M9: one row an index, at mk.gather
