"""A model whose every query, key and value a test chooses: rows of the embedding table.

Token t has query [Hq, D], key and value [Hkv, D] from row t of `table`; the logits are what
attention returns, [Hq · D]. So a backend's cache and its outputs can be held against plain numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from amk.frontend import ops  # noqa: F401 - registers the custom ops
from amk.runtime.backends import BACKENDS, Settings, open_decoder
from amk.runtime.decoder import Decoder
from amk.runtime.kernel_session import KernelSession
from amk.runtime.kv_state import KvState
from amk.runtime.reference import Interpreter
from amk.runtime.session import Session
from amk.runtime.simt import SIMT_PATIENCE_S, SimtDevice
from amk.runtime.source import as_source

VOCAB = 64
BACKEND_NAMES = [name for name, b in BACKENDS.items() if b.open is not None and b.device == "cpu"]


@dataclass(frozen=True)
class Shape:
    heads: int = 4
    kv_heads: int = 2
    depth: int = 16
    window: int = 0
    first_rows: int = 0
    """Rows that stay in sight beside the window."""

    @property
    def width(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.depth


class Probe(nn.Module):
    def __init__(self, shape: Shape, seed: int = 0):
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(VOCAB, shape.width)
        self.head = nn.Linear(shape.heads * shape.depth, shape.heads * shape.depth, bias=False)
        rng = np.random.default_rng(seed)
        with torch.no_grad():
            self.embed.weight.copy_(torch.from_numpy(rng.standard_normal((VOCAB, shape.width))))
            self.head.weight.copy_(torch.eye(shape.heads * shape.depth))

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        s, d = self.shape, self.shape.depth
        x = self.embed(tokens).unflatten(2, (s.heads + 2 * s.kv_heads, d)).transpose(1, 2)
        q, k, v = x.split([s.heads, s.kv_heads, s.kv_heads], dim=1)
        k, v = torch.ops.amk.kv_append(k, v, 0)
        seen = torch.ops.amk.mask(s.window, q.device, first_rows=s.first_rows)
        out = torch.ops.amk.attention(q, k, v, seen, d**-0.5)
        return self.head(out.flatten(2))


class Plain:
    """The same in numpy: lists of rows, attention in float64."""

    def __init__(self, model: Probe):
        s = self.shape = model.shape
        table = model.embed.weight.detach().numpy().reshape(VOCAB, -1, s.depth)
        self.q, self.k, self.v = np.split(table, [s.heads, s.heads + s.kv_heads], axis=1)

    def keys(self, tokens: Sequence[int]) -> np.ndarray:
        """What the keys' cache holds after `tokens`, [1, Hkv, n, D]."""
        return self.k[list(tokens)].transpose(1, 0, 2)[None]

    def values(self, tokens: Sequence[int]) -> np.ndarray:
        return self.v[list(tokens)].transpose(1, 0, 2)[None]

    def last(self, tokens: Sequence[int]) -> np.ndarray:
        """What the last token's query gets, [Hq · D]."""
        s = self.shape
        ids = list(tokens)[-s.window :] if s.window else list(tokens)
        ids = list(tokens)[: min(s.first_rows, len(tokens) - len(ids))] + ids
        k, v = self.k[ids].astype(np.float64), self.v[ids].astype(np.float64)
        out = []
        for h in range(s.heads):
            g = h // (s.heads // s.kv_heads)
            scores = k[:, g] @ self.q[tokens[-1], h] * s.depth**-0.5
            weights = np.exp(scores - scores.max())
            out.append(weights @ v[:, g] / weights.sum())
        return np.concatenate(out)


FULL = Shape(heads=6)
WINDOWED = Shape(window=4)
MAX_SEQ = 320
_opened: dict[tuple[str, Shape, str, str, str | None], Decoder] = {}


def probe(shape: Shape = FULL, seed: int = 0) -> Probe:
    return Probe(shape, seed)


def fresh(
    backend: str,
    shape: Shape = FULL,
    dtype: str = "f32",
    model: Probe | None = None,
    policy: str = "doubling",
    storage: str | None = None,
) -> Decoder:
    """A decoder that was never fed; what is compiled is compiled once a run."""
    key = (backend, shape, dtype, policy, storage)
    source = as_source(model or probe(shape), dtype)
    if key not in _opened:
        settings = Settings(max_seq=MAX_SEQ, dtype=dtype, kv_policy=policy, kv_dtype=storage)
        _opened[key] = open_decoder(backend, source, settings)
    opened = _opened[key]
    if isinstance(opened, Session):
        return Session(opened.program, source, threads=2)
    if isinstance(opened, KernelSession):
        return KernelSession(opened.program, source, SimtDevice(opened.program), SIMT_PATIENCE_S)
    assert isinstance(opened, Interpreter)
    weights = opened._bound
    if model is not None:
        weights = {k: source.read(k, None, "f32") for k in weights}
    return Interpreter(opened.facts, opened._programs, weights)


def state(decoder: Decoder) -> KvState:
    assert decoder.cache is not None
    return decoder.cache


def keys_of(decoder: Decoder) -> np.ndarray:
    """The live rows of the keys' cache."""
    return state(decoder).rows("k0", decoder.length)


def poison(decoder: Decoder) -> None:
    """Fills the spare rows of the caches with NaN, those of int8 with its largest number."""
    cache = state(decoder)
    for name, spec in cache.specs.items():
        slots = np.arange(cache.capacity(name))
        rows = cache.memory.get(spec, cache.arrays[name], len(slots), slots)
        rows[spec.index(slice(decoder.length, None))] = 127 if spec.dtype == "i8" else np.nan
        cache.memory.put(spec, cache.arrays[name], len(slots), slots, rows)


def tokens(count: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(0, VOCAB, count)]


def close(got: np.ndarray, plain: np.ndarray) -> bool:
    return bool(np.abs(got - plain).max() < 1e-5)
