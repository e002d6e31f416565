// RUN: amk-opt %s --run 3,1 | filecheck %s --check-prefix=LOGITS
// RUN: amk-opt %s -p 'amk-decode{max-seq=16}' --run 3,1 | filecheck %s --check-prefix=LOGITS
// RUN: amk-opt %s -p 'amk-decode{max-seq=16}' -t cpu | filecheck %s --check-prefix=C
// RUN: amk-opt %s -p 'amk-decode{max-seq=16}' --print-debuginfo | filecheck %s --check-prefix=LOC
// RUN: not amk-opt %s -t cpu 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not 2 amk-opt %s --run 3,x 2>&1 | filecheck %s --check-prefix=TOKENS

builtin.module attributes {amk.tokens = 1 : i64} {
  func.func @step(%tokens: tensor<1x1xi64>, %pos: index) -> tensor<1x1x24xf32> {
    %w = lm.weight "embed" : tensor<24x8xf32>
    %x = lm.embedding %w, %tokens : tensor<24x8xf32>, tensor<1x1xi64> -> tensor<1x1x8xf32>
    %h = lm.weight "head" : tensor<24x8xf32>
    %y = lm.linear %x, %h : tensor<1x1x8xf32>, tensor<24x8xf32> -> tensor<1x1x24xf32> loc("head")
    func.return %y : tensor<1x1x24xf32>
  }
}

// LOGITS: {"position": 0, "argmax": [[FIRST:[0-9]+]], "logits": [{{.*}}]}
// LOGITS-NEXT: {"position": 1, "argmax": {{[0-9]+}}, "logits": [{{.*}}]}

// C: static const amk_stage program_0[] = {
// C: int amk_launch(void *pool, int program, long past

// LOC: mk.matmul {{.*}} loc("head")
// NONE: amk-opt: error: -t cpu: the module has no mk.program; run amk-decode first
// TOKENS: amk-opt: error: argument --run: invalid token_list value: '3,x'
