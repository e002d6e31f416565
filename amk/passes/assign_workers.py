"""`assign-workers`: gives the tiles of a scheduled program to a fixed number of workers.

Tile l of a stage belongs to worker (l + shift) mod workers; `shift` goes on where the stage before
it ended at position 0, so that stages with fewer tiles than workers do not all fall on the same
ones. Worker order only adds to what events order, so nothing else changes.

Before:

    mk.program "decode" attributes {…, schedule = "claimed"} {
      mk.stage "a" … mk.part[24] …
      mk.stage "b" … mk.part[64] …

After, for 132 workers:

    mk.program "decode" attributes {…, schedule = "static", workers = 132 : i64} {
      mk.stage "a" …
      mk.stage "b" … {shift = 24 : i64} …
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass

from amk.errors import AmkError
from amk.ir import mk
from amk.ir.lm import integer


@dataclass(frozen=True)
class AssignWorkers(ModulePass):
    name = "assign-workers"
    workers: int = 0

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.workers < 1:
            raise AmkError("assign-workers: give workers, the number of blocks that run at once")
        for program in op.walk():
            if isinstance(program, mk.ProgramOp):
                assign(program, self.workers)


def assign(program: mk.ProgramOp, workers: int) -> None:
    program.properties["schedule"] = StringAttr("static")
    program.properties["workers"] = integer(workers)
    shift = 0
    for stage in program.stages():
        if shift:
            stage.properties["shift"] = integer(shift)
        tiles = sum(prod(e.evaluate({"P": 0}) for e in part.grid) for part in stage.part_ops())
        shift = (shift + tiles) % workers
