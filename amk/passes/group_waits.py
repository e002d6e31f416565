"""Waits for groups of tiles in place of whole stages, where a tile needs only some of another's.

What a tile needs is read off the boxes both sides touch: where part X writes [c · t0 + b, + s) of
an axis and a tile of part Y reads [lo, hi) of it, the tile needs the tiles of X from
(lo − b − s) floordiv c + 1 to (hi − 1 − b) floordiv c of t0; tiles of one t0 are a
group. A stage whose prologue needs the other stage waits for all of it as before. What whole stages
implied is looked at again, and waits are added where nothing orders two accesses any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from amk.ir import mk
from amk.ir.expr import Const, Expr, Sym, maximum, minimum
from amk.passes.minimize_waits import set_operands
from amk.verify.arena import share, turns
from amk.verify.context import Context
from amk.verify.families import affine
from amk.verify.model import Access, Part, Stage, read_program
from amk.verify.ordering import by_groups, read_after_write, reads_of_writes
from amk.verify.positions import always

Span = tuple[Expr, Expr]
"""(first, count) of the tiles of a part."""
ALL = "all"


@dataclass
class Plan:
    """How stage `late` waits for stage `early`: a span, or ALL, for each pair of parts that needs
    one."""

    early: Stage
    late: Stage
    spans: dict[tuple[int, int], Span | str]

    @property
    def pays(self) -> bool:
        """Does any tile wait for less than everything?"""
        pairs = len(self.early.parts) * len(self.late.parts)
        return len(self.spans) < pairs or any(s != ALL for s in self.spans.values())


def group_waits(program: mk.ProgramOp) -> int:
    """Rewrites the waits of a scheduled program; returns how many part waits it made."""
    ctx = Context.of(read_program(program))
    plans: dict[tuple[int, int], Plan] = {}
    for stage in ctx.program.stages:
        for event in stage.waits:
            signallers = {part.stage for part, _ in event.signallers}
            if len(signallers) == 1:
                plan = plan_of(ctx, signallers.pop(), stage)
                if plan is not None and plan.pays:
                    plans[plan.early.number, stage.number] = plan
    if not plans:
        return 0
    made = Rewriter(ctx, program, plans).run()
    for _ in range(len(ctx.program.stages)):
        if not add_missing(program):
            break
    return made


# ---- what a tile needs --------------------------------------------------------------------


def plan_of(ctx: Context, early: Stage, late: Stage) -> Plan | None:
    """None when the prologue of `late` needs `early`."""
    ours = [a for part in early.parts for a in part.accesses] + early.prologue
    if any(conflict(ctx, a, b) for a in ours for b in late.prologue):
        return None
    spans: dict[tuple[int, int], Span | str] = {}
    for x in early.parts:
        for y in late.parts:
            found = span_of(ctx, early, x, y)
            if found is not None:
                spans[x.index, y.index] = found
    # A tile that waits for nothing of a stage would let go of what stood before that stage.
    return Plan(early, late, spans) if spans else None


def conflict(ctx: Context, a: Access, b: Access) -> bool:
    if not (a.write or b.write):
        return False
    if a.buffer is b.buffer:
        return not always(ctx.families.of(a).apart(ctx.families.of(b)))
    placed = a.buffer.offset is not None and b.buffer.offset is not None
    return placed and share(a.buffer, b.buffer)


def span_of(ctx: Context, early: Stage, x: Part, y: Part) -> Span | str | None:
    """The tiles of `x` that a tile of `y` needs; None when it needs none."""
    if any(conflict(ctx, a, b) for a in early.prologue for b in y.accesses):
        return ALL
    pairs = [(a, b) for a in x.accesses for b in y.accesses if conflict(ctx, a, b)]
    if not pairs:
        return None
    spans = {span_of_boxes(ctx, a, b) if a.buffer is b.buffer else ALL for a, b in pairs}
    return next(iter(spans)) if len(spans) == 1 else ALL


def span_of_boxes(ctx: Context, write: Access, read: Access) -> Span | str:
    count = groups_of(write.part).value
    if not write.write or count < 2:
        return ALL
    for (low, high), (first, end) in zip(write.box, read.box, strict=True):
        factors, size = affine(low), (high - low).constant
        start = (low - Sym("t0") * (factors or {}).get("t0", 0)).constant
        if factors is None or start is None or size is None:
            continue
        step = factors.get("t0", 0)
        if step < size or any("P" in e.symbols() for e in (first, end)):
            continue
        least = (first - (start + size)) // step + 1
        most = (end - (1 + start)) // step
        at = ctx.positions
        if not always(at.interval(least, read.part.grid)[0] >= 0):
            least = maximum(least, 0)
        if not always(at.interval(most, read.part.grid)[1] < count):
            most = minimum(most, count - 1)
        span = (least, most - least + 1)
        return ALL if span == (Const(0), Const(count)) else span
    return ALL


# ---- the rewrite --------------------------------------------------------------------------


class Rewriter:
    """Gives each part of a stage that some plan waits for an event of its own."""

    def __init__(self, ctx: Context, program: mk.ProgramOp, plans: dict[tuple[int, int], Plan]):
        self.ctx = ctx
        self.program = program
        self.plans = plans
        self.events: dict[Part, SSAValue] = {}

    def run(self) -> int:
        old = {
            early: [e for e in self.ctx.program.events if early in stages_of(e)]
            for early in {plan.early for plan in self.plans.values()}
        }
        for early in sorted(old, key=lambda s: s.number):
            set_operands(early.op, list(early.op.waits), [])
            for part in early.parts:
                self.events[part] = signal_part(self.program, part, early.number)
        made = 0
        replaced: dict[SSAValue, Stage] = {}
        for early, events in old.items():
            replaced.update((e.op.result, early) for e in events)
        for stage in self.ctx.program.stages:
            waits: list[SSAValue] = []
            for value in stage.op.waits:
                early = replaced.get(value)
                if early is None:
                    waits.append(value)
                elif (early.number, stage.number) in self.plans:
                    made += self.wait(self.plans[early.number, stage.number])
                else:
                    waits += [self.events[part] for part in early.parts]
            set_operands(stage.op, waits, list(stage.op.signals))
        for value in replaced:
            event = value.owner
            assert isinstance(event, mk.EventOp)
            event.detach()
            event.erase()
        return made

    def wait(self, plan: Plan) -> int:
        for (x, y), span in plan.spans.items():
            part = plan.early.parts[x]
            first, count = (Const(0), groups_of(part)) if isinstance(span, str) else span
            body = plan.late.parts[y].op.body.block
            wait = mk.WaitOp(self.events[part], first, count)
            begin = body.first_op
            assert begin is not None
            body.insert_op_before(wait, begin)
        return len(plan.spans)


def stages_of(event) -> set[Stage]:  # type: ignore[no-untyped-def]
    return {part.stage for part, _ in event.signallers}


def groups_of(part: Part) -> Const:
    """A group for each t0 where the number of tiles is fixed, else one for all."""
    fixed = all(e.constant is not None for e in part.grid)
    return Const((part.grid[0].constant or 1) if fixed else 1)


def signal_part(program: mk.ProgramOp, part: Part, number: int) -> SSAValue:
    """A new event that the tiles of `part` signal."""
    groups = groups_of(part)
    event = mk.EventOp(None if groups.value == 1 else groups)
    event.result.name_hint = f"done{number}_{part.index}"
    program.body.block.insert_op_before(event, program.stages()[0])
    group = Const(0) if groups.value == 1 else Sym("t0")
    part.op.body.block.add_op(mk.SignalOp(event.result, group))
    return event.result


# ---- what whole stages implied ------------------------------------------------------------


def add_missing(program: mk.ProgramOp) -> int:
    """Adds a wait for each pair of accesses that nothing orders any more, up to the first stage
    that got one (whose waits may order what follows); returns how many it added."""
    ctx = Context.of(read_program(program))
    wanted: dict[Stage, set[Part]] = {}

    def want(early: Part, late: Part) -> None:
        wanted.setdefault(late.stage, set()).add(early)

    for write, read in reads_of_writes(ctx):
        apart = always(ctx.families.of(write).apart(ctx.families.of(read)))
        if apart or ctx.closure.ordered(write, read) or by_groups(ctx, write, read):
            continue
        # A stage cannot wait for itself: its tiles read what they wrote, or nothing of it.
        if write.part.stage is read.part.stage and read_after_write(ctx, write, read) is None:
            continue
        want(write.part, read.part)
    for owner, buffer, over in turns(ctx):
        if over:
            continue
        pairs = [
            (a, b)
            for a in (*ctx.writes.get(owner, ()), *ctx.reads.get(owner, ()))
            for b in (*ctx.writes.get(buffer, ()), *ctx.reads.get(buffer, ()))
            if (a.write or b.write) and not ctx.closure.ordered(a, b)
        ]
        for a, b in pairs:
            for part in a.part.stage.parts if a.prologue else [a.part]:
                want(part, b.part)
    if not wanted:
        return 0
    stage = min(wanted, key=lambda s: s.number)
    events = [event_of(program, part) for part in sorted(wanted[stage], key=lambda p: p.number)]
    waits = list(dict.fromkeys([*stage.op.waits, *events]))
    set_operands(stage.op, waits, list(stage.op.signals))
    return len(waits)


def event_of(program: mk.ProgramOp, part: Part) -> SSAValue:
    """An event whose completion means that every tile of `part` is done."""
    if part.signals:
        return part.signals[0].event.op.result
    return signal_part(program, part, part.stage.number)
