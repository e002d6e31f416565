"""`plan-buffers`: places the activations of a program in one arena and prints their lifetimes.

A buffer lives from the first stage that writes it to the last that reads it; buffers whose lives
do not meet may share bytes. First fit by start, widest first among equals; offsets are multiples
of 64 bytes, so no two buffers share a cache line. `schedule` then orders the stages that share
bytes. Statistics: arena bytes before (a buffer each) and after.

Before:

    mk.program "chain" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
      %w = mk.buffer "weight" "w" : !mk.buffer<16xf32>
      %a = mk.buffer "activation" "a" : !mk.buffer<16xf32>
      %b = mk.buffer "activation" "b" : !mk.buffer<16xf32>
      %c = mk.buffer "activation" "c" : !mk.buffer<16xf32>
      mk.stage "first" prologue {
        mk.yield
      } parts {
        mk.part[1] {
          %x = mk.load %w[0] : !mk.buffer<16xf32> -> tensor<16xf32>
          mk.store %x, %a[0] : tensor<16xf32> -> !mk.buffer<16xf32>
        }
      }
      mk.stage "second" prologue {
        mk.yield
      } parts {
        mk.part[1] {
          %x = mk.load %a[0] : !mk.buffer<16xf32> -> tensor<16xf32>
          mk.store %x, %b[0] : tensor<16xf32> -> !mk.buffer<16xf32>
        }
      }
      mk.stage "third" prologue {
        mk.yield
      } parts {
        mk.part[1] {
          %x = mk.load %b[0] : !mk.buffer<16xf32> -> tensor<16xf32>
          mk.store %x, %c[0] : tensor<16xf32> -> !mk.buffer<16xf32>
        }
      }
    }

After:

    mk.program "chain" attributes {tokens = 1 : i64, max_seq = 64 : i64, arena = 128 : i64} {
      %w = mk.buffer "weight" "w" : !mk.buffer<16xf32>
      %a = mk.buffer "activation" "a" {offset = 0 : i64, lifetime = array<i64: 0, 1>}
        : !mk.buffer<16xf32>
      %b = mk.buffer "activation" "b" {offset = 64 : i64, lifetime = array<i64: 1, 2>}
        : !mk.buffer<16xf32>
      %c = mk.buffer "activation" "c" {offset = 0 : i64, lifetime = array<i64: 2, 2>}
        : !mk.buffer<16xf32>
      mk.stage "first" prologue {
        mk.yield
      } parts {
        mk.part[1] {
          %x = mk.load %w[0] : !mk.buffer<16xf32> -> tensor<16xf32>
          mk.store %x, %a[0] : tensor<16xf32> -> !mk.buffer<16xf32>
        }
      }
      mk.stage "second" prologue {
        mk.yield
      } parts {
        mk.part[1] {
          %x_1 = mk.load %a[0] : !mk.buffer<16xf32> -> tensor<16xf32>
          mk.store %x_1, %b[0] : tensor<16xf32> -> !mk.buffer<16xf32>
        }
      }
      mk.stage "third" prologue {
        mk.yield
      } parts {
        mk.part[1] {
          %x_2 = mk.load %b[0] : !mk.buffer<16xf32> -> tensor<16xf32>
          mk.store %x_2, %c[0] : tensor<16xf32> -> !mk.buffer<16xf32>
        }
      }
    }
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from amk.ir import mk
from amk.ir.lm import integer, ints

ALIGNMENT = 64


def stage_of(op: Operation) -> mk.StageOp:
    """The stage an op of a body belongs to."""
    parent = op
    while not isinstance(parent, mk.StageOp):
        found = parent.parent_op()
        assert found is not None
        parent = found
    return parent


def lifetimes(program: mk.ProgramOp) -> dict[mk.BufferOp, tuple[int, int]]:
    """First and last stage that touches each buffer that is used at all."""
    number = {stage: i for i, stage in enumerate(program.stages())}
    found: dict[mk.BufferOp, tuple[int, int]] = {}
    for buffer in program.buffers():
        touched = [number[stage_of(u.operation)] for u in buffer.result.uses]
        if touched:
            found[buffer] = (min(touched), max(touched))
    return found


def round_up(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class PlanBuffers(ModulePass):
    name = "plan-buffers"
    statistics: dict[str, int] = field(default_factory=dict, init=False, compare=False)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in op.walk():
            if isinstance(program, mk.ProgramOp):
                before, after = plan(program)
                self.statistics["arena bytes before"] = before
                self.statistics["arena bytes after"] = after


def plan(program: mk.ProgramOp) -> tuple[int, int]:
    """Sets offsets and lifetimes; returns the arena's bytes without and with reuse."""
    lives = {b: life for b, life in lifetimes(program).items() if b.kind.data == "activation"}
    size = {b: round_up(b.type.nbytes()) for b in lives}
    placed: list[tuple[mk.BufferOp, int]] = []
    total = 0
    for buffer in sorted(lives, key=lambda b: (lives[b][0], -size[b])):
        first, last = lives[buffer]
        taken = sorted(
            (at, at + size[other])
            for other, at in placed
            if lives[other][0] <= last and first <= lives[other][1]
        )
        offset = 0
        for start, end in taken:
            if offset + size[buffer] <= start:
                break
            offset = max(offset, end)
        placed.append((buffer, offset))
        total = max(total, offset + size[buffer])
        buffer.properties["offset"] = integer(offset)
        buffer.properties["lifetime"] = ints(lives[buffer])
    program.properties["arena"] = integer(total)
    return sum(size.values()), total
