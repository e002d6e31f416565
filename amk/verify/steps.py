"""Several steps in one launch: the step is a second symbol, and the token orders two of them.

A program with a greedy head writes the token that the next step reads. In a launch of several
steps that write is the only thing the next step waits for: every worker does, before anything else
of step k + 1. So what step k left unfinished then could meet what step k + 1 does: its reads and
writes, and its signals, as the counters go on. Every tile of step k must be finished before the
token is, by events or by the list of a worker; then no access of two steps is unordered, counters
rise by whole steps, and the same holds for the next pair: for any number of steps.

The token is written where it is read, so its reads come before its write, within one step too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from amk.verify.chains import Tile, chain
from amk.verify.context import Context, describe, elements
from amk.verify.findings import STEPS, Finding
from amk.verify.model import Access, Buffer, Event, Part, Program
from amk.verify.overlaps import cells, common, meets
from amk.verify.shapes import representatives
from amk.verify.tiles import boxes, coordinates, numbers, tile_name

MOST_TILES = 1 << 22
"""Tiles, summed over shapes, up to which an order that strides do not show is looked for."""


@dataclass(frozen=True)
class Feedback:
    """The write of the token that the next step reads, by the only tile of a part."""

    write: Access
    reads: tuple[Access, ...]

    @property
    def part(self) -> Part:
        return self.write.part

    @property
    def tile(self) -> Tile:
        return self.write.part, 0


def feedback_of(program: Program) -> Feedback | None:
    """None for a program that cannot feed itself: of several tokens, or without a greedy head."""
    writes = [a for a in program.accesses() if a.write and named(a.buffer, "output", "next")]
    reads = [a for a in program.accesses() if named(a.buffer, "input", "tokens")]
    if program.tokens != 1 or len(writes) != 1 or writes[0].prologue:
        return None
    write = writes[0]
    whole = write.buffer.shape == (1, 1) and all(e.constant == 1 for e in write.part.grid)
    return Feedback(write, tuple(reads)) if whole else None


def named(buffer: Buffer, kind: str, source: str) -> bool:
    return buffer.kind == kind and buffer.op.source.data == source


def check_steps(ctx: Context) -> None:
    """Of a program that is right step by step: sets `steps` of the report, and what is against
    several steps a launch."""
    feedback = feedback_of(ctx.program)
    if feedback is None:
        return
    ctx.report.count("V5", len(ctx.program.parts))
    ctx.report.count("V6", len(feedback.reads))
    ctx.report.step_findings = list(hazards(ctx, feedback))
    if not ctx.report.step_findings:
        ctx.report.steps = STEPS[1]


def hazards(ctx: Context, feedback: Feedback) -> Iterator[Finding]:
    """What can go wrong between a step and the next, a finding a ring, part or read."""
    yield from refilled(ctx)
    closure = ctx.closure
    done = closure.through[feedback.part.number]
    late = [p for p in ctx.program.parts if not done >> p.number & 1]
    reads = [r for r in feedback.reads if not early_enough(ctx, r, feedback)]
    if not late and not reads:
        return
    terms = ctx.window(ctx.program.stages[0], ctx.program.stages[-1])
    past = representatives(ctx.positions, terms)
    if len(past) * tile_count(ctx) > MOST_TILES:
        names = describe((late or [reads[0].part])[0])
        what = f"too many shapes to decide what is finished before the token of {names}"
        yield Finding("V5", what, past[0])
        return
    boundaries = [p for p in past if p < ctx.positions.count - 1]
    for part in late:
        yield from unfinished(ctx, feedback, part, boundaries)
    for read in reads:
        yield from overwritten(ctx, feedback, read, past)


def refilled(ctx: Context) -> Iterator[Finding]:
    """A ring that may be filled further ahead than it has slots holds one step's pieces alone."""
    for use in {use.stream: use for use in ctx.program.streamed}.values():
        slots, ahead = use.stream.slots.value.data, use.stream.lookahead
        if ctx.program.workers is not None and ahead > slots and ctx.positions.count > 1:
            what = f"{ahead} pieces are filled ahead into {slots} slots, those of the next step too"
            yield Finding("V12", what, 0, (describe(use.part),), use.buffer.name)


def tile_count(ctx: Context) -> int:
    """The most tiles of all parts together."""
    return sum(int(np.max(ctx.positions.tiles(p.grid))) for p in ctx.program.parts)


def early_enough(ctx: Context, read: Access, feedback: Feedback) -> bool:
    """Is a read of the old token over before the new one is written, by whole parts?"""
    if read.part is feedback.part and not read.prologue:
        return read.place < feedback.write.place
    if read.prologue and read.part.stage is feedback.part.stage:
        return len(read.part.stage.parts) == 1
    return ctx.closure.ordered(read, feedback.write)


def unfinished(
    ctx: Context, feedback: Feedback, part: Part, positions: list[int]
) -> Iterator[Finding]:
    """The first tile of a part that may still run when the next step begins."""
    for past in positions:
        ctx.report.exhausted += 1
        done = finished_before(ctx.program, past, feedback.tile)
        count, _ = coordinates(part.grid, past)
        tile = next((i for i in range(count) if (part, i) not in done), None)
        if tile is not None:
            yield met_by_the_next(ctx, feedback, (part, tile), past)
            return


