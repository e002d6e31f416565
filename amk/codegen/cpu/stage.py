"""One `mk.stage` as two C functions: its prologue and its tiles.

Every value is an array of floats: small ones on the stack, large ones in the worker's private
memory, after what the prologue keeps there. A reshape is another name for the same array.
Buffers are reached as `b(k)`, operand k of the stage, so that stages that differ in their buffers
alone share their functions.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type, i64
from xdsl.ir import Attribute, Block, Operation, SSAValue

from amk.codegen.cpu.c_text import c_expr, contiguous, loops
from amk.errors import AmkError
from amk.ir import mk
from amk.ir.expr import Expr, ExprsAttr
from amk.ir.lm import shape_of

STACK_FLOATS = 1024
LINE = 16  # floats of a cache line


def dtype_of(element: Attribute) -> str:
    """The runtime's name of a storage dtype."""
    for kind, name in (
        (Float32Type, "AMK_F32"),
        (BFloat16Type, "AMK_BF16"),
        (Float16Type, "AMK_F16"),
    ):
        if isinstance(element, kind):
            return name
    raise AmkError(f"cpu: no storage dtype {element}")


def literal(value: float) -> str:
    """A float literal that is exactly the f32 nearest to `value`."""
    import numpy as np

    exact = float(np.float32(value))
    if exact != exact or exact in (float("inf"), float("-inf")):
        return {"inf": "__builtin_inff()", "-inf": "-__builtin_inff()"}.get(
            str(exact), '__builtin_nanf("")'
        )
    return f"{exact.hex()}f"


