"""Runs `mk` programs as the interpreter, the native program and the CUDA text on the host do, over
caches that a test holds as float32 arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from amk.codegen.cuda.emit import emit_cuda, machine_of
from amk.codegen.layout import Layout, Slot
from amk.interpreters.mk import Machine
from amk.ir import mk
from amk.runtime.kernel_device import Arguments
from amk.runtime.simt import compile_simt, load
from amk.targets import GPUS
from tests.property.native_batch import CARRIERS, NativeBatch, stored

Array = np.ndarray
CLAIMED = "legal-mk,plan-buffers,schedule,verify-mk"
STATIC = (
    "legal-mk,warp-reductions,plan-buffers,schedule{kind=static workers=2 groups=true},verify-mk"
)
TROUBLE = 64


class Interpreted:
    """Program k launched by the interpreter of `mk`."""

    passes = CLAIMED

    def __init__(self, programs: Sequence[mk.ProgramOp], weights: Mapping[str, Array]):
        self.programs, self.weights = programs, weights

    def launch(self, number: int, tokens: Array, past: int, caches: dict[str, Array]) -> Array:
        """Logits of a launch; `caches` gain the new rows."""
        machine = Machine(self.programs[number], self.weights, caches)
        return machine.launch(tokens, past).copy()


class Native:
    passes = CLAIMED

    def __init__(self, programs: Sequence[mk.ProgramOp], weights: Mapping[str, Array]):
        self.batch = NativeBatch(programs, [0] * len(programs))
        self.weights = weights

    def launch(self, number: int, tokens: Array, past: int, caches: dict[str, Array]) -> Array:
        for slot in [s for s in self.batch.memory if s.kind == "cache"]:
            del self.batch.memory[slot]
        self.batch.bind(number, self.weights, caches)
        self.batch.buffer(number, "input", "tokens")[0] = tokens
        self.batch.launch(number, past, workers=2)
        for name, rows in caches.items():
            rows[...] = self.batch.buffer(number, "cache", name)
        return self.batch.buffer(number, "output", "logits").copy()


class Simt:
    passes = STATIC

    def __init__(self, programs: Sequence[mk.ProgramOp], weights: Mapping[str, Array]):
        gpu, self.layout, self.weights = GPUS["h100"][1], Layout(), weights
        self.plans, self.libraries = [], []
        for number, program in enumerate(programs):
            machine = machine_of(program, gpu)
            text, plan = emit_cuda(program, number, self.layout, gpu, "bench", machine)
            arena = program.arena
            self.layout.arenas.append(0 if arena is None else arena.value.data)
            self.plans.append(plan)
            self.libraries.append(load(compile_simt(text)))

    def launch(self, number: int, tokens: Array, past: int, caches: dict[str, Array]) -> Array:
        plan, arena = self.plans[number], np.zeros(self.layout.arenas[number] + 256, np.uint8)
        held = [self.memory(slot, number, tokens, caches) for slot in self.layout.slots]
        addresses = [
            arena.ctypes.data + slot.offset if slot.kind == "activation" else array.ctypes.data
            for slot, array in zip(self.layout.slots, held, strict=True)
        ]
        operands = np.array([addresses[k] for k in plan.operands], np.uint64)
        events = np.zeros(plan.counters, np.uint32)
        trouble = np.zeros(TROUBLE, np.uint32)
        scratch = np.zeros(plan.blocks * plan.scratch_bytes + 256, np.uint8)
        arguments = Arguments(
            past=past, capacity=self.capacity(caches), operands=operands.ctypes.data,
            events=events.ctypes.data, trouble=trouble.ctypes.data, scratch=scratch.ctypes.data,
            patience=60_000_000_000, number=1, steps=1,
        )  # fmt: skip
        self.libraries[number].amk_simt_launch(ctypes.byref(arguments), plan.blocks, 2, -1, 1)
        assert not trouble.any(), trouble
        found = dict(zip(self.layout.slots, held, strict=True))
        for slot, array in found.items():
            if slot.kind == "cache":
                caches[slot.source][...] = array
        return next(a for s, a in found.items() if s.source == "logits" and s.program == number)

    def capacity(self, caches: Mapping[str, Array]) -> int:
        axes = {s.source: s.shape.index(-1) for s in self.layout.slots if -1 in s.shape}
        (rows,) = {caches[name].shape[axis] for name, axis in axes.items()} or {0}
        return rows

    def memory(self, slot: Slot, number: int, tokens: Array, caches: Mapping[str, Array]) -> Array:
        if slot.kind == "weight":
            return stored(self.weights[slot.source], slot.dtype)
        if slot.kind == "cache":
            return stored(caches[slot.source], slot.dtype)
        if slot.kind == "input" and slot.program == number:
            return np.asarray(tokens, np.int64)[None].copy()
        return np.zeros([max(d, 1) for d in slot.shape], CARRIERS[slot.dtype])


RUNNERS = {"reference": Interpreted, "native": Native, "simt": Simt}
