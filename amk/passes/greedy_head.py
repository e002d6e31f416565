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

from amk.errors import AmkError
from amk.ir import lm
from amk.passes.rewriting import step_of


@dataclass(frozen=True)
class GreedyHead(ModulePass):
    name = "greedy-head"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        step = step_of(op, self.name)
        last = step.body.block.last_op
        assert isinstance(last, func.ReturnOp)
        logits, *rest = last.operands
        if rest and isinstance(rest[0].owner, lm.ArgmaxOp):
            raise AmkError("greedy-head: @step returns the next tokens already")
        best = lm.ArgmaxOp(logits)
        step.body.block.insert_op_before(best, last)
        last.operands = [logits, best.result, *rest]
        step.update_function_type()
