"""Runs a module on tokens with seeded random weights: what `amk-opt --run` prints.

Weights depend on their key, shape and dtype alone, so a module gives the same logits before and
after a pass as far as the pass keeps them: an `lm` module runs in torch, an `mk` program in numpy.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import BFloat16Type, Float16Type, ModuleOp
from xdsl.ir import Attribute

from amk.errors import AmkError
from amk.ir import lm, mk
from amk.ir.lm import shape_of

SCALE = 0.1


def seeded_weight(key: str, shape: Sequence[int], element: Attribute) -> np.ndarray:
    """Normal values of deviation 0.1 (around 1 for vectors), as float32 values of the dtype."""
    from amk.interpreters.mk import round_to

    generator = np.random.Generator(np.random.PCG64(zlib.crc32(key.encode())))
    centre = 1.0 if len(shape) == 1 else 0.0
    values = generator.standard_normal(tuple(shape)) * SCALE + centre
    return round_to(values.astype(np.float32), element)


def run_module(module: ModuleOp, tokens: Sequence[int]) -> np.ndarray:
    """Logits [len(tokens), V] of `tokens` from position 0, S at a time.

    Raises AmkError when the module holds neither @step nor an mk.program, or S does not divide
    the number of tokens.
    """
    programs = [op for op in module.ops if isinstance(op, mk.ProgramOp)]
    width = programs[0].tokens.value.data if programs else step_width(module)
    if len(tokens) == 0 or len(tokens) % width:
        raise AmkError(f"--run: {len(tokens)} tokens, but the module takes {width} at a time")
    chunks = [tokens[i : i + width] for i in range(0, len(tokens), width)]
    return run_program(module, programs[0], chunks) if programs else run_step(module, chunks)


def step_width(module: ModuleOp) -> int:
    from xdsl.dialects.func import FuncOp

    for function in module.ops:
        if isinstance(function, FuncOp) and function.sym_name.data == "step":
            return shape_of(function.body.block.args[0])[1]
    raise AmkError("--run: the module has neither func.func @step nor an mk.program")


def stored_weights(module: ModuleOp) -> dict[str, np.ndarray]:
    """A seeded array for every state-dict key that the module reads."""
    found: dict[str, np.ndarray] = {}
    for op in module.walk():
        if isinstance(op, lm.WeightOp) and not op.key.data.startswith("@init/"):
            element = lm.element_of(op.result)
            found[op.key.data] = seeded_weight(op.key.data, shape_of(op.result), element)
        elif isinstance(op, mk.BufferOp) and op.kind.data == "weight":
            key, type = op.source.data, op.type
            if not key.startswith("@init/"):
                found[key] = seeded_weight(key, type.get_shape(), type.element_type)
    return found


def run_step(module: ModuleOp, chunks: Sequence[Sequence[int]]) -> np.ndarray:
    import torch

    from amk.interpreters.lm import Decoder

    kinds = {BFloat16Type(): torch.bfloat16, Float16Type(): torch.float16}
    dtypes = {
        op.key.data: kinds.get(lm.element_of(op.result), torch.float32)
        for op in module.walk()
        if isinstance(op, lm.WeightOp)
    }
    weights = {
        key: torch.from_numpy(array).to(dtypes[key])
        for key, array in stored_weights(module).items()
    }
    decoder = Decoder(module, weights)
    rows = [decoder.step(list(chunk)).float().numpy() for chunk in chunks]
    return np.concatenate(rows)


def run_program(
    module: ModuleOp, program: mk.ProgramOp, chunks: Sequence[Sequence[int]]
) -> np.ndarray:
    from amk.interpreters.init_numpy import evaluate_init
    from amk.interpreters.mk import Machine
    from amk.interpreters.numerics import to_bf16_bits, to_f16_bits

    stored = stored_weights(module)
    elements = {
        op.key.data: lm.element_of(op.result) for op in module.walk() if isinstance(op, lm.WeightOp)
    }

    def read(key: str) -> np.ndarray:
        if isinstance(elements[key], BFloat16Type):
            return to_bf16_bits(stored[key])
        if isinstance(elements[key], Float16Type):
            return to_f16_bits(stored[key]).view(np.float16)
        return stored[key]

    derived = {f"@init/{name}": value for name, value in evaluate_init(module, read).items()}
    rows = program.max_seq.value.data
    caches = {
        b.source.data: np.full(
            [rows if d == -1 else d for d in b.type.get_shape()], np.nan, np.float32
        )
        for b in program.buffers()
        if b.kind.data == "cache"
    }
    weights = {k: widened(v) for k, v in derived.items()} | stored
    machine = Machine(program, weights, caches)
    out, past = [], 0
    for chunk in chunks:
        out.append(machine.launch(np.asarray(chunk, np.int64), past)[0].copy())
        past += len(chunk)
    return np.concatenate(out)


def widened(array: np.ndarray) -> np.ndarray:
    """float32 values of an array that may hold bf16 as uint16 patterns."""
    from amk.interpreters.numerics import from_bf16_bits

    return from_bf16_bits(array) if array.dtype == np.uint16 else array.astype(np.float32)
