"""What cannot be imported exactly is refused, by the name of what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import models as hf

from amk.errors import ImportRefused
from amk.frontend.hf import import_model
from amk.frontend.hooks import PastLength
from tests import families

COMMON = {**families.COMMON, "num_hidden_layers": 1}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 32,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}

CONFIGS: dict[str, tuple[Any, str]] = {
    "experts": (lambda: hf.mixtral.MixtralConfig(**COMMON), "mixture of experts"),
    "encoder": (lambda: hf.bert.BertConfig(**COMMON), "bidirectional_mask_function"),
    "encoder-decoder": (lambda: hf.t5.T5Config(vocab_size=97, d_model=32), "encoder-decoder"),
    "longrope": (
        lambda: hf.phi3.Phi3Config(**COMMON, rope_parameters=LONGROPE),
        "rope_type 'longrope'",
    ),
    "dynamic-rope": (
        lambda: hf.llama.LlamaConfig(**COMMON, rope_parameters=DYNAMIC),
        "rope_type 'dynamic'",
    ),
    "chunked": (
        lambda: hf.llama4.Llama4TextConfig(
            **COMMON, num_local_experts=1, attention_chunk_size=8, head_dim=8
        ),
        "neither causal nor sliding-causal",
    ),
    "quantised": (
        lambda: hf.llama.LlamaConfig(**COMMON, quantization_config={"quant_method": "gptq"}),
        "quantization_config",
    ),
    "modalities": (hf.gemma3.Gemma3Config, "several modalities"),
    "state-space": (
        lambda: hf.mamba.MambaConfig(vocab_size=97, hidden_size=32, num_hidden_layers=1),
        "position_ids",
    ),
    "alibi": (
        lambda: hf.bloom.BloomConfig(vocab_size=97, hidden_size=32, n_layer=1, n_head=4),
        "position_ids",
    ),
    "cache-length": (
        lambda: hf.opt.OPTConfig(
            vocab_size=97, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, ffn_dim=48,
            word_embed_proj_dim=32,
        ),
        "length of its cache",
    ),
    "cache-read": (
        lambda: hf.diffllama.DiffLlamaConfig(**COMMON),
        "the values of layer 0 outside attention",
    ),
    "eager-branch": (
        lambda: hf.gpt2.GPT2Config(
            vocab_size=97, n_embd=32, n_layer=1, n_head=4, reorder_and_upcast_attn=True
        ),
        "the keys of layer 0 outside attention",
    ),
    "open-op": (
        lambda: hf.gptj.GPTJConfig(
            vocab_size=97, n_embd=32, n_layer=1, n_head=4, rotary_dim=4, bos_token_id=1,
            eos_token_id=2,
        ),
        "aten.index.Tensor has no lm op",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("tokens", [1, 16])
def test_config_is_refused(name: str, tokens: int) -> None:
    config, reason = CONFIGS[name]
    with pytest.raises(ImportRefused, match=reason):
        import_model(config(), tokens)


@pytest.mark.parametrize("layers", [0, -1, 10**9])
def test_sizes_out_of_bounds_are_refused(layers: int) -> None:
    config = hf.llama.LlamaConfig(**{**COMMON, "num_hidden_layers": 1})
    config.num_hidden_layers = layers
    with pytest.raises(ImportRefused, match="num_hidden_layers is"):
        import_model(config)


def test_attention_that_computes_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import replaces a model's eager attention, so it must compute the same bits."""
    from transformers.models.llama import modeling_llama

    eager = modeling_llama.eager_attention_forward

    def scaled_first(module: Any, q: Any, k: Any, v: Any, mask: Any, scaling: float, **kw: Any):
        return eager(module, q * scaling, k, v, mask, scaling=1.0, **kw)

    config = families.FAMILIES["llama"]()
    config.head_dim = 7 * 2  # a scale that is no power of two, so that its place shows
    import_model(config)
    monkeypatch.setattr(modeling_llama, "eager_attention_forward", scaled_first)
    with pytest.raises(ImportRefused, match="LlamaAttention is not the arithmetic"):
        import_model(config)


