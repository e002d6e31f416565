"""Random programs of many stages over activations: what planning and scheduling must get right."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.ir import Block, Region

from amk.ir import mk
from amk.ir.lm import product


@dataclass(frozen=True)
class StageSpec:
    """Buffers, by number, that a stage reads and writes."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True)
class ProgramSpec:
    widths: tuple[int, ...]
    stages: tuple[StageSpec, ...]


@st.composite
def programs(draw: st.DrawFn) -> ProgramSpec:
    """Programs whose stages read only what an earlier stage has written."""
    widths = draw(st.lists(st.sampled_from((1, 8, 16, 17, 40)), min_size=1, max_size=8))
    written: list[int] = []
    stages = []
    for _ in range(draw(st.integers(1, 9))):
        reads = draw(st.lists(st.sampled_from(written), max_size=3, unique=True)) if written else []
        free = [b for b in range(len(widths)) if b not in reads]
        writes = draw(st.lists(st.sampled_from(free), max_size=2, unique=True)) if free else []
        written = sorted({*written, *writes})
        stages.append(StageSpec(tuple(reads), tuple(writes)))
    return ProgramSpec(tuple(widths), tuple(stages))


def build_program(spec: ProgramSpec) -> tuple[ModuleOp, mk.ProgramOp]:
    """Stage i stores the sum of the first elements it reads, plus i, into all it writes."""
    program = mk.ProgramOp("random", 1, 8)
    block = program.body.block
    buffers = [
        mk.BufferOp("activation", f"a{i}", mk.BufferType.get((n,), f32))
        for i, n in enumerate(spec.widths)
    ]
    block.add_ops(buffers)
    constant = mk.BufferOp("weight", "one", mk.BufferType.get((1,), f32))
    block.add_op(constant)
    for i, stage in enumerate(spec.stages):
        body = Block()
        total = mk.ScalarOp("add", _load(body, constant, 1), float(i)).result
        body.add_op(total.owner)  # type: ignore[arg-type]
        for read in stage.reads:
            added = mk.BinaryOp("add", total, _load(body, buffers[read], 1))
            body.add_op(added)
            total = added.result
        for write in stage.writes:
            wide = mk.BroadcastOp(total, (spec.widths[write],))
            body.add_ops([wide, mk.StoreOp(wide.result, buffers[write].result, [0])])
        parts = Block([mk.PartOp([1], Region(body))])
        prologue = Block([mk.YieldOp()])
        block.add_op(mk.StageOp(f"s{i}", Region(prologue), Region(parts)))
    return ModuleOp([program]), program


def _load(body: Block, buffer: mk.BufferOp, size: int):
    load = mk.LoadOp(buffer.result, [0], (size,))
    body.add_op(load)
    return load.result


def bytes_of(buffer: mk.BufferOp) -> range:
    """The bytes of the arena that a planned buffer takes."""
    assert buffer.offset is not None
    start = buffer.offset.value.data
    return range(start, start + 4 * product(buffer.type.get_shape()))
