"""Rings and sliding windows, on every backend that has them. Numbers in brackets are the cases of
docs/dialects/kv.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from amk.errors import ModelFileError
from amk.runtime import state_file
from amk.runtime.kv_memory import CacheSpec, HostMemory
from amk.runtime.kv_state import KvState
from amk.runtime.state_file import State
from tests.runtime.kv_probe import (
    BACKEND_NAMES,
    WINDOWED,
    Plain,
    close,
    fresh,
    keys_of,
    probe,
    state,
    tokens,
)

pytestmark = pytest.mark.usefixtures("cache_root")
SLOTS = 32
"""Rows of the probe's ring: window − 1 + 16 new ones = 19, in multiples of 16."""


@pytest.fixture(params=BACKEND_NAMES)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


def test_ring_of_four(backend: str) -> None:
    """[39, 41]: exactly the last W positions, also at positions W − 1, W and W + 1."""
    ids, plain = tokens(10), Plain(probe(WINDOWED))
    with fresh(backend, WINDOWED) as decoder:
        for n, token in enumerate(ids, 1):
            assert close(decoder.step(token), plain.last(ids[:n]))


def test_chunk_is_causal(backend: str) -> None:
    """[40]: rows of one launch see no later row, and the window inside the chunk."""
    ids, plain = tokens(32), Plain(probe(WINDOWED))
    with fresh(backend, WINDOWED) as decoder:
        logits = decoder.logits(ids)
        for n in range(1, 33):
            assert close(logits[n - 1], plain.last(ids[:n]))


def test_rows_of_a_chunk_equal_steps(backend: str) -> None:
    ids = tokens(16)
    with fresh(backend, WINDOWED) as decoder:
        logits = decoder.logits(ids)
        decoder.reset()
        for token, row in zip(ids, logits, strict=True):
            assert np.array_equal(decoder.step(token), row)


def test_memory_stays_at_the_window(backend: str) -> None:
    """Past the ring's end, in chunks that wrap and token by token: the same memory, right rows."""
    ids, plain = tokens(300), Plain(probe(WINDOWED))
    with fresh(backend, WINDOWED) as decoder:
        cache = state(decoder)
        start = cache.nbytes
        decoder.step(ids[0])  # so that chunks of 16 are not aligned with the ring
        logits = decoder.logits(ids[1:289])
        assert close(logits[-1], plain.last(ids[:289]))
        assert np.array_equal(keys_of(decoder), plain.keys(ids[:289])[:, :, -SLOTS:])
        for n in range(289, 300):
            poison_dead(decoder)
            assert close(decoder.step(ids[n]), plain.last(ids[: n + 1]))
        assert cache.nbytes == start == 2 * 2 * SLOTS * 16 * 4
        assert cache.reallocations == cache.bytes_copied == 0


def poison_dead(decoder) -> None:
    """NaN into every slot that the next position does not see."""
    cache = state(decoder)
    for name, spec in cache.specs.items():
        live = np.arange(spec.first_read(decoder.length), decoder.length) % SLOTS
        rows = cache.memory.get(spec, cache.arrays[name], SLOTS, np.arange(SLOTS))
        dead = np.setdiff1d(np.arange(SLOTS), live)
        rows[spec.index(dead)] = np.nan
        cache.memory.put(spec, cache.arrays[name], SLOTS, np.arange(SLOTS), rows)


def test_truncate_knows_what_a_ring_lost(backend: str) -> None:
    ids, plain = tokens(290), Plain(probe(WINDOWED))
    with fresh(backend, WINDOWED) as decoder:
        decoder.prefill(ids)
        decoder.truncate(280)
        assert close(decoder.step(5), plain.last([*ids[:280], 5]))
        # Rows before 290 − 32 are gone; position 260 would read 257.
        with pytest.raises(ValueError, match="holds none before 258"):
            decoder.truncate(260)
        assert decoder.length == 281
        decoder.truncate(261)
        assert close(decoder.step(5), plain.last([*ids[:261], 5]))
        decoder.truncate(0)
        assert close(decoder.step(5), plain.last([5]))


def test_a_ring_emptied_and_fed_again(backend: str, tmp_path: Path) -> None:
    """What it lost before counts no more: few rows are saved, loaded and cut back."""
    ids, plain = tokens(5), Plain(probe(WINDOWED))
    with fresh(backend, WINDOWED) as decoder:
        decoder.prefill(tokens(60, seed=1))
        decoder.truncate(0)
        decoder.prefill(ids)
        assert np.array_equal(keys_of(decoder), plain.keys(ids))
        decoder.save(tmp_path / "s.kv")
        decoder.truncate(3)
        assert close(decoder.step(7), plain.last([*ids[:3], 7]))
    with fresh(backend, WINDOWED) as decoder:
        decoder.load(tmp_path / "s.kv")
        assert close(decoder.step(7), plain.last([*ids, 7]))


def test_state_of_a_ring(backend: str, tmp_path: Path) -> None:
    ids = tokens(290)
    with fresh(backend, WINDOWED) as decoder:
        decoder.prefill(ids)
        decoder.save(tmp_path / "s.kv")
        expected = [decoder.step(t) for t in (1, 2, 3)]
    found = state_file.read_state(tmp_path / "s.kv")
    assert found.rows["k0"].shape[2] == SLOTS
    for other in BACKEND_NAMES:
        with fresh(other, WINDOWED) as decoder:
            decoder.load(tmp_path / "s.kv")
            assert decoder.length == 290
            exact = other == backend or "simt" not in (other, backend)
            for token, logits in zip((1, 2, 3), expected, strict=True):
                got = decoder.step(token)
                assert np.array_equal(got, logits) if exact else close(got, logits)
    few = {name: rows[:, :, -2:] for name, rows in found.rows.items()}
    state_file.write_state(
        tmp_path / "few.kv", State(found.tokens, few, found.facts), dict.fromkeys(few, "f32")
    )
    with fresh(backend, WINDOWED) as decoder, pytest.raises(ModelFileError, match="cache 'k0'"):
        decoder.load(tmp_path / "few.kv")


def test_ring_slots_without_a_kernel() -> None:
    spec = CacheSpec("k0", (1, 2, 6, 1), 2, "f32", "ring", 4)
    cache = KvState([spec], 100, HostMemory(np.empty))
    for j in range(20):
        cache.reserve(j, 1)
        cache.arrays["k0"][:, :, j % 6] = j
        held = cache.rows("k0", j + 1)[0, 0, :, 0].tolist()
        assert held == list(range(max(0, j - 5), j + 1))
    cache.check_truncate(17)  # reads 14
    with pytest.raises(ValueError, match="holds none before 14"):
        cache.check_truncate(16)
