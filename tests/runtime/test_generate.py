"""`amk.generate` and what it is made of: the record, the errors and their order, sampling."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import amk
from amk.frontend import ops as ops
from amk.runtime import backends, cuda_driver
from amk.runtime.result import divergence
from amk.runtime.sampling import Sampler, chooser, greedy
from amk.runtime.source import as_source
from amk.targets import TARGETS, Target, find_target
from tests import families


@pytest.fixture(autouse=True)
def _cache(cache_root: Path) -> None:
    """Every test compiles into the cache of the run."""


def test_record(monkeypatch: pytest.MonkeyPatch) -> None:
    found = amk.generate("toy", "h100", [1, 2, 3], 5, verify=True)
    assert list(found) == [
        "tokens", "generated", "per_step_latency_us", "divergence_index", "max_tokens",
        "matches_eager", "device", "backend", "model", "gpu", "eager_tokens", "notes",
    ]  # fmt: skip
    assert found["tokens"] == [1, 2, 3, *found["generated"]]
    assert found["eager_tokens"] == found["generated"]
    assert found["divergence_index"] == found["max_tokens"] == len(found["generated"]) == 5
    assert found["matches_eager"] is True
    assert (found["device"], found["backend"], found["gpu"]) == ("cpu", "native", "h100")
    # Three launches of one token for the prompt, four that follow the first new token.
    assert len(found["per_step_latency_us"]) == 7
    assert all(us > 0 for us in found["per_step_latency_us"])


def test_not_verified() -> None:
    found = amk.generate("toy", "cpu", [1], 1)
    assert (found["divergence_index"], found["matches_eager"]) == (-1, None)
    assert found["eager_tokens"] is None


def test_the_given_eager_model_is_compared_with() -> None:
    other = families.build("llama", "f32")
    found = amk.generate("toy", "cpu", [1, 2], 4, verify=True, eager_model=other)
    assert found["matches_eager"] is False
    assert 0 <= found["divergence_index"] < 4
    at = found["divergence_index"]
    assert found["eager_tokens"][at] != found["generated"][at]


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
def test_a_transformers_model(name: str) -> None:
    model = families.build(name, "f32")
    prompt = families.random_tokens(21)
    assert amk.generate(model, "cpu", prompt, 12, verify=True)["matches_eager"] is True


def test_two_models_of_one_class_are_two_programs() -> None:
    """Weights are the object's own, and so is what its config says of the arithmetic."""
    first = families.build("llama", "f32")
    tokens = families.random_tokens(9)
    before = amk.generate(first, "cpu", tokens, 8)["generated"]
    with torch.no_grad():
        first.lm_head.weight.copy_(first.lm_head.weight.flip(0))
    after = amk.generate(first, "cpu", tokens, 8, verify=True)
    assert after["generated"] != before
    assert after["matches_eager"] is True


