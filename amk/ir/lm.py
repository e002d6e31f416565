"""The `lm` dialect: a decoder on tensors, with value semantics.

Shapes are static; the one open axis, the cache's, lives in `!kv.cache`. The position is an SSA
value of type `index` (the past length P). A module holds `func.func @step(%tokens, %pos, caches…)`
that returns the logits and the final version of every cache, and, after `split-init`,
`func.func @init()` for what depends on weights and constants alone.

Ops that carry numbers (`value`, `eps`, `scale`) hold them as f64, as PyTorch scalars do. The
constraints are numbered (L1 …) as in docs/dialects/lm.md.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    BoolAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    StringAttr,
    TensorType,
    f64,
    i64,
)
from xdsl.ir import Attribute, Dialect, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, Pure, SingleBlockImplicitTerminator
from xdsl.utils.exceptions import VerifyException

from amk.ir.kv import CacheType


def shape_of(value: SSAValue) -> tuple[int, ...]:
    """The static shape of a tensor value."""
    assert isinstance(value.type, TensorType)
    return value.type.get_shape()


def element_of(value: SSAValue) -> Attribute:
    assert isinstance(value.type, TensorType)
    return value.type.element_type


def tensor(shape: Sequence[int], element: Attribute) -> TensorType:
    return TensorType(element, list(shape))


def ints(values: Sequence[int]) -> DenseArrayBase:
    return DenseArrayBase.from_list(i64, list(values))


def read_ints(array: DenseArrayBase) -> list[int]:
    """The numbers of an attribute made by `ints`."""
    return [int(n) for n in array.get_values()]  # type: ignore[attr-defined]


def real(value: float) -> FloatAttr:
    return FloatAttr(float(value), f64)


def integer(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """numpy/PyTorch broadcasting; raises VerifyException (L2) when the shapes disagree."""
    rank = max(len(s) for s in shapes)
    out = [1] * rank
    for shape in shapes:
        for i, d in enumerate(reversed(shape), 1):
            if d != 1 and out[-i] not in (1, d):
                raise VerifyException(f"lm L2: shapes {shapes} do not broadcast")
            out[-i] = max(out[-i], d) if d != 0 else 0
    return tuple(out)


def require(holds: bool, rule: str) -> None:
    if not holds:
        raise VerifyException(f"lm {rule}")


class LmOp(IRDLOperation, ABC):
    """Prints its numbers in one attribute dictionary."""

    irdl_options = (ParsePropInAttrDict(),)


# ---- leaves -------------------------------------------------------------------------------


@irdl_op_definition
class WeightOp(LmOp):
    """A parameter, by its state-dict key, or by `@init/NAME` for what `@init` computes."""

    name = "lm.weight"
    key = prop_def(StringAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$key attr-dict `:` type($result)"

    def __init__(self, key: str, result_type: TensorType):
        super().__init__(properties={"key": StringAttr(key)}, result_types=[result_type])


@irdl_op_definition
class ConstantOp(LmOp):
    """A small literal tensor (a non-persistent buffer such as RoPE's inverse frequencies)."""

    name = "lm.constant"
    value = prop_def(DenseIntOrFPElementsAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())

    def __init__(self, value: DenseIntOrFPElementsAttr):
        super().__init__(properties={"value": value}, result_types=[value.type])

    @classmethod
    def parse(cls, parser: Parser) -> ConstantOp:
        attributes = parser.parse_optional_attr_dict()
        value = parser.parse_attribute()
        if not isinstance(value, DenseIntOrFPElementsAttr):
            parser.raise_error("lm L3: lm.constant takes a dense<…> literal")
        op = cls(value)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_op_attributes(self.attributes)
        printer.print_string(" ")
        printer.print_attribute(self.value)

    def verify_(self) -> None:
        require(self.value.type == self.result.type, "L3: a constant has the type of its value")


@irdl_op_definition
class PositionsOp(LmOp):
    """`[[P, P + 1, …, P + S − 1]]` as i64, of shape [1, S] (or [S])."""

    name = "lm.positions"
    position = operand_def(IndexType())
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$position attr-dict `:` type($result)"

    def __init__(self, position: SSAValue, result_type: TensorType):
        super().__init__(operands=[position], result_types=[result_type])


# ---- elementwise --------------------------------------------------------------------------


class UnaryOp(LmOp, ABC):
    """Elementwise; the result has the operand's type. L1."""

    SAME: ClassVar = VarConstraint("SAME", base(TensorType))
    input = operand_def(SAME)
    result = result_def(SAME)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$input attr-dict `:` type($result)"

    def __init__(self, input: SSAValue):
        super().__init__(operands=[input], result_types=[input.type])


@irdl_op_definition
class NegOp(UnaryOp):
    name = "lm.neg"


@irdl_op_definition
class AbsOp(UnaryOp):
    name = "lm.abs"


@irdl_op_definition
class FloorOp(UnaryOp):
    name = "lm.floor"


@irdl_op_definition
class ExpOp(UnaryOp):
    name = "lm.exp"


@irdl_op_definition
class LogOp(UnaryOp):
    name = "lm.log"


@irdl_op_definition
class SqrtOp(UnaryOp):
    name = "lm.sqrt"


@irdl_op_definition
class RsqrtOp(UnaryOp):
    name = "lm.rsqrt"


@irdl_op_definition
class CosOp(UnaryOp):
    name = "lm.cos"


@irdl_op_definition
class SinOp(UnaryOp):
    name = "lm.sin"


@irdl_op_definition
class TanhOp(UnaryOp):
    name = "lm.tanh"


@irdl_op_definition
class SigmoidOp(UnaryOp):
    name = "lm.sigmoid"


@irdl_op_definition
class SiluOp(UnaryOp):
    name = "lm.silu"


@irdl_op_definition
class ReluOp(UnaryOp):
    name = "lm.relu"


@irdl_op_definition
class ErfOp(UnaryOp):
    name = "lm.erf"


@irdl_op_definition
class GeluOp(UnaryOp):
    """The exact GELU, x · Φ(x) by erf."""

    name = "lm.gelu"


@irdl_op_definition
class GeluTanhOp(UnaryOp):
    """The tanh approximation of GELU."""

    name = "lm.gelu_tanh"


class BinaryOp(LmOp, ABC):
    """Elementwise with broadcasting; the result's element type is PyTorch's promotion. L2."""

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)"
    )

    def __init__(self, lhs: SSAValue, rhs: SSAValue, result_type: TensorType | None = None):
        if result_type is None:
            result_type = tensor(broadcast_shapes(shape_of(lhs), shape_of(rhs)), element_of(lhs))
        super().__init__(operands=[lhs, rhs], result_types=[result_type])

    def verify_(self) -> None:
        shape = broadcast_shapes(shape_of(self.lhs), shape_of(self.rhs))
        require(shape == shape_of(self.result), f"L2: the broadcast shape is {shape}")


