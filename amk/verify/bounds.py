"""V2: every access lies inside its buffer. V7: what the host gives is never written. V13: the
address of its last byte fits the integers of the emitter."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import IntegerAttr

from amk.ir import mk
from amk.verify.context import Context, elements
from amk.verify.findings import Finding
from amk.verify.model import Access, Buffer
from amk.verify.positions import Number, Truth, both, negate
from amk.verify.shapes import representatives
from amk.verify.tiles import boxes

INDEX_BITS = "amk.index_bits"
DEFAULT_BITS = 64


def check_bounds(ctx: Context) -> None:
    bits = index_bits(ctx)
    for buffer in ctx.program.buffers:
        ctx.add(placed(ctx, buffer))
    proved: set[object] = set()
    for access in ctx.program.accesses():
        ctx.report.count("V2")
        ctx.report.count("V13")
        grid = () if access.prologue else access.part.grid
        buffer = access.buffer
        question = (access.box, grid, buffer.shape, buffer.element_bytes, buffer.offset)
        if question not in proved:
            found = [f for f in (inside(ctx, access), addressed(ctx, access, bits)) if f]
            for finding in found:
                ctx.add(finding)
            if not found:
                proved.add(question)
        if access.write:
            ctx.report.count("V7")
            ctx.add(given_written(ctx, access))


def happens(ctx: Context, access: Access) -> int | None:
    """The smallest position at which an access touches anything."""
    filled = np.broadcast_to(ctx.families.of(access).filled, ctx.positions.past.shape)
    return int(np.argmax(filled)) if filled.any() else None


def given_written(ctx: Context, access: Access) -> Finding | None:
    past = happens(ctx, access)
    if access.buffer.kind in mk.WRITABLE or past is None:
        return None
    what = f"a {access.buffer.kind} is written"
    return Finding("V7", what, past, (ctx.tile(access, 0, past),), access.buffer.name)


def placed(ctx: Context, buffer: Buffer) -> Finding | None:
    """A place in the arena is aligned and ends inside it."""
    if buffer.offset is None:
        return None
    ctx.report.count("V2")
    end, size = buffer.offset + buffer.nbytes, ctx.program.arena
    if end <= size and buffer.offset % buffer.element_bytes == 0:
        return None
    what = f"bytes {buffer.offset} to {end} of an arena of {size} bytes"
    return Finding("V2", what, 0, (), buffer.name)


def extents(ctx: Context, buffer: Buffer) -> list[Number]:
    """Elements an axis has; of a cache only rows below P + tokens are promised."""
    rows = ctx.positions.past + ctx.program.tokens
    return [rows if d == -1 else d for d in buffer.shape]


def inside(ctx: Context, access: Access) -> Finding | None:
    family, fits = ctx.families.of(access), True
    for (low, high), extent in zip(family.hull, extents(ctx, access.buffer), strict=True):
        fits = both(fits, both(low >= 0, high <= extent))
    bad: Truth = both(negate(fits), family.filled)
    if not np.any(bad):
        return None
    # The hull of a family may reach further than its boxes do: look at the boxes themselves.
    terms = [e for pair in access.box for e in pair] + list(access.part.grid)
    for past in representatives(ctx.positions, terms, bad):
        found = boxes(access, past)
        rows = past + ctx.program.tokens
        limit = np.array([rows if d == -1 else d for d in access.buffer.shape])
        there = (found[:, :, 0] < found[:, :, 1]).all(axis=1)
        out = there & ((found[:, :, 0] < 0) | (found[:, :, 1] > limit)).any(axis=1)
        if out.any():
            tile = int(np.argmax(out))
            what = f"an access leaves its buffer of {'x'.join(map(str, limit.tolist()))}"
            return Finding(
                "V2", what, past, (ctx.tile(access, tile, past),), access.buffer.name,
                elements(found[tile]),
            )  # fmt: skip
    return None


def index_bits(ctx: Context) -> int:
    attribute = ctx.program.op.attributes.get(INDEX_BITS)
    return attribute.value.data if isinstance(attribute, IntegerAttr) else DEFAULT_BITS


def last_byte(shape: list[int], ends: list[int], element_bytes: int) -> int:
    """The byte after the last element of a row-major box that ends at `ends`."""
    at, stride = 0, 1
    for extent, end in zip(reversed(shape), reversed(ends), strict=True):
        at += (end - 1) * stride
        stride *= extent
    return (at + 1) * element_bytes


def addressed(ctx: Context, access: Access, bits: int) -> Finding | None:
    """The furthest byte over all positions, with a cache as long as max_seq."""
    family, at = ctx.families.of(access), ctx.positions
    filled = np.broadcast_to(family.filled, at.past.shape)
    if not filled.any():
        return None
    rows = access.buffer.ring or ctx.program.max_seq
    shape = [rows if d == -1 else d for d in access.buffer.shape]
    ends = [np.broadcast_to(high, at.past.shape)[filled] for _, high in family.hull]
    start = access.buffer.offset or 0
    last = [min(int(e.max()), extent) for e, extent in zip(ends, shape, strict=True)]
    end = start + last_byte(shape, last, access.buffer.element_bytes)
    if end <= 1 << (bits - 1):
        return None
    past = int(np.flatnonzero(filled)[int(np.argmax(ends[access.buffer.rows_axis or 0]))])
    what = f"byte {end} does not fit a signed integer of {bits} bits"
    return Finding("V13", what, past, (ctx.tile(access, 0, past),), access.buffer.name)
