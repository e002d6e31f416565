"""place-kv-append changes no bit, for every choice of the place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from amk.ir import kv, lm
from amk.passes import run_pipeline
from tests.property.generate import DecoderSpec, decoders
from tests.property.mk_running import Lowering, build, launches
from tests.property.running import assert_same


@pytest.mark.parametrize("choice", ["auto", "epilogue", "stage"])
@given(spec=decoders(("f32", "bf16")))
@settings(max_examples=7, deadline=None)
def test_keeps_every_bit(choice: str, spec: DecoderSpec) -> None:
    module, weights = build(spec)
    run_pipeline(module, f"{Lowering().lm},fuse")
    before = launches(module, weights, spec)
    run_pipeline(module, f"place-kv-append{{choice={choice}}}")
    assert_same(before, launches(module, weights, spec), 0.0)
    appends = [op for op in module.walk() if isinstance(op, kv.AppendOp)]
    assert len(appends) == 2 * spec.layers
    for append in appends:
        stage = append.parent_op()
        assert isinstance(stage, lm.StageOp)
        alone = len(stage.body.block.ops) == 2
        assert alone == (choice == "stage")
