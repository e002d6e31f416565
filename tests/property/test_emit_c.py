"""The emitted C, compiled and run, gives the bits of the `mk` interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.interpret.mk_bench import Bench, interpret
from tests.interpret.mk_cases import CASES
from tests.property.generate import DecoderSpec, decoders
from tests.property.mk_running import (
    LOWERINGS,
    Lowering,
    MkDecoder,
    empty_caches,
    lower,
    random_tokens,
)
from tests.property.native_batch import NativeBatch, assert_same_bits
from tests.property.stages import StageMaker


def benches(fills) -> list[Bench]:
    made = []
    for arguments, fill in fills:
        bench = Bench(**arguments)
        fill(bench)
        made.append(bench)
    return made


def check(made: list[Bench], names: list[str]) -> None:
    """Runs all programs natively and by the interpreter, each output bit for bit."""
    programs = [bench.program() for bench in made]
    batch = NativeBatch(programs)
    for number, (bench, program, name) in enumerate(zip(made, programs, names, strict=True)):
        expected = interpret(bench, program)
        batch.bind(number, bench.weights, bench.caches)
        if bench.given_tokens is not None:
            batch.buffer(number, "input", "tokens")[...] = bench.given_tokens
        batch.launch(number, bench.past, workers=1 + number % 3)
        for source, values in expected.items():
            kind = "cache" if source in bench.caches else "output"
            assert_same_bits(batch.buffer(number, kind, source), np.asarray(values), name)


def test_every_op() -> None:
    check(benches(CASES.values()), list(CASES))


def random_stages(first: int, count: int) -> None:
    seeds = range(first, first + count)
    check([StageMaker(seed).make() for seed in seeds], [f"seed {seed}" for seed in seeds])


def test_random_stages() -> None:
    random_stages(0, 100)


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(10))
def test_more_random_stages(batch: int) -> None:
    random_stages(1000 * (batch + 1), 300)


SPECS = st.lists(st.tuples(decoders(("f32", "bf16")), LOWERINGS), min_size=4, max_size=4)
WITHOUT_SHRINKING = (Phase.explicit, Phase.generate)
"""Each try compiles a C file; a failing list names the decoder that fails."""


def check_decoders(drawn: list[tuple[DecoderSpec, Lowering]]) -> None:
    """Each decoder for its tokens a launch and for one token: native bits are those of the
    interpreter, at any number of workers, and a row does not depend on how many go with it."""
    pairs = [(s, how) for spec, how in drawn for s in (spec, replace(spec, tokens=1))]
    lowered = [MkDecoder(*lower(spec, how)) for spec, how in pairs]
    batch = NativeBatch([d.program for d in lowered])
    rows: list[np.ndarray] = []
    for number, (decoder, (spec, _)) in enumerate(zip(lowered, pairs, strict=True)):
        batch.bind(number, decoder.weights, empty_caches(decoder.program))
        tokens = np.concatenate(random_tokens(drawn[number // 2][0], 2))
        found = []
        for chunk in tokens.reshape(-1, spec.tokens):
            past = decoder.past
            expected = decoder.step(chunk)
            batch.buffer(number, "input", "tokens")[0] = chunk
            batch.launch(number, past, workers=1 + past % 3)
            logits = batch.buffer(number, "output", "logits")[0].copy()
            assert_same_bits(logits, expected, f"{spec} at {past}")
            found.append(logits)
        for source, values in decoder.caches.items():
            assert_same_bits(batch.buffer(number, "cache", source), values, f"{spec}: {source}")
        rows.append(np.concatenate(found))
        if number % 2:
            np.testing.assert_array_equal(rows[-1], rows[-2], err_msg=str(spec))


@given(SPECS)
@settings(max_examples=2, deadline=None, phases=WITHOUT_SHRINKING)
def test_decoders(drawn: list[tuple[DecoderSpec, Lowering]]) -> None:
    check_decoders(drawn)


@pytest.mark.slow
@given(SPECS)
@settings(max_examples=40, deadline=None, phases=WITHOUT_SHRINKING)
def test_many_decoders(drawn: list[tuple[DecoderSpec, Lowering]]) -> None:
    check_decoders(drawn)
