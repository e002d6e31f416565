"""Fills a program's weight slots: once at load, in the layout and dtype the program reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from amk.codegen.layout import Slot
from amk.errors import ModelFileError
from amk.runtime import weight_cache
from amk.runtime.packed import huge_array
from amk.runtime.program import INIT_PREFIX, Program
from amk.runtime.source import Source, as_source
from amk.runtime.weights import CARRIERS, carrier, convert

ALIGNMENT = 64
Read = Callable[[str, np.ndarray | None, str], np.ndarray]


def reader(weights: Source | Mapping[str, np.ndarray]) -> Read:
    """`read(key, out, dtype)` over a source or a plain mapping of arrays (bf16 as uint16)."""
    if isinstance(weights, Source):
        return lambda key, out, dtype: weights.read(key, out, dtype)

    def read(key: str, out: np.ndarray | None, dtype: str) -> np.ndarray:
        if key not in weights:
            raise ModelFileError(f"weight {key!r} is missing")
        array = np.ascontiguousarray(weights[key])
        names = {np.dtype(kind): tag for tag, kind in CARRIERS.items()}
        if array.dtype not in names:
            raise ModelFileError(f"weight {key!r} is {array.dtype}; give float32, float16 or bf16")
        target = np.empty(array.shape, carrier(dtype)) if out is None else out
        if target.shape != array.shape:
            raise ModelFileError(
                f"weight {key!r} is {array.shape}, the program wants {target.shape}"
            )
        convert(array, names[array.dtype], target, dtype)
        return target

    return read


def bind_weights(program: Program, weights: Any) -> dict[Slot, np.ndarray]:
    """One array a weight slot, all in one allocation of huge pages; nothing is held twice.

    `weights` is a mapping of arrays by state-dict key, or whatever `as_source` takes.
    """
    if not isinstance(weights, Mapping):
        weights = as_source(weights, program.facts.dtype)
    slots = [s for s in program.layout.slots if s.kind == "weight"]
    offsets, total = [], 0
    for slot in slots:
        offsets.append(total)
        nbytes = int(np.prod(slot.shape)) * carrier(slot.dtype).itemsize
        total += -(-nbytes // ALIGNMENT) * ALIGNMENT
    memory = huge_array(total)
    arrays: dict[Slot, np.ndarray] = {}
    for slot, offset in zip(slots, offsets, strict=True):
        count = int(np.prod(slot.shape))
        kind = carrier(slot.dtype)
        view = memory[offset : offset + count * kind.itemsize].view(kind).reshape(slot.shape)
        arrays[slot] = view
    if isinstance(weights, Source):
        fill_kept(program, weights, arrays)
    else:
        fill(program, reader(weights), arrays)
    return arrays


def check_shape(source: Source, key: str, shape: tuple[int, ...]) -> None:
    """ModelFileError when the source lacks a tensor or has it in another shape."""
    found = source.info(key).shape
    if found != shape:
        raise ModelFileError(
            f"{source.name}: tensor {key!r} is {list(found)}, its config needs {list(shape)}"
        )


def fill_kept(program: Program, source: Source, arrays: Mapping[Slot, np.ndarray]) -> None:
    """`fill`, through the cache where that is worth its bytes."""
    for slot in arrays:
        if not slot.source.startswith(INIT_PREFIX):
            check_shape(source, slot.source, slot.shape)
    slots = weight_cache.kept(source, arrays.keys())
    kept = {slot: arrays[slot] for slot in slots}
    key = weight_cache.weights_key(program, source, slots)
    if key is None or not kept:
        fill(program, reader(source), arrays)
    elif weight_cache.load(key, kept):
        rest = {slot: array for slot, array in arrays.items() if slot not in kept}
        fill(program, reader(source), rest)
    else:
        fill(program, reader(source), arrays)
        weight_cache.save(key, kept)


def fill(program: Program, read: Read, arrays: Mapping[Slot, np.ndarray]) -> None:
    derived: dict[str, list[np.ndarray]] = {}
    for slot, array in arrays.items():
        if slot.source.startswith(INIT_PREFIX):
            derived.setdefault(slot.source.removeprefix(INIT_PREFIX), []).append(array)
            continue
        read(slot.source, array, slot.dtype)
    if not derived:
        return
    from amk.interpreters.init_numpy import iterate_init
    from amk.ir import parse_module
    from amk.ir.lm import WeightOp, element_of

    module = parse_module(program.init_text)
    dtypes = {
        op.key.data: str(element_of(op.result)) for op in module.walk() if isinstance(op, WeightOp)
    }
    for name, value in iterate_init(module, lambda key: read(key, None, dtypes[key])):
        for array in derived.get(name, ()):
            array[...] = value
