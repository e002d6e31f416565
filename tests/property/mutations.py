"""Ways to break a right `mk` program, each with the rules that should catch it.

An operator takes a fresh copy of a program and a random generator, breaks one place, and returns
True, or False when the program has no such place. `OPERATORS` maps its name to it and to the rules
of which at least one must be reported.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

from xdsl.dialects.builtin import DictionaryAttr, StringAttr
from xdsl.ir import Operation, SSAValue

from amk.ir import mk
from amk.ir.expr import Const, Expr, ExprsAttr, P, Sym, exprs, maximum, minimum
from amk.ir.lm import integer, shape_of
from amk.passes.minimize_waits import set_operands
from amk.verify.bounds import INDEX_BITS
from amk.verify.resources import NAMES, RESOURCES

Operator = Callable[[mk.ProgramOp, random.Random], bool]
OPERATORS: dict[str, tuple[Operator, set[str]]] = {}
T0 = Sym("t0")


def operator(*rules: str) -> Callable[[Operator], Operator]:
    def enter(function: Operator) -> Operator:
        OPERATORS[function.__name__] = (function, set(rules))
        return function

    return enter


# ---- places -------------------------------------------------------------------------------


def ops(program: mk.ProgramOp, kind: type[Operation]) -> list:
    return [op for op in program.walk() if isinstance(op, kind)]


def stores(program: mk.ProgramOp, *kinds: str) -> list[mk.StoreOp]:
    return [s for s in ops(program, mk.StoreOp) if mk.buffer_of(s.buffer).kind.data in kinds]


def appends(program: mk.ProgramOp) -> list[mk.StoreOp]:
    return stores(program, "cache")


def parts(program: mk.ProgramOp) -> list[mk.PartOp]:
    return [part for stage in program.stages() for part in stage.part_ops()]


def pick(rng: random.Random, items: Sequence):  # type: ignore[no-untyped-def, type-arg]
    return rng.choice(list(items)) if items else None


def set_at(attr: ExprsAttr, axis: int, e: Expr) -> ExprsAttr:
    data = list(attr.data)
    data[axis] = e
    return exprs(*data)


def move(op, axis: int, e: Expr) -> bool:  # type: ignore[no-untyped-def]
    op.properties["offsets"] = set_at(op.offsets, axis, e)
    return True


def moving_axis(op) -> int | None:  # type: ignore[no-untyped-def]
    """An axis whose offset moves with the tile."""
    return next((i for i, e in enumerate(op.offsets) if "t0" in e.symbols()), None)


def read_later(program: mk.ProgramOp, buffer: mk.BufferOp) -> bool:
    return any(not isinstance(u.operation, mk.StoreOp) for u in buffer.result.uses)


def waiting(program: mk.ProgramOp) -> list[mk.StageOp]:
    return [s for s in program.stages() if len(s.waits)]


def erase(op: Operation) -> bool:
    op.detach()
    op.erase()
    return True


def wide(program: mk.ProgramOp) -> list[mk.PartOp]:
    """Parts whose tiles are a row of two or more."""
    return [p for p in parts(program) if len(p.grid) == 1 and (p.grid.data[0].constant or 0) > 1]


def written(program: mk.ProgramOp, kinds: Sequence[str] = ("activation", "output", "cache")):
    return [
        p
        for p in wide(program)
        if any(
            isinstance(op, mk.StoreOp)
            and mk.buffer_of(op.buffer).kind.data in kinds
            and moving_axis(op) is not None
            for op in p.body.block.ops
        )
    ]


def attention_parts(program: mk.ProgramOp) -> list[mk.PartOp]:
    found = [op.parent_op() for op in ops(program, mk.AttentionOp)]
    return [p for p in found if isinstance(p, mk.PartOp)]


# ---- order --------------------------------------------------------------------------------


@operator("V4", "V6")
def drop_wait(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (stage := pick(rng, waiting(program))):
        return False
    kept = list(stage.waits)
    kept.pop(rng.randrange(len(kept)))
    set_operands(stage, kept, list(stage.signals))
    return True


@operator("V4", "V6")
def drop_every_wait_of_a_stage(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (stage := pick(rng, waiting(program))):
        return False
    set_operands(stage, [], list(stage.signals))
    return True


@operator("V4", "V6")
def move_wait_to_the_next_stage(program: mk.ProgramOp, rng: random.Random) -> bool:
    stages = program.stages()
    if not (stage := pick(rng, [s for s in waiting(program) if s is not stages[-1]])):
        return False
    after = stages[stages.index(stage) + 1]
    first, *rest = stage.waits
    set_operands(stage, rest, list(stage.signals))
    set_operands(after, [*after.waits, first], list(after.signals))
    return True


@operator("V4", "V6")
def drop_signal(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (stage := pick(rng, [s for s in program.stages() if len(s.signals)])):
        return False
    set_operands(stage, list(stage.waits), [])
    return True


@operator("V4", "V6")
def wait_for_an_earlier_event_instead(program: mk.ProgramOp, rng: random.Random) -> bool:
    signalled: list[SSAValue] = []
    places = []
    for stage in program.stages():
        others = [e for e in signalled if e not in stage.waits]
        if len(stage.waits) and others:
            places.append((stage, others))
        signalled += stage.signals
    if not places:
        return False
    stage, others = pick(rng, places)
    set_operands(stage, [rng.choice(others), *list(stage.waits)[1:]], list(stage.signals))
    return True


@operator("V9")
def wait_for_its_own_event(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (stage := pick(rng, [s for s in program.stages() if len(s.signals)])):
        return False
    set_operands(stage, [*stage.waits, stage.signals[0]], list(stage.signals))
    return True


@operator("V9")
def wait_for_a_later_event(program: mk.ProgramOp, rng: random.Random) -> bool:
    later = [s for s in program.stages()[1:] if len(s.signals)]
    if not (stage := pick(rng, later)):
        return False
    first = program.stages()[0]
    set_operands(first, [*first.waits, stage.signals[0]], list(first.signals))
    return True


@operator("V9", "V4", "V6", "V3")
def swap_two_stages(program: mk.ProgramOp, rng: random.Random) -> bool:
    stages = program.stages()
    pairs = [(a, b) for a, b in pairwise(stages) if set(b.waits) & signals_of(a)]
    if not pairs:
        return False
    a, b = rng.choice(pairs)
    a.detach()
    program.body.block.insert_op_after(a, b)
    return True


def signals_of(stage: mk.StageOp) -> set[SSAValue]:
    return {*stage.signals, *(op.event for p in stage.part_ops() for op in p.signals())}


def threshold(program: mk.ProgramOp, rng: random.Random, change: Expr | int) -> bool:
    stage = pick(rng, [s for s in program.stages() if len(s.signals)])
    if stage is None:
        return False
    total: Expr = Const(0)
    for part in stage.part_ops():
        fixed = [e.constant for e in part.grid]
        tiles: Expr = Const(1)
        for e, n in zip(part.grid, fixed, strict=True):
            tiles = tiles * n if n is not None else e * (tiles.constant or 1)
        total = total + tiles
    event = stage.signals[0].owner
    assert isinstance(event, mk.EventOp)
    event.properties["threshold"] = exprs(total + change)
    return True


@operator("V9")
def threshold_too_high(program: mk.ProgramOp, rng: random.Random) -> bool:
    return threshold(program, rng, 1)


@operator("V9")
def threshold_too_low(program: mk.ProgramOp, rng: random.Random) -> bool:
    return threshold(program, rng, -1)


@operator("V9")
def threshold_wrong_from_a_position_on(program: mk.ProgramOp, rng: random.Random) -> bool:
    return threshold(program, rng, P // 31)


@operator("V9")
def counter_that_is_never_reset(program: mk.ProgramOp, rng: random.Random) -> bool:
    """Of a stage whose number of tiles grows with the position."""
    for part in attention_parts(program):
        stage = part.parent_op()
        grows = any(e.constant is None for e in part.grid)
        if isinstance(stage, mk.StageOp) and len(stage.signals) and grows:
            event = stage.signals[0].owner
            assert isinstance(event, mk.EventOp)
            event.properties["counter"] = StringAttr("monotonic")
            return True
    return False


@operator("V4", "V6")
def drop_group_wait(program: mk.ProgramOp, rng: random.Random) -> bool:
    wait = pick(rng, ops(program, mk.WaitOp))
    return wait is not None and erase(wait)


@operator("V4", "V6", "V9")
def wait_for_the_next_group(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (wait := pick(rng, ops(program, mk.WaitOp))):
        return False
    first, count = wait.groups
    wait.properties["groups"] = exprs(first + 1, count)
    return True


@operator("V4", "V6")
def wait_for_a_group_less(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (wait := pick(rng, ops(program, mk.WaitOp))):
        return False
    first, count = wait.groups
    wait.properties["groups"] = exprs(first, count - 1)
    return True


def grouped(program: mk.ProgramOp) -> list[mk.SignalOp]:
    return [s for s in ops(program, mk.SignalOp) if s.group.data[0].constant is None]


@operator("V4", "V6")
def signal_one_group_only(program: mk.ProgramOp, rng: random.Random) -> bool:
    """The right number of tiles, the wrong map: waiters of the other groups wait for nobody."""
    signal = pick(rng, [s for s in grouped(program) if waited_by_part(s.event)])
    if not signal:
        return False
    signal.properties["group"] = exprs(0)
    return True


def waited_by_part(event: SSAValue) -> bool:
    return any(
        isinstance(u.operation, mk.WaitOp) and "t0" in u.operation.groups.data[0].symbols()
        for u in event.uses
    )


@operator("V9")
def signal_past_the_groups(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (signal := pick(rng, grouped(program))):
        return False
    signal.properties["group"] = exprs(signal.group.data[0] + 1)
    return True


@operator("V9")
def wait_past_the_groups(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (wait := pick(rng, ops(program, mk.WaitOp))):
        return False
    event = wait.event.owner
    assert isinstance(event, mk.EventOp)
    wait.properties["groups"] = exprs(0, event.group_count + 1)
    return True


@operator("V9")
def too_few_groups(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (signal := pick(rng, grouped(program))):
        return False
    event = signal.event.owner
    assert isinstance(event, mk.EventOp)
    event.properties["groups"] = exprs(event.group_count - 1)
    return True


# ---- tiles --------------------------------------------------------------------------------


def resize(part: mk.PartOp, axis: int, e: Expr) -> bool:
    part.properties["grid"] = set_at(part.grid, axis, e)
    return True


@operator("V1", "V3", "V8")
def missing_tile(program: mk.ProgramOp, rng: random.Random) -> bool:
    part = pick(rng, written(program))
    return part is not None and resize(part, 0, part.grid.data[0] - 1)


@operator("V2", "V1")
def tile_past_the_end(program: mk.ProgramOp, rng: random.Random) -> bool:
    part = pick(rng, written(program))
    return part is not None and resize(part, 0, part.grid.data[0] + 1)


@operator("V1", "V3", "V8")
def no_tiles_at_first_positions(program: mk.ProgramOp, rng: random.Random) -> bool:
    part = pick(rng, written(program))
    return part is not None and resize(part, 0, minimum(part.grid.data[0], P))


@operator("V1", "V3", "V8")
def a_tile_less_from_a_position_on(program: mk.ProgramOp, rng: random.Random) -> bool:
    part = pick(rng, written(program))
    if part is None:
        return False
    n = part.grid.data[0].constant or 0
    return resize(part, 0, maximum(Const(n) - P // 23, n - 1))


def tiled_stores(program: mk.ProgramOp) -> list[tuple[mk.StoreOp, int]]:
    found = []
    for part in wide(program):
        for op in part.body.block.ops:
            if isinstance(op, mk.StoreOp) and (axis := moving_axis(op)) is not None:
                found.append((op, axis))
    return found


@operator("V1", "V2", "V3", "V8")
def tiles_shifted_by_one(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (place := pick(rng, tiled_stores(program))):
        return False
    store, axis = place
    return move(store, axis, store.offsets.data[axis].substitute({"t0": T0 + 1}))


@operator("V1")
def tiles_overlap(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (place := pick(rng, tiled_stores(program))):
        return False
    store, axis = place
    return move(store, axis, store.offsets.data[axis].substitute({"t0": T0 // 2}))


@operator("V1")
def every_tile_writes_the_first(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (place := pick(rng, tiled_stores(program))):
        return False
    store, axis = place
    return move(store, axis, store.offsets.data[axis].substitute({"t0": Const(0)}))


@operator("V1")
def store_twice(program: mk.ProgramOp, rng: random.Random) -> bool:
    store = pick(rng, stores(program, "activation", "output", "cache"))
    if store is None:
        return False
    block = store.parent
    assert block is not None
    block.insert_op_after(store.clone(), store)
    return True


@operator("V2")
def load_the_next_tile(program: mk.ProgramOp, rng: random.Random) -> bool:
    loads = [
        op
        for part in wide(program)
        for op in part.body.block.ops
        if isinstance(op, mk.LoadOp) and moving_axis(op) is not None
    ]
    if not (load := pick(rng, loads)):
        return False
    axis = moving_axis(load)
    assert axis is not None
    return move(load, axis, load.offsets.data[axis].substitute({"t0": T0 + 1}))


def ends_with_its_weight(matmul: mk.MatmulOp) -> bool:
    """Does the last tile read the last rows? (Another part may read what is left over.)"""
    part, first = matmul.parent_op(), matmul.offsets.data[0]
    if not isinstance(part, mk.PartOp) or "t0" not in first.symbols():
        return False
    last = {f"t{i}": (e.constant or 1) - 1 for i, e in enumerate(part.grid)}
    rows = shape_of(matmul.result)[1]
    return (
        first.evaluate({"P": 0, **last}) + 2 * rows
        > mk.buffer_of(matmul.weight).type.get_shape()[0]
    )


@operator("V2")
def weight_rows_past_the_end(program: mk.ProgramOp, rng: random.Random) -> bool:
    matmuls = [m for m in ops(program, mk.MatmulOp) if ends_with_its_weight(m)]
    if not (matmul := pick(rng, matmuls)):
        return False
    return move(matmul, 0, matmul.offsets.data[0] + shape_of(matmul.result)[1])


@operator("V2")
def wrong_depth(program: mk.ProgramOp, rng: random.Random) -> bool:
    """A contraction that starts in the middle of its rows. (One of no rows reads nothing.)"""
    matmul = pick(rng, [m for m in ops(program, mk.MatmulOp) if shape_of(m.result)[1]])
    return matmul is not None and move(matmul, 1, Const(1))


@operator("V2")
def table_column_past_the_end(program: mk.ProgramOp, rng: random.Random) -> bool:
    """By a whole row, since a gather may take a part of one."""
    if (gather := pick(rng, ops(program, mk.GatherOp))) is None:
        return False
    width = mk.buffer_of(gather.table).type.get_shape()[1]
    return move(gather, 0, gather.offsets.data[0] + width)


# ---- positions and chunks -----------------------------------------------------------------


@operator("V2")
def table_row_off_by_one(program: mk.ProgramOp, rng: random.Random) -> bool:
    """Right everywhere but at the last position."""
    loads = [
        op
        for op in ops(program, mk.LoadOp)
        if op.offsets.data[0] == P and mk.buffer_of(op.buffer).kind.data == "weight"
    ]
    load = pick(rng, loads)
    return load is not None and move(load, 0, P + 1)


@operator("V3")
def chunk_missing(program: mk.ProgramOp, rng: random.Random) -> bool:
    part = pick(rng, attention_parts(program))
    return part is not None and resize(part, 1, part.grid.data[1] - 1)


@operator("V3")
def chunk_missing_from_a_position_on(program: mk.ProgramOp, rng: random.Random) -> bool:
    places = [p for p in attention_parts(program) if p.grid.data[1].constant is None]
    part = pick(rng, [p for p in places if most(p.grid.data[1], program) > 1])
    return part is not None and resize(part, 1, minimum(part.grid.data[1], 1))


def most(e: Expr, program: mk.ProgramOp) -> int:
    last = program.max_seq.value.data - program.tokens.value.data
    return max(e.evaluate({"P": p}) for p in range(last + 1))


@operator("V2", "V1")
def chunk_too_many(program: mk.ProgramOp, rng: random.Random) -> bool:
    """Past the end, or, where the tile that appends attends to the last chunk, that one again."""
    part = pick(rng, attention_parts(program))
    return part is not None and resize(part, 1, part.grid.data[1] + 1)


@operator("V3", "V2")
def join_a_chunk_too_many(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (combine := pick(rng, ops(program, mk.CombineOp))):
        return False
    first, end = combine.range
    combine.properties["range"] = exprs(first, end + 1)
    return True


@operator("V3", "V2")
def join_a_chunk_that_left_the_window(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (combine := pick(rng, ops(program, mk.CombineOp))):
        return False
    first, end = combine.range
    combine.properties["range"] = exprs(first - 1, end)
    return True


@operator("V3")
def window_ignored_by_the_join(program: mk.ProgramOp, rng: random.Random) -> bool:
    windowed = [c for c in ops(program, mk.CombineOp) if c.range.data[0].constant is None]
    if not (combine := pick(rng, windowed)):
        return False
    combine.properties["range"] = exprs(0, combine.range.data[1])
    return True


@operator("V1", "V3", "V2")
def chunks_start_one_late(program: mk.ProgramOp, rng: random.Random) -> bool:
    part = pick(rng, attention_parts(program))
    if part is None:
        return False
    for op in part.body.block.ops:
        if isinstance(op, mk.StoreOp):
            move(op, 0, op.offsets.data[0] + 1)
    return True


# ---- caches -------------------------------------------------------------------------------


def row_axis(store: mk.StoreOp) -> int:
    return mk.buffer_of(store.buffer).type.get_shape().index(-1)


@operator("V1", "V2")
def append_a_row_late(program: mk.ProgramOp, rng: random.Random) -> bool:
    store = pick(rng, appends(program))
    return store is not None and move(store, row_axis(store), P + 1)


@operator("V1", "V2")
def append_a_row_early(program: mk.ProgramOp, rng: random.Random) -> bool:
    store = pick(rng, appends(program))
    return store is not None and move(store, row_axis(store), P - 1)


@operator("V1", "V2")
def append_at_the_first_row(program: mk.ProgramOp, rng: random.Random) -> bool:
    store = pick(rng, appends(program))
    return store is not None and move(store, row_axis(store), Const(0))


@operator("V1", "V2")
def append_at_the_wrong_row_later(program: mk.ProgramOp, rng: random.Random) -> bool:
    store = pick(rng, appends(program))
    return store is not None and move(store, row_axis(store), minimum(P, 41))


@operator("V1")
def append_missing(program: mk.ProgramOp, rng: random.Random) -> bool:
    store = pick(rng, appends(program))
    return store is not None and erase(store)


@operator("V1", "V2")
def append_to_the_wrong_heads(program: mk.ProgramOp, rng: random.Random) -> bool:
    store = pick(rng, appends(program))
    if store is None:
        return False
    axis = next(i for i in range(4) if i != row_axis(store) and i > 0)
    return move(store, axis, store.offsets.data[axis] + 1)


@operator("V2")
def read_a_row_of_the_spare_tail(program: mk.ProgramOp, rng: random.Random) -> bool:
    caches = [b for b in program.buffers() if b.kind.data == "cache" and not b.ring_rows]
    if not (cache := pick(rng, caches)):
        return False
    at = [P + program.tokens.value.data if d == -1 else Const(0) for d in cache.type.get_shape()]
    load = mk.LoadOp(cache.result, at, [1] * len(at))
    first = rng.choice(parts(program)).body.block
    place = next(op for op in first.ops if not isinstance(op, mk.WaitOp))
    first.insert_op_before(load, place)
    return True


def rings(program: mk.ProgramOp) -> list[mk.BufferOp]:
    return [b for b in program.buffers() if b.ring_rows]


@operator("V3")
def ring_too_small(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (ring := pick(rng, rings(program))):
        return False
    ring.properties["rows"] = integer(program.tokens.value.data + 1)
    return True


@operator("V3")
def read_a_ring_without_its_window(program: mk.ProgramOp, rng: random.Random) -> bool:
    readers = [a for a in ops(program, mk.AttentionOp) if mk.buffer_of(a.keys).ring_rows]
    if not (attention := pick(rng, readers)):
        return False
    del attention.properties["window"]
    part = attention.parent_op()
    assert isinstance(part, mk.PartOp)
    attention.properties["at"] = exprs(attention.at.data[0], Sym("t1"))
    return resize(part, 1, P // attention.chunk.value.data + 1)


# ---- memory -------------------------------------------------------------------------------


def placed(program: mk.ProgramOp) -> list[mk.BufferOp]:
    return [b for b in program.buffers() if b.offset is not None and read_later(program, b)]


@operator("V6", "V2")
def place_over_a_live_buffer(program: mk.ProgramOp, rng: random.Random) -> bool:
    """Onto the place of a buffer that the same stage reads."""
    pairs = []
    for stage in program.stages():
        touched = {
            mk.buffer_of(v)
            for op in stage.walk()
            for v in op.operands
            if isinstance(v.type, mk.BufferType)
        }
        mine = [b for b in placed(program) if b in touched]
        pairs += [(a, b) for a in mine for b in mine if a is not b]
    if not pairs:
        return False
    a, b = rng.choice(pairs)
    assert b.offset is not None
    a.properties["offset"] = b.offset
    return True


@operator("V2")
def arena_too_small(program: mk.ProgramOp, rng: random.Random) -> bool:
    ends = [b.offset.value.data + b.type.nbytes() for b in program.buffers() if b.offset]
    if not ends:
        return False
    program.properties["arena"] = integer(max(ends) - 4)
    return True


@operator("V2")
def place_off_its_alignment(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (buffer := pick(rng, placed(program))):
        return False
    assert buffer.offset is not None
    buffer.properties["offset"] = integer(buffer.offset.value.data + 2)
    return True


def become(program: mk.ProgramOp, rng: random.Random, kind: str) -> bool:
    store = pick(rng, stores(program, "activation", "output"))
    if store is None:
        return False
    buffer = mk.buffer_of(store.buffer)
    buffer.properties["kind"] = StringAttr(kind)
    buffer.properties.pop("offset", None)
    return True


@operator("V7")
def write_to_a_weight(program: mk.ProgramOp, rng: random.Random) -> bool:
    return become(program, rng, "weight")


@operator("V7")
def write_to_a_constant(program: mk.ProgramOp, rng: random.Random) -> bool:
    return become(program, rng, "constant")


@operator("V7")
def write_to_an_input(program: mk.ProgramOp, rng: random.Random) -> bool:
    return become(program, rng, "input")


@operator("V3")
def value_never_stored(program: mk.ProgramOp, rng: random.Random) -> bool:
    found = [
        s for s in stores(program, "activation") if read_later(program, mk.buffer_of(s.buffer))
    ]
    store = pick(rng, found)
    return store is not None and erase(store)


@operator("V8")
def output_never_stored(program: mk.ProgramOp, rng: random.Random) -> bool:
    store = pick(rng, stores(program, "output"))
    return store is not None and erase(store)


@operator("V8", "V3")
def output_a_tile_short(program: mk.ProgramOp, rng: random.Random) -> bool:
    part = pick(rng, written(program, ("output",)))
    return part is not None and resize(part, 0, part.grid.data[0] - 1)


@operator("V3", "V4", "V9")
def read_what_comes_later(program: mk.ProgramOp, rng: random.Random) -> bool:
    """A load of the last activation in the first stage."""
    last = [s for s in stores(program, "activation") if mk.buffer_of(s.buffer)][-1]
    shape = mk.buffer_of(last.buffer).type.get_shape()
    load = mk.LoadOp(last.buffer, [0] * len(shape), shape)
    block = program.stages()[0].prologue.block
    first = block.first_op
    assert first is not None
    block.insert_op_before(load, first)
    return True


# ---- resources ----------------------------------------------------------------------------


@operator("V10")
def more_blocks_than_fit(program: mk.ProgramOp, rng: random.Random) -> bool:
    if program.static_workers is None:
        return False
    numbers = dict(zip(NAMES, (256, 64, 40_000, 1, 2048, 65_536, 233_472, 32), strict=True))
    numbers["max_shared_bytes"] = 40_000 * (program.static_workers - 1) + 1
    program.attributes[RESOURCES] = DictionaryAttr({k: integer(n) for k, n in numbers.items()})
    return True


@operator("V13")
def index_type_too_narrow(program: mk.ProgramOp, rng: random.Random) -> bool:
    program.attributes[INDEX_BITS] = integer(10)
    return True


@operator("V11")
def chunks_of_two_sizes(program: mk.ProgramOp, rng: random.Random) -> bool:
    attention = pick(rng, ops(program, mk.AttentionOp))
    if attention is None:
        return False
    again = attention.clone()
    block = attention.parent
    assert block is not None
    block.insert_op_after(again, attention)
    again.properties["chunk"] = integer(attention.chunk.value.data * 2)
    return True


def streams(program: mk.ProgramOp) -> list[mk.StreamOp]:
    return ops(program, mk.StreamOp)


@operator("V12")
def fill_further_than_the_ring(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (stream := pick(rng, streams(program))):
        return False
    stream.properties["ahead"] = integer(stream.slots.value.data + 1)
    return True


@operator("V12")
def slot_smaller_than_a_row(program: mk.ProgramOp, rng: random.Random) -> bool:
    if not (stream := pick(rng, streams(program))):
        return False
    stream.properties["slot_bytes"] = integer(16)
    return True


@operator("V12")
def stream_what_is_not_read_only(program: mk.ProgramOp, rng: random.Random) -> bool:
    through = [m for m in ops(program, mk.MatmulOp) if m.stream is not None]
    if not (matmul := pick(rng, through)):
        return False
    mk.buffer_of(matmul.weight).properties["kind"] = StringAttr("activation")
    return True


# ---- several steps a launch ---------------------------------------------------------------


STEP_OPERATORS: set[str] = set()
"""Those whose mutants are right for one step a launch, and wrong for several."""


def step_operator(*rules: str) -> Callable[[Operator], Operator]:
    def enter(function: Operator) -> Operator:
        STEP_OPERATORS.add(function.__name__)
        return operator(*rules)(function)

    return enter


def token_store(program: mk.ProgramOp) -> mk.StoreOp | None:
    """The write of the token that the next step reads."""
    if program.tokens.value.data != 1:
        return None
    found = [s for s in stores(program, "output") if mk.buffer_of(s.buffer).source.data == "next"]
    return found[0] if found else None


@step_operator("V5", "V6")
def a_stage_the_token_does_not_wait_for(program: mk.ProgramOp, rng: random.Random) -> bool:
    """The stage before the token once more, into memory of its own, and nobody waits for it."""
    if token_store(program) is None:
        return False
    *_, before, last = program.stages()
    again = before.clone()
    assert isinstance(again, mk.StageOp)
    again.properties["sym_name"] = StringAttr("again")
    program.body.block.insert_op_after(again, last)
    set_operands(again, list(again.waits), [])
    for op in list(again.walk()):
        if isinstance(op, mk.SignalOp):
            erase(op)
        elif isinstance(op, mk.StoreOp):
            copy = mk.BufferOp("activation", "again", mk.buffer_of(op.buffer).type)
            program.body.block.insert_op_before(copy, program.stages()[0])
            op.operands = [op.value, copy.result]
    return True


@step_operator("V6")
def token_read_after_it_is_written(program: mk.ProgramOp, rng: random.Random) -> bool:
    store, gather = token_store(program), pick(rng, ops(program, mk.GatherOp))
    if store is None or gather is None:
        return False
    block = store.parent
    assert block is not None
    block.insert_op_after(gather.clone(), store)
    return True


@step_operator("V12")
def ring_for_the_pieces_of_one_step(program: mk.ProgramOp, rng: random.Random) -> bool:
    """As many slots as any worker has pieces in a step, and one more filled ahead."""
    if token_store(program) is None or not (stream := pick(rng, streams(program))):
        return False
    stream.properties["slots"] = integer(10_000)
    stream.properties["ahead"] = integer(10_001)
    return True
