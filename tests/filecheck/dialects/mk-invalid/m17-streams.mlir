// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// no slots
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %s = mk.stream {slots = 0 : i64, slot_bytes = 4096 : i64}
}
// CHECK: the input is invalid: mk M17: slots, slot_bytes and ahead are positive, at mk.stream
// -----
// nothing ahead
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %s = mk.stream {slots = 2 : i64, slot_bytes = 4096 : i64, ahead = 0 : i64}
}
// CHECK: the input is invalid: mk M17: slots, slot_bytes and ahead are positive, at mk.stream
