"""fuse only regroups: the same bits, every op in a stage, stages in an order that works."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.func import ReturnOp

from amk.ir import kv, lm
from amk.passes import run_pipeline
from tests.property.generate import DecoderSpec, decoders
from tests.property.mk_running import Lowering, build, launches
from tests.property.running import assert_same

FREE = (lm.WeightOp, lm.ConstantOp, lm.CastOp, lm.RowsOp, *lm.SHAPE)
"""Ops that may stay outside stages: they depend on weights and the position alone."""


@given(decoders(("f32", "bf16")), st.sampled_from(("epilogue", "reader")))
@settings(max_examples=20, deadline=None)
def test_keeps_every_bit(spec: DecoderSpec, whole_heads: str) -> None:
    module, weights = build(spec)
    run_pipeline(module, f"{Lowering().lm},greedy-head")
    before = launches(module, weights, spec)
    work = [op.name for op in module.walk() if isinstance(op, lm.LinearOp | lm.AttentionSplitOp)]
    run_pipeline(module, f"fuse{{whole-heads={whole_heads}}}")
    assert_same(before, launches(module, weights, spec), 0.0)
    step = next(op for op in module.ops if op.properties["sym_name"].data == "step")  # type: ignore[union-attr]
    block = step.regions[0].block
    for op in block.ops:
        assert isinstance(op, (lm.StageOp, kv.AppendOp, ReturnOp, *FREE)), op.name
    inside = [op for stage in block.ops if isinstance(stage, lm.StageOp) for op in stage.walk()]
    kept = [op.name for op in inside if isinstance(op, lm.LinearOp | lm.AttentionSplitOp)]
    assert sorted(kept) == sorted(work), "no contraction is lost or computed twice"


@given(decoders())
@settings(max_examples=15, deadline=None)
def test_few_stages(spec: DecoderSpec) -> None:
    """A layer is five stages at most: QKV, attention, output, gate and up, down (and a row)."""
    module, _ = build(spec)
    run_pipeline(module, f"{Lowering().lm},fuse")
    stages = [op for op in module.walk() if isinstance(op, lm.StageOp)]
    assert len(stages) <= 6 * spec.layers + 2
