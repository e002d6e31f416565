"""place-kv-append changes no bit, for every choice of the place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from amk.ir import kv, lm, mk
from amk.passes import run_pipeline
from tests.property.generate import DecoderSpec, decoders
from tests.property.mk_running import (
    Lowering,
    MkDecoder,
    build,
    empty_caches,
    launches,
    lower,
    program_of,
    random_tokens,
)
from tests.property.native_batch import NativeBatch, assert_same_bits
from tests.property.running import assert_same

PLACES = ("epilogue", "attention", "stage")


@pytest.mark.parametrize("place", ["auto", *PLACES])
@given(spec=decoders(("f32", "bf16")))
@settings(max_examples=5, deadline=None)
def test_keeps_every_bit(place: str, spec: DecoderSpec) -> None:
    module, weights = build(spec)
    run_pipeline(module, f"{Lowering().lm},fuse")
    before = launches(module, weights, spec)
    run_pipeline(module, f"place-kv-append{{at={place}}}")
    assert_same(before, launches(module, weights, spec), 0.0)
    appends = [op for op in module.walk() if isinstance(op, kv.AppendOp)]
    assert len(appends) == 2 * spec.layers
    for append in appends:
        stage = append.parent_op()
        assert isinstance(stage, lm.StageOp)
        assert place_of(stage) == ("epilogue" if place == "auto" else place)


def place_of(stage: lm.StageOp) -> str:
    if len(stage.body.block.ops) == 2:
        return "stage"
    attends = any(isinstance(op, lm.AttentionSplitOp) for op in stage.body.block.ops)
    return "attention" if attends else "epilogue"


def check_places(spec: DecoderSpec, count: int) -> None:
    """`count` launches by the interpreter of `mk` at every place: proved, and the same bits, with
    tiles in order or in any order the events allow."""
    decoders = {}
    for place in PLACES:
        module, weights = lower(spec, Lowering(append=place))
        run_pipeline(module, "verify-mk")
        decoders[place] = MkDecoder(module, weights)
    for i, tokens in enumerate(random_tokens(spec, count)):
        found = {place: d.step(tokens, 3, seed=i) for place, d in decoders.items()}
        for place in PLACES:
            np.testing.assert_array_equal(found[place], found["epilogue"], err_msg=place)
    for source, rows in decoders["epilogue"].caches.items():
        for place in PLACES:
            np.testing.assert_array_equal(decoders[place].caches[source], rows)


@given(decoders(("f32", "bf16")))
@settings(max_examples=4, deadline=None)
def test_programs_are_proved_and_agree(spec: DecoderSpec) -> None:
    check_places(spec, 2)


@pytest.mark.slow
@given(decoders(("f32", "bf16")))
@settings(max_examples=60, deadline=None)
def test_many_programs_are_proved_and_agree(spec: DecoderSpec) -> None:
    check_places(spec, 3)


ACROSS_CHUNKS = DecoderSpec(tokens=6, kv_heads=2, group=2, window=11, cache_dtype="bf16")
"""Launches of six at 0, 6, 12, 18, …: rows of the third lie in two chunks of sixteen."""


def test_rows_that_lie_in_two_chunks() -> None:
    check_places(ACROSS_CHUNKS, 9)


def test_native_programs_agree() -> None:
    """One C file with every place, at one and at several tokens a launch."""
    specs = [ACROSS_CHUNKS, replace(ACROSS_CHUNKS, tokens=1)]
    pairs = [(spec, place) for spec in specs for place in PLACES]
    lowered = [MkDecoder(*lower(spec, Lowering(append=place))) for spec, place in pairs]
    batch = NativeBatch([d.program for d in lowered])
    rows: dict[tuple[int, str], list[np.ndarray]] = {}
    for number, (decoder, (spec, place)) in enumerate(zip(lowered, pairs, strict=True)):
        batch.bind(number, decoder.weights, empty_caches(decoder.program))
        tokens = np.concatenate(random_tokens(ACROSS_CHUNKS, 4))
        for chunk in tokens.reshape(-1, spec.tokens):
            past = decoder.past
            expected = decoder.step(chunk.tolist())
            batch.buffer(number, "input", "tokens")[0] = chunk
            batch.launch(number, past, workers=1 + past % 3)
            logits = batch.buffer(number, "output", "logits")[0].copy()
            assert_same_bits(logits, expected, f"{place} at {past}")
            rows.setdefault((spec.tokens, place), []).append(logits)
        for source, values in decoder.caches.items():
            assert_same_bits(batch.buffer(number, "cache", source), values, f"{place}: {source}")
    found = [np.concatenate(each) for each in rows.values()]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_attention_writes_each_row_once() -> None:
    """A tile a kv head appends, whatever the number of query heads; most tiles only read."""
    module, _ = lower(ACROSS_CHUNKS, Lowering(append="attention"))
    stage = next(s for s in program_of(module).stages() if s.sym_name.data == "attention_split")
    found = []
    for part in stage.part_ops():
        stores = [op for op in part.body.block.ops if isinstance(op, mk.StoreOp)]
        caches = [op for op in stores if mk.buffer_of(op.buffer).kind.data == "cache"]
        attends = [op for op in part.body.block.ops if isinstance(op, mk.AttentionOp)]
        found.append((part.grid.data[0].constant, len(caches), len(attends)))
    assert found == [(2, 0, 1), (2, 2, 1), (2, 2, 2)]
