"""Random `mk` programs, right and wrong, as text.

`Generator` builds a plan of stages that is right more often than not, then may spoil it in one or
two places. It draws every number through one function, so that hypothesis can drive it (and
shrink), and a plain random generator too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from math import prod

Draw = Callable[[int, int], int]
"""draw(low, high): an integer with both ends included."""


@dataclass
class Buf:
    name: str
    kind: str
    shape: list[int]
    offset: int | None = None
    writer: int | None = None
    tile: int = 0
    part: int = 0
    readers: list[int] = field(default_factory=list)

    @property
    def whole_numbers(self) -> bool:
        return self.name in ("tokens", "next")

    def type(self) -> str:
        dims = "x".join("?" if d == -1 else str(d) for d in self.shape)
        return f"!mk.buffer<{dims}x{'i64' if self.whole_numbers else 'f32'}>"


@dataclass
class Op:
    kind: str  # load, store, matmul
    buf: Buf
    at: list[str]
    size: list[int]
    stream: bool = False
    others: list[Buf] = field(default_factory=list)


@dataclass
class PartPlan:
    grid: list[str]
    ops: list[Op] = field(default_factory=list)
    waits: list[list] = field(default_factory=list)  # [event, first, count]
    signals: list[list] = field(default_factory=list)  # [event, group]


@dataclass
class StagePlan:
    parts: list[PartPlan] = field(default_factory=list)
    prologue: list[Op] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)
    shift: int = 0


@dataclass
class EventPlan:
    groups: str = "1"
    threshold: str | None = None
    monotonic: bool = False


@dataclass
class Plan:
    tokens: int
    max_seq: int
    workers: int | None
    buffers: list[Buf] = field(default_factory=list)
    stages: list[StagePlan] = field(default_factory=list)
    events: list[EventPlan] = field(default_factory=list)
    stream: tuple[int, int, int] | None = None  # slots, bytes, ahead
    spoiled: list[str] = field(default_factory=list)

    def arena(self) -> int:
        ends = [b.offset + 4 * prod(b.shape) for b in self.buffers if b.offset is not None]
        return max(ends, default=0)

    # ---- text ----

    def text(self) -> str:
        head = f"tokens = {self.tokens} : i64, max_seq = {self.max_seq} : i64"
        head += f", arena = {self.arena()} : i64"
        if self.workers is None:
            head += ', schedule = "claimed"'
        else:
            head += f', schedule = "static", workers = {self.workers} : i64'
        lines = [f'mk.program "p" attributes {{{head}}} {{']
        for b in self.buffers:
            at = "" if b.offset is None else f"{{offset = {b.offset} : i64}} "
            lines.append(f'  %{b.name} = mk.buffer "{b.kind}" "{b.name}" {at}: {b.type()}')
        for i, e in enumerate(self.events):
            parts = [] if e.groups == "1" else [f"groups = #mk.exprs<[{e.groups}]>"]
            parts += [] if e.threshold is None else [f"threshold = #mk.exprs<[{e.threshold}]>"]
            parts += ['counter = "monotonic"'] if e.monotonic else []
            lines.append(f"  %e{i} = mk.event" + (f" {{{', '.join(parts)}}}" if parts else ""))
        if self.stream:
            slots, size, ahead = self.stream
            lines.append(
                f"  %ring = mk.stream {{slots = {slots} : i64, slot_bytes = {size} : i64,"
                f" ahead = {ahead} : i64}}"
            )
        for i, stage in enumerate(self.stages):
            lines += self.stage_text(i, stage)
        return "\n".join([*lines, "}", ""])

    def stage_text(self, number: int, stage: StagePlan) -> list[str]:
        waits = f" waits({', '.join(f'%e{e}' for e in stage.waits)})" if stage.waits else ""
        signals = f" signals({', '.join(f'%e{e}' for e in stage.signals)})" if stage.signals else ""
        shift = f" attributes {{shift = {stage.shift} : i64}}" if stage.shift else ""
        names = Names()
        lines = [f'  mk.stage "s{number}"{waits}{signals}{shift} prologue {{']
        value = reads(names, stage.prologue, lines, None)
        lines.append(f"    mk.yield {value} : tensor<1x1xf32>" if value else "    mk.yield")
        lines.append("  } parts {")
        given = None
        if value:
            given = names.new()
            lines.append(f"  ^bb0({given}: tensor<1x1xf32>):")
        for part in stage.parts:
            lines.append(f"    mk.part[{', '.join(part.grid)}] {{")
            lines += [f"      mk.wait %e{e}[{first}, {n}]" for e, first, n in part.waits]
            held = given
            for op in part.ops:
                if op.kind == "store":
                    store(names, op, held, lines)
                else:
                    held = reads(names, [op], lines, held)
            lines += [f"      mk.signal %e{e}[{group}]" for e, group in part.signals]
            lines.append("    }")
        return [*lines, "  }"]


class Names:
    def __init__(self) -> None:
        self.numbers = count()

    def new(self) -> str:
        return f"%v{next(self.numbers)}"


def tensor(shape: list[int]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}xf32>"


def reads(names: Names, ops: list[Op], lines: list[str], held: str | None) -> str | None:
    """Loads summed into one number."""
    for op in ops:
        x, flat, total = names.new(), names.new(), names.new()
        at = ", ".join(op.at)
        if op.kind == "combine":
            _, _, tokens, _, depth = op.buf.shape
            bufs = [op.buf, *op.others]
            shape = [tokens, 1, depth]
            lines.append(
                f"      {x} = mk.combine {', '.join(f'%{b.name}' for b in bufs)} over[{at}] :"
                f" {', '.join(b.type() for b in bufs)} -> {tensor(shape)}"
            )
        elif op.kind == "gather":
            shape = [op.buf.shape[1], 4]
            lines.append(
                f"      {x} = mk.gather %w, %{op.buf.name}[0] : !mk.buffer<8x4xf32>,"
                f" {op.buf.type()} -> {tensor(shape)}"
            )
        elif op.kind == "matmul":
            ones = names.new()
            lines.append(
                f"      {ones} = mk.load %w[0, 0] : !mk.buffer<8x4xf32> -> tensor<1x4xf32>"
            )
            ring = " through %ring" if op.stream else ""
            shape = [1, op.size[0]]
            lines.append(
                f"      {x} = mk.matmul {ones}, %{op.buf.name}[{at}]{ring} {{reduction ="
                f" #mk.reduction<lanes = 16, chains = 2>}} : tensor<1x4xf32>, {op.buf.type()} ->"
                f" {tensor(shape)}"
            )
        else:
            shape = op.size
            lines.append(
                f"      {x} = mk.load %{op.buf.name}[{at}] : {op.buf.type()} -> {tensor(shape)}"
            )
        n = prod(shape)
        lines.append(f"      {flat} = mk.reshape {x} : {tensor(shape)} -> {tensor([1, n])}")
        lines.append(
            f'      {total} = mk.reduce "sum" {flat} {{reduction = #mk.reduction<lanes = 16,'
            f" chains = 1>}} : {tensor([1, n])} -> tensor<1x1xf32>"
        )
        if held is not None:
            both = names.new()
            lines.append(
                f'      {both} = mk.binary "add" {held}, {total} : tensor<1x1xf32>,'
                " tensor<1x1xf32> -> tensor<1x1xf32>"
            )
            total = both
        held = total
    return held


def store(names: Names, op: Op, held: str | None, lines: list[str]) -> None:
    if held is None:
        held = names.new()
        lines.append(f"      {held} = mk.load %w[0, 0] : !mk.buffer<8x4xf32> -> tensor<1x1xf32>")
    one, wide = names.new(), names.new()
    unit = tensor([1] * len(op.size))
    lines.append(f"      {one} = mk.reshape {held} : tensor<1x1xf32> -> {unit}")
    lines.append(f"      {wide} = mk.broadcast {one} : {unit} -> {tensor(op.size)}")
    lines.append(
        f"      mk.store {wide}, %{op.buf.name}[{', '.join(op.at)}] : {tensor(op.size)}"
        f" -> {op.buf.type()}"
    )


class Generator:
    """Draws one plan."""

    def __init__(self, draw: Draw):
        self.draw = draw
        tokens = draw(1, 2)
        workers = None if draw(0, 2) else draw(1, 3)
        self.plan = Plan(tokens, tokens + draw(0, 5), workers)
        self.weight = Buf("w", "weight", [8, 4])
        self.tokens = Buf("tokens", "input", [1, tokens])
        self.cache = Buf("c", "cache", [2, -1, 2]) if draw(0, 1) else None
        self.plan.buffers = [self.weight, self.tokens]
        if self.cache:
            self.plan.buffers.append(self.cache)
        if workers and draw(0, 1):
            slots = draw(1, 3)
            self.plan.stream = (slots, 16 * draw(1, 2), slots)
        self.live: list[Buf] = []
        self.splits: list[tuple[list[Buf], str, str]] = []

    def chance(self, one_in: int) -> bool:
        return self.draw(1, one_in) == 1

    def pick(self, items: list):  # type: ignore[no-untyped-def]
        return items[self.draw(0, len(items) - 1)]

    def generate(self, spoil: bool | None = None) -> Plan:
        number = self.draw(1, 4)
        append = self.draw(0, number - 1) if self.cache else -1
        for i in range(number):
            self.stage(i, last=i == number - 1, append=i == append)
        if self.plan.tokens == 1 and self.chance(2):
            self.greedy(number)
        self.place()
        self.order()
        if self.plan.stream is None or not self.uses_stream():
            self.plan.stream = None
        wanted = not self.chance(3) if spoil is None else spoil
        for _ in range(self.draw(1, 2) if wanted else 0):
            self.spoil()
        return self.plan

    def uses_stream(self) -> bool:
        ops = [o for s in self.plan.stages for p in s.parts for o in p.ops]
        return any(o.stream for o in ops)

    # ---- stages ----

    def stage(self, i: int, last: bool, append: bool) -> None:
        stage = StagePlan(shift=self.draw(0, 2) if self.plan.workers and self.chance(3) else 0)
        self.plan.stages.append(stage)
        if last:
            self.output(i, stage, Buf("logits", "output", [self.pick([2, 4, 6])]))
        else:
            for n in range(self.draw(1, 2)):
                two = self.chance(3)
                shape = [2, self.pick([2, 4])] if two else [self.pick([2, 4, 6, 8])]
                self.output(i, stage, Buf(f"x{i}{'ab'[n]}", "activation", shape))
        if not last and self.chance(3):
            self.split(i, stage)
        if append and self.cache:
            self.append(i, stage)
        earlier = [b for b in self.live if b.writer != i]
        if earlier and self.chance(3):
            stage.prologue.append(self.whole(self.pick(earlier), i))
        if self.chance(6):
            stage.prologue.append(Op("load", self.weight, ["0", "0"], [2, 4]))

    def greedy(self, i: int) -> None:
        """One more stage, which writes the token that the next step reads. Most often it needs
        whatever is left; a part that it does not wait for may run into the next step."""
        buf = Buf("next", "output", [1, 1], writer=i)
        part = PartPlan(["1"])
        for other in self.live:
            if self.chance(6):
                continue
            part.ops.append(self.whole(other, i))
        if self.cache is not None and self.cache.writer is not None and not self.chance(8):
            part.ops.append(Op("load", self.cache, ["0", "P", "0"], [2, 1, 2]))
            self.cache.readers.append(i)
        for bufs, first, end in self.splits:
            if not self.chance(8):
                for other in bufs:
                    other.readers.append(i)
                part.ops.append(Op("combine", bufs[0], [first, end], [1], others=bufs[1:]))
        part.ops.append(Op("store", buf, ["0", "0"], [1, 1]))
        self.plan.buffers.append(buf)
        self.plan.stages.append(StagePlan([part]))

    def output(self, i: int, stage: StagePlan, buf: Buf) -> None:
        """Parts whose tiles partition a new buffer and read some earlier ones."""
        self.plan.buffers.append(buf)
        buf.writer = i
        axis = len(buf.shape) - 1
        extent = buf.shape[axis]
        size = self.pick([n for n in (1, 2, 4) if extent % n == 0])
        tiles = extent // size
        buf.tile, buf.part = size, len(stage.parts)
        lead = ["0"] * axis
        sizes = [*buf.shape[:axis], size]
        split = self.draw(1, tiles - 1) if tiles > 1 and self.chance(4) else tiles
        rows = axis == 1 and self.chance(2)
        for base, n in ((0, split), (split, tiles - split)):
            if n == 0:
                continue
            at = f"t0 * {size} + {base * size}" if base else f"t0 * {size}"
            part = PartPlan([str(n)])
            if rows:
                part.grid = [str(n), "2"]
                lead, sizes = ["t1"], [1, size]
            self.inputs(i, part, n)
            part.ops.append(Op("store", buf, [*lead, at], list(sizes)))
            stage.parts.append(part)
        self.live.append(buf)

    def inputs(self, i: int, part: PartPlan, tiles: int) -> None:
        earlier = [b for b in self.live if b.writer != i]
        for _ in range(self.draw(0, 2)):
            if earlier:
                buf = self.pick(earlier)
                part.ops.append(self.some(buf, i, tiles) if self.chance(2) else self.whole(buf, i))
        appended = self.cache is not None and self.cache.writer not in (None, i)
        if self.cache and appended and self.chance(2):
            part.ops.append(Op("load", self.cache, ["0", "P", "0"], [2, self.plan.tokens, 2]))
            self.cache.readers.append(i)
        elif self.cache and appended and self.chance(3):  # an old row, or one of these
            part.ops.append(Op("load", self.cache, ["0", "P floordiv 2", "0"], [1, 1, 2]))
            self.cache.readers.append(i)
        if self.splits and self.chance(2):
            bufs, first, end = self.pick(self.splits)
            if bufs[0].writer != i:
                for buf in bufs:
                    buf.readers.append(i)
                part.ops.append(Op("combine", bufs[0], [first, end], [1], others=bufs[1:]))
        if self.chance(4):
            part.ops.append(Op("gather", self.tokens, ["0"], [self.plan.tokens, 4]))
        if self.chance(2 if self.plan.stream else 6):
            ring = bool(self.plan.stream)
            part.ops.append(Op("matmul", self.weight, ["t0 * 0", "0"], [2, 4], ring))

    def whole(self, buf: Buf, i: int) -> Op:
        buf.readers.append(i)
        return Op("load", buf, ["0"] * len(buf.shape), list(buf.shape))

    def some(self, buf: Buf, i: int, tiles: int) -> Op:
        """A box that moves with the tile, or with the position."""
        buf.readers.append(i)
        extent = buf.shape[-1]
        lead, sizes = ["0"] * (len(buf.shape) - 1), list(buf.shape[:-1])
        if extent % tiles == 0:
            size = extent // tiles
            return Op("load", buf, [*lead, f"t0 * {size}"], [*sizes, size])
        if self.chance(2):
            return Op("load", buf, [*lead, f"min(P, {extent - 1})"], [*sizes, 1])
        return Op("load", buf, [*lead, "0"], [*sizes, 1])

    def split(self, i: int, stage: StagePlan) -> None:
        """Partials of an attention, as many as the position asks for."""
        c, s = self.draw(2, 3), self.plan.tokens
        n = (self.plan.max_seq - 1) // c + 1
        end = f"(P + {s - 1}) floordiv {c} + 1"
        first = f"max(P - {self.draw(1, 3)}, 0) floordiv {c}" if self.chance(2) else "0"
        shapes = ([n, 1, s, 1, 2], [n, 1, s, 1], [n, 1, s, 1])
        bufs = [Buf(f"p{i}{x}", "activation", d) for x, d in zip("abc", shapes, strict=True)]
        index = "t0" if first == "0" else f"t0 + {first}"
        part = PartPlan([f"{end} - ({first})" if first != "0" else end])
        self.inputs(i, part, 1)
        for buf in bufs:
            buf.writer, buf.part = i, len(stage.parts)
            rest = buf.shape[1:]
            part.ops.append(Op("store", buf, [index, *["0"] * len(rest)], [1, *rest]))
        stage.parts.append(part)
        self.plan.buffers += bufs
        self.splits.append((bufs, first, end))

    def append(self, i: int, stage: StagePlan) -> None:
        assert self.cache is not None
        self.cache.writer = i
        tokens = self.plan.tokens
        if self.chance(2):
            part = PartPlan(["2"], [Op("store", self.cache, ["t0", "P", "0"], [1, tokens, 2])])
        else:
            part = PartPlan(
                [str(tokens)], [Op("store", self.cache, ["0", "P + t0", "0"], [2, 1, 2])]
            )
        stage.parts.append(part)

    # ---- memory and order ----

    def place(self) -> None:
        """First fit by lifetime, as plan-buffers does."""
        placed: list[tuple[Buf, int, int]] = []
        if self.chance(4):
            return
        for buf in self.plan.buffers:
            if buf.kind != "activation":
                continue
            assert buf.writer is not None
            life = (buf.writer, max([buf.writer, *buf.readers]))
            offset = 0
            for other, start, end in sorted(placed, key=lambda p: p[0].offset or 0):
                assert other.offset is not None
                if start <= life[1] and life[0] <= end:
                    if offset + 4 * prod(buf.shape) <= other.offset:
                        break
                    offset = max(offset, other.offset + 4 * prod(other.shape))
            buf.offset = offset
            placed.append((buf, *life))

    def order(self) -> None:
        """An event a stage that others need, or groups where one part feeds another tile by tile;
        under a static schedule of one worker, sometimes none at all."""
        if self.plan.workers == 1 and self.chance(2):
            return
        needs = self.needs()
        grouped: set[tuple[int, int]] = set()
        for i, j in sorted(needs):
            if self.chance(3) and self.group(i, j):
                grouped.add((i, j))
        events: dict[int, int] = {}
        for i, j in sorted(needs - grouped):
            if i not in events:
                events[i] = self.event(EventPlan())
                self.plan.stages[i].signals.append(events[i])
            if events[i] not in self.plan.stages[j].waits:
                self.plan.stages[j].waits.append(events[i])
        for e, event in enumerate(self.plan.events):
            if self.chance(6):
                event.monotonic = True
            if event.groups == "1" and self.chance(5):
                event.threshold = str(self.signal_count(e))

    def signal_count(self, e: int) -> int:
        total = 0
        for stage in self.plan.stages:
            for part in stage.parts:
                if e in stage.signals or any(s[0] == e for s in part.signals):
                    total += prod(int(n) if n.isdigit() else 2 for n in part.grid)
        return total

    def event(self, plan: EventPlan) -> int:
        self.plan.events.append(plan)
        return len(self.plan.events) - 1

    def needs(self) -> set[tuple[int, int]]:
        found: set[tuple[int | None, int | None]] = set()
        users = [b for b in self.plan.buffers if b.writer is not None]
        for b in users:
            assert b.writer is not None
            found |= {(b.writer, r) for r in b.readers if r != b.writer}
        for a in users:
            for b in users:
                if a is b or a.offset is None or b.offset is None:
                    continue
                meet = a.offset < b.offset + 4 * prod(b.shape)
                meet = meet and b.offset < a.offset + 4 * prod(a.shape)
                if meet and (a.writer or 0) < (b.writer or 0):
                    found |= {(i, b.writer) for i in {a.writer, *a.readers} if i != b.writer}
        return {(i, j) for i, j in found if i is not None and j is not None}

    def group(self, i: int, j: int) -> bool:
        """Tile by tile: all parts of both stages must be a row of as many tiles."""
        first, then = self.plan.stages[i], self.plan.stages[j]
        if then.prologue or len(first.parts) != 1 or len(first.parts[0].grid) != 1:
            return False
        part = first.parts[0]
        if not part.grid[0].isdigit():
            return False
        n = int(part.grid[0])
        e = self.event(EventPlan(groups=str(n)))
        part.signals.append([e, "t0"])
        for target in then.parts:
            if target.grid == [str(n)] and self.chance(2):
                target.waits.append([e, "t0", "1"])
            else:
                target.waits.append([e, "0", str(n)])
        return True

    # ---- spoiling ----

    def spoil(self) -> None:
        rules = [
            self.drop_wait, self.drop_group_wait, self.wrong_group, self.wrong_threshold,
            self.wrong_count, self.shift_store, self.shift_load, self.move_place, self.wide_ring,
            self.late_position, self.steady_counter, self.wait_later, self.weight_store,
            self.swap_stages, self.empty_part, self.same_stage_wait, self.shrink_arena,
        ]  # fmt: skip
        rule = self.pick(rules)
        if rule():
            self.plan.spoiled.append(rule.__name__)

    def parts(self) -> list[PartPlan]:
        return [p for s in self.plan.stages for p in s.parts]

    def drop_wait(self) -> bool:
        stages = [s for s in self.plan.stages if s.waits]
        if not stages:
            return False
        stage = self.pick(stages)
        stage.waits.remove(self.pick(stage.waits))
        return True

    def drop_group_wait(self) -> bool:
        parts = [p for p in self.parts() if p.waits]
        if not parts:
            return False
        self.pick(parts).waits.pop()
        return True

    def wrong_group(self) -> bool:
        parts = [p for p in self.parts() if p.waits]
        if not parts:
            return False
        wait = self.pick(self.pick(parts).waits)
        wait[1] = self.pick([f"{wait[1]} + 1", "0", f"max({wait[1]} - 1, 0)"])
        return True

    def wrong_threshold(self) -> bool:
        if not self.plan.events:
            return False
        e = self.draw(0, len(self.plan.events) - 1)
        self.plan.events[e].threshold = str(max(self.signal_count(e) + self.pick([-1, 1]), 0))
        return True

    def wrong_count(self) -> bool:
        part = self.pick(self.parts())
        k = self.draw(0, len(part.grid) - 1)
        part.grid[k] = self.pick(
            [f"{part.grid[k]} + 1", f"max({part.grid[k]} - 1, 0)", f"min({part.grid[k]}, P + 1)"]
        )
        return True

    def shift_store(self) -> bool:
        return self.shift("store")

    def shift_load(self) -> bool:
        return self.shift("load")

    def shift(self, kind: str) -> bool:
        ops = [o for p in self.parts() for o in p.ops if o.kind == kind]
        if not ops:
            return False
        op = self.pick(ops)
        k = self.draw(0, len(op.at) - 1)
        if op.size[k] == op.buf.shape[k]:
            return False
        op.at[k] = self.pick([f"{op.at[k]} + 1", f"max({op.at[k]} - 1, 0)", "t0 * 0"])
        return self.in_verifier(op, k)

    def in_verifier(self, op: Op, k: int) -> bool:
        """A constant offset out of bounds is the verifier's business, not the checker's."""
        if op.at[k].replace("+ 1", "").strip().isdigit():
            op.at[k] = "t0 * 0"
        return True

    def move_place(self) -> bool:
        placed = [b for b in self.plan.buffers if b.offset is not None]
        if not placed:
            return False
        buf = self.pick(placed)
        assert buf.offset is not None
        buf.offset = max(buf.offset + 4 * self.draw(-3, 3), 0)
        return True

    def shrink_arena(self) -> bool:
        placed = [b for b in self.plan.buffers if b.offset is not None]
        if len(placed) < 2:
            return False
        a, b = self.pick(placed), self.pick(placed)
        a.offset = b.offset
        return True

    def wide_ring(self) -> bool:
        if self.plan.stream is None:
            return False
        slots, size, ahead = self.plan.stream
        self.plan.stream = (slots, self.pick([size, 8]), ahead + self.draw(0, 2))
        return True

    def late_position(self) -> bool:
        """Wrong from some position on."""
        ops = [o for p in self.parts() for o in p.ops]
        if not ops:
            return False
        op = self.pick(ops)
        k = self.draw(0, len(op.at) - 1)
        op.at[k] = f"{op.at[k]} + P floordiv {self.draw(2, 5)}"
        return True

    def steady_counter(self) -> bool:
        if not self.plan.events:
            return False
        self.pick(self.plan.events).monotonic = True
        return True

    def wait_later(self) -> bool:
        """A stage waits for its own event or a later one's."""
        if not self.plan.events:
            return False
        e = self.draw(0, len(self.plan.events) - 1)
        stage = self.pick(self.plan.stages)
        if e not in stage.waits:
            stage.waits.append(e)
        return True

    def weight_store(self) -> bool:
        self.pick(self.parts()).ops.append(Op("store", self.weight, ["0", "t0 * 0"], [8, 1]))
        return True

    def swap_stages(self) -> bool:
        if len(self.plan.stages) < 2:
            return False
        i = self.draw(0, len(self.plan.stages) - 2)
        s = self.plan.stages
        s[i], s[i + 1] = s[i + 1], s[i]
        return True

    def empty_part(self) -> bool:
        """A part that has no tile below some position."""
        part = self.pick(self.parts())
        part.grid[0] = f"min({part.grid[0]}, P floordiv 2)"
        return True

    def same_stage_wait(self) -> bool:
        """A part waits for groups of another part of its stage, before or after it."""
        stages = [s for s in self.plan.stages if len(s.parts) > 1]
        if not stages:
            return False
        stage = self.pick(stages)
        a, b = self.draw(0, len(stage.parts) - 1), self.draw(0, len(stage.parts) - 1)
        e = self.event(EventPlan())
        stage.parts[a].signals.append([e, "0"])
        stage.parts[b].waits.append([e, "0", "1"])
        return True


def random_plan(seed: int) -> Plan:
    rng = random.Random(seed)
    return Generator(rng.randint).generate()
