"""Several greedy steps in one launch: the bits of as many launches, on every backend."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import amk as package
from amk.errors import AmkError
from amk.runtime.decoder import Decoder
from amk.runtime.generate import decode
from amk.runtime.sampling import Sampler
from amk.runtime.source import as_source
from tests import families
from tests.runtime.conftest import Amk
from tests.runtime.kv_probe import BACKEND_NAMES, VOCAB, Shape, fresh, state, tokens

pytestmark = pytest.mark.usefixtures("cache_root")
RINGS = ("native", "reference")
SQUARE, WINDOWED = Shape(heads=4), Shape(heads=4, window=4)
"""Probes with as many logits as ids, so that a token made can be read."""


@pytest.fixture(params=BACKEND_NAMES)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


def one_by_one(decoder: Decoder, token: int, count: int) -> list[int]:
    """Greedy tokens by a launch each."""
    made: list[int] = []
    for _ in range(count):
        token = int(decoder.step(token).argmax())
        made.append(token)
    return made


def same_state(a: Decoder, b: Decoder) -> bool:
    """Lengths, tokens and the bits of all live rows."""
    rows = [[state(d).rows(n, d.length).tobytes() for n in state(d).specs] for d in (a, b)]
    return a.tokens == b.tokens and rows[0] == rows[1]


def test_bits_of_as_many_launches(backend: str) -> None:
    with (
        fresh(backend, SQUARE) as plain,
        fresh(backend, SQUARE) as at_once,
        fresh(backend, SQUARE) as in_parts,
    ):
        made = one_by_one(plain, 5, 13)
        assert at_once.steps(5, 13) == made
        first = in_parts.steps(5, 1)
        second = in_parts.steps(first[-1], 7)
        assert [*first, *second, *in_parts.steps(second[-1], 5)] == made
        assert (plain.launches, at_once.launches, in_parts.launches) == (13, 1, 3)
        assert same_state(plain, at_once)
        assert same_state(plain, in_parts)
        expected = plain.step(3)
        assert np.array_equal(at_once.step(3), expected)
        assert np.array_equal(in_parts.step(3), expected)


def test_an_end_token_stops_the_launch(backend: str) -> None:
    with fresh(backend, SQUARE) as plain, fresh(backend, SQUARE) as ending:
        free = one_by_one(plain, 5, 12)
        upto = free.index(free[6]) + 1
        assert ending.steps(5, 12, [VOCAB + 7, free[6]]) == free[:upto]
        assert ending.length == upto
        plain.truncate(upto)
        assert same_state(plain, ending)
        assert np.array_equal(ending.step(9), plain.step(9))


def test_caches_grow_before_the_launch(backend: str) -> None:
    with fresh(backend, SQUARE) as decoder:
        decoder.prefill(tokens(5))
        before = state(decoder).reallocations
        decoder.steps(1, 40)
        assert state(decoder).reallocations == before + 1
        assert state(decoder).capacity("k0") == 45


def test_errors_come_before_anything_runs(backend: str) -> None:
    with fresh(backend, SQUARE) as decoder:
        decoder.prefill(tokens(4))
        longest = decoder.max_seq - 4
        for token, count, words in (
            (VOCAB, 1, "outside the vocabulary"),
            (-1, 2, "outside the vocabulary"),
            (1, 0, "0 steps"),
            (1, longest + 1, "positions exceed max_seq"),
        ):
            with pytest.raises(ValueError, match=words):
                decoder.steps(token, count)
        assert (decoder.length, decoder.launches) == (4, 4)
        assert len(decoder.steps(1, longest)) == longest
        assert decoder.length == decoder.max_seq
        decoder.reset()
    with pytest.raises(ValueError, match="closed"):
        decoder.steps(1, 1)


@pytest.mark.parametrize("name", RINGS)
def test_rings(name: str) -> None:
    """Past the ring's end, ended early by a token, then truncated and saved as launches would."""
    with fresh(name, WINDOWED) as first:
        first.prefill(tokens(250))
        free = one_by_one(first, 7, 20)
    with fresh(name, WINDOWED) as plain, fresh(name, WINDOWED) as at_once:
        for decoder in (plain, at_once):
            decoder.prefill(tokens(250))
        made = one_by_one(plain, 7, free.index(free[-1]) + 1)
        assert at_once.steps(7, 60, [made[-1]]) == made
        assert state(at_once).written == at_once.length
        assert same_state(plain, at_once)
        for decoder in (plain, at_once):
            decoder.truncate(decoder.length - 2)
        assert np.array_equal(at_once.step(3), plain.step(3))


