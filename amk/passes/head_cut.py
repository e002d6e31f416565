"""Tiles smaller than a head: how a value [.., heads, .., depth, ..] is cut inside its heads.

Rows of a contraction are independent, so a tile may hold some elements of one head. A rotation
makes element i from elements i and i + depth / 2: a tile that holds the same columns of both halves
has all that its own elements need. What needs a whole head (a norm over it) keeps heads whole.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product as corners_of
from typing import Final, Literal

from xdsl.ir import Operation, SSAValue

from amk.ir import kv, lm
from amk.ir.expr import Expr
from amk.ir.lm import product, shape_of
from amk.passes.boxes import Box
from amk.passes.boxes import replace as replace_axis
from amk.passes.rewriting import integers

FLAT: Final = "flat"
"""The cut of a contraction's output whose features are not viewed as heads yet."""


@dataclass(frozen=True)
class HeadCut:
    """Axes of the heads and of their elements in a value, elements of a head, and whether a
    rotation ties element i to i + size / 2."""

    heads: int
    depth: int
    size: int
    paired: bool = False

    def sizes(self) -> list[int]:
        """Elements of a head that a tile may hold, less than all of them: divisors, in pairs."""
        step = 2 if self.paired else 1
        return [n for n in range(step, self.size, step) if self.size % n == 0]

    def boxes(self, whole: Box, head: Expr, part: Expr, elements: int) -> list[Box]:
        """The boxes of `whole` that part `part` of a head holds: one, or one of each half."""
        whole = replace_axis(whole, self.heads, head, 1)
        if not self.paired:
            return [replace_axis(whole, self.depth, part * elements, elements)]
        n, half = elements // 2, self.size // 2
        return [replace_axis(whole, self.depth, part * n + start, n) for start in (0, half)]


Cut = HeadCut | Literal["flat"] | None
"""None: a tile cannot hold a part of a head of it."""


def through_reshape(cut: HeadCut | Literal["flat"], old: Sequence[int], new: Sequence[int]) -> Cut:
    """[.., H · D] → [.., H, D] makes heads; a reshape that keeps both axes next to each other, and
    all before them in size, keeps the cut."""
    if isinstance(cut, str):
        axis = len(old) - 1
        if new[-1] == old[axis]:
            return FLAT
        places = [
            i for i in range(len(new) - 1)
            if product(new[:i]) == product(old[:axis]) and product(new[i : i + 2]) == old[axis]
        ]  # fmt: skip
        return HeadCut(places[-1], places[-1] + 1, new[places[-1] + 1]) if places else None
    if cut.depth != cut.heads + 1:
        return None
    before, pair = product(old[: cut.heads]), tuple(old[cut.heads : cut.depth + 1])
    places = [
        i for i in range(len(new) - 1)
        if product(new[:i]) == before and tuple(new[i : i + 2]) == pair
    ]  # fmt: skip
    return replace(cut, heads=places[-1], depth=places[-1] + 1) if places else None


def through(op: Operation, operand: SSAValue, cut: Cut) -> Cut:
    """The cut of `op`'s result, from that of `operand`."""
    if cut is None:
        return None
    if isinstance(op, lm.ReshapeOp):
        return through_reshape(cut, shape_of(op.input), shape_of(op.result))
    if isinstance(cut, str):
        elementwise = isinstance(op, (lm.UnaryOp, lm.ScalarOp, lm.CastOp, lm.BinaryOp))
        return FLAT if elementwise and shape_of(operand) == shape_of(op.results[0]) else None
    match op:
        case lm.UnaryOp() | lm.ScalarOp() | lm.CastOp():
            return cut
        case lm.BinaryOp():
            return cut if shape_of(operand) == shape_of(op.result) else None
        case lm.TransposeOp():
            place = integers(op.permutation).index
            return replace(cut, heads=place(cut.heads), depth=place(cut.depth))
        case lm.RopeOp():
            last = operand is op.input and cut.depth == len(shape_of(op.input)) - 1
            return replace(cut, paired=True) if last and not cut.paired else None
        case kv.AppendOp():
            return cut if op.cache.type.axis.data not in (cut.heads, cut.depth) else None  # type: ignore[attr-defined]
    return None


def needs_head(op: Operation, cut: Cut) -> bool:
    """Does an op on a value in heads need all elements of one: a reduction, or a rearrangement?"""
    if not isinstance(cut, HeadCut):
        return False
    match op:
        case lm.NormOp():
            return cut.depth == len(shape_of(op.input)) - 1
        case lm.ReduceOp():
            return cut.depth in integers(op.dims)
        case lm.SliceOp() | lm.ConcatOp() | lm.SoftmaxOp():
            return op.dim.value.data == cut.depth
    return False


def head_cut(value: SSAValue, known: Container[SSAValue], cuts: dict[SSAValue, Cut]) -> Cut:
    """How a value is cut inside heads, where `known` holds what a stage computes from contractions;
    `cuts` remembers."""
    if value not in cuts:
        op = value.owner
        assert isinstance(op, Operation)
        if isinstance(op, lm.LinearOp):
            cuts[value] = FLAT
        else:
            found: set[Cut] = {
                through(op, v, head_cut(v, known, cuts)) for v in op.operands if v in known
            }
            cuts[value] = found.pop() if len(found) == 1 else None
    return cuts[value]


def which_half(offset: Expr, size: int, depth: int, extents: Mapping[str, int]) -> int | None:
    """0 or 1 when [offset, offset + size) lies in that half of [0, depth) for every tile
    coordinate below its extent; None otherwise, or where that is not known. Index expressions are
    monotone in each coordinate, so their corners tell."""
    if not offset.symbols() <= extents.keys():
        return None
    corners = corners_of(*({0, n - 1} for n in extents.values()))
    values = [offset.evaluate(dict(zip(extents, at, strict=True))) for at in corners]
    low, high, half = min(values), max(values) + size, depth // 2
    if low >= 0 and high <= half:
        return 0
    return 1 if half <= low and high <= depth else None
