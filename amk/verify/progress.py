"""V9: no deadlock, and thresholds that equal the number of signals, in every launch.

Under a claimed schedule whatever a tile waits for stands before it in the program, so it was
claimed before it; under a static one the lists of the workers and the events together have no
cycle. Counters that are never reset also need a number of signals that no position changes.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from amk.ir.expr import Expr, Sym
from amk.verify.context import Context, describe
from amk.verify.findings import Finding
from amk.verify.model import Event, Part, Stage
from amk.verify.positions import Number, always, both, either, negate
from amk.verify.shapes import representatives
from amk.verify.tiles import Run, coordinates, evaluate, numbers, tile_name


def check_progress(ctx: Context) -> bool:
    """Adds what it finds; false when the program can get stuck, so that order means nothing."""
    before = len(ctx.report.findings)
    for event in ctx.program.events:
        ctx.report.count("V9", 1 + len(event.waiters))
        ctx.add(groups_in_range(ctx, event))
        ctx.add(counted(ctx, event))
        if event.monotonic:
            ctx.add(steady(ctx, event))
    if len(ctx.report.findings) > before:
        return False
    for stage in ctx.program.stages:
        if all(backwards(stage, event) for event in awaited(stage)):
            continue
        ctx.add(stuck(ctx))
        break
    return len(ctx.report.findings) == before


def awaited(stage: Stage) -> list[Event]:
    return [*stage.waits, *(w.event for part in stage.parts for w in part.waits)]


def backwards(stage: Stage, event: Event) -> bool:
    return all(part.stage.number < stage.number for part, _ in event.signallers)


def stuck(ctx: Context) -> Finding | None:
    """Runs the program at each shape and looks for a tile that can never begin."""
    stages = ctx.program.stages
    terms: list[Expr] = ctx.window(stages[0], stages[-1])
    for past in representatives(ctx.positions, terms):
        ctx.report.exhausted += 1
        found = Run(ctx.program, past, stages).run().stuck
        if found is not None:
            stage, part, tile = found
            names = ", ".join(f"%{e.name}" for e in awaited(stage))
            side = f"{describe(part)}, tile {tile_name(part, tile, past) or 'its only tile'}"
            return Finding(
                "V9", "a tile waits for what can only come later", past, (side,),
                chain=(f"it waits for {names}",),
            )  # fmt: skip
    return None


# ---- groups -------------------------------------------------------------------------------


def groups_in_range(ctx: Context, event: Event) -> Finding | None:
    """Signals and waits name groups that exist."""
    at = ctx.positions
    total = at.value(event.groups)
    bad = total < 1
    if np.any(bad):
        past = int(np.argmax(np.broadcast_to(bad, at.past.shape)))
        return Finding("V9", f"%{event.name} has no group", past)
    for part, signal in event.signallers:
        low, high = at.interval(signal.group, part.grid)
        good = both(low >= 0, high < total)
        found = first_outside(ctx, event, part, good, [signal.group], signal=True)
        if found is not None:
            return found
    for waiter in event.waiters:
        if not isinstance(waiter, Part):
            continue
        for wait in waiter.waits:
            if wait.event is not event:
                continue
            first = at.interval(wait.first, waiter.grid)
            end = at.interval(wait.first + wait.count, waiter.grid)
            good = both(first[0] >= 0, end[1] <= total)
            found = first_outside(ctx, event, waiter, good, [wait.first, wait.count], signal=False)
            if found is not None:
                return found
    return None


def first_outside(
    ctx: Context, event: Event, part: Part, good: object, exprs: list[Expr], signal: bool
) -> Finding | None:
    bad = both(negate(good), ctx.positions.tiles(part.grid) > 0)  # type: ignore[arg-type]
    for past in representatives(ctx.positions, [*exprs, *part.grid, event.groups], bad):
        count, env = coordinates(part.grid, past)
        first = numbers(exprs[0], count, env)
        size = np.ones(count, np.int64) if signal else numbers(exprs[1], count, env)
        limit = int(evaluate(event.groups, {"P": past}))
        out = (size > 0) & ((first < 0) | (first + size > limit))
        if out.any():
            tile = int(np.argmax(out))
            verb = "signals" if signal else "waits for"
            groups = f"[{first[tile]}, {first[tile] + size[tile]})"
            side = f"{describe(part)}, tile {tile_name(part, tile, past) or 'its only tile'}"
            what = f"a tile {verb} groups {groups} of {limit}"
            return Finding("V9", what, past, (side,), f"%{event.name}")
    return None


# ---- thresholds ---------------------------------------------------------------------------


def counted(ctx: Context, event: Event) -> Finding | None:
    """A threshold that is stated equals the number of tiles that signal the group."""
    if event.threshold is None:
        return None
    at = ctx.positions
    if "g" not in event.threshold.symbols():
        same = simple_counts(ctx, event)
        stated = at.value(event.threshold)
        if same is not None and always(stated == same):
            return None
    terms = [event.groups, event.threshold.substitute({"g": Sym("t0")})]
    for part, signal in event.signallers:
        terms += [signal.group, *part.grid]
    for past in representatives(at, terms):
        ctx.report.exhausted += 1
        signals = signal_counts(event, past)
        for g in range(int(evaluate(event.groups, {"P": past}))):
            want = int(evaluate(event.threshold, {"P": past, "g": g}))
            if want != signals[g]:
                what = f"group {g} waits for {want} signals of {signals[g]}"
                sides = tuple(describe(part) for part, _ in event.signallers)
                return Finding("V9", what, past, sides, f"%{event.name}")
    return None


def simple_counts(ctx: Context, event: Event) -> Number | None:
    """The number of signals of every group alike, where that is plain to see: one part, whose
    group is one of its coordinates, or one group in all."""
    at = ctx.positions
    if always(at.value(event.groups) == 1):
        return sum((at.tiles(p.grid) for p, _ in event.signallers), 0)
    if len(event.signallers) != 1:
        return None
    part, signal = event.signallers[0]
    names = [f"t{i}" for i in range(len(part.grid))]
    if str(signal.group) not in names:
        return None
    own = names.index(str(signal.group))
    if not always(at.value(part.grid[own]) == at.value(event.groups)):
        return None
    return at.tiles([e for i, e in enumerate(part.grid) if i != own])


def signal_counts(event: Event, past: int) -> Counter[int]:
    found: Counter[int] = Counter()
    for part, signal in event.signallers:
        count, env = coordinates(part.grid, past)
        found.update(numbers(signal.group, count, env).tolist())
    return found


def steady(ctx: Context, event: Event) -> Finding | None:
    """Launch n waits for n times the threshold: right only when no position changes it."""
    at = ctx.positions
    exprs: list[Expr] = [event.groups]
    for part, signal in event.signallers:
        exprs += [signal.group, *part.grid]
    if not any("P" in e.symbols() for e in exprs):
        return None
    same, total = simple_counts(ctx, event), at.value(event.groups)
    if same is not None:
        changed = either(same != first(same), total != first(total))
        if not np.any(changed):
            return None
        past = int(np.argmax(np.broadcast_to(changed, at.past.shape)))
        return unsteady(event, past)
    begin = signal_counts(event, 0)
    for past in representatives(at, exprs):
        ctx.report.exhausted += 1
        if signal_counts(event, past) != begin:
            return unsteady(event, past)
    return None


def first(n: Number) -> int:
    return int(n[0]) if isinstance(n, np.ndarray) else n


def unsteady(event: Event, past: int) -> Finding:
    what = "a counter that is never reset gets another number of signals than at P = 0"
    sides = tuple(describe(part) for part, _ in event.signallers)
    return Finding("V9", what, past, sides, f"%{event.name}")
