"""Small pieces of C text: index expressions, literals and loop nests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from amk.ir.expr import Bound, Const, Div, Expr, Sum, Sym


def c_expr(e: Expr) -> str:
    """An index expression as C on `long`; floor division rounds down for negative values too."""
    match e:
        case Const(value):
            return str(value)
        case Sym(name):
            return name
        case Sum(terms, offset):
            parts = [c_expr(t) if c == 1 else f"{c_expr(t)} * {c}" for t, c in terms]
            return "(" + " + ".join([*parts, *([str(offset)] if offset else [])]) + ")"
        case Div(value, divisor):
            return f"amk_floordiv({c_expr(value)}, {divisor})"
        case Bound(kind, a, b):
            return f"amk_{kind}l({c_expr(a)}, {c_expr(b)})"
    raise TypeError(f"not an index expression: {e!r}")


def literal(value: float) -> str:
    """A float literal that is exactly the f32 nearest to `value`."""
    with np.errstate(over="ignore"):
        exact = float(np.float32(value))
    if exact != exact or exact in (float("inf"), float("-inf")):
        return {"inf": "__builtin_inff()", "-inf": "-__builtin_inff()"}.get(
            str(exact), '__builtin_nanf("")'
        )
    return f"{exact.hex()}f"


def contiguous(shape: Sequence[int]) -> list[int]:
    """Row-major strides."""
    strides = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        strides[i] = strides[i + 1] * shape[i + 1]
    return strides


def broadcast_strides(shape: Sequence[int], result: Sequence[int]) -> list[int]:
    """Strides that walk an array of `shape` as if it were broadcast to `result`."""
    strides = [0 if n == 1 else s for n, s in zip(shape, contiguous(shape), strict=True)]
    return [0] * (len(result) - len(shape)) + strides


def collapse(
    sizes: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Drops unit axes and joins neighbours that every operand walks evenly."""
    axes = [i for i, n in enumerate(sizes) if n != 1]
    out: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for i in axes:
        even = out and all(s[-1] == t[i] * sizes[i] for s, t in zip(steps, strides, strict=True))
        if even:
            out[-1] *= sizes[i]
            for s, t in zip(steps, strides, strict=True):
                s[-1] = t[i]
        else:
            out.append(sizes[i])
            for s, t in zip(steps, strides, strict=True):
                s.append(t[i])
    return out, steps


def loops(sizes: Sequence[int], strides: Sequence[Sequence[int]], body: str) -> list[str]:
    """A loop nest over `sizes`; `{0}`, `{1}`, … in the body are the operands' element offsets."""
    out, steps = collapse(sizes, strides)
    names = [f"i{n}" for n in range(len(out))]
    offsets = []
    for s in steps:
        terms = [n if k == 1 else f"{n} * {k}" for n, k in zip(names, s, strict=True) if k]
        offsets.append(" + ".join(terms) or "0")
    lines = [
        "  " * depth + f"for (long {n} = 0; {n} < {size}; {n}++)"
        for depth, (n, size) in enumerate(zip(names, out, strict=True))
    ]
    return [*lines, "  " * len(out) + body.format(*offsets)]