def test_int8_caches_and_any_number_of_workers() -> None:
    program = package.compile("toy", max_seq=64, kv_dtype="int8")
    with (
        program.session("toy", threads=1) as plain,
        program.session("toy", threads=5) as at_once,
    ):
        assert at_once.steps(11, 40) == one_by_one(plain, 11, 40)
        assert same_state(plain, at_once)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", families.FAMILIES)
def test_families(name: str, dtype: str) -> None:
    program = package.compile(families.build(name, dtype), max_seq=48, dtype=dtype)
    model = as_source(families.build(name, dtype), dtype)
    with program.session(model, threads=2) as plain, program.session(model, threads=2) as at_once:
        for decoder in (plain, at_once):
            decoder.prefill(families.random_tokens(18))
        assert at_once.steps(3, 16) == one_by_one(plain, 3, 16)
        assert same_state(plain, at_once)


def test_ids_that_could_not_be_read_are_refused() -> None:
    """The other probe makes 96 logits from a table of 64 rows."""
    with fresh("native") as decoder:
        with pytest.raises(AmkError, match="ids below 96 and reads those below 64"):
            decoder.steps(1, 2)
        with pytest.raises(ValueError, match=r"token 70 is outside the vocabulary \[0, 64\)"):
            decoder.step(70)
        assert decoder.length == 0


def test_a_backend_that_takes_one_step_says_so() -> None:
    class OneStep(Decoder):
        def _run(self, number: int, tokens: Sequence[int]) -> np.ndarray:
            raise AssertionError

    with (
        fresh("native", SQUARE) as other,
        pytest.raises(AmkError, match="OneStep takes one step a launch"),
    ):
        OneStep(other.facts).steps(1, 2)


# ---- generation ---------------------------------------------------------------------------


@pytest.mark.parametrize("each", [2, 64])
def test_generate(each: int) -> None:
    plain = package.generate("toy", "cpu", [1, 2, 3], 12)
    found = package.generate("toy", "cpu", [1, 2, 3], 12, tokens_per_launch=each)
    assert found["tokens"] == plain["tokens"]
    assert len(found["per_step_latency_us"]) == 3 + -(-11 // each)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True])
def test_generate_refuses_what_is_no_number_of_tokens(bad: object) -> None:
    with pytest.raises(ValueError, match="tokens_per_launch"):
        package.generate("toy", "cpu", [1], 2, tokens_per_launch=bad)  # type: ignore[arg-type]


def test_stop_tokens_and_callbacks() -> None:
    with fresh("native", SQUARE) as plain, fresh("native", SQUARE) as at_once:
        free = decode(plain, [4, 5], 20)
        stop = frozenset([free[9]])
        seen: list[int] = []
        made = decode(at_once, [4, 5], 20, stop=stop, on_token=seen.append, tokens_per_launch=4)
        assert made == seen == free[: free.index(free[9]) + 1]
        assert at_once.length == 2 + len(made) - 1
        with pytest.raises(ValueError, match="greedy"):
            decode(at_once, [1], 2, Sampler(), tokens_per_launch=2)


def test_command_line(amk: Amk, backend: str) -> None:
    words = ("generate", "toy", "--prompt-ids", "1,2,3", "--max-tokens", 9, "--backend", backend)
    words = (*words, "--max-seq", 64)
    plain = amk(*words, "--json").json
    found = amk(*words, "--json", "--tokens-per-launch", 3).json
    assert found["tokens"] == plain["tokens"]
    assert len(found["per_step_latency_us"]) == 3 + 3
    streamed = amk(*words, "--stream", "--tokens-per-launch", 4)
    assert [int(word) for word in streamed.out.split()] == plain["generated"]


def test_command_line_refusals(amk: Amk) -> None:
    words = ("generate", "toy", "--prompt-ids", "1", "--tokens-per-launch")
    assert amk(*words, 0).code == 2
    amk(*words, 4, "--temperature", 1).refused(2, "--tokens-per-launch", "greedy")
    amk(*words, 4, "--speculate", "ngram").refused(2, "--speculate")


@pytest.mark.parametrize("name", [n for n in BACKEND_NAMES if n != "reference"])
def test_refused_without_a_proof(name: str) -> None:
    """A certificate for one step a launch: the session says so, and single steps go on."""
    with fresh(name, SQUARE) as decoder:
        decoder.program.__dict__["several_steps"] = False  # type: ignore[attr-defined]
        before = decoder.cache.written, decoder._fed
        with pytest.raises(AmkError, match="the proof is for one step a launch"):
            decoder.steps(5, 2)
        assert (decoder.cache.written, decoder._fed) == before  # nothing was changed
        assert decoder.step(5).shape == (VOCAB,)
