"""The meaning of the kv dialect in torch: a cache is the tensor of its live rows, a pure value."""

from __future__ import annotations

import torch
from torch import Tensor

from amk.ir import kv


def empty(type: kv.CacheType, dtype: torch.dtype) -> Tensor:
    """A cache with no rows."""
    shape = [0 if d == -1 else d for d in type.get_shape()]
    return torch.empty(shape, dtype=dtype)


def append(op: kv.AppendOp, cache: Tensor, entries: Tensor) -> Tensor:
    assert isinstance(op.cache.type, kv.CacheType)
    return torch.cat([cache, entries.to(cache.dtype)], dim=op.cache.type.axis.data)


def length(op: kv.LengthOp, cache: Tensor) -> int:
    assert isinstance(op.cache.type, kv.CacheType)
    return cache.shape[op.cache.type.axis.data]
