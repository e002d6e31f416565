"""Certificates: a proof of a program, kept while the program does not change."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from amk.errors import AmkError
from amk.ir import mk
from amk.verify.check import prove
from amk.verify.findings import Certificate, Report
from amk.verify.fingerprint import fingerprint

_proofs: WeakKeyDictionary[mk.ProgramOp, tuple[str, Report]] = WeakKeyDictionary()


def proof_of(program: mk.ProgramOp) -> Report:
    """The report of a program; proved anew only when the program changed since the last time."""
    now = fingerprint(program)
    known = _proofs.get(program)
    if known is None or known[0] != now:
        known = _proofs[program] = (now, prove(program))
    return known[1]


def certify(program: mk.ProgramOp) -> Certificate:
    """The certificate of a program. Raises AmkError with the first finding of one that is wrong."""
    report = proof_of(program)
    if not report.holds:
        more = len(report.findings) - 1
        rest = f" (and {more} more; `amk explain` shows them)" if more else ""
        raise AmkError(f"verify-mk: {program.sym_name.data}: {report.findings[0]}{rest}")
    return report.certificate(_proofs[program][0])
