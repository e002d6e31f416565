"""`legal-mk`: refuses a program that is only half lowered.

Stands after `lower-lm-to-mk`, so that a fault is caught here and not in an emitter. Changes
nothing; the error names the first op that breaks a rule and the stage it stands in. What a program
does with memory at each position is proved by `verify-mk`; these rules look at the text alone.

Before:

    mk.program "decode" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
      %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
      %embed = mk.buffer "weight" "embed.weight" : !mk.buffer<97x32xf32>
      %x = mk.buffer "activation" "x" : !mk.buffer<1x32xf32>
      %logits = mk.buffer "output" "logits" : !mk.buffer<1x32xf32>
      mk.stage "embed" prologue {
        mk.yield
      } parts {
        mk.part [1] {
          %a = mk.gather %embed, %tokens[0]
            : !mk.buffer<97x32xf32>, !mk.buffer<1x1xi64> -> tensor<1x32xf32>
          mk.store %a, %x[0, 0] : tensor<1x32xf32> -> !mk.buffer<1x32xf32>
        }
      }
    }

The error, with `legal-mk`:

    legal-mk: output 'logits' is written by no stage, at mk.buffer
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from amk.errors import AmkError
from amk.ir import mk
from amk.passes.rewriting import where

Fault = tuple[Operation, str]
"""An op, and what is wrong there."""

READ_FROM: dict[tuple[type[Operation], str], tuple[str, ...]] = {
    (mk.MatmulOp, "weight"): ("weight", "constant"),
    (mk.GatherOp, "table"): ("weight", "constant"),
    (mk.GatherOp, "indices"): ("input",),
    (mk.AttentionOp, "keys"): ("cache",),
    (mk.AttentionOp, "values"): ("cache",),
    (mk.AttentionOp, "key_scales"): ("cache",),
    (mk.AttentionOp, "value_scales"): ("cache",),
}
"""The kinds of buffer that an operand may name."""


@dataclass(frozen=True)
class LegalMk(ModulePass):
    name = "legal-mk"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for fault, what in faults(op):
            raise AmkError(f"legal-mk: {what}, at {place(fault)}")


def place(op: Operation) -> str:
    """Where an op stands: its stage, if it has one, and what it is."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, mk.StageOp):
        parent = parent.parent_op()
    return f"stage {parent.sym_name.data!r} ({op.name})" if parent is not None else where(op)


def faults(module: ModuleOp) -> Iterator[Fault]:
    """Each rule that something in the module breaks, in the order of docs/passes/legal-mk.md."""
    programs = [op for op in module.ops if isinstance(op, mk.ProgramOp)]
    for op in module.ops:
        if isinstance(op, FuncOp) and op.sym_name.data != "init":
            yield op, f"@{op.sym_name.data} is left; run lower-lm-to-mk"
    if not programs:
        yield module, "the module has no mk.program; run lower-lm-to-mk"
    for program in programs:
        yield from program_faults(program)
        yield from unbound(program)


def program_faults(program: mk.ProgramOp) -> Iterator[Fault]:
    """What any program must keep to, whoever launches it; emitters ask for this too."""
    for rule in (foreign_ops, escapes, kinds, unwritten, names):
        yield from rule(program)


def foreign_ops(program: mk.ProgramOp) -> Iterator[Fault]:
    for op in program.walk():
        if not op.name.startswith("mk."):
            yield op, f"{op.name} in a program"


def escapes(program: mk.ProgramOp) -> Iterator[Fault]:
    """A tile sees its own values, what its prologue yields, and the program's declarations."""
    for stage in program.stages():
        bodies = [stage.prologue.block, *(part.body.block for part in stage.part_ops())]
        for body in bodies:
            seen: set[SSAValue] = {*program_values(program), *body.args}
            if body is not stage.prologue.block:
                seen |= {*stage.parts.block.args}
            for op in body.ops:
                if any(v not in seen for v in op.operands):
                    yield op, "uses a value of another tile or of the prologue; let it be yielded"
                seen |= {*op.results}


def program_values(program: mk.ProgramOp) -> Iterator[SSAValue]:
    return (r for op in program.body.block.ops for r in op.results)


def kinds(program: mk.ProgramOp) -> Iterator[Fault]:
    for op in program.walk():
        if isinstance(op, mk.StoreOp):
            kind = mk.buffer_of(op.buffer).kind.data
            if kind not in mk.WRITABLE:
                yield op, f"a store into a buffer of kind {kind!r}, which is read only"
        for (owner, operand), allowed in READ_FROM.items():
            if isinstance(op, owner) and getattr(op, operand) is not None:
                kind = mk.buffer_of(getattr(op, operand)).kind.data
                if kind not in allowed:
                    expected = " or ".join(allowed)
                    yield op, f"{operand} of {op.name} of kind {kind!r}, not {expected}"


def unwritten(program: mk.ProgramOp) -> Iterator[Fault]:
    """Activations are written before they are read, outputs and caches are written at all."""
    written: set[mk.BufferOp] = set()
    for stage in program.stages():
        stores = [op for op in stage.walk() if isinstance(op, mk.StoreOp)]
        for op in stage.walk():
            if isinstance(op, mk.StoreOp):
                continue
            for v in op.operands:
                if not isinstance(v.type, mk.BufferType):
                    continue
                buffer = mk.buffer_of(v)
                if buffer.kind.data in ("activation", "output") and buffer not in written:
                    yield op, f"{buffer.source.data!r} is read before a stage has written it"
        written |= {mk.buffer_of(op.buffer) for op in stores}
    for buffer in program.buffers():
        if buffer.kind.data in ("output", "cache") and buffer not in written:
            yield buffer, f"{buffer.kind.data} {buffer.source.data!r} is written by no stage"


def names(program: mk.ProgramOp) -> Iterator[Fault]:
    """The host finds buffers by kind and source: each but activations must be alone."""
    found: set[tuple[str, str]] = set()
    for buffer in program.buffers():
        key = (buffer.kind.data, buffer.source.data)
        if key in found and buffer.kind.data != "activation":
            yield buffer, f"two {key[0]} buffers have the source {key[1]!r}"
        found.add(key)


def unbound(program: mk.ProgramOp) -> Iterator[Fault]:
    """The buffers that a session gives tokens to and takes logits from."""
    found = {(b.kind.data, b.source.data) for b in program.buffers()}
    for key in (("input", "tokens"), ("output", "logits")):
        if key not in found:
            yield program, f"the program has no {key[0]} buffer {key[1]!r}"
