"""`plan-buffers`: places the activations of a program in one arena and prints their lifetimes.

A buffer lives from the first stage that writes it to the last that reads it; buffers whose lives
do not meet may share bytes. First fit by start, widest first among equals; offsets are multiples
of 64 bytes, so no two buffers share a cache line. `schedule` then orders the stages that share
bytes. Statistics: arena bytes before (a buffer each) and after.

Before:

    %a = mk.buffer "activation" "a" : !mk.buffer<1x1x64xf32>
    %b = mk.buffer "activation" "b" : !mk.buffer<1x1x64xf32>

After (where %b is first written after %a was last read):

    mk.program "decode" attributes {…, arena = 256 : i64} {
      %a = mk.buffer "activation" "a" {lifetime = array<i64: 0, 1>, offset = 0 : i64} : …
      %b = mk.buffer "activation" "b" {lifetime = array<i64: 2, 3>, offset = 0 : i64} : …
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
