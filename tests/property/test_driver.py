"""The rule driver and the pipeline runner: they stop, and they say which pass was wrong."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, NameLoc, NoneAttr, StringAttr
from xdsl.ir import SSAValue
from xdsl.parser import Parser

from amk import passes
from amk.errors import AmkError
from amk.ir import context, lm
from amk.passes import parse_passes, run_pipeline
from amk.passes.rewriting import Build, LmPass, rewrite

TEXT = """
func.func @step(%x: tensor<4xf32>, %pos: index) -> tensor<4xf32> {
  %y = lm.neg %x : tensor<4xf32>
  %z = lm.abs %y : tensor<4xf32>
  func.return %z : tensor<4xf32>
}
"""


def module() -> ModuleOp:
    return Parser(context(), TEXT).parse_module()


def abs_becomes_exp(op: lm.AbsOp, build: Build) -> SSAValue:
    return build(lm.ExpOp(op.input))


def test_new_ops_take_name_and_location() -> None:
    m = module()
    [old] = [op for op in m.walk() if isinstance(op, lm.AbsOp)]
    place = NameLoc(StringAttr("layers.3.mlp"), NoneAttr())
    old.location = place
    counts = rewrite(m, {lm.AbsOp: (abs_becomes_exp,)}, "test")
    [new] = [op for op in m.walk() if isinstance(op, lm.ExpOp)]
    assert counts == {"abs_becomes_exp": 1}
    assert new.location == place
    assert new.result.name_hint == "z"


def test_rules_without_end_are_stopped() -> None:
    def again(op: lm.AbsOp, build: Build) -> SSAValue:
        return build(lm.AbsOp(op.input))

    with pytest.raises(AmkError, match=r"test: again does not come to an end at lm\.abs"):
        rewrite(module(), {lm.AbsOp: (again,)}, "test")


def test_a_rule_may_not_change_a_type() -> None:
    def wrong(op: lm.AbsOp, build: Build) -> SSAValue:
        return build(lm.ReshapeOp(op.input, (2, 2)))

    with pytest.raises(AmkError, match=r"test: wrong changes a type at lm\.abs"):
        rewrite(module(), {lm.AbsOp: (wrong,)}, "test")


def test_a_rule_that_declines_leaves_nothing() -> None:
    def declines(op: lm.AbsOp, build: Build) -> None:
        build(lm.ExpOp(op.input))

    m = module()
    text = str(m)
    assert not rewrite(m, {lm.AbsOp: (declines,)}, "test")
    assert str(m) == text


@dataclass(frozen=True)
class Breaks(LmPass):
    """Leaves IR that does not verify: a value used before it is defined, or a wrong shape."""

    name = "breaks"
    how: str = "order"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        [neg] = [o for o in op.walk() if isinstance(o, lm.NegOp)]
        [absolute] = [o for o in op.walk() if isinstance(o, lm.AbsOp)]
        if self.how == "order":
            block = neg.parent
            assert block is not None
            neg.detach()
            block.insert_op_after(neg, absolute)
        else:
            build = Build(absolute)
            wrong = lm.AddOp(neg.result, neg.result, lm.tensor((5,), lm.element_of(neg.result)))
            build(wrong)


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("order", "operand 0 is used before it is defined, at lm.abs"),
        ("shape", r"lm L2: the broadcast shape is \(4,\), at lm.add"),
    ],
)
def test_the_error_names_the_pass(how: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(passes.PASSES, "breaks", lambda: Breaks)
    with pytest.raises(AmkError, match=f"^after pass breaks the module is invalid: {what}$"):
        run_pipeline(module(), f'canonicalize,breaks{{how="{how}"}},dce')


def test_on_pass_is_told_name_and_time() -> None:
    told: list[tuple[str, float]] = []
    reports = run_pipeline(
        module(), "canonicalize,dce", on_pass=lambda name, m, s: told.append((name, s))
    )
    assert [name for name, _ in told] == ["canonicalize", "dce"] == [r.name for r in reports]
    assert all(seconds >= 0 for _, seconds in told)


def test_pipeline_options_reach_the_passes_that_have_them() -> None:
    found = {p.name: p for p in parse_passes("amk-lm{max-seq=77 chunk=9}")}
    assert found["split-init"].max_seq == found["split-kv"].max_seq == 77  # type: ignore[attr-defined]
    assert found["split-kv"].chunk == 9  # type: ignore[attr-defined]
    with pytest.raises(AmkError, match="no pass has the option 'chunks'"):
        parse_passes("amk-lm{chunks=9}")


def test_every_pipeline_can_be_read() -> None:
    for name in passes.PIPELINES:
        assert parse_passes(name)
