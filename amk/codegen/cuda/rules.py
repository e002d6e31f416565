"""Ops that a whole block works on together: contractions, reductions, attention, stores."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import i64
from xdsl.ir import Operation, SSAValue

from amk.codegen.cuda.index import offset
from amk.codegen.cuda.values import (
    Elements,
    Held,
    dtype_bytes,
    dtype_of,
    element_offset,
    literal,
)
from amk.errors import AmkError
from amk.ir import mk
from amk.ir.expr import Const, Expr, Sym
from amk.ir.lm import shape_of

if TYPE_CHECKING:
    from amk.codegen.cuda.stage import StageEmitter

K, R, FOUND = Sym("k"), Sym("r"), Sym("found")
MAX_DEPTH = 256  # of a head: 32 threads of eight elements
MAX_HEADS = 8  # heads a thread sums for at a time


def store(e: StageEmitter, op: mk.StoreOp) -> None:
    shape = shape_of(op.value)
    elements = Elements(e)
    index = e.ranges_for(prod(shape), shape)
    text = elements.at(op.value, index)
    e.settle()
    element = mk.buffer_of(op.buffer).type.element_type
    at = element_offset(e, op.buffer, offset(index, op.offsets.data))
    if element == i64:
        put = f"((int64_t *){e.operand(op.buffer)})[{at}] = (int64_t){text};"
    else:
        put = f"amk_put<{dtype_of(element)}>({e.operand(op.buffer)}, {at}, {text});"
    e.loop(prod(shape), [*elements.lines, put])


def input_rows(e: StageEmitter, value: SSAValue) -> Held:
    """The input of a contraction, held in the order in which threads read it."""
    if value not in e.held:
        e.materialise(value)
    e.needs(value)
    return e.held[value]


def matmul(e: StageEmitter, op: mk.MatmulOp) -> None:
    tokens, depth = shape_of(op.input)
    rows = shape_of(op.result)[1]
    buffer = mk.buffer_of(op.weight)
    dtype = dtype_of(buffer.type.element_type)
    if buffer.type.get_shape()[1] != depth or op.offsets.data[1].constant != 0:
        raise AmkError("cuda: a contraction takes whole rows of its weight")
    lanes = op.reduction.lanes.data
    if (lanes, op.reduction.chains.data) != (32 * 16 // dtype_bytes(dtype), 1):
        raise AmkError(f"cuda: {lanes} lanes do not fit 16-byte loads; run warp-reductions")
    x = input_rows(e, op.input)
    e.settle()
    y = e.define(op.result)
    arguments = f"w, {y.name}, {x.name}, {x.pitch}"
    if e.uses_mma(op):
        call = f"amk_matmul_mma<{dtype}, {depth}, {tokens}>({arguments}, {e.weight(op)}, {rows});"
    elif e.streamed(op):
        piece = e.machine.slot_bytes // (depth * dtype_bytes(dtype))
        call = (
            f"amk_matmul_ring<{dtype}, {depth}, {tokens}, {piece}, AMK_SLOTS, AMK_SLOT_BYTES>"
            f"({arguments}, {rows});"
        )
    else:
        call = f"amk_matmul<{dtype}, {depth}, {tokens}>({arguments}, {e.weight(op)}, {rows});"
    e.lines.append(call)


REDUCE = {  # start, step, over the block, over a warp
    "sum": ("0.0f", "s = s + {};", "amk_block_sum(w, s)", "amk_warp_sum(s)"),
    "mean": ("0.0f", "s = s + {};", "amk_block_sum(w, s)", "amk_warp_sum(s)"),
    "max": (
        "amk_from_bits(0xff800000u)", "s = amk_max(s, {});", "amk_block_max(w, s)",
        "amk_warp_max(s)",
    ),
}  # fmt: skip


def reduce(e: StageEmitter, op: mk.ReduceOp) -> None:
    from amk.codegen.cuda.stage import check_lanes

    shape = shape_of(op.input)
    rows, n = prod(shape[:-1]), shape[-1]
    start, step, over_block, over_warp = REDUCE[op.function.data]
    lanes = check_lanes(op)
    over = over_warp if lanes == 32 else over_block
    last = f"amk_div({over}, {n}.0f)" if op.function.data == "mean" else over
    elements, index = row_elements(e, shape, rows)
    text = elements.at(op.input, (*index, K))
    e.settle()
    name, held = result(e, op.result, rows)
    begin, stride = ("w.lane", 32) if lanes == 32 else ("w.thread", "AMK_COMPUTE")
    lead = "w.lane == 0" if lanes == 32 else "w.thread == 0"
    # Every warp reduces a single row for itself: nothing has to be shared then.
    turn, turns = ("w.warp", "AMK_WARPS") if lanes == 32 else ("0", "1")
    one = f"for (int r = {turn}; r < {rows}; r += {turns}) {{"
    e.lines += [
        *([f"float {name};"] if held is None else []),
        "{" if rows == 1 else one,
        f"float s = {start};",
        f"for (int k = {begin}; k < {n}; k += {stride}) {{",
        *elements.lines,
        step.format(text),
        "}",
        f"s = {last};",
        f"{name} = s;" if held is None else f"if ({lead}) {held.name}[r] = s;",
        "}",
    ]


def row_elements(
    e: StageEmitter, shape: tuple[int, ...], rows: int
) -> tuple[Elements, tuple[Expr, ...]]:
    """Elements of row r, and the index of that row."""
    e.ranges.known["k"] = (0, shape[-1] - 1)
    e.ranges.known["r"] = (0, rows - 1)
    return Elements(e), e.ranges.unflatten(R if rows > 1 else Const(0), shape[:-1])


def result(e: StageEmitter, value: SSAValue, rows: int) -> tuple[str, Held | None]:
    """Where a row's result goes: a register of every thread for one row, else an array."""
    if rows > 1:
        return "", e.define(value)
    name = f"s{e.count}"
    e.count += 1
    e.held[value] = Held(name, 1, single=True)
    return name, None


