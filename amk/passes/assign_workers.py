"""`assign-workers`: gives the tiles of a scheduled program to a fixed number of workers.

Tile l of a stage belongs to worker (l + shift) mod workers; `shift` goes on where the stage before
it ended at position 0, so that stages with fewer tiles than workers do not all fall on the same
ones. Worker order only adds to what events order, so nothing else changes.

Before:

    mk.program "decode" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
      %w = mk.buffer "weight" "w" : !mk.buffer<4x16xf32>
      %x = mk.buffer "activation" "x" : !mk.buffer<1x16xf32>
      %y = mk.buffer "output" "logits" : !mk.buffer<1x16xf32>
      mk.stage "first" prologue {
        mk.yield
      } parts {
        mk.part[1] {
          %a = mk.load %w[0, 0] : !mk.buffer<4x16xf32> -> tensor<1x16xf32>
          mk.store %a, %x[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
        }
      }
      mk.stage "second" prologue {
        mk.yield
      } parts {
        mk.part[4] {
          %b = mk.load %x[0, t0 * 4] : !mk.buffer<1x16xf32> -> tensor<1x4xf32>
          mk.store %b, %y[0, t0 * 4] : tensor<1x4xf32> -> !mk.buffer<1x16xf32>
        }
      }
    }

After:

    mk.program "decode" attributes {tokens = 1 : i64, max_seq = 64 : i64,
        schedule = "static", workers = 3 : i64} {
      %w = mk.buffer "weight" "w" : !mk.buffer<4x16xf32>
      %x = mk.buffer "activation" "x" : !mk.buffer<1x16xf32>
      %y = mk.buffer "output" "logits" : !mk.buffer<1x16xf32>
      mk.stage "first" prologue {
        mk.yield
      } parts {
        mk.part[1] {
          %a = mk.load %w[0, 0] : !mk.buffer<4x16xf32> -> tensor<1x16xf32>
          mk.store %a, %x[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
        }
      }
      mk.stage "second" attributes {shift = 1 : i64} prologue {
        mk.yield
      } parts {
        mk.part[4] {
          %b = mk.load %x[0, t0 * 4] : !mk.buffer<1x16xf32> -> tensor<1x4xf32>
          mk.store %b, %y[0, t0 * 4] : tensor<1x4xf32> -> !mk.buffer<1x16xf32>
        }
      }
    }
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
