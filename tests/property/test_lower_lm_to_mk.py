"""lower-lm-to-mk keeps what a decoder computes, whatever the tiles and the order they run in."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from amk.passes import run_pipeline
from tests.property.generate import ANY_CACHE, DecoderSpec
from tests.property.mk_running import (
    LOWERINGS,
    Lowering,
    MkDecoder,
    build,
    launches,
    lower,
    program_of,
    random_tokens,
)
from tests.property.running import LAUNCHES, distance, over_cache

TOLERANCE = 2e-5
"""Sums run in another order."""


def check(spec: DecoderSpec, how: Lowering, workers: int) -> None:
    module, weights = build(spec)
    run_pipeline(module, how.lm)
    before = launches(module, weights, spec)[:LAUNCHES]
    module, weights = lower(spec, how)
    plain, shuffled = MkDecoder(module, weights), MkDecoder(module, weights)
    tolerance = over_cache(TOLERANCE, spec.cache_dtype)
    for i, tokens in enumerate(random_tokens(spec, LAUNCHES)):
        logits = plain.step(tokens)
        assert distance(before[i][0], torch.from_numpy(logits)) <= tolerance
        np.testing.assert_array_equal(logits, shuffled.step(tokens, workers, seed=i))
        if how.greedy:
            assert plain.next[0].tolist() == logits.argmax(-1).tolist()
    for source, rows in plain.caches.items():
        live = LAUNCHES * spec.tokens
        assert np.isfinite(rows[:, :, :live]).all(), source
        assert np.isnan(rows[:, :, live:]).all(), f"{source}: written past the new rows"


@given(ANY_CACHE, LOWERINGS, st.sampled_from((1, 2, 5)))
@settings(max_examples=12, deadline=None)
def test_keeps_the_meaning(spec: DecoderSpec, how: Lowering, workers: int) -> None:
    check(spec, how, workers)


@pytest.mark.slow
@given(ANY_CACHE, LOWERINGS, st.sampled_from((1, 2, 5)))
@settings(max_examples=150, deadline=None)
def test_keeps_the_meaning_of_many(spec: DecoderSpec, how: Lowering, workers: int) -> None:
    check(spec, how, workers)


@pytest.mark.parametrize(
    ("spec", "how"),
    [
        # A vocabulary that no tile size divides leaves a smaller last tile.
        (DecoderSpec(vocab=257, width=12), Lowering(tile_bytes=700)),
        # A window that ends inside one chunk and begins in the one before.
        (DecoderSpec(tokens=16, window=7), Lowering(chunk=16)),
        (DecoderSpec(tokens=3, window=17, sinks=True), Lowering(chunk=16)),
        # Odd sizes, seven heads a kv head, one kv head.
        (DecoderSpec(width=13, inner=7, kv_heads=1, group=7), Lowering(tile_bytes=32)),
        # Heads as wide as those of small GPT-2 and Phi models.
        (DecoderSpec(width=20, head=80, rotary=32, kv_heads=1, group=2), Lowering()),
        (DecoderSpec(width=20, head=96, rotary=96, kv_heads=2, qk_norm=True), Lowering()),
    ],
)
def test_edges(spec: DecoderSpec, how: Lowering) -> None:
    check(spec, how, workers=3)


def test_leftover_tile() -> None:
    module, _ = lower(DecoderSpec(vocab=257, width=12), Lowering(tile_bytes=700))
    head = next(s for s in program_of(module).stages() if "head" in s.sym_name.data)
    first, second = head.part_ops()
    assert [e.constant for e in (*first.grid, *second.grid)] == [18, 1]


def test_results_do_not_depend_on_tiles() -> None:
    """Each output is one dot product in one order, so tile sizes change no bit."""
    spec = DecoderSpec(
        tokens=3, layers=2, kv_heads=2, group=2, head=8, rotary=8, width=12, inner=10, vocab=257
    )
    outputs = []
    for tile_bytes, workers in ((1, 0), (200, 0), (1 << 20, 0), (1, 3), (100, 5), (1 << 20, 64)):
        decoder = MkDecoder(*lower(spec, Lowering(tile_bytes=tile_bytes, workers=workers)))
        outputs.append([decoder.step(t) for t in random_tokens(spec, 2)])
    for other in outputs[1:]:
        np.testing.assert_array_equal(outputs[0], other)
