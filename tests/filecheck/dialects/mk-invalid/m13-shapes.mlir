// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// a reshape of another size
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.reshape %x : tensor<4x16xf32> -> tensor<65xf32>
    }
  }
}
// CHECK: the input is invalid: mk M13: a reshape keeps the number of elements, at mk.reshape
// -----
// an axis twice
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.transpose %x {permutation = array<i64: 0, 0>} : tensor<4x16xf32> -> tensor<4x4xf32>
    }
  }
}
// CHECK: the input is invalid: mk M13: not a permutation of the axes, at mk.transpose
// -----
// a shape that is not permuted
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.transpose %x {permutation = array<i64: 1, 0>} : tensor<4x16xf32> -> tensor<4x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M13: permuted shape, at mk.transpose
// -----
// a slice that leaves its operand
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.slice %x[0, 8] : tensor<4x16xf32> -> tensor<4x9xf32>
    }
  }
}
// CHECK: the input is invalid: mk M13: a slice of (4, 9) at 8 leaves (4, 16), at mk.slice
// -----
// steps that leave it
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.slice %x[0, t0] {steps = array<i64: 1, 6>} : tensor<4x16xf32> -> tensor<4x4xf32>
    }
  }
}
// CHECK: the input is invalid: mk M13: a slice of (4, 4) at t0 leaves (4, 16), at mk.slice
// -----
// parts of other shapes
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %z = mk.reshape %x : tensor<4x16xf32> -> tensor<8x8xf32>
      %y = mk.concat %x, %z {dim = 0 : i64} : tensor<4x16xf32>, tensor<8x8xf32> -> tensor<12x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M13: concat operands agree off the axis, at mk.concat
// -----
// extents that do not add up
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.concat %x, %x {dim = 0 : i64} : tensor<4x16xf32>, tensor<4x16xf32> -> tensor<9x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M13: extents add up, at mk.concat
// -----
// what cannot be broadcast
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      %y = mk.broadcast %x : tensor<4x16xf32> -> tensor<1x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M13: broadcast shape, at mk.broadcast
