"""Rings and int8 caches in emitted CUDA text, run on the host: the bits of the mk interpreter over
the same program, steps and chunks, and what a session keeps of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from amk import compiler
from amk.runtime.kernel_session import KernelSession
from amk.runtime.simt import SimtDevice
from amk.runtime.source import Source, as_source
from tests.runtime.kv_probe import Probe, Shape, probe
from tests.runtime.kv_probe import tokens as random_ids
from tests.runtime.test_simt import check_bits

pytestmark = pytest.mark.usefixtures("cache_root")
RING = 32
"""Rows for a window of 7 and launches of 16: 22, in multiples of 16."""


def sourced(shape: Shape) -> Source:
    return as_source(probe(shape))


@pytest.mark.parametrize(
    ("shape", "kv_dtype"),
    [
        (Shape(window=7), None),
        (Shape(window=7), "int8"),
        (Shape(heads=6, depth=20), "int8"),  # no whole vectors of eight
        (Shape(heads=2, window=30, depth=64), "bf16"),
    ],
    ids=["ring", "ring-int8", "int8-odd", "ring-bf16"],
)
def test_kernels_equal_the_interpreter(shape: Shape, kv_dtype: str | None) -> None:
    """Fifty positions, so rings wrap inside a chunk of attention and inside a launch of 16."""
    check_bits(sourced(shape), "f32", random_ids(50), max_seq=80, kv_dtype=kv_dtype)


@pytest.mark.parametrize("dtype", ["bf16", pytest.param("f16", marks=pytest.mark.slow)])
def test_int8_beside_weights_of_16_bits(dtype: str) -> None:
    check_bits(as_source("toy-2L", dtype), dtype, [(7 * i) % 256 for i in range(18)],
               kv_dtype="int8")  # fmt: skip


class Hybrid(nn.Module):
    """A layer that sees all rows under one that sees seven; tokens are rows of one table."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Probe(Shape(), 0), Probe(Shape(window=7), 1)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        seen = []
        for layer, model in enumerate((self.first, self.second)):
            s, d = model.shape, model.shape.depth
            x = model.embed(tokens).unflatten(2, (s.heads + 2 * s.kv_heads, d)).transpose(1, 2)
            q, k, v = x.split([s.heads, s.kv_heads, s.kv_heads], dim=1)
            k, v = torch.ops.amk.kv_append(k, v, layer)
            mask = torch.ops.amk.mask(s.window, q.device)
            seen.append(torch.ops.amk.attention(q, k, v, mask, d**-0.5).flatten(2))
        return self.first.head(seen[0] + seen[1])


def test_a_session_of_rings_and_growing_caches() -> None:
    """Full layers grow, sliding ones keep their rows; a fork and a saved state go on alike."""
    source = as_source(Hybrid())
    program = compiler.compile_kernels(source, "h100", 80, workers=2, machine_code=False)
    ids = random_ids(60)
    with KernelSession(program, source, SimtDevice(program), 60) as session:
        expected = np.stack([session.step(t) for t in ids])
        cache = session.cache
        assert cache is not None
        assert [cache.specs[n].policy for n in ("k0", "k1")] == ["doubling", "ring"]
        assert (cache.capacity("k0"), cache.capacity("k1")) == (64, RING)
        assert cache.reallocations == 7
        session.reset()
        # A launch of 16 sums in the order of a step, whatever it wraps over.
        np.testing.assert_array_equal(session.logits(ids), expected)
        session.truncate(50)
        np.testing.assert_array_equal(session.step(ids[50]), expected[50])
