"""V1: every element is written once, a cache's rows P … P + S − 1 exactly. V3: what is read is
written at all. V8: every element of an output is."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from amk.ir.expr import Expr, P
from amk.verify.context import Context, elements
from amk.verify.findings import Finding
from amk.verify.model import Access, Buffer
from amk.verify.overlaps import common, gap, meets, paint
from amk.verify.positions import Number, Truth, always, both, either, negate, positive
from amk.verify.shapes import representatives
from amk.verify.tiles import boxes

GIVEN = ("weight", "constant", "input")


def check_coverage(ctx: Context) -> None:
    for buffer in ctx.program.buffers:
        if buffer.kind in GIVEN:
            continue
        writes = ctx.writes.get(buffer, [])
        once = written_once(ctx, buffer, writes)
        if buffer.kind == "cache":
            ctx.report.count("V1")
            ctx.add(rows_appended(ctx, buffer, writes, once))
            # Rows before P come with the launch, the others were just counted; but a ring has
            # room for the last of them only.
            for read in ctx.reads.get(buffer, []) if buffer.ring else ():
                ctx.report.count("V3")
                ctx.add(rows_kept(ctx, read))
            continue
        if buffer.kind == "output":
            ctx.report.count("V8")
            ctx.add(produced(ctx, buffer, writes, once))
        for read in ctx.reads.get(buffer, []):
            ctx.report.count("V3")
            ctx.add(written(ctx, read, writes, once))


def written_once(ctx: Context, buffer: Buffer, writes: list[Access]) -> bool:
    """Adds a finding for each pair of writes that meet; true when there is none."""
    once = True
    for i, a in enumerate(writes):
        for b in writes[i:]:
            ctx.report.count("V1")
            family = ctx.families.of(a)
            if family.disjoint if a is b else always(family.apart(ctx.families.of(b))):
                continue
            found = written_twice(ctx, a, b)
            if found is not None:
                ctx.add(found)
                once = False
    return once


def terms_of(ctx: Context, accesses: Iterable[Access]) -> list[Expr]:
    found: set[Expr] = set()
    for access in accesses:
        found.update(access.part.grid)
        for pair in ctx.launch_box(access):
            found.update(pair)
    return list(found)


def written_twice(ctx: Context, a: Access, b: Access) -> Finding | None:
    for past in representatives(ctx.positions, terms_of(ctx, (a, b))):
        ctx.report.exhausted += 1
        x, y = boxes(a, past), boxes(b, past)
        for i, hits in meets(x, y):
            others = [int(j) for j in hits if a is not b or j != i]
            if others:
                j = others[0]
                what = "an element is written twice"
                sides = (ctx.tile(a, i, past), ctx.tile(b, j, past))
                shared = elements(common(x[i], y[j]))
                return Finding("V1", what, past, sides, a.buffer.name, shared)
    return None


def volume(ctx: Context, writes: list[Access]) -> tuple[Number, bool]:
    """Elements that writes cover together, and whether that number is exact."""
    total: Number = 0
    exact = True
    for access in writes:
        family = ctx.families.of(access)
        exact = exact and family.dense
        total = total + family.volume() * positive(np.asarray(family.filled, np.int64))
    return total, exact


def full(ctx: Context, buffer: Buffer, writes: list[Access], once: bool) -> Truth:
    """Do disjoint writes inside the buffer fill it? Rows of a cache are those of the launch."""
    total, exact = volume(ctx, writes)
    if not (once and exact):
        return False
    return total == int(np.prod(ctx.launch_shape(buffer)))


def rows_appended(ctx: Context, buffer: Buffer, writes: list[Access], once: bool) -> Finding | None:
    """Every write stays within the rows [P, P + S), and together they fill them."""
    axis = buffer.rows_axis
    assert axis is not None
    inside: Truth = True
    for access in writes:
        family = ctx.families.of(access)
        low, high = family.hull[axis]
        past = ctx.positions.past
        kept = both(low >= past, high <= past + ctx.program.tokens)
        inside = both(inside, either(kept, negate(family.filled)))
    bad = negate(both(inside, full(ctx, buffer, writes, once)))
    if not np.any(bad):
        return None
    for past in representatives(ctx.positions, outside_terms(ctx, writes, axis), bad):
        ctx.report.exhausted += 1
        mask = np.zeros(ctx.launch_shape(buffer), bool)
        for access in writes:
            found = boxes(access, past)
            found[:, axis] -= past
            stray = (found[:, axis, 0] < 0) | (found[:, axis, 1] > ctx.program.tokens)
            stray &= (found[:, :, 0] < found[:, :, 1]).all(axis=1)
            if stray.any():
                tile = int(np.argmax(stray))
                found[:, axis] += past
                what = f"rows outside P … P + {ctx.program.tokens} − 1 are written"
                return Finding(
                    "V1", what, past, (ctx.tile(access, tile, past),), buffer.name,
                    elements(found[tile]),
                )  # fmt: skip
            paint(mask, found)
        if not mask.all():
            at = np.argwhere(~mask)[0]
            at[axis] += past
            what = "a row of the cache is not appended"
            return Finding("V1", what, past, (), buffer.name, str(at.tolist()))
    return None


def rows_kept(ctx: Context, read: Access) -> Finding | None:
    """The rows of a ring that a launch reads are none of those whose slots it writes over; its
    sinks stay."""
    axis, sinks = read.buffer.rows_axis, read.buffer.sinks
    ring = read.buffer.ring - sinks
    assert axis is not None
    family = ctx.families.of(read)
    oldest = ctx.positions.past + (ctx.program.tokens - ring)
    kept = either(family.hull[axis][0] >= oldest, family.hull[axis][1] <= sinks)
    bad = both(negate(kept), family.filled)
    terms = [*read.box[axis], *read.part.grid, P]
    for past in representatives(ctx.positions, terms, bad) if np.any(bad) else ():
        found = boxes(read, past)
        there = (found[:, :, 0] < found[:, :, 1]).all(axis=1)
        gone = there & (found[:, axis, 0] < past + ctx.program.tokens - ring)
        gone &= found[:, axis, 1] > sinks
        if gone.any():
            tile = int(np.argmax(gone))
            what = f"a row is read whose slot of {ring} another row of this launch takes"
            side = (ctx.tile(read, tile, past),)
            return Finding("V3", what, past, side, read.buffer.name, elements(found[tile]))
    return None


def outside_terms(ctx: Context, writes: list[Access], axis: int) -> list[Expr]:
    """As `terms_of`, but with rows as they are: a row before P must not be cut away."""
    found = set(terms_of(ctx, writes))
    for access in writes:
        found.update(e - P for e in access.box[axis])
    return list(found)


def produced(ctx: Context, buffer: Buffer, writes: list[Access], once: bool) -> Finding | None:
    bad = negate(full(ctx, buffer, writes, once))
    for past in representatives(ctx.positions, terms_of(ctx, writes), bad):
        ctx.report.exhausted += 1
        mask = painted(ctx, buffer, writes, past)
        if not mask.all():
            at = np.argwhere(~mask)[0].tolist()
            return Finding("V8", "an element of an output is not written", past, (), buffer.name,
                           str(at))  # fmt: skip
    return None


def painted(ctx: Context, buffer: Buffer, writes: list[Access], past: int) -> np.ndarray:
    mask = np.zeros(ctx.launch_shape(buffer), bool)
    for access in writes:
        paint(mask, boxes(access, past, ctx.launch_box(access)))
    return mask


def written(ctx: Context, read: Access, writes: list[Access], once: bool) -> Finding | None:
    family = ctx.families.of(read)
    covered: Number = 0
    exact = once
    for access in writes:
        other = ctx.families.of(access)
        exact = exact and other.dense
        covered = covered + family.common(other)
    good: Truth = covered >= family.volume() if exact else False
    bad = both(negate(good), family.filled)
    if not np.any(bad):
        return None
    for past in representatives(ctx.positions, terms_of(ctx, [read, *writes]), bad):
        ctx.report.exhausted += 1
        mask = painted(ctx, read.buffer, writes, past)
        found = gap(mask, boxes(read, past, ctx.launch_box(read)))
        if found is not None:
            tile, at = found
            what = "an element is read that no tile writes"
            side = (ctx.tile(read, tile, past),)
            return Finding("V3", what, past, side, read.buffer.name, str(list(at)))
    return None
