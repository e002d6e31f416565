"""`toy` and `toy-2L`: tiny Llamas whose weights come from a seed, with nothing to fetch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from amk.runtime.source import Source
from amk.runtime.tokenizer import ByteTokenizer, TextTokenizer
from amk.runtime.weights import TensorInfo, convert, destination

SEED = 20240229

# Layers by name.
TOYS = {"toy": 1, "toy-2L": 2}

HIDDEN, INTERMEDIATE, VOCAB = 64, 128, 256
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 16

# Shapes of one layer's tensors, (out features, in features) for the projections.
LAYER_SHAPES: dict[str, tuple[int, ...]] = {
    "input_layernorm.weight": (HIDDEN,),
    "self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
    "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
    "post_attention_layernorm.weight": (HIDDEN,),
    "mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
    "mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
    "mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
}


class ToySource(Source):
    """A seeded Llama: f32 weights, a tied head, one token a byte, and no end token."""

    def __init__(self, name: str):
        super().__init__(name, None)
        self._layers = TOYS[name]

    def _load_config(self) -> dict[str, Any]:
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": VOCAB,
            "hidden_size": HIDDEN,
            "intermediate_size": INTERMEDIATE,
            "num_hidden_layers": self._layers,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_DIM,
            "hidden_act": "silu",
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
            "dtype": "float32",
        }

    def _load_tensors(self) -> Mapping[str, TensorInfo]:
        shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
        for layer in range(self._layers):
            for leaf, shape in LAYER_SHAPES.items():
                shapes[f"model.layers.{layer}.{leaf}"] = shape
        return {key: TensorInfo(shape, "f32", "f32") for key, shape in shapes.items()}

    def _read(self, key: str, out: np.ndarray | None, dtype: str) -> np.ndarray:
        info = self.tensors()[key]
        target = destination(info.shape, dtype, out)
        convert(_weight(key, info.shape), "f32", target, dtype)
        return target

    def weights_key(self) -> str:
        return self.fingerprint()

    def _load_tokenizer(self) -> TextTokenizer:
        return ByteTokenizer()


def _weight(key: str, shape: tuple[int, ...]) -> np.ndarray:
    """The f32 values of one tensor; they depend on its name and shape alone.

    Norms are uniform in [0.75, 1.25); matrices are uniform with mean 0 and variance
    1 / in-features, which keeps activations near one. Values come from the bit generator's raw
    words, whose stream numpy promises not to change, and not from its distributions.
    """
    count = int(np.prod(shape))
    words = np.random.PCG64([SEED, *key.encode()]).random_raw(count)
    # 24 bits fit f32 exactly: centred is a multiple of 2^-24 in [-0.5, 0.5).
    centred = (words >> 40).astype(np.float64) / 2**24 - 0.5
    if len(shape) == 1:
        return (1.0 + centred * 0.5).astype(np.float32).reshape(shape)
    return (centred * np.sqrt(12.0 / shape[-1])).astype(np.float32).reshape(shape)