@irdl_op_definition
class AddOp(BinaryOp):
    name = "lm.add"


@irdl_op_definition
class SubOp(BinaryOp):
    name = "lm.sub"


@irdl_op_definition
class MulOp(BinaryOp):
    name = "lm.mul"


@irdl_op_definition
class DivOp(BinaryOp):
    name = "lm.div"


@irdl_op_definition
class PowOp(BinaryOp):
    name = "lm.pow"


@irdl_op_definition
class MaximumOp(BinaryOp):
    name = "lm.maximum"


@irdl_op_definition
class MinimumOp(BinaryOp):
    name = "lm.minimum"


class ScalarOp(LmOp, ABC):
    """Elementwise with a literal scalar, which does not take part in type promotion."""

    input = operand_def(TensorType)
    value = prop_def(FloatAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$input `,` $value attr-dict `:` type($input) `->` type($result)"
    )

    def __init__(self, input: SSAValue, value: float, result_type: Attribute | None = None):
        super().__init__(
            operands=[input],
            properties={"value": real(value)},
            result_types=[result_type or input.type],
        )

    def verify_(self) -> None:
        require(shape_of(self.input) == shape_of(self.result), "L1: a scalar op keeps the shape")


@irdl_op_definition
class AddScalarOp(ScalarOp):
    name = "lm.add_scalar"


@irdl_op_definition
class SubScalarOp(ScalarOp):
    """input − value"""

    name = "lm.sub_scalar"


@irdl_op_definition
class RsubScalarOp(ScalarOp):
    """value − input"""

    name = "lm.rsub_scalar"


@irdl_op_definition
class MulScalarOp(ScalarOp):
    name = "lm.mul_scalar"


@irdl_op_definition
class DivScalarOp(ScalarOp):
    """input ÷ value"""

    name = "lm.div_scalar"


@irdl_op_definition
class PowScalarOp(ScalarOp):
    """input to the power value"""

    name = "lm.pow_scalar"


@irdl_op_definition
class CastOp(LmOp):
    """Converts the element type, rounding to nearest even."""

    name = "lm.cast"
    input = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, element: Attribute):
        super().__init__(operands=[input], result_types=[tensor(shape_of(input), element)])

    def verify_(self) -> None:
        require(shape_of(self.input) == shape_of(self.result), "L1: a cast keeps the shape")


