"""Elements of `mk` values as C expressions of an index.

A value is either held somewhere (`Held`: shared memory, memory of the worker, a buffer, a register)
or computed where it is needed: `Elements.at` writes, into the body of a loop, what an element is
made of. Each part is named once a body, so the text reads like the IR.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type, i8
from xdsl.ir import Attribute, Operation, SSAValue

from amk.codegen.cpu.compute_rules import BINARY, UNARY
from amk.codegen.cuda.index import Index, offset
from amk.errors import AmkError
from amk.ir import mk
from amk.ir.expr import Const, Expr, maximum, minimum
from amk.ir.lm import shape_of

if TYPE_CHECKING:
    from amk.codegen.cuda.stage import StageEmitter

DTYPES = ((Float32Type, "AMK_F32"), (BFloat16Type, "AMK_BF16"), (Float16Type, "AMK_F16"))


def dtype_of(element: Attribute) -> str:
    """The kernel's name of a storage dtype."""
    for kind, name in DTYPES:
        if isinstance(element, kind):
            return name
    if element == i8:
        return "AMK_I8"
    raise AmkError(f"cuda: no storage dtype {element}")


def literal(value: float) -> str:
    """A float literal that is exactly the f32 nearest to `value`."""
    exact = float(np.float32(value))
    if exact - exact == 0.0:
        return f"{exact.hex()}f"
    return f"amk_from_bits(0x{int(np.float32(value).view(np.uint32)):x}u)"


def dtype_bytes(dtype: str) -> int:
    return 4 if dtype == "AMK_F32" else 2


@dataclass(frozen=True)
class Held:
    """A value in memory: `name` points to its floats, row-major; in a `dealt` one every row of
    `pitch` floats is in the order of amk_dealt. A `single` is a register that every thread has."""

    name: str
    floats: int
    pitch: int = 0
    dealt: bool = False
    single: bool = False
    shared: bool = True


class Elements:
    """Writes the elements that one loop body needs."""

    def __init__(self, emitter: StageEmitter):
        self.e = emitter
        self.lines: list[str] = []
        self.names: dict[tuple[SSAValue, Index], str] = {}
        self.inline = 0

    def at(self, value: SSAValue, index: Index) -> str:
        """A C expression of an element; a name, unless inside a branch."""
        index = tuple(self.e.ranges.simplify(i) for i in index)
        key = (value, index)
        if key in self.names:
            return self.names[key]
        held = self.e.held.get(value)
        if held is not None and held.single:
            return held.name
        if held is None and isinstance(value.owner, VIEWS):
            return self.computed(value, index)
        text = self.held(held, value, index) if held else self.computed(value, index)
        if self.inline:
            return text if held else f"({text})"
        name = f"x{len(self.names)}"
        self.lines.append(f"const float {name} = {text};")
        self.names[key] = name
        return name

    @contextmanager
    def branch(self):
        """Inside, elements are written in place: a branch not taken must not be computed."""
        self.inline += 1
        yield
        self.inline -= 1

    def held(self, held: Held, value: SSAValue, index: Index) -> str:
        self.e.needs(value)
        shape, ranges = shape_of(value), self.e.ranges
        if not held.dealt:
            return f"{held.name}[{ranges.text(ranges.flatten(index, shape))}]"
        row = ranges.text(ranges.simplify(ranges.flatten(index[:-1], shape[:-1]) * held.pitch))
        place = f"amk_dealt({ranges.text(index[-1])})"
        return f"{held.name}[{place if row == '0' else f'{row} + {place}'}]"

    def computed(self, value: SSAValue, index: Index) -> str:
        op = value.owner
        if isinstance(op, Operation) and type(op) in RULES:
            return RULES[type(op)](self, op, index)
        what = op.name if isinstance(op, Operation) else "a block argument"
        raise AmkError(f"cuda: {what} is not held where it is needed")


def element_offset(e: StageEmitter, buffer: SSAValue, index: Index) -> str:
    """C text of an element's place in a buffer; the open axis of a cache gives its capacity, that
    of a ring takes rows by position."""
    op = mk.buffer_of(buffer)
    shape, rows = op.memory_shape, op.type.get_shape()
    if op.ring_rows:
        at = rows.index(-1)
        index = (*index[:at], slot(e, index[at], op), *index[at + 1 :])
    if -1 not in shape:
        return e.ranges.text(e.ranges.flatten(index, shape))
    open_axis = shape.index(-1)
    inner, outer = shape[open_axis + 1 :], shape[:open_axis]
    high = e.ranges.flatten(index[:open_axis], outer)
    rest = prod(inner)
    low = e.ranges.simplify(
        index[open_axis] * rest + e.ranges.flatten(index[open_axis + 1 :], inner)
    )
    if high == Const(0):
        return e.ranges.text(low)
    return f"{e.ranges.factor(high)} * {rest} * capacity + {e.ranges.text(low)}"


def slot(e: StageEmitter, row: Expr, ring: mk.BufferOp) -> Expr:
    """Where the row of a position lies in a ring."""
    sinks = ring.sink_rows
    if not sinks:
        return e.ranges.mod(row, ring.ring_rows)
    later = e.ranges.simplify(maximum(row - sinks, 0))
    turn = e.ranges.mod(later, ring.ring_rows - sinks)
    return e.ranges.simplify(minimum(row, sinks) + turn)


