"""How a partition of a contraction's output features carries through the ops that follow it.

`fuse` asks whether an op may join the epilogue of a contraction, `lower-lm-to-mk` asks how many
elements of an output belong to one tile: both questions are answered by `through`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

from xdsl.ir import Operation, SSAValue

from amk.ir import kv, lm
from amk.ir.lm import product, shape_of
from amk.passes.rewriting import integers


@dataclass(frozen=True)
class Tiling:
    """A value cut along `axis`; one index of the axis stands for `per_index` output features of
    the contraction, and a tile must hold a multiple of `granule` features.

    `features` is the contraction's number of output features; a tiling whose granule equals it
    (`whole`) has one tile, and any op may follow it."""

    axis: int
    per_index: int
    granule: int
    features: int

    @property
    def whole(self) -> bool:
        return self.granule == self.features

    def as_whole(self) -> Tiling:
        return Tiling(0, 1, self.features, self.features)

    def extent(self, features: int) -> int:
        """Indices of the axis that a tile of so many features holds."""
        return features // self.per_index


def of_linear(op: lm.LinearOp) -> Tiling:
    shape = shape_of(op.result)
    return Tiling(len(shape) - 1, 1, 1, shape[-1])


def through_reshape(t: Tiling, old: Sequence[int], new: Sequence[int]) -> Tiling | None:
    """Row-major reshape: the axis is found again where the extents before it multiply to the same.

    [.., N] → [.., H, D] cuts by heads; [.., H, D] → [.., H·D] keeps whole heads."""
    before, extent = product(old[: t.axis]), old[t.axis]
    places = [i for i in range(len(new)) if product(new[:i]) == before and new[i] != 1]
    if not places:
        return None
    axis = places[0]
    found = new[axis]
    if found == extent:
        return Tiling(axis, t.per_index, t.granule, t.features)
    if found < extent and extent % found == 0:
        per_index = t.per_index * (extent // found)
        return Tiling(axis, per_index, lcm(t.granule, per_index), t.features)
    if found % extent == 0 and t.per_index % (found // extent) == 0:
        return Tiling(axis, t.per_index // (found // extent), t.granule, t.features)
    return None


def _broadcast(t: Tiling, operand: SSAValue, result: Sequence[int]) -> Tiling | None:
    axis = t.axis + len(result) - len(shape_of(operand))
    if shape_of(operand)[t.axis] != result[axis]:
        return None
    return Tiling(axis, t.per_index, t.granule, t.features)


def _through(op: Operation, operand: SSAValue, t: Tiling) -> Tiling | None:
    match op:
        case lm.SoftmaxOp():
            return t if t.axis != op.dim.value.data else None
        case lm.UnaryOp() | lm.ScalarOp() | lm.CastOp() | lm.GatedActOp():
            return t
        case lm.BinaryOp() | lm.ExpandOp():
            return _broadcast(t, operand, shape_of(op.result))
        case lm.NormOp():
            return t if operand is op.input and t.axis != len(shape_of(op.input)) - 1 else None
        case lm.RopeOp():
            return t if operand is op.input and t.axis != len(shape_of(op.input)) - 1 else None
        case lm.ReduceOp():
            dims = integers(op.dims)
            if t.axis in dims:
                return None
            dropped = 0 if op.keepdim.value.data else sum(d < t.axis for d in dims)
            return Tiling(t.axis - dropped, t.per_index, t.granule, t.features)
        case lm.ReshapeOp():
            return through_reshape(t, shape_of(op.input), shape_of(op.result))
        case lm.TransposeOp():
            axis = integers(op.permutation).index(t.axis)
            return Tiling(axis, t.per_index, t.granule, t.features)
        case lm.SliceOp() | lm.ConcatOp():
            return t if t.axis != op.dim.value.data else None
        case kv.AppendOp():
            assert isinstance(op.cache.type, kv.CacheType)
            return t if t.axis != op.cache.type.axis.data else None
    return None


FUSIBLE = (
    *lm.UNARY, *lm.BINARY, *lm.SCALAR, *lm.REDUCTIONS, *lm.SHAPE, lm.CastOp, lm.SoftmaxOp,
    lm.RMSNormOp, lm.LayerNormOp, lm.RopeOp, lm.GatedActOp,
)  # fmt: skip
"""Ops that compute a row (or less) from a row: they may run in a prologue or an epilogue."""


LARGEST_WHOLE = 256
"""Features of a contraction that may become one tile: those of a single head."""


def through(op: Operation, operand: SSAValue, t: Tiling) -> Tiling | None:
    """The tiling of `op`'s result when `operand` is cut as `t`; None when a tile would need more
    than its own share. The contraction of a single head may become one tile."""
    if not isinstance(op, (*FUSIBLE, kv.AppendOp)):
        return None
    if t.whole:
        return t
    found = _through(op, operand, t)
    heads = len(shape_of(operand)) == 4
    if found is None and heads and t.features <= LARGEST_WHOLE:
        return t.as_whole()
    return found