# ---- reductions ---------------------------------------------------------------------------


class ReduceOp(LmOp, ABC):
    """Reduces the axes `dims` (non-negative, ascending), keeping them as 1 if `keepdim`. L4."""

    input = operand_def(TensorType)
    dims = prop_def(DenseArrayBase)
    keepdim = prop_def(BoolAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, dims: Sequence[int], keepdim: bool):
        shape = reduced_shape(shape_of(input), dims, keepdim)
        super().__init__(
            operands=[input],
            properties={"dims": ints(dims), "keepdim": BoolAttr.from_bool(keepdim)},
            result_types=[tensor(shape, element_of(input))],
        )

    def verify_(self) -> None:
        dims = read_ints(self.dims)
        shape = shape_of(self.input)
        require(
            all(0 <= d < len(shape) for d in dims) and len(set(dims)) == len(dims),
            "L4: reduced axes are distinct axes of the operand",
        )
        expect = reduced_shape(shape, dims, bool(self.keepdim.value.data))
        require(shape_of(self.result) == expect, f"L4: the reduced shape is {expect}")


def reduced_shape(shape: Sequence[int], dims: Sequence[int], keepdim: bool) -> tuple[int, ...]:
    if keepdim:
        return tuple(1 if i in dims else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in dims)


@irdl_op_definition
class MeanOp(ReduceOp):
    name = "lm.mean"


@irdl_op_definition
class SumOp(ReduceOp):
    name = "lm.sum"


@irdl_op_definition
class AmaxOp(ReduceOp):
    name = "lm.amax"


@irdl_op_definition
class SoftmaxOp(UnaryOp):
    """Softmax over the axis `dim`, computed in the operand's dtype."""

    name = "lm.softmax"
    dim = prop_def(IntegerAttr)

    def __init__(self, input: SSAValue, dim: int):
        LmOp.__init__(
            self, operands=[input], properties={"dim": integer(dim)}, result_types=[input.type]
        )


@irdl_op_definition
class ArgmaxOp(LmOp):
    """The lowest index of the largest element of the last axis; that axis is dropped. i64."""

    name = "lm.argmax"
    input = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue):
        super().__init__(operands=[input], result_types=[tensor(shape_of(input)[:-1], i64)])

    def verify_(self) -> None:
        require(shape_of(self.result) == shape_of(self.input)[:-1], "L4: argmax drops one axis")


# ---- shape --------------------------------------------------------------------------------


@irdl_op_definition
class ReshapeOp(LmOp):
    """The same elements in row-major order under another shape. L5."""

    name = "lm.reshape"
    input = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, shape: Sequence[int]):
        super().__init__(operands=[input], result_types=[tensor(shape, element_of(input))])

    def verify_(self) -> None:
        require(
            product(shape_of(self.input)) == product(shape_of(self.result)),
            "L5: a reshape keeps the number of elements",
        )


def product(shape: Sequence[int]) -> int:
    n = 1
    for d in shape:
        n *= d
    return n


@irdl_op_definition
class TransposeOp(LmOp):
    """Result axis i is operand axis `permutation[i]`. L6."""

    name = "lm.transpose"
    input = operand_def(TensorType)
    permutation = prop_def(DenseArrayBase)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, permutation: Sequence[int]):
        shape = shape_of(input)
        super().__init__(
            operands=[input],
            properties={"permutation": ints(permutation)},
            result_types=[tensor([shape[p] for p in permutation], element_of(input))],
        )

    def verify_(self) -> None:
        shape, perm = shape_of(self.input), read_ints(self.permutation)
        require(sorted(perm) == list(range(len(shape))), "L6: not a permutation of the axes")
        require(shape_of(self.result) == tuple(shape[p] for p in perm), "L6: permuted shape")


