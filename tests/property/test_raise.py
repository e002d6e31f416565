"""raise finds each norm, rope and gated activation, and keeps what a decoder computes."""

from __future__ import annotations

from hypothesis import given

from amk.passes import run_pipeline
from amk.passes.raise_ import Raise
from tests.property.build_decoder import build
from tests.property.generate import ANY_CACHE, DecoderSpec, decoders
from tests.property.running import assert_same, over_cache, run


def keeps_bits(spec: DecoderSpec) -> bool:
    """Whether everything raised in `spec` is marked so in docs/passes/raise.md."""
    steps = spec.norm in ("layer-steps", "layer-no-bias", "rms-power")
    return not steps and spec.activation != "gelu-steps"


@given(ANY_CACHE)
def test_keeps_the_meaning(spec: DecoderSpec) -> None:
    module, weights = build(spec)
    run_pipeline(module, "promote-f32,split-kv,canonicalize")
    before = run(module, weights, spec.vocab)
    run_pipeline(module, "raise")
    tolerance = 0.0 if keeps_bits(spec) else Raise.tolerance
    tolerance = over_cache(tolerance, spec.cache_dtype)
    assert_same(before, run(module, weights, spec.vocab), tolerance)


@given(decoders(("f32", "bf16")))
def test_raises_everything(spec: DecoderSpec) -> None:
    module, _ = build(spec)
    run_pipeline(module, "promote-f32,canonicalize,raise")
    names = [op.name for op in module.walk()]
    norm = "lm.layer_norm" if spec.norm.startswith("layer") else "lm.rms_norm"
    a_layer = (1 if spec.parallel else 2) + (2 if spec.qk_norm else 0)
    assert names.count(norm) == spec.layers * a_layer + 1
    ropes = 2 * spec.layers if spec.positions.startswith("rope") else 0
    assert names.count("lm.rope") == ropes
    gated = spec.layers if spec.mlp.startswith("gated") else 0
    assert names.count("lm.gated_act") == gated
    assert not {"lm.mean", "lm.rsqrt", "lm.neg", "lm.pow_scalar"} & set(names)
    assert (spec.logits_softcap is not None) == ("lm.tanh" in names)


@given(decoders())
def test_second_run_finds_nothing(spec: DecoderSpec) -> None:
    module, _ = build(spec)
    run_pipeline(module, "canonicalize,raise")
    text = str(module)
    [report] = run_pipeline(module, "raise")
    assert not report.statistics
    assert str(module) == text
