"""Builds one-stage `mk` programs op by op, with their inputs and the outputs they must have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type, i64
from xdsl.ir import Block, Operation, OpResult, Region, SSAValue

from amk.interpreters.mk import Launch, Machine, round_to
from amk.interpreters.numerics_float import quiet
from amk.ir import mk
from amk.ir.expr import Expr
from amk.ir.lm import shape_of

Array = np.ndarray
ELEMENTS = {"f32": Float32Type(), "bf16": BFloat16Type(), "f16": Float16Type(), "i64": i64}


class Bench:
    """A program of one stage. Values are given as arrays and live in weight buffers; every
    `store` makes an output, whose expected values (in f64) and tolerance stand in `expected`."""

    def __init__(self, tokens: int = 1, past: int = 0, grid: Sequence[Expr | int] = (1,)):
        self.tokens, self.past, self.grid = tokens, past, grid
        self.buffers: list[mk.BufferOp] = []
        self.weights: dict[str, Array] = {}
        self.caches: dict[str, Array] = {}
        self.prologue, self.parts, self.body = Block(), Block(), Block()
        self.kept: list[SSAValue] = []
        self.expected: dict[str, tuple[Array, float]] = {}
        self.given_tokens: Array | None = None

    def __call__(self, op: Operation) -> Any:
        """Adds `op` to the tile; returns its first result, if it has any."""
        self.body.add_op(op)
        return op.results[0] if op.results else None

    def before(self, op: Operation) -> OpResult:
        """Adds `op` to the prologue."""
        self.prologue.add_op(op)
        return op.results[0]

    def keep(self, value: SSAValue) -> SSAValue:
        """A prologue's value, as the tiles see it."""
        self.kept.append(value)
        return self.parts.insert_arg(value.type, len(self.parts.args))

    def buffer(self, kind: str, source: str, shape: Sequence[int], dtype: str = "f32") -> OpResult:
        op = mk.BufferOp(kind, source, mk.BufferType.get(shape, ELEMENTS[dtype]))
        self.buffers.append(op)
        return op.result

    def weight(self, array: ArrayLike, dtype: str = "f32") -> OpResult:
        """A weight buffer that holds `array`, rounded to its dtype."""
        source = f"w{len(self.weights)}"
        values = np.asarray(array, np.float32)
        self.weights[source] = round_to(values, ELEMENTS[dtype])
        return self.buffer("weight", source, values.shape, dtype)

    def cache(self, array: ArrayLike, dtype: str = "f32") -> OpResult:
        """A cache [1, H, rows, D] that holds `array`."""
        source = f"c{len(self.caches)}"
        values = round_to(np.array(array, np.float32), ELEMENTS[dtype])
        self.caches[source] = values
        shape = [-1 if i == 2 else d for i, d in enumerate(values.shape)]
        return self.buffer("cache", source, shape, dtype)

    def value(self, array: ArrayLike) -> OpResult:
        """A tensor value that holds `array`."""
        array = np.asarray(array, np.float32)
        buffer = self.weight(array)
        return self(mk.LoadOp(buffer, [0] * array.ndim, array.shape))

    def token_buffer(self, tokens: Sequence[int]) -> OpResult:
        self.given_tokens = np.asarray([tokens], np.int64)
        return self.buffer("input", "tokens", (1, len(tokens)), "i64")

    def output(
        self, shape: Sequence[int], expected: ArrayLike, tolerance: float = 0.0, dtype="f32"
    ):
        source = f"y{len(self.expected)}"
        self.expected[source] = (np.asarray(expected), tolerance)
        return self.buffer("output", source, shape, dtype)

    def store(self, value: SSAValue, expected: ArrayLike, tolerance: float = 0.0) -> None:
        """Stores `value` whole into an output of its own."""
        shape = shape_of(value)
        assert np.shape(expected) == shape, (np.shape(expected), shape)
        self(mk.StoreOp(value, self.output(shape, expected, tolerance), [0] * len(shape)))

    def program(self) -> mk.ProgramOp:
        """The finished program; call once."""
        self.prologue.add_op(mk.YieldOp(*self.kept))
        self.parts.add_op(mk.PartOp(self.grid, Region(self.body)))
        stage = mk.StageOp("stage", Region(self.prologue), Region(self.parts))
        program = mk.ProgramOp("bench", self.tokens, 1024)
        program.body.block.add_ops([*self.buffers, stage])
        program.verify()
        return program


def interpret(bench: Bench, program: mk.ProgramOp) -> dict[str, Array]:
    """The outputs of one launch, by source."""
    caches = {source: array.copy() for source, array in bench.caches.items()}
    machine = Machine(program, bench.weights, caches)
    if bench.given_tokens is not None:
        machine.buffer("input", "tokens")[...] = bench.given_tokens
    with quiet():
        Launch(machine, bench.past, workers=1, seed=None).run()
    outputs = {
        source: machine.buffer("output", source)
        for source in bench.expected
        if source not in caches
    }
    return outputs | caches


Case = Callable[[Bench], None]