@irdl_op_definition
class SliceOp(LmOp):
    """Elements start, start + step, … below `end` of the axis `dim`. L7."""

    name = "lm.slice"
    input = operand_def(TensorType)
    dim = prop_def(IntegerAttr)
    start = prop_def(IntegerAttr)
    end = prop_def(IntegerAttr)
    step = prop_def(IntegerAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, dim: int, start: int, end: int, step: int = 1):
        shape = list(shape_of(input))
        shape[dim] = len(range(start, end, step))
        super().__init__(
            operands=[input],
            properties={
                "dim": integer(dim),
                "start": integer(start),
                "end": integer(end),
                "step": integer(step),
            },
            result_types=[tensor(shape, element_of(input))],
        )

    def bounds(self) -> tuple[int, int, int, int]:
        """(dim, start, end, step)"""
        return tuple(p.value.data for p in (self.dim, self.start, self.end, self.step))  # type: ignore[return-value]

    def verify_(self) -> None:
        dim, start, end, step = self.bounds()
        shape = list(shape_of(self.input))
        require(0 <= dim < len(shape), "L7: the axis of a slice exists")
        require(0 <= start <= end <= shape[dim] and step > 0, "L7: 0 ≤ start ≤ end ≤ extent")
        shape[dim] = len(range(start, end, step))
        require(shape_of(self.result) == tuple(shape), f"L7: the sliced shape is {shape}")


@irdl_op_definition
class ConcatOp(LmOp):
    """Joins the operands along the axis `dim`. L8."""

    name = "lm.concat"
    inputs = var_operand_def(TensorType)
    dim = prop_def(IntegerAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$inputs attr-dict `:` type($inputs) `->` type($result)"

    def __init__(self, inputs: Sequence[SSAValue], dim: int):
        shape = list(shape_of(inputs[0]))
        shape[dim] = joined_extent([shape_of(v)[dim] for v in inputs])
        super().__init__(
            operands=[list(inputs)],
            properties={"dim": integer(dim)},
            result_types=[tensor(shape, element_of(inputs[0]))],
        )

    def verify_(self) -> None:
        dim, shape = self.dim.value.data, list(shape_of(self.result))
        require(len(self.inputs) > 0 and 0 <= dim < len(shape), "L8: the axis of a concat exists")
        for v in self.inputs:
            part = list(shape_of(v))
            require(len(part) == len(shape), "L8: concat operands have one rank")
            part[dim] = shape[dim]
            require(part == shape, "L8: concat operands agree off the axis")
        extents = [shape_of(v)[dim] for v in self.inputs]
        require(joined_extent(extents) == shape[dim], "L8: extents add up")


def joined_extent(extents: Sequence[int]) -> int:
    """The extent of a concat; the rows of a cache, whose extent is open, make it open."""
    return DYNAMIC_INDEX if DYNAMIC_INDEX in extents else sum(extents)


@irdl_op_definition
class ExpandOp(LmOp):
    """Broadcasts the operand to the result's shape. L2."""

    name = "lm.expand"
    input = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, shape: Sequence[int]):
        super().__init__(operands=[input], result_types=[tensor(shape, element_of(input))])

    def verify_(self) -> None:
        shape = shape_of(self.result)
        require(broadcast_shapes(shape_of(self.input), shape) == shape, "L2: expand broadcasts")


# ---- contractions and lookups -------------------------------------------------------------


@irdl_op_definition
class LinearOp(LmOp):
    """`input · weightᵀ + bias`: [..., K] × [N, K] (+ [N]) → [..., N]. L9."""

    name = "lm.linear"
    input = operand_def(TensorType)
    weight = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$input `,` $weight (`bias` $bias^ `:` type($bias))? attr-dict"
        " `:` type($input) `,` type($weight) `->` type($result)"
    )

    def __init__(self, input: SSAValue, weight: SSAValue, bias: SSAValue | None = None):
        shape = (*shape_of(input)[:-1], shape_of(weight)[0])
        super().__init__(
            operands=[input, weight, bias], result_types=[tensor(shape, element_of(input))]
        )

    def verify_(self) -> None:
        x, w = shape_of(self.input), shape_of(self.weight)
        require(len(w) == 2 and x[-1] == w[1], f"L9: {x} × {w}ᵀ do not contract")
        require(self.bias is None or shape_of(self.bias) == (w[0],), "L9: bias has N elements")
        require(shape_of(self.result) == (*x[:-1], w[0]), "L9: the result is [..., N]")


@irdl_op_definition
class AddmmOp(LmOp):
    """`bias + input · weight`: [M, K] × [K, N] + [N] → [M, N] (Conv1D). L9."""

    name = "lm.addmm"
    bias = operand_def(TensorType)
    input = operand_def(TensorType)
    weight = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$bias `,` $input `,` $weight attr-dict"
        " `:` type($bias) `,` type($input) `,` type($weight) `->` type($result)"
    )

    def __init__(self, bias: SSAValue, input: SSAValue, weight: SSAValue):
        shape = (shape_of(input)[0], shape_of(weight)[1])
        super().__init__(
            operands=[bias, input, weight], result_types=[tensor(shape, element_of(input))]
        )

    def verify_(self) -> None:
        x, w = shape_of(self.input), shape_of(self.weight)
        require(len(x) == len(w) == 2 and x[1] == w[0], f"L9: {x} × {w} do not contract")
        require(shape_of(self.bias) == (w[1],), "L9: bias has N elements")
        require(shape_of(self.result) == (x[0], w[1]), "L9: the result is [M, N]")


