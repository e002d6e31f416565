"""An `mk` program as plain data: stages, parts, the boxes they touch, and the events they use.

A box is a half-open range [lo, hi) on each axis, in index expressions over P and the part's tile
coordinates; it is empty when any hi ≤ lo. Everything the rules ask about a program is here, so no
rule knows an op of a part's body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod

from xdsl.ir import Operation, SSAValue

from amk.errors import AmkError
from amk.ir import mk
from amk.ir.expr import Const, Expr, P, maximum, minimum, wrap
from amk.ir.lm import shape_of

Range = tuple[Expr, Expr]
Box = tuple[Range, ...]
ZERO = Const(0)


@dataclass(eq=False)
class Buffer:
    """Memory of its own, or a place in the arena. `shape` holds −1 on a cache's open axis, whose
    rows are named by position; a ring has memory for `ring` of them, else that is 0."""

    op: mk.BufferOp
    kind: str
    name: str
    shape: tuple[int, ...]
    element_bytes: int
    nbytes: int
    """Of the buffer; 0 for a cache, whose capacity is known at run time."""
    offset: int | None
    ring: int
    sinks: int

    @property
    def rows_axis(self) -> int | None:
        """The open axis of a cache."""
        return self.shape.index(-1) if -1 in self.shape else None

    def whole(self, rows: Expr | None = None) -> Box:
        return tuple((ZERO, Const(d) if d != -1 else rows or ZERO) for d in self.shape)


@dataclass(eq=False, slots=True)
class Access:
    """One op of a body touches one box of a buffer; `place` orders the accesses of a tile."""

    buffer: Buffer
    write: bool
    box: Box
    op: Operation
    place: int
    part: Part
    prologue: bool


@dataclass(frozen=True, slots=True)
class Wait:
    event: Event
    first: Expr
    count: Expr
    op: Operation


@dataclass(frozen=True, slots=True)
class Signal:
    event: Event
    group: Expr
    op: Operation


@dataclass(eq=False)
class Event:
    """Counters; `signallers` are the parts that count towards them, each by its signal."""

    op: mk.EventOp
    name: str
    groups: Expr
    threshold: Expr | None
    monotonic: bool
    signallers: list[tuple[Part, Signal]] = field(default_factory=list)
    waiters: list[Stage | Part] = field(default_factory=list)


@dataclass(eq=False)
class Part:
    """A grid of tiles; `number` counts parts through the program."""

    number: int
    stage: Stage
    index: int
    grid: tuple[Expr, ...]
    op: mk.PartOp
    waits: list[Wait] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)


@dataclass(eq=False)
class Stage:
    number: int
    name: str
    op: mk.StageOp
    shift: int
    waits: list[Event] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    prologue: list[Access] = field(default_factory=list)
    """What every worker that runs a tile of the stage reads first."""


@dataclass(eq=False)
class Streamed:
    """A matmul whose weight rows pass through a ring: `rows` of `row_bytes` bytes a tile."""

    stream: mk.StreamOp
    buffer: Buffer
    rows: int
    row_bytes: int
    part: Part
    op: mk.MatmulOp


@dataclass(eq=False)
class Program:
    """`positions` past lengths are possible: 0 … max_seq − tokens."""

    op: mk.ProgramOp
    name: str
    tokens: int
    max_seq: int
    arena: int
    workers: int | None
    buffers: list[Buffer]
    events: list[Event]
    stages: list[Stage]
    parts: list[Part]
    streamed: list[Streamed]
    reductions: list[Operation]

    @property
    def positions(self) -> int:
        return self.max_seq - self.tokens + 1

    def accesses(self) -> Iterator[Access]:
        for stage in self.stages:
            yield from stage.prologue
            for part in stage.parts:
                yield from part.accesses


def read_program(op: mk.ProgramOp) -> Program:
    """The facts of a program that passed its verifier."""
    return Reader(op).read()


class Reader:
    """Walks the ops of a program once."""

    def __init__(self, op: mk.ProgramOp):
        self.op = op
        self.tokens = op.tokens.value.data
        self.buffers: dict[SSAValue, Buffer] = {}
        self.events: dict[SSAValue, Event] = {}
        self.parts: list[Part] = []
        self.streamed: list[Streamed] = []
        self.reductions: list[Operation] = []

    def read(self) -> Program:
        op = self.op
        shared: dict[tuple[str, str], Buffer] = {}
        for b in op.buffers():
            buffer = read_buffer(b)
            # Caches, inputs and outputs are bound by name: two of one name are one memory.
            if buffer.kind in ("cache", "input", "output"):
                buffer = shared.setdefault((buffer.kind, b.source.data), buffer)
            self.buffers[b.result] = buffer
        for i, e in enumerate(op.events()):
            threshold = None if e.threshold is None else e.threshold.data[0]
            name = e.result.name_hint or f"event{i}"
            monotonic = e.counter is not None and e.counter.data == "monotonic"
            self.events[e.result] = Event(e, name, e.group_count, threshold, monotonic)
        stages = [self.stage(i, s) for i, s in enumerate(op.stages())]
        return Program(
            op,
            op.sym_name.data,
            self.tokens,
            op.max_seq.value.data,
            0 if op.arena is None else op.arena.value.data,
            op.static_workers,
            list(dict.fromkeys(self.buffers.values())),
            list(self.events.values()),
            stages,
            self.parts,
            self.streamed,
            self.reductions,
        )

    def stage(self, number: int, op: mk.StageOp) -> Stage:
        shift = 0 if op.shift is None else op.shift.value.data
        stage = Stage(number, op.sym_name.data, op, shift)
        for v in op.waits:
            event = self.events[v]
            stage.waits.append(event)
            event.waiters.append(stage)
        for i, part in enumerate(op.part_ops()):
            stage.parts.append(self.part(stage, i, part))
        # A prologue reads the same whatever tile it stands before; any part may name it.
        if stage.parts:
            at = stage.parts[0]
            for place, inner in enumerate(op.prologue.block.ops):
                stage.prologue += self.accesses(inner, place, at, True)
        return stage

    def part(self, stage: Stage, index: int, op: mk.PartOp) -> Part:
        part = Part(len(self.parts), stage, index, op.grid.data, op)
        self.parts.append(part)
        for v in stage.op.signals:
            self.signal(part, Signal(self.events[v], ZERO, stage.op))
        for place, inner in enumerate(op.body.block.ops):
            if isinstance(inner, mk.WaitOp):
                event = self.events[inner.event]
                first, count = inner.groups.data
                part.waits.append(Wait(event, first, count, inner))
                event.waiters.append(part)
            elif isinstance(inner, mk.SignalOp):
                event = self.events[inner.event]
                self.signal(part, Signal(event, inner.group.data[0], inner))
            else:
                part.accesses += self.accesses(inner, place, part, False)
        return part

    def signal(self, part: Part, signal: Signal) -> None:
        part.signals.append(signal)
        signal.event.signallers.append((part, signal))

    def accesses(self, op: Operation, place: int, part: Part, prologue: bool) -> list[Access]:
        if isinstance(op, REDUCTIONS):
            self.reductions.append(op)
        touched = [v for v in op.operands if isinstance(v.type, mk.BufferType)]
        if not touched:
            return []
        rule = RULES.get(type(op))
        found = [] if rule is None else list(rule(self, op, part))
        # A proof that overlooks an operand would be none.
        if not set(touched) <= {value for value, _, _ in found}:
            raise AmkError(f"verify-mk: {op.name} touches memory, and no rule here says where")
        return [
            Access(self.buffers[value], write, box, op, place, part, prologue)
            for value, write, box in found
        ]


def read_buffer(op: mk.BufferOp) -> Buffer:
    offset = None if op.offset is None else op.offset.value.data
    name = op.result.name_hint or op.source.data
    shape, element = op.type.get_shape(), op.type.element_bytes()
    nbytes = 0 if -1 in shape else prod(shape) * element
    return Buffer(
        op, op.kind.data, name, shape, element, nbytes, offset, op.ring_rows, op.sink_rows
    )


REDUCTIONS = (mk.MatmulOp, mk.ReduceOp, mk.AttentionOp)
Found = Iterator[tuple[SSAValue, bool, Box]]


def box_at(offsets: tuple[Expr, ...], sizes: tuple[int, ...]) -> Box:
    return tuple((at, at + size) for at, size in zip(offsets, sizes, strict=True))


def load(r: Reader, op: mk.LoadOp, part: Part) -> Found:
    yield op.buffer, False, box_at(op.offsets.data, shape_of(op.result))


def store(r: Reader, op: mk.StoreOp, part: Part) -> Found:
    yield op.buffer, True, box_at(op.offsets.data, shape_of(op.value))


def gather(r: Reader, op: mk.GatherOp, part: Part) -> Found:
    """Any row of the table may be chosen."""
    column = op.offsets.data[0]
    yield op.indices, False, r.buffers[op.indices].whole()
    rows = r.buffers[op.table].shape[0]
    yield op.table, False, ((ZERO, Const(rows)), (column, column + shape_of(op.result)[1]))


def matmul(r: Reader, op: mk.MatmulOp, part: Part) -> Found:
    rows, depth = shape_of(op.result)[1], shape_of(op.input)[1]
    yield op.weight, False, box_at(op.offsets.data, (rows, depth))
    if op.stream is not None:
        stream, buffer = op.stream.owner, r.buffers[op.weight]
        assert isinstance(stream, mk.StreamOp)
        row_bytes = depth * buffer.element_bytes
        r.streamed.append(Streamed(stream, buffer, rows, row_bytes, part, op))


def attention(r: Reader, op: mk.AttentionOp, part: Part) -> Found:
    """The rows that any of the S queries sees in one chunk: those of the windows [P + s − w + 1,
    P + s] joined, which follow each other without a gap."""
    head, index = op.at.data
    chunk = op.chunk.value.data
    low: Expr = maximum(index * chunk, ZERO)
    if op.window is not None and op.window.value.data > 0:
        low = maximum(low, P - (op.window.value.data - 1))
    high = minimum((index + 1) * chunk, P + r.tokens)
    if op.low is not None:
        low = maximum(low, op.low.value.data)
    if op.high is not None:
        high = minimum(high, op.high.value.data)
    for value in caches_of(op):
        depth = r.buffers[value].shape[3]
        yield value, False, ((ZERO, wrap(1)), (head, head + 1), (low, high), (ZERO, wrap(depth)))
    for value in (op.key_scales, op.value_scales):
        if value is not None:
            yield value, False, ((ZERO, wrap(1)), (head, head + 1), (low, high), (ZERO, wrap(1)))


def caches_of(op: mk.AttentionOp) -> list[SSAValue]:
    """Keys, values, and the scales of either: all have a row a position."""
    return [v for v in op.operands if isinstance(v.type, mk.BufferType)]


def combine(r: Reader, op: mk.CombineOp, part: Part) -> Found:
    first, end = op.range.data
    for value in (op.outputs, op.maxima, op.sums):
        yield value, False, ((first, end), *r.buffers[value].whole()[1:])


RULES: dict[type[Operation], Callable[..., Found]] = {
    mk.LoadOp: load,
    mk.StoreOp: store,
    mk.GatherOp: gather,
    mk.MatmulOp: matmul,
    mk.AttentionOp: attention,
    mk.CombineOp: combine,
}
