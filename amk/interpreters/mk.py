"""The meaning of `mk`: stages run tile by tile, on numpy float32, bit for bit as emitted code.

`Machine` holds a program's memory; `launch` runs it at a past length. Tiles run in the claimed
order, or, under a seed, in any order that the events allow, spread over a number of workers, each
with its own prologue results. A static schedule fixes each worker's list. Streams move weights, so
they have no meaning here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np
from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type, i8, i64
from xdsl.ir import Operation, SSAValue

from amk.errors import AmkError
from amk.interpreters import numerics
from amk.interpreters.mk_order import Counters, Tile, tiles_of
from amk.interpreters.numerics_float import quiet
from amk.ir import mk
from amk.ir.expr import ExprsAttr, exprs
from amk.ir.lm import shape_of
from amk.ring import ring_slot

Array = np.ndarray


def round_to(values: Array, element: object) -> Array:
    """float32 values rounded to a storage dtype, still as float32 (whole numbers for i64)."""
    if element == i64:
        return values.astype(np.int64)
    if isinstance(element, BFloat16Type):
        return numerics.from_bf16_bits(numerics.to_bf16_bits(values))
    if isinstance(element, Float16Type):
        return numerics.from_f16_bits(numerics.to_f16_bits(values))
    if element == i8:
        return np.clip(np.rint(values), np.float32(-127), np.float32(127))
    return values


class Machine:
    """The buffers of one program.

    `weights` maps a weight's key to an array of its shape (float32 values of the storage dtype);
    `caches` maps a cache's name to a float32 array [1, Hkv, capacity, D], shared with the caller.
    Activations start as NaN, so that a read of what was never written shows."""

    def __init__(
        self,
        program: mk.ProgramOp,
        weights: Mapping[str, Array],
        caches: Mapping[str, Array],
    ):
        self.program = program
        arena = program.arena.value.data if program.arena is not None else 0
        self.arena = np.full(arena // 4, np.nan, np.float32)
        self.counters = Counters(program)
        self.memory: dict[mk.BufferOp, Array] = {}
        for buffer in program.buffers():
            self.memory[buffer] = self.allocate(buffer, weights, caches)

    def allocate(
        self, buffer: mk.BufferOp, weights: Mapping[str, Array], caches: Mapping[str, Array]
    ) -> Array:
        kind, source, shape = buffer.kind.data, buffer.source.data, buffer.type.get_shape()
        if kind == "weight":
            if source not in weights or tuple(weights[source].shape) != shape:
                raise AmkError(f"mk: weight {source!r} of shape {shape} was not given")
            return np.asarray(weights[source], np.float32)
        if kind == "cache":
            return caches[source]
        if buffer.type.element_type == i64:
            return np.full(shape, -1, np.int64)
        if buffer.offset is not None:
            if not isinstance(buffer.type.element_type, Float32Type):
                raise AmkError("mk: the arena holds f32")
            start = buffer.offset.value.data // 4
            return self.arena[start : start + int(np.prod(shape))].reshape(shape)
        return np.full(shape, np.nan, np.float32)

    def buffer(self, kind: str, source: str) -> Array:
        """The memory of a buffer, by kind and source name."""
        for op, memory in self.memory.items():
            if op.kind.data == kind and op.source.data == source:
                return memory
        raise AmkError(f"mk: the program has no {kind} buffer {source!r}")

    def launch(self, tokens: Array, past: int, workers: int = 1, seed: int | None = None) -> Array:
        """Runs the program for `tokens` (i64 [S]) at past length `past`; returns the logits."""
        self.buffer("input", "tokens")[0, :] = tokens
        with quiet():
            Launch(self, past, workers, seed).run()
        return self.buffer("output", "logits")


class Launch:
    """One run of the program: which tiles are done, and what each worker's prologues gave."""

    def __init__(self, machine: Machine, past: int, workers: int, seed: int | None):
        self.machine = machine
        self.past = past
        self.random = None if seed is None else random.Random(seed)
        self.workers = machine.program.static_workers or workers
        self.static = machine.program.static_workers is not None
        self.kept: dict[tuple[int, mk.StageOp], list[Array]] = {}
        self.lists = [tiles_of(stage, past) for stage in machine.program.stages()]
        self.counters = machine.counters
        self.counters.begin(past, [tile for tiles in self.lists for tile in tiles])

    def run(self) -> None:
        if self.random is not None:
            self.run_shuffled(self.random)
            return
        if self.static:
            self.run_lists()
            return
        for tile in (tile for tiles in self.lists for tile in tiles):
            if not self.ready(tile):
                raise AmkError(f"mk: deadlock: {tile.stage.sym_name.data!r} waits for later tiles")
            self.run_tile(0, tile)

    def run_shuffled(self, rng: random.Random) -> None:
        """Repeatedly runs a tile whose events are complete: the next of any worker's list, or,
        when tiles are claimed, any tile on any worker."""
        left = self.queues() if self.static else [list(tiles) for tiles in self.lists]
        while any(left):
            ready = [
                (queue, i)
                for queue in left
                if queue and self.counters.stage_ready(queue[0].stage)
                for i in range(1 if self.static else len(queue))
                if self.counters.tile_ready(queue[i])
            ]
            if not ready:
                raise AmkError("mk: deadlock: every unfinished tile waits for another")
            queue, i = rng.choice(ready)
            tile = queue.pop(i)
            worker = tile.worker(self.workers) if self.static else rng.randrange(self.workers)
            self.run_tile(worker, tile)

    def run_lists(self) -> None:
        """Each worker in turn as far as its list goes: a tile may wait for a later one of its
        stage, which another worker runs."""
        left = [list(reversed(queue)) for queue in self.queues()]
        moved = True
        while moved:
            moved = False
            for worker, queue in enumerate(left):
                while queue and self.ready(queue[-1]):
                    self.run_tile(worker, queue.pop())
                    moved = True
        if stuck := next((queue[-1] for queue in left if queue), None):
            raise AmkError(f"mk: deadlock: {stuck.stage.sym_name.data!r} waits for ever")

    def ready(self, tile: Tile) -> bool:
        return self.counters.stage_ready(tile.stage) and self.counters.tile_ready(tile)

    def queues(self) -> list[list[Tile]]:
        """The list of each worker of a static schedule."""
        queues: list[list[Tile]] = [[] for _ in range(self.workers)]
        for tile in (tile for tiles in self.lists for tile in tiles):
            queues[tile.worker(self.workers)].append(tile)
        return queues

    def run_tile(self, worker: int, tile: Tile) -> None:
        key = (worker, tile.stage)
        if key not in self.kept:
            scope = Scope(self.machine, {"P": self.past}, {})
            last = scope.run(tile.stage.prologue.block)
            assert isinstance(last, mk.YieldOp)
            self.kept[key] = [scope.values[v] for v in last.arguments]
        values = dict(zip(tile.stage.parts.block.args, self.kept[key], strict=True))
        Scope(self.machine, tile.env, values).run(tile.part.body.block)  # type: ignore[arg-type]
        self.counters.finish(tile)