@irdl_op_definition
class MatmulOp(LmOp):
    """Batched matrix product: [..., M, K] × [..., K, N], batch axes broadcast. L9."""

    name = "lm.matmul"
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)"
    )

    def __init__(self, lhs: SSAValue, rhs: SSAValue):
        a, b = shape_of(lhs), shape_of(rhs)
        shape = (*broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])
        super().__init__(operands=[lhs, rhs], result_types=[tensor(shape, element_of(lhs))])

    def verify_(self) -> None:
        a, b = shape_of(self.lhs), shape_of(self.rhs)
        ranks = len(a) >= 2 and len(b) >= 2
        require(ranks and a[-1:] == b[-2:-1], f"L9: {a} × {b} do not contract")
        expect = (*broadcast_shapes(a[:-2], b[:-2]), *a[-2:-1], *b[-1:])
        require(shape_of(self.result) == expect, f"L9: the result is {expect}")


@irdl_op_definition
class EmbeddingOp(LmOp):
    """Rows of `weight` [V, H] by i64 indices [...] → [..., H]. Indices lie in [0, V). L10."""

    name = "lm.embedding"
    weight = operand_def(TensorType)
    indices = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$weight `,` $indices attr-dict `:` type($weight) `,` type($indices) `->` type($result)"
    )

    def __init__(self, weight: SSAValue, indices: SSAValue):
        shape = (*shape_of(indices), shape_of(weight)[1])
        super().__init__(
            operands=[weight, indices], result_types=[tensor(shape, element_of(weight))]
        )

    def verify_(self) -> None:
        require(element_of(self.indices) == i64, "L10: indices are i64")
        expect = (*shape_of(self.indices), *shape_of(self.weight)[1:])
        require(shape_of(self.result) == expect, f"L10: the result is {expect}")


@irdl_op_definition
class RowsOp(LmOp):
    """Rows P … P + S − 1 of `table` [max_seq, D], as [1, S, D]; S is the result's. L10."""

    name = "lm.rows"
    table = operand_def(TensorType)
    position = operand_def(IndexType())
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$table `,` $position attr-dict `:` type($table) `->` type($result)"
    )

    def __init__(self, table: SSAValue, position: SSAValue, tokens: int):
        result = tensor((1, tokens, shape_of(table)[1]), element_of(table))
        super().__init__(operands=[table, position], result_types=[result])

    def verify_(self) -> None:
        table, rows = shape_of(self.table), shape_of(self.result)
        ok = len(table) == 2 and len(rows) == 3 and rows[0] == 1 and rows[2] == table[1]
        require(ok and rows[1] <= table[0], "L10: rows of [max_seq, D] are [1, S, D]")


# ---- raised ops ---------------------------------------------------------------------------


class NormOp(LmOp, ABC):
    """Normalises over the last axis; weight (and bias) have its extent. L11."""

    SAME: ClassVar = VarConstraint("SAME", base(TensorType))
    input = operand_def(SAME)
    weight = opt_operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    eps = prop_def(FloatAttr)
    result = result_def(SAME)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$input (`weight` $weight^ `:` type($weight))? (`bias` $bias^ `:` type($bias))?"
        " attr-dict `:` type($result)"
    )

    def __init__(
        self,
        input: SSAValue,
        weight: SSAValue | None,
        eps: float,
        bias: SSAValue | None = None,
    ):
        super().__init__(
            operands=[input, weight, bias],
            properties={"eps": real(eps)},
            result_types=[input.type],
        )

    def verify_(self) -> None:
        for v in (self.weight, self.bias):
            if v is not None:
                require(shape_of(v) == shape_of(self.input)[-1:], "L11: norm weight is [H]")


@irdl_op_definition
class RMSNormOp(NormOp):
    """x · rsqrt(mean(x²) + eps) · weight (Zhang & Sennrich 2019)."""

    name = "lm.rms_norm"


@irdl_op_definition
class LayerNormOp(NormOp):
    """(x − mean) · rsqrt(var + eps) · weight + bias (Ba et al. 2016)."""

    name = "lm.layer_norm"


