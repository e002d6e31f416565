"""Runs `@init` in numpy: what a program computes once from its weights, without torch.

Floats are f32 between ops. An op whose f64 form rounds better (a cosine, a sum, a product) is
computed in f64 and rounded once, so tables are the nearest f32 to their exact value. Shape ops
are views. bf16 has no numpy dtype: it travels as `uint16` patterns through pure layouts and is
widened, worked on in f32 and rounded again elsewhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.arith import ConstantOp as ArithConstantOp
from xdsl.dialects.builtin import (
    ArrayAttr,
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    StringAttr,
    TensorType,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from amk.errors import AmkError
from amk.interpreters.numerics_float import from_bf16_bits, to_bf16_bits
from amk.ir import lm

Array = np.ndarray
Read = Callable[[str], Array]

CARRIERS: dict[Attribute, np.dtype] = {
    Float64Type(): np.dtype(np.float64),
    Float32Type(): np.dtype(np.float32),
    Float16Type(): np.dtype(np.float16),
    BFloat16Type(): np.dtype(np.uint16),
    IntegerType(64): np.dtype(np.int64),
    IntegerType(32): np.dtype(np.int32),
}
"""The numpy dtype that carries an element type."""

BF16 = BFloat16Type()


def evaluate_init(module: ModuleOp, read: Read) -> dict[str, Array]:
    """All results of `@init`, by name; {} when the module has no `@init`. See `iterate_init`."""
    return dict(iterate_init(module, read))


def iterate_init(module: ModuleOp, read: Read) -> Iterator[tuple[str, Array]]:
    """(name, value) for each result of `@init`, in order, one computed after another.

    `read(key)` gives the weight of a state-dict key with the shape and dtype the module states,
    bf16 as `uint16`. A value is dropped after the last result that needs it, so a caller that
    drops each result holds about one weight at a time. A result may be a view of what `read`
    gave, and may not be contiguous. Raises AmkError for an op without a meaning here and for a
    weight of another shape or dtype.
    """
    init = init_function(module)
    if init is None:
        return
    last = init.body.block.last_op
    assert isinstance(last, ReturnOp)
    names = init.attributes.get("amk.names")
    if not isinstance(names, ArrayAttr) or len(names.data) != len(last.arguments):
        raise AmkError("@init: the attribute amk.names must name each result")
    needed = Counter(v for result in last.arguments for v in cone(result))
    values: dict[SSAValue, Any] = {}
    for name, result in zip(names.data, last.arguments, strict=True):
        assert isinstance(name, StringAttr)
        steps = cone(result)
        for value in steps:
            if value not in values:
                values[value] = evaluate(value, values, read)
        out = values[result]
        for value in steps:
            needed[value] -= 1
            if not needed[value]:
                del values[value]
        yield name.data, out


def init_function(module: ModuleOp) -> FuncOp | None:
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and op.sym_name.data == "init":
            return op
    return None


def cone(result: SSAValue) -> list[SSAValue]:
    """What `result` is computed from, itself last, operands before their users."""
    order: dict[SSAValue, None] = {}
    stack: list[tuple[SSAValue, bool]] = [(result, False)]
    while stack:
        value, done = stack.pop()
        if value in order:
            continue
        if done:
            order[value] = None
            continue
        owner = value.owner
        if not isinstance(owner, Operation):
            raise AmkError("@init takes no arguments")
        stack.append((value, True))
        stack.extend((operand, False) for operand in owner.operands)
    return list(order)


def evaluate(value: SSAValue, values: dict[SSAValue, Any], read: Read) -> Any:
    op = value.owner
    assert isinstance(op, Operation)
    if isinstance(op, lm.WeightOp):
        return _weight(op, read)
    meaning = MEANING.get(type(op))
    if meaning is None:
        raise AmkError(f"@init: no numpy meaning for {op.name}")
    with np.errstate(all="ignore"):
        out = meaning(op, *(values[v] for v in op.operands))
    if isinstance(value.type, TensorType):
        expected = (value.type.get_shape(), CARRIERS[value.type.element_type])
        if (out.shape, out.dtype) != expected:
            raise AmkError(f"@init: {op.name} gives {out.dtype}{out.shape}, not {value.type}")
    return out


def _weight(op: lm.WeightOp, read: Read) -> Array:
    shape, dtype = lm.shape_of(op.result), CARRIERS[lm.element_of(op.result)]
    found = read(op.key.data)
    if found.shape != shape or found.dtype != dtype:
        raise AmkError(
            f"@init: weight {op.key.data!r} is {found.dtype}{found.shape}, "
            f"the program needs {dtype}{shape}"
        )
    return found


# ---- dtypes -------------------------------------------------------------------------------


def widened(x: Array, element: Attribute, float_type: type[np.floating]) -> Array:
    """A float tensor as `float_type`; integers as they are."""
    if element == BF16:
        return from_bf16_bits(x).astype(float_type, copy=False)
    return x.astype(float_type, copy=False) if x.dtype.kind == "f" else x


def rounded(x: Array, element: Attribute) -> Array:
    """`x` rounded to nearest even in `element`, as its carrier."""
    if element == BF16:
        return to_bf16_bits(np.asarray(x, np.float32))
    return np.asarray(x).astype(CARRIERS[element], copy=False)


def on(float_type: type[np.floating], function: Callable[..., Array]) -> Callable[..., Array]:
    """An op computed on `float_type` operands and rounded to the result's dtype."""

    def meaning(op: Operation, *operands: Array) -> Array:
        wide = [
            widened(x, lm.element_of(v), float_type)
            for x, v in zip(operands, op.operands, strict=True)
        ]
        return rounded(function(op, *wide), lm.element_of(op.results[0]))

    return meaning


