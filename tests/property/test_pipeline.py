"""The passes on lm together: legal IR, the same results, and text that loses nothing."""

from __future__ import annotations

from hypothesis import given
from xdsl.parser import Parser

from amk.ir import context
from amk.passes import parse_passes, run_pipeline
from tests.property.build_decoder import build
from tests.property.generate import DecoderSpec, decoders
from tests.property.running import assert_same, run


@given(decoders())
def test_keeps_the_meaning(spec: DecoderSpec) -> None:
    module, weights = build(spec)
    before = run(module, weights, spec.vocab)
    tolerance = sum(getattr(p, "tolerance", 0.0) for p in parse_passes("amk-lm")[1:])
    run_pipeline(module, "amk-lm")
    assert_same(before, run(module, weights, spec.vocab), tolerance)


@given(decoders(("f32", "bf16")))
def test_text_round_trip(spec: DecoderSpec) -> None:
    module, _ = build(spec)
    for _ in range(2):
        text = str(module)
        assert str(Parser(context(), text).parse_module()) == text
        run_pipeline(module, "amk-lm")
