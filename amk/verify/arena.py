"""V6: buffers that share bytes of the arena take turns: all that touches the one is over before
anything touches the other, or at least wherever the two meet.

The buffers are walked in the order in which the program first touches them, with the owners of
each byte kept aside; a buffer is compared with the owners of its bytes only, since what those
replaced was over before them. So the cost grows with the number of buffers, not of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from amk.verify.closure import parts_of
from amk.verify.context import Context
from amk.verify.findings import Finding
from amk.verify.model import Access, Buffer
from amk.verify.ordering import before_tile, chain_of, finished, pair_terms, same_tile, tiles_of
from amk.verify.overlaps import cells
from amk.verify.shapes import representatives
from amk.verify.tiles import Order, boxes


def check_arena(ctx: Context) -> None:
    for owner, buffer, over in turns(ctx):
        ctx.report.count("V6")
        if not over:
            ctx.add(compare(ctx, owner, buffer))


def turns(ctx: Context) -> Iterator[tuple[Buffer, Buffer, bool]]:
    """(owner, next owner, do the parts take turns) of bytes, as the program reaches them."""
    owners: list[Buffer] = []
    for buffer in sorted(placed(ctx), key=lambda b: first_touch(ctx, b)):
        kept: list[Buffer] = []
        for owner in owners:
            if not share(owner, buffer):
                kept.append(owner)
                continue
            over = over_before(ctx, owner, buffer)
            yield owner, buffer, over
            if not (over and covers(buffer, owner) and solid(ctx, buffer)):
                kept.append(owner)
        owners = [*kept, buffer]


def placed(ctx: Context) -> list[Buffer]:
    return [b for b in ctx.program.buffers if b.offset is not None and touches(ctx, b)]


def touches(ctx: Context, buffer: Buffer) -> list[Access]:
    return [*ctx.writes.get(buffer, ()), *ctx.reads.get(buffer, ())]


def first_touch(ctx: Context, buffer: Buffer) -> int:
    return min(a.part.number for a in touches(ctx, buffer))


def share(a: Buffer, b: Buffer) -> bool:
    assert a.offset is not None
    assert b.offset is not None
    return a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes


def covers(a: Buffer, b: Buffer) -> bool:
    """Does `a` take all bytes of `b`?"""
    assert a.offset is not None
    assert b.offset is not None
    return a.offset <= b.offset and b.offset + b.nbytes <= a.offset + a.nbytes


def solid(ctx: Context, buffer: Buffer) -> bool:
    """Is the buffer touched at every position?"""
    return any(ctx.closure.solid[n] for a in touches(ctx, buffer) for n in parts_of(a))


def over_before(ctx: Context, early: Buffer, late: Buffer) -> bool:
    wanted = 0
    for access in touches(ctx, early):
        for n in parts_of(access):
            wanted |= 1 << n
    return all(wanted & ~ctx.closure.before(a) == 0 for a in touches(ctx, late))


def compare(ctx: Context, a: Buffer, b: Buffer) -> Finding | None:
    """Enumerates the tiles of two buffers, a shape at a time."""
    ours, theirs = touches(ctx, a), touches(ctx, b)
    terms = {e for x in ours for y in theirs for e in pair_terms(ctx, x, y)}
    for past in representatives(ctx.positions, terms):
        ctx.report.exhausted += 1
        for first, second in ((a, b), (b, a)):
            found = clash(ctx, first, second, past)
            if found is not None:
                return found
    return None


@dataclass
class Touch:
    """One tile's part in one access."""

    access: Access
    tile: int
    cells: int


def touched(ctx: Context, order: Order, buffer: Buffer, past: int, unit: int) -> list[Touch]:
    assert buffer.offset is not None
    found: list[Touch] = []
    size = buffer.element_bytes // unit
    for access in touches(ctx, buffer):
        sets = cells(boxes(access, past), buffer.shape, buffer.offset // unit, size)
        for i, cell in enumerate(sets):
            found += [Touch(access, tile, cell) for tile in tiles_of(order, access, i)]
    return found


def clash(ctx: Context, kept: Buffer, other: Buffer, past: int) -> Finding | None:
    """A write of `other` that meets what `kept` holds: unordered, or between a write and a read
    of `kept`."""
    stages = [x.part.stage for b in (kept, other) for x in touches(ctx, b)]
    first = min(stages, key=lambda s: s.number)
    last = max(stages, key=lambda s: s.number)
    order = ctx.order(past, first, last)
    assert kept.offset is not None
    assert other.offset is not None
    sizes = (kept.offset, other.offset, kept.element_bytes, other.element_bytes)
    unit = 4 if all(n % 4 == 0 for n in sizes) else 1
    ours = touched(ctx, order, kept, past, unit)
    for their in touched(ctx, order, other, past, unit):
        if not their.access.write:
            continue
        before = before_tile(order, their.access, their.tile)
        over = 0  # cells written by ours before, then overwritten by theirs
        late: list[Touch] = []
        for our in ours:
            if not our.cells & their.cells:
                continue
            if comes_first(order, our, their, before):
                over |= our.cells if our.access.write else 0
            elif comes_first(order, their, our, before_tile(order, our.access, our.tile)):
                late.append(our)
            else:
                return finding(ctx, "shared bytes are touched in no order", our, their, past)
        for our in late:
            if not our.access.write and our.cells & over & their.cells:
                return finding(ctx, "bytes are overwritten before they are read", our, their, past)
    return None


def comes_first(order: Order, early: Touch, late: Touch, before: int) -> bool:
    if finished(order, early.access, early.tile, before):
        return True
    a, b = early.access, late.access
    if same_tile(a, b, early.tile, late.tile):
        return a.place < b.place
    # The prologue that a worker runs for a tile is over before that tile's body.
    first = order.first[b.part.number] - order.first[a.part.number]
    return a.prologue and not b.prologue and early.tile == first + late.tile


def finding(ctx: Context, what: str, our: Touch, their: Touch, past: int) -> Finding:
    start = our.cells & their.cells
    low = (start & -start).bit_length() - 1
    sides = (
        ctx.tile(our.access, local(our), past),
        ctx.tile(their.access, local(their), past),
    )
    names = f"{our.access.buffer.name} and {their.access.buffer.name}"
    where = f", arena cell {low}"
    links = chain_of(ctx, our.access, our.tile, their.access, their.tile, past)
    return Finding("V6", what, past, sides, names, where, links)


def local(touch: Touch) -> int:
    return 0 if touch.access.prologue else touch.tile
