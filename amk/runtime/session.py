"""A session on this machine's processor: weights bound, a cache allocated, launches."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from amk.codegen.layout import Slot
from amk.errors import AmkError
from amk.runtime.bind import bind_weights
from amk.runtime.certificate import refuse_several_steps
from amk.runtime.decoder import Decoder
from amk.runtime.kv_memory import HostMemory
from amk.runtime.kv_state import KvState, cache_specs
from amk.runtime.packed import HUGE_PAGE, huge_array
from amk.runtime.program import INIT_PREFIX, Program
from amk.runtime.source import Source
from amk.runtime.weights import carrier

ERRORS = {
    -1: "the program makes no token that a step could go on with",
    1: "out of memory",
    2: "the session belongs to a parent process; open one after the fork",
    3: "the session is in use by another thread",
}


class Session(Decoder):
    """A decoder that runs a compiled program on `threads` workers (default: one a CPU this
    process may use). `capacity` is the cache's rows to start with: all that a cache which does
    not grow will have."""

    def __init__(
        self,
        program: Program,
        weights: Source | Mapping[str, np.ndarray],
        threads: int | None = None,
        capacity: int | None = None,
    ):
        longest = program.facts.max_seq
        if capacity is not None and not 1 <= capacity <= longest:
            raise ValueError(f"capacity {capacity} is not between 1 and max_seq {longest}")
        cache = KvState(cache_specs(program.layout), longest, HostMemory(allocate), capacity)
        self._start(program, bind_weights(program, weights), cache, threads)

    def _start(
        self,
        program: Program,
        weights: dict[Slot, np.ndarray],
        cache: KvState,
        threads: int | None,
    ) -> None:
        super().__init__(program.facts, cache)
        self.program = program
        self.threads = threads or len(os.sched_getaffinity(0))
        self._bound = weights
        self._arrays: dict[Slot, np.ndarray] = {}
        self._capacity = np.zeros(len(program.layout.slots), np.int64)
        self._arenas = [huge_array(max(n, 64)) for n in program.layout.arenas]
        self._pointers = np.zeros(len(program.layout.slots), np.int64)
        self._inputs: list[np.ndarray] = [np.zeros(0, np.int64)] * len(self.facts.tokens)
        self._logits: list[np.ndarray] = [np.zeros(0, np.float32)] * len(self.facts.tokens)
        for i, slot in enumerate(program.layout.slots):
            if slot.kind != "cache":
                self._pointers[i] = self._place(slot)
        self._moved()
        self._library = program.library
        self._pool: int | None = self._library.amk_open(self.threads)
        if not self._pool:
            raise AmkError(f"cannot start {self.threads} workers")
        self._table = self._pointers.ctypes.data
        self._rows = self._capacity.ctypes.data

    def _place(self, slot: Slot) -> int:
        """Memory for one slot that is no cache; returns its address."""
        if slot.kind == "activation":
            return self._arenas[slot.program].ctypes.data + slot.offset
        if slot.kind == "weight":
            return self._bound[slot].ctypes.data
        kind = np.dtype(np.int64) if slot.dtype == "i64" else carrier(slot.dtype)
        array = self._arrays[slot] = allocate(slot.shape, kind)
        if slot.kind == "input":
            self._inputs[slot.program] = array
        elif slot.source == "logits":
            self._logits[slot.program] = array
        return array.ctypes.data

    def _moved(self) -> None:
        assert self.cache is not None
        for i, slot in enumerate(self.program.layout.slots):
            if slot.kind == "cache":
                self._pointers[i] = self.cache.arrays[slot.source].ctypes.data
                self._capacity[i] = self.cache.capacity(slot.source)

    def _weights(self) -> dict[str, np.ndarray]:
        return {s.source: a for s, a in self._bound.items() if not s.source.startswith(INIT_PREFIX)}

    def _run(self, number: int, tokens: Sequence[int]) -> np.ndarray:
        self._inputs[number][0, :] = tokens
        error = self._library.amk_launch(self._pool, number, self.length, self._table, self._rows)
        if error:
            raise AmkError(f"launch failed: {ERRORS.get(error, f'error {error}')}")
        return self._logits[number][0]

    def _check_steps(self) -> None:
        refuse_several_steps(self.program.folder, self.program.several_steps)

    def _run_steps(self, token: int, count: int, ends: Sequence[int]) -> list[int]:
        self._inputs[0][0, 0] = token
        stop, made, taken = np.array(ends, np.int64), np.empty(count, np.int64), ctypes.c_long()
        error = self._library.amk_steps(
            self._pool, self.length, self._table, self._rows, count, stop.ctypes.data, len(stop),
            made.ctypes.data, ctypes.addressof(taken),
        )  # fmt: skip
        if error:
            raise AmkError(f"launch failed: {ERRORS.get(error, f'error {error}')}")
        return made[: taken.value].tolist()

    def fork(self) -> Self:
        """An independent session that continues from here, with workers of its own. The two share
        weights, and the cache until one of them is fed."""
        cache = self._open_cache("fork").fork()
        child = type(self).__new__(type(self))
        child._start(self.program, self._bound, cache, self.threads)
        child.tokens = list(self.tokens)
        child._fed = self._fed
        return child

    def cache_bytes(self) -> int:
        """Bytes allocated for the cache."""
        return 0 if self.cache is None else self.cache.nbytes

    def close(self) -> None:
        """Stops the workers and lets the memory go."""
        super().close()
        if getattr(self, "_pool", None) is not None:
            self._library.amk_close(ctypes.c_void_p(self._pool))
            self._pool = None

    def __del__(self) -> None:
        if hasattr(self, "cache"):
            self.close()


def allocate(shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
    """Memory on a cache line, in huge pages from the size of one on: a small array that had one to
    itself would keep all of it resident."""
    nbytes = int(np.prod(shape)) * kind.itemsize
    if nbytes >= HUGE_PAGE:
        return huge_array(nbytes).view(kind).reshape(shape)
    memory = np.zeros(nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + nbytes].view(kind).reshape(shape)