def exact(function: Callable[..., Array]) -> Callable[..., Array]:
    """In f64: for sums and functions, whose f32 form loses bits."""
    return on(np.float64, function)


def plain(function: Callable[..., Array]) -> Callable[..., Array]:
    return exact(lambda op, *operands: function(*operands))


def arithmetic(function: Callable[..., Array]) -> Callable[..., Array]:
    """In f32: one correctly rounded operation, and no f64 copy of a large weight."""
    return on(np.float32, lambda op, *operands: function(*operands))


def scalar(function: Callable[[Array, Any], Array]) -> Callable[..., Array]:
    """In f32 with the scalar rounded to f32 first, as the `lm` interpreter does."""

    def meaning(op: lm.ScalarOp, x: Array) -> Array:
        value = op.value.value.data
        integers = isinstance(lm.element_of(op.input), IntegerType)
        return function(x, int(value) if integers else np.float32(value))

    return on(np.float32, meaning)


# ---- the meaning of each op ---------------------------------------------------------------

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _gelu_tanh(x: Array) -> Array:
    """Hendrycks & Gimpel 2016: 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))"""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _softmax(op: lm.SoftmaxOp, x: Array) -> Array:
    axis = op.dim.value.data
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def _reduce(function: Callable[..., Array]) -> Callable[..., Array]:
    def meaning(op: lm.ReduceOp, x: Array) -> Array:
        return function(x, axis=_ints(op.dims), keepdims=bool(op.keepdim.value.data))

    return exact(meaning)


def _ints(attribute: Any) -> tuple[int, ...]:
    return tuple(int(d) for d in attribute.get_values())


def _constant(op: lm.ConstantOp) -> Array:
    element = lm.element_of(op.result)
    return np.frombuffer(op.value.data.data, CARRIERS[element]).reshape(lm.shape_of(op.result))


def _positions(op: lm.PositionsOp, past: int) -> Array:
    shape = lm.shape_of(op.result)
    return np.arange(past, past + shape[-1], dtype=np.int64).reshape(shape)


def _index(op: ArithConstantOp) -> int:
    assert isinstance(op.value, IntegerAttr)
    return op.value.value.data


def _cast(op: lm.CastOp, x: Array) -> Array:
    """Through f32 for bf16 and f32 alike: f64 in between would round integers twice."""
    source, target = lm.element_of(op.input), lm.element_of(op.result)
    if source == BF16:
        x = from_bf16_bits(x)
    return to_bf16_bits(x.astype(np.float32)) if target == BF16 else x.astype(CARRIERS[target])


