"""The emitted C, compiled and run, gives the bits of the `mk` interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.interpret.mk_bench import Bench, interpret
from tests.interpret.mk_cases import CASES
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
