"""Reductions in the order the IR states: lanes, chains, adjacent pairwise trees.

Element k goes to lane k % lanes of chain (k // lanes) % chains. Each lane of each chain runs
through its elements in increasing k from +0; a last partial vector is filled up (with zeros in a
sum). Chains are combined pairwise in adjacent order, then lanes. Lanes and chains are powers of
two.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from amk.interpreters.numerics_float import F32, F64, mend_double_rounding, quiet

_BLOCK_ELEMENTS = (
    1 << 15
)  # partial sums worked on at a time: their buffers fit a second-level cache


def tree(values: F32, combine: Callable[[F32, F32], F32] = np.add) -> F32:
    """Combines the last axis, whose size is a power of two, pairwise in adjacent order."""
    if values.shape[-1] & (values.shape[-1] - 1) or not values.shape[-1]:
        raise ValueError(f"a pairwise tree needs a power of two, not {values.shape[-1]} values")
    while values.shape[-1] > 1:
        values = combine(values[..., 0::2], values[..., 1::2])
    return values[..., 0]


def _maximum(a: F32, b: F32) -> F32:
    return np.where((b > a) | np.isnan(b), b, a)


def _lanes(x: F32, lanes: int, start: float) -> F32:
    """[..., K] to [..., steps, lanes], filled up with `start`."""
    padding = [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % lanes)]
    padded = np.pad(x, padding, constant_values=np.float32(start))
    return padded.reshape(*x.shape[:-1], -1, lanes)


def _reduce(x: F32, lanes: int, start: float, combine: Callable[[F32, F32], F32]) -> F32:
    steps = _lanes(x, lanes, start)
    total = np.full((*x.shape[:-1], lanes), start, np.float32)
    with quiet():
        for i in range(steps.shape[-2]):
            total = combine(total, steps[..., i, :])
        return tree(total, combine)


def reduce_sum(x: ArrayLike, lanes: int = 16) -> F32:
    """Sum over the last axis of float32 [..., K]; one chain."""
    return _reduce(np.asarray(x, np.float32), lanes, 0.0, np.add)


def reduce_sum_squares(x: ArrayLike, lanes: int = 16) -> F32:
    """Sum of x * x over the last axis, each square rounded first."""
    x = np.asarray(x, np.float32)
    with quiet():
        return reduce_sum(x * x, lanes)


def reduce_mean(x: ArrayLike, lanes: int = 16) -> F32:
    """reduce_sum divided by the float32 count."""
    x = np.asarray(x, np.float32)
    with quiet():
        return np.asarray(reduce_sum(x, lanes) / np.float32(x.shape[-1]))


def reduce_max(x: ArrayLike, lanes: int = 16) -> F32:
    """Largest of the last axis: NaN if there is one, minus infinity for none."""
    return _reduce(np.asarray(x, np.float32), lanes, -np.inf, _maximum)


def matmul(x: ArrayLike, w: ArrayLike, lanes: int = 16, chains: int = 2) -> F32:
    """y[s, r] = dot(x[s], w[r]) for float32 x [S, K], w [R, K]; fma(w, x, sum) at every step."""
    x, w = np.asarray(x, np.float32), np.asarray(w, np.float32)
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[1]:
        raise ValueError(f"matmul takes x [S, K] and w [R, K], not {x.shape} and {w.shape}")
    y = np.empty((x.shape[0], w.shape[0]), np.float32)
    rows = max(1, _BLOCK_ELEMENTS // (lanes * chains * max(1, x.shape[0])))
    with quiet():
        for r in range(0, w.shape[0], rows):
            y[:, r : r + rows] = _matmul_rows(x, w[r : r + rows], lanes, chains)
    return y


def _matmul_rows(x: F32, w: F32, lanes: int, chains: int) -> F32:
    (tokens, size), rows = x.shape, w.shape[0]
    wide = lanes * chains
    total = np.zeros((tokens, rows, wide), np.float64)  # always float32 values
    for k in range(0, size, wide):
        _step(total, x, w, k, min(wide, size - k), lanes)
    return tree(tree(total.astype(np.float32).reshape(tokens, rows, chains, lanes).swapaxes(2, 3)))


def _step(total: F64, x: F32, w: F32, k: int, count: int, lanes: int) -> None:
    """One fma of every chain that still has elements, zeros filling the last vector."""
    wide = -(-count // lanes) * lanes
    xs, ws = x[:, None, k : k + count], w[None, :, k : k + count]
    if count < wide:
        fill = [(0, 0), (0, 0), (0, wide - count)]
        xs, ws = np.pad(xs, fill), np.pad(ws, fill)
    product = np.multiply(xs, ws, dtype=np.float64)
    addend = total[:, :, :wide]
    exact = product + addend
    mend_double_rounding(exact, product, addend)
    addend[...] = exact.astype(np.float32)
