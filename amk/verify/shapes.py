"""The finitely many shapes a question can take as the position runs.

Two positions at which every part of the question's expressions that holds P but no tile coordinate
has the same value pose the same question, tile by tile. `representatives` gives the smallest
position of each shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from amk.ir.expr import Bound, Expr, Sum, Sym
from amk.verify.positions import Positions, Truth


def position_terms(e: Expr) -> Iterator[Expr]:
    """The largest subexpressions in P alone; their values fix the expression for every tile."""
    symbols = e.symbols()
    if "P" not in symbols:
        return
    if symbols == {"P"}:
        yield e
        return
    match e:
        case Sum(terms, offset):
            own = [(t, c) for t, c in terms if t.symbols() == {"P"}]
            if own:
                yield Sum(tuple(own), offset)
            for t, _ in terms:
                if t.symbols() != {"P"}:
                    yield from position_terms(t)
        case Bound(_, a, b):
            yield from position_terms(a)
            yield from position_terms(b)
        case _:
            yield Sym("P")


def representatives(
    positions: Positions, expressions: Iterable[Expr], among: Truth = True
) -> list[int]:
    """The smallest position of each shape, ascending, of those where `among` holds."""
    if not np.any(among):
        return []
    terms = {t for e in expressions for t in position_terms(e)}
    chosen = np.flatnonzero(np.broadcast_to(among, positions.past.shape))
    if not terms:
        return [int(chosen[0])]
    columns = np.stack([np.broadcast_to(positions.value(t), positions.past.shape) for t in terms])
    _, first = np.unique(columns[:, chosen], axis=1, return_index=True)
    return sorted(int(chosen[i]) for i in first)


def varies_much(positions: Positions, e: Expr, many: int = 4096) -> bool:
    """Does an expression take so many shapes that its axis is better widened first?"""
    return any(len(np.unique(np.asarray(positions.value(t)))) > many for t in position_terms(e))