def load(s: Elements, op: mk.LoadOp, index: Index) -> str:
    dtype = dtype_of(mk.buffer_of(op.buffer).type.element_type)
    at = element_offset(s.e, op.buffer, offset(index, op.offsets.data))
    return f"amk_get<{dtype}>({s.e.operand(op.buffer)}, {at})"


def gather(s: Elements, op: mk.GatherOp, index: Index) -> str:
    table = mk.buffer_of(op.table)
    width = table.type.get_shape()[1]
    row, column = index
    place = s.e.ranges.text(s.e.ranges.simplify(column + op.offsets.data[0]))
    token = f"((const int64_t *){s.e.operand(op.indices)})[{s.e.ranges.text(row)}]"
    dtype = dtype_of(table.type.element_type)
    return f"amk_get<{dtype}>({s.e.operand(op.table)}, {token} * {width} + {place})"


def unary(s: Elements, op: mk.UnaryOp, index: Index) -> str:
    return UNARY[op.function.data].format(s.at(op.input, index))


def apply(function: str, a: str, b: str) -> str:
    return f"amk_div({a}, {b})" if function == "div" else BINARY[function].format(a, b)


def binary(s: Elements, op: mk.BinaryOp, index: Index) -> str:
    a, b = (s.at(v, spread(v, index)) for v in (op.lhs, op.rhs))
    return apply(op.function.data, a, b)


def spread(value: SSAValue, index: Index) -> Index:
    """The index into an operand that broadcasts to a result's."""
    shape = shape_of(value)
    tail = index[len(index) - len(shape) :]
    return tuple(Const(0) if n == 1 else i for n, i in zip(shape, tail, strict=True))


def scalar(s: Elements, op: mk.ScalarOp, index: Index) -> str:
    x, value = s.at(op.input, index), literal(op.value.value.data)
    return apply(op.function.data, *((value, x) if op.reverse else (x, value)))


def reshape(s: Elements, op: mk.ReshapeOp, index: Index) -> str:
    flat = s.e.ranges.flatten(index, shape_of(op.result))
    return s.at(op.input, s.e.ranges.unflatten(flat, shape_of(op.input)))


def transpose(s: Elements, op: mk.TransposeOp, index: Index) -> str:
    source: list[Expr] = [Const(0)] * len(index)
    for i, p in enumerate(mk.numbers(op.permutation)):
        source[p] = index[i]
    return s.at(op.input, tuple(source))


def slice_(s: Elements, op: mk.SliceOp, index: Index) -> str:
    steps = zip(index, op.strides(), strict=True)
    return s.at(op.input, offset(tuple(i * n for i, n in steps), op.offsets.data))


def broadcast(s: Elements, op: mk.BroadcastOp, index: Index) -> str:
    return s.at(op.input, spread(op.input, index))


def concat(s: Elements, op: mk.ConcatOp, index: Index) -> str:
    """A choice by where the index falls; the branches are computed only when taken."""
    dim = op.dim.value.data
    pieces: list[tuple[int, SSAValue, Index]] = []
    start = 0
    for v in op.inputs:
        pieces.append((start, v, (*index[:dim], index[dim] - start, *index[dim + 1 :])))
        start += shape_of(v)[dim]
    low, high = s.e.ranges.bounds(index[dim])
    ends = [*(p[0] for p in pieces[1:]), start]
    live = [p for p, end in zip(pieces, ends, strict=True) if p[0] <= high and low < end]
    if len(live) == 1:
        return s.at(*live[0][1:])
    with s.branch():
        text = s.at(*live[-1][1:])
        for (begin, _, _), (_, v, at) in zip(live[:0:-1], live[-2::-1], strict=True):
            text = f"({s.e.ranges.text(index[dim])} < {begin} ? {s.at(v, at)} : {text})"
    return text


def combine(s: Elements, op: mk.CombineOp, index: Index) -> str:
    _, heads, tokens, group, depth = mk.buffer_of(op.outputs).type.get_shape()
    row, head, d = index
    ranges = s.e.ranges
    first, end = op.range.data
    kv, g = ranges.div(head, group), ranges.mod(head, group)
    at = ranges.simplify((kv * tokens + row) * group + g)
    each = heads * tokens * group
    place = ranges.simplify(first * each + at)
    pointers = [f"(const float *){s.e.operand(v)}" for v in (op.outputs, op.maxima, op.sums)]
    sink = "false, 0.0f" if op.sinks is None else f"true, {s.at(op.sinks, (head,))}"
    where = ranges.text(place)
    return (
        f"amk_combine({pointers[0]} + {ranges.text(ranges.simplify(place * depth + d))},"
        f" {each * depth}, {pointers[1]} + {where}, {pointers[2]} + {where}, {each},"
        f" {ranges.text(ranges.simplify(end - first))}, {sink})"
    )


VIEWS = (mk.ReshapeOp, mk.TransposeOp, mk.SliceOp, mk.BroadcastOp)
RULES: dict[type[Operation], Callable[..., str]] = {
    mk.LoadOp: load,
    mk.GatherOp: gather,
    mk.UnaryOp: unary,
    mk.BinaryOp: binary,
    mk.ScalarOp: scalar,
    mk.ReshapeOp: reshape,
    mk.TransposeOp: transpose,
    mk.SliceOp: slice_,
    mk.BroadcastOp: broadcast,
    mk.ConcatOp: concat,
    mk.CombineOp: combine,
}
