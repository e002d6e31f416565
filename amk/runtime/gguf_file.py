"""The GGUF container: metadata and the tensor table, with every bound checked before use.

Layout (versions 2 and 3, little endian): "GGUF", u32 version, u64 tensor count, u64 key count, the
keys, the tensor table, padding to the alignment, data. See the ggml project's docs/gguf.md.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amk.errors import ModelFileError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32

# ggml's own limit on a tensor's rank.
MAX_RANK = 4

# Value types of fixed width, as struct codes; 8 is a string and 9 an array.
SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
STRING, ARRAY = 8, 9

# The shortest a key (empty name, type, one byte) and a table row (empty name, rank 0) can be.
MIN_KEY_BYTES, MIN_ROW_BYTES = 13, 24


@dataclass(frozen=True)
class GgufTensor:
    """One row of the tensor table.

    `shape` is row major, the way numpy and torch count (the file counts the other way). `type_id`
    is the ggml type. `offset` is in bytes from the start of the file, `nbytes` the length there.
    """

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int
    nbytes: int


@dataclass(frozen=True)
class GgufHeader:
    """What a file says besides its data. Arrays of strings (vocabularies) stand as their length."""

    metadata: dict[str, Any]
    tensors: tuple[GgufTensor, ...]


def read_gguf_header(path: Path, block_sizes: dict[int, tuple[int, int]]) -> GgufHeader:
    """Parse a GGUF file without touching its tensor data.

    `block_sizes` maps a ggml type to (elements a block, bytes a block). ModelFileError, with the
    place, when the file is no GGUF, cut short, or its table does not fit its size.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 24:
                raise ModelFileError(f"{path} is not GGUF: it has only {size} bytes")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data, size).header(block_sizes)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from error


def write_outline(path: Path, out: Path) -> None:
    """Writes to `out` the file at `path` without its tokenizer's arrays and with holes for data.

    Readers that go through a vocabulary string by string take seconds for what only the other
    keys decide. The data are a hole of the right size, which costs no disk. Raises like
    `read_gguf_header`."""
    with path.open("rb") as file, out.open("wb") as copy:
        size = os.fstat(file.fileno()).st_size
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            reader = _Reader(path, data, size)
            head = reader.take(8)
            tensor_count, key_count = reader.number("Q"), reader.number("Q")
            kept = [piece for piece in reader.keys(key_count) if not is_vocabulary(piece)]
            start = reader.at
            for _ in range(tensor_count):
                reader.row()
            table = data[start : reader.at]
        copy.write(head + struct.pack("<QQ", tensor_count, len(kept)) + b"".join(kept) + table)
        copy.truncate(size)


def is_vocabulary(key: bytes) -> bool:
    """Is the text of a key, as in the file, an array of the tokenizer's?"""
    (length,) = struct.unpack_from("<Q", key)
    (kind,) = struct.unpack_from("<I", key, 8 + length)
    return kind == ARRAY and key[8 : 8 + length].startswith(b"tokenizer.")


class _Reader:
    """A cursor over the file that never moves past its end."""

    def __init__(self, path: Path, data: mmap.mmap, size: int):
        self.path, self.data, self.size, self.at = path, data, size, 0

    def header(self, block_sizes: dict[int, tuple[int, int]]) -> GgufHeader:
        if self.take(4) != MAGIC:
            raise self.bad("its magic is wrong")
        version = self.number("I")
        if version not in VERSIONS:
            raise self.bad(f"version {version} is not one of {VERSIONS}")
        tensor_count, key_count = self.number("Q"), self.number("Q")
        if key_count * MIN_KEY_BYTES + tensor_count * MIN_ROW_BYTES > self.size:
            raise self.bad(f"{key_count} keys and {tensor_count} tensors do not fit the file")
        metadata: dict[str, Any] = {}
        for _ in range(key_count):
            key = self.string()
            if key in metadata:
                raise self.bad(f"key {key!r} is given twice")
            metadata[key] = self.value(self.number("I"))
        rows = [self.row() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise self.bad(f"alignment {alignment!r} is not a power of two")
        start = -(-self.at // alignment) * alignment
        tensors = tuple(self.placed(row, start, alignment, block_sizes) for row in rows)
        self.check_disjoint(tensors)
        return GgufHeader(metadata, tensors)

    def keys(self, count: int) -> list[bytes]:
        """The text of each key, as it stands in the file."""
        found: list[bytes] = []
        for _ in range(count):
            start = self.at
            self.string()
            self.value(self.number("I"))
            found.append(self.data[start : self.at])
        return found

    def bad(self, why: str) -> ModelFileError:
        return ModelFileError(f"{self.path} is not a usable GGUF file: {why} (byte {self.at})")

    def take(self, count: int) -> bytes:
        if count > self.size - self.at:
            raise self.bad(f"it ends where {count} more bytes are due")
        piece = self.data[self.at : self.at + count]
        self.at += count
        return piece

    def number(self, code: str) -> Any:
        layout = "<" + code
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def string(self) -> str:
        text = self.take(self.number("Q"))
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise self.bad("a string is not UTF-8") from None

    def value(self, kind: int) -> Any:
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            raise self.bad(f"value type {kind} is unknown")
        item, count = self.number("I"), self.number("Q")
        if item in SCALARS:
            layout = "<" + SCALARS[item]
            data = self.take(count * struct.calcsize(layout))
            return [number for (number,) in struct.iter_unpack(layout, data)]
        if item != STRING:
            raise self.bad(f"an array of type {item} is not supported")
        for _ in range(count):
            self.take(self.number("Q"))
        return count

    def row(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.string()
        rank = self.number("I")
        if rank > MAX_RANK:
            raise self.bad(f"tensor {name!r} has {rank} dimensions")
        shape = tuple(self.number("Q") for _ in range(rank))
        if not all(shape):
            raise self.bad(f"tensor {name!r} has a dimension of zero")
        return name, shape[::-1], self.number("I"), self.number("Q")

    def placed(
        self,
        row: tuple[str, tuple[int, ...], int, int],
        start: int,
        alignment: int,
        block_sizes: dict[int, tuple[int, int]],
    ) -> GgufTensor:
        name, shape, type_id, offset = row
        if type_id not in block_sizes:
            raise self.bad(f"tensor {name!r} has unknown type {type_id}")
        block, block_bytes = block_sizes[type_id]
        if not shape or shape[-1] % block:
            raise self.bad(f"tensor {name!r} of shape {shape} is not whole blocks of {block}")
        count = 1
        for extent in shape:
            count *= extent
        nbytes = count // block * block_bytes
        if offset % alignment or start + offset + nbytes > self.size:
            raise self.bad(f"the {nbytes} bytes of tensor {name!r} do not lie inside the file")
        return GgufTensor(name, shape, type_id, start + offset, nbytes)

    def check_disjoint(self, tensors: tuple[GgufTensor, ...]) -> None:
        if len({tensor.name for tensor in tensors}) != len(tensors):
            raise self.bad("a tensor is given twice")
        stop = 0
        for tensor in sorted(tensors, key=lambda t: t.offset):
            if tensor.offset < stop:
                raise self.bad(f"tensor {tensor.name!r} overlaps another")
            stop = tensor.offset + tensor.nbytes
