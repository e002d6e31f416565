"""V10: every block is resident at once. V11: the order of every reduction is fixed. V12: a ring
never refills a slot before its last reader.

V10 takes its numbers from the program's attribute `amk.resources`, a dictionary of integers:
`threads`, `registers` (a thread) and `shared_bytes` of a block, and of the device `processors`,
and of a processor `max_threads`, `max_registers`, `max_shared_bytes`, `max_blocks`.
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr

from amk.ir import mk
from amk.verify.context import Context, describe
from amk.verify.findings import Finding
from amk.verify.model import Stage, Streamed
from amk.verify.shapes import representatives
from amk.verify.tiles import coordinates

RESOURCES = "amk.resources"
NAMES = (
    "threads", "registers", "shared_bytes", "processors", "max_threads", "max_registers",
    "max_shared_bytes", "max_blocks",
)  # fmt: skip


def check_resources(ctx: Context) -> None:
    residency(ctx)
    reductions(ctx)
    streams(ctx)


# ---- V10 ----------------------------------------------------------------------------------


def residency(ctx: Context) -> None:
    """Under a static schedule a tile may wait for a tile of any other worker, so all of them must
    run at once; claimed tiles wait for what was claimed before, by blocks that already run."""
    workers = ctx.program.workers
    if workers is None:
        return
    attribute = ctx.program.op.attributes.get(RESOURCES)
    if attribute is None:
        ctx.report.notes.append("V10: no amk.resources, the workers are taken to run at once")
        return
    ctx.report.count("V10")
    found = read_resources(attribute)
    if found is None:
        what = f"{RESOURCES} is not a dictionary of {', '.join(NAMES)}"
        ctx.add(Finding("V10", what, 0))
        return
    room = resident_blocks(found)
    ctx.report.notes.append(f"V10: {workers} blocks of {room} that the device holds at once")
    if workers > room:
        what = f"{workers} blocks, and the device holds {room} at once"
        ctx.add(Finding("V10", what, 0))


def read_resources(attribute: object) -> dict[str, int] | None:
    if not isinstance(attribute, DictionaryAttr):
        return None
    found = {k: v.value.data for k, v in attribute.data.items() if isinstance(v, IntegerAttr)}
    return found if found.keys() >= set(NAMES) else None


def resident_blocks(n: dict[str, int]) -> int:
    """Blocks a device holds: of a processor, what each of its four limits allows."""
    limits = [n["max_blocks"], n["max_threads"] // max(n["threads"], 1)]
    limits.append(n["max_registers"] // max(n["registers"] * n["threads"], 1))
    if n["shared_bytes"]:
        limits.append(n["max_shared_bytes"] // n["shared_bytes"])
    return n["processors"] * min(limits)


# ---- V11 ----------------------------------------------------------------------------------


def reductions(ctx: Context) -> None:
    """Every sum names its order, and all partials of one attention are cut alike: an order that
    nothing about workers enters."""
    chunks: dict[object, int] = {}
    ctx.report.count("V11", len(ctx.program.reductions))
    for op in ctx.program.reductions:
        if isinstance(op, mk.AttentionOp):
            chunk = op.chunk.value.data
            if chunks.setdefault(op.keys, chunk) != chunk:
                what = "one cache is reduced in chunks of two sizes"
                ctx.add(Finding("V11", what, 0, (op.name,), mk.buffer_of(op.keys).source.data))


# ---- V12 ----------------------------------------------------------------------------------


def streams(ctx: Context) -> None:
    """A ring of n slots holds the pieces of n consecutive fills. Filling at most n ahead of the
    oldest piece in use never touches a slot that is still read, and keeps the two sides within
    one turn of each other, so that a phase of one bit tells them apart."""
    uses = ctx.program.streamed
    if ctx.program.workers is None:
        if uses:
            ctx.report.notes.append("V12: streams are hints under a claimed schedule")
        return
    for use in uses:
        ctx.report.count("V12")
        size = use.stream.slot_bytes.value.data
        if use.buffer.kind not in ("weight", "constant"):
            what = f"a ring is filled ahead of waits from a buffer that is {use.buffer.kind}"
        elif use.row_bytes > size:
            what = f"a row of {use.row_bytes} bytes passes through slots of {size} bytes"
        else:
            continue
        found = ctx.positions.tiles(use.part.grid) > 0
        if np.any(found):
            past = int(np.argmax(np.broadcast_to(found, ctx.positions.past.shape)))
            ctx.add(Finding("V12", what, past, (describe(use.part),), use.buffer.name))
            return
    for stream in dict.fromkeys(use.stream for use in uses):
        ctx.report.count("V12")
        ctx.add(refilled_early(ctx, stream, [use for use in uses if use.stream is stream]))


def refilled_early(ctx: Context, op: mk.StreamOp, uses: list[Streamed]) -> Finding | None:
    """More pieces ahead than slots is harmless only while no worker has more pieces than slots."""
    slots, ahead = op.slots.value.data, op.lookahead
    if ahead <= slots:
        return None
    stages = list(dict.fromkeys(use.part.stage for use in uses))
    terms = {e for stage in stages for part in stage.parts for e in part.grid}
    for past in representatives(ctx.positions, terms):
        ctx.report.exhausted += 1
        lists = pieces(ctx, uses, stages, past)
        worker = int(np.argmax(lists))
        if lists[worker] > slots:
            what = f"{ahead} pieces are filled ahead into {slots} slots"
            side = f"worker {worker} has {lists[worker]} pieces, from {describe(uses[0].part)} on"
            return Finding("V12", what, past, (side,), name_of(op))
    return None


def pieces(ctx: Context, uses: list[Streamed], stages: list[Stage], past: int) -> np.ndarray:
    """How many pieces each worker's list has: as many whole rows each as fit a slot."""
    workers = ctx.program.workers or 1
    total = np.zeros(workers, np.int64)
    for stage in stages:
        number = stage.shift
        for part in stage.parts:
            count, _ = coordinates(part.grid, past)
            tiles = np.bincount((number + np.arange(count)) % workers, minlength=workers)
            for use in uses:
                if use.part is part:
                    fit = max(use.stream.slot_bytes.value.data // use.row_bytes, 1)
                    total += tiles * -(-use.rows // fit)
            number += count
    return total


def name_of(op: mk.StreamOp) -> str:
    return f"%{op.result.name_hint or 'stream'}"
