"""Certificates: a proof of a program, kept while the program does not change."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from amk.errors import AmkError
from amk.ir import mk
from amk.verify.check import prove
from amk.verify.findings import STEPS, Certificate, Report
from amk.verify.fingerprint import fingerprint

_proofs: WeakKeyDictionary[mk.ProgramOp, tuple[str, Report]] = WeakKeyDictionary()


def proof_of(program: mk.ProgramOp) -> Report:
    """The report of a program; proved anew only when the program changed since the last time."""
    now = fingerprint(program)
    known = _proofs.get(program)
    if known is None or known[0] != now:
        known = _proofs[program] = (now, prove(program))
    return known[1]


def certify(program: mk.ProgramOp, several_steps: bool = False) -> Certificate:
    """The certificate of a program. Raises AmkError with the first finding of one that is wrong,
    or, when `several_steps` a launch are wanted, that is right for one step alone."""
    report, name = proof_of(program), program.sym_name.data
    found = report.findings or (report.step_findings if several_steps else [])
    if found:
        more = len(found) - 1
        rest = f" (and {more} more; `amk explain` shows them)" if more else ""
        raise AmkError(f"verify-mk: {name}: {found[0]}{rest}")
    if several_steps and report.steps == STEPS[0]:
        raise AmkError(f"verify-mk: {name}: no greedy head, so a launch takes one step")
    return report.certificate(_proofs[program][0])