def _slice(op: lm.SliceOp, x: Array) -> Array:
    dim, start, end, step = op.bounds()
    return x[(slice(None),) * dim + (slice(start, end, step),)]


def _concat(op: lm.ConcatOp, *parts: Array) -> Array:
    return np.concatenate(parts, axis=op.dim.value.data)


def _linear(op: lm.LinearOp, x: Array, w: Array, bias: Array | None = None) -> Array:
    y = x @ w.T
    return y if bias is None else y + bias


def _rms_norm(op: lm.RMSNormOp, x: Array, *parameters: Array) -> Array:
    scale = 1.0 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + op.eps.value.data)
    return _affine(op, x * scale, parameters)


def _layer_norm(op: lm.LayerNormOp, x: Array, *parameters: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    scale = 1.0 / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + op.eps.value.data)
    return _affine(op, centred * scale, parameters)


def _affine(op: lm.NormOp, x: Array, parameters: Sequence[Array]) -> Array:
    rest = list(parameters)
    if op.weight is not None:
        x = x * rest.pop(0)
    return x + rest.pop(0) if op.bias is not None else x


MEANING: dict[type[Operation], Callable[..., Any]] = {
    ArithConstantOp: _index,
    lm.ConstantOp: _constant,
    lm.PositionsOp: _positions,
    lm.NegOp: arithmetic(np.negative),
    lm.AbsOp: arithmetic(np.abs),
    lm.FloorOp: arithmetic(np.floor),
    lm.ExpOp: plain(np.exp),
    lm.LogOp: plain(np.log),
    lm.SqrtOp: arithmetic(np.sqrt),
    lm.RsqrtOp: plain(lambda x: 1.0 / np.sqrt(x)),
    lm.CosOp: plain(np.cos),
    lm.SinOp: plain(np.sin),
    lm.TanhOp: plain(np.tanh),
    lm.SigmoidOp: plain(_sigmoid),
    lm.SiluOp: plain(lambda x: x * _sigmoid(x)),
    lm.ReluOp: arithmetic(lambda x: np.maximum(x, 0.0)),
    lm.ErfOp: plain(_erf),
    lm.GeluOp: plain(lambda x: 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0)))),
    lm.GeluTanhOp: plain(_gelu_tanh),
    lm.AddOp: arithmetic(np.add),
    lm.SubOp: arithmetic(np.subtract),
    lm.MulOp: arithmetic(np.multiply),
    lm.DivOp: arithmetic(np.divide),
    lm.PowOp: plain(np.power),
    lm.MaximumOp: arithmetic(np.maximum),
    lm.MinimumOp: arithmetic(np.minimum),
    lm.AddScalarOp: scalar(np.add),
    lm.SubScalarOp: scalar(np.subtract),
    lm.RsubScalarOp: scalar(lambda x, value: value - x),
    lm.MulScalarOp: scalar(np.multiply),
    lm.DivScalarOp: scalar(np.divide),
    lm.PowScalarOp: exact(lambda op, x: np.power(x, op.value.value.data)),
    lm.CastOp: _cast,
    lm.MeanOp: _reduce(np.mean),
    lm.SumOp: _reduce(np.sum),
    lm.AmaxOp: _reduce(np.max),
    lm.SoftmaxOp: exact(_softmax),
    lm.ReshapeOp: lambda op, x: x.reshape(lm.shape_of(op.result)),
    lm.TransposeOp: lambda op, x: x.transpose(_ints(op.permutation)),
    lm.SliceOp: _slice,
    lm.ConcatOp: _concat,
    lm.ExpandOp: lambda op, x: np.broadcast_to(x, lm.shape_of(op.result)),
    lm.LinearOp: exact(_linear),
    lm.MatmulOp: plain(np.matmul),
    lm.RMSNormOp: exact(_rms_norm),
    lm.LayerNormOp: exact(_layer_norm),
}
