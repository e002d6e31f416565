"""ATen ops and the lm ops that mean the same: one table.

A row receives the call's arguments by their schema names and emits lm ops. An argument the row
did not read must hold its schema's default, otherwise the call is refused: so a row never ignores
what it does not understand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from xdsl.ir import Operation, SSAValue

from amk.errors import ImportRefused
from amk.frontend.call import Call, Result
from amk.ir import lm

aten = torch.ops.aten


Row = Callable[[Call], Result]


def unary(op: Callable[[SSAValue], Operation]) -> Row:
    return lambda call: call.emit(op(call.tensor("self")))


def binary(op: type[lm.BinaryOp], scalar: type[lm.ScalarOp] | None = None) -> Row:
    """`op`, or `scalar` where the second operand is a Python number."""

    def row(call: Call) -> SSAValue:
        lhs, rhs = call.tensor("self"), call.value(call.get("other"))
        result = lm.tensor(call.shape, call.element)
        if rhs is not None:
            return call.emit(op(lhs, rhs, result))
        if scalar is None:
            raise ImportRefused(f"{call.node.target} with a number")
        return call.emit(scalar(lhs, call.number("other"), result))

    return row


def scalar(op: type[lm.ScalarOp], name: str = "other") -> Row:
    def row(call: Call) -> SSAValue:
        result = lm.tensor(call.shape, call.element)
        return call.emit(op(call.tensor("self"), call.number(name), result))

    return row


def same(*ignored: str) -> Row:
    """The same value; `ignored` arguments change a tensor's storage only."""

    def row(call: Call) -> SSAValue:
        for name in ignored:
            call.get(name)
        return call.tensor("self")

    return row


def cast(*read: str) -> Row:
    """`lm.cast` to the result's dtype, or the same value where it already has it.

    `read` arguments are what decides that dtype, or change a tensor's storage only."""

    def row(call: Call) -> SSAValue:
        for name in read:
            call.get(name)
        return convert(call, call.tensor("self"))

    return row


def convert(call: Call, value: SSAValue) -> SSAValue:
    if lm.element_of(value) == call.element:
        return value
    return call.emit(lm.CastOp(value, call.element))


def dropout(call: Call) -> SSAValue:
    call.get("p")
    if call.get("train"):
        raise ImportRefused("dropout in training mode; call model.eval() first")
    return call.tensor("input")


def reshaped(call: Call, value: SSAValue, shape: Sequence[int]) -> SSAValue:
    if lm.shape_of(value) == tuple(shape):
        return value
    return call.emit(lm.ReshapeOp(value, shape))


def reshape(*read: str) -> Row:
    """A view with the result's shape; `read` arguments are what decides that shape."""

    def row(call: Call) -> SSAValue:
        for name in read:
            call.get(name)
        return reshaped(call, call.tensor("self"), call.shape)

    return row


def transposed(call: Call, value: SSAValue, permutation: Sequence[int]) -> SSAValue:
    if list(permutation) == list(range(len(permutation))):
        return value
    return call.emit(lm.TransposeOp(value, permutation))


def transpose(call: Call) -> SSAValue:
    value = call.tensor("self")
    rank = len(lm.shape_of(value))
    order = list(range(rank))
    a, b = call.axis("dim0", rank), call.axis("dim1", rank)
    order[a], order[b] = order[b], order[a]
    return transposed(call, value, order)


def matrix_transpose(call: Call) -> SSAValue:
    value = call.tensor("self")
    return transposed(call, value, list(reversed(range(len(lm.shape_of(value))))))


def permute(call: Call) -> SSAValue:
    value = call.tensor("self")
    rank = len(lm.shape_of(value))
    return transposed(call, value, [int(d) % rank for d in call.get("dims")])


def cut(call: Call, value: SSAValue, axis: int, start: int, end: int, step: int = 1) -> SSAValue:
    if (start, end, step) == (0, lm.shape_of(value)[axis], 1):
        return value
    return call.emit(lm.SliceOp(value, axis, start, end, step))


def slice_(call: Call) -> SSAValue:
    value = call.tensor("self")
    shape = lm.shape_of(value)
    axis = call.axis("dim", len(shape))
    bounds = slice(call.get("start"), call.get("end"), call.get("step"))
    start, end, step = bounds.indices(shape[axis])
    return cut(call, value, axis, start, max(start, end), step)


def select(call: Call) -> SSAValue:
    value = call.tensor("self")
    shape = lm.shape_of(value)
    axis = call.axis("dim", len(shape))
    index = int(call.get("index")) % shape[axis]
    return reshaped(call, cut(call, value, axis, index, index + 1), call.shape)


