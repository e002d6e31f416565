"""What a GGUF file means in HuggingFace's terms: its config, and where each tensor goes.

The config is the one transformers gives the file; the names come from the gguf package's own map.
A file with a tensor or a metadata key that this mapping would lose is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from amk.errors import ImportRefused, ModelFileError
from amk.runtime.gguf_file import GgufHeader, read_gguf_header, write_outline
from amk.runtime.model_files import token_ids
from amk.runtime.source import PROVENANCE_FIELDS

CONFIG, EQUALS = "config", "equals"


@dataclass(frozen=True)
class Architecture:
    """How one GGUF architecture maps to HuggingFace.

    `model_type` is the config's. `leaves` are the tensors a file may hold, as state-dict names of
    one layer (`layers.N.` left out) or of the whole model. `permuted` maps a leaf to the config
    field that counts its heads: llama.cpp stores those rows with the two halves of each rotary
    pair interleaved. `metadata` are the keys under the architecture's prefix that may occur:
    None when transformers reads them, else what their value must equal, a config field or a value.
    """

    model_type: str
    leaves: frozenset[str]
    permuted: Mapping[str, str]
    metadata: Mapping[str, tuple[str, Any] | None]


_MODEL_LEAVES = ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")
_LAYER_LEAVES = tuple(
    f"{leaf}.weight"
    for leaf in (
        "input_layernorm",
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "post_attention_layernorm",
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
    )
)
_QKV_BIASES = tuple(f"self_attn.{name}_proj.bias" for name in "qkv")
_QK_NORMS = ("self_attn.q_norm.weight", "self_attn.k_norm.weight")

_READ_BY_TRANSFORMERS = (
    "context_length",
    "block_count",
    "feed_forward_length",
    "embedding_length",
    "rope.freq_base",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.layer_norm_rms_epsilon",
    "vocab_size",
)
# Keys transformers does not read. They may only say what its config says anyway: a file with, for
# instance, scaled RoPE would load as another model.
_METADATA: dict[str, tuple[str, Any] | None] = {
    **dict.fromkeys(_READ_BY_TRANSFORMERS),
    "rope.dimension_count": (CONFIG, "head_dim"),
    "attention.key_length": (CONFIG, "head_dim"),
    "attention.value_length": (CONFIG, "head_dim"),
    "attention.causal": (EQUALS, True),
    "rope.scaling.type": (EQUALS, "none"),
    "expert_count": (EQUALS, 0),
    "expert_used_count": (EQUALS, 0),
}

ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(
        "llama",
        frozenset(_MODEL_LEAVES + _LAYER_LEAVES),
        {
            "self_attn.q_proj.weight": "num_attention_heads",
            "self_attn.k_proj.weight": "num_key_value_heads",
        },
        _METADATA,
    ),
    "qwen2": Architecture(
        "qwen2", frozenset(_MODEL_LEAVES + _LAYER_LEAVES + _QKV_BIASES), {}, _METADATA
    ),
    "qwen3": Architecture(
        "qwen3", frozenset(_MODEL_LEAVES + _LAYER_LEAVES + _QK_NORMS), {}, _METADATA
    ),
}


def derive_facts(path: Path, name: str) -> dict[str, Any]:
    """Config, tensor table, end tokens and chat template of a file, as JSON values.

    ImportRefused when the architecture, a tensor or a metadata key is not one that loads exactly.
    """
    from gguf import GGML_QUANT_SIZES

    header = read_gguf_header(path, {int(kind): size for kind, size in GGML_QUANT_SIZES.items()})
    architecture = header.metadata.get("general.architecture")
    spec = ARCHITECTURES.get(architecture) if isinstance(architecture, str) else None
    if not isinstance(architecture, str) or spec is None:
        known = ", ".join(ARCHITECTURES)
        raise ImportRefused(f"{name} is GGUF architecture {architecture!r}; known are {known}")
    config = _hf_config(path, name, outline=f"{architecture}.vocab_size" in header.metadata)
    if config["model_type"] != spec.model_type:
        raise ImportRefused(f"{name} would load as {config['model_type']}, not {architecture}")
    _check_metadata(header.metadata, architecture, spec, config, name)
    return {
        "config": config,
        "tensors": _tensor_table(header, architecture, spec, config, name),
        "chat_template": _chat_template(header.metadata, name),
        "eos_token_ids": token_ids(config.get("eos_token_id"), name),
    }


def _hf_config(path: Path, name: str, outline: bool) -> dict[str, Any]:
    """The config transformers gives the file, as JSON values.

    With `outline` the vocabulary is left out, which is right when the file states its size."""
    from transformers import AutoConfig

    with TemporaryDirectory(prefix="amk-gguf-") as folder:
        if outline:
            write_outline(path, Path(folder) / "outline.gguf")
            path = Path(folder) / "outline.gguf"
        with handed_to_transformers(path, name, "config") as arguments:
            config = AutoConfig.from_pretrained(**arguments)
    values = json.loads(config.to_json_string(use_diff=False))
    return {key: value for key, value in values.items() if key not in PROVENANCE_FIELDS}


def _check_metadata(
    metadata: dict[str, Any],
    architecture: str,
    spec: Architecture,
    config: dict[str, Any],
    name: str,
) -> None:
    # Configs without the field use this quotient, too.
    config = {"head_dim": config["hidden_size"] // config["num_attention_heads"]} | config
    for key, value in metadata.items():
        prefix, _, field = key.partition(".")
        if prefix != architecture:
            continue
        if field not in spec.metadata:
            raise ImportRefused(f"{name}: metadata {key} = {value!r} is not supported")
        rule = spec.metadata[field]
        if rule is None:
            continue
        wanted = rule[1] if rule[0] == EQUALS else config[rule[1]]
        if value != wanted:
            raise ImportRefused(f"{name}: metadata {key} = {value!r}, but only {wanted!r} works")


def _tensor_table(
    header: GgufHeader,
    architecture: str,
    spec: Architecture,
    config: dict[str, Any],
    name: str,
) -> dict[str, list[Any]]:
    """State-dict key -> [ggml name, shape, type id, offset, bytes, type name, permuted heads]."""
    from gguf import GGMLQuantizationType

    to_hf = _state_dict_names(architecture, spec, int(config["num_hidden_layers"]))
    _check_decodable({tensor.type_id for tensor in header.tensors}, name)
    table: dict[str, list[Any]] = {}
    for tensor in header.tensors:
        if tensor.name not in to_hf:
            raise ImportRefused(f"{name}: tensor {tensor.name!r} has no place in {architecture}")
        key, leaf = to_hf[tensor.name]
        heads = int(config[spec.permuted[leaf]]) if leaf in spec.permuted else 0
        if heads and (tensor.shape[0] % (2 * heads) or len(tensor.shape) != 2):
            raise ModelFileError(f"{name}: {tensor.name} {tensor.shape} is not {heads} even heads")
        encoding = GGMLQuantizationType(tensor.type_id).name
        table[key] = [
            *(tensor.name, tensor.shape, tensor.type_id, tensor.offset, tensor.nbytes),
            *(encoding, heads),
        ]
    return table


def _state_dict_names(
    architecture: str, spec: Architecture, layers: int
) -> dict[str, tuple[str, str]]:
    """GGUF tensor name -> (state-dict key, leaf), by the gguf package's own map."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    (arch,) = (key for key, value in MODEL_ARCH_NAMES.items() if value == architecture)
    name_map = get_tensor_name_map(arch, layers)
    names: dict[str, tuple[str, str]] = {}
    for leaf in spec.leaves:
        whole = leaf in _MODEL_LEAVES
        keys = [leaf] if whole else [f"model.layers.{n}.{leaf}" for n in range(layers)]
        for key in keys:
            stem, _, suffix = key.rpartition(".")
            names[f"{name_map.get_name(stem)}.{suffix}"] = (key, leaf)
    return names


