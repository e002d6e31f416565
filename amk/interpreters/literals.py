"""torch dtypes of MLIR element types, and dense literals as tensors with the same bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from xdsl.dialects.builtin import (
    BFloat16Type,
    BytesAttr,
    DenseIntOrFPElementsAttr,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    TensorType,
)
from xdsl.ir import Attribute

from amk.errors import AmkError

ELEMENTS: dict[torch.dtype, Attribute] = {
    torch.float64: Float64Type(),
    torch.float32: Float32Type(),
    torch.bfloat16: BFloat16Type(),
    torch.float16: Float16Type(),
    torch.int64: IntegerType(64),
    torch.int32: IntegerType(32),
}
DTYPES: dict[Attribute, torch.dtype] = {element: dtype for dtype, element in ELEMENTS.items()}


def torch_dtype(element: Attribute) -> torch.dtype:
    if element not in DTYPES:
        raise AmkError(f"element type {element} has no torch dtype")
    return DTYPES[element]


def tensor_type(value: Tensor) -> TensorType:
    """The MLIR type of `value`; KeyError for a dtype outside `ELEMENTS`."""
    return TensorType(ELEMENTS[value.dtype], [int(d) for d in value.shape])


def literal(value: Tensor) -> DenseIntOrFPElementsAttr:
    """`value` as a dense literal with the same bits."""
    flat = value.detach().cpu().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes()
    type: Any = tensor_type(value)
    return DenseIntOrFPElementsAttr(type, BytesAttr(data))


def literal_tensor(value: DenseIntOrFPElementsAttr) -> Tensor:
    """The tensor a dense literal holds, with the same bits."""
    dtype = torch_dtype(value.get_element_type())
    flat = torch.frombuffer(bytearray(value.data.data), dtype=dtype)
    return flat.reshape(value.get_shape())
