"""Runs `lm` modules and compares what two of them give."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from xdsl.dialects.builtin import ModuleOp

from amk.interpreters import lm as interpreter
from amk.interpreters.init_numpy import evaluate_init

LAUNCHES = 3


def as_array(value: Tensor) -> np.ndarray:
    """A tensor in numpy, bf16 as its bit patterns."""
    return value.view(torch.uint16).numpy() if value.dtype == torch.bfloat16 else value.numpy()


def as_tensor(value: np.ndarray) -> Tensor:
    tensor = torch.from_numpy(np.array(value))
    return tensor.view(torch.bfloat16) if value.dtype == np.uint16 else tensor


def with_init(module: ModuleOp, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`weights`, and what `@init` computes from them in numpy."""
    results = evaluate_init(module, lambda key: as_array(weights[key]))
    return {**weights, **{f"@init/{name}": as_tensor(v) for name, v in results.items()}}


def run(module: ModuleOp, weights: Mapping[str, Tensor], vocab: int, seed: int = 0) -> list[Tensor]:
    """Logits of a few launches one after another, then the final caches."""
    random = torch.Generator().manual_seed(seed)
    count = module.attributes["amk.tokens"].value.data  # type: ignore[attr-defined]
    everything = with_init(module, weights)
    caches = interpreter.empty_caches(module)
    outputs = []
    for launch in range(LAUNCHES):
        tokens = torch.randint(0, vocab, (1, count), generator=random)
        logits, caches = interpreter.run(module, tokens, launch * count, caches, everything)
        outputs.append(logits)
    return outputs + caches


BF16_CACHE = 1e-2
"""A sum in another order turns the last bit of an entry of a bf16 cache, 2⁻⁸ of it."""


def over_cache(tolerance: float, cache_dtype: str) -> float:
    """`tolerance` of a pass, where what it computes is kept in a cache of that dtype."""
    return tolerance if tolerance == 0.0 or cache_dtype == "f32" else max(tolerance, BF16_CACHE)


def assert_same(before: list[Tensor], after: list[Tensor], tolerance: float) -> None:
    """The same bits when `tolerance` is 0, else within it of the largest value."""
    assert len(before) == len(after)
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        assert a.shape == b.shape
        if tolerance == 0.0:
            assert torch.equal(a, b), f"output {i}: {distance(a, b)} apart"
        else:
            assert distance(a, b) <= tolerance, f"output {i}: {distance(a, b)} > {tolerance}"


def distance(a: Tensor, b: Tensor) -> float:
    """max |a − b| relative to the largest |a|."""
    wide, other = a.double(), b.double()
    return ((wide - other).abs().max() / wide.abs().max().clamp_min(1e-30)).item()
