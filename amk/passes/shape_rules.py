"""Canonicalization rules for shape ops and casts. All keep every bit."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import AnyFloat, BFloat16Type, Float16Type, Float32Type, Float64Type
from xdsl.ir import Attribute, SSAValue

from amk.ir import lm
from amk.ir.lm import element_of, shape_of
from amk.passes.rewriting import Build, Rules, has_one_use, integers, producer

SIGNIFICAND_AND_EXPONENT = {
    BFloat16Type: (8, 8),
    Float16Type: (11, 5),
    Float32Type: (24, 8),
    Float64Type: (53, 11),
}
"""Bits of the formats of IEEE 754 and bfloat16: one holds another when it has both or more."""


def permutation_of(op: lm.TransposeOp) -> list[int]:
    return integers(op.permutation)


def widens(narrow: Attribute, wide: Attribute) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    a, b = (SIGNIFICAND_AND_EXPONENT.get(type(t)) for t in (narrow, wide))
    return a is not None and b is not None and a[0] <= b[0] and a[1] <= b[1]


def is_layout_of_weight(value: SSAValue) -> bool:
    """Whether `value` is a weight, or only shape ops on one weight."""
    while isinstance(value.owner, (lm.ReshapeOp, lm.TransposeOp, lm.SliceOp)):
        value = value.owner.input
    return isinstance(value.owner, lm.WeightOp)


def only_adds_leading_units(inner: Sequence[int], outer: Sequence[int]) -> bool:
    extra = len(outer) - len(inner)
    return (
        extra >= 0 and tuple(outer[extra:]) == tuple(inner) and all(d == 1 for d in outer[:extra])
    )


# ---- reshape ------------------------------------------------------------------------------


def reshape_to_same_shape(op: lm.ReshapeOp, build: Build) -> SSAValue | None:
    return op.input if op.input.type == op.result.type else None


def reshape_of_reshape(op: lm.ReshapeOp, build: Build) -> SSAValue | None:
    inner = producer(op.input, lm.ReshapeOp)
    if inner is None:
        return None
    return build(lm.ReshapeOp(inner.input, shape_of(op.result)))


def reshape_of_cast_weight(op: lm.ReshapeOp, build: Build) -> SSAValue | None:
    cast = producer(op.input, lm.CastOp)
    if cast is None or not is_layout_of_weight(cast.input):
        return None
    inner = build(lm.ReshapeOp(cast.input, shape_of(op.result)))
    return build(lm.CastOp(inner, element_of(op.result)))


# ---- transpose ----------------------------------------------------------------------------


def transpose_of_nothing(op: lm.TransposeOp, build: Build) -> SSAValue | None:
    permutation = permutation_of(op)
    return op.input if permutation == list(range(len(permutation))) else None


def transpose_of_transpose(op: lm.TransposeOp, build: Build) -> SSAValue | None:
    inner = producer(op.input, lm.TransposeOp)
    if inner is None:
        return None
    first = permutation_of(inner)
    return build(lm.TransposeOp(inner.input, [first[p] for p in permutation_of(op)]))


def transpose_of_cast_weight(op: lm.TransposeOp, build: Build) -> SSAValue | None:
    cast = producer(op.input, lm.CastOp)
    if cast is None or not is_layout_of_weight(cast.input):
        return None
    inner = build(lm.TransposeOp(cast.input, permutation_of(op)))
    return build(lm.CastOp(inner, element_of(op.result)))


# ---- slice --------------------------------------------------------------------------------


def slice_of_everything(op: lm.SliceOp, build: Build) -> SSAValue | None:
    return op.input if op.input.type == op.result.type else None


def slice_of_slice(op: lm.SliceOp, build: Build) -> SSAValue | None:
    """Only when nothing else reads the inner slice: a head that is sliced off a projection and
    then halved by RoPE stays one value."""
    inner = producer(op.input, lm.SliceOp)
    if inner is None or not has_one_use(inner.result):
        return None
    dim, start, end, step = op.bounds()
    inner_dim, inner_start, _, inner_step = inner.bounds()
    if dim != inner_dim:
        return None
    first = inner_start + start * inner_step
    last = inner_start + (end - 1) * inner_step + 1 if end > start else first
    return build(lm.SliceOp(inner.input, dim, first, last, step * inner_step))


def slice_of_concat(op: lm.SliceOp, build: Build) -> SSAValue | None:
    """A slice that lies in one operand of a concat reads that operand."""
    concat = producer(op.input, lm.ConcatOp)
    if concat is None or concat.dim.value.data != op.dim.value.data:
        return None
    dim, start, end, step = op.bounds()
    offset = 0
    for part in concat.inputs:
        extent = shape_of(part)[dim]
        if offset <= start and end <= offset + extent:
            return build(lm.SliceOp(part, dim, start - offset, end - offset, step))
        offset += extent
    return None


def slice_of_cast_weight(op: lm.SliceOp, build: Build) -> SSAValue | None:
    cast = producer(op.input, lm.CastOp)
    if cast is None or not is_layout_of_weight(cast.input):
        return None
    inner = build(lm.SliceOp(cast.input, *op.bounds()))
    return build(lm.CastOp(inner, element_of(op.result)))


# ---- concat, expand, cast -----------------------------------------------------------------


def concat_of_one(op: lm.ConcatOp, build: Build) -> SSAValue | None:
    return op.inputs[0] if len(op.inputs) == 1 else None


def concat_without_empty(op: lm.ConcatOp, build: Build) -> SSAValue | None:
    """What has no elements adds none: the rest of a head that a whole rotation leaves."""
    dim = op.dim.value.data
    full = [v for v in op.inputs if shape_of(v)[dim] != 0]
    return build(lm.ConcatOp(full, dim)) if 0 < len(full) < len(op.inputs) else None


def expand_to_same_shape(op: lm.ExpandOp, build: Build) -> SSAValue | None:
    return op.input if op.input.type == op.result.type else None


def expand_of_expand(op: lm.ExpandOp, build: Build) -> SSAValue | None:
    inner = producer(op.input, lm.ExpandOp)
    return None if inner is None else build(lm.ExpandOp(inner.input, shape_of(op.result)))


def cast_to_same_type(op: lm.CastOp, build: Build) -> SSAValue | None:
    return op.input if op.input.type == op.result.type else None


def cast_of_widening_cast(op: lm.CastOp, build: Build) -> SSAValue | None:
    """A first cast that loses nothing can be left out."""
    inner = producer(op.input, lm.CastOp)
    if inner is None or not widens(element_of(inner.input), element_of(inner.result)):
        return None
    if not isinstance(element_of(op.result), AnyFloat):
        return None
    return build(lm.CastOp(inner.input, element_of(op.result)))


# ---- operands of broadcasting ops ---------------------------------------------------------


def unbroadcast(value: SSAValue, other: SSAValue, shape: Sequence[int]) -> SSAValue | None:
    """What `value` was expanded or reshaped from, when broadcasting against `other` still gives
    `shape`."""
    owner = value.owner
    if isinstance(owner, lm.ReshapeOp):
        if not only_adds_leading_units(shape_of(owner.input), shape_of(value)):
            return None
    elif not isinstance(owner, lm.ExpandOp):
        return None
    if lm.broadcast_shapes(shape_of(owner.input), shape_of(other)) != tuple(shape):
        return None
    return owner.input


def broadcast_of_expanded(op: lm.BinaryOp, build: Build) -> SSAValue | None:
    """Expands and leading unit axes that broadcasting makes anyway are left out."""
    shape = shape_of(op.result)
    lhs = unbroadcast(op.lhs, op.rhs, shape) or op.lhs
    rhs = unbroadcast(op.rhs, lhs, shape) or op.rhs
    if lhs is op.lhs and rhs is op.rhs:
        return None
    return build(type(op)(lhs, rhs, op.result.type))


SHAPE_RULES: Rules = {
    lm.ReshapeOp: (reshape_to_same_shape, reshape_of_reshape, reshape_of_cast_weight),
    lm.TransposeOp: (transpose_of_nothing, transpose_of_transpose, transpose_of_cast_weight),
    lm.SliceOp: (slice_of_everything, slice_of_concat, slice_of_slice, slice_of_cast_weight),
    lm.ConcatOp: (concat_of_one, concat_without_empty),
    lm.ExpandOp: (expand_to_same_shape, expand_of_expand),
    lm.CastOp: (cast_to_same_type, cast_of_widening_cast),
    **dict.fromkeys(lm.BINARY, (broadcast_of_expanded,)),
}
