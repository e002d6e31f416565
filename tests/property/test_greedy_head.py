"""greedy-head adds the argmax of the logits and changes nothing else."""

from __future__ import annotations

import torch
from hypothesis import given, settings

from amk.passes import run_pipeline
from tests.property.generate import DecoderSpec, decoders
from tests.property.mk_running import build, launches
from tests.property.running import LAUNCHES, assert_same


@given(decoders(("f32", "bf16")))
@settings(max_examples=20, deadline=None)
def test_adds_the_argmax(spec: DecoderSpec) -> None:
    module, weights = build(spec)
    before = launches(module, weights, spec)
    run_pipeline(module, "greedy-head")
    after = launches(module, weights, spec)
    tokens, rest = after[1 : 2 * LAUNCHES : 2], after[: 2 * LAUNCHES : 2] + after[2 * LAUNCHES :]
    assert_same(before, rest, 0.0)
    for logits, best in zip(before, tokens, strict=False):
        assert best.dtype == torch.int64
        assert torch.equal(best, logits.argmax(-1))
