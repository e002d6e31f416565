"""`verify-mk`: proves a program for every position, or stops with the reason it is wrong.

The module stays as it is. Rules V1 … V13 and what a finding says are in docs/verify.md. With
`several-steps=true` a program that is right for one step a launch alone is refused too.
Statistics: obligations proved, shapes that were enumerated, findings.

Before:

    mk.program "pair" attributes {tokens = 1 : i64, max_seq = 64 : i64, schedule = "claimed"} {
      %w = mk.buffer "weight" "w" : !mk.buffer<1x16xf32>
      %x = mk.buffer "activation" "x" : !mk.buffer<1x16xf32>
      %y = mk.buffer "output" "logits" : !mk.buffer<1x16xf32>
      %done = mk.event
      mk.stage "first" signals(%done) prologue {
        mk.yield
      } parts {
        mk.part[1] {
          %a = mk.load %w[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
          mk.store %a, %x[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
        }
      }
      mk.stage "second" waits(%done) prologue {
        mk.yield
      } parts {
        mk.part[3] {
          %a = mk.load %x[0, t0 * 4] : !mk.buffer<1x16xf32> -> tensor<1x4xf32>
          mk.store %a, %y[0, t0 * 4] : tensor<1x4xf32> -> !mk.buffer<1x16xf32>
        }
      }
    }

The error:

    verify-mk: pair: V8 at P = 0: an element of an output is not written, y[0, 12]
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
    several_steps: bool = False
    """Demand a proof for any number of steps a launch."""
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
                certify(program, self.several_steps)
