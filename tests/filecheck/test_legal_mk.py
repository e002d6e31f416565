"""legal-mk on what text cannot say: values that leave their tile (the parser scopes regions)."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.ir import Block, Region

from amk.errors import AmkError
from amk.ir import mk
from amk.passes import run_pipeline


@pytest.mark.parametrize("place", ["prologue", "another part"])
def test_values_do_not_escape(place: str) -> None:
    weight = mk.BufferOp("weight", "w", mk.BufferType.get((4,), f32))
    load = mk.LoadOp(weight.result, [0], (4,))
    first, second, prologue = Block(), Block(), Block()
    (prologue if place == "prologue" else first).add_op(load)
    prologue.add_op(mk.YieldOp())
    second.add_op(mk.UnaryOp("neg", load.result))
    parts = Block([mk.PartOp([1], Region(b)) for b in (first, second)])
    program = mk.ProgramOp("p", 1, 8)
    program.body.block.add_ops([weight, mk.StageOp("s", Region(prologue), Region(parts))])
    with pytest.raises(AmkError, match=r"legal-mk: uses a value of another .* stage 's'"):
        run_pipeline(ModuleOp([program]), "legal-mk", check="never")