def argmax(e: StageEmitter, op: mk.ArgmaxOp) -> None:
    shape = shape_of(op.input)
    first = e.ranges.factor(e.ranges.simplify(op.first.data[0]))
    best(e, op.input, {op.maximum: "best.value", op.position: f"(float)({first} + best.at)"}, shape)


def pick(e: StageEmitter, op: mk.PickOp) -> None:
    shape = shape_of(op.keys)
    rows = prod(shape[:-1])
    e.ranges.known["found"] = (0, shape[-1] - 1)
    elements, index = row_elements(e, shape, rows)
    text = elements.at(op.values, (*index, FOUND))
    value = ["[[maybe_unused]] const long found = best.at;", *elements.lines]
    best(e, op.keys, {op.result: text}, shape, value)


def best(
    e: StageEmitter,
    keys: SSAValue,
    outcomes: dict[SSAValue, str],
    shape: tuple[int, ...],
    before: list[str] | None = None,
) -> None:
    """The first largest element of each row, and what follows from it."""
    rows, n = prod(shape[:-1]), shape[-1]
    elements, index = row_elements(e, shape, rows)
    text = elements.at(keys, (*index, K))
    e.settle()
    places = {value: result(e, value, rows) for value in outcomes}
    e.lines += [f"float {name};" for name, held in places.values() if held is None]
    e.lines += [
        "{" if rows == 1 else f"for (int r = 0; r < {rows}; r++) {{",
        "amk_best best = {amk_from_bits(0xff800000u), 0x7fffffff};",
        f"for (int k = w.thread; k < {n}; k += AMK_COMPUTE) {{",
        *elements.lines,
        f"const amk_best next = {{{text}, k}};",
        "if (amk_better(best, next)) best = next;",
        "}",
        "best = amk_block_best(w, best);",
        *(before or []),
    ]
    for value, (name, held) in places.items():
        text = outcomes[value]
        e.lines.append(
            f"{name} = {text};" if held is None else f"if (w.thread == 0) {held.name}[r] = {text};"
        )
    e.lines.append("}")


