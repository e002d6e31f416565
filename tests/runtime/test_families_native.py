"""Every family compiled to C and run: close to transformers, and the same bits everywhere.

All families of a dtype are one C file, each with a program of one token and one of a chunk that
share weights and caches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
import torch

from amk.compiler import programs_of
from amk.frontend.hf import import_model
from amk.interpreters.mk import Machine
from amk.ir import mk
from amk.passes import run_pipeline
from tests import families
from tests.property.mk_running import bound_weights, empty_caches
from tests.property.native_batch import NativeBatch, assert_same_bits, stored

CHUNK, MAX_SEQ = 16, 64
SINGLE, WIDE = 0, 1
PIPELINE = f"amk-decode{{max-seq={MAX_SEQ} chunk=16 tile-bytes=512}}"  # many tiles, several chunks
TOLERANCE = 1e-5
KL_RATIO = 1.05
FAMILIES = list(families.FAMILIES)
SOME_BF16 = ("gemma2", "gpt2")


@dataclass
class Family:
    """One family in a batch: its programs of one token and of a chunk, and what they read."""

    programs: list[mk.ProgramOp]
    weights: dict[str, np.ndarray]
    batch: NativeBatch | None = None
    first: int = 0
    past: int = field(default=0)

    def reset(self) -> None:
        assert self.batch is not None
        for number in (self.first, self.first + 1):
            self.batch.bind(number, self.weights, empty_caches(self.programs[0], MAX_SEQ))
        for slot in self.batch.slots(self.first):
            if slot.kind == "cache":
                memory = self.batch.memory[slot]
                memory[...] = stored(np.full(memory.shape, np.nan, np.float32), slot.dtype)
        self.past = 0

    def launch(self, tokens: list[int], workers: int = 1) -> np.ndarray:
        """Logits [S, V] by the program that takes so many tokens."""
        assert self.batch is not None
        number = self.first + (SINGLE if len(tokens) == 1 else WIDE)
        self.batch.buffer(number, "input", "tokens")[0] = tokens
        self.batch.launch(number, self.past, workers)
        self.past += len(tokens)
        return self.batch.buffer(number, "output", "logits")[0].copy()

    def next(self, program: int = SINGLE) -> list[int]:
        assert self.batch is not None
        return self.batch.buffer(self.first + program, "output", "next")[0].tolist()


def lowered(name: str, dtype: str) -> Family:
    model = families.build(name, dtype)
    weights = families.weights(model)
    programs = []
    for tokens in (1, CHUNK):
        module = import_model(families.FAMILIES[name](), tokens, dtype)
        run_pipeline(module, PIPELINE)
        programs += programs_of(module)
    return Family(programs, bound_weights(module, weights))


@cache
def batch(dtype: str, names: tuple[str, ...]) -> dict[str, Family]:
    found = {name: lowered(name, dtype) for name in names}
    programs = [p for f in found.values() for p in f.programs]
    native = NativeBatch(programs, [i // 2 for i in range(len(programs))])
    for i, family in enumerate(found.values()):
        family.batch, family.first = native, 2 * i
    return found


def eager(name: str, dtype: str, tokens: list[int], wide: bool = False) -> np.ndarray:
    """transformers' logits [S, V]; `wide` computes with a dtype's weights in f32."""
    model = families.build(name, dtype)
    model = model.float() if wide else model
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float().numpy()


def check_bits(family: Family, tokens: list[int]) -> np.ndarray:
    """One token a launch and chunks, one worker and several, and the interpreter: one result."""
    family.reset()
    singles, best = [], []
    for token in tokens:
        singles.append(family.launch([token], workers=1))
        best += family.next()
    rows = np.concatenate(singles)
    assert best == rows.argmax(-1).tolist()

    for workers in (2, 4):
        family.reset()
        whole = len(tokens) // CHUNK * CHUNK
        chunks = [family.launch(tokens[i : i + CHUNK], workers) for i in range(0, whole, CHUNK)]
        assert family.next(WIDE) == rows[whole - CHUNK : whole].argmax(-1).tolist()
        chunks += [family.launch([t], workers) for t in tokens[whole:]]
        np.testing.assert_array_equal(np.concatenate(chunks), rows)

    caches = empty_caches(family.programs[0], MAX_SEQ)
    single, wide = (Machine(p, family.weights, caches) for p in family.programs)
    found = wide.launch(np.array(tokens[:CHUNK]), 0, workers=3, seed=1)[0]
    assert_same_bits(rows[:CHUNK], found, "interpreter, chunk")
    for i in range(CHUNK, CHUNK + 3):
        found = single.launch(np.array(tokens[i : i + 1]), i, workers=2, seed=i)[0]
        assert_same_bits(rows[i : i + 1], found, f"interpreter, position {i}")
    return rows


@pytest.mark.parametrize("name", FAMILIES)
def test_f32(name: str) -> None:
    tokens = families.random_tokens(2 * CHUNK + 3)
    rows = check_bits(batch("f32", tuple(FAMILIES))[name], tokens)
    reference = eager(name, "f32", tokens)
    error = np.abs(rows - reference).max() / np.abs(reference).max()
    assert error <= TOLERANCE, f"{error} from eager"


def divergence(reference: np.ndarray, other: np.ndarray) -> float:
    """Mean KL divergence in nats of `other` from `reference`, by softmax over each row."""
    p, q = (torch.log_softmax(torch.from_numpy(x).double(), -1) for x in (reference, other))
    return (p.exp() * (p - q)).sum(-1).mean().item()


def check_bf16(name: str, names: tuple[str, ...]) -> None:
    family = batch("bf16", names)[name]
    ours, theirs = [], []
    for seed in range(3):
        tokens = families.random_tokens(MAX_SEQ - 1, seed)
        if seed == 0:
            rows = check_bits(family, tokens)
        else:
            family.reset()
            rows = np.concatenate(
                [family.launch(tokens[i : i + CHUNK]) for i in range(0, 3 * CHUNK, CHUNK)]
            )
        tokens = tokens[: len(rows)]
        exact = eager(name, "bf16", tokens, wide=True)
        ours.append(divergence(exact, rows))
        theirs.append(divergence(exact, eager(name, "bf16", tokens)))
    assert np.mean(ours) <= KL_RATIO * np.mean(theirs), (ours, theirs)


@pytest.mark.parametrize("name", SOME_BF16)
def test_bf16(name: str) -> None:
    check_bf16(name, SOME_BF16)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in FAMILIES if n not in SOME_BF16])
def test_bf16_of_the_others(name: str) -> None:
    check_bf16(name, tuple(n for n in FAMILIES if n not in SOME_BF16))
