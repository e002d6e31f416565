// RUN: amk-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// more tokens than positions
mk.program "p" attributes {tokens = 65 : i64, max_seq = 64 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
}
// CHECK: the input is invalid: mk M4: 0 < tokens ≤ max_seq, at mk.program
// -----
// another op
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
  %c = arith.constant 0 : index
}
// CHECK: the input is invalid: mk M4: a program holds buffers, events, streams and stages, not arith.constant, at mk.program
// -----
// another schedule
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64, schedule = "eager"} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
}
// CHECK: the input is invalid: mk M4: schedule 'eager'; known: ('claimed', 'static'), at mk.program
// -----
// a static schedule without workers
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64, schedule = "static"} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
}
// CHECK: the input is invalid: mk M4: a static schedule, and only it, has a number of workers, at mk.program
// -----
// a claimed schedule with workers
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64, schedule = "claimed", workers = 2 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
}
// CHECK: the input is invalid: mk M4: a static schedule, and only it, has a number of workers, at mk.program
// -----
// no workers
mk.program "p" attributes {tokens = 1 : i64, max_seq = 64 : i64, schedule = "static", workers = 0 : i64} {
  %a = mk.buffer "activation" "a" : !mk.buffer<4x16xf32>
}
// CHECK: the input is invalid: mk M4: workers are positive, at mk.program
