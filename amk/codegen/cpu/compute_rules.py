"""How `mk` ops that compute on values are written in C: loops, or calls of the device headers."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

from xdsl.ir import Operation

from amk.codegen.cpu.c_text import broadcast_strides, c_expr, contiguous, literal
from amk.codegen.cpu.memory_rules import dtype_of, place
from amk.errors import AmkError
from amk.ir import mk
from amk.ir.expr import Expr
from amk.ir.lm import shape_of

if TYPE_CHECKING:
    from amk.codegen.cpu.stage import StageEmitter


def matmul(e: StageEmitter, op: mk.MatmulOp) -> None:
    rows, depth = shape_of(op.input)
    features = shape_of(op.result)[1]
    k = e.operand(op.weight)
    dtype = dtype_of(mk.buffer_of(op.weight).type.element_type)
    width = mk.buffer_of(op.weight).type.get_shape()[1]
    if op.reduction.lanes.data != 16:
        raise AmkError(f"cpu: reductions have 16 lanes, not {op.reduction.lanes.data}")
    at = place(e, op.weight, op.offsets)
    name = e.define(op.result)
    e.lines.append(
        f"amk_matmul({name}, {features}, {e.names[op.input]}, {depth}, amk_at(b({k}), {at},"
        f" {dtype}), {dtype}, {width}, {rows}, {features}, {depth}, {op.reduction.chains.data});"
    )


UNARY: dict[str, str] = {
    "neg": "-({})",
    "abs": "amk_abs({})",
    "exp": "amk_exp({})",
    "sqrt": "amk_sqrt({})",
    "rsqrt": "amk_rsqrt({})",
    "tanh": "amk_tanh({})",
    "sigmoid": "amk_sigmoid({})",
    "silu": "amk_silu({})",
    "relu": "({0} <= 0.0f ? 0.0f : {0})",
    "erf": "amk_erf({})",
    "gelu": "amk_gelu_erf({})",
    "gelu_tanh": "amk_gelu_tanh({})",
}
BINARY: dict[str, str] = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "div": "{} / {}",
    "max": "amk_max({}, {})",
    "min": "-amk_max(-({}), -({}))",
}
REDUCE: dict[str, str] = {"sum": "amk_row_sum", "mean": "amk_row_mean", "max": "amk_row_max"}


def unary(e: StageEmitter, op: mk.UnaryOp) -> None:
    shape = shape_of(op.result)
    x, y = e.names[op.input], e.define(op.result)
    value = UNARY[op.function.data].format(f"{x}[{{0}}]")
    e.loop(shape, [contiguous(shape)], f"{y}[{{0}}] = {value};")


def binary(e: StageEmitter, op: mk.BinaryOp) -> None:
    shape = shape_of(op.result)
    a, b, y = e.names[op.lhs], e.names[op.rhs], e.define(op.result)
    value = BINARY[op.function.data].format(f"{a}[{{1}}]", f"{b}[{{2}}]")
    strides = [
        contiguous(shape),
        *(broadcast_strides(shape_of(v), shape) for v in (op.lhs, op.rhs)),
    ]
    e.loop(shape, strides, f"{y}[{{0}}] = {value};")


def scalar(e: StageEmitter, op: mk.ScalarOp) -> None:
    shape = shape_of(op.result)
    x, y = f"{e.names[op.input]}[{{0}}]", e.define(op.result)
    pair = (literal(op.value.value.data), x) if op.reverse else (x, literal(op.value.value.data))
    e.loop(shape, [contiguous(shape)], f"{y}[{{0}}] = {BINARY[op.function.data].format(*pair)};")


def reduce(e: StageEmitter, op: mk.ReduceOp) -> None:
    if (op.reduction.lanes.data, op.reduction.chains.data) != (16, 1):
        raise AmkError("cpu: a row is reduced in 16 lanes of one chain")
    *outer, n = shape_of(op.input)
    x, y = e.names[op.input], e.define(op.result)
    e.lines.append(f"for (long i = 0; i < {prod(outer)}; i++)")
    e.lines.append(f"  {y}[i] = {REDUCE[op.function.data]}({x} + i * {n}, {n});")


def reshape(e: StageEmitter, op: mk.ReshapeOp) -> None:
    e.names[op.result] = e.names[op.input]


def transpose(e: StageEmitter, op: mk.TransposeOp) -> None:
    shape, strides = shape_of(op.result), contiguous(shape_of(op.input))
    perm = mk.numbers(op.permutation)
    moved = [p for p in perm if shape_of(op.input)[p] != 1]
    if moved == sorted(moved):
        e.names[op.result] = e.names[op.input]  # only unit axes moved
        return
    x, y = e.names[op.input], e.define(op.result)
    e.loop(shape, [contiguous(shape), [strides[p] for p in perm]], f"{y}[{{0}}] = {x}[{{1}}];")


def slice_(e: StageEmitter, op: mk.SliceOp) -> None:
    shape, strides = shape_of(op.result), contiguous(shape_of(op.input))
    at = " + ".join(
        f"{c_expr(o)} * {s}" for o, s in zip(op.offsets, strides, strict=True) if o.constant != 0
    )
    x, y = e.names[op.input], e.define(op.result)
    steps = [s * n for s, n in zip(strides, op.strides(), strict=True)]
    e.loop(shape, [contiguous(shape), steps], f"{y}[{{0}}] = {x}[{at or 0} + {{1}}];")


def concat(e: StageEmitter, op: mk.ConcatOp) -> None:
    dim, strides = op.dim.value.data, contiguous(shape_of(op.result))
    y = e.define(op.result)
    start = 0
    for v in op.inputs:
        shape = shape_of(v)
        at = start * strides[dim]
        body = f"{y}[{at} + {{0}}] = {e.names[v]}[{{1}}];"
        e.loop(shape, [strides, contiguous(shape)], body)
        start += shape[dim]


def broadcast(e: StageEmitter, op: mk.BroadcastOp) -> None:
    shape = shape_of(op.result)
    x, y = e.names[op.input], e.define(op.result)
    e.loop(
        shape,
        [contiguous(shape), broadcast_strides(shape_of(op.input), shape)],
        f"{y}[{{0}}] = {x}[{{1}}];",
    )


def attention(e: StageEmitter, op: mk.AttentionOp) -> None:
    tokens, group, depth = shape_of(op.query)
    if shape_of(op.output)[2] != depth:
        raise AmkError("cpu: attention wants keys and values of one depth")
    if op.key_scales is not None:
        attention_i8(e, op)
        return
    keys, values = mk.buffer_of(op.keys), mk.buffer_of(op.values)
    dtype = dtype_of(keys.type.element_type)
    if values.type.element_type != keys.type.element_type:
        raise AmkError("cpu: attention wants keys and values of one dtype")
    head, index = op.at
    query = e.names[op.query]
    o, m, l = (e.define(r) for r in (op.output, op.maximum, op.sum))  # noqa: E741
    k, v = e.operand(op.keys), e.operand(op.values)
    base = [f"amk_at(b({n}), {c_expr(head)} * cap({n}) * {depth}, {dtype})" for n in (k, v)]
    chunk = op.chunk.value.data
    window = 0 if op.window is None else op.window.value.data
    softcap = 0.0 if op.softcap is None else op.softcap.value.data
    numbers = f"{literal(op.scale.value.data)}, {literal(softcap)}"
    e.lines.append(
        f"amk_attention_partial({o}, {m}, {l}, {query}, {group * depth}, {base[0]}, {depth},"
        f" {base[1]}, {depth}, {dtype}, P, {tokens}, {group}, {depth}, {c_expr(index)}, {chunk},"
        f" {window}, {numbers}, {ring_text(keys)}{limits_text(op)});"
    )


def ring_text(buffer: mk.BufferOp) -> str:
    """The first half of an `amk_ring`: where the rows of a cache lie."""
    return f"(amk_ring){{{buffer.ring_rows}, {buffer.sink_rows}, "


def limits_text(op: mk.AttentionOp) -> str:
    """The second half: the rows that are seen."""
    low, high = op.limits
    return f"{low}, {high}L}}"


def attention_i8(e: StageEmitter, op: mk.AttentionOp) -> None:
    """Widens the rows of the chunk that this launch sees, each by its scale, and attends to those:
    row j of the chunk is row j of an array of its own, and positions count from the chunk."""
    assert op.key_scales is not None and op.value_scales is not None  # noqa: PT018
    tokens, group, depth = shape_of(op.query)
    head, index = op.at
    chunk, keys = op.chunk.value.data, mk.buffer_of(op.keys)
    window = 0 if op.window is None else op.window.value.data
    softcap = 0.0 if op.softcap is None else op.softcap.value.data
    query = e.names[op.query]
    o, m, l = (e.define(r) for r in (op.output, op.maximum, op.sum))  # noqa: E741
    wide = [e.fresh(chunk * depth) for _ in range(2)]
    begin = c_expr(index * chunk)
    low, high = op.limits
    hidden = f"row < P - {window - 1} || " if window else ""
    hidden += f"row < {low} || " if low else ""
    hidden += f"row >= {high} || " if high != mk.NO_LIMIT else ""
    e.lines += [
        f"for (long j = 0; j < {chunk}; j++) {{",
        f"  const long row = {begin} + j;",
        f"  if ({hidden}row >= P + {tokens}) continue;",
        f"  const long slot = amk_slot(row, {ring_text(keys)}0, 0}});",
    ]
    for array, data, scales in zip(
        wide, (op.keys, op.values), (op.key_scales, op.value_scales), strict=True
    ):
        k, s = e.operand(data), e.operand(scales)
        e.lines += [
            "  {",
            f"    const float scale = ((const float *)b({s}))[{c_expr(head)} * cap({s}) + slot];",
            f"    const int8_t *from = (const int8_t *)b({k})"
            f" + ({c_expr(head)} * cap({k}) + slot) * {depth};",
            f"    for (long d = 0; d < {depth}; d++)"
            f" {array}[j * {depth} + d] = (float)from[d] * scale;",
            "  }",
        ]
    e.lines += [
        "}",
        f"amk_attention_partial({o}, {m}, {l}, {query}, {group * depth}, {wide[0]}, {depth},"
        f" {wide[1]}, {depth}, AMK_F32, P - {begin}, {tokens}, {group}, {depth}, 0, {chunk},"
        f" {window}, {literal(op.scale.value.data)}, {literal(softcap)},"
        f" (amk_ring){{0, 0, {low} - ({begin}), {high}L - ({begin})}});",
    ]


def combine(e: StageEmitter, op: mk.CombineOp) -> None:
    _, heads, tokens, group, depth = mk.buffer_of(op.outputs).type.get_shape()
    first, end = op.range
    sinks = "0" if op.sinks is None else e.names[op.sinks]
    row = heads * tokens * group
    pointers = [
        f"(const float *)b({e.operand(v)}) + {c_expr(first)} * {n}"
        for v, n in ((op.outputs, row * depth), (op.maxima, row), (op.sums, row))
    ]
    y = e.define(op.result)
    count: Expr = end - first
    e.lines.append(
        f"amk_attention_combine({y}, {', '.join(pointers)}, {c_expr(count)}, {heads}, {tokens},"
        f" {group}, {depth}, {sinks}, 0, {heads});"
    )


def argmax(e: StageEmitter, op: mk.ArgmaxOp) -> None:
    *outer, n = shape_of(op.input)
    (first,) = op.first
    x = e.names[op.input]
    top, at = e.define(op.maximum), e.define(op.position)
    e.lines += [
        f"for (long i = 0; i < {prod(outer)}; i++) {{",
        f"  const long found = amk_row_argmax({x} + i * {n}, {n});",
        f"  {top}[i] = {x}[i * {n} + found];",
        f"  {at}[i] = (float)({c_expr(first)} + found);",
        "}",
    ]


def pick(e: StageEmitter, op: mk.PickOp) -> None:
    *outer, n = shape_of(op.values)
    keys, values, y = e.names[op.keys], e.names[op.values], e.define(op.result)
    e.lines.append(f"for (long i = 0; i < {prod(outer)}; i++)")
    e.lines.append(f"  {y}[i] = {values}[i * {n} + amk_row_argmax({keys} + i * {n}, {n})];")


COMPUTE: dict[type[Operation], Callable] = {
    mk.MatmulOp: matmul,
    mk.UnaryOp: unary,
    mk.BinaryOp: binary,
    mk.ScalarOp: scalar,
    mk.ReduceOp: reduce,
    mk.ReshapeOp: reshape,
    mk.TransposeOp: transpose,
    mk.SliceOp: slice_,
    mk.ConcatOp: concat,
    mk.BroadcastOp: broadcast,
    mk.AttentionOp: attention,
    mk.CombineOp: combine,
    mk.ArgmaxOp: argmax,
    mk.PickOp: pick,
}
