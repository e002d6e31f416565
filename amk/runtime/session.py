"""A session: weights bound, a cache allocated, one launch a position."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from amk.codegen.layout import Slot
from amk.errors import AmkError
from amk.runtime.bind import bind_weights
from amk.runtime.packed import huge_array
from amk.runtime.program import Program
from amk.runtime.source import Source
from amk.runtime.weights import carrier

ERRORS = {
    1: "out of memory",
    2: "the session belongs to a parent process; open one after the fork",
    3: "the session is in use by another thread",
}


class Session:
    """One sequence being decoded.

    `length` positions are in the cache. `step` and `prefill` run launches and return the logits
    of the last position, float32 [vocab], yours to keep. Not for two threads at once; any number
    of sessions may live in a process. `close`, or leaving a `with` block, frees the workers.
    """

    def __init__(
        self,
        program: Program,
        weights: Source | Mapping[str, np.ndarray],
        threads: int | None = None,
        capacity: int | None = None,
    ):
        self.program = program
        self.facts = program.facts
        self.max_seq = program.facts.max_seq
        self.vocab = program.facts.vocab
        self.threads = threads or len(os.sched_getaffinity(0))
        self.length = 0
        self.launches = 0
        rows = capacity or self.max_seq
        if not max(self.facts.tokens[0], 1) <= rows <= self.max_seq:
            raise ValueError(f"capacity {rows} is not between 1 and max_seq {self.max_seq}")
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
        elif slot.kind == "output":
            self._logits[slot.program] = array
        return array.ctypes.data

    # ---- decoding ----

    def step(self, token: int) -> np.ndarray:
        """Appends one token; returns the logits [vocab] for the position after it.

        ValueError for an id outside the vocabulary or a full cache, before anything is changed.
        """
        self._check([token])
        return self._launch(0, [token])[0].copy()

    def prefill(self, tokens: Sequence[int]) -> np.ndarray:
        """Appends a prompt, in chunks through the widest program that fits; the logits [vocab]
        of its last position. The same bits as `step` token by token."""
        return self.logits(tokens)[-1]

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Appends tokens and returns the logits of every one, float32 [len(tokens), vocab]."""
        if len(tokens) == 0:
            raise ValueError("no tokens: a prompt has one token at least")
        self._check(tokens)
        rows: list[np.ndarray] = []
        at = 0
        while at < len(tokens):
            left = len(tokens) - at
            number = max(i for i, n in enumerate(self.facts.tokens) if n <= left)
            width = self.facts.tokens[number]
            rows.append(self._launch(number, tokens[at : at + width]).copy())
            at += width
        return np.concatenate(rows)

    def _check(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if not 0 <= int(token) < self.vocab:
                raise ValueError(f"token {token} is outside the vocabulary [0, {self.vocab})")
        if self.length + len(tokens) > self.max_seq:
            raise ValueError(
                f"{self.length} + {len(tokens)} positions exceed max_seq {self.max_seq}"
            )
        if self._pool is None:
            raise ValueError("the session is closed")

    def _launch(self, number: int, tokens: Sequence[int]) -> np.ndarray:
        """One launch of program `number`; its logits [tokens, vocab], valid until the next."""
        self._tokens[number][0, :] = tokens
        error = self._library.amk_launch(self._pool, number, self.length, self._table, self._rows)
        if error:
            raise AmkError(f"launch failed: {ERRORS.get(error, f'error {error}')}")
        self.length += len(tokens)
        self.launches += 1
        return self._logits[number][0]

    def stream(self, prompt: Sequence[int]) -> Iterator[int]:
        """Greedy tokens after `prompt`, until the cache is full."""
        token = int(self.prefill(prompt).argmax())
        yield token
        while self.length < self.max_seq:
            token = int(self.step(token).argmax())
            yield token

    def reset(self) -> None:
        """Back to an empty cache."""
        self.length = 0

    def cache_bytes(self) -> int:
        """Bytes allocated for the cache."""
        return sum(a.nbytes for s, a in self._arrays.items() if s.kind == "cache")

    # ---- life ----

    def close(self) -> None:
        """Stops the workers. A closed session refuses to step."""
        if self._pool is not None:
            self._library.amk_close(ctypes.c_void_p(self._pool))
            self._pool = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pool", None) is not None:
            self.close()