class Scope:
    """The values of one prologue or tile, and the symbols of its index expressions."""

    def __init__(self, machine: Machine, env: dict[str, int], values: dict[SSAValue, Array]):
        self.machine = machine
        self.env = env
        self.values = values

    def run(self, block) -> Operation | None:  # type: ignore[no-untyped-def]
        for op in block.ops:
            if isinstance(op, mk.YieldOp):
                return op
            if isinstance(op, mk.WaitOp | mk.SignalOp):
                continue  # the launch orders tiles
            RULES[type(op)](self, op)
        return None

    def memory(self, value: SSAValue) -> Array:
        return self.machine.memory[mk.buffer_of(value)]

    def at(self, offsets: ExprsAttr) -> list[int]:
        return [e.evaluate(self.env) for e in offsets]

    def box(self, buffer: SSAValue, offsets: ExprsAttr, shape: tuple[int, ...]) -> Array:
        """A view of a box; a box that leaves its buffer is an error, never a wrap."""
        memory, at = self.memory(buffer), self.at(offsets)
        for extent, start, size in zip(memory.shape, at, shape, strict=True):
            if not 0 <= start <= extent - size:
                raise AmkError(f"mk: box {shape} at {at} leaves buffer {memory.shape}")
        return memory[tuple(slice(a, a + n) for a, n in zip(at, shape, strict=True))]


