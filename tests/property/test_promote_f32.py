"""promote-f32: an f32 model keeps its bits; a bf16 model becomes the f32 model of its weights."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings

from amk.passes import run_pipeline
from amk.passes.promote_f32 import PromoteF32
from tests.property.build_decoder import build
from tests.property.generate import DecoderSpec, decoders
from tests.property.running import assert_same, run


@given(decoders())
def test_f32_keeps_every_bit(spec: DecoderSpec) -> None:
    module, weights = build(spec)
    before = run(module, weights, spec.vocab)
    text = str(module)
    run_pipeline(module, "promote-f32")
    assert str(module) == text
    assert_same(before, run(module, weights, spec.vocab), 0.0)


@given(decoders(("bf16",)))
def test_bf16_becomes_the_f32_model(spec: DecoderSpec) -> None:
    """The same bits as the model built in f32 on the same weights, its caches still bf16."""
    module, weights = build(spec)
    run_pipeline(module, "promote-f32,split-kv")
    wide, _ = build(dataclasses.replace(spec, dtype="f32", cache_dtype="bf16"))
    run_pipeline(wide, "split-kv")
    expected = run(wide, {k: v.float() for k, v in weights.items()}, spec.vocab)
    assert_same(expected, run(module, weights, spec.vocab), 0.0)


@given(decoders(("bf16",)))
@settings(derandomize=True)
def test_bf16_stays_within_tolerance(spec: DecoderSpec) -> None:
    """On fixed examples: how far bf16 roundings carry has no bound, a norm of almost nothing
    magnifies them."""
    module, weights = build(spec)
    before = run(module, weights, spec.vocab)
    run_pipeline(module, "promote-f32,split-kv")
    after = run(module, weights, spec.vocab)
    assert_same(before[:1], after[:1], PromoteF32.tolerance)
