"""Index expressions over every position at once.

A *number* is an int where nothing depends on the position, else an int64 array with an entry a
past length 0 … max_seq − tokens. So a comparison is decided at every position, none left out and
none sampled, and the first failing entry is the smallest position of a counterexample.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from amk.ir.expr import Bound, Const, Div, Expr, Sum, Sym

Number = int | np.ndarray
Truth = bool | np.bool_ | np.ndarray
Interval = tuple[Number, Number]
"""Least and greatest value, both taken or beyond what is taken."""


class Positions:
    """Evaluates expressions at past lengths 0 … count − 1, each distinct one once."""

    def __init__(self, count: int):
        self.count = count
        self.past = np.arange(count, dtype=np.int64)
        self.values: dict[Expr, Number] = {}
        self.intervals: dict[tuple[Expr, tuple[Expr, ...]], Interval] = {}

    def value(self, e: Expr) -> Number:
        """An expression in P."""
        found = self.values.get(e)
        if found is None:
            low, high = self.walk(e, ())
            assert low is high or np.array_equal(low, high)
            found = self.values[e] = low
        return found

    def interval(self, e: Expr, grid: tuple[Expr, ...]) -> Interval:
        """Bounds of an expression over the tiles of a grid. Exact when each tile coordinate occurs
        once; meaningless at positions where the grid is empty."""
        if e.constant is not None:
            return e.constant, e.constant
        key = (e, grid)
        found = self.intervals.get(key)
        if found is None:
            found = self.intervals[key] = self.walk(e, grid)
        return found

    def walk(self, e: Expr, grid: tuple[Expr, ...]) -> Interval:
        match e:
            case Const(value):
                return value, value
            case Sym("P"):
                return self.past, self.past
            case Sym(name):
                return 0, self.value(grid[int(name[1:])]) - 1
            case Sum(terms, offset):
                low: Number = offset
                high: Number = offset
                for term, factor in terms:
                    a, b = self.walk(term, grid)
                    low = low + factor * (a if factor > 0 else b)
                    high = high + factor * (b if factor > 0 else a)
                return low, high
            case Div(value, divisor):
                a, b = self.walk(value, grid)
                return a // divisor, b // divisor
            case Bound(kind, x, y):
                pick = np.minimum if kind == "min" else np.maximum
                (a, b), (c, d) = self.walk(x, grid), self.walk(y, grid)
                return plain(pick(a, c)), plain(pick(b, d))
        raise TypeError(f"not an index expression: {e!r}")

    def tiles(self, grid: Sequence[Expr]) -> Number:
        """How many tiles a grid has."""
        total: Number = 1
        for e in grid:
            total = total * positive(self.value(e))
        return total


def plain(n: Number) -> Number:
    return int(n) if np.ndim(n) == 0 else n


def positive(n: Number) -> Number:
    """n, or 0 where it is negative."""
    return max(n, 0) if isinstance(n, int) else np.maximum(n, 0)


def both(a: Truth, b: Truth) -> Truth:
    return np.logical_and(a, b)


def either(a: Truth, b: Truth) -> Truth:
    return np.logical_or(a, b)


def negate(a: Truth) -> Truth:
    return np.logical_not(a)


def always(holds: Truth) -> bool:
    return bool(np.all(holds))


def smaller(a: Number, b: Number) -> Number:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b)


def larger(a: Number, b: Number) -> Number:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)