@irdl_op_definition
class RopeOp(LmOp):
    """Rotary embedding, rotate-half form (Su et al. 2021): x · cos + rotate(x) · sin with
    rotate([a, b]) = [−b, a]; x is [1, H, S, D], cos and sin broadcast to it (D included). L12."""

    name = "lm.rope"
    SAME: ClassVar = VarConstraint("SAME", base(TensorType))
    input = operand_def(SAME)
    cos = operand_def(TensorType)
    sin = operand_def(TensorType)
    result = result_def(SAME)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$input `,` $cos `,` $sin attr-dict"
        " `:` type($input) `,` type($cos) `,` type($sin) `->` type($result)"
    )

    def __init__(self, input: SSAValue, cos: SSAValue, sin: SSAValue):
        super().__init__(operands=[input, cos, sin], result_types=[input.type])

    def verify_(self) -> None:
        x = shape_of(self.input)
        require(x[-1] % 2 == 0, "L12: rope rotates an even number of features")
        for v in (self.cos, self.sin):
            require(broadcast_shapes(shape_of(v), x) == x, "L12: cos and sin broadcast to x")


@irdl_op_definition
class GatedActOp(LmOp):
    """activation(gate) · up, elementwise; `activation` names a unary op of this dialect. L13."""

    name = "lm.gated_act"
    SAME: ClassVar = VarConstraint("SAME", base(TensorType))
    gate = operand_def(SAME)
    up = operand_def(SAME)
    activation = prop_def(StringAttr)
    result = result_def(SAME)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$activation $gate `,` $up attr-dict `:` type($result)"
    KNOWN: ClassVar[tuple[str, ...]] = (
        "silu", "gelu", "gelu_tanh", "relu", "sigmoid", "tanh",
    )  # fmt: skip

    def __init__(self, activation: str, gate: SSAValue, up: SSAValue):
        super().__init__(
            operands=[gate, up],
            properties={"activation": StringAttr(activation)},
            result_types=[gate.type],
        )

    def verify_(self) -> None:
        require(self.activation.data in self.KNOWN, f"L13: activation is one of {self.KNOWN}")


# ---- attention ----------------------------------------------------------------------------


class AttentionBase(LmOp, ABC):
    """Operands and numbers that both forms of attention share. L14.

    `query` is [1, Hq, S, D]; `keys` and `values` are caches [1, Hkv, ?, D] at the version after
    this launch's append, Hkv divides Hq and query head h reads head h // (Hq / Hkv). Row s sees
    cache rows j with j ≤ P + s and, under `window` W, j > P + s − W or j < `first_rows` (Xiao et
    al. 2023). `softcap` c maps a scaled score t to c · tanh(t / c). `sinks` [Hq] are extra logits
    that take part in the softmax.
    """

    query = operand_def(TensorType)
    keys = operand_def(CacheType)
    values = operand_def(CacheType)
    position = operand_def(IndexType())
    scale = prop_def(FloatAttr)
    window = opt_prop_def(IntegerAttr)
    first_rows = opt_prop_def(IntegerAttr)
    softcap = opt_prop_def(FloatAttr)
    traits = traits_def(Pure())

    @property
    def kept(self) -> int:
        """Rows that stay in sight of every later one, 0 for none."""
        return 0 if self.first_rows is None else self.first_rows.value.data

    def numbers(self) -> dict[str, float | int | None]:
        return {
            "scale": self.scale.value.data,
            "window": None if self.window is None else self.window.value.data,
            "softcap": None if self.softcap is None else self.softcap.value.data,
            "first_rows": self.kept,
        }

    def dims(self) -> tuple[int, int, int, int, int]:
        """(Hq, Hkv, S, D of queries and keys, D of values)"""
        assert isinstance(self.keys.type, CacheType)
        assert isinstance(self.values.type, CacheType)
        _, heads, tokens, depth = shape_of(self.query)
        return (
            heads,
            self.keys.type.get_shape()[1],
            tokens,
            depth,
            self.values.type.get_shape()[3],
        )

    def verify_(self) -> None:
        assert isinstance(self.keys.type, CacheType)
        assert isinstance(self.values.type, CacheType)
        q, k, v = shape_of(self.query), self.keys.type.get_shape(), self.values.type.get_shape()
        require(
            len(q) == len(k) == len(v) == 4 and q[0] == 1, "L14: attention ranks are 4, batch 1"
        )
        require(self.keys.type.axis.data == self.values.type.axis.data == 2, "L14: axis 2 is open")
        require(k[1] == v[1] and q[1] % k[1] == 0, "L14: kv heads divide query heads")
        require(q[3] == k[3], "L14: queries and keys have one depth")
        require(self.window is None or self.window.value.data > 0, "L14: a window is positive")
        stay = self.first_rows is None or (self.kept > 0 and self.window is not None)
        require(stay, "L14: first rows that stay are some, and beside a window")


