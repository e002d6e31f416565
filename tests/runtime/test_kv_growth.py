"""The cache grows between launches: sizes, counts, and bits that stay. Numbers in brackets are the
cases of docs/dialects/kv.md."""

from __future__ import annotations

import math

import numpy as np
import pytest

from amk.compiler import Options
from amk.errors import AmkError
from amk.runtime.kv_memory import CacheSpec, DeviceMemory, HostMemory, KvMemory
from amk.runtime.kv_state import KvState
from tests.runtime.kv_probe import (
    BACKEND_NAMES,
    FULL,
    MAX_SEQ,
    Plain,
    close,
    fresh,
    keys_of,
    poison,
    probe,
    state,
    tokens,
)


class FakeDevice:
    """A device whose memory is a dict of bytes."""

    def __init__(self) -> None:
        self.memory: dict[int, np.ndarray] = {}
        self.next = 1 << 20

    def allocate(self, nbytes: int) -> int:
        self.next += 1 << 20
        self.memory[self.next] = np.zeros(nbytes, np.uint8)
        return self.next

    def free(self, address: int) -> None:
        del self.memory[address]

    def write(self, address: int, array: np.ndarray) -> None:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.memory[address][: data.size] = data

    def read(self, address: int, array: np.ndarray) -> None:
        flat = array.reshape(-1).view(np.uint8)
        flat[...] = self.memory[address][: flat.size]

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Addresses inside what was allocated, 1 MiB apart at the least."""
        first, second = ((a >> 20) << 20 for a in (to, source))
        data = self.memory[second][source - second :][:nbytes]
        assert data.size == nbytes
        self.memory[first][to - first :][:nbytes] = data


MEMORIES = {
    "host": lambda: HostMemory(np.empty),
    "device": lambda: DeviceMemory(FakeDevice()),
}


def shape_of(axis: int) -> tuple[int, ...]:
    return (*(2, 3, 4)[:axis], -1, *(2, 3, 4)[axis:])


class Rows:
    """A cache, the rows that were put into it, and a kernel that appends."""

    def __init__(self, memory: KvMemory, axis: int = 2, max_seq: int = 4096, policy="doubling"):
        self.spec = CacheSpec("k0", shape_of(axis), axis, "f32", policy)
        self.state = KvState([self.spec], max_seq, memory)
        self.plain = np.zeros(self.spec.at(0), np.float32)
        self.rng = np.random.default_rng(0)

    @property
    def length(self) -> int:
        return self.plain.shape[self.spec.axis]

    @property
    def capacity(self) -> int:
        return self.state.capacity("k0")

    def append(self, count: int) -> bool:
        moved = self.state.reserve(self.length, count)
        new = self.rng.standard_normal(self.spec.at(count)).astype(np.float32)
        slots = np.arange(self.capacity)
        memory, array = self.state.memory, self.state.arrays["k0"]
        held = memory.get(self.spec, array, self.capacity, slots)
        held[self.spec.index(slice(self.length, self.length + count))] = new
        memory.put(self.spec, array, self.capacity, slots, held)
        self.plain = np.concatenate([self.plain, new], self.spec.axis)
        return moved

    def check(self) -> None:
        assert np.array_equal(self.state.rows("k0", self.length), self.plain)


@pytest.fixture(params=MEMORIES)
def memory(request: pytest.FixtureRequest) -> KvMemory:
    return MEMORIES[request.param]()


def test_growth_rule(memory: KvMemory) -> None:
    """[1, 3, 4, 5, 7, 8]"""
    rows = Rows(memory)
    assert rows.append(0) is False
    assert rows.state.rows("k0", 0).shape == rows.spec.at(0)
    rows.append(5)
    assert (rows.length, rows.capacity, rows.state.reallocations) == (5, 5, 1)
    rows.append(0)
    assert (rows.length, rows.capacity, rows.state.reallocations) == (5, 5, 1)
    assert rows.append(1)
    assert (rows.capacity, rows.state.reallocations) == (10, 2)
    rows.append(3)
    assert not rows.append(1)
    assert (rows.length, rows.capacity, rows.state.reallocations) == (10, 10, 2)
    rows.check()
    rows = Rows(memory)
    rows.append(4)
    rows.append(100)
    assert rows.capacity == 104
    rows.check()


def test_capacity_is_clamped_and_over_it_refused(memory: KvMemory) -> None:
    rows = Rows(memory, max_seq=10)
    rows.append(6)
    rows.append(1)
    assert rows.capacity == 10
    with pytest.raises(AmkError, match="cache 'k0': 11 rows exceed its capacity 10"):
        rows.state.reserve(7, 4)
    static = Rows(memory, max_seq=10, policy="static")
    assert static.capacity == 10
    assert not static.append(10)
    assert static.state.reallocations == 0
    with pytest.raises(AmkError, match="exceed its capacity"):
        static.state.reserve(10, 1)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_axis_and_chunk(memory: KvMemory, axis: int) -> None:
    """[9]"""
    rows = Rows(memory, axis)
    for count in (1, 3, 0, 2, 7, 1, 1, 5):
        rows.append(count)
        rows.check()


def test_sequence_axis_outermost_is_packed_already() -> None:
    """[15]: the live prefix is contiguous, whatever the capacity; [14]: elsewhere strides come
    from the capacity."""
    rows = Rows(HostMemory(np.empty), axis=0)
    rows.append(3)
    rows.append(1)
    assert rows.capacity > rows.length
    assert rows.state.arrays["k0"][: rows.length].flags.c_contiguous
    inner = Rows(HostMemory(np.empty), axis=2)
    inner.append(3)
    inner.append(1)
    window = inner.state.arrays["k0"][:, :, : inner.length]
    assert not window.flags.c_contiguous
    assert window.strides[1] == inner.capacity * 4 * 4


def test_bytes_copied_are_linear(memory: KvMemory) -> None:
    """[11]: n single appends copy fewer than 2 n rows."""
    rows = Rows(memory)
    for _ in range(300):
        rows.append(1)
    assert rows.state.reallocations == 1 + math.ceil(math.log2(300))
    assert rows.state.bytes_copied < 2 * rows.spec.nbytes(300)


# ---- the same through launches ------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKEND_NAMES)
def test_single_appends_equal_concatenation(backend: str, cache_root: object) -> None:
    """[2]: seven reallocations in 64 single appends; [14]: heads are found by the capacity."""
    ids, plain = tokens(64), Plain(probe())
    with fresh(backend) as decoder:
        for n, token in enumerate(ids, 1):
            logits = decoder.step(token)
            assert np.array_equal(keys_of(decoder), plain.keys(ids[:n]))
            if n in (1, 2, 3, 17, 33, 64):
                assert close(logits, plain.last(ids[:n]))
        assert state(decoder).reallocations == 7
        assert state(decoder).capacity("k0") == 64


@pytest.mark.parametrize("backend", BACKEND_NAMES)
def test_chunk_makes_exact_room(backend: str, cache_root: object) -> None:
    """[1]"""
    with fresh(backend) as decoder:
        decoder.prefill(tokens(16))
        assert state(decoder).capacity("k0") == decoder.length == 16
        assert state(decoder).reallocations == 1


@pytest.mark.parametrize("backend", BACKEND_NAMES)
def test_growth_keeps_every_bit(backend: str, cache_root: object) -> None:
    """[5], and a poisoned spare tail reaches no output [6]."""
    ids = tokens(20, seed=1)
    with fresh(backend) as decoder:
        expected = [decoder.step(token) for token in ids]
    with fresh(backend) as decoder:
        for token, logits in zip(ids, expected, strict=True):
            before = keys_of(decoder) if decoder.length else None
            full = decoder.length == state(decoder).capacity("k0")
            poison(decoder)
            assert np.array_equal(decoder.step(token), logits)
            if before is not None and full:
                assert state(decoder).capacity("k0") == 2 * before.shape[2]
                assert np.array_equal(keys_of(decoder)[:, :, :-1], before)


@pytest.mark.parametrize("backend", BACKEND_NAMES)
def test_packed_rows_are_the_callers(backend: str, cache_root: object) -> None:
    """[12]"""
    with fresh(backend) as decoder:
        decoder.prefill(tokens(5))
        held = keys_of(decoder)
        copy = held.copy()
        decoder.prefill(tokens(9, seed=2))
        assert np.array_equal(held, copy)


@pytest.mark.parametrize("backend", BACKEND_NAMES)
def test_query_heads_repeat(backend: str, cache_root: object) -> None:
    """[42]: six query heads on two kv heads: head h reads group h // 3."""
    ids, plain = tokens(7, seed=3), Plain(probe(FULL))
    with fresh(backend) as decoder:
        assert close(decoder.prefill(ids), plain.last(ids))


