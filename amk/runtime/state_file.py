"""A saved KV cache: one safetensors file with the live rows and what they belong to.

Tensors: the tokens, i64 [n], and each cache under its name, [.., rows, ..] in storage dtype.
Metadata: `format`, `model`, and keys that must agree before anything is loaded: `program`,
`weights` (a hash of sampled weight values) and `dtype`. Written by rename.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from amk.errors import AmkError, ModelFileError
from amk.runtime.kv_memory import carrier
from amk.runtime.mapped_file import MappedFile
from amk.runtime.safetensors_file import DTYPE_TAGS, read_header

FORMAT = "amk-kv-1"
TOKENS = "tokens"
NAMES = {tag: name for name, tag in DTYPE_TAGS.items()} | {"i64": "I64", "i8": "I8"}
MUST_AGREE = ("program", "weights", "dtype")


@dataclass(frozen=True)
class State:
    """What a file holds: the tokens of the sequence, rows by cache, metadata."""

    tokens: list[int]
    rows: dict[str, np.ndarray]
    facts: dict[str, str]


def write_state(path: Path, state: State, dtypes: Mapping[str, str]) -> None:
    """Writes `state`; `dtypes` holds the tag of each cache's storage dtype. The file appears
    whole, by rename, or not at all. AmkError when it cannot be written."""
    tensors = {TOKENS: np.asarray(state.tokens, "<i8"), **state.rows}
    header: dict[str, object] = {"__metadata__": {"format": FORMAT, **state.facts}}
    at = 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": NAMES["i64" if name == TOKENS else dtypes[name]],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)
    except OSError as error:
        raise AmkError(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for array in tensors.values():
                file.write(np.ascontiguousarray(array).data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        os.unlink(temporary)
        raise AmkError(f"cannot write {path}: {error.strerror}") from error
    except BaseException:
        os.unlink(temporary)
        raise


def read_state(path: Path) -> State:
    """The state in a file, arrays read only. ModelFileError when the file is not one, whole."""
    entries = read_header(path)
    facts = read_facts(path)
    if facts.get("format") != FORMAT or TOKENS not in entries:
        raise ModelFileError(f"{path} is not a state saved by this version of amk")
    mapped = MappedFile(path, max(entry.stop for entry in entries.values()))
    tags = {name: tag for tag, name in NAMES.items()}
    arrays: dict[str, np.ndarray] = {}
    for name, entry in entries.items():
        if entry.dtype not in tags:
            raise ModelFileError(f"{path}: {name!r} has dtype {entry.dtype}, which no cache has")
        tag = tags[entry.dtype]
        kind = np.dtype("<i8") if tag == "i64" else carrier(tag)
        arrays[name] = mapped.view(entry.start, entry.stop).view(kind).reshape(entry.shape)
    tokens = arrays.pop(TOKENS)
    if tokens.dtype != np.dtype("<i8") or tokens.ndim != 1:
        raise ModelFileError(f"{path}: its tokens are not a list of i64")
    return State(tokens.tolist(), arrays, facts)


def read_facts(path: Path) -> dict[str, str]:
    """The metadata of a safetensors file whose header `read_header` accepted."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    facts = header.get("__metadata__", {})
    if not isinstance(facts, dict) or not all(isinstance(v, str) for v in facts.values()):
        raise ModelFileError(f"{path}: its metadata are not texts")
    return facts


def check_facts(path: Path, found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """ModelFileError unless a state belongs to this model, program and dtype."""
    for key in MUST_AGREE:
        if found.get(key) != wanted[key]:
            raise ModelFileError(
                f"{path} was saved by another {key} (model {found.get('model')!r}, "
                f"{found.get('dtype')}); this is {wanted['model']!r}, {wanted['dtype']}"
            )


def sample_hash(weights: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over 64 values of every weight, as float32: tells models of one shape apart."""
    from hashlib import sha256

    digest = sha256()
    for name in sorted(weights):
        digest.update(name.encode() + b"\0" + as_float32(sample(weights[name])).tobytes())
    return digest.hexdigest()


def sample(values: np.ndarray) -> np.ndarray:
    """64 values from all over an array; of a sample, the sample itself."""
    flat = values.reshape(-1)
    return flat[np.arange(64) * flat.size // 64]


def as_float32(values: np.ndarray) -> np.ndarray:
    """Values of a carrying dtype; bf16 comes as uint16 bits."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return np.ascontiguousarray(values, np.float32)