class StageEmitter:
    """Text of one stage. `operands` lists its buffers, in the order of their first use."""

    def __init__(self, stage: mk.StageOp, tokens: int):
        self.stage = stage
        self.tokens = tokens
        self.operands: list[mk.BufferOp] = []
        self.names: dict[SSAValue, str] = {}
        self.lines: list[str] = []
        self.count = 0
        self.private = 0  # floats of private memory in use
        self.widest = 0
        self.kept: list[tuple[int, int]] = []  # offset and floats of each kept value

    def emit(self) -> tuple[str, str, str, int]:
        """(prologue body, tile body, tile count, floats of private memory)"""
        prologue = self.emit_prologue()
        tile = self.emit_parts()
        counts = [self.tiles(part) for part in self.stage.part_ops()]
        return prologue, tile, " + ".join(counts) or "0", self.widest

    # ---- names and memory ----

    def fresh(self, floats: int) -> str:
        """A new array; where it lives depends on its size."""
        name = f"v{self.count}"
        self.count += 1
        if floats <= STACK_FLOATS:
            self.lines.append(f"_Alignas(64) float {name}[{floats}];")
        else:
            self.lines.append(f"float *const {name} = priv + {self.private};")
            self.private += -(-floats // LINE) * LINE
            self.widest = max(self.widest, self.private)
        return name

    def define(self, value: SSAValue) -> str:
        self.names[value] = self.fresh(prod(shape_of(value)))
        return self.names[value]

    def operand(self, value: SSAValue) -> int:
        buffer = mk.buffer_of(value)
        if buffer not in self.operands:
            self.operands.append(buffer)
        return self.operands.index(buffer)

    def strides(self, value: SSAValue) -> list[str]:
        """Element strides of a buffer; a cache's open axis gives its capacity."""
        shape = mk.buffer_of(value).type.get_shape()
        k = self.operand(value)
        out: list[str] = []
        factor, capacity = 1, False
        for extent in reversed(shape):
            out.append(f"{factor} * cap({k})" if capacity else str(factor))
            if extent == -1:
                capacity = True
            else:
                factor *= extent
        return out[::-1]

    def place(self, value: SSAValue, offsets: ExprsAttr) -> str:
        """The element offset of a box in a buffer."""
        terms = [
            c_expr(o) if s == "1" else f"{c_expr(o)} * {s}"
            for o, s in zip(offsets, self.strides(value), strict=True)
            if o.constant != 0
        ]
        return " + ".join(terms) or "0"

    # ---- bodies ----

    def emit_prologue(self) -> str:
        block = self.stage.prologue.block
        last = block.last_op
        assert isinstance(last, mk.YieldOp)
        for value in last.arguments:
            floats = -(-prod(shape_of(value)) // LINE) * LINE
            self.kept.append((self.private, floats))
            self.private += floats
        self.widest = self.private
        self.body(block)
        for value, (offset, _) in zip(last.arguments, self.kept, strict=True):
            size = prod(shape_of(value))
            self.lines.append(
                f"memcpy(priv + {offset}, {self.names[value]}, {size} * sizeof(float));"
            )
        return self.take()

    def emit_parts(self) -> str:
        base = sum(n for _, n in self.kept)
        for arg, (offset, _) in zip(self.stage.parts.block.args, self.kept, strict=True):
            self.names[arg] = f"k{arg.index}"
            self.lines.append(f"const float *const k{arg.index} = priv + {offset};")
        for part in self.stage.part_ops():
            self.private = base
            self.count = 0
            self.lines.append(f"if (tile < {self.tiles(part)}) {{")
            extents = [c_expr(e) for e in part.grid]
            rest = "tile"
            for i in reversed(range(1, len(extents))):
                self.lines.append(f"const long t{i} = {rest} % ({extents[i]});")
                rest = f"{rest} / ({extents[i]})"
            self.lines.append(f"const long t0 = {rest};")
            used = " ".join(f"(void)t{i};" for i in range(len(extents)))
            self.lines.append(used)
            self.body(part.body.block)
            self.lines += ["return;", "}", f"tile -= {self.tiles(part)};"]
        return self.take()

    def tiles(self, part: mk.PartOp) -> str:
        return " * ".join(c_expr(e) for e in part.grid)

    def body(self, block: Block) -> None:
        for op in block.ops:
            if not isinstance(op, mk.YieldOp):
                RULES[type(op)](self, op)

    def take(self) -> str:
        text = "\n".join("  " + line for line in self.lines)
        self.lines = []
        return text

    def loop(self, sizes, strides, body: str) -> None:  # type: ignore[no-untyped-def]
        self.lines += loops(sizes, strides, body)


# ---- one rule an op -----------------------------------------------------------------------


def box_strides(e: StageEmitter, buffer: SSAValue, shape: tuple[int, ...]) -> list[int] | None:
    """Strides of a box as numbers, or None when an axis before the capacity is longer than 1."""
    out = []
    for text, size in zip(e.strides(buffer), shape, strict=True):
        if "cap" in text:
            if size != 1:
                return None
            out.append(0)
        else:
            out.append(int(text))
    return out


def copy_box(e: StageEmitter, buffer: SSAValue, shape: tuple[int, ...], statement: str) -> None:
    """Loops over a box; `{0}` walks the array, `{1}` the buffer. A box of several heads of a
    cache has a stride known at run time, so its outer axes are loops of their own."""
    numbers = box_strides(e, buffer, shape)
    if numbers is not None:
        e.loop(shape, [contiguous(shape), numbers], statement)
        return
    inner = [i for i, s in enumerate(e.strides(buffer)) if "cap" not in s]
    outer = [i for i in range(len(shape)) if i not in inner]
    packed = contiguous(shape)
    for i in outer:
        e.lines.append(f"for (long j{i} = 0; j{i} < {shape[i]}; j{i}++)")
    array = "".join(f" + j{i} * {packed[i]}" for i in outer)
    memory = "".join(f" + j{i} * {e.strides(buffer)[i]}" for i in outer)
    e.loop(
        [shape[i] for i in inner],
        [[packed[i] for i in inner], [int(e.strides(buffer)[i]) for i in inner]],
        statement.replace("{0}", "{0}" + array).replace("{1}", "{1}" + memory),
    )


def load(e: StageEmitter, op: mk.LoadOp) -> None:
    shape, k = shape_of(op.result), e.operand(op.buffer)
    dtype = dtype_of(mk.buffer_of(op.buffer).type.element_type)
    at = e.place(op.buffer, op.offsets)
    name = e.define(op.result)
    e.lines.append("{")
    e.lines.append(f"const long at = {at};")
    copy_box(e, op.buffer, shape, f"{name}[{{0}}] = amk_get(b({k}), at + {{1}}, {dtype});")
    e.lines.append("}")


def store(e: StageEmitter, op: mk.StoreOp) -> None:
    shape, k = shape_of(op.value), e.operand(op.buffer)
    element = mk.buffer_of(op.buffer).type.element_type
    name = e.names[op.value]
    statement = f"((int64_t *)b({k}))[at + {{1}}] = (int64_t){name}[{{0}}];"
    if element != i64:
        statement = f"amk_put(b({k}), at + {{1}}, {name}[{{0}}], {dtype_of(element)});"
    e.lines.append("{")
    e.lines.append(f"const long at = {e.place(op.buffer, op.offsets)};")
    copy_box(e, op.buffer, shape, statement)
    e.lines.append("}")


def gather(e: StageEmitter, op: mk.GatherOp) -> None:
    table, indices = e.operand(op.table), e.operand(op.indices)
    width = mk.buffer_of(op.table).type.get_shape()[1]
    dtype = dtype_of(mk.buffer_of(op.table).type.element_type)
    rows, size = shape_of(op.result)
    (column,) = op.offsets
    name = e.define(op.result)
    e.lines += [
        f"for (long s = 0; s < {rows}; s++) {{",
        f"  const long at = ((const int64_t *)b({indices}))[s] * {width} + {c_expr(column)};",
        f"  for (long i = 0; i < {size}; i++)",
        f"    {name}[s * {size} + i] = amk_get(b({table}), at + i, {dtype});",
        "}",
    ]


def matmul(e: StageEmitter, op: mk.MatmulOp) -> None:
    rows, depth = shape_of(op.input)
    features = shape_of(op.result)[1]
    k = e.operand(op.weight)
    dtype = dtype_of(mk.buffer_of(op.weight).type.element_type)
    width = mk.buffer_of(op.weight).type.get_shape()[1]
    if op.reduction.lanes.data != 16:
        raise AmkError(f"cpu: reductions have 16 lanes, not {op.reduction.lanes.data}")
    at = e.place(op.weight, op.offsets)
    name = e.define(op.result)
    e.lines.append(
        f"amk_matmul({name}, {features}, {e.names[op.input]}, {depth}, amk_at(b({k}), {at},"
        f" {dtype}), {dtype}, {width}, {rows}, {features}, {depth}, {op.reduction.chains.data});"
    )


UNARY: dict[str, str] = {
    "neg": "-{}",
    "abs": "amk_abs({})",
    "exp": "amk_exp({})",
    "sqrt": "amk_sqrt({})",
    "rsqrt": "amk_rsqrt({})",
    "tanh": "amk_tanh({})",
    "sigmoid": "amk_sigmoid({})",
    "silu": "amk_silu({})",
    "relu": "({0} > 0.0f ? {0} : 0.0f)",
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
    "min": "-amk_max(-{}, -{})",
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
    strides = [contiguous(shape), *(broadcast_strides(v, shape) for v in (op.lhs, op.rhs))]
    e.loop(shape, strides, f"{y}[{{0}}] = {value};")


def broadcast_strides(value: SSAValue, result: tuple[int, ...]) -> list[int]:
    shape = shape_of(value)
    strides = [0 if n == 1 else s for n, s in zip(shape, contiguous(shape), strict=True)]
    return [0] * (len(result) - len(shape)) + strides


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
    perm = [int(p) for p in op.permutation.get_values()]
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
        shape, [contiguous(shape), broadcast_strides(op.input, shape)], f"{y}[{{0}}] = {x}[{{1}}];"
    )


def attention(e: StageEmitter, op: mk.AttentionOp) -> None:
    tokens, group, depth = shape_of(op.query)
    if shape_of(op.output)[2] != depth:
        raise AmkError("cpu: attention wants keys and values of one depth")
    keys, values = mk.buffer_of(op.keys), mk.buffer_of(op.values)
    dtype = dtype_of(keys.type.element_type)
    if values.type.element_type != keys.type.element_type:
        raise AmkError("cpu: attention wants keys and values of one dtype")
    head, index = op.at
    query = e.names[op.query]
    o, m, l = (e.define(r) for r in (op.output, op.maximum, op.sum))  # noqa: E741
    k, v = e.operand(op.keys), e.operand(op.values)
    base = [f"amk_at(b({n}), {c_expr(head)} * cap({n}) * {depth}, {dtype})" for n in (k, v)]
    window = 0 if op.window is None else op.window.value.data
    softcap = 0.0 if op.softcap is None else op.softcap.value.data
    e.lines.append(
        f"amk_attention_partial({o}, {m}, {l}, {query}, {group * depth}, {base[0]}, {depth},"
        f" {base[1]}, {depth}, {dtype}, P, {tokens}, {group}, {depth}, {c_expr(index)},"
        f" {op.chunk.value.data}, {window}, {literal(op.scale.value.data)}, {literal(softcap)});"
    )


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


RULES: dict[type[Operation], Callable] = {
    mk.LoadOp: load,
    mk.StoreOp: store,
    mk.GatherOp: gather,
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
