"""Derived weights in one file, laid out so that loading is a copy and nothing else.

Layout, little endian:

    0    preamble, 64 bytes: magic (8), header offset (8), header length (8), SHA-256 of header (32)
    64   tensors, each raw in C order at a multiple of 64
    ...  header: JSON {name: {"dtype": numpy dtype string, "shape": [...], "offset": byte offset}}

The header comes last so that tensors can be written as they are made, one at a time.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from amk.errors import ModelFileError

MAGIC = b"AMKPACK1"
PREAMBLE = struct.Struct("<8sQQ32s8x")
ALIGNMENT = 64
HUGE_PAGE = 2 << 20

# What may stand in a header: fixed width, little endian (or a single byte), never objects.
DTYPES = {np.dtype(text).str: np.dtype(text) for text in ("<f4", "<f2", "<u2", "<i4", "|i1", "|u1")}

# Bytes asked of one read, and the readers that run at once. Two filled 538 MB of fresh huge pages
# in 0.21 s where one took 0.38 s: most of the time is the kernel clearing pages.
READ_BYTES = 32 << 20
READERS = 2


class Packed(Mapping[str, np.ndarray]):
    """The tensors of a packed file: name -> read-only array mapped from it.

    `spans` gives each tensor's (offset, bytes) in the file.
    """

    def __init__(
        self, path: Path, arrays: dict[str, np.ndarray], spans: dict[str, tuple[int, int]]
    ):
        self.path = path
        self.spans = spans
        self._arrays = arrays

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __iter__(self):
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


def write_packed(path: Path, tensors: Iterable[tuple[str, np.ndarray]]) -> None:
    """Write `tensors` to `path`; the file appears whole, by rename, or not at all.

    Dtypes are those of `DTYPES` (bf16 as its uint16 patterns). An iterator may make each array
    when asked, so that one is in memory at a time. ValueError for a name given twice or a dtype
    that is not in the table; OSError passes through.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write(file, tensors)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _write(file: Any, tensors: Iterable[tuple[str, np.ndarray]]) -> None:
    header: dict[str, dict[str, Any]] = {}
    file.write(bytes(PREAMBLE.size))
    for name, array in tensors:
        if name in header:
            raise ValueError(f"tensor {name!r} is given twice")
        if array.dtype.str not in DTYPES:
            raise ValueError(f"tensor {name!r} has dtype {array.dtype}, which cannot be packed")
        file.write(bytes(-file.tell() % ALIGNMENT))
        header[name] = {"dtype": array.dtype.str, "shape": array.shape, "offset": file.tell()}
        file.write(np.ascontiguousarray(array).data)
    text = json.dumps(header).encode()
    offset = file.tell()
    file.write(text)
    file.seek(0)
    file.write(PREAMBLE.pack(MAGIC, offset, len(text), hashlib.sha256(text).digest()))


def open_packed(path: Path) -> Packed:
    """Map a packed file. ModelFileError when it is missing, cut short or damaged.

    The header's checksum and every bound are checked; the tensor bytes are not read.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < PREAMBLE.size:
                raise _damaged(path, "it is too short")
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelFileError(f"cannot read packed weights {path}: {error.strerror}") from error
    magic, offset, length, checksum = PREAMBLE.unpack_from(mapping)
    if magic != MAGIC:
        raise _damaged(path, "its magic is wrong")
    if offset + length != size:
        raise _damaged(path, "it was cut short")
    text = mapping[offset : offset + length]
    if hashlib.sha256(text).digest() != checksum:
        raise _damaged(path, "its header fails the checksum")
    data = np.frombuffer(mapping, np.uint8)
    arrays: dict[str, np.ndarray] = {}
    spans: dict[str, tuple[int, int]] = {}
    for name, entry in json.loads(text).items():
        dtype = DTYPES[entry["dtype"]]
        nbytes = int(np.prod(entry["shape"], dtype=object)) * dtype.itemsize
        start = entry["offset"]
        if start % ALIGNMENT or not PREAMBLE.size <= start <= start + nbytes <= offset:
            raise _damaged(path, f"tensor {name!r} lies outside it")
        arrays[name] = data[start : start + nbytes].view(dtype).reshape(entry["shape"])
        spans[name] = (start, nbytes)
    return Packed(path, arrays, spans)


def _damaged(path: Path, why: str) -> ModelFileError:
    return ModelFileError(
        f"packed weights {path} are damaged ({why}): run `amk cache clear` and try again"
    )


def huge_array(nbytes: int) -> np.ndarray:
    """`nbytes` of zeroed anonymous memory as uint8, starting on a 2 MiB boundary.

    The kernel is asked for huge pages, where it has them; the memory goes back when the last view
    of the array does.
    """
    if nbytes == 0:
        return np.empty(0, np.uint8)
    mapping = mmap.mmap(-1, nbytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(mapping, np.uint8)
    start = -whole.ctypes.data % HUGE_PAGE
    return whole[start : start + nbytes]


def copy_into(packed: Packed, destinations: Mapping[str, np.ndarray]) -> None:
    """Fill `destinations` (name -> C-contiguous array of that tensor's bytes) from the file.

    Reads go straight into the destination, so the mapping's pages are never touched and the
    weights are resident once. Work is split by bytes over `READERS` threads. KeyError for a name
    that is not in the file, ValueError for a destination of another size, ModelFileError when the
    file shrank meanwhile.
    """
    pieces: list[tuple[int, memoryview]] = []
    for name, array in destinations.items():
        start, nbytes = packed.spans[name]
        if array.nbytes != nbytes:
            raise ValueError(f"destination of {name!r} has {array.nbytes} bytes, not {nbytes}")
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise ValueError(f"destination of {name!r} must be C-contiguous and writable")
        if not nbytes:
            continue
        view = array.reshape(-1).view(np.uint8).data
        for at in range(0, nbytes, READ_BYTES):
            pieces.append((start + at, view[at : at + READ_BYTES]))
    with packed.path.open("rb") as file:
        _read_all(file.fileno(), pieces, packed.path)


def _read_all(descriptor: int, pieces: list[tuple[int, memoryview]], path: Path) -> None:
    failures: list[Exception] = []
    queue = iter(pieces)
    lock = threading.Lock()

    def reader() -> None:
        try:
            while not failures:
                with lock:
                    piece = next(queue, None)
                if piece is None:
                    return
                _read_exactly(descriptor, *piece, path)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=reader) for _ in range(READERS - 1)]
    for thread in threads:
        thread.start()
    reader()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _read_exactly(descriptor: int, offset: int, view: memoryview, path: Path) -> None:
    done = 0
    while done < len(view):
        try:
            count = os.preadv(descriptor, [view[done:]], offset + done)
        except OSError as error:
            raise ModelFileError(f"cannot read packed weights {path}: {error.strerror}") from error
        if count == 0:
            raise _damaged(path, "it was cut short")
        done += count
