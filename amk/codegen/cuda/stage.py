"""One `mk.stage` as device functions: what compute warps do, and what the streaming warp feeds.

A tile belongs to a whole block. Loops over elements go thread by thread; what one thread writes and
another reads lies in shared memory with a barrier between, placed where the first such read is
emitted. Buffers are reached as b0, b1, … (operand k of the stage), so that stages that differ in
their buffers alone share their functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from xdsl.ir import Block, SSAValue

from amk.codegen.cuda.index import Ranges
from amk.codegen.cuda.values import Elements, Held, dtype_of
from amk.errors import AmkError
from amk.ir import mk
from amk.ir.expr import Const, Expr, Sym
from amk.ir.lm import shape_of

ELEMENT = Sym("i")
COMPUTE_THREADS = 256
LINE = 4  # floats; what is read 16 bytes at a time starts at 16 bytes


@dataclass(frozen=True)
class Machine:
    """What of a configuration the text of a stage depends on."""

    workers: int
    tokens: int
    max_seq: int
    kept_limit: int
    """Bytes of shared memory for what prologues keep; the rest goes to global memory."""
    slots: int = 0
    slot_bytes: int = 0
    rows: int = 2
    """Rows of a matrix that a warp multiplies at a time."""
    mma: frozenset[str] = frozenset()
    """Storage dtypes whose chunks of sixteen tokens use matrix instructions."""


@dataclass
class Functions:
    """The text of a stage, and the memory it wants."""

    compute: str
    feed: str
    kept_bytes: int
    area_bytes: int
    scratch_bytes: int


class StageEmitter:
    """Text of one stage. `operands` lists its buffers, in the order of their first use."""

    def __init__(self, stage: mk.StageOp, machine: Machine, raises: bool = False):
        self.stage = stage
        self.raises = raises or len(stage.signals) > 0
        """Does every finished tile raise the counter of the stage's row?"""
        self.machine = machine
        self.operands: list[mk.BufferOp] = []
        self.events: list[SSAValue] = []
        """Of the waits and signals of tiles, in the order of their first use."""
        self.lines: list[str] = []
        self.held: dict[SSAValue, Held] = {}
        self.fresh: set[SSAValue] = set()
        self.barrier_wanted = False
        self.count = 0
        self.kept = self.area = self.area_used = self.scratch = 0
        self.in_part = False
        self.ranges = Ranges({"P": (0, machine.max_seq - machine.tokens)})

    # ---- the whole stage ----

    def emit(self) -> Functions:
        self.begin()
        self.prologue()
        self.parts()
        compute = self.take()
        self.feed()
        return Functions(compute, self.take(), self.kept, self.area, self.scratch)

    def begin(self) -> None:
        self.lines += [
            f"const long tiles = {self.tiles()};",
            *(["amk_top_up(w, row.signal, amk_tiles[row.signal] - tiles);"] if self.raises else []),
            "const long first = amk_first_tile(w, row.shift);",
            "if (first >= tiles) return;",
            "amk_wait(w, amk_tiles, amk_waits + row.waits, row.wait_count);",
        ]

    def tiles(self) -> str:
        return " + ".join(self.part_tiles(part) for part in self.stage.part_ops()) or "0"

    def part_tiles(self, part: mk.PartOp) -> str:
        factors = [self.ranges.simplify(e) for e in part.grid]
        number = prod(e.constant for e in factors if e.constant is not None)
        rest = [self.ranges.factor(e) for e in factors if e.constant is None]
        return " * ".join([*([str(number)] if number != 1 or not rest else []), *rest])

    def prologue(self) -> None:
        block = self.stage.prologue.block
        last = block.last_op
        assert isinstance(last, mk.YieldOp)
        args = self.stage.parts.block.args
        kept = dict(zip(last.arguments, args, strict=True))
        self.body(block, kept)
        for value, arg in kept.items():
            if value not in self.held:
                self.materialise(value, arg)
            self.held[arg] = self.held[value]
        for value, arg in zip(last.arguments, args, strict=True):
            self.held[arg] = self.held[value]
            if value in self.fresh:
                self.fresh.add(arg)

    def parts(self) -> None:
        parts = self.stage.part_ops()
        self.in_part = True
        if self.fresh:
            self.sync()
        self.lines += ["long n = 0;", "[[maybe_unused]] int turn = 0;"]
        self.lines.append("for (long at = first; at < tiles; at += AMK_WORKERS, n++) {")
        self.lines.append("long tile = at;")
        for number, part in enumerate(parts):
            self.area_used = 0
            self.fresh.clear()
            body = self.tile(part)
            if len(parts) > 1:
                self.lines.append(f"if (tile < {self.part_tiles(part)}) {{")
            self.lines += body
            if len(parts) > 1:
                self.lines += ["continue;", "}"]
                if number + 1 < len(parts):
                    self.lines.append(f"tile -= {self.part_tiles(part)};")
        self.lines.append("}")
        if self.raises:
            self.lines.append("amk_signal(w, row.signal, (uint32_t)n);")

    def tile(self, part: mk.PartOp) -> list[str]:
        """The lines of one part's tile."""
        outer, self.lines = self.lines, []
        self.coordinates(part)
        self.wait(part)
        self.body(part.body.block, {})
        self.signal(part)
        lines, self.lines = self.lines, outer
        if self.area_used:
            lines.insert(0, "uint8_t *const area = amk_area(w, turn);")
            self.area = max(self.area, self.area_used)
        return lines

    def event(self, value: SSAValue) -> str:
        """The first counter of an event, which stages that share this function look up."""
        if value not in self.events:
            self.events.append(value)
        return f"amk_bases[row.bases + {self.events.index(value)}]"

    def wait(self, part: mk.PartOp) -> None:
        """The groups of tiles that a tile needs, all looked at before one barrier."""
        for op in part.waits():
            first, count = (self.ranges.text(self.ranges.simplify(e)) for e in op.groups.data)
            base = self.event(op.event)
            self.lines.append(f"amk_look(w, amk_tiles, {base} + {first}, {count});")
        if part.waits():
            self.sync()

    def signal(self, part: mk.PartOp) -> None:
        if part.signals():
            self.sync()
        for op in part.signals():
            group = self.ranges.text(self.ranges.simplify(op.group.data[0]))
            self.lines.append(f"amk_raise(w, {self.event(op.event)} + {group}, 1);")

    def coordinates(self, part: mk.PartOp) -> None:
        """t0, t1, … from the number of the tile within its part."""
        extents = [self.ranges.simplify(e) for e in part.grid]
        rest = "tile"
        for i in reversed(range(1, len(extents))):
            extent = self.ranges.factor(extents[i])
            if extent != "1":
                self.lines.append(f"[[maybe_unused]] const long t{i} = {rest} % {extent};")
                rest = f"{rest} / {extent}"
        self.lines.append(f"[[maybe_unused]] const long t0 = {rest};")
        for i, extent in enumerate(extents):
            self.ranges.known[f"t{i}"] = (0, max(self.ranges.bounds(extent)[1] - 1, 0))

    # ---- the streaming warp ----

    def streamed(self, op: mk.MatmulOp) -> bool:
        return op.stream is not None and self.machine.slots > 0

    def feed(self) -> None:
        """The weight rows of the worker's tiles, in the order in which compute warps take them."""
        parts = self.stage.part_ops()
        if not any(self.streamed(op) for op in self.stage.walk() if isinstance(op, mk.MatmulOp)):
            return
        self.lines += [
            f"const long tiles = {self.tiles()};",
            "for (long at = amk_first_tile(w, row.shift); at < tiles; at += AMK_WORKERS) {",
            "long tile = at;",
        ]
        for number, part in enumerate(parts):
            if len(parts) > 1:
                self.lines.append(f"if (tile < {self.part_tiles(part)}) {{")
            self.coordinates(part)
            for op in part.body.block.ops:
                if isinstance(op, mk.MatmulOp) and self.streamed(op):
                    self.feed_matmul(op)
            if len(parts) > 1:
                self.lines += ["continue;", "}"]
                if number + 1 < len(parts):
                    self.lines.append(f"tile -= {self.part_tiles(part)};")
        self.lines.append("}")

    def feed_matmul(self, op: mk.MatmulOp) -> None:
        rows, depth = shape_of(op.result)[1], shape_of(op.input)[1]
        dtype = dtype_of(mk.buffer_of(op.weight).type.element_type)
        row_bytes = depth * (4 if dtype == "AMK_F32" else 2)
        piece = self.machine.slot_bytes // row_bytes
        self.lines.append(
            f"amk_stream(w, {self.weight(op)}, {rows}, {row_bytes}, {piece}, AMK_SLOTS,"
            " AMK_SLOT_BYTES);"
        )

    def weight(self, op: mk.MatmulOp) -> str:
        """The address of a matmul's rows."""
        buffer = mk.buffer_of(op.weight)
        place = self.ranges.flatten(tuple(op.offsets.data), buffer.type.get_shape())
        dtype = dtype_of(buffer.type.element_type)
        return f"amk_at<{dtype}>({self.operand(op.weight)}, {self.ranges.text(place)})"

    # ---- memory ----

    def operand(self, value: SSAValue) -> str:
        buffer = mk.buffer_of(value)
        if buffer not in self.operands:
            self.operands.append(buffer)
        return f"b{self.operands.index(buffer)}"

    def allocate(self, floats: int) -> tuple[str, bool]:
        """A new array, and whether it lies in shared memory."""
        name = f"v{self.count}"
        self.count += 1
        size = -(-floats // LINE) * LINE * 4
        if self.in_part:
            self.lines.append(f"float *const {name} = (float *)(area + {self.area_used});")
            self.area_used += size
            return name, True
        if self.kept + size <= self.machine.kept_limit:
            self.lines.append(
                f"float *const {name} = (float *)(w.shared + AMK_KEPT + {self.kept});"
            )
            self.kept += size
            return name, True
        self.lines.append(f"float *const {name} = (float *)(w.scratch + {self.scratch});")
        self.scratch += size
        return name, False

    def define(self, value: SSAValue) -> Held:
        """A plain array for a value that an op of its own fills."""
        floats = prod(shape_of(value))
        name, shared = self.allocate(floats)
        self.held[value] = Held(name, floats, shape_of(value)[-1], shared=shared)
        self.fresh.add(value)
        return self.held[value]

    # ---- barriers ----

    def needs(self, value: SSAValue) -> None:
        """The next loop reads what other threads wrote."""
        if value in self.fresh:
            self.barrier_wanted = True

    def sync(self) -> None:
        self.lines.append("amk_sync(w);")
        self.fresh.clear()
        self.barrier_wanted = False

    def settle(self) -> None:
        """A barrier, when what is about to be emitted needs one."""
        if self.barrier_wanted:
            self.sync()

    def take(self) -> str:
        text, depth = [], 1
        for line in self.lines:
            depth -= line.startswith("}")
            text.append("  " * depth + line)
            depth += line.endswith("{")
        self.lines = []
        return "\n".join(text)

    # ---- bodies ----

    def body(self, block: Block, kept: Mapping[SSAValue, SSAValue]) -> None:
        from amk.codegen.cuda.rules import RULES

        for op in block.ops:
            rule = RULES.get(type(op))
            if rule is not None:
                rule(self, op)
                continue
            for result in op.results:
                if self.worth_holding(result):
                    self.materialise(result, kept.get(result))

    def worth_holding(self, value: SSAValue) -> bool:
        """Computed once and kept rather than computed where it is used: a function that costs, or
        in a prologue a read of memory, with several uses."""
        op = value.owner
        uses = len(list(value.uses))
        if uses < 2 or prod(shape_of(value)) == 1:
            return False
        if isinstance(op, mk.UnaryOp):
            return op.function.data not in ("neg", "abs", "relu")
        if isinstance(op, mk.CombineOp):
            return True
        memory = isinstance(op, mk.LoadOp | mk.GatherOp) and not self.in_part
        return memory and prod(shape_of(value)) >= 64

    def materialise(self, value: SSAValue, arg: SSAValue | None = None) -> None:
        """Fills an array with a value, thread by thread. `arg` is the parts' name for it."""
        shape = shape_of(value)
        dealt = any(self.deals(v) for v in (value, arg) if v is not None)
        pitch = -(-shape[-1] // 256) * 256 if dealt else shape[-1]
        floats = prod(shape[:-1]) * pitch
        elements = Elements(self)
        index = self.ranges_for(prod(shape), shape)
        text = elements.at(value, index)
        self.settle()
        name, shared = self.allocate(floats)
        held = Held(name, floats, pitch, dealt, shared=shared)
        target = Elements(self).held(held, value, index)
        self.loop(prod(shape), [*elements.lines, f"{target} = {text};"])
        self.held[value] = held
        self.fresh.add(value)

    def deals(self, value: SSAValue) -> bool:
        """Is the value multiplied by weights of 16 bits, one token at a time?"""
        for use in value.uses:
            op = use.operation
            if isinstance(op, mk.MatmulOp) and op.input is value and not self.uses_mma(op):
                return dtype_of(mk.buffer_of(op.weight).type.element_type) != "AMK_F32"
        return False

    def uses_mma(self, op: mk.MatmulOp) -> bool:
        tokens, depth = shape_of(op.input)
        dtype = dtype_of(mk.buffer_of(op.weight).type.element_type)
        return dtype in self.machine.mma and tokens % 16 == 0 and depth % 32 == 0

    def ranges_for(self, count: int, shape: tuple[int, ...]) -> tuple[Expr, ...]:
        """The index of element i of a value."""
        self.ranges.known["i"] = (0, count - 1)
        return self.ranges.unflatten(ELEMENT if count > 1 else Const(0), shape)

    def loop(self, count: int, body: list[str]) -> None:
        """`body` for i = 0 … count − 1, shared out among the compute threads."""
        if count <= COMPUTE_THREADS:
            self.lines.append(f"if (w.thread < {count}) {{")
            self.lines.append("[[maybe_unused]] const int i = w.thread;")
        else:
            self.lines.append(f"for (int i = w.thread; i < {count}; i += AMK_COMPUTE) {{")
        self.lines += [*body, "}"]


def check_lanes(op: mk.ReduceOp) -> int:
    lanes, chains = op.reduction.lanes.data, op.reduction.chains.data
    if chains != 1 or lanes not in (32, COMPUTE_THREADS):
        raise AmkError(
            f"cuda: a row is reduced in 32 or {COMPUTE_THREADS} lanes of one chain, not"
            f" {lanes} of {chains}; run warp-reductions"
        )
    return lanes
