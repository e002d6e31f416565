"""What every backend's session shares: one sequence, its length, and launches in order."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from amk.runtime.program import Facts


class Decoder(ABC):
    """One sequence being decoded.

    `length` positions are in the cache. `step` and `prefill` run launches and return logits,
    float32, the caller's to keep. Not for two threads at once; any number of decoders may live
    in a process. `close`, or leaving a `with` block, frees what it holds.
    """

    def __init__(self, facts: Facts):
        self.facts = facts
        self.vocab = facts.vocab
        self.max_seq = facts.max_seq
        self.length = 0
        self.latencies_us: list[float] = []
        """Wall time of each launch since the last `reset`, microseconds."""

    @abstractmethod
    def _run(self, number: int, tokens: Sequence[int]) -> np.ndarray:
        """One launch of program `number` at `length`; logits [tokens, vocab], valid until the
        next."""

    def close(self) -> None:
        """Frees what the decoder holds. A closed one refuses to step."""
        self._closed = True

    _closed = False

    @property
    def launches(self) -> int:
        """Launches since the last `reset`."""
        return len(self.latencies_us)

    def step(self, token: int) -> np.ndarray:
        """Appends one token; the logits [vocab] after it.

        ValueError for an id outside the vocabulary or a full cache, before anything is changed.
        """
        self._check([token])
        return self._launch(0, [token])[0].copy()

    def prefill(self, tokens: Sequence[int]) -> np.ndarray:
        """Appends a prompt, in chunks through the widest program that fits; the logits [vocab]
        of its last position. The same bits as `step` token by token."""
        for rows in self._chunks(tokens):
            last = rows[-1]
        return last.copy()  # type: ignore[possibly-unbound]

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Appends tokens; the logits after every one, float32 [len(tokens), vocab]."""
        return np.concatenate([rows.copy() for rows in self._chunks(tokens)])

    def stream(self, prompt: Sequence[int]) -> Iterator[int]:
        """Greedy tokens after `prompt`, until the cache is full."""
        token = int(self.prefill(prompt).argmax())
        yield token
        while self.length < self.max_seq:
            token = int(self.step(token).argmax())
            yield token

    def reset(self) -> None:
        """Back to an empty cache."""
        self.rewind(0)
        self.latencies_us = []

    def rewind(self, length: int) -> None:
        """Forgets the positions from `length` on; ValueError for more than there are."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot rewind {self.length} positions to {length}")
        self.length = length

    def _chunks(self, tokens: Sequence[int]) -> Iterator[np.ndarray]:
        """Launches over `tokens`; the logits [chunk, vocab] of each, valid until the next."""
        if len(tokens) == 0:
            raise ValueError("no tokens: a prompt has one token at least")
        self._check(tokens)
        at = 0
        while at < len(tokens):
            left = len(tokens) - at
            number = max(i for i, n in enumerate(self.facts.tokens) if n <= left)
            width = self.facts.tokens[number]
            yield self._launch(number, tokens[at : at + width])
            at += width

    def _check(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if not 0 <= int(token) < self.vocab:
                raise ValueError(f"token {token} is outside the vocabulary [0, {self.vocab})")
        if self.length + len(tokens) > self.max_seq:
            raise ValueError(
                f"{self.length} + {len(tokens)} positions exceed max_seq {self.max_seq}"
            )
        if self._closed:
            raise ValueError("the session is closed")

    def _launch(self, number: int, tokens: Sequence[int]) -> np.ndarray:
        start = time.perf_counter_ns()
        rows = self._run(number, tokens)
        self.latencies_us.append((time.perf_counter_ns() - start) / 1e3)
        self.length += len(tokens)
        return rows

    def __enter__(self):
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
