"""`schedule`: orders stages by events, and nothing more than the memory they share demands.

A stage waits for the stages whose tiles wrote what it reads (read after write), read what it
overwrites, or wrote it before (bytes of the arena that `plan-buffers` shares). Waits that others
imply are left out (transitive reduction). The order of stages in the program is the global order
of the `claimed` schedule; every wait points backwards in it, so it cannot deadlock. With
`kind=static workers=N` tiles belong to fixed workers (`assign-workers`); with `groups=true` a tile
waits only for the tiles it needs (`group_waits.py`).

Before:

    mk.program "pair" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
      %w = mk.buffer "weight" "w" : !mk.buffer<1x16xf32>
      %x = mk.buffer "activation" "x" : !mk.buffer<1x16xf32>
      %y = mk.buffer "output" "logits" : !mk.buffer<1x16xf32>
      mk.stage "first" prologue {
        mk.yield
      } parts {
        mk.part[1] {
          %a = mk.load %w[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
          mk.store %a, %x[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
        }
      }
      mk.stage "second" prologue {
        mk.yield
      } parts {
        mk.part[4] {
          %a = mk.load %x[0, t0 * 4] : !mk.buffer<1x16xf32> -> tensor<1x4xf32>
          mk.store %a, %y[0, t0 * 4] : tensor<1x4xf32> -> !mk.buffer<1x16xf32>
        }
      }
    }

After:

    mk.program "pair" attributes {tokens = 1 : i64, max_seq = 64 : i64, schedule = "claimed"} {
      %w = mk.buffer "weight" "w" : !mk.buffer<1x16xf32>
      %x = mk.buffer "activation" "x" : !mk.buffer<1x16xf32>
      %y = mk.buffer "output" "logits" : !mk.buffer<1x16xf32>
      %done0 = mk.event
      mk.stage "first" signals(%done0) prologue {
        mk.yield
      } parts {
        mk.part[1] {
          %a = mk.load %w[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
          mk.store %a, %x[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
        }
      }
      mk.stage "second" waits(%done0) prologue {
        mk.yield
      } parts {
        mk.part[4] {
          %a_1 = mk.load %x[0, t0 * 4] : !mk.buffer<1x16xf32> -> tensor<1x4xf32>
          mk.store %a_1, %y[0, t0 * 4] : tensor<1x4xf32> -> !mk.buffer<1x16xf32>
        }
      }
    }
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, StringAttr, i32
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from amk.errors import AmkError
from amk.ir import mk
from amk.passes.assign_workers import assign
from amk.passes.group_waits import group_waits

KINDS = ("claimed", "static")


@dataclass(frozen=True)
class Schedule(ModulePass):
    name = "schedule"
    kind: str = "claimed"
    workers: int = 0
    """Of a static schedule."""
    groups: bool = False
    """Let a tile wait for the tiles it needs, where that is less than a stage."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.kind not in KINDS:
            raise AmkError(f"schedule: kind {self.kind!r}; known: {', '.join(KINDS)}")
        if (self.kind == "static") != (self.workers > 0):
            raise AmkError("schedule: workers are given with kind=static, and only with it")
        for program in op.walk():
            if isinstance(program, mk.ProgramOp):
                set_events(program, nx.transitive_reduction(dependences(program)))
                program.properties["schedule"] = StringAttr("claimed")
                if self.kind == "static":
                    assign(program, self.workers)
                if self.groups:
                    group_waits(program)


@dataclass(frozen=True)
class Access:
    """Buffers that the ops of a stage read and write."""

    reads: frozenset[mk.BufferOp]
    writes: frozenset[mk.BufferOp]


def accesses(stage: mk.StageOp) -> Access:
    reads: set[mk.BufferOp] = set()
    writes: set[mk.BufferOp] = set()
    for op in stage.walk():
        for operand in op.operands:
            if isinstance(operand.type, mk.BufferType):
                (writes if isinstance(op, mk.StoreOp) else reads).add(mk.buffer_of(operand))
    return Access(frozenset(reads), frozenset(writes))


def dependences(program: mk.ProgramOp) -> nx.DiGraph:
    """An edge i → j when stage j must not begin before stage i is done."""
    graph: nx.DiGraph = nx.DiGraph()
    stages = program.stages()
    graph.add_nodes_from(range(len(stages)))
    readers: dict[mk.BufferOp, list[int]] = {}
    writers: dict[mk.BufferOp, list[int]] = {}
    shared = sharing(program)
    for j, stage in enumerate(stages):
        access = accesses(stage)
        earlier: set[int] = set()
        for buffer in access.reads:
            for other in shared[buffer].overlapping:
                earlier.update(writers.get(other, ()))
        for buffer in access.writes:
            for other in shared[buffer].overlapping:
                earlier.update(writers.get(other, ()))
                earlier.update(readers.get(other, ()))
        graph.add_edges_from((i, j) for i in earlier)
        for buffer in access.writes:
            # Whoever comes after this write is after all that it waited for.
            for other in shared[buffer].within:
                readers.pop(other, None)
                writers.pop(other, None)
            writers[buffer] = [j]
        for buffer in access.reads:
            readers.setdefault(buffer, []).append(j)
    return graph


@dataclass(frozen=True)
class Shared:
    """The buffers that overlap one, itself included, and those that lie within it."""

    overlapping: list[mk.BufferOp]
    within: list[mk.BufferOp]


def sharing(program: mk.ProgramOp) -> dict[mk.BufferOp, Shared]:
    """Who shares memory with each buffer. Only activations do, in the arena."""
    span = {
        b: (b.offset.value.data, b.offset.value.data + b.type.nbytes())
        for b in program.buffers()
        if b.offset is not None
    }
    found = {b: Shared([b], [b]) for b in program.buffers()}
    for b, (start, end) in span.items():
        overlapping = [o for o, (x, y) in span.items() if x < end and start < y]
        found[b] = Shared(
            overlapping, [o for o in overlapping if start <= span[o][0] and span[o][1] <= end]
        )
    return found


def set_events(program: mk.ProgramOp, graph: nx.DiGraph) -> None:
    """An event a stage that some other waits for; each stage waits for its predecessors'."""
    stages = program.stages()
    for event in program.events():
        if any(True for _ in event.result.uses):
            raise AmkError("schedule: the program is scheduled already")
    events: dict[int, SSAValue] = {}
    for i in range(len(stages)):
        if graph.out_degree(i):
            event = mk.EventOp()
            program.body.block.insert_op_before(event, stages[0])
            event.result.name_hint = f"done{i}"
            events[i] = event.result
    for j, stage in enumerate(stages):
        waits = [events[i] for i in sorted(graph.predecessors(j))]
        signals = [events[j]] if j in events else []
        stage.operands = [*waits, *signals]
        stage.properties["operandSegmentSizes"] = DenseArrayBase.from_list(
            i32, [len(waits), len(signals)]
        )
