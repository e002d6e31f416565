"""The meaning of attention over a KV cache, in torch, in the order of HF's eager arithmetic.

The order of operations is the contract: repeat K and V for grouped heads, multiply, scale,
softcap, add the mask, softmax in f32, cast, multiply. It is that of `eager_attention_forward` in
transformers' model files, so that equal inputs give equal bits.
"""

from __future__ import annotations

import torch
from torch import Tensor


def live_rows(rows: Tensor, past: int, tokens: int, window: int | None) -> Tensor:
    """The cache rows that some query of this launch may see, [1, H, T, D], contiguous.

    With a window W these are the last min(P, W − 1) + S rows: HF slices before the product, and
    the length of a reduction decides how it is split, so the length is part of the bits.
    """
    end = past + tokens
    start = 0 if window is None else max(0, past - (window - 1))
    return rows[:, :, start:end].contiguous()


def repeat_heads(x: Tensor, groups: int) -> Tensor:
    """[1, Hkv, T, D] → [1, Hkv · groups, T, D], each head `groups` times in a row."""
    if groups == 1:
        return x
    _, heads, length, depth = x.shape
    x = x[:, :, None].expand(1, heads, groups, length, depth)
    return x.reshape(1, heads * groups, length, depth)


def visible(past: int, tokens: int, length: int, window: int | None, first_rows: int = 0) -> Tensor:
    """[S, T] bool: row s sees key t of the last `length` rows. j ≤ P + s, and j > P + s − W or
    j < `first_rows`."""
    q = torch.arange(past, past + tokens)[:, None]
    k = torch.arange(past + tokens - length, past + tokens)[None, :]
    seen = k <= q
    return seen if window is None else seen & ((k > q - window) | (k < first_rows))


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    past: int,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    first_rows: int = 0,
) -> Tensor:
    """Causal attention of S new rows over a cache that already holds them.

    `query` [1, Hq, S, D]; `keys` [1, Hkv, ≥ P + S, D]; `values` [1, Hkv, ≥ P + S, Dv]; `sinks`
    [Hq] or None; `past` is P; the first `first_rows` stay beside a window. Returns [1, S, Hq, Dv]
    in the query's dtype.
    """
    tokens, groups = query.shape[2], query.shape[1] // keys.shape[1]
    keys, values = keys.to(query.dtype), values.to(query.dtype)  # a cache may be stored narrower
    sliced = None if first_rows else window
    keys = repeat_heads(live_rows(keys, past, tokens, sliced), groups)
    values = repeat_heads(live_rows(values, past, tokens, sliced), groups)
    scores = torch.matmul(query, keys.transpose(2, 3)) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    seen = visible(past, tokens, keys.shape[2], window, first_rows)
    hidden = torch.finfo(query.dtype).min
    scores = scores + torch.where(seen, torch.zeros((), dtype=query.dtype), hidden)[None, None]
    if sinks is None:
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    else:
        weights = sink_softmax(scores, sinks).to(values.dtype)
    return torch.matmul(weights, values).transpose(1, 2).contiguous()


def sink_softmax(scores: Tensor, sinks: Tensor) -> Tensor:
    """Softmax of `scores` [1, H, S, T] beside one extra logit a head, which is then dropped."""
    column = sinks.reshape(1, -1, 1, 1).expand(1, -1, scores.shape[2], -1)
    joined = torch.cat([scores, column], dim=-1)
    joined = joined - joined.max(dim=-1, keepdim=True).values
    return torch.softmax(joined, dim=-1, dtype=joined.dtype)[..., :-1]


# ---- split over chunks of rows --------------------------------------------------------------


def attend_split(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    past: int,
    scale: float,
    window: int | None,
    softcap: float | None,
    chunk: int,
    chunks: int,
    first_rows: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """One unnormalised softmax a chunk of `chunk` cache rows, in f32; operands as for `attend`.

    Returns outputs [n, Hkv, S, G, Dv], maxima and sums [n, Hkv, S, G] with n = `chunks`. A chunk
    without a visible row has maximum −inf, sum 0 and output 0. The first `first_rows`, when they
    stay, come first, and no chunk holds them.
    """
    _, heads, tokens, _ = query.shape
    kv_heads, live, depth = keys.shape[1], past + tokens, values.shape[3]
    groups = heads // kv_heads
    rows = (chunks, kv_heads, tokens, groups)
    outputs, sums = torch.zeros(*rows, depth), torch.zeros(rows)
    maxima = torch.full(rows, -torch.inf)
    seen = visible(past, tokens, live, window, first_rows)
    kept = torch.arange(live) < first_rows
    query, keys, values = (x.to(torch.float32) for x in (query, keys, values))
    extra = int(first_rows > 0)
    parts = [(0, seen & kept)] * extra + [(c, seen & ~kept) for c in range(-(-live // chunk))]
    for place, (c, mask) in enumerate(parts):
        part = slice(c * chunk, min((c + 1) * chunk, live))
        k, v = repeat_heads(keys[:, :, part], groups), repeat_heads(values[:, :, part], groups)
        scores = torch.matmul(query, k.transpose(2, 3)) * scale
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        scores = scores.masked_fill(~mask[:, part], -torch.inf)
        top = scores.amax(dim=-1)
        weights = torch.exp(scores - finite(top)[..., None])
        outputs[place] = by_group(torch.matmul(weights, v), groups)
        maxima[place], sums[place] = by_group(top, groups), by_group(weights.sum(dim=-1), groups)
    return outputs, maxima, sums


def combine(outputs: Tensor, maxima: Tensor, sums: Tensor, sinks: Tensor | None) -> Tensor:
    """Joins partials by log-sum-exp, chunks in ascending order, sinks last, in f32.

    Operands as `attend_split` returns them; `sinks` [Hq]. Returns [1, S, Hkv · G, Dv].
    """
    chunks, kv_heads, tokens, groups, depth = outputs.shape
    top = torch.full(maxima.shape[1:], -torch.inf)
    total, out = torch.zeros(sums.shape[1:]), torch.zeros(outputs.shape[1:])
    for c in range(chunks):
        higher = torch.maximum(top, maxima[c])
        kept, added = rescale(top, higher), rescale(maxima[c], higher)
        out = out * kept[..., None] + outputs[c] * added[..., None]
        total = total * kept + sums[c] * added
        top = higher
    if sinks is not None:
        total = total + torch.exp(sinks.to(torch.float32).reshape(kv_heads, 1, groups) - top)
    out = out / total[..., None]
    return out.transpose(0, 1).reshape(1, tokens, kv_heads * groups, depth)


def by_group(x: Tensor, groups: int) -> Tensor:
    """[1, Hkv · G, S, …] → [Hkv, S, G, …]"""
    _, heads, *rest = x.shape
    return x.reshape(heads // groups, groups, *rest).transpose(1, 2)


def finite(top: Tensor) -> Tensor:
    """0 in place of −inf: exp(−inf − −inf) would be nan where no row is visible."""
    return torch.where(top == -torch.inf, 0.0, top)


def rescale(old: Tensor, new: Tensor) -> Tensor:
    """exp(old − new), 0 where old is −inf."""
    return torch.exp(old - finite(new))
