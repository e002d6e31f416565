"""Shadow memory: what a launch of an `mk` program did to each cell, seen by clocks.

It knows how ops touch memory and nothing of why a program should be right. Each worker has a
vector clock; an access that is not after an earlier conflicting one by its clock is a race, in
whatever order the two really ran. Cells also remember which buffer wrote them last, so that a read
of bytes nobody wrote, or that another buffer has overwritten, shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import gcd, prod

import numpy as np
from xdsl.ir import Operation, SSAValue

from amk.ir import mk
from amk.ir.lm import shape_of


@dataclass(frozen=True)
class Fault:
    """Something no right program does, whatever the interleaving: `kind` and what happened."""

    kind: str
    what: str


@dataclass(eq=False)
class Space:
    """Cells that buffers live in: the arena, or one buffer's own."""

    name: str
    writer: np.ndarray
    written_at: np.ndarray
    holder: np.ndarray
    read_at: np.ndarray

    @staticmethod
    def of(name: str, cells: int, workers: int) -> Space:
        return Space(
            name,
            np.zeros(cells, np.int64),
            np.zeros(cells, np.int64),
            np.full(cells, -1, np.int64),
            np.zeros((workers, cells), np.int64),
        )


@dataclass(eq=False)
class Place:
    """Where a buffer's elements are: `cells[index]` are those of the element at `index`."""

    number: int
    op: mk.BufferOp
    space: Space
    cells: np.ndarray
    given: bool
    done: np.ndarray
    """Which elements this launch wrote."""
    name: str
    kind: str
    axis: int | None
    """That counts the rows of a cache."""
    ring: int = 0
    """Rows that a ring has memory for, of those that positions name."""
    sinks: int = 0
    """Those of them that stay."""

    def slot(self, row: int) -> int:
        """As `amk.ring.ring_slot`, of a single row."""
        if not self.ring or row < self.sinks:
            return row
        return self.sinks + (row - self.sinks) % (self.ring - self.sinks)


