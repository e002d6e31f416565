"""The KV cache of one decoder between launches: memory, growth, and sharing with forks.

A kernel takes each cache's address and capacity at every launch, so a cache may move between two
launches and nothing is compiled again. What a launch at past length P with S tokens may assume,
rows [0, P) written and capacity ≥ P + S, is what `reserve(P, S)` sees to.

Policies (`amk.ir.kv.POLICIES`): `static` is allocated once; `doubling` grows to
max(2 · capacity, P + S), clamped to `max_seq`, so n tokens copy O(n) rows in O(log n) moves;
`ring` holds the first `sinks` rows and the last of the others, and never grows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amk.codegen.layout import Layout
from amk.errors import AmkError, ModelFileError
from amk.runtime.kv_memory import CacheSpec, KvMemory, carrier


@dataclass
class Sharers:
    """How many states use the same arrays."""

    count: int = 1


class KvState:
    """The caches of one sequence.

    `rows` is the capacity to start with: for `static` caches `max_seq` unless given, for
    `doubling` ones 0. `reallocations` counts the launches before which caches grew, `bytes_copied`
    the live bytes of all moves.
    """

    def __init__(
        self,
        specs: Sequence[CacheSpec],
        max_seq: int,
        memory: KvMemory,
        rows: int | None = None,
    ):
        self.specs = {spec.name: spec for spec in specs}
        self.max_seq = max_seq
        self.reallocations = 0
        self.bytes_copied = 0
        self.written = 0
        """Positions below which a row may have been written since the cache was last empty."""
        self.memory = memory
        self._sharers = Sharers()
        start = {"static": max_seq if rows is None else rows, "doubling": rows or 0}
        self._capacity = {s.name: start[s.policy] if s.slots is None else s.slots for s in specs}
        self.arrays = self._allocate(self._capacity)
        """What `memory` gave for each cache: an array, or an address on a device."""
        self._unseen = False  # did an array move that `reserve` has not told of?
        self._room: int | None = None  # positions all caches have room for, once it is known

    def capacity(self, name: str) -> int:
        """Rows a cache has room for."""
        return self._capacity[name]

    @property
    def limit(self) -> int:
        """The longest sequence the caches can come to hold."""
        fixed = [self.capacity(s.name) for s in self.specs.values() if s.policy == "static"]
        return min([self.max_seq, *fixed])

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(spec.nbytes(self.capacity(name)) for name, spec in self.specs.items())

    # ---- growth ----

    def reserve(self, length: int, new: int) -> bool:
        """Makes room for rows [length, length + new) and memory of its own for a state that shares
        some; True when an array moved. The rows before `length` keep their bits.

        Memory that is not to be had raises what allocating it raises. The caches that moved before
        it are told of by the next call that succeeds, and the others catch up with them then."""
        needed = length + new
        alone = self._sharers.count == 1 or not new
        if alone and not self._unseen and needed <= self._least_room():
            self.written = max(self.written, needed)
            return False
        rows = {s.name: self._grown(s, needed) for s in self.specs.values()}
        grew = any(n > self.capacity(name) for name, n in rows.items())
        if not alone:
            self._leave_sharers(rows, length)
        else:
            for name in [name for name, n in rows.items() if n > self.capacity(name)]:
                self._move(name, rows[name], length)
        self.reallocations += grew
        self.written = max(self.written, needed)
        moved, self._unseen = self._unseen, False
        return moved

    def _least_room(self) -> int:
        """Positions that all caches have room for; asked before every launch, and so kept."""
        if self._room is None:
            whole = [self.capacity(s.name) for s in self.specs.values() if s.slots is None]
            self._room = min([self.max_seq, *whole])
        return self._room

    def _grown(self, spec: CacheSpec, needed: int) -> int:
        """The rows a cache is to have; AmkError when it may not have so many."""
        capacity = self.capacity(spec.name)
        if spec.policy == "doubling":
            needed = max(needed, self._widest())
        if spec.slots is not None or needed <= capacity:
            return capacity
        if spec.policy == "static" or needed > self.max_seq:
            raise AmkError(f"cache {spec.name!r}: {needed} rows exceed its capacity {capacity}")
        return min(max(2 * capacity, needed), self.max_seq)

    def _widest(self) -> int:
        """The most rows a growing cache has: as many as all have, unless a growth broke off."""
        return max(self.capacity(s.name) for s in self.specs.values() if s.policy == "doubling")

    def _move(self, name: str, rows: int, length: int) -> None:
        """One cache at a time, so that no more than one exists twice."""
        array = self.memory.new(self.specs[name], rows)
        self._copy(name, array, rows, length)
        self.memory.drop(self.arrays[name])
        self.arrays[name], self._capacity[name] = array, rows
        self._unseen, self._room = True, None

    def _copy(self, name: str, array: Any, rows: int, length: int) -> None:
        spec = self.specs[name]
        live = length if spec.slots is None else spec.slots
        self.memory.copy(spec, self.arrays[name], self.capacity(name), array, rows, live)
        self.bytes_copied += spec.nbytes(live)

    def _allocate(self, rows: Mapping[str, int]) -> dict[str, Any]:
        """Arrays for all caches, or what allocating one of them raises and none."""
        arrays: dict[str, Any] = {}
        try:
            for name, spec in self.specs.items():
                arrays[name] = self.memory.new(spec, rows[name])
        except BaseException:
            for array in arrays.values():
                self.memory.drop(array)
            raise
        return arrays

    # ---- sharing ----

    def fork(self) -> KvState:
        """Another state over the same memory; whichever is written to first takes a copy."""
        child = KvState.__new__(KvState)
        child.__dict__.update(self.__dict__)
        child.arrays, child._capacity = dict(self.arrays), dict(self._capacity)
        child.reallocations = child.bytes_copied = 0
        self._sharers.count += 1
        return child

    def _leave_sharers(self, rows: Mapping[str, int], length: int) -> None:
        """Moves into memory of this state's own, or fails and leaves all as it is."""
        arrays = self._allocate(rows)
        for name, array in arrays.items():
            self._copy(name, array, rows[name], length)
        self.release()
        self.arrays, self._capacity = arrays, dict(rows)
        self._unseen, self._room = True, None

    def release(self) -> None:
        """Gives this state's share of the memory up; the last to do so lets it go."""
        self._sharers.count -= 1
        if self._sharers.count == 0:
            for array in self.arrays.values():
                self.memory.drop(array)
        self._sharers = Sharers()

    # ---- truncation ----

    def check_truncate(self, length: int) -> None:
        """ValueError when a ring has written over rows that position `length` would read."""
        for spec in self.specs.values():
            if spec.slots is None or length == 0:
                continue
            first = max(spec.first_read(length), spec.sinks)
            kept = self.written - (spec.slots - spec.sinks)
            if first < min(kept, length):
                raise ValueError(
                    f"cannot truncate to {length}: cache {spec.name!r} is a ring of {spec.slots} "
                    f"rows and holds none before {kept}; reset, or load a saved state"
                )

    def reset(self) -> None:
        """No row counts as written any more; the memory stays."""
        self.written = 0

    # ---- rows in and out ----

    def rows(self, name: str, length: int) -> np.ndarray:
        """A copy of the live rows of a cache at past length `length`, in order of position: all,
        or for a ring the last that it still holds."""
        spec = self.specs[name]
        slots = self.live_slots(spec, length)
        return self.memory.get(spec, self.arrays[name], self.capacity(name), slots)

    def live_slots(self, spec: CacheSpec, length: int) -> np.ndarray:
        """Where those rows lie."""
        return spec.slots_of(spec.held(length, self.written))

    def check_rows(self, rows: Mapping[str, np.ndarray], length: int) -> None:
        """ModelFileError unless `rows` are those of these caches at past length `length`."""
        if unknown := sorted(rows.keys() ^ self.specs.keys()):
            raise ModelFileError(f"cache {unknown[0]!r} is not in both state and program")
        if length > self.limit:
            raise ModelFileError(f"{length} positions exceed the {self.limit} there is room for")
        for name, spec in self.specs.items():
            shape = rows[name].shape
            count = shape[spec.axis] if len(shape) == len(spec.shape) else -1
            most = length if spec.slots is None else min(length, spec.slots)
            if shape != spec.at(count) or not spec.needed(length) <= count <= most:
                raise ModelFileError(
                    f"cache {name!r} is {list(shape)} in the state, "
                    f"{list(spec.at(most))} in the program"
                )
            if rows[name].dtype != carrier(spec.dtype):
                raise ModelFileError(f"cache {name!r} is not {spec.dtype} in the state")

    def seat(self, rows: Mapping[str, np.ndarray], length: int) -> None:
        """Takes over rows that `check_rows` accepted. A growing cache has exactly their capacity
        then, so the next append moves it."""
        counts = {name: rows[name].shape[spec.axis] for name, spec in self.specs.items()}
        capacities = {
            name: counts[name] if spec.policy == "doubling" else self.capacity(name)
            for name, spec in self.specs.items()
        }
        arrays = self._allocate(capacities)
        for name, spec in self.specs.items():
            slots = spec.slots_of(spec.last(counts[name], length))
            self.memory.put(spec, arrays[name], capacities[name], slots, rows[name])
        self.release()
        self.arrays, self._capacity, self._room = arrays, capacities, None
        self.written = length


def cache_specs(layout: Layout) -> list[CacheSpec]:
    """The caches of a compiled program; their sequence axis is 2, as attention wants it."""
    return [
        CacheSpec(
            s.source,
            s.shape,
            s.shape.index(-1) if -1 in s.shape else 2,
            s.dtype,
            s.policy or "static",
            s.window,
            s.sinks,
        )
        for s in layout.slots
        if s.kind == "cache"
    ]
