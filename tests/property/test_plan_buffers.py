"""plan-buffers never lets two live buffers share a byte, and never needs more than all of them."""

from __future__ import annotations

from hypothesis import given, settings

from amk.ir import mk
from amk.passes import run_pipeline
from tests.property.generate import DecoderSpec, decoders
from tests.property.mk_running import LOWERINGS, Lowering, lower, program_of
from tests.property.programs import ProgramSpec, StageSpec, build_program, bytes_of, programs


def check(program: mk.ProgramOp) -> None:
    lives: list[tuple[mk.BufferOp, int, int]] = []
    stages = program.stages()
    for buffer in program.buffers():
        touched = [
            i
            for i, stage in enumerate(stages)
            for op in stage.walk()
            if buffer.result in op.operands
        ]
        if buffer.kind.data != "activation" or not touched:
            assert buffer.offset is None
            continue
        first, last = min(touched), max(touched)
        assert buffer.lifetime is not None
        assert mk.numbers(buffer.lifetime) == [first, last]
        lives.append((buffer, first, last))
    assert program.arena is not None
    arena = program.arena.value.data
    for i, (a, first, last) in enumerate(lives):
        assert bytes_of(a).start % 64 == 0
        assert bytes_of(a).stop <= arena
        for b, start, end in lives[:i]:
            if first <= end and start <= last:
                assert not range_overlap(bytes_of(a), bytes_of(b)), (a, b)
    padded = {b: -(-len(bytes_of(b)) // 64) * 64 for b, _, _ in lives}
    assert arena <= sum(padded.values())
    busiest = max(
        (
            sum(padded[b] for b, first, last in lives if first <= i <= last)
            for i in range(len(stages))
        ),
        default=0,
    )
    assert arena >= busiest


def range_overlap(a: range, b: range) -> bool:
    return a.start < b.stop and b.start < a.stop


@given(programs())
@settings(max_examples=200, deadline=None)
def test_random_programs(spec: ProgramSpec) -> None:
    module, program = build_program(spec)
    [report] = run_pipeline(module, "plan-buffers")
    check(program)
    assert program.arena is not None
    assert report.statistics["arena bytes after"] == program.arena.value.data
    assert report.statistics["arena bytes before"] >= program.arena.value.data


@given(decoders(), LOWERINGS)
@settings(max_examples=8, deadline=None)
def test_decoders(spec: DecoderSpec, how: Lowering) -> None:
    module, _ = lower(spec, how)
    check(program_of(module))


def test_chain_needs_two_buffers() -> None:
    """A chain of stages of one width runs in the bytes of two of them."""
    stages = tuple(((), (0,)) if i == 0 else ((i - 1,), (i,)) for i in range(6))
    spec = ProgramSpec((16,) * 6, tuple(StageSpec(*s) for s in stages))
    module, program = build_program(spec)
    run_pipeline(module, "plan-buffers")
    assert program.arena is not None
    assert program.arena.value.data == 2 * 64
