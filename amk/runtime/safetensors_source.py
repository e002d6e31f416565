"""A folder as HuggingFace saves it: config.json, safetensors (one file or shards), a tokenizer."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from amk.errors import ModelFileError
from amk.runtime.cache import Cache, stable_hash
from amk.runtime.model_files import check_decoder, file_identity, read_json, token_ids
from amk.runtime.safetensors_file import DTYPE_TAGS, SafetensorsFile, read_header
from amk.runtime.source import (
    EMBEDDING_LEAVES,
    HEAD_LEAVES,
    PICKLE_SUFFIXES,
    Source,
    has_leaf,
)
from amk.runtime.tokenizer import JsonTokenizer, TextTokenizer, folder_chat_template
from amk.runtime.weights import TensorInfo, convert, destination

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


class SafetensorsSource(Source):
    """A folder of safetensors. Pickles are refused, and no code in the folder is run."""

    def __init__(self, name: str, path: Path):
        super().__init__(name, path)
        self.folder = path
        if not (path / "config.json").is_file():
            raise ModelFileError(f"{name} has no config.json{_instead(path)}")
        check_decoder(read_json(path / "config.json"), name)
        self._shards = [SafetensorsFile(shard) for shard in _shard_paths(name, path)]
        self._home = {key: shard for shard in self._shards for key in shard.entries}

    def _load_config(self) -> dict[str, Any]:
        config = read_json(self.folder / "config.json")
        heads = [key for key in self._home if has_leaf(key, HEAD_LEAVES)]
        embeddings = [key for key in self._home if has_leaf(key, EMBEDDING_LEAVES)]
        if len(heads) > 1 or len(embeddings) != 1:
            return config
        config["tie_word_embeddings"] = self._is_tied(config, heads, embeddings)
        return config

    def _is_tied(self, config: dict[str, Any], heads: list[str], embeddings: list[str]) -> bool:
        """Whether the head is the embedding, by the rules of transformers 5.

        The config decides, and where it is silent the default of its class; but a head stored
        with other values than the embedding's is its own tensor whatever the config says.
        """
        tied = config.get("tie_word_embeddings")
        if tied is None:
            tied = self._remembered("default-tie", config, lambda: _default_tie(config))
        if not tied or not heads:
            return bool(tied)
        head, embedding = heads[0], embeddings[0]
        return self._remembered(
            "equal-tie",
            self.weights_key(),
            lambda: np.array_equal(self._bytes(head), self._bytes(embedding)),
        )

    def _remembered(self, question: str, about: object, answer: Any) -> bool:
        def build(directory: Path) -> None:
            (directory / "answer.json").write_text(json.dumps(bool(answer())))

        entry = Cache("facts").put(stable_hash(question, about), build)
        return json.loads((entry / "answer.json").read_bytes())

    def _bytes(self, key: str) -> np.ndarray:
        return self._home[key].array(key).reshape(-1).view(np.uint8)

    def _load_tensors(self) -> Mapping[str, TensorInfo]:
        table: dict[str, TensorInfo] = {}
        for key, shard in self._home.items():
            entry = shard.entries[key]
            # Buffers of other dtypes (masks, counters) are recomputed by the model's code.
            if (tag := DTYPE_TAGS.get(entry.dtype)) is not None:
                table[key] = TensorInfo(entry.shape, tag, tag)
        return table

    def _read(self, key: str, out: np.ndarray | None, dtype: str) -> np.ndarray:
        info = self.tensors()[key]
        target = destination(info.shape, dtype, out)
        convert(self._home[key].array(key), info.dtype, target, dtype)
        self._home[key].drop(key)
        return target

    def weights_key(self) -> str:
        return stable_hash("safetensors", [file_identity(shard.path) for shard in self._shards])

    def tokenizer_path(self) -> Path | None:
        return self.folder if (self.folder / "tokenizer.json").is_file() else None

    def _load_tokenizer(self) -> TextTokenizer:
        return JsonTokenizer(self.folder, self.name)

    def chat_template(self) -> str | None:
        return folder_chat_template(self.folder)

    def eos_token_ids(self) -> list[int]:
        """generation_config.json decides where it has an end token, else config.json."""
        generation = self.folder / "generation_config.json"
        if generation.is_file():
            ids = token_ids(read_json(generation).get("eos_token_id"), self.name)
            if ids:
                return ids
        return super().eos_token_ids()


def _default_tie(config: dict[str, Any]) -> bool:
    """What the config's class ties when its file does not say."""
    from transformers import AutoConfig

    try:
        return bool(AutoConfig.for_model(**config).tie_word_embeddings)
    except (ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ModelFileError(f"config.json is not one transformers accepts: {reason}") from error


def _instead(folder: Path) -> str:
    """A hint about what a folder without a config holds."""
    names = sorted(path.name for path in folder.iterdir())
    if not names:
        return ": it is empty"
    ggufs = [name for name in names if name.endswith(".gguf")]
    return f": give the file itself, {folder / ggufs[0]}" if ggufs else ""


def _shard_paths(name: str, folder: Path) -> list[Path]:
    if (folder / SINGLE_FILE).is_file():
        return [folder / SINGLE_FILE]
    if (folder / INDEX_FILE).is_file():
        return _indexed_paths(name, folder)
    if any(path.suffix in PICKLE_SUFFIXES for path in folder.iterdir()):
        raise ModelFileError(
            f"{name} holds pickled weights only, which are never loaded: "
            "save them with save_pretrained(…, safe_serialization=True)"
        )
    raise ModelFileError(f"{name} has neither {SINGLE_FILE} nor {INDEX_FILE}")


def _indexed_paths(name: str, folder: Path) -> list[Path]:
    weight_map = read_json(folder / INDEX_FILE).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(f"{name}: {INDEX_FILE} has no weight_map")
    shards = sorted(set(map(str, weight_map.values())))
    for shard in shards:
        if os.path.basename(shard) != shard or not shard.endswith(".safetensors"):
            raise ModelFileError(f"{name}: {INDEX_FILE} names {shard!r}, not a file beside it")
        if not (folder / shard).is_file():
            raise ModelFileError(f"{name}: {shard} is missing, though {INDEX_FILE} names it")
    entries = {shard: read_header(folder / shard) for shard in shards}
    for key, shard in weight_map.items():
        if key not in entries[shard]:
            raise ModelFileError(f"{name}: {shard} lacks {key!r}, which {INDEX_FILE} puts there")
    if sum(map(len, entries.values())) != len(weight_map):
        raise ModelFileError(f"{name}: its shards hold tensors that {INDEX_FILE} does not list")
    return [folder / shard for shard in shards]