class Tiny(torch.nn.Module):
    """A decoder of one attention layer that calls the two ops itself."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(50, 32)
        self.q, self.k, self.v = (torch.nn.Linear(32, 32, bias=False) for _ in range(3))
        self.head = torch.nn.Linear(32, 50, bias=False)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        q, k, v = (p(x).unflatten(2, (2, 16)).transpose(1, 2) for p in (self.q, self.k, self.v))
        k, v = torch.ops.amk.kv_append(k, v, 0)
        seen = torch.ops.amk.mask(0, x.device)
        mixed = torch.ops.amk.attention(q, k, v, seen, 0.25).flatten(2)
        return self.head(x + mixed)


def test_a_plain_module() -> None:
    torch.manual_seed(0)
    model = Tiny()
    tokens = [3, 1, 4, 1, 5]
    program = amk.compile(model, max_seq=64)
    with program.session(model) as session:
        ours = session.logits(tokens)
    with torch.no_grad():
        x = model.embed(torch.tensor([tokens]))
        q, k, v = (p(x).unflatten(2, (2, 16)).transpose(1, 2) for p in (model.q, model.k, model.v))
        mixed = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=0.25
        )
        theirs = model.head(x + mixed.transpose(1, 2).flatten(2))[0].numpy()
    assert np.abs(ours - theirs).max() < 1e-5
    with pytest.raises(ValueError, match="eager_model"):
        amk.generate(model, "cpu", tokens, 4, verify=True)


# ---- errors, all before any work ----------------------------------------------------------


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("work was begun")

    monkeypatch.setattr("amk.compiler.compile", work)
    monkeypatch.setattr(backends, "open_native", work)
    monkeypatch.setattr("amk.runtime.generate.open_decoder", work)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"prompt_ids": []}, ValueError, "prompt is empty"),
        ({"prompt_ids": [1, -2]}, ValueError, "-2 is negative"),
        ({"prompt_ids": [256]}, ValueError, r"256 is outside the vocabulary \[0, 256\)"),
        ({"prompt_ids": ["a"]}, ValueError, "'a' is not an integer"),
        ({"prompt_ids": [1.0]}, ValueError, "1.0 is not an integer"),
        ({"prompt_ids": [True]}, ValueError, "True is not an integer"),
        ({"max_tokens": 0}, ValueError, "max_tokens 0 is less than 1"),
        ({"max_tokens": 2046}, None, ""),
        ({"max_tokens": 2047}, ValueError, "2049 positions, more than max_seq 2048"),
        ({"gpu": "h1000"}, KeyError, "unknown target 'h1000'; known: cpu, .*h100"),
        ({"device": "cuda"}, RuntimeError, "no device"),
        ({"device": "tpu"}, ValueError, "'tpu' is not one of"),
        ({"dtype": "f64"}, ValueError, "unknown dtype 'f64'"),
        ({"model": "no/such"}, amk.errors.ModelFileError, "no/such"),
        ({"model": 3}, TypeError, "not int"),
    ],
)
def test_errors_come_before_work(
    no_work: None, monkeypatch: pytest.MonkeyPatch, change: dict, error: Any, words: str
) -> None:
    monkeypatch.setattr(backends, "cuda_device_count", lambda: 0)
    arguments = {"model": "toy", "gpu": "cpu", "prompt_ids": [1, 2, 3], "max_tokens": 2}
    expected = error or AssertionError
    with pytest.raises(expected, match=words or "work was begun"):
        amk.generate(**{**arguments, **change})


def test_numpy_and_torch_ids_are_integers() -> None:
    plain = amk.generate("toy", "cpu", [1, 2, 3], 2)["tokens"]
    assert amk.generate("toy", "cpu", np.array([1, 2, 3]), np.int64(2))["tokens"] == plain  # type: ignore
    assert amk.generate("toy", "cpu", torch.tensor([1, 2, 3]), 2)["tokens"] == plain  # type: ignore


def test_auto_is_the_processor_whatever_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "cuda_device_count", lambda: 8)
    assert backends.choose_backend("auto") == "native"
    assert backends.choose_device("auto") == "cpu"
    assert backends.choose_backend("auto", "cuda") == backends.choose_backend("cuda") == "cuda"


def test_cuda_is_the_row_of_this_machines_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "cuda_device_count", lambda: 1)
    monkeypatch.setattr(cuda_driver, "detect", lambda: TARGETS["l4"])
    assert backends.resolve_target("cuda") is TARGETS["l4"]
    other = backends.Settings(TARGETS["a100"])
    with pytest.raises(
        amk.errors.AmkError, match="target 'a100' is not this machine's GPU: use 'l4'"
    ):
        backends.open_cuda(as_source("toy", "f32"), other)
    monkeypatch.setattr(backends, "cuda_device_count", lambda: 0)
    with pytest.raises(amk.errors.AmkError, match="offers no device"):
        backends.resolve_target("cuda")


def test_targets() -> None:
    assert all(name == target.name for name, target in TARGETS.items())
    own = Target("mine", "cpu", "a target of one's own")
    assert find_target(own) is own
    assert find_target("sm_90a").kind == "cuda"


# ---- parts --------------------------------------------------------------------------------


def test_divergence() -> None:
    assert divergence([1, 2, 3], [1, 2, 3], 8) == 8
    assert divergence([1, 2, 3], [1, 9, 3], 3) == 1
    assert divergence([1, 2], [1, 2, 3], 3) == 2
    assert divergence([], [1], 1) == 0


def test_greedy_takes_the_first_of_equals() -> None:
    assert greedy(np.array([0.0, 3.0, 3.0], np.float32)) == 1
    assert chooser(0.0, 1.0, 0) is greedy


@pytest.mark.parametrize(
    "bad", [(0.0, 1.0, 0), (float("nan"), 1, 0), (1, 0, 0), (1, 1.1, 0), (1, 1, -1)]
)
def test_sampler_refuses(bad: tuple) -> None:
    with pytest.raises(ValueError, match=r"temperature|top-p|seed"):
        Sampler(*bad)


def test_sampler_draws_the_distribution() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    sampler = Sampler(1.0, 1.0, 7)
    counts = np.bincount([sampler(logits) for _ in range(20000)], minlength=4) / 20000
    assert np.abs(counts - [0.5, 0.3, 0.15, 0.05]).max() < 0.015


def test_nucleus_is_the_fewest_that_reach_top_p() -> None:
    logits = np.log(np.array([0.15, 0.5, 0.05, 0.3], np.float32))
    sampler = Sampler(1.0, 0.79, 3)
    assert {sampler(logits) for _ in range(500)} == {1, 3}
    sampler = Sampler(1.0, 0.81, 3)
    assert {sampler(logits) for _ in range(500)} == {0, 1, 3}


@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=20),
    st.floats(0.01, 100),
    st.floats(0.001, 1),
    st.integers(0, 2**63),
)
def test_sampler_always_gives_an_id(
    values: list[float], temperature: float, top_p: float, seed: int
) -> None:
    logits = np.array(values, np.float32)
    sampler = Sampler(temperature, top_p, seed)
    drawn = [sampler(logits) for _ in range(5)]
    assert all(0 <= i < len(values) for i in drawn)
    again = Sampler(temperature, top_p, seed)
    assert [again(logits) for _ in range(5)] == drawn


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, amk; print([m for m in ('numpy', 'torch', 'xdsl') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert set(amk.__all__) <= set(dir(amk))
    assert all(getattr(amk, name) is not None for name in amk.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        amk.nothing  # noqa: B018
