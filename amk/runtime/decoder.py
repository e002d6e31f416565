"""What every backend's session shares: one sequence, its length, and launches in order."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from amk.errors import AmkError
from amk.runtime import state_file
from amk.runtime.kv_state import KvState
from amk.runtime.program import Facts
from amk.runtime.state_file import State


class Decoder(ABC):
    """One sequence being decoded.

    `length` positions are in the cache, of the tokens `tokens`. `step` and `prefill` run launches
    and return logits, float32, the caller's to keep. Not for two threads at once; any number of
    decoders may live in a process. `close`, or leaving a `with` block, frees what it holds.

    A backend whose caches lie in this process gives their `cache`; it grows between launches.
    """

    def __init__(self, facts: Facts, cache: KvState | None = None):
        self.facts = facts
        self.vocab = facts.vocab
        self.cache = cache
        self.max_seq = facts.max_seq if cache is None else cache.limit
        self.tokens: list[int] = []
        self.latencies_us: list[float] = []
        """Wall time of each launch since the last `reset`, microseconds."""

    @abstractmethod
    def _run(self, number: int, tokens: Sequence[int]) -> np.ndarray:
        """One launch of program `number` at `length`; logits [tokens, vocab], valid until the
        next."""

    def _check_steps(self) -> None:  # noqa: B027
        """AmkError where a launch cannot take several steps; asked before anything is changed."""

    def _run_steps(self, token: int, count: int, ends: Sequence[int]) -> list[int]:
        """One launch of up to `count` greedy steps at `length`; the token each step made."""
        raise AmkError(f"{type(self).__name__} takes one step a launch")

    def _moved(self) -> None:  # noqa: B027
        """Called when arrays of the cache moved: the next launch must find them."""

    def _weights(self) -> Mapping[str, np.ndarray]:
        """The model's own weights as they are bound, in a carrying dtype."""
        return {}

    def close(self) -> None:
        """Frees what the decoder holds. A closed one refuses to step."""
        if self.cache is not None and not self._closed:
            self.cache.release()
        self._closed = True

    _closed = False
    _fed = False

    @property
    def length(self) -> int:
        """Positions in the cache."""
        return len(self.tokens)

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

    def steps(self, token: int, count: int, ends: Sequence[int] = ()) -> list[int]:
        """Takes up to `count` greedy steps in one launch, the first from `token`; the tokens they
        made, one a step.

        Stops after a step that made one of `ends`. The bits, and the state after it, are those of
        as many `step`s: the last token made is not in the cache. ValueError for an id outside the
        vocabulary, fewer steps than one or more than there is room for, before anything is
        changed; AmkError where the program or backend makes no token of its own."""
        facts = self.facts
        if count < 1:
            raise ValueError(f"{count} steps: a launch takes one at least")
        if facts.ids < facts.vocab:
            raise AmkError(
                f"{facts.model} makes ids below {facts.vocab} and reads those below {facts.ids}:"
                " take one step a launch"
            )
        self._check_steps()
        self._check([token], count)
        start = time.perf_counter_ns()
        written = 0 if self.cache is None else self.cache.written
        if self.cache is not None and self.cache.reserve(self.length, count):
            self._moved()
        self._fed = True
        made = self._run_steps(token, count, ends)
        self.latencies_us.append((time.perf_counter_ns() - start) / 1e3)
        self.tokens += [int(token), *made[:-1]]
        if self.cache is not None:
            self.cache.written = max(written, self.length)
        return made

    @property
    def chooses(self) -> bool:
        """Whether a greedy token is better had from `steps` than from the logits of `step`."""
        return False

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
        """Back to a decoder that was never fed, with the memory it has."""
        self.tokens = []
        self._fed = False
        self.latencies_us = []
        if self.cache is not None:
            self.cache.reset()

    def truncate(self, length: int) -> None:
        """Forgets the positions from `length` on: moves the length and nothing else.

        ValueError for more positions than there are, or when a ring no longer holds what the
        position at `length` would read. No effect on a decoder that was never fed."""
        if length < 0:
            raise ValueError(f"cannot truncate to {length} positions")
        if not self._fed:
            return
        if length > self.length:
            raise ValueError(f"cannot truncate {self.length} positions to {length}")
        if self.cache is not None:
            self.cache.check_truncate(length)
            if length == 0:
                self.cache.reset()  # a ring holds the first rows again once they are written
        del self.tokens[length:]

    # ---- state ----

    def save(self, path: str | Path) -> None:
        """Writes the live rows of the cache and the tokens they belong to, as safetensors.

        AmkError when nothing was decoded yet or the file cannot be written."""
        cache = self._open_cache("save")
        if not self._fed:
            name = next(iter(cache.specs), "")
            raise AmkError(f"save: cache {name!r} was never written: decode something first")
        rows = {name: cache.rows(name, self.length) for name in cache.specs}
        dtypes = {name: spec.dtype for name, spec in cache.specs.items()}
        state_file.write_state(Path(path), State(self.tokens, rows, self._identity()), dtypes)

    def load(self, path: str | Path) -> None:
        """Takes over a state that `save` wrote, in place of its own.

        ModelFileError, before anything is changed, when the file is damaged or belongs to another
        model, dtype or layout, or does not fit `max_seq`."""
        cache = self._open_cache("load")
        state = state_file.read_state(Path(path))
        state_file.check_facts(Path(path), state.facts, self._identity())
        cache.check_rows(state.rows, len(state.tokens))
        cache.seat(state.rows, len(state.tokens))
        self.tokens = state.tokens
        self._fed = True
        self._moved()

    def fork(self) -> Self:
        """An independent decoder that continues from here. The two share the cache until one of
        them is fed. AmkError where the backend has none."""
        raise AmkError(f"{type(self).__name__} cannot be forked")

    def _open_cache(self, what: str) -> KvState:
        if self._closed:
            raise ValueError("the session is closed")
        if self.cache is None:
            raise AmkError(f"{what}: the cache of this backend is not in this process's memory")
        return self.cache

    def _identity(self) -> dict[str, str]:
        return {
            "model": self.facts.model,
            "program": self.facts.fingerprint,
            "dtype": self.facts.dtype,
            "weights": state_file.sample_hash(self._weights()),
        }

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

    def _check(self, tokens: Sequence[int], positions: int | None = None) -> None:
        """ValueError unless `tokens` are ids and there is room for so many positions, by default
        one a token."""
        for token in tokens:
            if not 0 <= int(token) < self.facts.ids:
                raise ValueError(f"token {token} is outside the vocabulary [0, {self.facts.ids})")
        new = len(tokens) if positions is None else positions
        if self.length + new > self.max_seq:
            raise ValueError(f"{self.length} + {new} positions exceed max_seq {self.max_seq}")
        if self._closed:
            raise ValueError("the session is closed")

    def _launch(self, number: int, tokens: Sequence[int]) -> np.ndarray:
        start = time.perf_counter_ns()
        if self.cache is not None and self.cache.reserve(self.length, len(tokens)):
            self._moved()
        self._fed = True
        rows = self._run(number, tokens)
        self.latencies_us.append((time.perf_counter_ns() - start) / 1e3)
        self.tokens += [int(t) for t in tokens]
        return rows

    def __enter__(self):
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
