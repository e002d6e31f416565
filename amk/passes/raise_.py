"""`raise`: finds the ops a compiler reasons about in the arithmetic they were written as.

RMSNorm, LayerNorm, rotate-half RoPE, the tanh form of GELU and gated activations. Run it after
`canonicalize`. What is raised, and whether the raised op has the bits of what it replaces (in
f32, in the `lm` interpreter), stands at each rule: see `norm_rules.py`, `rope_rules.py` and
`activation_rules.py`.

Before:

    func.func @step(%x: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
      %w = lm.weight "norm.weight" : tensor<8xf32>
      %p = lm.pow_scalar %x, 2.0 : f64 : tensor<1x1x8xf32> -> tensor<1x1x8xf32>
      %m = lm.mean %p {dims = array<i64: 2>, keepdim = true}
        : tensor<1x1x8xf32> -> tensor<1x1x1xf32>
      %a = lm.add_scalar %m, 1.0e-6 : f64 : tensor<1x1x1xf32> -> tensor<1x1x1xf32>
      %r = lm.rsqrt %a : tensor<1x1x1xf32>
      %n = lm.mul %x, %r : tensor<1x1x8xf32>, tensor<1x1x1xf32> -> tensor<1x1x8xf32>
      %y = lm.mul %w, %n : tensor<8xf32>, tensor<1x1x8xf32> -> tensor<1x1x8xf32>
      func.return %y : tensor<1x1x8xf32>
    }

After, with `raise`:

    func.func @step(%x: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
      %w = lm.weight "norm.weight" : tensor<8xf32>
      %y = lm.rms_norm %x weight %w : tensor<8xf32> {eps = 1.0e-6 : f64} : tensor<1x1x8xf32>
      func.return %y : tensor<1x1x8xf32>
    }
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from amk.ir import lm
from amk.passes.activation_rules import ACTIVATION_RULES
from amk.passes.norm_rules import NORM_RULES
from amk.passes.rewriting import LmPass, merged, rewrite
from amk.passes.rope_rules import ROPE_RULES

RULES = merged(NORM_RULES, ROPE_RULES, ACTIVATION_RULES)
RAISED = (lm.RMSNormOp, lm.LayerNormOp, lm.RopeOp, lm.GeluTanhOp, lm.GatedActOp)


def count_raised(module: ModuleOp) -> Counter[str]:
    """How many of each raised op the module holds, by op name."""
    return Counter(op.name for op in module.walk() if isinstance(op, RAISED))


@dataclass(frozen=True)
class Raise(LmPass):
    name = "raise"
    tolerance: ClassVar[float] = 1e-5
    """0 where no LayerNorm, no GELU and no power −1/2 was raised."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        before = count_raised(op)
        rewrite(op, RULES, self.name)
        self.counts.update(count_raised(op) - before)
