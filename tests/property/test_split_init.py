"""split-init leaves nothing of weights or positions alone in @step, and changes no result."""

from __future__ import annotations

from hypothesis import given
from xdsl.dialects.builtin import Float32Type

from amk.ir import lm
from amk.passes import run_pipeline
from amk.passes.rewriting import function, step_of
from amk.passes.split_init import SplitInit, fixed_values, init_names, is_leaf
from tests.property.build_decoder import build
from tests.property.generate import MAX_SEQ, DecoderSpec, decoders
from tests.property.running import assert_same, run


@given(decoders(("f32", "bf16")))
def test_keeps_the_meaning(spec: DecoderSpec) -> None:
    module, weights = build(spec)
    run_pipeline(module, "promote-f32,split-kv,canonicalize,raise")
    before = run(module, weights, spec.vocab)
    run_pipeline(module, "split-init")
    assert_same(before, run(module, weights, spec.vocab), SplitInit.tolerance)


@given(decoders(("f32",)))
def test_works_on_a_fresh_import(spec: DecoderSpec) -> None:
    """Nothing canonical or raised: views and fused weights still split."""
    module, weights = build(spec)
    before = run(module, weights, spec.vocab)
    run_pipeline(module, "split-init")
    assert_same(before, run(module, weights, spec.vocab), SplitInit.tolerance)


@given(decoders(("f32", "bf16")))
def test_nothing_is_left(spec: DecoderSpec) -> None:
    module, _ = build(spec)
    run_pipeline(module, "promote-f32,canonicalize,raise,split-init")
    block = step_of(module, "test").body.block
    fixed = fixed_values(block, (lm.WeightOp, lm.ConstantOp))
    assert all(is_leaf(v) for v in fixed)
    names = [op.name for op in block.ops]
    assert not {"lm.positions", "lm.cos", "lm.sin"} & set(names)
    if spec.positions.startswith("rope"):
        # One table of each for all layers.
        assert names.count("lm.rows") == 2
        tables = {op.key.data: op for op in block.ops if isinstance(op, lm.WeightOp)}
        for key in ("@init/rope_cos", "@init/rope_sin"):
            assert lm.shape_of(tables[key].result) == (MAX_SEQ, spec.rotary)


@given(decoders(("bf16",)))
def test_layouts_keep_the_storage_dtype(spec: DecoderSpec) -> None:
    module, _ = build(spec)
    run_pipeline(module, "promote-f32,canonicalize,raise,split-init")
    init = function(module, "init")
    if init is None:
        return
    for name, result in zip(init_names(init), init.function_type.outputs, strict=True):
        computed = "+1" in name or name.startswith("rope_")
        assert (result.element_type == Float32Type()) == computed, name  # type: ignore[attr-defined]


@given(decoders(("f32", "bf16")))
def test_second_run_changes_nothing(spec: DecoderSpec) -> None:
    module, _ = build(spec)
    run_pipeline(module, "promote-f32,canonicalize,raise,split-init")
    text = str(module)
    run_pipeline(module, "split-init")
    assert str(module) == text