@irdl_op_definition
class AttentionOp(AttentionBase):
    """Causal attention over the live rows of the caches → [1, S, Hq, Dv]."""

    name = "lm.attention"
    sinks = opt_operand_def(TensorType)
    result = result_def(TensorType)
    assembly_format: ClassVar[str] = (
        "$query `,` $keys `,` $values `at` $position (`sinks` $sinks^ `:` type($sinks))? attr-dict"
        " `:` type($query) `,` type($keys) `,` type($values) `->` type($result)"
    )

    def __init__(
        self,
        query: SSAValue,
        keys: SSAValue,
        values: SSAValue,
        position: SSAValue,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: SSAValue | None = None,
        first_rows: int = 0,
    ):
        assert isinstance(values.type, CacheType)
        _, heads, tokens, _ = shape_of(query)
        depth = values.type.get_shape()[3]
        # A field of a subclass comes before the inherited ones.
        super().__init__(
            operands=[sinks, query, keys, values, position],
            properties=attention_properties(scale, window, softcap, first_rows),
            result_types=[tensor((1, tokens, heads, depth), element_of(query))],
        )

    def verify_(self) -> None:
        super().verify_()
        heads, _, tokens, _, depth = self.dims()
        require(shape_of(self.result) == (1, tokens, heads, depth), "L14: result [1, S, Hq, Dv]")
        require(self.sinks is None or shape_of(self.sinks) == (heads,), "L14: sinks are [Hq]")


def attention_properties(
    scale: float, window: int | None, softcap: float | None, first_rows: int = 0
) -> dict[str, Attribute]:
    properties: dict[str, Attribute] = {"scale": real(scale)}
    if first_rows:
        properties["first_rows"] = integer(first_rows)
    if window is not None:
        properties["window"] = integer(window)
    if softcap is not None:
        properties["softcap"] = real(softcap)
    return properties


