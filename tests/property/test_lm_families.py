"""The passes on lm on imported families: what is raised in each, and the same logits."""

from __future__ import annotations

from collections import Counter

import pytest
from xdsl.dialects.builtin import IntegerAttr, i64

from amk.frontend.hf import import_model
from amk.passes import run_pipeline
from amk.passes.rewriting import step_of
from tests import families
from tests.property.running import assert_same, run

MAX_SEQ = 64
TOLERANCE = 1e-5

# rms_norm, layer_norm, rope, gated_act and linear in @step.
EXPECTED: dict[str, tuple[int, int, int, int, int]] = {
    "llama": (5, 0, 4, 2, 15),
    "qwen3": (9, 0, 4, 2, 15),
    "gemma3": (19, 0, 6, 3, 22),
    "phi": (0, 3, 4, 0, 13),
    "phi3": (5, 0, 4, 2, 15),
    "gpt2": (0, 5, 0, 0, 13),
    "gpt-neox": (0, 5, 4, 0, 13),
    "olmo2": (9, 0, 4, 2, 15),
    "stablelm": (0, 17, 4, 2, 15),
    "cohere": (0, 7, 0, 2, 15),
    "smollm3": (7, 0, 4, 3, 22),
    "starcoder2": (0, 5, 4, 0, 13),
}
COUNTED = ("lm.rms_norm", "lm.layer_norm", "lm.rope", "lm.gated_act", "lm.linear")
QUICK = ("gpt2", "gpt-neox", "phi3", "cohere")
"""One of each kind of structure; the others are slow for the time an import takes."""


def quick_or_slow(name: str):
    return pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)


@pytest.mark.parametrize("name", [quick_or_slow(n) for n in families.FAMILIES])
def test_pipeline_keeps_the_logits(name: str) -> None:
    weights = families.weights(families.build(name))
    module = import_model(families.FAMILIES[name]())
    module.attributes["amk.max_seq"] = IntegerAttr(MAX_SEQ, i64)
    before = run(module, weights, families.VOCAB)
    run_pipeline(module, "amk-lm{chunk=2}")
    assert_same(before, run(module, weights, families.VOCAB), TOLERANCE)
    if name in EXPECTED:
        names = Counter(op.name for op in step_of(module, "test").walk())
        assert tuple(names[n] for n in COUNTED) == EXPECTED[name]
