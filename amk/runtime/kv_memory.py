"""Where caches live: in this process, or on a device with memory of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from amk.ring import ring_slot
from amk.runtime.weights import CARRIERS, convert

KV_CARRIERS = {**CARRIERS, "i8": np.dtype(np.int8)}


def carrier(dtype: str) -> np.dtype:
    """The numpy dtype that carries a storage dtype of caches."""
    return KV_CARRIERS[dtype]


@dataclass(frozen=True)
class CacheSpec:
    """One cache of a program.

    `shape` holds −1 at `axis`, the sequence axis, and the slots there for a ring. `dtype` is the
    tag of the storage dtype. A row of a ring is read by the next `window` − 1 positions, or by all
    of them when it is one of the first `sinks`.
    """

    name: str
    shape: tuple[int, ...]
    axis: int
    dtype: str
    policy: str = "static"
    window: int = 0
    sinks: int = 0

    @property
    def slots(self) -> int | None:
        """Rows of a ring, None for a cache that holds them all."""
        return self.shape[self.axis] if self.policy == "ring" else None

    def at(self, rows: int) -> tuple[int, ...]:
        """The shape with so many rows."""
        return (*self.shape[: self.axis], rows, *self.shape[self.axis + 1 :])

    def nbytes(self, rows: int) -> int:
        """Bytes of so many rows in storage dtype."""
        return prod(self.at(rows)) * carrier(self.dtype).itemsize

    def first_read(self, length: int) -> int:
        """The first row that a launch at past length `length` may read, sinks aside."""
        return 0 if self.policy != "ring" else max(0, length - self.window + 1)

    def held(self, length: int, written: int) -> np.ndarray:
        """Positions below `length` whose rows are still there after `written` were."""
        if self.slots is None:
            return np.arange(length)
        stay = min(self.sinks, length)
        first = max(stay, max(written, length) - (self.slots - self.sinks))
        return np.concatenate([np.arange(stay), np.arange(min(first, length), length)])

    def last(self, count: int, length: int) -> np.ndarray:
        """The positions of `count` rows of a state of `length`: the sinks and the last ones."""
        stay = min(self.sinks, length, count)
        return np.concatenate([np.arange(stay), np.arange(length - (count - stay), length)])

    def needed(self, length: int) -> int:
        """Rows that a launch at past length `length` may read."""
        stay = min(self.sinks, length)
        return stay + length - max(stay, self.first_read(length))

    def slots_of(self, positions: np.ndarray) -> np.ndarray:
        """Where the rows of some positions lie."""
        return positions if self.slots is None else ring_slot(positions, self.slots, self.sinks)

    def index(self, rows: Any) -> tuple[Any, ...]:
        """Rows of an array of this cache."""
        return (*(slice(None),) * self.axis, rows)


class KvMemory(Protocol):
    """Memory for caches. An *array* is whatever `new` gives; `capacity` is the rows it has."""

    def new(self, spec: CacheSpec, rows: int) -> Any: ...

    def copy(
        self, spec: CacheSpec, old: Any, capacity: int, array: Any, rows: int, live: int
    ) -> None:
        """The first `live` rows of `old`, with room for `capacity`, into `array`, for `rows`."""
        ...

    def get(self, spec: CacheSpec, array: Any, capacity: int, slots: np.ndarray) -> np.ndarray:
        """A copy of the rows in `slots`, in storage dtype."""
        ...

    def put(
        self, spec: CacheSpec, array: Any, capacity: int, slots: np.ndarray, rows: np.ndarray
    ) -> None:
        """Writes rows, in storage dtype, into `slots`."""
        ...

    def drop(self, array: Any) -> None:
        """Nobody uses an array any more."""
        ...


class HostMemory:
    """numpy arrays. `allocate(shape, dtype)` may give float32 for every storage dtype, as the
    interpreter wants it; values are converted at the border then."""

    def __init__(self, allocate: Callable[[tuple[int, ...], np.dtype], np.ndarray]):
        self.allocate = allocate

    def new(self, spec: CacheSpec, rows: int) -> np.ndarray:
        return self.allocate(spec.at(rows), carrier(spec.dtype))

    def copy(
        self, spec: CacheSpec, old: Any, capacity: int, array: Any, rows: int, live: int
    ) -> None:
        first = spec.index(slice(0, live))
        array[first] = old[first]

    def get(self, spec: CacheSpec, array: Any, capacity: int, slots: np.ndarray) -> np.ndarray:
        rows = np.take(array, slots, axis=spec.axis)
        if rows.dtype == carrier(spec.dtype):
            return rows
        if spec.dtype == "i8":
            with np.errstate(invalid="ignore"):  # a row that was never written is NaN
                return rows.astype(np.int8)
        out = np.empty(rows.shape, carrier(spec.dtype))
        convert(rows, "f32", out, spec.dtype)
        return out

    def put(
        self, spec: CacheSpec, array: Any, capacity: int, slots: np.ndarray, rows: np.ndarray
    ) -> None:
        if array.dtype != rows.dtype and spec.dtype != "i8":
            wide = np.empty(rows.shape, np.float32)
            convert(np.ascontiguousarray(rows), spec.dtype, wide, "f32")
            rows = wide
        array[spec.index(slots)] = rows

    def drop(self, array: Any) -> None:
        pass


class MemoryDevice(Protocol):
    """What caches need of a device; addresses are plain numbers."""

    def allocate(self, nbytes: int) -> int:
        """Zeroed memory, aligned to 256 bytes."""
        ...

    def free(self, address: int) -> None: ...

    def write(self, address: int, array: np.ndarray) -> None: ...

    def read(self, address: int, array: np.ndarray) -> None:
        """Fills `array`, after everything before."""
        ...

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """From one place on the device to another, which do not overlap."""
        ...


class DeviceMemory:
    """Addresses on a device. A cache that grows, or that a fork leaves behind, is copied there;
    rows pass through the host when a cache is saved or loaded."""

    def __init__(self, device: MemoryDevice):
        self.device = device

    def _fetch(self, spec: CacheSpec, address: int, rows: int) -> np.ndarray:
        array = np.empty(spec.at(rows), carrier(spec.dtype))
        if array.size:
            self.device.read(address, array)
        return array

    def new(self, spec: CacheSpec, rows: int) -> int:
        return self.device.allocate(max(spec.nbytes(rows), 16))

    def copy(
        self, spec: CacheSpec, old: Any, capacity: int, array: Any, rows: int, live: int
    ) -> None:
        row = spec.nbytes(1) // prod(spec.shape[: spec.axis])
        if rows == capacity == live:
            self.device.copy(array, old, spec.nbytes(live))
            return
        for i in range(prod(spec.shape[: spec.axis]) if live else 0):
            self.device.copy(array + i * rows * row, old + i * capacity * row, live * row)

    def get(self, spec: CacheSpec, array: Any, capacity: int, slots: np.ndarray) -> np.ndarray:
        return np.take(self._fetch(spec, array, capacity), slots, axis=spec.axis)

    def put(
        self, spec: CacheSpec, array: Any, capacity: int, slots: np.ndarray, rows: np.ndarray
    ) -> None:
        fresh = np.zeros(spec.at(capacity), carrier(spec.dtype))
        fresh[spec.index(slots)] = rows
        self.device.write(array, fresh)

    def drop(self, array: Any) -> None:
        self.device.free(array)
