"""`minimize-waits`: removes every wait that the proof of `verify-mk` does not need.

Waits are tried from the last to the first; one goes when the program without it is still right at
every position. Under a static schedule the order of a worker's list counts, so more may go. Events
that nothing waits for any more go too. Statistics: waits before, waits removed, events removed.

Before:

    mk.program "three" attributes {tokens = 1 : i64, max_seq = 64 : i64, schedule = "claimed"} {
      %w = mk.buffer "weight" "w" : !mk.buffer<1x16xf32>
      %x = mk.buffer "activation" "x" : !mk.buffer<1x16xf32>
      %z = mk.buffer "activation" "z" : !mk.buffer<1x16xf32>
      %y = mk.buffer "output" "logits" : !mk.buffer<1x16xf32>
      %a = mk.event
      %b = mk.event
      mk.stage "first" signals(%a) prologue {
        mk.yield
      } parts {
        mk.part[1] {
          %0 = mk.load %w[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
          mk.store %0, %x[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
        }
      }
      mk.stage "second" waits(%a) signals(%b) prologue {
        mk.yield
      } parts {
        mk.part[4] {
          %1 = mk.load %x[0, t0 * 4] : !mk.buffer<1x16xf32> -> tensor<1x4xf32>
          mk.store %1, %z[0, t0 * 4] : tensor<1x4xf32> -> !mk.buffer<1x16xf32>
        }
      }
      mk.stage "third" waits(%a, %b) prologue {
        mk.yield
      } parts {
        mk.part[1] {
          %2 = mk.load %x[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
          %3 = mk.load %z[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
          %4 = mk.binary "add" %2, %3 : tensor<1x16xf32>, tensor<1x16xf32> -> tensor<1x16xf32>
          mk.store %4, %y[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
        }
      }
    }

After:

    mk.program "three" attributes {tokens = 1 : i64, max_seq = 64 : i64, schedule = "claimed"} {
      %w = mk.buffer "weight" "w" : !mk.buffer<1x16xf32>
      %x = mk.buffer "activation" "x" : !mk.buffer<1x16xf32>
      %z = mk.buffer "activation" "z" : !mk.buffer<1x16xf32>
      %y = mk.buffer "output" "logits" : !mk.buffer<1x16xf32>
      %a = mk.event
      %b = mk.event
      mk.stage "first" signals(%a) prologue {
        mk.yield
      } parts {
        mk.part[1] {
          %0 = mk.load %w[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
          mk.store %0, %x[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
        }
      }
      mk.stage "second" waits(%a) signals(%b) prologue {
        mk.yield
      } parts {
        mk.part[4] {
          %1 = mk.load %x[0, t0 * 4] : !mk.buffer<1x16xf32> -> tensor<1x4xf32>
          mk.store %1, %z[0, t0 * 4] : tensor<1x4xf32> -> !mk.buffer<1x16xf32>
        }
      }
      mk.stage "third" waits(%b) prologue {
        mk.yield
      } parts {
        mk.part[1] {
          %2 = mk.load %x[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
          %3 = mk.load %z[0, 0] : !mk.buffer<1x16xf32> -> tensor<1x16xf32>
          %4 = mk.binary "add" %2, %3 : tensor<1x16xf32>, tensor<1x16xf32> -> tensor<1x16xf32>
          mk.store %4, %y[0, 0] : tensor<1x16xf32> -> !mk.buffer<1x16xf32>
        }
      }
    }
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, i32
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from amk.ir import mk
from amk.verify.certify import certify
from amk.verify.needs import Awaited, Needs


@dataclass(frozen=True)
class MinimizeWaits(ModulePass):
    name = "minimize-waits"
    statistics: dict[str, int] = field(default_factory=dict, init=False, compare=False)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in op.walk():
            if isinstance(program, mk.ProgramOp):
                for name, count in minimize(program).items():
                    self.statistics[name] = self.statistics.get(name, 0) + count


def minimize(program: mk.ProgramOp) -> dict[str, int]:
    """Removes what is not needed; raises AmkError when the program is wrong to begin with."""
    certify(program)
    needs = Needs(program)
    waits = needs.waits()
    gone = [w for w in reversed(waits) if needs.without(w) is None and drop(needs, w)]
    events = remove_unused_events(program)
    return {"waits before": len(waits), "waits removed": len(gone), "events removed": events}


def drop(needs: Needs, awaited: Awaited) -> bool:
    """Takes a wait out of the facts and out of the program."""
    needs.remove(awaited)
    if awaited.wait is not None:
        awaited.wait.op.detach()
        awaited.wait.op.erase()
        return True
    stage = awaited.stage.op
    event = awaited.event.op.result
    set_operands(stage, [v for v in stage.waits if v is not event], list(stage.signals))
    return True


def set_operands(stage: mk.StageOp, waits: list[SSAValue], signals: list[SSAValue]) -> None:
    stage.operands = [*waits, *signals]
    stage.properties["operandSegmentSizes"] = DenseArrayBase.from_list(
        i32, [len(waits), len(signals)]
    )


def remove_unused_events(program: mk.ProgramOp) -> int:
    """Events that nothing waits for, with their signals."""
    count = 0
    for event in program.events():
        users = [use.operation for use in event.result.uses]
        waited = any(
            isinstance(op, mk.WaitOp) or (isinstance(op, mk.StageOp) and event.result in op.waits)
            for op in users
        )
        if waited:
            continue
        for op in users:
            if isinstance(op, mk.SignalOp):
                op.detach()
                op.erase()
            else:
                assert isinstance(op, mk.StageOp)
                kept = [v for v in op.signals if v is not event.result]
                set_operands(op, list(op.waits), kept)
        event.detach()
        event.erase()
        count += 1
    return count
