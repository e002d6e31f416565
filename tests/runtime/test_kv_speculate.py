"""Speculation makes the tokens of plain greedy decoding; states on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from amk.runtime.backends import Settings, open_decoder
from amk.runtime.decoder import Decoder
from amk.runtime.generate import decode
from amk.runtime.source import open_source
from amk.runtime.speculate import LONGEST, Ngrams, Speculation, checking_width, speculate

pytestmark = pytest.mark.usefixtures("cache_root")
MAX_SEQ = 48
PERIODIC = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]


@pytest.fixture(scope="module")
def decoders() -> dict[str, Decoder]:
    return {}


@pytest.fixture(params=["native", "reference"])
def decoder(request, decoders: dict[str, Decoder], cache_root: object) -> Decoder:
    if request.param not in decoders:
        settings = Settings(max_seq=MAX_SEQ, speculate=True)
        decoders[request.param] = open_decoder(request.param, open_source("toy"), settings)
    found = decoders[request.param]
    found.reset()
    return found


# ---- proposals ----------------------------------------------------------------------------------


def test_longest_suffix_wins() -> None:
    text = Ngrams([5, 1, 2, 7, 9, 1, 2, 8, 5, 1, 2])
    # "1 2" was last followed by 8, the longer "5 1 2" by 7.
    assert text.propose(3) == [7, 9, 1]


def test_latest_of_equal_suffixes() -> None:
    assert Ngrams([1, 2, 7, 1, 2, 8, 1, 2]).propose(2) == [8, 1]


def test_proposal_goes_on_through_itself() -> None:
    assert Ngrams([1, 2, 3, 1, 2, 3]).propose(7) == [1, 2, 3, 1, 2, 3, 1]
    assert Ngrams([9, 9, 9]).propose(4) == [9, 9, 9, 9]


@pytest.mark.parametrize("text", [[], [1], [1, 1], [1, 2, 3], [1, 2, 3, 2]])
def test_nothing_seen_before(text: list[int]) -> None:
    assert Ngrams(text).propose(7) == []


def test_index_stays_small() -> None:
    text = Ngrams(range(1000))
    assert len(text.followed) < 1000 * LONGEST


# ---- decoding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [PERIODIC, [5, 6, 7], [0], [250, 3, 250, 3, 250]])
@pytest.mark.parametrize("count", [1, 2, 9, 30])
def test_tokens_are_those_of_plain_decoding(
    decoder: Decoder, prompt: list[int], count: int
) -> None:
    plain = decode(decoder, prompt, count)
    rows = decoder.cache.rows("k0", decoder.length)  # type: ignore[union-attr]
    decoder.reset()
    seen: list[int] = []
    assert speculate(decoder, prompt, count, on_token=seen.append) == plain == seen
    assert decoder.tokens == [*prompt, *plain[:-1]]
    assert (decoder.cache.rows("k0", decoder.length) == rows).all()  # type: ignore[union-attr]


def test_up_to_a_full_cache(decoder: Decoder) -> None:
    count = MAX_SEQ - len(PERIODIC) + 1
    plain = decode(decoder, PERIODIC, count)
    decoder.reset()
    assert speculate(decoder, PERIODIC, count) == plain
    assert decoder.length == MAX_SEQ


def test_stop_tokens(decoder: Decoder) -> None:
    plain = decode(decoder, PERIODIC, 30)
    for stop in sorted(set(plain)):
        decoder.reset()
        first = plain[: plain.index(stop) + 1]
        assert speculate(decoder, PERIODIC, 30, frozenset({stop})) == first
        assert decoder.tokens == [*PERIODIC, *first[:-1]]


def test_fewer_launches_on_a_text_that_repeats(decoder: Decoder) -> None:
    decode(decoder, PERIODIC, 30)
    plain = decoder.launches
    decoder.reset()
    report = Speculation()
    speculate(decoder, PERIODIC, 30, report=report)
    assert decoder.launches < plain
    assert 0 < report.kept <= report.proposed
    assert report.proposed == 7 * report.checks
    assert checking_width(decoder) == 8


def test_goes_on_from_what_the_decoder_holds(decoder: Decoder) -> None:
    plain = decode(decoder, PERIODIC, 20)
    decoder.reset()
    decoder.prefill(PERIODIC[:6])
    assert speculate(decoder, PERIODIC[6:], 20) == plain


# ---- command line -------------------------------------------------------------------------------


def run(amk, *extra: object) -> dict:
    ran = amk("generate", "toy", "--max-seq", MAX_SEQ, "--json", *extra)
    assert ran.code == 0, ran.err
    return ran.json


def test_cli_speculates(amk) -> None:
    prompt = ("--prompt-ids", "1,2,3,4,1,2,3,4,1,2", "--max-tokens", 30)
    plain = run(amk, *prompt)
    found = run(amk, *prompt, "--speculate", "ngram")
    assert found["tokens"] == plain["tokens"]
    assert len(found["per_step_latency_us"]) < len(plain["per_step_latency_us"])
    assert any(note.startswith("speculation:") for note in found["notes"])


def test_cli_goes_on_from_a_state(amk, tmp_path: Path) -> None:
    path = tmp_path / "s.kv"
    whole = run(amk, "--prompt-ids", "5,6,7", "--max-tokens", 20)
    first = run(amk, "--prompt-ids", "5,6,7", "--max-tokens", 8, "--save-state", path)
    rest = run(amk, "--load-state", path, "--max-tokens", 12)
    assert [*first["generated"], *rest["generated"]] == whole["generated"]
    assert rest["tokens"] == whole["tokens"]
    more = run(amk, "--load-state", path, "--prompt-ids", "9,9", "--max-tokens", 5)
    again = run(
        amk, "--prompt-ids", ",".join(map(str, [*first["tokens"], 9, 9])), "--max-tokens", 5
    )
    assert more["tokens"] == again["tokens"]


def test_cli_refuses(amk, tmp_path: Path) -> None:
    path = tmp_path / "s.kv"
    options = ("--max-seq", MAX_SEQ)
    run(amk, "--prompt-ids", "5,6,7", "--max-tokens", 8, "--save-state", path)
    amk("generate", "toy", *options, "--load-state", path, "--max-tokens", 60).refused(
        2, "more than max_seq 48"
    )
    amk("generate", "toy", "--load-state", tmp_path / "none", *options).refused(1, "none")
    amk("generate", "toy", "--chat", "--speculate", "ngram").refused(2, "--speculate")
    amk("generate", "toy", "--prompt-ids", 1, "--speculate", "ngram", "--temperature", 1).refused(
        2, "greedy"
    )
