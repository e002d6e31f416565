"""Where a model comes from: one interface over directories, hub snapshots, GGUF files and toys."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from amk.errors import ModelFileError
from amk.runtime.cache import stable_hash
from amk.runtime.model_files import hub_snapshot, token_ids
from amk.runtime.tokenizer import TextTokenizer
from amk.runtime.weights import TensorInfo

# Leaf names of the two tensors that `tie_word_embeddings` makes one.
HEAD_LEAVES = ("lm_head.weight", "embed_out.weight", "output.weight")
EMBEDDING_LEAVES = (
    "embed_tokens.weight",
    "wte.weight",
    "embed_in.weight",
    "word_embeddings.weight",
    "tok_embeddings.weight",
)

# Names under which configs give the longest sequence.
LENGTH_FIELDS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")

# Fields of a config that say where it came from, not what it is.
PROVENANCE_FIELDS = ("_name_or_path", "_model_name_or_path", "transformers_version")

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


class Source(ABC):
    """A model's configuration, weights and tokenizer, by HuggingFace's names.

    `name` is what the user typed and stands in every error; `path` is the folder or file, None
    when there is none. Opening reads metadata only. Every method raises ModelFileError when a
    file is missing or damaged, ImportRefused when the model is of a kind that cannot run here.
    """

    has_eager = True
    """Whether transformers can run the model, to compare with."""

    def __init__(self, name: str, path: Path | None):
        self.name = name
        self.path = path

    @abstractmethod
    def _load_config(self) -> dict[str, Any]: ...

    @abstractmethod
    def _load_tensors(self) -> Mapping[str, TensorInfo]: ...

    @abstractmethod
    def _read(self, key: str, out: np.ndarray | None, dtype: str) -> np.ndarray:
        """`read`, for a key of `tensors()`."""

    @abstractmethod
    def _load_tokenizer(self) -> TextTokenizer: ...

    @abstractmethod
    def weights_key(self) -> str | None:
        """A key of the weight data itself, cheap to get: a file counts as changed when its path,
        size, modification time or inode does. None for data that is in memory alone."""

    @cached_property
    def _config(self) -> dict[str, Any]:
        return self._load_config()

    @cached_property
    def _tensors(self) -> Mapping[str, TensorInfo]:
        return self._load_tensors()

    @cached_property
    def _tokenizer(self) -> TextTokenizer:
        return self._load_tokenizer()

    def config(self) -> dict[str, Any]:
        """The model's config.json as a dict of the caller's own."""
        return copy.deepcopy(self._config)

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor in the files, under its state-dict key. A tied tensor is listed once."""
        return self._tensors

    def fingerprint(self) -> str:
        """A key of all that compiling depends on: the config and the tensors' names, shapes and
        dtypes, and not their data."""
        config = {k: v for k, v in self._config.items() if k not in PROVENANCE_FIELDS}
        table = {key: [list(t.shape), t.dtype, t.encoding] for key, t in self._tensors.items()}
        return stable_hash("source", config, table)

    def info(self, key: str) -> TensorInfo:
        """Shape and dtype of the tensor a state-dict `key` names, through ties."""
        return self._tensors[self._resolve(key)]

    def read(self, key: str, out: np.ndarray | None = None, dtype: str | None = None) -> np.ndarray:
        """The tensor a state-dict `key` names, as `dtype` ("f32", "bf16" or "f16"; default its
        own), into `out` when given.

        bf16 comes as uint16 bit patterns. `out` is C-contiguous, of the tensor's shape and the
        carrying numpy dtype (ValueError otherwise). Narrowing rounds to nearest, ties to even.
        ModelFileError for a key that is not in the files.
        """
        stored = self._resolve(key)
        return self._read(stored, out, dtype or self._tensors[stored].dtype)

    def tokenizer(self) -> TextTokenizer:
        """The text tokenizer; the same object each time."""
        return self._tokenizer

    def tokenizer_path(self) -> Path | None:
        """The folder that holds tokenizer.json, None for a model without one."""
        return None

    def eos_token_ids(self) -> list[int]:
        """The ids that end generation, possibly none."""
        return token_ids(self._config.get("eos_token_id"), self.name)

    def chat_template(self) -> str | None:
        """The Jinja chat template, None for a model without one."""
        return None

    @property
    def max_position_embeddings(self) -> int | None:
        """The longest sequence the model was made for, in tokens; None when it does not say."""
        for field in LENGTH_FIELDS:
            if isinstance(value := self._config.get(field), int):
                return value
        return None

    @property
    def vocab_size(self) -> int | None:
        """Token ids the model knows; None when its config does not say."""
        value = self._config.get("vocab_size")
        return value if isinstance(value, int) else None

    def importable(self) -> Any:
        """What the importer takes: the config, or the model object itself."""
        return self.config()

    def _resolve(self, key: str) -> str:
        """The key in the files that holds state-dict `key`."""
        tensors = self._tensors
        if key in tensors:
            return key
        # A checkpoint saved from the model without its head lacks the model's own prefix.
        prefix, _, bare = key.partition(".")
        if bare in tensors and not any(stored.startswith(prefix + ".") for stored in tensors):
            return bare
        if (partner := self._tied_partner(key)) is not None:
            return partner
        raise ModelFileError(
            f"{self.name} has no tensor {key!r} ({len(tensors)} tensors are there)"
        )

    def _tied_partner(self, key: str) -> str | None:
        if not self._config.get("tie_word_embeddings"):
            return None
        if has_leaf(key, HEAD_LEAVES):
            wanted = EMBEDDING_LEAVES
        elif has_leaf(key, EMBEDDING_LEAVES):
            wanted = HEAD_LEAVES
        else:
            return None
        found = [stored for stored in self._tensors if has_leaf(stored, wanted)]
        return found[0] if len(found) == 1 else None


