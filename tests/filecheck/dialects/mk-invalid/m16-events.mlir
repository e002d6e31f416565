// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// groups that depend on a tile
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %e = mk.event {groups = #mk.exprs<[t0]>}
}
// CHECK: the input is invalid: mk M16: t0 uses a symbol that is not among ['P'], at mk.event
// -----
// two thresholds
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %e = mk.event {threshold = #mk.exprs<[1, 2]>}
}
// CHECK: the input is invalid: mk M16: groups and threshold are one expression each, at mk.event
// -----
// another counter
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %e = mk.event {counter = "forever"}
}
// CHECK: the input is invalid: mk M16: counter 'forever'; known: ('launch', 'monotonic'), at mk.event
// -----
// a wait for one number
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  %e = mk.event
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      mk.wait %e[0]
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
    }
  }
}
// CHECK: the input is invalid: mk M16: mk.wait takes [first, count], at mk.wait
// -----
// a signal of two groups
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  %e = mk.event
  mk.stage "s" prologue {
    mk.yield
  } parts {
    mk.part[2] {
      %x = mk.load %a[0, 0] : !mk.buffer<4x16xf32> -> tensor<4x16xf32>
      mk.signal %e[0, 1]
    }
  }
}
// CHECK: the input is invalid: mk M16: mk.signal takes one group, at mk.signal
// -----
// two forms of one event
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
  %e = mk.event
  mk.stage "s" signals(%e) prologue {
    mk.yield
  } parts {
    mk.part[1] {
      mk.signal %e[0]
    }
  }
}
// CHECK: the input is invalid: mk M16: one event is signalled in one form, short or long, at mk.event
