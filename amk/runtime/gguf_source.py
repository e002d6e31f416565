"""A GGUF file as a source: HuggingFace names, shapes and row order over ggml's.

What a file says is parsed once and remembered in the cache under the file's identity, so opening
it again reads one small JSON file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from amk.errors import ModelFileError
from amk.runtime.cache import Cache, stable_hash
from amk.runtime.gguf_facts import derive_facts, handed_to_transformers
from amk.runtime.gguf_file import GgufTensor
from amk.runtime.mapped_file import MappedFile
from amk.runtime.model_files import check_decoder, file_identity, read_json
from amk.runtime.source import Source
from amk.runtime.tokenizer import JsonTokenizer, TextTokenizer
from amk.runtime.weights import TensorInfo, convert, destination

# Raised when the meaning of the remembered facts changes.
FACTS_VERSION = 1

# Bytes of blocks decoded at a time, to bound the scratch memory.
DECODE_BYTES = 1 << 20

# ggml types whose values f32 does not add anything to.
PLAIN_TAGS = {"F32": "f32", "F16": "f16", "BF16": "bf16"}


@dataclass(frozen=True)
class Stored:
    """Where a state-dict tensor lies: its ggml row, the type's name, and the heads whose rows are
    interleaved (0 when none are)."""

    row: GgufTensor
    encoding: str
    heads: int


class GgufSource(Source):
    """One .gguf file of an architecture in `ARCHITECTURES`; others are refused by name."""

    def __init__(self, name: str, path: Path):
        super().__init__(name, path)
        self.file = path
        self._identity = file_identity(path)
        self._facts = self._remembered_facts()
        check_decoder(self._facts["config"], name)

    def _remembered_facts(self) -> dict[str, Any]:
        key = stable_hash("gguf", FACTS_VERSION, self._identity, _versions())

        def build(directory: Path) -> None:
            facts = derive_facts(self.file, self.name)
            (directory / "facts.json").write_text(json.dumps(facts))

        return read_json(Cache("gguf").put(key, build) / "facts.json")

    @cached_property
    def _stored(self) -> dict[str, Stored]:
        return {
            key: Stored(GgufTensor(name, tuple(shape), *rest), encoding, heads)
            for key, (name, shape, *rest, encoding, heads) in self._facts["tensors"].items()
        }

    @cached_property
    def _mapped(self) -> MappedFile:
        size = self._identity[1]
        assert isinstance(size, int)
        mapped = MappedFile(self.file, size)
        if file_identity(self.file) != self._identity:
            raise ModelFileError(f"{self.name} changed while it was open")
        return mapped

    def _load_config(self) -> dict[str, Any]:
        return self._facts["config"]

    def _load_tensors(self) -> Mapping[str, TensorInfo]:
        return {
            key: TensorInfo(s.row.shape, PLAIN_TAGS.get(s.encoding, "f32"), s.encoding)
            for key, s in self._stored.items()
        }

    def read_encoded(self, key: str) -> tuple[np.ndarray, str]:
        """The file's own blocks of a tensor, as uint8[rows, bytes a row], and their ggml type.

        Rows are in the state dict's order. A view of the file unless they had to be permuted.
        """
        stored = self._stored[self._resolve(key)]
        row = stored.row
        data = self._mapped.view(row.offset, row.offset + row.nbytes)
        rows = data.reshape(_row_count(row), -1)
        if stored.heads:
            # Undo the interleaving: within a head, rows go (pair, half) -> (half, pair).
            rows = rows.reshape(stored.heads, -1, 2, rows.shape[1]).swapaxes(1, 2)
            rows = rows.reshape(_row_count(row), -1)
        return rows, stored.encoding

    def _read(self, key: str, out: np.ndarray | None, dtype: str) -> np.ndarray:
        from gguf import GGMLQuantizationType, dequantize

        info = self.tensors()[key]
        target = destination(info.shape, dtype, out)
        blocks, encoding = self.read_encoded(key)
        flat = target.reshape(blocks.shape[0], -1)
        step = max(1, DECODE_BYTES // blocks.shape[1])
        for start in range(0, blocks.shape[0], step):
            piece = np.ascontiguousarray(blocks[start : start + step])
            values = dequantize(piece, GGMLQuantizationType[encoding])
            convert(values, "f32", flat[start : start + step], dtype)
        row = self._stored[key].row
        self._mapped.drop(row.offset, row.offset + row.nbytes)
        return target

    def weights_key(self) -> str:
        return stable_hash("gguf", FACTS_VERSION, self._identity)

    def tokenizer_path(self) -> Path | None:
        """The cache entry that holds the tokenizer transformers makes of the file."""
        key = stable_hash("gguf-tokenizer", self._identity, _versions())

        def build(directory: Path) -> None:
            from transformers import AutoTokenizer

            with handed_to_transformers(self.file, self.name, "tokenizer") as arguments:
                AutoTokenizer.from_pretrained(**arguments).save_pretrained(directory)

        return Cache("tokenizer").put(key, build)

    def _load_tokenizer(self) -> TextTokenizer:
        folder = self.tokenizer_path()
        assert folder is not None
        return JsonTokenizer(folder, self.name)

    def chat_template(self) -> str | None:
        return self._facts["chat_template"]

    def eos_token_ids(self) -> list[int]:
        return self._facts["eos_token_ids"]


def _versions() -> list[str]:
    """The packages whose reading of a file the remembered facts hold."""
    return [version("gguf"), version("transformers")]


def _row_count(row: GgufTensor) -> int:
    count = 1
    for extent in row.shape[:-1]:
        count *= extent
    return count
