"""Boxes of `lm` values: an offset and a size on each axis; offsets may use tile coordinates."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from amk.ir.expr import Const, Expr, wrap
from amk.ir.lm import product, shape_of

Box = tuple[tuple[Expr, int], ...]


def full(value: SSAValue) -> Box:
    return tuple((Const(0), d) for d in shape_of(value))


def sizes(box: Box) -> list[int]:
    return [size for _, size in box]


def offsets(box: Box) -> list[Expr]:
    return [offset for offset, _ in box]


def replace(box: Box, axis: int, offset: Expr | int, size: int) -> Box:
    return (*box[:axis], (wrap(offset), size), *box[axis + 1 :])


def is_full(box: Box, shape: Sequence[int]) -> bool:
    return all(size == d for (_, size), d in zip(box, shape, strict=True))


def broadcast_box(operand: SSAValue, box: Box) -> Box:
    """The box of an operand that broadcasts to the result whose box is given."""
    shape = shape_of(operand)
    tail = box[len(box) - len(shape) :]
    return tuple(
        (Const(0), 1) if d == 1 else (offset, size)
        for d, (offset, size) in zip(shape, tail, strict=True)
    )


def unreshape(box: Box, axis: int, old: Sequence[int], new: Sequence[int]) -> Box | None:
    """The operand's box under a row-major reshape, for a box cut on one axis of the result."""
    before = product(new[:axis])
    places = [i for i in range(len(old)) if product(old[:i]) == before and old[i] != 1]
    if not places:
        return None
    at, (offset, size) = places[0], box[axis]
    whole: Box = tuple((Const(0), d) for d in old)
    extent, found = new[axis], old[at]
    if found % extent == 0:
        k = found // extent
        return replace(whole, at, offset * k, size * k)
    if extent % found == 0 and size % (extent // found) == 0:
        k = extent // found
        start = offset // k
        return replace(whole, at, start, size // k) if start * k == offset else None
    return None


def unreshape_pair(box: Box, axis: int, old: Sequence[int], new: Sequence[int]) -> Box | None:
    """The same for a box cut on `axis`, to one index of it, and on the axis after: the two are one
    axis [.., H · D, ..] of the operand."""
    (first, one), (second, size) = box[axis : axis + 2]
    if one != 1:
        return None
    depth = new[axis + 1]
    joined: Box = (*box[:axis], (first * depth + second, size), *box[axis + 2 :])
    shape = [*new[:axis], new[axis] * depth, *new[axis + 2 :]]
    return unreshape(joined, axis, old, shape)