@pytest.mark.parametrize("backend", BACKEND_NAMES)
def test_decode_copies_linear_bytes(backend: str, cache_root: object) -> None:
    """[11] through launches."""
    count = 300 if backend == "native" else 100
    with fresh(backend) as decoder:
        for token in tokens(count):
            decoder.step(token)
        cache = state(decoder)
        live = sum(spec.nbytes(count) for spec in cache.specs.values())
        assert cache.bytes_copied < 2 * live
        assert cache.reallocations == 1 + math.ceil(math.log2(count))


@pytest.mark.parametrize("backend", BACKEND_NAMES)
def test_growth_rule_through_launches(backend: str, cache_root: object) -> None:
    """[3, 4, 5]: max(2 · capacity, length + new) before a launch, and nothing while rows fit."""
    with fresh(backend) as decoder:
        for token in tokens(4):
            decoder.step(token)
        cache = state(decoder)
        assert (cache.capacity("k0"), cache.reallocations) == (4, 3)
        decoder.logits(tokens(16))
        assert (cache.capacity("k0"), cache.reallocations) == (20, 4)
        decoder.step(1)
        assert (cache.capacity("k0"), cache.reallocations) == (40, 5)
        for token in tokens(18):
            decoder.step(token)
        assert decoder.length == cache.capacity("k0") - 1
        decoder.step(2)
        assert (cache.capacity("k0"), cache.reallocations) == (40, 5)