def pieces(*read: str) -> Row:
    """split, chunk and unbind: the results' extents along `dim` say where to cut."""

    def row(call: Call) -> Result:
        for name in read:
            call.get(name)
        value, start, out = call.tensor("self"), 0, []
        rank = len(lm.shape_of(value))
        axis = call.axis("dim", rank)
        for part in call.node.meta["val"]:
            extent = int(part.shape[axis]) if part.dim() == rank else 1
            piece = cut(call, value, axis, start, start + extent)
            out.append(reshaped(call, piece, [int(d) for d in part.shape]))
            start += extent
        return tuple(out)

    return row


def concat(call: Call) -> SSAValue:
    values = call.tensors("tensors")
    return call.emit(lm.ConcatOp(values, call.axis("dim", len(call.shape))))


def stack(call: Call) -> SSAValue:
    values = call.tensors("tensors")
    axis = call.axis("dim", len(call.shape))
    shape = [1 if i == axis else d for i, d in enumerate(call.shape)]
    return call.emit(lm.ConcatOp([reshaped(call, v, shape) for v in values], axis))


def expand(call: Call) -> SSAValue:
    call.get("size")
    call.get("implicit")
    value = call.tensor("self")
    if lm.shape_of(value) == call.shape:
        return value
    return call.emit(lm.ExpandOp(value, call.shape))


def repeat_interleave(call: Call) -> SSAValue:
    """Each slice of the axis `repeats` times in a row: an expand of an axis put after it."""
    value = call.tensor("self")
    shape, repeats = lm.shape_of(value), int(call.get("repeats"))
    if call.get("dim") is None:
        raise ImportRefused("repeat_interleave over a flattened tensor")
    axis = call.axis("dim", len(shape))
    before, after = shape[: axis + 1], shape[axis + 1 :]
    column = reshaped(call, value, (*before, 1, *after))
    wide = call.emit(lm.ExpandOp(column, (*before, repeats, *after)))
    return reshaped(call, wide, call.shape)


def reduce(op: type[lm.ReduceOp]) -> Row:
    def row(call: Call) -> SSAValue:
        value = call.tensor("self")
        dims = call.axes("dim", len(lm.shape_of(value)))
        return call.emit(op(value, dims, bool(call.get("keepdim"))))

    return row


def softmax(call: Call) -> SSAValue:
    value = call.tensor("self")
    call.get("dtype")
    value = convert(call, value)
    return call.emit(lm.SoftmaxOp(value, call.axis("dim", len(call.shape))))


def gelu(call: Call) -> SSAValue:
    kinds = {"none": lm.GeluOp, "tanh": lm.GeluTanhOp}
    return call.emit(kinds[call.get("approximate")](call.tensor("self")))


def linear(call: Call) -> SSAValue:
    return call.emit(
        lm.LinearOp(call.tensor("input"), call.tensor("weight"), call.optional("bias"))
    )


def addmm(call: Call) -> SSAValue:
    return call.emit(lm.AddmmOp(call.tensor("self"), call.tensor("mat1"), call.tensor("mat2")))


def matmul(call: Call) -> SSAValue:
    return call.emit(lm.MatmulOp(call.tensor("self"), call.tensor("other")))


def embedding(call: Call) -> SSAValue:
    # padding_idx and the two flags after it concern gradients only.
    for name in ("padding_idx", "scale_grad_by_freq", "sparse"):
        call.get(name)
    return call.emit(lm.EmbeddingOp(call.tensor("weight"), call.tensor("indices")))


def layer_norm(call: Call) -> SSAValue:
    call.get("cudnn_enable")
    value = call.tensor("input")
    if list(call.get("normalized_shape")) != list(lm.shape_of(value)[-1:]):
        raise ImportRefused("layer_norm over more than the last axis")
    weight, bias = call.optional("weight"), call.optional("bias")
    return call.emit(lm.LayerNormOp(value, weight, call.number("eps"), bias))


