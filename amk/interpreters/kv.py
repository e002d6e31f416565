"""The meaning of the kv dialect in torch: a cache is the tensor of its live rows, a pure value.

Memory has no part in it: growth, rings and spare rows leave no trace in what is computed. A
window and a packed copy hold the same values; the capacity of a value is its length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from xdsl.dialects.builtin import i8

from amk.errors import AmkError
from amk.interpreters.literals import torch_dtype
from amk.ir import kv
from amk.ir.kv import cache_type

if TYPE_CHECKING:
    from amk.interpreters.lm import Machine


def empty(type: kv.CacheType, dtype: torch.dtype) -> Tensor:
    """A cache with no rows."""
    shape = [0 if d == -1 else d for d in type.get_shape()]
    return torch.empty(shape, dtype=dtype)


def dtype_of(type: kv.CacheType) -> torch.dtype:
    """The dtype of a cache's values; those of i8 rows are what elements times scale give."""
    return torch.float32 if type.element_type == i8 else torch_dtype(type.element_type)


def append(op: kv.AppendOp, cache: Tensor, entries: Tensor) -> Tensor:
    kind = cache_type(op.cache)
    if kind.element_type == i8:
        scale = (entries.abs().amax(-1, keepdim=True) * (1 / 127)).clamp(min=2.0**-100)
        entries = torch.round(entries / scale).clamp(-127, 127) * scale
    return torch.cat([cache, entries.to(cache.dtype)], dim=kind.axis.data)


def length(op: kv.LengthOp | kv.CapacityOp, cache: Tensor) -> int:
    return cache.shape[cache_type(op.cache).axis.data]


def first_rows(op: kv.RowsOp | kv.TruncateOp, cache: Tensor, past: int) -> Tensor:
    """The first rows of a cache, as many as the op's length is at past length `past`."""
    axis, count = cache_type(op.cache).axis.data, kv.resolve(op.length.data[0], {"P": past})
    if not 0 <= count <= cache.shape[axis]:
        raise AmkError(f"{op.name}: {count} rows of a cache that has {cache.shape[axis]}")
    rows = cache.narrow(axis, 0, count)
    return rows.clone() if isinstance(op, kv.PackOp) else rows


def save(m: Machine, op: kv.SaveOp) -> tuple[()]:
    m.saved[op.to.data] = m.tensor(op.cache).clone()
    return ()


def load(m: Machine, op: kv.LoadOp) -> Tensor:
    if op.source.data not in m.saved:
        raise AmkError(f"kv.load: nothing was saved under {op.source.data!r}")
    rows = m.saved[op.source.data]
    kind = op.result.type
    assert isinstance(kind, kv.CacheType)
    shape = kind.get_shape()
    if [d for i, d in enumerate(rows.shape) if i != kind.axis.data] != [d for d in shape if d > 0]:
        raise AmkError(f"kv.load: {op.source.data!r} is {list(rows.shape)}, not {kind}")
    return rows
