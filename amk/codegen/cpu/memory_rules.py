"""How `mk` ops that touch buffers are written in C: element offsets, boxes, loads and stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type, i8, i64
from xdsl.ir import Attribute, Operation, SSAValue

from amk.codegen.cpu.c_text import c_expr, contiguous
from amk.errors import AmkError
from amk.ir import mk
from amk.ir.expr import ExprsAttr
from amk.ir.lm import shape_of

if TYPE_CHECKING:
    from amk.codegen.cpu.stage import StageEmitter


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


def element_strides(e: StageEmitter, value: SSAValue) -> list[str]:
    """Element strides of a buffer; a cache's open axis gives its capacity."""
    shape = mk.buffer_of(value).type.get_shape()
    k = e.operand(value)
    out: list[str] = []
    factor, capacity = 1, False
    for extent in reversed(shape):
        out.append(f"{factor} * cap({k})" if capacity else str(factor))
        if extent == -1:
            capacity = True
        else:
            factor *= extent
    return out[::-1]


def place(e: StageEmitter, value: SSAValue, offsets: ExprsAttr) -> str:
    """The element offset of a box in a buffer."""
    terms = [
        c_expr(o) if s == "1" else f"{c_expr(o)} * {s}"
        for o, s in zip(offsets, element_strides(e, value), strict=True)
        if o.constant != 0
    ]
    return " + ".join(terms) or "0"


def box_strides(e: StageEmitter, buffer: SSAValue, shape: tuple[int, ...]) -> list[int] | None:
    """Strides of a box as numbers, or None when an axis before the capacity is longer than 1."""
    out = []
    for text, size in zip(element_strides(e, buffer), shape, strict=True):
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
    inner = [i for i, s in enumerate(element_strides(e, buffer)) if "cap" not in s]
    outer = [i for i in range(len(shape)) if i not in inner]
    packed = contiguous(shape)
    for i in outer:
        e.lines.append(f"for (long j{i} = 0; j{i} < {shape[i]}; j{i}++)")
    array = "".join(f" + j{i} * {packed[i]}" for i in outer)
    memory = "".join(f" + j{i} * {element_strides(e, buffer)[i]}" for i in outer)
    e.loop(
        [shape[i] for i in inner],
        [[packed[i] for i in inner], [int(element_strides(e, buffer)[i]) for i in inner]],
        statement.replace("{0}", "{0}" + array).replace("{1}", "{1}" + memory),
    )


def load(e: StageEmitter, op: mk.LoadOp) -> None:
    shape, k = shape_of(op.result), e.operand(op.buffer)
    dtype = dtype_of(mk.buffer_of(op.buffer).type.element_type)
    at = place(e, op.buffer, op.offsets)
    name = e.define(op.result)
    e.lines.append("{")
    e.lines.append(f"const long at = {at};")
    copy_box(e, op.buffer, shape, f"{name}[{{0}}] = amk_get(b({k}), at + {{1}}, {dtype});")
    e.lines.append("}")


def store_box(e: StageEmitter, op: mk.StoreOp) -> None:
    """A store into a cache, axis by axis; in a ring rows, on axis 2, take their slots."""
    buffer = mk.buffer_of(op.buffer)
    ring = f"(amk_ring){{{buffer.ring_rows}, {buffer.sink_rows}, 0, 0}}"
    shape, k = shape_of(op.value), e.operand(op.buffer)
    array, memory = [], []
    for i, (at, stride) in enumerate(zip(op.offsets, element_strides(e, op.buffer), strict=True)):
        e.lines.append(f"for (long j{i} = 0; j{i} < {shape[i]}; j{i}++)")
        array.append(f"j{i} * {contiguous(shape)[i]}")
        place = f"({c_expr(at)} + j{i})"
        slot = f"amk_slot({place}, {ring})" if buffer.ring_rows and i == 2 else place
        memory.append(f"{slot} * {stride}")
    element = mk.buffer_of(op.buffer).type.element_type
    value = f"{e.names[op.value]}[{' + '.join(array)}]"
    e.lines.append(
        f"((int8_t *)b({k}))[{' + '.join(memory)}] = amk_f32_to_i8({value});"
        if element == i8
        else f"amk_put(b({k}), {' + '.join(memory)}, {value}, {dtype_of(element)});"
    )


def store_i8(e: StageEmitter, op: mk.StoreOp) -> None:
    """Rounds to whole numbers of a byte, in a ring or not."""
    store_box(e, op)


def store(e: StageEmitter, op: mk.StoreOp) -> None:
    shape, k = shape_of(op.value), e.operand(op.buffer)
    element = mk.buffer_of(op.buffer).type.element_type
    if element == i8:
        store_i8(e, op)
        return
    if mk.buffer_of(op.buffer).ring_rows:
        store_box(e, op)
        return
    name = e.names[op.value]
    statement = f"((int64_t *)b({k}))[at + {{1}}] = (int64_t){name}[{{0}}];"
    if element != i64:
        statement = f"amk_put(b({k}), at + {{1}}, {name}[{{0}}], {dtype_of(element)});"
    e.lines.append("{")
    e.lines.append(f"const long at = {place(e, op.buffer, op.offsets)};")
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


MEMORY: dict[type[Operation], Callable] = {
    mk.LoadOp: load,
    mk.StoreOp: store,
    mk.GatherOp: gather,
}