@irdl_op_definition
class AttentionSplitOp(AttentionBase):
    """One partial softmax a chunk of `chunk` cache rows (split-KV, Dao et al. 2023).

    Results, with n = ceil(max_seq / chunk) and G = Hq / Hkv: `outputs` [n, Hkv, S, G, Dv]
    (unnormalised), `maxima` and `sums` [n, Hkv, S, G]. Chunk c holds rows [c·chunk, (c+1)·chunk);
    one that holds no visible row has maximum −inf and sum 0. f32. Under `first_rows` these rows are
    a partial of their own, number 0, and chunk c, without them, is number c + 1. L15."""

    name = "lm.attention_split"
    chunk = prop_def(IntegerAttr)
    outputs = result_def(TensorType)
    maxima = result_def(TensorType)
    sums = result_def(TensorType)
    assembly_format: ClassVar[str] = (
        "$query `,` $keys `,` $values `at` $position attr-dict `:` type($query) `,` type($keys)"
        " `,` type($values) `->` type($outputs) `,` type($maxima) `,` type($sums)"
    )

    def __init__(self, attention: AttentionOp, chunk: int, max_seq: int, element: Attribute):
        heads, kv_heads, tokens, _, depth = attention.dims()
        n = -(-max_seq // chunk) + (attention.kept > 0)
        rows = (n, kv_heads, tokens, heads // kv_heads)
        numbers = {k: v for k, v in attention.properties.items() if k != "operandSegmentSizes"}
        super().__init__(
            operands=[attention.query, attention.keys, attention.values, attention.position],
            properties={**numbers, "chunk": integer(chunk)},
            result_types=[
                tensor((*rows, depth), element),
                tensor(rows, element),
                tensor(rows, element),
            ],
        )

    def verify_(self) -> None:
        super().verify_()
        heads, kv_heads, tokens, _, depth = self.dims()
        shape = shape_of(self.outputs)
        require(shape[1:] == (kv_heads, tokens, heads // kv_heads, depth), "L15: outputs' shape")
        require(shape_of(self.maxima) == shape_of(self.sums) == shape[:4], "L15: partials' shape")
        chunk = self.chunk.value.data
        require(chunk > 0, "L15: a chunk is positive")
        require(self.kept <= chunk, "L15: first rows that stay lie in one chunk")


@irdl_op_definition
class AttentionCombineOp(LmOp):
    """Joins the partials of `lm.attention_split` by log-sum-exp, in ascending order, over the
    chunks below ceil((P + S) / chunk), after that of `first_rows` → [1, S, Hq, Dv]. L15."""

    name = "lm.attention_combine"
    outputs = operand_def(TensorType)
    maxima = operand_def(TensorType)
    sums = operand_def(TensorType)
    position = operand_def(IndexType())
    sinks = opt_operand_def(TensorType)
    chunk = prop_def(IntegerAttr)
    first_rows = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$outputs `,` $maxima `,` $sums `at` $position (`sinks` $sinks^ `:` type($sinks))?"
        " attr-dict `:` type($outputs) `,` type($maxima) `,` type($sums) `->` type($result)"
    )

    def __init__(self, split: AttentionSplitOp, sinks: SSAValue | None):
        _, kv_heads, tokens, group, depth = shape_of(split.outputs)
        super().__init__(
            operands=[split.outputs, split.maxima, split.sums, split.position, sinks],
            properties={
                "chunk": split.chunk,
                **({} if split.first_rows is None else {"first_rows": split.first_rows}),
            },
            result_types=[tensor((1, tokens, kv_heads * group, depth), element_of(split.outputs))],
        )

    def verify_(self) -> None:
        shape = shape_of(self.outputs)
        require(len(shape) == 5, "L15: partial outputs are [n, Hkv, S, G, Dv]")
        _, kv_heads, tokens, group, depth = shape
        require(shape_of(self.maxima) == shape_of(self.sums) == shape[:4], "L15: partials' shape")
        expect = (1, tokens, kv_heads * group, depth)
        require(shape_of(self.result) == expect, f"L15: the result is {expect}")


# ---- structure ----------------------------------------------------------------------------


@irdl_op_definition
class YieldOp(LmOp):
    """Ends the body of `lm.stage`."""

    name = "lm.yield"
    arguments = var_operand_def()
    traits = traits_def(IsTerminator())
    assembly_format: ClassVar[str] = "attr-dict ($arguments^ `:` type($arguments))?"

    def __init__(self, *arguments: SSAValue):
        super().__init__(operands=[list(arguments)])


@irdl_op_definition
class StageOp(LmOp):
    """Ops that will run as one stage of the megakernel; the body sees the values around it. L16.

    A stage is pure: it may append to caches, as `kv.append` is pure on versions."""

    name = "lm.stage"
    sym_name = prop_def(StringAttr)
    body = region_def("single_block")
    results_ = var_result_def()
    traits = traits_def(Pure(), SingleBlockImplicitTerminator(YieldOp))
    assembly_format: ClassVar[str] = "$sym_name attr-dict-with-keyword $body `:` type($results_)"

    def __init__(self, body: Region, result_types: Sequence[Attribute], name: str):
        super().__init__(
            regions=[body],
            result_types=[list(result_types)],
            properties={"sym_name": StringAttr(name)},
        )

    def verify_(self) -> None:
        last = self.body.block.last_op
        require(isinstance(last, YieldOp), "L16: a stage ends in lm.yield")
        assert isinstance(last, YieldOp)
        same = tuple(a.type for a in last.arguments) == tuple(r.type for r in self.results_)
        require(same, "L16: a stage yields the types of its results")


LEAVES = (WeightOp, ConstantOp, PositionsOp)
UNARY = (
    NegOp, AbsOp, FloorOp, ExpOp, LogOp, SqrtOp, RsqrtOp, CosOp, SinOp, TanhOp, SigmoidOp, SiluOp,
    ReluOp, ErfOp, GeluOp, GeluTanhOp,
)  # fmt: skip
BINARY = (AddOp, SubOp, MulOp, DivOp, PowOp, MaximumOp, MinimumOp)
SCALAR = (AddScalarOp, SubScalarOp, RsubScalarOp, MulScalarOp, DivScalarOp, PowScalarOp)
REDUCTIONS = (MeanOp, SumOp, AmaxOp)
SHAPE = (ReshapeOp, TransposeOp, SliceOp, ConcatOp, ExpandOp)

LM = Dialect(
    "lm",
    [
        *LEAVES, *UNARY, *BINARY, *SCALAR, CastOp, *REDUCTIONS, SoftmaxOp, ArgmaxOp, *SHAPE,
        LinearOp, AddmmOp, MatmulOp, EmbeddingOp, RowsOp, RMSNormOp, LayerNormOp, RopeOp,
        GatedActOp, AttentionOp, AttentionSplitOp, AttentionCombineOp, YieldOp, StageOp,
    ],
)  # fmt: skip
