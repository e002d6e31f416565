"""What a program should cost on a GPU: a prediction from bytes, balance and stage boundaries.

A stage takes the longer of two times: all its bytes at the memory's full bandwidth, and the bytes
of the worker with the longest list at that worker's share. Each stage adds a boundary: an event
raised and seen across the GPU, and the prologue. The constants are assumptions, not measurements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from amk.ir import mk
from amk.ir.lm import shape_of
from amk.targets import Gpu

BOUNDARY_US = 1.5
"""One event from its last tile to its waiters, and a prologue from the second-level cache."""
ACHIEVED = 0.92
"""Share of the data sheet's bandwidth that a kernel of loads alone reaches."""


@dataclass(frozen=True)
class StageCost:
    """One stage: bytes it reads from memory, tiles, and microseconds; `balance` is the share of
    the workers' time that is not spent waiting for the longest list."""

    name: str
    nbytes: int
    tiles: int
    balance: float
    us: float


def predict(program: mk.ProgramOp, gpu: Gpu, past: int) -> list[StageCost]:
    """The cost of every stage of a program with a static schedule, at a past length."""
    return [
        cost_of(stage, gpu, program.static_workers or gpu.sms, past) for stage in program.stages()
    ]


def cost_of(stage: mk.StageOp, gpu: Gpu, workers: int, past: int) -> StageCost:
    loads = [0] * workers
    shift = 0 if stage.shift is None else stage.shift.value.data
    tiles = 0
    for part in stage.part_ops():
        count = prod(e.evaluate({"P": past}) for e in part.grid)
        nbytes = sum(op_bytes(part, past))
        for tile in range(tiles, tiles + count):
            loads[(tile + shift) % workers] += nbytes
        tiles += count
    total = sum(loads)
    speed = gpu.bandwidth * ACHIEVED
    longest = max(loads)
    us = 1e6 * max(total / speed, longest * workers / speed) + BOUNDARY_US
    balance = total / (longest * workers) if longest else 1.0
    return StageCost(stage.sym_name.data, total, tiles, balance, us)


def op_bytes(part: mk.PartOp, past: int) -> Iterator[int]:
    """Bytes of weights and cache rows that a tile reads."""
    for op in part.body.block.ops:
        if isinstance(op, mk.MatmulOp):
            rows, depth = shape_of(op.result)[1], shape_of(op.input)[1]
            yield rows * depth * mk.buffer_of(op.weight).type.element_bytes()
        elif isinstance(op, mk.AttentionOp):
            depth = shape_of(op.query)[2]
            rows = min(op.chunk.value.data, past + 1)
            yield 2 * rows * depth * mk.buffer_of(op.keys).type.element_bytes()


def table(costs: list[StageCost]) -> str:
    """Stages of one name pattern together, the most expensive first, and the total."""
    groups: dict[str, list[StageCost]] = {}
    for cost in costs:
        key = ".".join("*" if word.isdigit() else word for word in cost.name.split("."))
        groups.setdefault(key, []).append(cost)
    lines = [f"{'stage':52} {'count':>5} {'MB':>9} {'balance':>8} {'us':>9}"]
    for key, found in sorted(groups.items(), key=lambda kv: -sum(c.us for c in kv[1])):
        mb, us = sum(c.nbytes for c in found) / 1e6, sum(c.us for c in found)
        balance = sum(c.balance for c in found) / len(found)
        lines.append(f"{key[:52]:52} {len(found):5} {mb:9.2f} {balance:8.2f} {us:9.1f}")
    mb, us = sum(c.nbytes for c in costs) / 1e6, sum(c.us for c in costs)
    lines.append(f"{'predicted, all stages':52} {len(costs):5} {mb:9.2f} {'':8} {us:9.1f}")
    return "\n".join(lines)
