"""`greedy-head`: the token with the largest logit becomes a result of @step, after the logits.

Greedy decoding then needs no look at the logits, and a launch may feed itself. Changes nothing
else.

Before:

    func.func @step(%logits: tensor<1x1x97xf32>, %pos: index) -> tensor<1x1x97xf32> {
      func.return %logits : tensor<1x1x97xf32>
    }

After:

    func.func @step(%logits: tensor<1x1x97xf32>, %pos: index)
        -> (tensor<1x1x97xf32>, tensor<1x1xi64>) {
      %next = lm.argmax %logits : tensor<1x1x97xf32> -> tensor<1x1xi64>
      func.return %logits, %next : tensor<1x1x97xf32>, tensor<1x1xi64>
    }
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from amk.ir import lm


@dataclass(frozen=True)
class GreedyHead(ModulePass):
    name = "greedy-head"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in op.ops:
            if isinstance(function, func.FuncOp) and function.sym_name.data == "step":
                last = function.body.block.last_op
                assert isinstance(last, func.ReturnOp)
                logits, *rest = last.operands
                best = lm.ArgmaxOp(logits)
                function.body.block.insert_op_before(best, last)
                last.operands = [logits, best.result, *rest]
                function.update_function_type()
