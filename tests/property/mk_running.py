"""Lowers generated decoders to `mk` and runs them by its interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor
from xdsl.dialects.builtin import ModuleOp

from amk.interpreters.init_numpy import evaluate_init
from amk.interpreters.lm import empty_caches as empty_lm_caches
from amk.interpreters.lm import evaluate, function_named
from amk.interpreters.mk import Machine
from amk.interpreters.numerics import from_bf16_bits
from amk.ir import mk
from amk.passes import run_pipeline
from amk.runtime.program import INIT_PREFIX
from tests.property.build_decoder import build
from tests.property.generate import MAX_SEQ, DecoderSpec
from tests.property.running import LAUNCHES, as_array, with_init

LM = "promote-f32,canonicalize,raise,split-init,canonicalize,split-kv{{chunk={chunk}}},legal-lm"
Array = np.ndarray


@dataclass(frozen=True)
class Lowering:
    """How a decoder is lowered: chunks of the cache, where appends go, bytes of a tile, and the
    workers that tiles are balanced for (0: from shapes alone)."""

    chunk: int = 16
    append: str = "auto"
    tile_bytes: int = 64
    greedy: bool = True
    workers: int = 0
    whole_heads: str = "epilogue"

    @property
    def lm(self) -> str:
        return LM.format(chunk=self.chunk)

    @property
    def stages(self) -> str:
        head = "greedy-head," if self.greedy else ""
        return f"{head}fuse{{whole-heads={self.whole_heads}}},place-kv-append{{at={self.append}}}"

    @property
    def mk(self) -> str:
        sizes = f"tile-bytes={self.tile_bytes} workers={self.workers}"
        return f"lower-lm-to-mk{{{sizes}}},legal-mk,plan-buffers,schedule"


LOWERINGS = st.builds(
    Lowering,
    chunk=st.sampled_from((16, 32, 256)),
    append=st.sampled_from(("auto", "epilogue", "attention", "stage")),
    tile_bytes=st.sampled_from((64, 200, 48 * 1024)),
    greedy=st.booleans(),
    workers=st.sampled_from((0, 3, 7)),
    whole_heads=st.sampled_from(("epilogue", "reader")),
)


def lower(spec: DecoderSpec, how: Lowering) -> tuple[ModuleOp, dict[str, Tensor]]:
    """The module of `spec` down to a scheduled program, and its weights."""
    module, weights = build(spec)
    run_pipeline(module, f"{how.lm},{how.stages},{how.mk}")
    return module, weights


def program_of(module: ModuleOp) -> mk.ProgramOp:
    (program,) = (op for op in module.ops if isinstance(op, mk.ProgramOp))
    return program


def values_of(array: Array) -> Array:
    """float32 values of a weight; bf16 comes as uint16 patterns."""
    return from_bf16_bits(array) if array.dtype == np.uint16 else np.asarray(array, np.float32)


def bound_weights(module: ModuleOp, weights: Mapping[str, Tensor]) -> dict[str, Array]:
    """What each weight buffer of the module's program holds, as float32 values, by source."""
    arrays = {key: as_array(value) for key, value in weights.items()}
    made = {INIT_PREFIX + k: v for k, v in evaluate_init(module, arrays.__getitem__).items()}
    everything = arrays | made
    sources = {b.source.data for b in program_of(module).buffers() if b.kind.data == "weight"}
    return {source: values_of(everything[source]) for source in sources}


def empty_caches(program: mk.ProgramOp, capacity: int = MAX_SEQ) -> dict[str, Array]:
    """Caches full of NaN, so that a read past the live rows shows."""
    return {
        b.source.data: np.full(
            [capacity if d == -1 else d for d in b.memory_shape], np.nan, np.float32
        )
        for b in program.buffers()
        if b.kind.data == "cache"
    }


class MkDecoder:
    """Decodes by the interpreter of `mk`, keeping the caches between launches."""

    def __init__(self, module: ModuleOp, weights: Mapping[str, Tensor], capacity: int = MAX_SEQ):
        self.program = program_of(module)
        self.tokens = self.program.tokens.value.data
        self.caches = empty_caches(self.program, capacity)
        self.weights = bound_weights(module, weights)
        self.machine = Machine(self.program, self.weights, self.caches)
        self.past = 0

    def step(self, tokens: Sequence[int], workers: int = 1, seed: int | None = None) -> Array:
        """Logits [S, V] of one launch."""
        ids = np.asarray(tokens, np.int64)
        logits = self.machine.launch(ids, self.past, workers, seed)[0].copy()
        self.past += len(tokens)
        return logits

    @property
    def next(self) -> Array:
        """The next tokens [1, S] that a greedy head found."""
        return self.machine.buffer("output", "next")


def random_tokens(spec: DecoderSpec, launches: int, seed: int = 0) -> list[list[int]]:
    """Tokens for some launches, the same that `running.run` draws."""
    random = torch.Generator().manual_seed(seed)
    return [
        torch.randint(0, spec.vocab, (1, spec.tokens), generator=random)[0].tolist()
        for _ in range(launches)
    ]


def launches(
    module: ModuleOp, weights: Mapping[str, Tensor], spec: DecoderSpec, count: int = LAUNCHES
) -> list[Tensor]:
    """Every result of @step of a few launches by the `lm` interpreter, caches last."""
    step = function_named(module, "step")
    everything = with_init(module, weights)
    caches = empty_lm_caches(module)
    found: list[Tensor] = []
    for i, tokens in enumerate(random_tokens(spec, count)):
        arguments = [torch.tensor([tokens]), i * spec.tokens, *caches]
        results = evaluate(step, arguments, everything)
        outputs = len(results) - len(caches)
        found += results[:outputs]
        caches = results[outputs:]
    return found + caches
