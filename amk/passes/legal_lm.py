"""`legal-lm`: refuses what no later pass understands.

Stands after the passes on `lm` and before fusion, so that a half-lowered program is caught here
and not in an emitter. Changes nothing; the error names the first op that breaks a rule, where it
was imported from, and the pass that should have removed it.

Before:

    func.func @step(%x: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
      %w = lm.weight "norm.weight" : tensor<8xf32>
      %s = lm.add_scalar %w, 1.0 : f64 : tensor<8xf32> -> tensor<8xf32>
      %y = lm.mul %x, %s : tensor<1x1x8xf32>, tensor<8xf32> -> tensor<1x1x8xf32>
      func.return %y : tensor<1x1x8xf32>
    }

The error, with `legal-lm`:

    legal-lm: depends on weights and constants alone; run split-init, at lm.add_scalar
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import AnyFloat, IntegerAttr, ModuleOp, TensorType, f32
from xdsl.ir import Attribute, Operation, SSAValue

from amk.errors import AmkError
from amk.ir import lm
from amk.ir.lm import shape_of
from amk.passes.max_seq import ATTRIBUTE
from amk.passes.rewriting import LmPass, step_of, where
from amk.passes.split_init import fixed_values, is_leaf

GONE: dict[type[Operation], str] = {
    lm.AttentionOp: "split-kv",
    lm.ConstantOp: "split-init",
    lm.AddmmOp: "canonicalize",
    lm.MatmulOp: "canonicalize",
}
"""Ops that a pass must have removed, and that pass."""


def narrow_float(type: Attribute) -> bool:
    return (
        isinstance(type, TensorType)
        and isinstance(type.element_type, AnyFloat)
        and type.element_type != f32
    )


def faults(module: ModuleOp) -> Iterator[tuple[Operation, str]]:
    """(op, what is wrong and what to do) for each rule an op in `@step` breaks."""
    step = step_of(module, LegalLm.name)
    block = step.body.block
    fixed: set[SSAValue] = fixed_values(block, (lm.WeightOp, lm.ConstantOp))
    attribute = module.attributes.get(ATTRIBUTE)
    max_seq = attribute.value.data if isinstance(attribute, IntegerAttr) else None
    for op in block.walk():
        if type(op) in GONE:
            yield op, f"{op.name} is left; run {GONE[type(op)]}"
        if any(narrow_float(v.type) for v in op.results) and not isinstance(op, lm.WeightOp):
            yield op, "arithmetic that is not f32; run promote-f32"
        if any(v in fixed and not is_leaf(v) for v in op.results):
            yield op, "depends on weights and constants alone; run split-init"
        if isinstance(op, lm.RowsOp) and max_seq is not None:
            rows = shape_of(op.table)[0]
            if rows < max_seq:
                yield op, f"the table has {rows} rows; compile for max_seq ≤ {rows}"


@dataclass(frozen=True)
class LegalLm(LmPass):
    name = "legal-lm"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for fault, what in faults(op):
            raise AmkError(f"legal-lm: {what}, at {where(fault)}")