@pytest.mark.parametrize("backend", BACKEND_NAMES)
def test_static_caches_are_whole_from_the_start(backend: str, cache_root: object) -> None:
    """No launch moves them, and one over their rows is refused before it begins."""
    ids, plain = tokens(MAX_SEQ), Plain(probe())
    with fresh(backend, policy="static") as decoder:
        cache = state(decoder)
        assert cache.capacity("k0") == MAX_SEQ
        assert close(decoder.prefill(ids), plain.last(ids))
        assert (cache.reallocations, cache.bytes_copied) == (0, 0)
        before = keys_of(decoder)
        with pytest.raises(ValueError, match="max_seq"):
            decoder.step(1)
        assert np.array_equal(keys_of(decoder), before)


def test_policy_is_known() -> None:
    with pytest.raises(ValueError, match="unknown kv_policy 'ring'; known: doubling, static"):
        Options(kv_policy="ring")


@pytest.mark.parametrize("backend", BACKEND_NAMES)
def test_nothing_appended_changes_nothing(backend: str, cache_root: object) -> None:
    """[7, 8]: no tokens are refused, empty or not; the live rows of an empty cache are none."""
    with fresh(backend) as decoder:
        assert keys_of(decoder).shape == (1, 2, 0, 16)
        with pytest.raises(ValueError, match="no tokens"):
            decoder.logits([])
        assert (decoder.length, state(decoder).reallocations) == (0, 0)
        decoder.prefill(tokens(5))
        before = keys_of(decoder), state(decoder).capacity("k0")
        with pytest.raises(ValueError, match="no tokens"):
            decoder.prefill([])
        assert np.array_equal(keys_of(decoder), before[0])
        assert (decoder.length, state(decoder).capacity("k0")) == (5, before[1])
