"""What an emitter may rely on, looked at before it writes a line.

Emitters see one program, not the passes before it; what no pass has established they would emit
all the same: activations without a place would share bytes by their names. So each of them asks
here first.
"""

from __future__ import annotations

from amk.errors import AmkError
from amk.ir import mk
from amk.passes.legal_mk import place, program_faults
from amk.verify.certify import certify


def refuse_unready(program: mk.ProgramOp, target: str) -> None:
    """AmkError, one line that says which pass to run, unless a program is legal, has a place for
    every activation, is scheduled, and holds under every rule of `verify-mk`. `target` names the
    emitter. Costs a proof, unless the program was proved before and has not changed."""
    name = program.sym_name.data
    for fault, what in program_faults(program):
        raise AmkError(f"{target}: {name}: {what}, at {place(fault)}")
    refuse_unplaced(program, target)
    if program.schedule is None:
        raise AmkError(f"{target}: {name}: the program is not scheduled; run schedule")
    try:
        certify(program)
    except AmkError as error:
        raise AmkError(f"{target}: refuses a program that is not proved; {error}") from error


def refuse_unplaced(program: mk.ProgramOp, target: str) -> None:
    """AmkError when an activation that is used has no place in the arena."""
    for buffer in program.buffers():
        used = any(True for _ in buffer.result.uses)
        if buffer.kind.data == "activation" and buffer.offset is None and used:
            raise AmkError(
                f"{target}: {program.sym_name.data}: activation {buffer.source.data!r} has no place"
                " in the arena; run plan-buffers"
            )
