"""The law of the importer: the interpreter equals transformers' eager model bit for bit."""

from __future__ import annotations

import pytest
import torch

from amk.frontend.hf import import_model
from amk.interpreters.lm import Decoder
from tests import families

CHUNK = 16


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", families.FAMILIES)
def test_equals_eager(name: str, dtype: str) -> None:
    model = families.build(name, dtype)
    weights = families.weights(model)
    config = families.FAMILIES[name]()
    modules = [import_model(config, s, dtype) for s in (1, CHUNK)]
    tokens = families.random_tokens(2 * CHUNK + 3)

    ours, eager = Decoder(modules, weights), families.Eager(model)
    for chunk in (tokens[:CHUNK], tokens[CHUNK : 2 * CHUNK], *([t] for t in tokens[2 * CHUNK :])):
        assert_same(ours.step(chunk), eager.step(chunk), f"chunk of {len(chunk)} at {eager.past}")

    ours, eager = Decoder(modules[0], weights), families.Eager(model)
    for token in tokens[:8]:
        assert_same(ours.step([token]), eager.step([token]), f"decode at {eager.past}")


def assert_same(ours: torch.Tensor, eager: torch.Tensor, where: str) -> None:
    assert ours.dtype == eager.dtype
    assert torch.isfinite(eager).all()
    difference = (ours.float() - eager.float()).abs().max().item()
    assert torch.equal(ours, eager), f"{where}: largest difference {difference}"
