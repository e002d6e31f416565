"""`amk bench`: rounds that take turns, ratios within rounds, contenders that are not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import amk as package
from amk.errors import AmkError
from amk.runtime import bench
from amk.runtime.llama_cpp import decoded_gguf, find_binary
from amk.runtime.roof import Roof, read_each_token
from tests.runtime.conftest import Amk
from tests.runtime.tiny_files import write_gguf


class Scripted:
    """A contender whose rounds take given times; notes when its turns come."""

    def __init__(self, name: str, seconds: list[float], log: list[str]):
        self.name, self.left, self.log = name, list(seconds), log

    def seconds(self, tokens: int, position: int) -> float:
        self.log.append(self.name)
        return self.left.pop(0)

    def close(self) -> None:
        self.log.append(f"close {self.name}")


def silent(text: str) -> None: ...


def test_rounds_take_turns() -> None:
    log: list[str] = []
    contenders = {name: Scripted(name, [1.0] * 3, log) for name in "abc"}
    bench.interleave(contenders, 8, 3, silent)
    assert "".join(log) == "abcbcacab"


def test_ratios_are_taken_within_rounds() -> None:
    """A machine that slows down in one round slows both, and the ratio stays."""
    ours, theirs = [1.0, 10.0, 1.1], [2.0, 20.0, 2.2]
    assert bench.ratio(ours, theirs) == pytest.approx(2.0)


def test_bench_of_the_toy(amk: Amk) -> None:
    words = ("--against", "hf,roof", "--rounds", 2, "--tokens", 4, "--position", 100)
    found = amk("bench", "toy", *words, "--json").json
    assert [row["name"] for row in found["rows"]] == ["amk", "hf", "roof"]
    assert all(row["tokens_per_s"] > 0 for row in found["rows"])
    assert found["rows"][0]["amk_over_it"] == 1.0
    assert found["scaling"]["position"] == 100
    assert found["scaling"]["bytes_ratio"] > 1


def test_a_missing_contender_is_one_line(amk: Amk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMK_LLAMA_BENCH", "/no/such/llama-bench")
    amk("bench", "toy", "--against", "llama.cpp").refused(1, "/no/such/llama-bench")
    with pytest.raises(AmkError, match="AMK_LLAMA_BENCH"):
        find_binary()


def test_a_worker_that_fails_says_why(cache_root: Path) -> None:
    spec = {"model": "no/such", "dtype": "f32", "threads": 1, "max_seq": 64, "rows": 8}
    with pytest.raises(AmkError, match="amk: no/such"):
        bench.Worker("amk", spec)


# ---- the roof -----------------------------------------------------------------------------


def test_the_roof_reads_what_a_step_reads(cache_root: Path) -> None:
    program = package.compile("toy-2L", max_seq=64)
    slots = read_each_token(program.layout.slots, 64)
    elements = sum(slot.shape[0] * slot.shape[1] for slot in slots)
    layer = 64 * 64 * 2 + 64 * 32 * 2 + 64 * 128 * 3
    assert elements == 2 * layer + 256 * 64


@pytest.mark.parametrize(("dtype", "kind"), [("f32", "<f4"), ("bf16", "<u2"), ("f16", "<f2")])
def test_the_roof_loop_runs(cache_root: Path, dtype: str, kind: str) -> None:
    from amk.codegen.layout import Slot

    slot = Slot("weight", "w", (7, 128), dtype, -1, -1)
    roof = Roof({slot: np.ones(slot.shape, kind)}, workers=3)
    assert roof.seconds(5) > 0


# ---- llama.cpp ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_the_file_for_llama_cpp_holds_the_same_model(
    cache_root: Path, tmp_path: Path, dtype: str
) -> None:
    from amk.runtime.source import open_source

    path = write_gguf(tmp_path / "m.gguf", kind="Q4_1")
    copied = decoded_gguf(path, dtype)
    before, after = open_source(path), open_source(copied)
    assert before.config() == after.config()
    for key, info in after.tensors().items():
        assert info.encoding == (dtype.upper() if len(info.shape) > 1 else "F32")
        assert np.array_equal(before.read(key, None, dtype), after.read(key, None, dtype)), key


@pytest.fixture
def fake_llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def install(script: str) -> None:
        path = tmp_path / "llama-bench"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("AMK_LLAMA_BENCH", str(path))

    return install


def test_llama_bench_is_asked_and_read(
    cache_root: Path, tmp_path: Path, fake_llama: Callable[[str], None]
) -> None:
    model = write_gguf(tmp_path / "m.gguf", kind="F16")
    fake_llama(f'echo "$@" > {tmp_path}/asked; echo \'[{{"avg_ns": 2500000000}}]\'')
    contender = bench.LlamaBench(model, "bf16", 2)
    assert contender.seconds(32, 0) == 2.5
    asked = (tmp_path / "asked").read_text().split()
    assert [asked[asked.index(flag) + 1] for flag in ("-t", "-n", "-d")] == ["2", "32", "0"]
    fake_llama("echo cannot load >&2; exit 3")
    with pytest.raises(AmkError, match="cannot load"):
        bench.LlamaBench(model, "bf16", 2).seconds(1, 0)