def load(s: Scope, op: mk.LoadOp) -> None:
    s.values[op.result] = s.box(op.buffer, op.offsets, shape_of(op.result)).copy()


def store(s: Scope, op: mk.StoreOp) -> None:
    value = s.values[op.value]
    element = mk.buffer_of(op.buffer).type.element_type
    if ring := mk.buffer_of(op.buffer).ring_rows:
        zero, head, first, depth = s.at(op.offsets)
        sinks = mk.buffer_of(op.buffer).sink_rows
        for r in range(value.shape[2]):
            at = exprs(zero, head, int(ring_slot(first + r, ring, sinks)), depth)
            s.box(op.buffer, at, (*value.shape[:2], 1, value.shape[3]))[...] = round_to(
                value[:, :, r : r + 1], element
            )
        return
    s.box(op.buffer, op.offsets, value.shape)[...] = round_to(value, element)


def gather(s: Scope, op: mk.GatherOp) -> None:
    (column,) = s.at(op.offsets)
    table, rows = s.memory(op.table), s.memory(op.indices)[0]
    if (rows < 0).any() or (rows >= table.shape[0]).any():
        raise AmkError(f"mk: an index of {rows.tolist()} leaves the table {table.shape}")
    s.values[op.result] = table[rows, column : column + shape_of(op.result)[1]].copy()


def matmul(s: Scope, op: mk.MatmulOp) -> None:
    x = s.values[op.input]
    w = s.box(op.weight, op.offsets, (shape_of(op.result)[1], x.shape[1]))
    order = op.reduction
    s.values[op.result] = numerics.matmul(x, w, order.lanes.data, order.chains.data)


def unary(s: Scope, op: mk.UnaryOp) -> None:
    s.values[op.result] = UNARY[op.function.data](s.values[op.input])


def binary(s: Scope, op: mk.BinaryOp) -> None:
    s.values[op.result] = BINARY[op.function.data](s.values[op.lhs], s.values[op.rhs])


def scalar(s: Scope, op: mk.ScalarOp) -> None:
    x, value = s.values[op.input], np.asarray(op.value.value.data, np.float32)
    function = BINARY[op.function.data]
    s.values[op.result] = function(value, x) if op.reverse else function(x, value)


def reduce(s: Scope, op: mk.ReduceOp) -> None:
    result = REDUCE[op.function.data](s.values[op.input], op.reduction.lanes.data)
    s.values[op.result] = np.asarray(result, np.float32)[..., None]


def reshape(s: Scope, op: mk.ReshapeOp) -> None:
    s.values[op.result] = s.values[op.input].reshape(shape_of(op.result))


def transpose(s: Scope, op: mk.TransposeOp) -> None:
    perm = mk.numbers(op.permutation)
    s.values[op.result] = np.ascontiguousarray(s.values[op.input].transpose(perm))


def slice_(s: Scope, op: mk.SliceOp) -> None:
    x, sizes, at = s.values[op.input], shape_of(op.result), s.at(op.offsets)
    index = []
    for extent, start, size, step in zip(x.shape, at, sizes, op.strides(), strict=True):
        if not 0 <= start <= extent - ((size - 1) * step + 1):
            raise AmkError(f"mk: slice {sizes} at {at} leaves {x.shape}")
        index.append(slice(start, start + (size - 1) * step + 1, step))
    s.values[op.result] = x[tuple(index)]


def concat(s: Scope, op: mk.ConcatOp) -> None:
    s.values[op.result] = np.concatenate([s.values[v] for v in op.inputs], op.dim.value.data)


def broadcast(s: Scope, op: mk.BroadcastOp) -> None:
    s.values[op.result] = np.broadcast_to(s.values[op.input], shape_of(op.result))


