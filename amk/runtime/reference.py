"""The `reference` backend: the mk interpreter as a decoder, slow and bit-equal to native code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import BFloat16Type
from xdsl.ir import Attribute

from amk.compiler import facts_of, lower, options_for, programs_of
from amk.interpreters.init_numpy import evaluate_init
from amk.interpreters.mk import Machine, round_to
from amk.interpreters.numerics_float import from_bf16_bits
from amk.ir import mk
from amk.ir.lm import WeightOp, element_of
from amk.runtime.backends import Settings
from amk.runtime.decoder import Decoder
from amk.runtime.kv_memory import CacheSpec, HostMemory
from amk.runtime.kv_state import KvState
from amk.runtime.program import INIT_PREFIX, Facts
from amk.runtime.source import Source


class Interpreter(Decoder):
    """Interprets the programs of one model, narrowest first, over shared weights and caches."""

    def __init__(
        self,
        facts: Facts,
        programs: Sequence[mk.ProgramOp],
        weights: dict[str, np.ndarray],
    ):
        super().__init__(
            facts, KvState(cache_specs(programs[0]), facts.max_seq, HostMemory(unwritten))
        )
        assert self.cache is not None
        self.threads = 1
        self._programs, self._bound = programs, weights
        self._machines = [Machine(program, weights, self.cache.arrays) for program in programs]

    def _moved(self) -> None:
        assert self.cache is not None
        for machine in self._machines:
            for buffer in machine.memory:
                if buffer.kind.data == "cache":
                    machine.memory[buffer] = self.cache.arrays[buffer.source.data]

    def _weights(self) -> dict[str, np.ndarray]:
        return {k: v for k, v in self._bound.items() if not k.startswith(INIT_PREFIX)}

    def fork(self) -> Interpreter:
        child = Interpreter(self.facts, self._programs, self._bound)
        child.cache = self._open_cache("fork").fork()
        child._moved()
        child.tokens = list(self.tokens)
        child._fed = self._fed
        return child

    def _run_steps(self, token: int, count: int, ends: Sequence[int]) -> list[int]:
        machine, made = self._machines[0], []
        while len(made) < count and (not made or made[-1] not in ends):
            machine.launch(np.array([token], np.int64), self.length + len(made))
            token = int(machine.buffer("output", "next")[0, 0])
            made.append(token)
        return made

    def _run(self, number: int, tokens: Sequence[int]) -> np.ndarray:
        machine = self._machines[number]
        return machine.launch(np.asarray(tokens, np.int64), self.length)[0]


def open_interpreter(source: Source, settings: Settings) -> Interpreter:
    """Lowers `source` and binds its weights, all as float32 values of their storage dtypes."""

    def on_pass(name: str, module: object, seconds: float) -> None:
        settings.report(f"lowering {source.name}: {name}")

    options = options_for(
        source, "cpu", settings.max_seq, settings.dtype, settings.speculate, settings.kv_dtype,
        settings.kv_policy,
    )  # fmt: skip
    modules = [lower(source, options, n, on_pass) for n in options.tokens]
    programs = [p for module in modules for p in programs_of(module)]
    settings.report(f"loading the weights of {source.name}")
    stored = {
        op.key.data: element_of(op.result) for op in modules[0].walk() if isinstance(op, WeightOp)
    }
    init = evaluate_init(modules[0], lambda key: source.read(key, None, str(stored[key])))
    weights: dict[str, np.ndarray] = {}
    for buffer in programs[0].buffers():
        key, element = buffer.source.data, buffer.type.element_type
        if buffer.kind.data != "weight" or key in weights:
            continue
        if key.startswith(INIT_PREFIX):
            value = init[key.removeprefix(INIT_PREFIX)]
        else:
            value = source.read(key, None, str(element))
        weights[key] = as_float32(value, element)
    return Interpreter(facts_of(source, options, modules[0]), programs, weights)


def as_float32(value: np.ndarray, element: Attribute) -> np.ndarray:
    """The values of an array of element type `element` (bf16 as uint16 bits)."""
    if isinstance(element, BFloat16Type) and value.dtype == np.uint16:
        return from_bf16_bits(value)
    return round_to(value.astype(np.float32), element)


def cache_specs(program: mk.ProgramOp) -> list[CacheSpec]:
    """The caches of a program; their sequence axis is 2, as attention wants it."""
    return [
        CacheSpec(
            b.source.data, shape, shape.index(-1) if -1 in shape else 2, str(b.type.element_type),
            b.growth, 0 if b.window is None else b.window.value.data, b.sink_rows,
        )
        for b in program.buffers()
        if b.kind.data == "cache" and (shape := b.memory_shape)
    ]  # fmt: skip


def unwritten(shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
    """Memory of the interpreter, f32 whatever is stored: NaN, so that a read of a row that was
    never written shows."""
    return np.full(shape, np.nan, np.float32)