def _check_decodable(type_ids: set[int], name: str) -> None:
    """Refuse, before anything is compiled, block formats the gguf package cannot decode."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    for type_id in sorted(type_ids):
        kind = GGMLQuantizationType(type_id)
        try:
            dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
        except NotImplementedError:
            raise ImportRefused(f"{name}: tensors of type {kind.name} cannot be decoded") from None


def _chat_template(metadata: dict[str, Any], name: str) -> str | None:
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise ModelFileError(f"{name}: tokenizer.chat_template is not a string")
    return template


@contextmanager
def handed_to_transformers(path: Path, name: str, part: str) -> Iterator[dict[str, Any]]:
    """The arguments that make a transformers class load `path`, and its errors as one line.

    The file is linked into a folder of its own: transformers would rather use a config.json or a
    tokenizer.json that happens to lie beside it, and code a folder brings must never run.
    """
    with TemporaryDirectory(prefix="amk-gguf-") as folder:
        (Path(folder) / "model.gguf").symlink_to(path.absolute())
        try:
            yield {
                "pretrained_model_name_or_path": folder,
                "gguf_file": "model.gguf",
                "local_files_only": True,
                "trust_remote_code": False,
            }
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:
                # The system's own refusals, a full disk for one; transformers' have no number.
                raise
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ModelFileError(f"{name}: its {part} cannot be read: {reason}") from error