USES: dict[str, Any] = {
    "add": lambda p: p + 1, "radd": lambda p: 1 + p, "sub": lambda p: p - 1,
    "rsub": lambda p: 1 - p, "mul": lambda p: 2 * p, "less": lambda p: p < 1,
    "equal": lambda p: p == 0, "bool": bool, "int": int, "float": float, "index": range,
    "arange": torch.arange, "tensor": lambda p: torch.zeros(2) + p,
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_nothing_computes_with_the_length_of_the_cache(use: str) -> None:
    """The length at tracing time would be baked in, so each use of it must raise."""
    with pytest.raises((ImportRefused, TypeError)):
        USES[use](PastLength())


def test_refused_op_names_module_and_line() -> None:
    config, _ = CONFIGS["open-op"]
    with pytest.raises(ImportRefused, match=r"in transformer\S* \(\S+modeling_gptj\.py:\d+\)"):
        import_model(config())


def test_remote_code_is_refused() -> None:
    contents = {"model_type": "own_model", "auto_map": {"AutoConfig": "configuration.Own"}}
    with pytest.raises(ImportRefused, match="remote code is not run"):
        import_model(contents)


@pytest.mark.parametrize("contents", [{}, {"model_type": 3}, {"hidden_size": 32}])
def test_config_without_a_type_is_refused(contents: dict[str, Any]) -> None:
    with pytest.raises(ImportRefused, match="no model_type"):
        import_model(contents)


@pytest.mark.parametrize(
    "given", [{"tokens": 0}, {"dtype": "f8"}, {"dtype": "float32"}, {"policy": "linear"}]
)
def test_bad_arguments(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        import_model(families.FAMILIES["llama"](), **given)


class Decoder(nn.Module):
    """A one-layer decoder with a hook for what a case does differently."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(97, 32)
        self.qkv = nn.Linear(32, 96)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        q, k, v = (t.unflatten(2, (4, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        x = x + self.attend(q, k, v, positions).flatten(2)
        return x @ self.embed.weight.t()

    def attend(self, q: Any, k: Any, v: Any, positions: torch.Tensor) -> torch.Tensor:
        k, v = torch.ops.amk.kv_append(k, v, 0)
        seen = torch.ops.amk.mask(0, q.device)
        return torch.ops.amk.attention(q, k, v, seen, 0.35)


class NoCache(Decoder):
    def attend(self, q: Any, k: Any, v: Any, positions: torch.Tensor) -> torch.Tensor:
        return (q @ k.transpose(2, 3) @ v).transpose(1, 2)


class TouchesKeys(Decoder):
    def attend(self, q: Any, k: Any, v: Any, positions: torch.Tensor) -> torch.Tensor:
        k, v = torch.ops.amk.kv_append(k, v, 0)
        seen = torch.ops.amk.mask(0, q.device)
        return torch.ops.amk.attention(q, k * 2.0, v, seen, 0.35)


class SwapsCaches(Decoder):
    def attend(self, q: Any, k: Any, v: Any, positions: torch.Tensor) -> torch.Tensor:
        k, v = torch.ops.amk.kv_append(k, v, 0)
        seen = torch.ops.amk.mask(0, q.device)
        return torch.ops.amk.attention(q, v, k, seen, 0.35)


class OwnMask(Decoder):
    def attend(self, q: Any, k: Any, v: Any, positions: torch.Tensor) -> torch.Tensor:
        k, v = torch.ops.amk.kv_append(k, v, 0)
        return torch.ops.amk.attention(q, k, v, positions[:, 0], 0.35)


class AppendsTwice(Decoder):
    def attend(self, q: Any, k: Any, v: Any, positions: torch.Tensor) -> torch.Tensor:
        super().attend(q, k, v, positions)
        return super().attend(q, k, v, positions)


class Branches(Decoder):
    def attend(self, q: Any, k: Any, v: Any, positions: torch.Tensor) -> torch.Tensor:
        if positions[0, 0] > 3:
            q = q * 2
        return super().attend(q, k, v, positions)


class Mutates(Decoder):
    def attend(self, q: Any, k: Any, v: Any, positions: torch.Tensor) -> torch.Tensor:
        return super().attend(q, k, v, positions).mul_(2.0)


class MutatesUnderAView(Decoder):
    def attend(self, q: Any, k: Any, v: Any, positions: torch.Tensor) -> torch.Tensor:
        out = super().attend(q, k, v, positions) * 3.0
        seen_too = out.transpose(1, 2)
        out.mul_(2.0)
        return seen_too.transpose(1, 2)


class CutsMask(Decoder):
    def attend(self, q: Any, k: Any, v: Any, positions: torch.Tensor) -> torch.Tensor:
        k, v = torch.ops.amk.kv_append(k, v, 0)
        seen = torch.ops.amk.mask(0, q.device, 4)[:, :, -1:, :]
        return torch.ops.amk.attention(q, k, v, seen, 0.35)


class Scaled(Decoder):
    def attend(self, q: Any, k: Any, v: Any, positions: torch.Tensor) -> torch.Tensor:
        out = super().attend(q, k, v, positions)
        return torch.add(out, out, alpha=2)


MODULES: dict[str, tuple[type[nn.Module], str]] = {
    "no-cache": (NoCache, "appends to no KV cache"),
    "touches-keys": (TouchesKeys, "aten.mul.Tensor reads the keys of layer 0"),
    "swaps-caches": (SwapsCaches, "reads the keys of layer 0 outside attention"),
    "own-mask": (OwnMask, "not causal or sliding-causal"),
    "appends-twice": (AppendsTwice, "layer 0 appends to its cache twice"),
    "branches": (Branches, "torch.export cannot trace"),
    "mutates": (Mutates, "aten.mul_.Tensor changes a value in place that others may see"),
    "mutates-under-a-view": (MutatesUnderAView, "aten.mul_.Tensor changes a value in place"),
    "cuts-mask": (CutsMask, "not causal or sliding-causal|reads mask"),
    "alpha": (Scaled, "alpha = 2"),
}


@pytest.mark.parametrize("name", MODULES)
def test_module_is_refused(name: str) -> None:
    module, reason = MODULES[name]
    with pytest.raises(ImportRefused, match=reason):
        import_model(module())


class LargeBuffer(Decoder):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.ones(1 << 17), persistent=False)

    def attend(self, q: Any, k: Any, v: Any, positions: torch.Tensor) -> torch.Tensor:
        return super().attend(q * self.table[:8], k, v, positions)


def test_large_buffer_is_refused() -> None:
    with pytest.raises(ImportRefused, match="buffer table holds 131072 elements"):
        import_model(LargeBuffer())


def test_wrong_dtype_of_a_module_is_refused() -> None:
    with pytest.raises(ImportRefused, match=r"embed.weight is torch.float32"):
        import_model(Decoder(), dtype="bf16")
