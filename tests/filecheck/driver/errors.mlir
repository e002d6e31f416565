// RUN: not 2 amk-opt %s -p no-such-pass 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not 2 amk-opt %s -p 'split-kv{chunk=x}' 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not 2 amk-opt %s -p 'cse{' 2>&1 | filecheck %s --check-prefix=SYNTAX
// RUN: not 2 amk-opt %s -p 'amk-lm{colour=1}' 2>&1 | filecheck %s --check-prefix=PIPELINE
// RUN: not 2 amk-opt %s --no-such-flag 2>&1 | filecheck %s --check-prefix=FLAG
// RUN: not amk-opt %s.missing 2>&1 | filecheck %s --check-prefix=MISSING
// RUN: not amk-opt %s -p split-kv 2>&1 | filecheck %s --check-prefix=FAILED

func.func @step(%x: tensor<4xf32>, %pos: index) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}

// UNKNOWN: amk-opt: error: unknown pass 'no-such-pass'; known: amk-
// OPTION: amk-opt: error: pass split-kv:
// SYNTAX: amk-opt: error: cannot read the pipeline 'cse{':
// PIPELINE: amk-opt: error: pipeline amk-lm: no pass has the option 'colour'
// FLAG: amk-opt: error: unrecognized arguments: --no-such-flag
// MISSING: amk-opt: error: {{.*}}errors.mlir.missing: No such file or directory
// FAILED: amk-opt: error: split-kv: give max-seq, or set amk.max_seq on the module
