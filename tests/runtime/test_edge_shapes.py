"""Shapes at the edges, compiled and run: odd sizes, one kv head, short caches, plain modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers import models as hf

from amk.compiler import programs_of
from amk.frontend.hf import import_model
from amk.ir import mk
from amk.passes import run_pipeline
from tests import families
from tests.property.mk_running import bound_weights, empty_caches
from tests.property.native_batch import NativeBatch

TOLERANCE = 1e-5
SMALL: dict[str, Any] = {
    "num_hidden_layers": 1,
    "intermediate_size": 50,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}


@dataclass(frozen=True)
class Edge:
    """A Llama of odd shapes, and the positions it is compiled for: a run fills all of them."""

    sizes: dict[str, Any]
    max_seq: int
    chunk: int = 256

    def model(self) -> PreTrainedModel:
        torch.manual_seed(0)
        config = hf.llama.LlamaConfig(**{**SMALL, **self.sizes})
        return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


def sizes(vocab: int, hidden: int, heads: int, kv_heads: int, head_dim: int) -> dict[str, Any]:
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
    }


EDGES = {
    "prime vocabulary, hidden 35, seven heads a kv head": Edge(sizes(1009, 35, 7, 1, 8), 20),
    "heads of 80": Edge(sizes(61, 48, 2, 1, 80), 33, 16),
    "heads of 96, hidden 52": Edge(sizes(61, 52, 4, 2, 96), 17, 16),
    "heads of 6": Edge(sizes(61, 21, 3, 3, 6), 21, 16),
    "one position": Edge(sizes(61, 16, 2, 2, 8), 1),
    "longer than a chunk, no multiple of it": Edge(sizes(61, 16, 2, 1, 8), 45, 16),
}


def compiled(model: Any, max_seq: int, chunk: int) -> tuple[mk.ProgramOp, dict[str, np.ndarray]]:
    module = import_model(model, tokens=1)
    pipeline = f"amk-decode{{max-seq={max_seq} chunk={chunk} tile-bytes=2048}}"
    run_pipeline(module, pipeline)
    (program,) = programs_of(module)
    return program, bound_weights(module, families.weights(model))


@pytest.fixture(scope="module")
def batch() -> tuple[NativeBatch, list]:
    found = [compiled(e.model(), e.max_seq, e.chunk) for e in EDGES.values()]
    return NativeBatch([program for program, _ in found]), found


@pytest.mark.parametrize("name", EDGES)
def test_edge(name: str, batch: tuple[NativeBatch, list]) -> None:
    """Every position up to the last, in a cache that has not a row to spare."""
    native, found = batch
    edge, number = EDGES[name], list(EDGES).index(name)
    program, weights = found[number]
    native.bind(number, weights, empty_caches(program, edge.max_seq))
    model = edge.model()
    vocab = edge.sizes["vocab_size"]
    tokens = np.random.default_rng(0).integers(0, vocab, edge.max_seq)
    with torch.no_grad():
        expected = model(torch.tensor(tokens)[None]).logits[0].numpy()
    for past, token in enumerate(tokens):
        native.buffer(number, "input", "tokens")[0] = token
        native.launch(number, past, workers=1 + past % 3)
        logits = native.buffer(number, "output", "logits")[0, 0]
        error = np.abs(logits - expected[past]).max() / np.abs(expected).max()
        assert error <= TOLERANCE, f"{error} at {past}"
        assert native.buffer(number, "output", "next")[0, 0] == logits.argmax()


class Plain(nn.Module):
    """One layer without a norm, with a constant row that is no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Embedding(61, 24), nn.Linear(24, 48), nn.Linear(24, 61))
        self.register_buffer("shift", torch.linspace(-1, 1, 24), persistent=False)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        embed, project, head = self.layers
        x = embed(tokens) + self.shift
        q, k = project(x).split([24, 24], dim=-1)
        q, k = (t.unflatten(2, (3, 8)).transpose(1, 2) for t in (q, k))
        k, v = torch.ops.amk.kv_append(k, k, 0)
        seen = torch.ops.amk.mask(0, x.device)
        return head(x + torch.ops.amk.attention(q, k, v, seen, 8**-0.5).flatten(2))


def test_plain_module() -> None:
    """Outside an import the module computes a launch at position 0: that is the oracle."""
    torch.manual_seed(0)
    model = Plain().eval()
    tokens = list(range(3, 23))
    with torch.no_grad():
        expected = model(torch.tensor([tokens]), torch.arange(len(tokens))[None])[0].numpy()
    program, weights = compiled(model, 32, 16)
    native = NativeBatch([program])
    native.bind(0, weights, empty_caches(program, 32))
    for past, token in enumerate(tokens):
        native.buffer(0, "input", "tokens")[0] = token
        native.launch(0, past)
        logits = native.buffer(0, "output", "logits")[0, 0]
        np.testing.assert_allclose(logits, expected[past], atol=1e-5)
