"""What the rules share: the program's facts, positions, families, closure, and the report."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from amk.ir.expr import Bound, Expr, P, bound, maximum, minimum
from amk.passes.rewriting import where
from amk.verify.closure import Closure
from amk.verify.families import Families
from amk.verify.findings import Finding, Report
from amk.verify.model import Access, Box, Buffer, Part, Program, Stage
from amk.verify.positions import Positions
from amk.verify.tiles import Order, Run, tile_name

MOST_FINDINGS = 32


@dataclass
class Context:
    program: Program
    positions: Positions
    families: Families
    report: Report
    writes: dict[Buffer, list[Access]] = field(default_factory=dict)
    reads: dict[Buffer, list[Access]] = field(default_factory=dict)
    orders: dict[tuple[int, int, int], Order] = field(default_factory=dict)

    @staticmethod
    def of(program: Program) -> Context:
        positions = Positions(program.positions)
        workers = "any number of workers"
        if program.workers is not None:
            workers = f"{program.workers} workers, static"
        report = Report(program.name, program.positions, workers)
        ctx = Context(program, positions, Families(positions), report)
        for access in program.accesses():
            side = ctx.writes if access.write else ctx.reads
            side.setdefault(access.buffer, []).append(access)
        return ctx

    @cached_property
    def closure(self) -> Closure:
        return Closure(self.program, self.positions, self.families)

    def add(self, finding: Finding | None) -> None:
        if finding is not None and len(self.report.findings) < MOST_FINDINGS:
            self.report.findings.append(finding)

    @cached_property
    def forward(self) -> bool:
        """Does every wait point to its own stage or an earlier one? Then whatever orders two
        stages lies between them, and so do the lists of static workers."""
        return all(
            part.stage.number <= stage.number
            for stage in self.program.stages
            for event in (*stage.waits, *(w.event for p in stage.parts for w in p.waits))
            for part, _ in event.signallers
        )

    def stages(self, first: Stage, last: Stage) -> list[Stage]:
        """Every stage that can have a part in the order of two."""
        low, high = sorted((first.number, last.number))
        everything = self.program.stages
        return everything[low : high + 1] if self.forward else everything

    def order(self, past: int, first: Stage, last: Stage) -> Order:
        """What is finished before each tile of the stages from `first` to `last`."""
        stages = self.stages(first, last)
        key = (past, stages[0].number, stages[-1].number)
        if key not in self.orders:
            if len(self.orders) > 64:
                self.orders.clear()
            self.orders[key] = Run(self.program, past, stages).run()
        return self.orders[key]

    def window(self, first: Stage, last: Stage) -> list[Expr]:
        """The expressions that shape the order of a window of stages."""
        found: set[Expr] = set()
        for stage in self.stages(first, last):
            for part in stage.parts:
                found.update(part.grid)
                for wait in part.waits:
                    found.update((wait.first, wait.count))
                found.update(s.group for s in part.signals)
        return list(found)

    # ---- boxes of caches, relative to the launch ----

    def launch_box(self, access: Access) -> Box:
        """The box, with rows of a cache counted from P and cut to those this launch appends."""
        axis = access.buffer.rows_axis
        if axis is None:
            return access.box
        low, high = (self.appended(e) for e in access.box[axis])
        return (*access.box[:axis], (low, high), *access.box[axis + 1 :])

    def appended(self, e: Expr) -> Expr:
        return minimum(maximum(minus_past(e), 0), self.program.tokens)

    def launch_shape(self, buffer: Buffer) -> tuple[int, ...]:
        return tuple(self.program.tokens if d == -1 else d for d in buffer.shape)

    # ---- words ----

    def tile(self, access: Access, tile: int, past: int) -> str:
        """One side of a finding."""
        stage, op = access.part.stage, access.op
        what = f"{op.name} of {access.buffer.name} in stage {stage.name!r}"
        if access.prologue:
            return f"{what}, prologue"
        name = tile_name(access.part, tile, past) or "its only tile"
        return f"{what}, part {access.part.index}, tile {name}{located(op)}"


def located(op: object) -> str:
    text = where(op)  # type: ignore[arg-type]
    return f" ({text.split(' (')[0]})" if " (" in text else ""


def minus_past(e: Expr) -> Expr:
    """e − P, pushed into bounds so that what depends on P can cancel."""
    if isinstance(e, Bound):
        return bound(e.kind, minus_past(e.a), minus_past(e.b))
    return e - P


def elements(box: np.ndarray) -> str:
    """`[0:1, 32:64]` of the ranges of one box."""
    return "[" + ", ".join(f"{a}:{b}" for a, b in box.tolist()) + "]"


def describe(part: Part) -> str:
    return f"stage {part.stage.name!r}, part {part.index}"
