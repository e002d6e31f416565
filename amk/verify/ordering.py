"""V4: every read happens after the write it needs (V3 when it can only come before). V5: writes
of one element are ordered. One buffer at a time; `arena` looks across buffers.

Three questions, each cheaper than the next: does the closure of events order the two parts; do the
groups a tile waits for hold every tile it meets; does an enumeration of the tiles, a shape at a
time, find two that meet unordered.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from amk.ir.expr import Const, Expr
from amk.verify.chains import chain, tile_of
from amk.verify.closure import waits_between
from amk.verify.context import Context, elements
from amk.verify.findings import Finding
from amk.verify.model import Access, Box, Part
from amk.verify.overlaps import common, meets
from amk.verify.positions import always
from amk.verify.shapes import representatives, varies_much
from amk.verify.tiles import Order, boxes, numbers

MOST_PAIRS = 1 << 22


def check_ordering(ctx: Context) -> None:
    for write, read in reads_of_writes(ctx):
        ctx.report.count("V4")
        ctx.add(read_after_write(ctx, write, read))
    for writes in ctx.writes.values():
        for i, a in enumerate(writes):
            for b in writes[i:]:
                ctx.report.count("V5")
                ctx.add(unordered_writes(ctx, a, b))


def reads_of_writes(ctx: Context) -> Iterator[tuple[Access, Access]]:
    """Each write with each read of the same buffer."""
    for buffer, writes in ctx.writes.items():
        yield from product(writes, ctx.reads.get(buffer, ()))


def read_after_write(ctx: Context, write: Access, read: Access) -> Finding | None:
    if always(ctx.families.of(write).apart(ctx.families.of(read))):
        return None
    if ctx.closure.ordered(write, read) or by_groups(ctx, write, read):
        return None
    return enumerate_shapes(ctx, write, read)


def unordered_writes(ctx: Context, a: Access, b: Access) -> Finding | None:
    """Where V1 holds there is nothing to order."""
    family = ctx.families.of(a)
    if family.disjoint if a is b else always(family.apart(ctx.families.of(b))):
        return None
    if a is not b and (ctx.closure.ordered(a, b) or ctx.closure.ordered(b, a)):
        return None
    for past in representatives(ctx.positions, pair_terms(ctx, a, b)):
        ctx.report.exhausted += 1
        found = unordered_at(ctx, a, b, past, (ctx.launch_box(a), ctx.launch_box(b)), True)
        if found is not None:
            return finding(ctx, "V5", "two writes are not ordered", a, b, past, found)
    return None


# ---- groups -------------------------------------------------------------------------------


def by_groups(ctx: Context, early: Access, late: Access) -> bool:
    """Does every tile of `late` wait for each tile of `early` whose box it meets? Decided on the
    coordinates alone, so for every position at once; axes that move with P are taken to meet."""
    if early.prologue or late.prologue:
        return False
    for _, wait, signal in waits_between(early.part, late.part):
        axes = [
            (a, b)
            for a, b in zip(early.box, late.box, strict=True)
            if not any("P" in e.symbols() for e in (*a, *b))
        ]
        ours = [signal.group, *(e for a, _ in axes for e in a)]
        theirs = [wait.first, wait.count, *(e for _, b in axes for e in b)]
        x = spread(ctx, early.part, ours)
        y = spread(ctx, late.part, theirs)
        if x is None or y is None or len(x) * len(y) > MOST_PAIRS:
            continue
        awaited = (x[:, None, 0] >= y[None, :, 0]) & (x[:, None, 0] < (y[:, 0] + y[:, 1])[None])
        meet = np.ones(awaited.shape, bool)
        for i in range(len(axes)):
            a, b = 1 + 2 * i, 2 + 2 * i
            meet &= np.maximum(x[:, None, a], y[None, :, b]) < np.minimum(
                x[:, None, a + 1], y[None, :, b + 1]
            )
        if (awaited | ~meet).all():
            return True
    return False


def spread(ctx: Context, part: Part, exprs: list[Expr]) -> np.ndarray | None:
    """The expressions' values [tiles, exprs] over the coordinates they use; None when P is among
    their symbols or a coordinate's extent moves with it."""
    symbols = set().union(*(e.symbols() for e in exprs)) if exprs else set()
    grid = [e if f"t{i}" in symbols else Const(1) for i, e in enumerate(part.grid)]
    if "P" in symbols or any(e.constant is None for e in grid):
        return None
    extents = [e.constant or 0 for e in grid]
    count = int(np.prod(extents))
    if count > MOST_PAIRS:
        return None
    at = np.indices(extents).reshape(len(extents), -1)
    env = {f"t{i}": axis for i, axis in enumerate(at)}
    return np.stack([numbers(e, count, env) for e in exprs], axis=1)  # type: ignore[arg-type]


# ---- tiles --------------------------------------------------------------------------------


def pair_terms(ctx: Context, a: Access, b: Access, widen: bool = False) -> list[Expr]:
    found = set(ctx.window(a.part.stage, b.part.stage))
    for access in (a, b):
        box = ctx.launch_box(access)
        found.update(e for pair in (widened(ctx, access, box) if widen else box) for e in pair)
    return list(found)


