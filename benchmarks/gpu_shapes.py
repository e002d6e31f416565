"""The shapes that gpu.py measures, as transformers configs with random weights."""

from __future__ import annotations

from typing import Any


def shape(
    kind: str,
    vocab: int,
    width: int,
    inner: int,
    layers: int,
    heads: tuple[int, int],
    depth: int,
    theta: float,
    eps: float = 1e-5,
) -> tuple[str, dict[str, Any]]:
    """A decoder with tied embeddings; `heads` are those of queries and of keys."""
    return kind, {
        "vocab_size": vocab,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": depth,
        "rms_norm_eps": eps,
        "tie_word_embeddings": True,
        "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
    }


SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "smollm2": shape("llama", 49152, 576, 1536, 30, (9, 3), 64, 1e5),
    "llama-1b": shape("llama", 128256, 2048, 8192, 16, (32, 8), 64, 5e5),
    "qwen3-0.6b": shape("qwen3", 151936, 1024, 3072, 28, (16, 8), 128, 1e6, 1e-6),
    "tiny": shape("llama", 256, 64, 128, 2, (4, 2), 16, 1e4),
}
MEASURED = ("smollm2", "llama-1b", "qwen3-0.6b")


def config_of(name: str) -> Any:
    from transformers import AutoConfig

    kind, numbers = SHAPES[name]
    return AutoConfig.for_model(kind, **numbers)


def random_model(name: str, device: str) -> Any:
    """The model in bf16, its weights from a seed, made on `device`; "meta" has shapes alone."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(
            config_of(name), dtype=torch.bfloat16, attn_implementation="eager"
        )
    return model.eval()
