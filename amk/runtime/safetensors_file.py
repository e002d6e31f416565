"""The safetensors container, with every bound of its header checked before use."""

from __future__ import annotations

import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from amk.errors import ModelFileError
from amk.runtime.mapped_file import MappedFile
from amk.runtime.weights import CARRIERS

# The format's own limit on its header.
MAX_HEADER_BYTES = 100_000_000

# The file's dtype names that hold weights, and their tags.
DTYPE_TAGS = {"F32": "f32", "BF16": "bf16", "F16": "f16"}

# Bytes an element of every dtype the format knows, to check tensors that are never read too.
ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2,
    "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip


class Entry(NamedTuple):
    """One tensor of a file: its dtype name, shape, and byte range from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class SafetensorsFile:
    """One .safetensors file: its checked header, and its bytes mapped when first asked for."""

    def __init__(self, path: Path):
        self.path = path
        self.entries = read_header(path)

    @cached_property
    def _mapped(self) -> MappedFile:
        # The data fill the file, so the last tensor ends where the file does.
        return MappedFile(self.path, max(entry.stop for entry in self.entries.values()))

    def array(self, key: str) -> np.ndarray:
        """The tensor as a read-only view of the file, in the numpy dtype that carries it."""
        entry = self.entries[key]
        carrier = CARRIERS[DTYPE_TAGS[entry.dtype]]
        return self._mapped.view(entry.start, entry.stop).view(carrier).reshape(entry.shape)

    def drop(self, key: str) -> None:
        """Let the tensor's pages go after it was copied out."""
        entry = self.entries[key]
        self._mapped.drop(entry.start, entry.stop)


def read_header(path: Path) -> dict[str, Entry]:
    """The tensors of a safetensors file, every bound checked against the file's size.

    Format: u64 header length, JSON header, data; tensors must fill the data without a gap or an
    overlap. ModelFileError for anything else.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            prefix = file.read(8)
            length = int.from_bytes(prefix, "little")
            if len(prefix) < 8 or length > min(MAX_HEADER_BYTES, size - 8):
                raise ModelFileError(f"{path} is not safetensors: its header does not fit the file")
            text = file.read(length)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from error
    try:
        header = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not safetensors: bad header ({error})") from error
    if not isinstance(header, dict):
        raise ModelFileError(f"{path} is not safetensors: its header is not an object")
    header.pop("__metadata__", None)
    entries = {key: _entry(path, key, value, 8 + length) for key, value in header.items()}
    _check_cover(path, entries, 8 + length, size)
    return entries


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is given twice")
    return result


def _entry(path: Path, key: str, value: Any, base: int) -> Entry:
    try:
        dtype, shape, (start, stop) = value["dtype"], value["shape"], value["data_offsets"]
        width = ITEM_BYTES[dtype]
        numbers = [*shape, start, stop]
    except (KeyError, TypeError, ValueError):
        raise ModelFileError(f"{path}: the header entry of {key!r} is malformed") from None
    if not all(type(n) is int and n >= 0 for n in numbers):
        raise ModelFileError(f"{path}: {key!r} has a shape or offset that is no count")
    nbytes = width
    for extent in shape:
        nbytes *= extent
    if stop - start != nbytes:
        raise ModelFileError(f"{path}: {key!r} is {dtype}{shape} but has {stop - start} bytes")
    return Entry(dtype, tuple(shape), base + start, base + stop)


def _check_cover(path: Path, entries: dict[str, Entry], base: int, size: int) -> None:
    at = base
    for key, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != at:
            raise ModelFileError(f"{path}: {key!r} overlaps its neighbour or leaves a gap")
        at = entry.stop
    if at != size:
        raise ModelFileError(f"{path} has {size} bytes where its header needs {at}: cut short?")
