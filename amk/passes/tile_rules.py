"""What an `lm` op becomes in a tile: one short function an op, in `RULES`.

`rule(b, op, box)` pulls the boxes it needs of the operands from the builder `b` and returns the
`mk` value that holds `box` of the op's result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import BlockArgument, Operation, SSAValue

from amk.errors import AmkError
from amk.ir import lm, mk
from amk.ir.expr import Const, Expr, P, ceildiv, maximum, wrap
from amk.ir.lm import element_of, product, shape_of
from amk.passes.boxes import (
    Box,
    broadcast_box,
    full,
    is_full,
    replace,
    sizes,
    unreshape,
    unreshape_pair,
)
from amk.passes.head_cut import which_half
from amk.passes.rewriting import integers, where

if TYPE_CHECKING:
    from amk.passes.tile_builder import TileBuilder


def function_of(op: lm.UnaryOp | lm.BinaryOp, known: tuple[str, ...]) -> str:
    """The name `mk` has for the function of an elementwise op."""
    name = op.name.removeprefix("lm.")
    function = {"maximum": "max", "minimum": "min"}.get(name, name)
    if function not in known:
        raise AmkError(f"lower-lm-to-mk: {op.name} inside a stage, at {where(op)}; mk has {known}")
    return function


def unary(b: TileBuilder, op: lm.UnaryOp, box: Box) -> SSAValue:
    function = function_of(op, mk.UNARY_FUNCTIONS)
    return b.emit(mk.UnaryOp(function, b.pull(op.input, box)), box)


def binary(b: TileBuilder, op: lm.BinaryOp, box: Box) -> SSAValue:
    function = function_of(op, mk.BINARY_FUNCTIONS)
    x = b.pull(op.lhs, broadcast_box(op.lhs, box))
    y = b.pull(op.rhs, broadcast_box(op.rhs, box))
    return b.emit(mk.BinaryOp(function, x, y), box)


SCALAR_FUNCTIONS: dict[type[lm.ScalarOp], tuple[str, bool]] = {
    lm.AddScalarOp: ("add", False),
    lm.SubScalarOp: ("sub", False),
    lm.RsubScalarOp: ("sub", True),
    lm.MulScalarOp: ("mul", False),
    lm.DivScalarOp: ("div", False),
}


def scalar(b: TileBuilder, op: lm.ScalarOp, box: Box) -> SSAValue:
    x, value = b.pull(op.input, box), op.value.value.data
    if type(op) in SCALAR_FUNCTIONS:
        function, reverse = SCALAR_FUNCTIONS[type(op)]
        return b.emit(mk.ScalarOp(function, x, value, reverse), box)
    if value == 0.5:
        return b.emit(mk.UnaryOp("sqrt", x), box)
    if value not in (2.0, 3.0):
        raise AmkError(f"lower-lm-to-mk: pow by {value}; powers 0.5, 2 and 3 are known")
    square = b.emit(mk.BinaryOp("mul", x, x), box)
    return square if value == 2.0 else b.emit(mk.BinaryOp("mul", square, x), box)


def cast(b: TileBuilder, op: lm.CastOp, box: Box) -> SSAValue:
    if not isinstance(element_of(op.input), AnyFloat):
        raise AmkError(f"lower-lm-to-mk: lm.cast of {element_of(op.input)}, at {where(op)}")
    return b.pull(op.input, box)


def gated(b: TileBuilder, op: lm.GatedActOp, box: Box) -> SSAValue:
    act = b.emit(mk.UnaryOp(op.activation.data, b.pull(op.gate, box)), box)
    return b.emit(mk.BinaryOp("mul", act, b.pull(op.up, box)), box)


def expand(b: TileBuilder, op: lm.ExpandOp, box: Box) -> SSAValue:
    x = b.pull(op.input, broadcast_box(op.input, box))
    return b.emit(mk.BroadcastOp(x, sizes(box)), box)


def reduce(b: TileBuilder, op: lm.ReduceOp, box: Box) -> SSAValue:
    rank = len(shape_of(op.input))
    if integers(op.dims) != [rank - 1]:
        raise AmkError(f"lower-lm-to-mk: {op.name} reduces the last axis only")
    function = {"lm.mean": "mean", "lm.sum": "sum", "lm.amax": "max"}[op.name]
    outer = box[: rank - 1]
    x = b.whole_row(op.input, (*outer, (Const(0), 1)), rank - 1)
    y = b.emit(mk.ReduceOp(function, x), box)
    return y if op.keepdim.value.data else b.emit(mk.ReshapeOp(y, sizes(box)), box)


def softmax(b: TileBuilder, op: lm.SoftmaxOp, box: Box) -> SSAValue:
    axis = len(box) - 1
    if op.dim.value.data != axis:
        raise AmkError("lower-lm-to-mk: lm.softmax over the last axis only")
    row = replace(box, axis, 0, shape_of(op.input)[axis])
    x = b.pull(op.input, row)
    top = b.emit(mk.ReduceOp("max", x), row)
    e = b.emit(mk.UnaryOp("exp", b.emit(mk.BinaryOp("sub", x, top), row)), row)
    y = b.emit(mk.BinaryOp("div", e, b.emit(mk.ReduceOp("sum", e), row)), row)
    return b.narrow(y, box, axis)


def norm(b: TileBuilder, op: lm.NormOp, box: Box) -> SSAValue:
    """x · rsqrt(mean(x²) + eps), x − mean(x) first in a LayerNorm, then weight and bias."""
    axis = len(box) - 1
    row = replace(box, axis, 0, shape_of(op.input)[axis])
    x = b.pull(op.input, row)
    if isinstance(op, lm.LayerNormOp):
        x = b.emit(mk.BinaryOp("sub", x, b.emit(mk.ReduceOp("mean", x), row)), row)
    square = b.emit(mk.BinaryOp("mul", x, x), row)
    variance = b.emit(mk.ReduceOp("mean", square), row)
    shifted = b.emit(mk.ScalarOp("add", variance, op.eps.value.data), row)
    y = b.emit(mk.BinaryOp("mul", x, b.emit(mk.UnaryOp("rsqrt", shifted), row)), row)
    for function, operand in (("mul", op.weight), ("add", op.bias)):
        if operand is not None:
            y = b.emit(mk.BinaryOp(function, y, b.pull(operand, row[axis:])), row)
    return b.narrow(y, box, axis)


def rope(b: TileBuilder, op: lm.RopeOp, box: Box) -> SSAValue:
    axis, depth = len(box) - 1, shape_of(op.input)[-1]
    offset, size = box[axis]
    half = which_half(offset, size, depth, b.extents)
    if half is not None:
        return rope_half(b, op, box, half)
    row = replace(box, axis, 0, depth)
    x = b.pull(op.input, row)
    start = [Const(0)] * len(box)
    half = [*sizes(row)[:-1], depth // 2]
    low = b.emit(mk.SliceOp(x, start, half), row)
    high = b.emit(mk.SliceOp(x, [*start[:-1], Const(depth // 2)], half), row)
    turned = b.emit(mk.ConcatOp([b.emit(mk.UnaryOp("neg", high), row), low], axis), row)
    cos = b.pull(op.cos, broadcast_box(op.cos, row))
    sin = b.pull(op.sin, broadcast_box(op.sin, row))
    straight = b.emit(mk.BinaryOp("mul", x, cos), row)
    y = b.emit(mk.BinaryOp("add", straight, b.emit(mk.BinaryOp("mul", turned, sin), row)), row)
    return b.narrow(y, box, axis)


def rope_half(b: TileBuilder, op: lm.RopeOp, box: Box, half: int) -> SSAValue:
    """Some columns of one half, made from themselves and from their partners in the other one."""
    axis, depth = len(box) - 1, shape_of(op.input)[-1]
    offset, size = box[axis]
    away = -depth // 2 if half else depth // 2
    x = b.pull(op.input, box)
    partner = b.pull(op.input, replace(box, axis, offset + away, size))
    turned = partner if half else b.emit(mk.UnaryOp("neg", partner), box)
    cos, sin = (b.pull(v, broadcast_box(v, box)) for v in (op.cos, op.sin))
    straight = b.emit(mk.BinaryOp("mul", x, cos), box)
    return b.emit(mk.BinaryOp("add", straight, b.emit(mk.BinaryOp("mul", turned, sin), box)), box)


def reshape(b: TileBuilder, op: lm.ReshapeOp, box: Box) -> SSAValue:
    old, new = shape_of(op.input), shape_of(op.result)
    if is_full(box, new):
        return b.emit(mk.ReshapeOp(b.pull(op.input, full(op.input)), new), box)
    cut = [i for i, (_, size) in enumerate(box) if size != new[i]]
    if len(cut) == 2:
        source = unreshape_pair(box, cut[0], old, new) if cut[1] == cut[0] + 1 else None
    else:
        source = unreshape(box, cut[0], old, new) if len(cut) == 1 else None
    if source is None:
        return b.through_full(op.result, box)
    return b.emit(mk.ReshapeOp(b.pull(op.input, source), sizes(box)), box)


def transpose(b: TileBuilder, op: lm.TransposeOp, box: Box) -> SSAValue:
    perm = integers(op.permutation)
    source: list[tuple[Expr, int]] = [(Const(0), 0)] * len(perm)
    for i, p in enumerate(perm):
        source[p] = box[i]
    return b.emit(mk.TransposeOp(b.pull(op.input, tuple(source)), perm), box)


def slice_(b: TileBuilder, op: lm.SliceOp, box: Box) -> SSAValue:
    dim, start, _, step = op.bounds()
    offset, size = box[dim]
    if step == 1:
        return b.pull(op.input, replace(box, dim, offset + start, size))
    x = b.whole_row(op.input, box, dim)
    at, steps = [wrap(0)] * len(box), [1] * len(box)
    at[dim], steps[dim] = offset * step + start, step
    return b.emit(mk.SliceOp(x, at, sizes(box), steps), box)


def concat(b: TileBuilder, op: lm.ConcatOp, box: Box) -> SSAValue:
    dim = op.dim.value.data
    if box[dim][1] == shape_of(op.result)[dim]:
        pieces = [b.whole_row(v, box, dim) for v in op.inputs]
        return b.emit(mk.ConcatOp(pieces, dim), box)
    return b.through_full(op.result, box)


def linear(b: TileBuilder, op: lm.LinearOp, box: Box) -> SSAValue:
    x_shape, axis = shape_of(op.input), len(box) - 1
    rows = product(sizes(box)[:-1])
    if rows != product(x_shape[:-1]):
        raise AmkError("lower-lm-to-mk: a contraction is cut along its output features only")
    x = b.matrix(op.input)
    weight = b.buffers(strip_casts(op.weight))
    if weight is None:
        raise AmkError("lower-lm-to-mk: lm.linear by something that is no weight")
    offset, size = box[axis]
    y = b.emit(mk.MatmulOp(x, weight, [offset, 0], size), box)
    if op.bias is not None:
        y = b.emit(mk.BinaryOp("add", y, b.pull(op.bias, (box[axis],))), box)
    return b.emit(mk.ReshapeOp(y, sizes(box)), box)


def strip_casts(value: SSAValue) -> SSAValue:
    """`value` before casts between floats: loads widen, whatever a buffer stores."""
    while isinstance(value.owner, lm.CastOp) and isinstance(
        element_of(value.owner.input), AnyFloat
    ):
        value = value.owner.input
    return value


def embedding(b: TileBuilder, op: lm.EmbeddingOp, box: Box) -> SSAValue:
    table, indices = b.buffers(strip_casts(op.weight)), b.buffers(op.indices)
    if table is None or indices is None or not isinstance(op.indices, BlockArgument):
        raise AmkError("lower-lm-to-mk: lm.embedding looks up the input tokens in a weight")
    column, size = box[-1]
    y = b.emit(mk.GatherOp(table, indices, column, size), box)
    return b.emit(mk.ReshapeOp(y, sizes(box)), box)


def rows(b: TileBuilder, op: lm.RowsOp, box: Box) -> SSAValue:
    _, (start, count), (column, size) = box
    source = ((start + P, count), (column, size))
    return b.emit(mk.ReshapeOp(b.pull(op.table, source), sizes(box)), box)


def combine(b: TileBuilder, op: lm.AttentionCombineOp, box: Box) -> SSAValue:
    whole = full(op.result)
    if box != whole:
        return b.through_full(op.result, box)
    parts = [b.buffers(v) for v in (op.outputs, op.maxima, op.sums)]
    if None in parts:
        raise AmkError("lower-lm-to-mk: the partials of an attention live in buffers")
    outputs, maxima, sums = (v for v in parts if v is not None)
    sinks = None if op.sinks is None else b.pull(op.sinks, full(op.sinks))
    split = split_of(op.outputs)
    first, end = chunk_range(split, shape_of(op.result)[1])
    if split.kept:
        end = end + 1  # the first rows come before the chunks, in place `first`
    y = b.emit(mk.CombineOp(outputs, maxima, sums, first, end, sinks), whole)
    return b.emit(mk.ReshapeOp(y, sizes(box)), whole)


def split_of(value: SSAValue) -> lm.AttentionSplitOp:
    """The split whose partials `value` holds, looked up through stage results."""
    while not isinstance(value.owner, lm.AttentionSplitOp):
        stage = value.owner
        if not isinstance(stage, lm.StageOp):
            raise AmkError("lower-lm-to-mk: lm.attention_combine of something that is no split")
        last = stage.body.block.last_op
        assert isinstance(last, lm.YieldOp)
        value = last.arguments[list(stage.results).index(value)]  # type: ignore[arg-type]
    return value.owner


def chunk_range(split: lm.AttentionSplitOp, tokens: int) -> tuple[Expr, Expr]:
    """[first, end) of the chunks that hold a visible row: a window hides the ones before it."""
    size = split.chunk.value.data
    end = ceildiv(P + tokens, size)
    if split.window is None:
        return Const(0), end
    return maximum(0, P - (split.window.value.data - 1)) // size, end


def argmax(b: TileBuilder, op: lm.ArgmaxOp, box: Box) -> SSAValue:
    rank = len(shape_of(op.input))
    x = b.whole_row(op.input, (*box, (Const(0), 1)), rank - 1)
    best = mk.ArgmaxOp(x, 0)
    b.emit(best, box)
    return b.emit(mk.ReshapeOp(best.position, sizes(box)), box)


RULES: dict[type[Operation], Callable[..., SSAValue]] = {
    lm.SoftmaxOp: softmax,
    lm.UnaryOp: unary,
    lm.BinaryOp: binary,
    lm.ScalarOp: scalar,
    lm.CastOp: cast,
    lm.GatedActOp: gated,
    lm.ExpandOp: expand,
    lm.ReduceOp: reduce,
    lm.NormOp: norm,
    lm.RopeOp: rope,
    lm.ReshapeOp: reshape,
    lm.TransposeOp: transpose,
    lm.SliceOp: slice_,
    lm.ConcatOp: concat,
    lm.LinearOp: linear,
    lm.EmbeddingOp: embedding,
    lm.RowsOp: rows,
    lm.AttentionCombineOp: combine,
    lm.ArgmaxOp: argmax,
}