def attention(e: StageEmitter, op: mk.AttentionOp) -> None:
    tokens, group, depth = shape_of(op.query)
    keys, values = mk.buffer_of(op.keys), mk.buffer_of(op.values)
    dtype = dtype_of(keys.type.element_type)
    if shape_of(op.output)[2] != depth or values.type.element_type != keys.type.element_type:
        raise AmkError("cuda: attention wants keys and values of one depth and one dtype")
    if (values.ring_rows, values.sink_rows) != (keys.ring_rows, keys.sink_rows):
        raise AmkError("cuda: attention wants keys and values in rings of one length, or in none")
    if depth > MAX_DEPTH:
        raise AmkError(f"cuda: heads of {depth} elements; {MAX_DEPTH} at most")
    orders = [1 if o is None else o.lanes.data for o in (op.dot, op.total, op.mix)]
    if orders != list(attention_lanes(depth)):
        raise AmkError(f"cuda: attention in {orders} lanes; run warp-reductions")
    if op.query not in e.held or e.held[op.query].dealt:
        e.materialise(op.query)
    e.needs(op.query)
    e.barrier_wanted |= appends_before(op)
    e.settle()
    together = max(g for g in range(1, MAX_HEADS + 1) if group % g == 0)
    chunk = op.chunk.value.data
    o, m, l = (e.define(r) for r in (op.output, op.maximum, op.sum))  # noqa: E741
    scores, _ = e.allocate(together * chunk)
    parts, _ = e.allocate(8 * together * (depth + 2))
    head, index = (e.ranges.simplify(x) for x in op.at.data)
    ring = keys.ring_rows
    heads_rows = f"{e.ranges.factor(head)} * {ring or 'capacity'}"
    bases = [
        f"amk_at<{dtype}>({e.operand(v)}, {heads_rows} * {depth})" for v in (op.keys, op.values)
    ]
    bases += [
        "0" if v is None else f"(const float *){e.operand(v)} + {heads_rows}"
        for v in (op.key_scales, op.value_scales)
    ]
    window = 0 if op.window is None else op.window.value.data
    softcap = 0.0 if op.softcap is None else op.softcap.value.data
    low, high = op.limits
    scale = literal(op.scale.value.data)
    outputs, query = f"{o.name}, {m.name}, {l.name}", e.held[op.query].name
    shape = f"{depth}, {group}, {together}, {chunk}, {tokens}, {ring}, {keys.sink_rows}"
    e.lines.append(
        f"amk_attention<{dtype}, {shape}>(w, {outputs}, {query}, {', '.join(bases)},"
        f" {e.ranges.text(index)}, {window}, {low}, {high}L, {scale}, {literal(softcap)},"
        f" {scores}, {parts});"
    )
    e.fresh -= {op.output, op.maximum, op.sum}  # it ends in a barrier


def appends_before(op: mk.AttentionOp) -> bool:
    """Has the tile stored rows, thread by thread, into what every thread now reads?"""
    read = {v for v in op.operands if isinstance(v.type, mk.BufferType)}
    block = op.parent
    assert block is not None
    return any(
        isinstance(o, mk.StoreOp) and o.buffer in read and o.is_before_in_block(op)
        for o in block.ops
    )


def attention_lanes(depth: int) -> tuple[int, int, int]:
    """Lanes of a score, of the sum and of the output: see device/amk_attention.h."""
    threads = 1
    while threads * 8 < depth:
        threads *= 2
    keys = 8 * 32 // threads
    return threads * 8, keys, keys


def ignore(e: StageEmitter, op: Operation) -> None:
    """Ends of blocks, and what the stage emits around the body."""


RULES: dict[type[Operation], Callable] = {
    mk.StoreOp: store,
    mk.MatmulOp: matmul,
    mk.ReduceOp: reduce,
    mk.ArgmaxOp: argmax,
    mk.PickOp: pick,
    mk.AttentionOp: attention,
    mk.YieldOp: ignore,
    mk.WaitOp: ignore,
    mk.SignalOp: ignore,
}
