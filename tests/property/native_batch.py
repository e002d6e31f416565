"""Many unrelated `mk` programs as one C file, compiled once and run beside the interpreter."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from xdsl.dialects.builtin import StringAttr

from amk.codegen.cpu.emit import write_c
from amk.codegen.layout import Slot
from amk.interpreters.numerics import to_bf16_bits
from amk.ir import mk
from amk.runtime.toolchain import CFLAGS, compile_shared

Array = np.ndarray
ROWS = 2
"""The axis of a ring that counts rows; that of another cache is its open one."""
FLAGS = tuple("-O1" if flag == "-O3" else flag for flag in CFLAGS)
CARRIERS = {
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(np.uint16),
    "f16": np.dtype(np.float16),
    "i64": np.dtype(np.int64),
}


def stored(values: Array, dtype: str) -> Array:
    """Values as a buffer of a storage dtype holds them."""
    if dtype == "bf16":
        return np.ascontiguousarray(to_bf16_bits(values))
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, CARRIERS[dtype])


class NativeBatch:
    """Programs by number. Programs of one `family` share weights and caches of one source."""

    def __init__(self, programs: Sequence[mk.ProgramOp], families: Sequence[int] | None = None):
        self.families = list(range(len(programs))) if families is None else list(families)
        copies = [p.clone() for p in programs]
        for family, program in zip(self.families, copies, strict=True):
            for buffer in program.buffers():
                source = f"{family}/{buffer.source.data}"
                buffer.properties["source"] = StringAttr(source)
        self.source, self.layout = write_c(copies)
        self.memory: dict[Slot, Array] = {}
        self.arenas = [np.full(n // 4 + 1, np.nan, np.float32) for n in self.layout.arenas]

    @cached_property
    def library(self) -> ctypes.CDLL:
        library = ctypes.CDLL(str(compile_shared(self.source, FLAGS)))
        library.amk_open.restype = ctypes.c_void_p
        library.amk_close.argtypes = [ctypes.c_void_p]
        library.amk_launch.argtypes = [
            ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p,
        ]  # fmt: skip
        return library

    def bind(self, number: int, weights: Mapping[str, Array], caches: Mapping[str, Array]) -> None:
        """Gives a program its weights and caches, as float32 values, by source."""
        given = {("weight", k): v for k, v in weights.items()}
        given |= {("cache", k): v for k, v in caches.items()}
        for slot in self.slots(number):
            if slot in self.memory or slot.kind == "activation":
                continue
            key = (slot.kind, slot.source.partition("/")[2])
            if key in given:
                self.memory[slot] = stored(given[key], slot.dtype)
            elif slot.kind in ("input", "output"):
                empty = -1 if slot.dtype == "i64" else np.nan
                self.memory[slot] = stored(np.full(slot.shape, empty), slot.dtype)
            else:
                raise KeyError(key)

    def slots(self, number: int) -> list[Slot]:
        family = f"{self.families[number]}/"
        return [
            s
            for s in self.layout.slots
            if s.program in (-1, number) and s.source.startswith(family)
        ]

    def buffer(self, number: int, kind: str, source: str) -> Array:
        """The memory of a buffer of a program, in its storage dtype."""
        for slot in self.slots(number):
            if (slot.kind, slot.source.partition("/")[2]) == (kind, source):
                return self.memory[slot]
        raise KeyError((kind, source))

    def launch(self, number: int, past: int, workers: int = 1) -> None:
        pointers = np.zeros(len(self.layout.slots), np.int64)
        capacity = np.zeros(len(self.layout.slots), np.int64)
        mine = set(self.slots(number))
        for i, slot in enumerate(self.layout.slots):
            if slot not in mine:
                continue
            if slot.kind == "activation":
                pointers[i] = self.arenas[number].ctypes.data + slot.offset
                continue
            pointers[i] = self.memory[slot].ctypes.data
            if slot.kind == "cache":
                axis = slot.shape.index(-1) if -1 in slot.shape else ROWS
                capacity[i] = self.memory[slot].shape[axis]
        pool = self.library.amk_open(workers)
        assert pool
        error = self.library.amk_launch(
            pool, number, past, pointers.ctypes.data, capacity.ctypes.data
        )
        self.library.amk_close(pool)
        assert error == 0, f"amk_launch gives {error}"


def assert_same_bits(found: Array, expected: Array, what: str) -> None:
    """`found` holds `expected` bit for bit; a NaN is a NaN."""
    if found.dtype == np.uint16:  # bf16
        expected = to_bf16_bits(expected)
        nan = (expected & 0x7FFF) > 0x7F80
        same = np.where(nan, (found & 0x7FFF) > 0x7F80, found == expected)
    else:
        wide = np.asarray(expected).astype(found.dtype)
        kind = np.dtype(f"u{found.dtype.itemsize}")
        same = (found.view(kind) == wide.view(kind)) | ((found != found) & (wide != wide))
    assert same.all(), f"{what}: {(~same).sum()} of {same.size} elements differ"
