"""Every causal language model transformers knows is imported bit for bit, or refused by name.

The families of `tests/families.py` have each feature of theirs switched on; here the others come,
at their defaults but for the sizes. Nothing is asked of a config transformers itself rejects.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from amk.errors import ImportRefused
from amk.frontend.hf import import_model
from amk.interpreters.lm import Decoder
from tests import families

CHUNK = 16
OWN: dict[str, dict[str, Any]] = {
    "gemma4_text": {
        "pad_token_id": 0,
        "hidden_size_per_layer_input": 0,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "gptj": {"rotary_dim": 4},
    "codegen": {"rotary_dim": 4},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "helium": {"head_dim": 8},
    "hunyuan_v1_dense": {"head_dim": 8},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "ministral": {"head_dim": 8},
    "ministral3": {"head_dim": 8},
    "modernbert-decoder": {"pad_token_id": 0},
}
"""What a config needs beside the common sizes for transformers to build a model of it."""
IMPORTED = """
    arcee bitnet cohere cohere2 cwm ernie4_5 exaone exaone4 gemma gemma2 gemma3_text gemma4_text glm
    glm4 gpt2 gpt_bigcode gpt_neox granite helium hunyuan_v1_dense jais2 llama ministral ministral3
    mistral modernbert-decoder nanochat nemotron olmo olmo2 olmo3 persimmon phi phi3 qwen2 qwen3
    seed_oss smollm3 stablelm starcoder2 vaultgemma
"""
"""Those that must not fall back to being refused."""


def config_of(name: str) -> PreTrainedConfig:
    try:
        return CONFIG_MAPPING[name](**{**families.COMMON, **OWN.get(name, {})})
    except Exception as problem:
        pytest.skip(f"transformers rejects the config: {problem}")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
def test_equal_or_refused(name: str, dtype: str) -> None:
    try:
        modules = [import_model(config_of(name), tokens, dtype) for tokens in (1, CHUNK)]
    except ImportRefused:
        assert name not in IMPORTED.split()
        return
    eager_model = seeded(config_of(name), dtype)
    ours = Decoder(modules, families.weights(eager_model))
    eager = families.Eager(eager_model)
    tokens = families.random_tokens(2 * CHUNK + 3)
    for chunk in (tokens[:CHUNK], tokens[CHUNK : 2 * CHUNK], *([t] for t in tokens[2 * CHUNK :])):
        expected = eager.step(chunk)
        assert torch.isfinite(expected).all()
        assert torch.equal(ours.step(chunk), expected), f"{len(chunk)} tokens to {eager.past}"


def seeded(config: PreTrainedConfig, dtype: str) -> Any:
    """Random weights everywhere, so that a forgotten one shows."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        config, dtype=families.TORCH[dtype], attn_implementation="eager"
    ).eval()
    return families.scatter(model)
