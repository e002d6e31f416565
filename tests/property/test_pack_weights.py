"""pack-weights keeps what a decoder computes; in `mk`, with sums in a fixed order, every bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from amk.ir import lm, mk
from amk.passes import run_pipeline
from amk.passes.pack_weights import PackWeights
from amk.passes.tile_rules import strip_casts
from tests.property.generate import DecoderSpec, decoders
from tests.property.mk_running import Lowering, MkDecoder, build, launches, random_tokens
from tests.property.running import assert_same

HOW = Lowering()


@given(decoders(("f32", "bf16")))
@settings(max_examples=10, deadline=None)
def test_keeps_the_meaning(spec: DecoderSpec) -> None:
    module, weights = build(spec)
    run_pipeline(module, HOW.lm)
    before = launches(module, weights, spec)
    run_pipeline(module, "pack-weights")
    assert_same(before, launches(module, weights, spec), PackWeights.tolerance)
    for op in module.walk():
        if isinstance(op, lm.LinearOp):
            weight = strip_casts(op.weight)
            row = mk.BufferType.get(lm.shape_of(weight)[1:], lm.element_of(weight))
            assert row.nbytes() % 16 == 0, "a row that 16-byte loads cannot take"


def test_no_bit_changes() -> None:
    """Widths of 12 and 10 and 7: rows of 24, 20 and 14 bytes in bf16."""
    for dtype in ("f32", "bf16"):
        spec = DecoderSpec(tokens=3, layers=2, width=10, inner=7, group=3, dtype=dtype, bias=True)
        outputs = []
        for pack in ("", "pack-weights,"):
            module, weights = build(spec)
            run_pipeline(module, f"{HOW.lm},{pack}{HOW.stages},{HOW.mk}")
            decoder = MkDecoder(module, weights)
            outputs.append([decoder.step(t) for t in random_tokens(spec, 2)])
        np.testing.assert_array_equal(*outputs)
