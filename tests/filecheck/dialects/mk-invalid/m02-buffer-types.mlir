// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// two open axes
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "cache" "a" : !mk.buffer<1x?x?x4xf32>
}
// CHECK: mk M2: one axis at most is open
// -----
// an empty axis
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<0x4xf32>
}
// CHECK: mk M2: extents are positive
// -----
// elements of another type
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4xi32>
}
// CHECK: mk M2: elements are floats, i64 or i8
