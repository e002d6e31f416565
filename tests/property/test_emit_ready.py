"""Emitters refuse what a pass has still to see, and say which."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from amk.codegen.cpu.emit import emit_c
from amk.codegen.cuda.emit import emit_cuda, machine_of
from amk.codegen.layout import Layout
from amk.errors import AmkError
from amk.ir import mk, parse_module
from amk.passes import run_pipeline
from amk.targets import GPUS
from tests.property.family_programs import lowered

STATIC = "warp-reductions,plan-buffers,schedule{kind=static workers=3 groups=true}"


def cpu(program: mk.ProgramOp) -> object:
    return emit_c([program])


def cuda(program: mk.ProgramOp) -> object:
    gpu = GPUS["h100"][1]
    return emit_cuda(program, 0, Layout(), gpu, "test", machine_of(program, gpu))


EMITTERS = [
    pytest.param(cpu, "plan-buffers,schedule", id="cpu"),
    pytest.param(cuda, STATIC, id="cuda"),
]


def program_after(passes: str) -> mk.ProgramOp:
    module = parse_module(lowered("llama", 1))
    run_pipeline(module, passes)
    (program,) = (op for op in module.ops if isinstance(op, mk.ProgramOp))
    return program


@pytest.mark.parametrize(("emit", "passes"), EMITTERS)
def test_emits_what_every_pass_has_seen(
    emit: Callable[[mk.ProgramOp], object], passes: str
) -> None:
    assert emit(program_after(passes))


@pytest.mark.parametrize(("emit", "passes"), EMITTERS)
def test_refuses_activations_without_a_place(
    emit: Callable[[mk.ProgramOp], object], passes: str
) -> None:
    program = program_after(passes)
    placed = [b for b in program.buffers() if b.offset is not None]
    del placed[-1].properties["offset"]
    with pytest.raises(AmkError, match=r"activation '.*' has no place in the arena; run plan-buff"):
        emit(program)


@pytest.mark.parametrize(("emit", "passes"), EMITTERS)
def test_refuses_what_is_not_proved(emit: Callable[[mk.ProgramOp], object], passes: str) -> None:
    program = program_after(passes)
    placed = [b for b in program.buffers() if b.offset is not None]
    offset = placed[0].offset
    assert offset is not None
    placed[-1].properties["offset"] = placed[1].properties["offset"] = offset
    with pytest.raises(AmkError, match=r"not proved; verify-mk: .*: V6 at P = 0"):
        emit(program)


@pytest.mark.parametrize(("emit", "passes"), EMITTERS)
def test_refuses_what_is_not_legal(emit: Callable[[mk.ProgramOp], object], passes: str) -> None:
    """Two weights of one key in two shapes would be bound to one array."""
    program = program_after(passes)
    weights = [b for b in program.buffers() if b.kind.data == "weight"]
    weights[1].properties["source"] = weights[0].source
    with pytest.raises(AmkError, match="two weight buffers have the source"):
        emit(program)


def test_cuda_refuses_a_program_without_a_schedule() -> None:
    with pytest.raises(AmkError, match="cuda: the schedule is not static; run assign-workers"):
        cuda(program_after("warp-reductions,plan-buffers"))