ROWS: dict[Any, Row] = {
    aten.neg.default: unary(lm.NegOp),
    aten.abs.default: unary(lm.AbsOp),
    aten.floor.default: unary(lm.FloorOp),
    aten.exp.default: unary(lm.ExpOp),
    aten.log.default: unary(lm.LogOp),
    aten.sqrt.default: unary(lm.SqrtOp),
    aten.rsqrt.default: unary(lm.RsqrtOp),
    aten.cos.default: unary(lm.CosOp),
    aten.sin.default: unary(lm.SinOp),
    aten.tanh.default: unary(lm.TanhOp),
    aten.sigmoid.default: unary(lm.SigmoidOp),
    aten.silu.default: unary(lm.SiluOp),
    aten.relu.default: unary(lm.ReluOp),
    aten.erf.default: unary(lm.ErfOp),
    aten.gelu.default: gelu,
    aten.add.Tensor: binary(lm.AddOp, lm.AddScalarOp),
    aten.sub.Tensor: binary(lm.SubOp, lm.SubScalarOp),
    aten.mul.Tensor: binary(lm.MulOp, lm.MulScalarOp),
    aten.div.Tensor: binary(lm.DivOp, lm.DivScalarOp),
    aten.maximum.default: binary(lm.MaximumOp),
    aten.minimum.default: binary(lm.MinimumOp),
    aten.add.Scalar: scalar(lm.AddScalarOp),
    aten.sub.Scalar: scalar(lm.SubScalarOp),
    aten.rsub.Scalar: scalar(lm.RsubScalarOp),
    aten.mul.Scalar: scalar(lm.MulScalarOp),
    aten.div.Scalar: scalar(lm.DivScalarOp),
    aten.pow.Tensor_Scalar: scalar(lm.PowScalarOp, "exponent"),
    aten.square.default: unary(lambda value: lm.PowScalarOp(value, 2.0)),
    aten.to.dtype: cast("dtype", "non_blocking", "copy", "memory_format"),
    aten.to.device: cast("dtype", "device", "non_blocking", "copy", "memory_format"),
    aten.to.dtype_layout: cast(
        "dtype", "layout", "device", "pin_memory", "non_blocking", "copy", "memory_format"
    ),
    aten.to.other: cast("other", "non_blocking", "copy", "memory_format"),
    aten.type_as.default: cast("other"),
    aten._to_copy.default: cast(
        "dtype", "layout", "device", "pin_memory", "non_blocking", "memory_format"
    ),
    aten.alias.default: same(),
    aten.detach.default: same(),
    aten.detach_.default: same(),
    aten.lift_fresh_copy.default: same(),
    aten.clone.default: same("memory_format"),
    aten.contiguous.default: same("memory_format"),
    aten.dropout.default: dropout,
    aten.view.default: reshape("size"),
    aten._unsafe_view.default: reshape("size"),
    aten.reshape.default: reshape("shape"),
    aten.unsqueeze.default: reshape("dim"),
    aten.squeeze.default: reshape(),
    aten.squeeze.dim: reshape("dim"),
    aten.squeeze.dims: reshape("dim"),
    aten.flatten.using_ints: reshape("start_dim", "end_dim"),
    aten.unflatten.int: reshape("dim", "sizes"),
    aten.transpose.int: transpose,
    aten.t.default: matrix_transpose,
    aten.permute.default: permute,
    aten.slice.Tensor: slice_,
    aten.select.int: select,
    aten.chunk.default: pieces("chunks"),
    aten.split.Tensor: pieces("split_size"),
    aten.split_with_sizes.default: pieces("split_sizes"),
    aten.unbind.int: pieces(),
    aten.cat.default: concat,
    aten.stack.default: stack,
    aten.expand.default: expand,
    aten.repeat_interleave.self_int: repeat_interleave,
    aten.mean.dim: reduce(lm.MeanOp),
    aten.sum.dim_IntList: reduce(lm.SumOp),
    aten.amax.default: reduce(lm.AmaxOp),
    aten.softmax.int: softmax,
    aten.linear.default: linear,
    aten.addmm.default: addmm,
    aten.matmul.default: matmul,
    aten.bmm.default: lambda call: call.emit(lm.MatmulOp(call.tensor("self"), call.tensor("mat2"))),
    aten.embedding.default: embedding,
    aten.layer_norm.default: layer_norm,
}

FRESH = frozenset({
    aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.linear.default,
    aten.matmul.default,
})  # fmt: skip
"""Ops whose result shares no memory with anything."""

IN_PLACE: dict[Any, Any] = {
    aten.add_.Tensor: aten.add.Tensor,
    aten.sub_.Tensor: aten.sub.Tensor,
    aten.mul_.Tensor: aten.mul.Tensor,
    aten.div_.Tensor: aten.div.Tensor,
}
"""Ops that write over their first operand, and what computes the same without. They are imported
where nothing else can see the operand change (`graph.changes_unseen`)."""
ROWS |= {op: ROWS[pure] for op, pure in IN_PLACE.items()}

ASSERTIONS = frozenset({aten._assert_tensor_metadata.default})
"""Ops that check dtypes and layouts while tracing; they compute nothing."""
