"""split-kv keeps what a decoder computes, for chunks of any size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amk.passes import run_pipeline
from amk.passes.split_kv import SplitKv
from tests.property.build_decoder import build
from tests.property.generate import DecoderSpec, decoders
from tests.property.running import assert_same, run


@given(decoders(), st.sampled_from((1, 2, 5, 16, 48, 256)))
def test_keeps_the_meaning(spec: DecoderSpec, chunk: int) -> None:
    module, weights = build(spec)
    before = run(module, weights, spec.vocab)
    run_pipeline(module, f"split-kv{{chunk={chunk}}}")
    names = [op.name for op in module.walk()]
    assert "lm.attention" not in names
    assert names.count("lm.attention_split") == spec.layers
    assert_same(before, run(module, weights, spec.vocab), SplitKv.tolerance)
