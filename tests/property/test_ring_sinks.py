"""Rings with sinks in lowered decoders: what `lm` means by them, proved, and seen by the oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from xdsl.dialects.builtin import ModuleOp

from amk.ir import mk
from amk.ir.lm import integer
from amk.passes import run_pipeline
from amk.verify import prove
from tests.property.generate import DecoderSpec
from tests.property.mk_running import (
    Lowering,
    MkDecoder,
    build,
    launches,
    program_of,
    random_tokens,
)
from tests.property.running import distance
from tests.property.soundness import compare

SPEC = DecoderSpec(tokens=3, kv_heads=2, group=2, window=7, first_rows=2, layers=2)
SMALL = DecoderSpec(tokens=3, window=7, first_rows=2)
COUNT = 15
POLICY = "kv-policy{tokens=3 max-seq=64}"


def lowered(spec: DecoderSpec = SPEC) -> tuple[ModuleOp, dict[str, torch.Tensor]]:
    how, (module, weights) = Lowering(tile_bytes=4096), build(spec)
    run_pipeline(module, f"{how.lm},{POLICY},{how.stages},{how.mk},verify-mk")
    return module, weights


def test_rings_keep_the_meaning() -> None:
    """Launches of three over a ring of 16, the rows that stay and chunks of 16, to position 45."""
    module, weights = build(SPEC)
    run_pipeline(module, f"{Lowering().lm},{POLICY}")
    tokens = random_tokens(SPEC, COUNT)
    expected = launches(module, weights, SPEC, COUNT)
    decoder = MkDecoder(*lowered())
    rings = [b for b in decoder.program.buffers() if b.ring_rows]
    assert [(b.ring_rows, b.sink_rows) for b in rings] == [(16, 2)] * 4
    for i, ids in enumerate(tokens):
        logits = decoder.step(ids, 3, seed=i)
        assert distance(expected[i][0], torch.from_numpy(logits)) <= 2e-5, i


def test_the_oracle_agrees() -> None:
    outcome = compare(program_of(lowered(SMALL)[0]))
    assert outcome.report.holds
    assert not outcome.unsound


@pytest.mark.parametrize("rows", [10, 9])
def test_a_ring_too_short_is_found(rows: int) -> None:
    """2 that stay and 7 − 1 + 3: with ten rows, or nine, a launch writes over one it reads."""
    program = program_of(lowered(SMALL)[0])
    for buffer in program.buffers():
        if buffer.ring_rows:
            buffer.properties["rows"] = integer(rows)
    assert {f.rule for f in prove(program).findings} == {"V3"}
    assert not compare(program).false


def test_rows_that_stay_are_seen() -> None:
    """Without them the logits differ: the test above would notice."""
    decoder, other = MkDecoder(*lowered()), MkDecoder(*lowered())
    for op in other.program.walk():
        if isinstance(op, mk.AttentionOp) and op.high is not None:
            op.properties["high"] = integer(1)
    pairs = [(decoder.step(ids), other.step(ids)) for ids in random_tokens(SPEC, 6)]
    assert not np.array_equal(pairs[-1][0], pairs[-1][1])
