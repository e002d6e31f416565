// RUN: amk-opt %s -p canonicalize,dce --time-passes --pass-statistics 2>&1 | filecheck %s
// RUN: amk-opt %s -p canonicalize --print-between-passes 2>&1 | filecheck %s --check-prefix=DUMP
// RUN: amk-opt %s -p canonicalize --time-passes --print-between-passes | filecheck %s --check-prefix=CLEAN
// RUN: amk-opt --list-passes | filecheck %s --check-prefix=LIST
// RUN: amk-opt --help | filecheck %s --check-prefix=HELP

func.func @step(%x: tensor<4xf32>, %pos: index) -> tensor<4xf32> {
  %y = lm.neg %x : tensor<4xf32>
  %z = lm.neg %y : tensor<4xf32>
  func.return %z : tensor<4xf32>
}

// CHECK-DAG: canonicalize: {{[0-9.]+}} ms
// CHECK-DAG: dce: {{[0-9.]+}} ms
// CHECK-DAG: canonicalize: 1 neg_of_neg
// CHECK-DAG: dce: nothing

// DUMP: // IR after canonicalize:
// DUMP: func.func @step

// CLEAN-NOT: ms
// CLEAN-NOT: IR after
// CLEAN: builtin.module
// CLEAN-NOT: lm.neg

// LIST: passes:
// LIST: canonicalize  one form for what can be written in several.
// LIST: split-kv{chunk=256 max-seq=none}
// LIST: pipelines:
// LIST: amk-decode

// HELP: usage: amk-opt
// HELP: examples:
// HELP: amk-opt step.mlir -p canonicalize,raise
