"""A file mapped for reading, whose pages can be let go again."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from amk.errors import ModelFileError


class MappedFile:
    """The bytes of a file as read-only uint8 views, paged in as they are touched.

    ModelFileError when the file cannot be opened or does not have `size` bytes any more.
    """

    def __init__(self, path: Path, size: int):
        try:
            with path.open("rb") as file:
                self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            # ValueError is what an empty file gives.
            raise ModelFileError(f"{path} cannot be read any more: {error}") from error
        self._data = np.frombuffer(self._mapping, np.uint8)
        if self._data.size != size:
            raise ModelFileError(f"{path} changed while it was open")

    def view(self, start: int, stop: int) -> np.ndarray:
        """Bytes [start, stop)."""
        return self._data[start:stop]

    def drop(self, start: int, stop: int) -> None:
        """Let the whole pages within [start, stop) go, so that weights which were copied out do
        not stay resident twice. Touching them again reads the file again."""
        if not hasattr(mmap, "MADV_DONTNEED"):
            return
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = stop // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            self._mapping.madvise(mmap.MADV_DONTNEED, first, last - first)
