"""The three places an append may stand in, which of them a program allows, and what each costs.

The cost is a time: bytes that the busiest worker moves for the append alone, at WORKER_BYTES_NS,
and BOUNDARY_NS for each stage more. A place that leaves workers idle makes one of them busier. Both
constants are assumptions; what counts is the order they give. With C bytes of new rows in the
cache's dtype, F bytes of them in f32, T tiles of the stage that computes them and H kv heads:

| place | busiest worker | stages more |
|---|---|---|
| epilogue | C / T, and F / T where something else reads the rows | 0 |
| attention | F / T to keep the rows, F / H to read them back, C / H | 0 |
| stage | F / T, then F + C on one worker | 1 |

Rows that a stage without a contraction makes, for the append alone, are made by the attention
instead where that appends them: the other two places then keep a stage more, and attention keeps no
rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import TensorType, i8
from xdsl.ir import Operation, SSAValue

from amk.ir import kv, lm, mk
from amk.ir.lm import product, shape_of
from amk.passes.tile_components import TILE_BYTES, components, stage_tilings

PLACES = ("epilogue", "attention", "stage")
BOUNDARY_NS = 1500.0
"""An event from its last tile to its waiters."""
WORKER_BYTES_NS = 16.0
"""Bytes that one worker moves in a nanosecond."""


@dataclass(frozen=True)
class Choice:
    """A place that a program allows: its cost in nanoseconds, or why it does not."""

    place: str
    cost: float = 0.0
    refusal: str | None = None

    def __str__(self) -> str:
        return self.refusal or f"{self.cost:.0f} ns"


def choices(append: kv.AppendOp) -> dict[str, Choice]:
    """Every place, in order of preference among equals."""
    refusals = {"epilogue": no_epilogue(append), "attention": no_attention(append), "stage": None}
    return {
        place: Choice(place, cost(append, place)) if why is None else Choice(place, refusal=why)
        for place, why in refusals.items()
    }


def computing_stage(append: kv.AppendOp) -> lm.StageOp | None:
    """The stage that computes the new rows."""
    owner = append.entries.owner
    return owner if isinstance(owner, lm.StageOp) else None


def row_stage(append: kv.AppendOp) -> lm.StageOp | None:
    """The stage that computes the new rows, when it is there for them alone and contracts nothing:
    whoever appends them in another stage computes them there, and this one goes."""
    stage = computing_stage(append)
    if stage is None or len(stage.results) > 1 or len(list(append.entries.uses)) > 1:
        return None
    anchors = (lm.LinearOp, lm.AttentionSplitOp)
    return None if any(isinstance(op, anchors) for op in stage.walk()) else stage


def inner_value(stage: lm.StageOp, result: SSAValue) -> SSAValue:
    """What a stage yields for one of its results."""
    last = stage.body.block.last_op
    assert isinstance(last, lm.YieldOp)
    return last.arguments[list(stage.results).index(result)]  # type: ignore[arg-type]


def no_epilogue(append: kv.AppendOp) -> str | None:
    """Why the stage that computes the rows cannot append them."""
    stage = computing_stage(append)
    if stage is None:
        return "no stage computes the rows"
    tiling = stage_tilings(stage)[0].get(inner_value(stage, append.entries))
    last = len(shape_of(append.entries)) - 1
    if kv.cache_type(append.cache).element_type != i8 or tiling is None or tiling.whole:
        return None
    if tiling.axis == last:
        return "a tile holds a part of a head, and a row of i8 has one scale for all of it"
    return None


def reading_attention(append: kv.AppendOp) -> lm.AttentionSplitOp | None:
    """The first attention that reads the appended version, inside a stage."""
    readers = [
        op
        for op in kv.users(append.result)
        if isinstance(op, lm.AttentionSplitOp) and isinstance(op.parent_op(), lm.StageOp)
    ]
    block = append.parent
    assert block is not None
    order = {op: i for i, op in enumerate(block.ops)}
    return min(readers, key=lambda op: order[op.parent_op()], default=None)  # type: ignore[index]


def no_attention(append: kv.AppendOp) -> str | None:
    """Why no attention stage can append the rows it reads: one tile a kv head must see them all."""
    reader = reading_attention(append)
    if reader is None:
        return "no attention stage reads the cache"
    if computing_stage(append) is None:
        return "no stage computes the rows"
    stage = reader.parent_op()
    assert isinstance(stage, lm.StageOp)
    if len([op for op in stage.body.block.ops if isinstance(op, lm.AttentionSplitOp)]) > 1:
        return "its stage holds several attentions, which would share the new rows"
    if reader.kept:
        return "other tiles of it read the first rows, which may be new ones"
    rows, chunk = shape_of(append.entries)[kv.cache_type(append.cache).axis.data], reader.chunk
    if rows > chunk.value.data:
        return f"{rows} new rows reach over more than two chunks of {chunk.value.data}"
    if others := [op for op in other_readers(append, stage) if op.is_before_in_block(stage)]:
        return f"{others[0].name} reads the cache before it"
    return None


def other_readers(append: kv.AppendOp, stage: lm.StageOp) -> list[Operation]:
    """Ops of the function's block, other than `stage`, that use the appended version."""
    found: list[Operation] = []
    for op in kv.users(append.result):
        outer = op
        while outer.parent is not append.parent:
            parent = outer.parent_op()
            assert parent is not None
            outer = parent
        if outer is not stage:
            found.append(outer)
    return found


def cost(append: kv.AppendOp, place: str) -> float:
    """Nanoseconds that an append at `place` adds to a launch."""
    entries, type = append.entries, kv.cache_type(append.cache)
    count, heads = product(shape_of(entries)), shape_of(entries)[1] if entry_heads(entries) else 1
    kept, stored = 4.0 * count, float(count * mk.BufferType.get((1,), type.element_type).nbytes())
    tiles = tiles_of(append)
    alone = row_stage(append) is not None
    if place == "attention":
        rows = 0.0 if alone else kept / tiles
        return (rows + (kept + stored) / heads) / WORKER_BYTES_NS
    boundary = BOUNDARY_NS if alone else 0.0
    if place == "epilogue":
        elsewhere = len(list(entries.uses)) > 1
        return (stored + (kept if elsewhere else 0.0)) / tiles / WORKER_BYTES_NS + boundary
    return (kept / tiles + kept + stored) / WORKER_BYTES_NS + BOUNDARY_NS + boundary


def entry_heads(entries: SSAValue) -> bool:
    assert isinstance(entries.type, TensorType)
    return len(shape_of(entries)) == 4


def tiles_of(append: kv.AppendOp) -> int:
    """Tiles of the stage that computes the rows: workers that may share the work out."""
    stage = computing_stage(append)
    if stage is None:
        return 1
    tilings, anchors = stage_tilings(stage)
    value = inner_value(stage, append.entries)
    if value not in tilings:
        return 1
    (group,) = components([value], tilings, anchors)
    return -(-group.features // group.tile_features(TILE_BYTES))