def widened(ctx: Context, access: Access, box: Box) -> Box:
    """The box with the axes that take a shape at nearly every position in full."""
    return tuple(
        (Const(0), Const(extent)) if any(varies_much(ctx.positions, e) for e in pair) else pair
        for pair, extent in zip(box, ctx.launch_shape(access.buffer), strict=True)
    )


def enumerate_shapes(ctx: Context, write: Access, read: Access) -> Finding | None:
    """First with wide boxes, for few shapes; where those meet unordered, with the boxes as they
    are, at each position in turn."""
    wide = (
        widened(ctx, write, ctx.launch_box(write)),
        widened(ctx, read, ctx.launch_box(read)),
    )
    exact = (ctx.launch_box(write), ctx.launch_box(read))
    good = True
    for past in representatives(ctx.positions, pair_terms(ctx, write, read, True)):
        ctx.report.exhausted += 1
        if unordered_at(ctx, write, read, past, wide, False) is not None:
            good = False
            break
    if good:
        return None
    for past in representatives(ctx.positions, pair_terms(ctx, write, read)):
        ctx.report.exhausted += 1
        found = unordered_at(ctx, write, read, past, exact, False)
        if found is not None:
            backwards = came_first(ctx, write, read, past, found)
            rule = "V3" if backwards else "V4"
            what = "read before it is written" if backwards else "a read may come before its write"
            return finding(ctx, rule, what, write, read, past, found)
    return None


Pair = tuple[int, int, np.ndarray, np.ndarray]


def unordered_at(
    ctx: Context,
    early: Access,
    late: Access,
    past: int,
    ranges: tuple[Box, Box],
    either_way: bool,
) -> Pair | None:
    """A tile of `early` and one of `late` whose boxes meet, the first not known to be finished
    before the second begins (nor, if `either_way`, the other way round)."""
    x, y = boxes(early, past, ranges[0]), boxes(late, past, ranges[1])
    order = ctx.order(past, early.part.stage, late.part.stage)
    for j, hits in meets(y, x):
        for tile in tiles_of(order, late, j):
            before = before_tile(order, late, tile)
            for i in hits.tolist():
                if early is late and i >= j:
                    continue
                if same_tile(early, late, i, tile):
                    if early.place < late.place or either_way:
                        continue
                elif finished(order, early, i, before):
                    continue
                if either_way and finished(order, late, tile, before_tile(order, early, i)):
                    continue
                return i, tile, x[i], y[j]
    return None


def tiles_of(order: Order, access: Access, tile: int) -> list[int]:
    """The tile itself; for a prologue every tile before which a worker runs it."""
    if not access.prologue:
        return [tile]
    found: list[int] = []
    for part in access.part.stage.parts:
        first = order.first[part.number] - order.first[access.part.number]
        found += [first + i for i, e in enumerate(order.entry[part.number]) if e is not None]
    return found


def locate(order: Order, access: Access, tile: int) -> tuple[int, int]:
    """(part, tile in it) of a tile counted from the first of a prologue's stage."""
    if not access.prologue:
        return access.part.number, tile
    for part in access.part.stage.parts:
        count = len(order.body[part.number])
        if tile < count:
            return part.number, tile
        tile -= count
    raise IndexError(tile)


def before_tile(order: Order, access: Access, tile: int) -> int:
    part, i = locate(order, access, tile)
    found = order.entry[part][i] if access.prologue else order.body[part][i]
    assert found is not None
    return found


def finished(order: Order, access: Access, tile: int, before: int) -> bool:
    return bool(before >> (order.first[access.part.number] + tile) & 1)


def same_tile(a: Access, b: Access, i: int, j: int) -> bool:
    """A prologue stands before the tile it is run for, whoever else shares it."""
    if a.prologue or b.prologue:
        return False
    return a.part is b.part and i == j


def came_first(ctx: Context, write: Access, read: Access, past: int, pair: Pair) -> bool:
    """Is the read always over before the write?"""
    i, j = pair[0], pair[1]
    if same_tile(write, read, i, j):
        return True
    order = ctx.order(past, write.part.stage, read.part.stage)
    return finished(order, read, j, before_tile(order, write, i))


def finding(
    ctx: Context, rule: str, what: str, a: Access, b: Access, past: int, pair: Pair
) -> Finding:
    i, j, x, y = pair
    shared = common(x, y)
    axis = a.buffer.rows_axis
    if axis is not None:
        shared[axis] += past
    sides = (ctx.tile(a, i, past), ctx.tile(b, j, past))
    return Finding(
        rule, what, past, sides, a.buffer.name, elements(shared), chain_of(ctx, a, i, b, j, past)
    )


def chain_of(ctx: Context, a: Access, i: int, b: Access, j: int, past: int) -> tuple[str, ...]:
    """What should have ordered tile `i` of `a` before tile `j` of `b`, as far as it goes."""
    order = ctx.order(past, a.part.stage, b.part.stage)
    counts = {n: len(body) for n, body in order.body.items()}
    stages = ctx.stages(a.part.stage, b.part.stage)
    early, late = tile_of(a, i, counts), tile_of(b, j, counts)
    if early == late and not a.prologue and not b.prologue:
        return ("both stand in one tile, in the other order",)
    return chain(ctx.program, stages, past, early, late, b.prologue)