def has_leaf(key: str, leaves: tuple[str, ...]) -> bool:
    return any(key == leaf or key.endswith("." + leaf) for leaf in leaves)


def open_source(model: str | Path) -> Source:
    """The source MODEL names: "toy" or "toy-2L", a folder, a .gguf file, or a hub id that is in
    the local HuggingFace cache (nothing is ever downloaded).

    ModelFileError when there is no such thing or it cannot be read; ImportRefused when its config
    is not that of a decoder. The imports are here so that a source costs only what it needs.
    """
    from amk.runtime.gguf_source import GgufSource
    from amk.runtime.safetensors_source import SafetensorsSource
    from amk.runtime.toy import TOYS, ToySource

    name = str(model)
    if name in TOYS:
        return ToySource(name)
    if not name or "\0" in name:
        raise ModelFileError(f"{name!r} is not a model: give a folder, a .gguf file or a hub id")
    path = Path(name).expanduser()
    try:
        if path.is_dir():
            return SafetensorsSource(name, path)
        if path.is_file():
            _check_file_kind(path)
            return GgufSource(name, path)
        if path.exists():
            raise ModelFileError(f"{name} is neither a folder nor a regular file")
    except PermissionError as error:
        raise ModelFileError(f"{name} cannot be read: permission denied") from error
    return SafetensorsSource(name, hub_snapshot(name))


def as_source(model: Any, dtype: str = "f32") -> Source:
    """The source of anything a model may be in Python: a Source, what MODEL may be, or a torch
    module that is compiled for `dtype`. TypeError for anything else."""
    if isinstance(model, Source):
        return model
    if isinstance(model, str | Path):
        return open_source(model)
    from amk.runtime.object_source import ObjectSource

    return ObjectSource(model, dtype)


def _check_file_kind(path: Path) -> None:
    if path.suffix == ".gguf":
        return
    if path.suffix in PICKLE_SUFFIXES:
        raise ModelFileError(f"{path} is a pickle, which is never loaded: save it as safetensors")
    if path.suffix == ".safetensors":
        raise ModelFileError(
            f"{path} is weights alone: give its folder, with config.json beside it"
        )
    raise ModelFileError(f"{path} is not a .gguf file: give a folder, a .gguf file or a hub id")
