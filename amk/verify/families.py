"""A family: the boxes that the tiles of one part give one access, seen as a whole.

The *hull* of a family is the smallest box around all of them. A family is *disjoint* when no two
tiles share an element, and *dense* when together they fill the hull; both are decided from the
strides of the tile coordinates, and "not known" counts as no.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from amk.ir.expr import Expr, Sum, Sym
from amk.verify.model import Access, Box
from amk.verify.positions import (
    Interval,
    Number,
    Positions,
    Truth,
    always,
    both,
    larger,
    positive,
    smaller,
)


@dataclass(frozen=True)
class Family:
    hull: tuple[Interval, ...]
    """Half-open, an axis each."""
    filled: Truth
    """Is any box there at all?"""
    disjoint: bool
    dense: bool

    def volume(self) -> Number:
        """Elements of the hull."""
        total: Number = 1
        for low, high in self.hull:
            total = total * positive(high - low)
        return total

    def common(self, other: Family) -> Number:
        """Elements that both hulls hold."""
        total: Number = 1
        for (a, b), (c, d) in zip(self.hull, other.hull, strict=True):
            total = total * positive(smaller(b, d) - larger(a, c))
        return total * as_number(both(self.filled, other.filled))

    def apart(self, other: Family) -> Truth:
        """Do the hulls share nothing?"""
        return self.common(other) == 0  # type: ignore[return-value]


def as_number(t: Truth) -> Number:
    return t.astype("int64") if isinstance(t, np.ndarray) else int(t)


class Families:
    """Families by shape: layers that repeat a stage share them."""

    def __init__(self, positions: Positions):
        self.positions = positions
        self.known: dict[tuple[Box, tuple[Expr, ...]], Family] = {}

    def of(self, access: Access) -> Family:
        grid = () if access.prologue else access.part.grid
        key = (access.box, grid)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.make(access.box, grid)
        return found

    def make(self, box: Box, grid: tuple[Expr, ...]) -> Family:
        at = self.positions
        filled: Truth = True
        hull: list[Interval] = []
        for low, high in box:
            a, b = at.interval(low, grid)[0], at.interval(high, grid)[1]
            hull.append((a, b))
            filled = both(filled, a < b)
        for e in grid:
            filled = both(filled, at.value(e) > 0)
        disjoint, dense = self.strides(box, grid)
        return Family(tuple(hull), filled, disjoint, dense)

    def strides(self, box: Box, grid: tuple[Expr, ...]) -> tuple[bool, bool]:
        """(disjoint, dense), by sorting the coordinates of each axis by stride: the boxes of an
        axis are apart when each stride reaches past everything the smaller ones span, and leave
        no gap when each reaches no further."""
        wide = {f"t{i}": e for i, e in enumerate(grid) if not always(self.positions.value(e) <= 1)}
        if not wide:
            return True, True
        apart = dense = True
        used: set[str] = set()
        for low, high in box:
            factors = affine(low)
            size = high - low
            if factors is None or not size.symbols() <= {"P"}:
                return False, False
            span: Number = self.positions.value(size)
            inner = [(abs(c), name) for name, c in factors.items() if name in wide]
            if used & {name for _, name in inner}:
                return False, False
            used |= {name for _, name in inner}
            for stride, name in sorted(inner):
                apart = apart and always(stride >= span)
                dense = dense and always(stride <= span)
                count = positive(self.positions.value(wide[name]))
                span = stride * positive(count - 1) + span
        apart = apart and used == wide.keys()
        return apart, dense


def affine(e: Expr) -> dict[str, int] | None:
    """The factor of each tile coordinate, or None when one is inside a division or a bound."""
    terms = e.terms if isinstance(e, Sum) else ((e, 1),)
    factors: dict[str, int] = {}
    for term, factor in terms:
        if isinstance(term, Sym):
            if term.name != "P":
                factors[term.name] = factor
        elif not term.symbols() <= {"P"}:
            return None
    return factors
