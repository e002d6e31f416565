"""Reading what stands beside a model's weights: JSON files, the hub's cache, file identities."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amk.errors import ImportRefused, ModelFileError

# A configuration file larger than this is not one.
MAX_JSON_BYTES = 256 << 20

# How the class names of causal language models end.
DECODER_SUFFIXES = ("ForCausalLM", "LMHeadModel")

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def hub_snapshot(model_id: str) -> Path:
    """The folder of `model_id`'s snapshot in the local HuggingFace cache; ModelFileError if absent.

    The cache is HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
    ~/.cache/huggingface/hub; the snapshot is the one refs/main names.
    """
    if not HUB_ID.fullmatch(model_id) or model_id.endswith(".gguf"):
        raise ModelFileError(f"{model_id}: no such file or folder")
    folder = _hub_cache() / f"models--{model_id.replace('/', '--')}"
    reference = folder / "refs" / "main"
    try:
        commit = reference.read_text().strip()
    except OSError:
        raise ModelFileError(
            f"{model_id} is neither a path nor in the local hub cache {folder.parent}: "
            f"fetch it first with `hf download {model_id}`"
        ) from None
    snapshot = folder / "snapshots" / commit
    if not commit.isalnum() or not snapshot.is_dir():
        raise ModelFileError(f"{model_id}: the hub cache names a snapshot that is not there")
    return snapshot


def _hub_cache() -> Path:
    if explicit := os.environ.get("HF_HUB_CACHE"):
        return Path(explicit).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; ModelFileError when it is missing, too large or not one object."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ModelFileError(f"{path} is too large to be a JSON configuration")
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} holds {type(value).__name__}, not a JSON object")
    return value


def token_ids(value: object, name: str) -> list[int]:
    """A config's token id field as a list: None, one id, or a list of ids."""
    given: list[Any] = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in given):
        raise ModelFileError(f"{name}: token ids must be numbers of zero or more, not {value!r}")
    return given


def check_decoder(config: Mapping[str, Any], name: str) -> None:
    """ImportRefused unless `config` may be that of a dense causal language model."""
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise ModelFileError(f"{name}: config.json has no model_type")
    architectures = config.get("architectures") or []
    if not isinstance(architectures, list):
        raise ModelFileError(f"{name}: architectures in config.json is not a list")
    decoder = not architectures or any(str(a).endswith(DECODER_SUFFIXES) for a in architectures)
    if config.get("is_encoder_decoder") or not decoder:
        shown = ", ".join(map(str, architectures)) or "an encoder-decoder"
        raise ImportRefused(f"{name} is {kind} ({shown}), not a causal language model")
    if quantization := config.get("quantization_config"):
        method = quantization.get("quant_method") if isinstance(quantization, dict) else None
        raise ImportRefused(
            f"{name} is quantized with {method or 'an unknown method'}: "
            "give the unquantized safetensors or a GGUF file"
        )


def file_identity(path: Path) -> list[str | int]:
    """What tells a file from a changed one: real path, bytes, modification time (ns), inode."""
    try:
        status = path.stat()
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from error
    return [os.path.realpath(path), status.st_size, status.st_mtime_ns, status.st_ino]
