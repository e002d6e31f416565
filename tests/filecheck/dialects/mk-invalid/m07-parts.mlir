// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// a grid that depends on a tile
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[t0] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M7: the grid depends on P alone, not on t0, at mk.part
// -----
// a wait after work
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  %e = mk.event
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      mk.wait %e[0, 1]
    }
  }
}
// CHECK: the input is invalid: mk M7: waits come first in a part and signals last, at mk.part
// -----
// work after a signal
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  %e = mk.event
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      mk.signal %e[0]
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M7: waits come first in a part and signals last, at mk.part