def attention(s: Scope, op: mk.AttentionOp) -> None:
    head, index = s.at(op.at)
    keys, values = s.memory(op.keys)[0, head], s.memory(op.values)[0, head]
    if op.key_scales is not None and op.value_scales is not None:
        keys = keys * s.memory(op.key_scales)[0, head]
        values = values * s.memory(op.value_scales)[0, head]
    past, chunk, limits = s.env["P"], op.chunk.value.data, op.limits
    if ring := mk.buffer_of(op.keys).ring_rows:
        # The chunk's rows in order of position; those out of sight are some other rows.
        begin, sinks = index * chunk, mk.buffer_of(op.keys).sink_rows
        slots = ring_slot(np.arange(begin, begin + chunk), ring, sinks)
        keys, values = keys[slots], values[slots]
        past, index, limits = past - begin, 0, (limits[0] - begin, limits[1] - begin)
    found = numerics.attention_partial(
        s.values[op.query],
        keys,
        values,
        past,
        index,
        chunk,
        0 if op.window is None else op.window.value.data,
        op.scale.value.data,
        0.0 if op.softcap is None else op.softcap.value.data,
        tuple(
            lanes if order is None else order.lanes.data
            for order, lanes in ((op.dot, 16), (op.total, 16), (op.mix, 1))
        ),
        limits,
    )
    for result, value in zip(op.results, found, strict=True):
        s.values[result] = value


def combine(s: Scope, op: mk.CombineOp) -> None:
    first, end = s.at(op.range)
    outputs, maxima, sums = (s.memory(v)[first:end] for v in (op.outputs, op.maxima, op.sums))
    sinks = None if op.sinks is None else s.values[op.sinks]
    s.values[op.result] = numerics.attention_combine(outputs, maxima, sums, sinks)


def argmax(s: Scope, op: mk.ArgmaxOp) -> None:
    x, (first,) = s.values[op.input], s.at(op.first)
    at = x.argmax(-1, keepdims=True)
    s.values[op.maximum] = np.take_along_axis(x, at, -1)
    s.values[op.position] = (at + first).astype(np.float32)


def pick(s: Scope, op: mk.PickOp) -> None:
    at = s.values[op.keys].argmax(-1, keepdims=True)
    s.values[op.result] = np.take_along_axis(s.values[op.values], at, -1)


def relu(x: Array) -> Array:
    return np.where(x <= 0, np.float32(0), x)


def maximum(a: Array, b: Array) -> Array:
    """`b` where it is larger or NaN, else `a`: which of two zeros comes out is defined."""
    return np.where((b > a) | np.isnan(b), b, a)


def minimum(a: Array, b: Array) -> Array:
    return -maximum(-a, -b)


UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": numerics.exp,
    "sqrt": np.sqrt,
    "rsqrt": numerics.rsqrt,
    "tanh": numerics.tanh,
    "sigmoid": numerics.sigmoid,
    "silu": numerics.silu,
    "relu": relu,
    "erf": numerics.erf,
    "gelu": numerics.gelu_erf,
    "gelu_tanh": numerics.gelu_tanh,
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": maximum,
    "min": minimum,
}
REDUCE: dict[str, Callable[[Array, int], Array]] = {
    "sum": numerics.reduce_sum,
    "mean": numerics.reduce_mean,
    "max": numerics.reduce_max,
}
RULES: dict[type[Operation], Callable] = {
    mk.LoadOp: load,
    mk.StoreOp: store,
    mk.GatherOp: gather,
    mk.MatmulOp: matmul,
    mk.UnaryOp: unary,
    mk.BinaryOp: binary,
    mk.ScalarOp: scalar,
    mk.ReduceOp: reduce,
    mk.ReshapeOp: reshape,
    mk.TransposeOp: transpose,
    mk.SliceOp: slice_,
    mk.ConcatOp: concat,
    mk.BroadcastOp: broadcast,
    mk.AttentionOp: attention,
    mk.CombineOp: combine,
    mk.ArgmaxOp: argmax,
    mk.PickOp: pick,
}
