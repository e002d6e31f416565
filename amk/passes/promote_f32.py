"""`promote-f32`: every float tensor becomes f32.

Weights keep their storage dtype and are cast once; caches keep theirs and take f32 entries; casts
between floats vanish, and with them the roundings a bf16 or f16 model makes after every op. On an
f32 model the pass changes nothing.

Before:

    func.func @step(%tokens: tensor<1x1xi64>, %pos: index) -> tensor<1x1x8xbf16> {
      %table = lm.weight "embed.weight" : tensor<9x8xbf16>
      %x = lm.embedding %table, %tokens
        : tensor<9x8xbf16>, tensor<1x1xi64> -> tensor<1x1x8xbf16>
      %h = lm.cast %x : tensor<1x1x8xbf16> -> tensor<1x1x8xf32>
      %s = lm.silu %h : tensor<1x1x8xf32>
      %y = lm.cast %s : tensor<1x1x8xf32> -> tensor<1x1x8xbf16>
      func.return %y : tensor<1x1x8xbf16>
    }

After, with `promote-f32`:

    func.func @step(%tokens: tensor<1x1xi64>, %pos: index) -> tensor<1x1x8xf32> {
      %table = lm.weight "embed.weight" : tensor<9x8xbf16>
      %wide = lm.cast %table : tensor<9x8xbf16> -> tensor<9x8xf32>
      %x = lm.embedding %wide, %tokens
        : tensor<9x8xf32>, tensor<1x1xi64> -> tensor<1x1x8xf32>
      %s = lm.silu %x : tensor<1x1x8xf32>
      func.return %s : tensor<1x1x8xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import (
    AnyFloat,
    DenseIntOrFPElementsAttr,
    FunctionType,
    ModuleOp,
    TensorType,
    f32,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter

from amk.ir import lm
from amk.passes.rewriting import LmPass, replace


def is_float_tensor(type: Attribute) -> bool:
    return isinstance(type, TensorType) and isinstance(type.element_type, AnyFloat)


def promoted(type: Attribute) -> Attribute:
    """The type with f32 elements; anything but a float tensor is left as it is."""
    if isinstance(type, TensorType) and isinstance(type.element_type, AnyFloat):
        return TensorType(f32, type.shape, type.encoding)
    return type


def promote_block(block: Block) -> None:
    for argument in block.args:
        promote_value(argument)
    for op in list(block.ops):
        for region in op.regions:
            for inner in region.blocks:
                promote_block(inner)
        promote_op(op)


def promote_value(value: SSAValue) -> None:
    type = promoted(value.type)
    if type != value.type:
        Rewriter.replace_value_with_new_type(value, type)


def promote_op(op: Operation) -> None:
    if isinstance(op, lm.WeightOp):
        cast_weight(op)
        return
    if isinstance(op, lm.ConstantOp):
        promote_constant(op)
    for result in list(op.results):
        promote_value(result)
    if isinstance(op, lm.CastOp) and op.input.type == op.result.type:
        replace(op.result, op.input)
        op.detach()
        op.erase()


def cast_weight(op: lm.WeightOp) -> None:
    if not is_float_tensor(op.result.type) or op.result.type.element_type == f32:
        return
    cast = lm.CastOp(op.result, f32)
    cast.location = op.location
    block = op.parent
    assert block is not None
    block.insert_op_after(cast, op)
    op.result.replace_uses_with_if(cast.result, lambda use: use.operation is not cast)


def promote_constant(op: lm.ConstantOp) -> None:
    type = promoted(op.result.type)
    if type != op.result.type:
        assert isinstance(type, TensorType)
        op.value = DenseIntOrFPElementsAttr.from_list(type, op.value.get_values())


def promote_signature(function: FuncOp) -> None:
    block = function.body.block
    last = block.last_op
    outputs = last.operand_types if isinstance(last, ReturnOp) else ()
    function.function_type = FunctionType.from_lists(
        [a.type for a in block.args if isinstance(a, BlockArgument)], list(outputs)
    )


@dataclass(frozen=True)
class PromoteF32(LmPass):
    name = "promote-f32"
    tolerance: ClassVar[float] = 2.0**-3
    """Of a bf16 model (8 bits of significand, a rounding after every op), where half of all
    generated decoders stay within 2⁻⁷; 0 on an f32 model."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in op.body.block.ops:
            if isinstance(function, FuncOp) and function.body.blocks:
                promote_block(function.body.block)
                promote_signature(function)
