"""The dtypes a model may compute in, and the MLIR types of its tensors."""

from __future__ import annotations

import torch
from torch import Tensor
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from amk.errors import ImportRefused
from amk.interpreters.literals import ELEMENTS

DTYPES: dict[str, torch.dtype] = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
}

MAX_CONSTANT = 1 << 16
"""Elements of the largest literal tensor; printing a dense literal costs far more than its size."""


def element(dtype: torch.dtype) -> Attribute:
    """The MLIR element type of `dtype`; ImportRefused for one that lm has no type for."""
    try:
        return ELEMENTS[dtype]
    except KeyError:
        known = ", ".join(str(d).removeprefix("torch.") for d in ELEMENTS)
        raise ImportRefused(f"tensor dtype {dtype} has no lm type; known: {known}") from None


def tensor_type(value: Tensor) -> TensorType:
    return TensorType(element(value.dtype), [int(d) for d in value.shape])