def overwritten(
    ctx: Context, feedback: Feedback, read: Access, positions: list[int]
) -> Iterator[Finding]:
    """A read of the old token that may come after the write of the new one."""
    parts = read.part.stage.parts if read.prologue else [read.part]
    own = {feedback.tile}
    if read.part is feedback.part and not read.prologue:
        own = set()  # the tile reads the token after it has written the next
    for past in positions:
        ctx.report.exhausted += 1
        done = finished_before(ctx.program, past, feedback.tile) - {feedback.tile} | own
        tiles = [(p, i) for p in parts for i in range(coordinates(p.grid, past)[0])]
        wrong = next((t for t in tiles if t not in done), None)
        if wrong is not None:
            what = "the next token may be written over one that is still read"
            sides = (ctx.tile(read, wrong[1], past), ctx.tile(feedback.write, 0, past))
            links = ("both stand in one tile, in the other order",)
            if wrong != feedback.tile:
                links = chain(ctx.program, ctx.program.stages, past, wrong, feedback.tile, False)
            yield Finding("V6", what, past, sides, read.buffer.name, "[0:1, 0:1]", links)
            return


# ---- what is finished before the token ----------------------------------------------------


def finished_before(program: Program, past: int, end: Tile) -> set[Tile]:
    """The tiles that are finished once tile `end` is, at one position, itself among them."""
    signallers: dict[tuple[Event, int], list[Tile]] = {}
    before: dict[Tile, Tile] = {}
    waits: dict[Part, list[tuple[Event, np.ndarray, np.ndarray]]] = {}
    last: dict[int, Tile] = {}
    for stage in program.stages:
        number = stage.shift
        for part in stage.parts:
            count, env = coordinates(part.grid, past)
            waits[part] = [
                (w.event, numbers(w.first, count, env), numbers(w.count, count, env))
                for w in part.waits
            ]
            for s in part.signals:
                for i, g in enumerate(numbers(s.group, count, env).tolist()):
                    signallers.setdefault((s.event, g), []).append((part, i))
            workers = program.workers
            for i in range(count) if workers is not None else ():
                worker = (number + i) % (workers or 1)
                if worker in last:
                    before[part, i] = last[worker]
                last[worker] = (part, i)
            number += count
    groups: dict[Event, list[tuple[Event, int]]] = {}
    for key in signallers:
        groups.setdefault(key[0], []).append(key)
    done, left = {end}, [end]
    seen: set[tuple[Event, int]] = set()
    while left:
        tile = left.pop()
        part, i = tile
        keys = [key for event in part.stage.waits for key in groups.get(event, ())]
        for event, first, size in waits[part]:
            keys += [(event, g) for g in range(int(first[i]), int(first[i] + size[i]))]
        found = [t for key in keys if key not in seen for t in signallers.get(key, ())]
        seen.update(keys)
        if tile in before:
            found.append(before[tile])
        for t in found:
            if t not in done:
                done.add(t)
                left.append(t)
    return done


# ---- what an unfinished tile meets --------------------------------------------------------


def met_by_the_next(ctx: Context, feedback: Feedback, tile: Tile, past: int) -> Finding:
    """The finding of a tile that the token does not wait for: what the next step does to it."""
    part, i = tile
    links = chain(ctx.program, ctx.program.stages, past, tile, feedback.tile, False)
    write = ctx.tile(feedback.write, 0, past)
    after = f"the next step waits for {write.split(' in ')[1]} alone"
    for rule, what, ours, theirs in clashes(ctx, part):
        found = meeting(ours, i, theirs, past)
        if found is not None:
            j, where = found
            sides = (ctx.tile(ours, i, past), f"{ctx.tile(theirs, j, past + 1)}, of the next step")
            name = ours.buffer.name
            if ours.buffer is not theirs.buffer:
                name = f"{name} and {theirs.buffer.name}"
            return Finding(rule, what, past, sides, name, where, (*links, after))
    name = tile_name(part, i, past) or "its only tile"
    what = "a tile may still run, and count towards its events, in the next step"
    side = f"{describe(part)}, tile {name}"
    return Finding("V9", what, past, (side,), chain=(*links, after))


def clashes(ctx: Context, part: Part) -> Iterator[tuple[str, str, Access, Access]]:
    """Accesses of a part with those of any part that touch memory it touches, one a write."""
    own = [*part.accesses, *part.stage.prologue]
    rest = list(ctx.program.accesses())
    same = [(a, b) for a in own for b in rest if a.buffer is b.buffer]
    for a, b in same:
        if a.write and not b.write:
            yield "V4", "the next step may read before this one has written", a, b
    for a, b in same:
        if b.write:
            yield "V5", "the next step may write what this one still touches", a, b
    for a in own:
        for b in rest:
            if a.buffer is not b.buffer and (a.write or b.write) and share(a.buffer, b.buffer):
                yield "V6", "the next step may take bytes that this one still uses", a, b


def share(a: Buffer, b: Buffer) -> bool:
    if a.offset is None or b.offset is None:
        return False
    return a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes


def meeting(ours: Access, tile: int, theirs: Access, past: int) -> tuple[int, str] | None:
    """The first tile of `theirs` in the next step that meets a tile of `ours`, and where."""
    mine = boxes(ours, past)[0 if ours.prologue else tile][None]
    other = boxes(theirs, past + 1)
    if ours.buffer is theirs.buffer:
        for _, hits in meets(mine, other):
            return int(hits[0]), elements(common(mine[0], other[hits[0]]))
        return None
    a, b = ours.buffer, theirs.buffer
    assert a.offset is not None
    assert b.offset is not None
    (wanted,) = cells(mine, a.shape, a.offset, a.element_bytes)
    for j, taken in enumerate(cells(other, b.shape, b.offset, b.element_bytes)):
        if shared := wanted & taken:
            return j, f", arena byte {(shared & -shared).bit_length() - 1}"
    return None
