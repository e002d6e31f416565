// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// another kind
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "scratch" "a" : !mk.buffer<4xf32>
}
// CHECK: the input is invalid: mk M5: kind 'scratch'; known: ('weight', 'activation', 'cache', 'input', 'output', 'constant'), at mk.buffer
// -----
// an open weight
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "weight" "a" : !mk.buffer<1x2x?x4xf32>
}
// CHECK: the input is invalid: mk M5: a cache, and only it, is open, at mk.buffer
// -----
// a closed cache
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "cache" "a" : !mk.buffer<1x2x8x4xf32>
}
// CHECK: the input is invalid: mk M5: a cache, and only it, is open, at mk.buffer
// -----
// a weight in the arena
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "weight" "a" {offset = 0 : i64} : !mk.buffer<4xf32>
}
// CHECK: the input is invalid: mk M5: only activations live in the arena, at mk.buffer
// -----
// an activation with a policy
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" {policy = "doubling"} : !mk.buffer<4xf32>
}
// CHECK: the input is invalid: mk M5: only a cache has a policy, at mk.buffer
// -----
// another policy
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "cache" "a" {policy = "tripling"} : !mk.buffer<1x2x?x4xf32>
}
// CHECK: the input is invalid: mk M5: policy; known: ('static', 'doubling', 'ring'), at mk.buffer
// -----
// a ring without a window
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "cache" "a" {policy = "ring", rows = 32 : i64} : !mk.buffer<1x2x?x4xf32>
}
// CHECK: the input is invalid: mk M5: a ring, and only it, has rows and a window, at mk.buffer
// -----
// a ring that is too short
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "cache" "a" {policy = "ring", rows = 16 : i64, window = 17 : i64} : !mk.buffer<1x2x?x4xf32>
}
// CHECK: the input is invalid: mk M5: a ring of 16 rows is too short for a window of 17 and 1 new ones, at mk.buffer
// -----
// a negative offset
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" {offset = -64 : i64} : !mk.buffer<4xf32>
}
// CHECK: the input is invalid: mk M5: an offset is not negative, at mk.buffer
// -----
// sinks without a ring
mk.program "f" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "cache" "a" {policy = "doubling", sinks = 2 : i64} : !mk.buffer<1x2x?x4xf32>
}
// CHECK: the input is invalid: mk M5: only a ring has sinks, and then some, at mk.buffer
// -----
// sinks that leave no room for the window
mk.program "f" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "cache" "a" {policy = "ring", rows = 16 : i64, window = 15 : i64, sinks = 2 : i64} : !mk.buffer<1x2x?x4xf32>
}
// CHECK: the input is invalid: mk M5: a ring of 16 rows is too short for a window of 15 and 1 new ones, at mk.buffer
