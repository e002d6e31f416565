"""Canonicalization rules for arithmetic and lookups. All keep every bit.

Adding +0.0 is left alone: it turns −0.0 into +0.0.
"""

from __future__ import annotations

import math

from xdsl.dialects.builtin import IntegerType
from xdsl.ir import SSAValue

from amk.ir import lm
from amk.ir.lm import element_of, product, shape_of
from amk.passes.rewriting import Build, Rules, producer

NEUTRAL: dict[type[lm.ScalarOp], float] = {
    lm.MulScalarOp: 1.0,
    lm.DivScalarOp: 1.0,
    lm.PowScalarOp: 1.0,
    lm.SubScalarOp: 0.0,
    lm.AddScalarOp: -0.0,
}
"""The scalar that leaves every float, −0.0 included, as it is."""

SCALAR_FORM: dict[type[lm.BinaryOp], type[lm.ScalarOp]] = {
    lm.AddOp: lm.AddScalarOp,
    lm.SubOp: lm.SubScalarOp,
    lm.MulOp: lm.MulScalarOp,
    lm.DivOp: lm.DivScalarOp,
    lm.PowOp: lm.PowScalarOp,
}
"""x ∘ constant as a scalar op."""

SCALAR_FORM_SWAPPED: dict[type[lm.BinaryOp], type[lm.ScalarOp]] = {
    lm.AddOp: lm.AddScalarOp,
    lm.SubOp: lm.RsubScalarOp,
    lm.MulOp: lm.MulScalarOp,
}
"""constant ∘ x as a scalar op."""


def same_float(a: float, b: float) -> bool:
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)


def neutral_scalar(op: lm.ScalarOp, build: Build) -> SSAValue | None:
    if op.input.type != op.result.type:
        return None
    value, neutral = op.value.value.data, NEUTRAL[type(op)]
    integers = isinstance(element_of(op.input), IntegerType)
    same = value == neutral if integers else same_float(value, neutral)
    return op.input if same else None


def neg_of_neg(op: lm.NegOp, build: Build) -> SSAValue | None:
    inner = producer(op.input, lm.NegOp)
    return None if inner is None else inner.input


def scalar_of(value: SSAValue) -> float | None:
    """The number in a one-element finite constant, looking through reshapes and expands."""
    while isinstance(value.owner, (lm.ReshapeOp, lm.ExpandOp)):
        value = value.owner.input
    constant = producer(value, lm.ConstantOp)
    if constant is None or product(shape_of(value)) != 1:
        return None
    number = constant.value.get_values()[0]
    return float(number) if isinstance(number, (int, float)) and math.isfinite(number) else None


def constant_operand(op: lm.BinaryOp, build: Build) -> SSAValue | None:
    """An operand that is one number becomes the scalar of a scalar op."""
    for x, c, forms in (
        (op.lhs, op.rhs, SCALAR_FORM),
        (op.rhs, op.lhs, SCALAR_FORM_SWAPPED),
    ):
        # Operands of two dtypes promote in ways a scalar does not take part in.
        if type(op) not in forms or x.type != op.result.type or element_of(c) != element_of(x):
            continue
        number = scalar_of(c)
        if number is not None:
            return build(forms[type(op)](x, number))
    return None


def positions_plus(value: SSAValue) -> tuple[lm.PositionsOp, int] | None:
    """`lm.positions` plus an integer, when that is all `value` is."""
    offset = 0
    while not isinstance(value.owner, lm.PositionsOp):
        owner = value.owner
        if isinstance(owner, (lm.AddScalarOp, lm.SubScalarOp)):
            number = owner.value.value.data
            if not isinstance(element_of(value), IntegerType) or number != int(number):
                return None
            offset += int(number) if isinstance(owner, lm.AddScalarOp) else -int(number)
            value = owner.input
        elif isinstance(owner, lm.ReshapeOp):
            value = owner.input
        else:
            return None
    return value.owner, offset


def embedding_of_positions(op: lm.EmbeddingOp, build: Build) -> SSAValue | None:
    """Learned positions are a run of rows; a constant offset drops the table's first rows."""
    found = positions_plus(op.indices)
    if found is None:
        return None
    positions, offset = found
    entries, width = shape_of(op.weight)
    if not 0 <= offset < entries:
        return None
    table: SSAValue = op.weight
    if offset:
        table = build(lm.SliceOp(table, 0, offset, entries))
    rows = build(lm.RowsOp(table, positions.position, product(shape_of(op.indices))))
    return build(lm.ReshapeOp(rows, (*shape_of(op.indices), width)))


ARITH_RULES: Rules = {
    lm.NegOp: (neg_of_neg,),
    lm.EmbeddingOp: (embedding_of_positions,),
    **dict.fromkeys(NEUTRAL, (neutral_scalar,)),
    **dict.fromkeys(SCALAR_FORM, (constant_operand,)),
}
