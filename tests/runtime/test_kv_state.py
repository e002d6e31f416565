"""Truncate, reset, save, load and fork, on every backend. Numbers in brackets are the cases of
docs/dialects/kv.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from amk.errors import AmkError, ModelFileError
from amk.ir import kv
from amk.ir.expr import P, Sym
from amk.runtime import state_file
from amk.runtime.decoder import Decoder
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


@pytest.fixture(params=BACKEND_NAMES)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b)


def snapshot(decoder: Decoder) -> tuple[object, ...]:
    cache = state(decoder)
    rows = [cache.rows(name, decoder.length).tobytes() for name in cache.specs]
    capacities = [cache.capacity(name) for name in cache.specs]
    return list(decoder.tokens), rows, capacities, cache.reallocations


# ---- truncate ---------------------------------------------------------------------------------


def test_truncate_then_append(backend: str) -> None:
    """[21, 24]"""
    ids, plain = tokens(10), Plain(probe())
    with fresh(backend) as decoder:
        decoder.prefill(ids)
        cache = state(decoder)
        before = cache.capacity("k0"), cache.reallocations, cache.bytes_copied
        decoder.truncate(4)
        logits = decoder.step(7)
        assert same(keys_of(decoder), plain.keys([*ids[:4], 7]))
        assert close(logits, plain.last([*ids[:4], 7]))
        assert (cache.capacity("k0"), cache.reallocations, cache.bytes_copied) == before
        decoder.truncate(0)
        emptied = decoder.step(9)
    with fresh(backend) as decoder:
        assert same(decoder.step(9), emptied)


def test_truncate_errors_leave_the_length(backend: str) -> None:
    """[22, 43]"""
    with fresh(backend) as decoder:
        decoder.prefill(tokens(4))
        for bad in (5, -1, 10**9):
            with pytest.raises(ValueError, match="cannot truncate"):
                decoder.truncate(bad)
            assert decoder.length == 4


def test_truncate_of_what_was_never_fed(backend: str) -> None:
    """[23]"""
    with fresh(backend) as decoder:
        decoder.truncate(7)
        assert decoder.length == 0
        decoder.prefill(tokens(4))
        decoder.truncate(0)
        with pytest.raises(ValueError, match="cannot truncate 0 positions to 3"):
            decoder.truncate(3)
        decoder.reset()
        decoder.truncate(3)
        assert decoder.length == 0


def test_reset_equals_fresh(backend: str) -> None:
    """[45]"""
    ids = tokens(9, seed=4)
    with fresh(backend) as decoder:
        expected = decoder.logits(ids)
    with fresh(backend) as decoder:
        decoder.prefill(tokens(21, seed=5))
        decoder.reset()
        assert decoder.launches == 0
        assert same(decoder.logits(ids), expected)


def test_batches_are_refused() -> None:
    """[38]: a batch is refused by name when it is imported, so no row can be reset alone."""
    import torch

    from amk.errors import ImportRefused
    from amk.frontend.hf import import_model

    class Batch(type(probe())):
        def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            return super().forward(tokens.expand(2, -1), positions)[:1]

    with pytest.raises(ImportRefused, match=r"a cache entry that is not \[1, heads, S, depth\]"):
        import_model(Batch(probe().shape))


# ---- save and load ------------------------------------------------------------------------------


def test_saved_extent_is_the_length(backend: str, tmp_path: Path) -> None:
    """[25]"""
    with fresh(backend) as decoder:
        for token in tokens(5):
            decoder.step(token)
        assert state(decoder).capacity("k0") == 8
        decoder.save(tmp_path / "s.kv")
        expected = keys_of(decoder)
    found = state_file.read_state(tmp_path / "s.kv")
    assert found.tokens == tokens(5)
    assert found.rows["k0"].shape[2] == 5
    assert same(found.rows["k0"], expected)
    assert [p.name for p in tmp_path.iterdir()] == ["s.kv"]


def test_save_of_what_was_never_fed(backend: str, tmp_path: Path) -> None:
    """[26]"""
    never = "cache 'k0' was never written"
    with fresh(backend) as decoder, pytest.raises(AmkError, match=never):
        decoder.save(tmp_path / "s.kv")
    assert not list(tmp_path.iterdir())


def test_decode_goes_on_after_load(backend: str, tmp_path: Path) -> None:
    """[27, 46], and any backend takes what another saved."""
    ids = tokens(13, seed=6)
    with fresh(backend) as decoder:
        decoder.prefill(ids)
        decoder.save(tmp_path / "s.kv")
        expected = [decoder.step(t) for t in (1, 2, 3)]
    for other in BACKEND_NAMES:
        with fresh(other) as decoder:
            decoder.load(tmp_path / "s.kv")
            cache = state(decoder)
            assert decoder.length == cache.capacity("k0") == 13
            assert cache.reallocations == 0
            found = [decoder.step(t) for t in (1, 2, 3)]
            assert cache.reallocations == 1
            assert cache.capacity("k0") == 26
            if other == backend or "simt" not in (other, backend):
                assert all(map(same, found, expected))
            assert all(map(close, found, expected))


def test_loaded_tensors_stay_the_callers(backend: str, tmp_path: Path) -> None:
    """[28]"""
    with fresh(backend) as decoder:
        decoder.prefill(tokens(6))
        decoder.save(tmp_path / "s.kv")
        held = state_file.read_state(tmp_path / "s.kv").rows["k0"]
        copy = held.copy()
        decoder.load(tmp_path / "s.kv")
        decoder.truncate(2)
        decoder.step(5)
        assert same(held, copy)


def wrong_heads(state: State) -> State:
    return State(state.tokens, {n: r[:, :1] for n, r in state.rows.items()}, state.facts)


def wrong_layout(state: State) -> State:
    rows = {n: np.ascontiguousarray(r.swapaxes(1, 2)) for n, r in state.rows.items()}
    return State(state.tokens, rows, state.facts)


def wrong_dtype(state: State) -> State:
    rows = {n: r.astype(np.float16) for n, r in state.rows.items()}
    return State(state.tokens, rows, state.facts)


def wrong_count(state: State) -> State:
    return State(state.tokens[:-1], state.rows, state.facts)


def missing_cache(state: State) -> State:
    return State(state.tokens, {"k0": state.rows["k0"]}, state.facts)


def wrong_facts(key: str) -> Callable[[State], State]:
    return lambda state: State(state.tokens, state.rows, {**state.facts, key: "other"})


BAD = {
    "heads": (wrong_heads, r"cache 'k0' is \[1, 1, 6, 16\] in the state"),
    "layout": (wrong_layout, r"cache 'k0' is \[1, 6, 2, 16\] in the state"),
    "dtype": (wrong_dtype, "cache 'k0' is not f32 in the state"),
    "count": (wrong_count, r"cache 'k0' is \[1, 2, 6, 16\] in the state"),
    "missing": (missing_cache, "cache 'v0' is not in both"),
    "model": (wrong_facts("program"), "was saved by another program"),
    "weights": (wrong_facts("weights"), "was saved by another weights"),
    "storage": (wrong_facts("dtype"), "was saved by another dtype"),
    "format": (wrong_facts("format"), "is not a state saved by this version"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_state_is_refused_whole(backend: str, case: str, tmp_path: Path) -> None:
    """[10, 29, 44]: the earlier state is intact and decodes on."""
    change, message = BAD[case]
    path = tmp_path / "s.kv"
    with fresh(backend) as decoder:
        decoder.prefill(tokens(6))
        decoder.save(path)
        changed = change(state_file.read_state(path))
        tag = "f16" if case == "dtype" else "f32"
        state_file.write_state(path, changed, dict.fromkeys(changed.rows, tag))
        decoder.prefill(tokens(5, seed=8))
        before = snapshot(decoder)
        with pytest.raises(ModelFileError, match=message):
            decoder.load(path)
        assert snapshot(decoder) == before
        logits = decoder.step(3)
    with fresh(backend) as decoder:
        decoder.prefill(tokens(6))
        decoder.prefill(tokens(5, seed=8))
        assert same(decoder.step(3), logits)


def test_another_models_state_is_refused(tmp_path: Path) -> None:
    """[29]: same shapes, other weights."""
    with fresh("native") as decoder:
        decoder.prefill(tokens(6))
        decoder.save(tmp_path / "s.kv")
    with fresh("native", model=probe(seed=1)) as other:
        with pytest.raises(ModelFileError, match="saved by another weights"):
            other.load(tmp_path / "s.kv")
        assert other.length == 0


@pytest.mark.parametrize("cut", [0, 7, 40, -1])
def test_damaged_file_is_refused(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "s.kv"
    with fresh("native") as decoder:
        decoder.prefill(tokens(3))
        decoder.save(path)
        path.write_bytes(path.read_bytes()[:cut])
        before = snapshot(decoder)
        with pytest.raises(ModelFileError):
            decoder.load(path)
        assert snapshot(decoder) == before


def test_header_says_what_it_holds(tmp_path: Path) -> None:
    with fresh("native") as decoder:
        decoder.prefill(tokens(3))
        decoder.save(tmp_path / "s.kv")
    data = (tmp_path / "s.kv").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["k0"]["shape"] == [1, 2, 3, 16]
    assert header["__metadata__"]["dtype"] == "f32"
    assert set(header["__metadata__"]) == {"format", "model", "program", "dtype", "weights"}


def test_save_into_a_missing_folder(tmp_path: Path) -> None:
    with fresh("native") as decoder:
        decoder.prefill(tokens(3))
        with pytest.raises(AmkError, match="cannot write"):
            decoder.save(tmp_path / "no" / "s.kv")


# ---- fork ---------------------------------------------------------------------------------------


def test_forks_are_independent(backend: str) -> None:
    ids, plain = tokens(6), Plain(probe())
    with fresh(backend) as decoder:
        decoder.prefill(ids)
        cache = state(decoder)
        copied = cache.bytes_copied
        fork = decoder.fork()
        assert state(fork).arrays["k0"] is cache.arrays["k0"]
        assert (fork.length, fork.launches) == (decoder.length, 0)
        a = fork.step(1)
        assert state(fork).arrays["k0"] is not cache.arrays["k0"]
        b = decoder.step(2)
        assert cache.bytes_copied == copied  # the one left over writes in place
        assert close(a, plain.last([*ids, 1]))
        assert close(b, plain.last([*ids, 2]))
        second = decoder.fork()
        decoder.close()
        assert close(second.step(3), plain.last([*ids, 2, 3]))
        assert state(second).bytes_copied == 0 or state(second).capacity("k0") > 8
        assert close(fork.step(4), plain.last([*ids, 1, 4]))
        fork.close()
        second.close()


def test_fork_of_a_ring(backend: str) -> None:
    ids, plain = tokens(10), Plain(probe(WINDOWED))
    with fresh(backend, WINDOWED) as decoder:
        decoder.prefill(ids)
        with decoder.fork() as fork:
            assert close(fork.step(1), plain.last([*ids, 1]))
            assert close(decoder.step(2), plain.last([*ids, 2]))


# ---- symbols ------------------------------------------------------------------------------------


def test_past_binds_to_the_length(backend: str) -> None:
    """[30, 31]: never to the capacity."""
    with fresh(backend) as decoder:
        assert kv.resolve(P, {"P": decoder.length}) == 0
        for token in tokens(9):
            decoder.step(token)
        assert state(decoder).capacity("k0") == 16
        assert kv.resolve(P, {"P": decoder.length}) == 9


def test_unbound_symbols_are_named() -> None:
    """[32]"""
    with pytest.raises(AmkError, match="bind P and Q"):
        kv.resolve(P + Sym("Q") + 1, {})
    with pytest.raises(AmkError, match="bind Q"):
        kv.resolve(P + Sym("Q"), {"P": 3})
