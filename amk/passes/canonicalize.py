"""`canonicalize`: one form for what can be written in several.

Shape ops fold, scalars leave tensors, products with a weight become `lm.linear`, a fused
projection becomes its parts, learned positions become `lm.rows`; then common subexpressions are
shared and dead ops erased. The rules stand in `shape_rules.py`, `arith_rules.py` and
`linear_rules.py`; only the last change bits.

Before:

    func.func @step(%x: tensor<1x1x8xf32>, %pos: index)
        -> (tensor<1x1x8xf32>, tensor<1x1x4xf32>) {
      %w = lm.weight "qkv.weight" : tensor<12x8xf32>
      %one = lm.mul_scalar %x, 1.0 : f64 : tensor<1x1x8xf32> -> tensor<1x1x8xf32>
      %y = lm.linear %one, %w : tensor<1x1x8xf32>, tensor<12x8xf32> -> tensor<1x1x12xf32>
      %q = lm.slice %y {dim = 2 : i64, start = 0 : i64, end = 8 : i64, step = 1 : i64}
        : tensor<1x1x12xf32> -> tensor<1x1x8xf32>
      %k = lm.slice %y {dim = 2 : i64, start = 8 : i64, end = 12 : i64, step = 1 : i64}
        : tensor<1x1x12xf32> -> tensor<1x1x4xf32>
      func.return %q, %k : tensor<1x1x8xf32>, tensor<1x1x4xf32>
    }

After, with `canonicalize`:

    func.func @step(%x: tensor<1x1x8xf32>, %pos: index)
        -> (tensor<1x1x8xf32>, tensor<1x1x4xf32>) {
      %w = lm.weight "qkv.weight" : tensor<12x8xf32>
      %wq = lm.slice %w {dim = 0 : i64, start = 0 : i64, end = 8 : i64, step = 1 : i64}
        : tensor<12x8xf32> -> tensor<8x8xf32>
      %q = lm.linear %x, %wq : tensor<1x1x8xf32>, tensor<8x8xf32> -> tensor<1x1x8xf32>
      %wk = lm.slice %w {dim = 0 : i64, start = 8 : i64, end = 12 : i64, step = 1 : i64}
        : tensor<12x8xf32> -> tensor<4x8xf32>
      %k = lm.linear %x, %wk : tensor<1x1x8xf32>, tensor<4x8xf32> -> tensor<1x1x4xf32>
      func.return %q, %k : tensor<1x1x8xf32>, tensor<1x1x4xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms.common_subexpression_elimination import cse

from amk.passes.arith_rules import ARITH_RULES
from amk.passes.linear_rules import LINEAR_RULES
from amk.passes.rewriting import LmPass, merged, rewrite
from amk.passes.shape_rules import SHAPE_RULES

RULES = merged(SHAPE_RULES, ARITH_RULES, LINEAR_RULES)


@dataclass(frozen=True)
class Canonicalize(LmPass):
    name = "canonicalize"
    tolerance: ClassVar[float] = 1e-5
    """Of f32 sums in another order; 0 when no product was rewritten."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        # Sharing first lets rules see that two readers read one value.
        cse(op)
        self.counts.update(rewrite(op, RULES, self.name))
        cse(op)
