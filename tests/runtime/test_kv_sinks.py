"""Rings whose first rows stay (Xiao et al. 2023), on every backend: attention over the first rows
and the last ones, against plain numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from amk.compiler import compile
from amk.errors import AmkError
from amk.frontend.hf import import_model
from amk.passes import run_pipeline
from amk.runtime.program import Program
from amk.runtime.source import as_source
from tests.runtime.kv_probe import (
    BACKEND_NAMES,
    Plain,
    Shape,
    close,
    fresh,
    keys_of,
    probe,
    state,
    tokens,
)
from tests.runtime.test_simt import check_bits

pytestmark = pytest.mark.usefixtures("cache_root")
SINKS = Shape(window=6, first_rows=3)
SLOTS = 32
"""3 that stay, 6 − 1 + 16 others, in multiples of 16."""


@pytest.fixture(params=BACKEND_NAMES)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


def test_attention_over_sinks_and_window(backend: str) -> None:
    """Token by token until slots were taken three times over, then in launches of 16; the memory
    is that of the ring, and dead slots reach no output."""
    ids, plain = tokens(150), Plain(probe(SINKS))
    with fresh(backend, SINKS) as decoder:
        cache = state(decoder)
        start = cache.nbytes
        steps = []
        for n, token in enumerate(ids, 1):
            if n % 8 == 0:
                poison_dead(decoder)
            steps.append(decoder.step(token))
            assert close(steps[-1], plain.last(ids[:n])), n
        decoder.reset()
        np.testing.assert_array_equal(decoder.logits(ids), np.stack(steps))
        held = [*range(3), *range(150 - (SLOTS - 3), 150)]
        assert np.array_equal(keys_of(decoder), plain.keys(ids)[:, :, held])
        assert cache.nbytes == start == 2 * 2 * SLOTS * 16 * 4


def poison_dead(decoder) -> None:
    """NaN into every slot that the next position does not see."""
    cache, length = state(decoder), decoder.length
    for name, spec in cache.specs.items():
        live = spec.slots_of(spec.last(spec.needed(length), length))
        rows = cache.memory.get(spec, cache.arrays[name], SLOTS, np.arange(SLOTS))
        rows[spec.index(np.setdiff1d(np.arange(SLOTS), live))] = np.nan
        cache.memory.put(spec, cache.arrays[name], SLOTS, np.arange(SLOTS), rows)


def test_state_of_a_ring_with_sinks(backend: str, tmp_path: Path) -> None:
    ids, plain = tokens(90), Plain(probe(SINKS))
    with fresh(backend, SINKS) as decoder:
        decoder.prefill(ids)
        decoder.truncate(80)
        assert close(decoder.step(7), plain.last([*ids[:80], 7]))
        with pytest.raises(ValueError, match="holds none before 61"):
            decoder.truncate(60)
        decoder.save(tmp_path / "s.kv")
        fork = decoder.fork()
        decoder.truncate(2)  # sinks alone are read from here on
        assert close(decoder.step(5), plain.last([*ids[:2], 5]))
        assert close(fork.step(5), plain.last([*ids[:80], 7, 5]))
        fork.close()
    with fresh(backend, SINKS) as decoder:
        decoder.load(tmp_path / "s.kv")
        assert close(decoder.step(5), plain.last([*ids[:80], 7, 5]))


@pytest.mark.parametrize("kv_dtype", [None, "int8"])
def test_kernels_equal_the_interpreter(kv_dtype: str | None) -> None:
    source = as_source(probe(Shape(heads=2, window=9, first_rows=5)))
    check_bits(source, "f32", tokens(60), max_seq=80, kv_dtype=kv_dtype)


def test_a_cache_that_is_no_ring() -> None:
    """Where `max_seq` is no longer than the ring would be, all rows are kept, and most hidden."""
    source, ids = as_source(probe(SINKS)), tokens(30)
    plain, policies = Plain(probe(SINKS)), {}
    for max_seq in (30, 64):
        program = compile(source, max_seq=max_seq)
        assert isinstance(program, Program)
        with program.session(source) as session:
            policies[max_seq] = state(session).specs["k0"].policy
            assert close(session.prefill(ids), plain.last(ids))
    assert policies == {30: "doubling", 64: "ring"}


def test_first_rows_lie_in_one_chunk() -> None:
    source = as_source(probe(Shape(window=6, first_rows=40)))
    module = import_model(source.importable(), tokens=1, dtype="f32")
    with pytest.raises(AmkError, match="split-kv: the first 40 rows stay, more than a chunk of 16"):
        run_pipeline(module, "amk-lm{max-seq=64 chunk=16}")