class Shadow:
    """Shadow memory of one launch at `past` with `workers` workers. Faults pile up in `faults`.
    In a launch of several `steps` the output `next` is the memory of the input `tokens`, and
    `next_step` begins another step with what workers know of each other left as it is."""

    def __init__(self, program: mk.ProgramOp, past: int, workers: int, steps: int = 1):
        self.program = program
        self.past = past
        self.tokens = program.tokens.value.data
        self.workers = workers
        self.steps = steps
        self.clock = np.zeros((workers, workers), np.int64)
        self.faults: list[Fault] = []
        self.places: dict[SSAValue, Place] = {}
        arena_bytes = 0 if program.arena is None else program.arena.value.data
        placed = [b for b in program.buffers() if b.offset is not None]
        self.unit = 4
        for b in placed:
            self.unit = gcd(self.unit, gcd(offset_of(b), b.type.element_bytes()))
        self.arena = Space.of("arena", arena_bytes // self.unit, workers)
        named: dict[tuple[str, str], Place] = {}
        for b in program.buffers():
            key = (b.kind.data, b.source.data)
            if b.kind.data in ("cache", "input", "output") and key in named:
                self.places[b.result] = named[key]
                continue
            named[key] = self.places[b.result] = self.place(len(self.places), b)
        self.fed = named.get(("input", "tokens")) if steps > 1 else None
        fed_by = named.get(("output", "next"))
        if self.fed is not None and fed_by is not None:
            fed_by.space, fed_by.cells = self.fed.space, self.fed.cells

    def place(self, number: int, op: mk.BufferOp) -> Place:
        rows = self.past + self.tokens * self.steps
        shape_open = op.type.get_shape()
        shape = tuple(rows if d == -1 else d for d in shape_open)
        memory = tuple(
            op.ring_rows or n if d == -1 else n
            for n, d in zip(shape, op.type.get_shape(), strict=True)
        )
        given = op.kind.data in ("weight", "input", "constant")
        space, start, each = self.arena, 0, 1
        if op.offset is None:
            space = Space.of(op.source.data, prod(memory), self.workers)
        else:
            each = op.type.element_bytes() // self.unit
            start = offset_of(op) // self.unit
        numbers = start + np.arange(prod(memory) * each).reshape(*memory, each)
        if numbers.size and numbers.max() >= len(space.writer):
            self.fault("bounds", f"buffer {op.source.data!r} leaves the arena")
            numbers = numbers % max(len(space.writer), 1)
        place = Place(
            number, op, space, numbers, given, np.zeros(shape, bool),
            op.result.name_hint or op.source.data, op.kind.data,
            shape_open.index(-1) if -1 in shape_open else None, op.ring_rows, op.sink_rows,
        )  # fmt: skip
        if given:
            space.holder[...] = number
        if op.kind.data == "cache":
            self.fill_rows(place, op.type.get_shape().index(-1))
        return place

    def fill_rows(self, place: Place, axis: int) -> None:
        """The rows that earlier launches left; a ring holds the last of them only."""
        for row in range(self.past):
            if place.ring and place.sinks <= row < self.past - (place.ring - place.sinks):
                continue
            cells = np.take(place.cells, place.slot(row), axis).ravel()
            place.space.holder[cells] = tag(place, row)

    def fault(self, kind: str, what: str) -> None:
        if len(self.faults) < 64:
            self.faults.append(Fault(kind, what))

    # ---- time ----

    def tick(self, worker: int) -> None:
        self.clock[worker, worker] += 1

    def release(self, worker: int) -> np.ndarray:
        return self.clock[worker].copy()

    def acquire(self, worker: int, released: np.ndarray) -> None:
        np.maximum(self.clock[worker], released, out=self.clock[worker])

    # ---- accesses ----

    def cells_of(
        self, value: SSAValue, low: list[int], high: list[int], what: str
    ) -> tuple[Place, np.ndarray, np.ndarray, tuple[slice, ...]] | None:
        """(place, cells, what each should hold, elements); None when there is nothing to touch."""
        place = self.places[value]
        if any(a >= b for a, b in zip(low, high, strict=True)):
            return None
        limits = self.limits(place)
        for extent, a, b in zip(limits, low, high, strict=True):
            if a < 0 or b > extent:
                self.fault("bounds", f"{what} {place.name}{low}..{high} of {limits}")
                return None
        at = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
        if place.kind != "cache":
            cells = place.cells[at].ravel()
            return place, cells, np.full(len(cells), place.number), at
        axis = place.axis
        assert axis is not None
        cells, tags = [], []
        for row in range(low[axis], high[axis]):
            slot = place.slot(row)
            inner = (*at[:axis], slice(slot, slot + 1), *at[axis + 1 :])
            cells.append(place.cells[inner].ravel())
            tags.append(np.full(len(cells[-1]), tag(place, row)))
        return place, np.concatenate(cells), np.concatenate(tags), at

    def limits(self, place: Place) -> tuple[int, ...]:
        """How far each axis of a buffer reaches in this step."""
        shape, axis = place.done.shape, place.axis
        if axis is None:
            return shape
        return (*shape[:axis], self.past + self.tokens, *shape[axis + 1 :])

    def read(self, worker: int, value: SSAValue, low: list[int], high: list[int]) -> None:
        found = self.cells_of(value, low, high, "read")
        if found is None:
            return
        place, cells, tags, _ = found
        space = place.space
        wrong = space.holder[cells] != tags
        if wrong.any():
            kind = "unwritten" if int(space.holder[cells][wrong][0]) < 0 else "clobbered"
            self.fault(kind, f"read of {place.name}{low}..{high} at P = {self.past}")
        if place.given and place is not self.fed and not place.done.any():
            return
        late = space.written_at[cells] > self.clock[worker][space.writer[cells]]
        if late.any():
            self.fault("race", f"read of {place.name}{low}..{high} at P = {self.past}")
        space.read_at[worker, cells] = self.clock[worker, worker]

    def write(self, worker: int, value: SSAValue, low: list[int], high: list[int]) -> None:
        found = self.cells_of(value, low, high, "write")
        if found is None:
            return
        place, cells, tags, at = found
        space = place.space
        if place.kind not in mk.WRITABLE:
            self.fault("read-only", f"write of {place.name}")
        if place.done[at].any():
            self.fault("double write", f"write of {place.name}{low}..{high} at P = {self.past}")
        own = self.clock[worker]
        late = (space.written_at[cells] > own[space.writer[cells]]).any()
        late |= (space.read_at[:, cells] > own[:, None]).any()
        if late:
            self.fault("race", f"write of {place.name}{low}..{high} at P = {self.past}")
        place.done[at] = True
        space.writer[cells] = worker
        space.written_at[cells] = own[worker]
        space.holder[cells] = tags

    def finish(self) -> None:
        """What a launch owes: outputs whole, rows P … P + S − 1 of each cache and no other."""
        for place in {id(p): p for p in self.places.values()}.values():
            if place.kind == "output" and not place.done.all():
                self.fault("output", f"{place.name} is not whole at P = {self.past}")
            if place.kind == "cache":
                axis = place.op.type.get_shape().index(-1)
                rows = np.moveaxis(place.done, axis, 0)
                end = self.past + self.tokens
                if not rows[self.past : end].all() or rows[: self.past].any() or rows[end:].any():
                    self.fault("rows", f"{place.name} at P = {self.past}")

    def next_step(self) -> None:
        """Begins the next step: what the last one computed no longer counts as written."""
        self.past += self.tokens
        for place in {id(p): p for p in self.places.values()}.values():
            place.done[...] = False
            if place.kind in ("activation", "output"):
                place.space.holder[...] = -1
        if self.fed is not None:
            self.fed.space.holder[...] = self.fed.number


Touch = tuple[bool, SSAValue, list[int], list[int]]
"""(is it a write, buffer, first element and end on each axis)"""


class Recorder:
    """Writes down what ops do to memory."""

    def __init__(self) -> None:
        self.found: list[Touch] = []

    def read(self, value: SSAValue, low: list[int], high: list[int]) -> None:
        self.found.append((False, value, low, high))

    def write(self, value: SSAValue, low: list[int], high: list[int]) -> None:
        self.found.append((True, value, low, high))


def touches(ops: Iterable[Operation], env: dict[str, int]) -> list[Touch]:
    """What the ops of a body do to memory, in order."""
    recorder = Recorder()
    for op in ops:
        rule = RULES.get(type(op))
        if rule is not None:
            rule(recorder, op, env)
        elif any(isinstance(v.type, mk.BufferType) for v in op.operands):
            raise KeyError(op.name)
    return recorder.found


def tag(place: Place, row: int) -> int:
    """What a cell of a cache holds: the row of one position."""
    return place.number + (row + 1) * 1_000_000


def offset_of(op: mk.BufferOp) -> int:
    assert op.offset is not None
    return op.offset.value.data


def load(s: Recorder, op: mk.LoadOp, env: dict[str, int]) -> None:
    at = [e.evaluate(env) for e in op.offsets]
    s.read(op.buffer, at, [a + n for a, n in zip(at, shape_of(op.result), strict=True)])


def store(s: Recorder, op: mk.StoreOp, env: dict[str, int]) -> None:
    at = [e.evaluate(env) for e in op.offsets]
    s.write(op.buffer, at, [a + n for a, n in zip(at, shape_of(op.value), strict=True)])


def gather(s: Recorder, op: mk.GatherOp, env: dict[str, int]) -> None:
    column = op.offsets.data[0].evaluate(env)
    rows, width = mk.buffer_of(op.table).type.get_shape()[0], shape_of(op.result)[1]
    s.read(op.indices, [0, 0], list(mk.buffer_of(op.indices).type.get_shape()))
    s.read(op.table, [0, column], [rows, column + width])


def matmul(s: Recorder, op: mk.MatmulOp, env: dict[str, int]) -> None:
    at = [e.evaluate(env) for e in op.offsets]
    size = (shape_of(op.result)[1], shape_of(op.input)[1])
    s.read(op.weight, at, [a + n for a, n in zip(at, size, strict=True)])


def attention(s: Recorder, op: mk.AttentionOp, env: dict[str, int]) -> None:
    """Row by row of the query, as the arithmetic does."""
    head, index = (e.evaluate(env) for e in op.at)
    chunk = op.chunk.value.data
    window = 0 if op.window is None else op.window.value.data
    for row in range(shape_of(op.query)[0]):
        position = env["P"] + row
        begin = index * chunk
        first = max(begin, position - window + 1) if window > 0 else begin
        first, end = max(first, op.limits[0]), min(begin + chunk, position + 1, op.limits[1])
        for value in (v for v in op.operands if isinstance(v.type, mk.BufferType)):
            depth = mk.buffer_of(value).type.get_shape()[3]
            s.read(value, [0, head, first, 0], [1, head + 1, end, depth])


def combine(s: Recorder, op: mk.CombineOp, env: dict[str, int]) -> None:
    first, end = (e.evaluate(env) for e in op.range)
    for value in (op.outputs, op.maxima, op.sums):
        rest = list(mk.buffer_of(value).type.get_shape()[1:])
        s.read(value, [first, *[0] * len(rest)], [end, *rest])


RULES: dict[type[Operation], Callable[..., None]] = {
    mk.LoadOp: load,
    mk.StoreOp: store,
    mk.GatherOp: gather,
    mk.MatmulOp: matmul,
    mk.AttentionOp: attention,
    mk.CombineOp: combine,
}
