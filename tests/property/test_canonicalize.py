"""canonicalize keeps what a decoder computes, comes to an end, and finds nothing twice."""

from __future__ import annotations

from hypothesis import given

from amk.ir import lm
from amk.passes import run_pipeline
from amk.passes.canonicalize import Canonicalize
from tests.property.build_decoder import build
from tests.property.generate import ANY_CACHE, DecoderSpec, decoders
from tests.property.running import assert_same, over_cache, run

SUMS_IN_ANOTHER_ORDER = {
    "addmm_is_linear",
    "matmul_by_weight_is_linear",
    "linear_of_matrix",
    "slice_of_linear",
}


@given(ANY_CACHE)
def test_keeps_the_meaning(spec: DecoderSpec) -> None:
    module, weights = build(spec)
    if spec.dtype == "bf16":
        run_pipeline(module, "promote-f32,split-kv")
    before = run(module, weights, spec.vocab)
    [report] = run_pipeline(module, "canonicalize")
    changed = SUMS_IN_ANOTHER_ORDER & report.statistics.keys()
    tolerance = Canonicalize.tolerance if changed else 0.0
    tolerance = over_cache(tolerance, spec.cache_dtype)
    assert_same(before, run(module, weights, spec.vocab), tolerance)


@given(decoders(("f32", "bf16")))
def test_second_run_finds_nothing(spec: DecoderSpec) -> None:
    module, _ = build(spec)
    run_pipeline(module, "canonicalize")
    text = str(module)
    [report] = run_pipeline(module, "canonicalize")
    assert not report.statistics
    assert str(module) == text


@given(decoders())
def test_products_are_linears(spec: DecoderSpec) -> None:
    """Every product with a weight is a linear, and no fused projection is left."""
    module, _ = build(spec)
    run_pipeline(module, "canonicalize")
    names = [op.name for op in module.walk()]
    assert "lm.addmm" not in names
    projections = 4 + (3 if spec.mlp.startswith("gated") else 2)
    assert names.count("lm.linear") == spec.layers * projections + 1
    for op in module.walk():
        if isinstance(op, lm.LinearOp):
            assert len(lm.shape_of(op.result)) == 3
