"""Split-KV attention, the arithmetic of `amk/codegen/cpu/attention.h`."""

import numpy as np
from numpy.typing import ArrayLike

from amk.interpreters.numerics_float import F32, fma32, quiet
from amk.interpreters.numerics_math import exp, tanh
from amk.interpreters.numerics_reduce import matmul, reduce_max, reduce_sum, tree


def attention_partial(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    past: int,
    chunk_index: int,
    chunk: int = 256,
    window: int = 0,
    scale: float = 1.0,
    softcap: float = 0.0,
    lanes: tuple[int, ...] = (16, 16, 1),
    limits: tuple[int, int] = (0, 1 << 62),
) -> tuple[F32, F32, F32]:
    """One chunk of keys for one kv head.

    q is float32 [S, G, D], row s at position past + s; k and v are [n, D] with n >= past + S.
    Keys seen are [max(0, p - window + 1), p] within [chunk_index * chunk, + chunk); window <= 0
    means no window. Returns o [S, G, D] (not yet divided), m [S, G] and l [S, G]; a row that
    sees no key gives (0, -inf, 0). `lanes` are those of a score's sum over D, of l over the keys
    and of o over the keys, key j of the chunk in lane j mod lanes. Keys outside `limits` are not
    seen.
    """
    q, k, v = (np.asarray(a, np.float32) for a in (q, k, v))
    tokens, heads, size = q.shape
    o = np.zeros((tokens, heads, size), np.float32)
    m = np.full((tokens, heads), -np.inf, np.float32)
    l = np.zeros((tokens, heads), np.float32)  # noqa: E741 - the usual name of the sum
    begin = chunk_index * chunk
    for s in range(tokens):
        position = past + s
        low = max(begin, position - window + 1) if window > 0 else begin
        low, high = max(low, limits[0]), min(begin + chunk, position + 1, limits[1])
        if low < high:
            seen = q[s], k[low:high], v[low:high]
            o[s], m[s], l[s] = _row(*seen, low - begin, scale, softcap, lanes)
    return o, m, l


def _row(q: F32, k: F32, v: F32, offset: int, scale: float, softcap: float, lanes: tuple[int, ...]):
    """`offset` is the first key's place in its chunk, which decides its lane in the sum."""
    with quiet():
        score = matmul(q, k, lanes=lanes[0], chains=1) * np.float32(scale)
        if softcap > 0:
            score = tanh(score / np.float32(softcap)) * np.float32(softcap)
        m = reduce_max(score)
        e = exp(score - m[:, None])
        total = reduce_sum(np.pad(e, [(0, 0), (offset % lanes[1], 0)]), lanes[1])
        parts = np.zeros((lanes[2], *q.shape), np.float32)
        for j in range(k.shape[0]):
            lane = (offset + j) % lanes[2]
            parts[lane] = fma32(e[:, j, None], v[j], parts[lane])
        o = tree(np.moveaxis(parts, 0, -1))
    return o, m, total


def attention_combine(
    o: ArrayLike,
    m: ArrayLike,
    l: ArrayLike,  # noqa: E741
    sink: ArrayLike | None = None,
) -> F32:
    """Joins the n chunks of every row.

    o is float32 [n, H, S, G, D], m and l are [n, H, S, G], sink holds a logit a head, [H * G].
    Returns [S, H * G, D]. A chunk with m = -inf leaves no trace.
    """
    o, m, l = (np.asarray(a, np.float32) for a in (o, m, l))  # noqa: E741
    chunks, kv_heads, tokens, group, size = o.shape
    with quiet():
        top = np.full(m.shape[1:], -np.inf, np.float32)
        if sink is not None:
            logit = np.asarray(sink, np.float32).reshape(kv_heads, 1, group)
            top[...] = logit
        for c in range(chunks):
            top = np.where((m[c] > top) | np.isnan(m[c]), m[c], top)
        total, out = np.zeros_like(top), np.zeros(o.shape[1:], np.float32)
        for c in range(chunks):
            weight, seen = exp(m[c] - top), m[c] != -np.inf
            total = np.where(seen, fma32(weight, l[c], total), total)
            out = np.where(seen[..., None], fma32(weight[..., None], o[c], out), out)
        if sink is not None:
            total = total + exp(logit - top)
        out = out / total[..., None]
    return out.transpose(1, 0, 2, 3).reshape(tokens, kv_heads * group, size)
