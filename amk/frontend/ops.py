"""The torch custom ops that stand for the KV cache and for attention in an exported graph.

A plain `torch.nn.Module` that calls them imports like a model from transformers:

    k, v = torch.ops.amk.kv_append(k, v, layer)      # [1, Hkv, S, D] → the whole cache, opaque
    seen = torch.ops.amk.mask(window, q.device)      # window 0: causal without a window
    seen = torch.ops.amk.mask(window, q.device, first_rows=4)     # four stay in sight
    out = torch.ops.amk.attention(q, k, v, seen, scale, softcap, sinks)      # [1, S, Hq, Dv]

What `kv_append` returns stands for all rows of the cache of `layer`; only `attention` may read
it. Run outside an import, the ops compute a launch at past length 0: the cache is what is
appended.
"""

from __future__ import annotations

import torch
from torch import Tensor

from amk.interpreters.attention import attend

WINDOW_BITS = 32  # of a mask's token


@torch.library.custom_op("amk::kv_append", mutates_args=())
def kv_append(keys: Tensor, values: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """Appends S rows to the caches of `layer`.

    `keys` [1, Hkv, S, D], `values` [1, Hkv, S, Dv]; each layer appends once a launch. Returns
    both caches after the append.
    """
    return keys.clone(), values.clone()


@kv_append.register_fake
def _(keys: Tensor, values: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    return torch.empty_like(keys), torch.empty_like(values)


@torch.library.custom_op("amk::mask", mutates_args=())
def mask(window: int, device: torch.device, rows: int = 1, first_rows: int = 0) -> Tensor:
    """A token, i64 [1, 1, rows, 1] on `device`, that tells `attention` which rows are seen: causal,
    and, when `window` > 0, within the last `window` rows or among the first `first_rows`. `rows` is
    S where a model may cut its mask, so that a cut shows."""
    value = window | first_rows << WINDOW_BITS
    return torch.full((1, 1, rows, 1), value, dtype=torch.int64, device=device)


@mask.register_fake
def _(window: int, device: torch.device, rows: int = 1, first_rows: int = 0) -> Tensor:
    return torch.empty((1, 1, rows, 1), dtype=torch.int64, device=device)


@torch.library.custom_op("amk::attention", mutates_args=())
def attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Causal attention; `keys` and `values` come from `kv_append`, `mask` from `mask`.

    `query` [1, Hq, S, D], Hkv divides Hq; `softcap` c maps a scaled score t to c · tanh(t / c);
    `sinks` [Hq] are extra logits in the softmax. Returns [1, S, Hq, Dv] in the query's dtype.
    """
    value = int(mask.flatten()[0])
    first_rows, window = divmod(value, 1 << WINDOW_BITS)
    return attend(query, keys, values, 0, scale, window or None, softcap, sinks, first_rows)


@attention.register_fake
def _(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    return query.new_empty(query.shape[0], query.shape[2], query.shape[1], values.shape[3])
