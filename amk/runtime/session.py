"""A session on this machine's processor: weights bound, a cache allocated, launches."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence

import numpy as np

from amk.codegen.layout import Slot
from amk.errors import AmkError
from amk.runtime.bind import bind_weights
from amk.runtime.decoder import Decoder
from amk.runtime.packed import huge_array
from amk.runtime.program import Program
from amk.runtime.source import Source
from amk.runtime.weights import carrier

ERRORS = {
    1: "out of memory",
    2: "the session belongs to a parent process; open one after the fork",
    3: "the session is in use by another thread",
}


class Session(Decoder):
    """A decoder that runs a compiled program on `threads` workers (default: one a CPU this
    process may use). `capacity` is the cache's rows, `max_seq` unless given."""

    def __init__(
        self,
        program: Program,
        weights: Source | Mapping[str, np.ndarray],
        threads: int | None = None,
        capacity: int | None = None,
    ):
        super().__init__(program.facts)
        self.program = program
        self.threads = threads or len(os.sched_getaffinity(0))
        rows = capacity or self.max_seq
        if not 1 <= rows <= self.max_seq:
            raise ValueError(f"capacity {rows} is not between 1 and max_seq {self.max_seq}")
        self.max_seq = rows
        self._arrays = bind_weights(program, weights)
        self._capacity = np.full(len(program.layout.slots), rows, np.int64)
        self._arenas = [huge_array(max(n, 64)) for n in program.layout.arenas]
        self._pointers = np.zeros(len(program.layout.slots), np.int64)
        self._tokens: list[np.ndarray] = [np.zeros(0, np.int64)] * len(self.facts.tokens)
        self._logits: list[np.ndarray] = [np.zeros(0, np.float32)] * len(self.facts.tokens)
        for i, slot in enumerate(program.layout.slots):
            self._pointers[i] = self._place(slot, rows)
        self._library = program.library
        self._pool: int | None = self._library.amk_open(self.threads)
        if not self._pool:
            raise AmkError(f"cannot start {self.threads} workers")
        self._table = self._pointers.ctypes.data
        self._rows = self._capacity.ctypes.data

    def _place(self, slot: Slot, rows: int) -> int:
        """Memory for one slot; returns its address."""
        if slot.kind == "activation":
            return self._arenas[slot.program].ctypes.data + slot.offset
        if slot.kind == "weight":
            return self._arrays[slot].ctypes.data
        shape = tuple(rows if d == -1 else d for d in slot.shape)
        kind = np.dtype(np.int64) if slot.dtype == "i64" else carrier(slot.dtype)
        nbytes = int(np.prod(shape)) * kind.itemsize
        array = huge_array(nbytes).view(kind).reshape(shape)
        self._arrays[slot] = array
        if slot.kind == "input":
            self._tokens[slot.program] = array
        elif slot.source == "logits":
            self._logits[slot.program] = array
        return array.ctypes.data

    def _run(self, number: int, tokens: Sequence[int]) -> np.ndarray:
        self._tokens[number][0, :] = tokens
        error = self._library.amk_launch(self._pool, number, self.length, self._table, self._rows)
        if error:
            raise AmkError(f"launch failed: {ERRORS.get(error, f'error {error}')}")
        return self._logits[number][0]

    def cache_bytes(self) -> int:
        """Bytes allocated for the cache."""
        return sum(a.nbytes for s, a in self._arrays.items() if s.kind == "cache")

    def close(self) -> None:
        """Stops the workers and lets the memory go."""
        super().close()
        if getattr(self, "_pool", None) is not None:
            self._library.amk_close(ctypes.c_void_p(self._pool))
            self._pool = None

    def __del__(self) -> None:
        self.close()
