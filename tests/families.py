"""Tiny seeded models of many decoder families, as data.

Each config is small enough to run in milliseconds and has every feature of its family switched
on: grouped heads, biases, partial rotary embeddings, windows that bite within twenty tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedConfig, PreTrainedModel
from transformers import models as hf

VOCAB = 97
TORCH = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}

COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def family(config: Callable[..., PreTrainedConfig], **own: Any) -> Callable[[], PreTrainedConfig]:
    return lambda: config(**{**COMMON, **own})


def rope(kind: str, **own: Any) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": 10000.0, **own}


LLAMA3_ROPE = rope(
    "llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)

YARN_ROPE = rope("yarn", factor=4.0, original_max_position_embeddings=16)

FAMILIES: dict[str, Callable[[], PreTrainedConfig]] = {
    "llama": family(hf.llama.LlamaConfig),
    "llama-tied": family(hf.llama.LlamaConfig, tie_word_embeddings=True, attention_bias=True),
    "llama-llama3-rope": family(hf.llama.LlamaConfig, rope_parameters=LLAMA3_ROPE),
    "llama-linear-rope": family(hf.llama.LlamaConfig, rope_parameters=rope("linear", factor=4.0)),
    "llama-yarn-rope": family(hf.llama.LlamaConfig, rope_parameters=YARN_ROPE),
    "qwen2": family(hf.qwen2.Qwen2Config),
    "qwen2-window": family(
        hf.qwen2.Qwen2Config,
        use_sliding_window=True,
        sliding_window=5,
        layer_types=["full_attention", "sliding_attention"],
    ),
    "qwen3": family(hf.qwen3.Qwen3Config, head_dim=16),
    "mistral": family(hf.mistral.MistralConfig, sliding_window=5, head_dim=8),
    "ministral3": family(
        hf.ministral3.Ministral3Config,
        sliding_window=None,
        head_dim=8,
        rope_parameters={**YARN_ROPE, "original_max_position_embeddings": 7}
        | {"llama_4_scaling_beta": 0.5},
    ),
    "gemma": family(hf.gemma.GemmaConfig, head_dim=16, num_key_value_heads=1),
    "gemma2": family(
        hf.gemma2.Gemma2Config, head_dim=16, sliding_window=5, query_pre_attn_scalar=24
    ),
    "gemma3": family(
        hf.gemma3.Gemma3TextConfig,
        head_dim=16,
        sliding_window=5,
        num_hidden_layers=3,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    ),
    "gemma4": family(
        hf.gemma4.Gemma4TextConfig,
        head_dim=8,
        global_head_dim=16,
        pad_token_id=0,
        sliding_window=5,
        layer_types=["sliding_attention", "full_attention"],
        hidden_size_per_layer_input=0,
        num_kv_shared_layers=0,
    ),
    # Embeddings a layer, and layers that attend to the cache of an earlier one.
    "gemma4-shared": family(
        hf.gemma4.Gemma4TextConfig,
        head_dim=8,
        global_head_dim=16,
        pad_token_id=0,
        sliding_window=5,
        num_hidden_layers=4,
        layer_types=["sliding_attention", "full_attention"] * 2,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=VOCAB,
        num_kv_shared_layers=2,
    ),
    "phi": family(hf.phi.PhiConfig),
    "phi3": family(hf.phi3.Phi3Config),
    "phi3-window": family(hf.phi3.Phi3Config, sliding_window=5),
    "gpt2": lambda: hf.gpt2.GPT2Config(
        vocab_size=VOCAB, n_positions=64, n_embd=32, n_layer=2, n_head=4
    ),
    "gpt-bigcode": lambda: hf.gpt_bigcode.GPTBigCodeConfig(
        vocab_size=VOCAB, n_positions=64, n_embd=32, n_layer=2, n_head=4, multi_query=True
    ),
    "gpt-neox": family(hf.gpt_neox.GPTNeoXConfig),
    "granite": family(
        hf.granite.GraniteConfig,
        embedding_multiplier=3.0,
        residual_multiplier=0.3,
        attention_multiplier=0.2,
        logits_scaling=7.0,
    ),
    "olmo2": family(hf.olmo2.Olmo2Config),
    "stablelm": family(hf.stablelm.StableLmConfig, use_qkv_bias=True, qk_layernorm=True),
    "cohere": family(hf.cohere.CohereConfig, use_qk_norm=True),
    "glm4": family(hf.glm4.Glm4Config, head_dim=8),
    "nemotron": family(hf.nemotron.NemotronConfig),
    "starcoder2": family(hf.starcoder2.Starcoder2Config, sliding_window=5),
    "smollm3": family(hf.smollm3.SmolLM3Config, num_hidden_layers=3, no_rope_layers=[1, 0, 1]),
    "exaone4": family(
        hf.exaone4.Exaone4Config,
        sliding_window=5,
        num_hidden_layers=3,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    ),
}


def build(name: str, dtype: str = "f32", seed: int = 0) -> PreTrainedModel:
    """The seeded eager model of a family. Norm weights and biases are random too, so that a
    forgotten one shows."""
    torch.manual_seed(seed)
    config = FAMILIES[name]()
    model = AutoModelForCausalLM.from_config(
        config, dtype=TORCH[dtype], attn_implementation="eager"
    ).eval()
    return scatter(model)


def scatter(model: PreTrainedModel) -> PreTrainedModel:
    """`model` with every parameter drawn anew: weights about 0, norm weights and biases about 1."""
    with torch.no_grad():
        for parameter in model.parameters():
            offset = 1.0 if parameter.dim() == 1 else 0.0
            noise = torch.randn(parameter.shape, dtype=torch.float32) * 0.2 + offset
            parameter.copy_(noise)
    return model


def weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """State-dict key → tensor."""
    return {key: value.detach() for key, value in model.state_dict().items()}


class Eager:
    """The oracle: transformers' eager model with its own cache, chunk by chunk."""

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.cache = DynamicCache(config=model.config)
        self.past = 0

    def step(self, tokens: list[int]) -> Tensor:
        """Logits [S, V] of `tokens` after everything before."""
        positions = torch.arange(self.past, self.past + len(tokens))[None]
        with torch.no_grad():
            out = self.model(
                input_ids=torch.tensor([tokens]),
                position_ids=positions,
                past_key_values=self.cache,
                use_cache=True,
            )
        self.past += len(tokens)
        return out.logits[0]


def random_tokens(count: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCAB, (count,), generator=generator).tolist()
