"""`verify-mk`: proves a program for every position, or stops with the reason it is wrong.

The module stays as it is. Rules V1 … V13 and what a finding says are in docs/verify.md.
Statistics: obligations proved, shapes that were enumerated, findings.

Before and after (a wait too few, so it stops here):

    %e = mk.event
    mk.stage "a" signals(%e) prologue { … } parts { … store to %x … }
    mk.stage "b" prologue { … load from %x … } parts { … }

    verify-mk: decode: V4 at P = 0: a read may come before its write, x[0:1, 0:64]: …
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from amk.ir import mk
from amk.verify.certify import certify, proof_of


@dataclass(frozen=True)
class VerifyMk(ModulePass):
    name = "verify-mk"
    statistics: dict[str, int] = field(default_factory=dict, init=False, compare=False)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        totals: dict[str, int] = {"obligations": 0, "shapes enumerated": 0, "findings": 0}
        for program in op.walk():
            if isinstance(program, mk.ProgramOp):
                report = proof_of(program)
                totals["obligations"] += sum(report.obligations.values())
                totals["shapes enumerated"] += report.exhausted
                totals["findings"] += len(report.findings)
                self.statistics.update(totals)
                certify(program)
