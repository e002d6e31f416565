"""Tile by tile, at one position: the boxes of an access, and what is finished before a tile.

The exact counterpart of `families` and `closure`, for what strides do not decide. Everything here
is finite: a position and a window of stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from amk.ir.expr import Bound, Const, Div, Expr, Sum, Sym
from amk.verify.model import Access, Box, Event, Part, Program, Stage

Env = dict[str, np.ndarray | int]


def evaluate(e: Expr, env: Env) -> np.ndarray | int:
    """An expression at one position, for all tiles of a part at once."""
    match e:
        case Const(value):
            return value
        case Sym(name):
            return env[name]
        case Sum(terms, offset):
            total: np.ndarray | int = offset
            for term, factor in terms:
                total = total + factor * evaluate(term, env)
            return total
        case Div(value, divisor):
            return evaluate(value, env) // divisor
        case Bound(kind, a, b):
            pick = np.minimum if kind == "min" else np.maximum
            return pick(evaluate(a, env), evaluate(b, env))
    raise TypeError(f"not an index expression: {e!r}")


def coordinates(grid: Sequence[Expr], past: int) -> tuple[int, Env]:
    """The number of tiles of a grid, and each coordinate's value tile by tile, in order."""
    extents = [max(int(evaluate(e, {"P": past})), 0) for e in grid]
    count = int(np.prod(extents, dtype=np.int64))
    env: Env = {"P": past}
    for i, axis in enumerate(np.indices(extents).reshape(len(extents), count)):
        env[f"t{i}"] = axis
    return count, env


def numbers(e: Expr, count: int, env: Env) -> np.ndarray:
    """The value of an expression for each of `count` tiles."""
    return np.broadcast_to(np.asarray(evaluate(e, env), np.int64), (count,))


def boxes(access: Access, past: int, box: Box | None = None) -> np.ndarray:
    """int64 [tiles, axes, 2]: the half-open ranges of each tile; one row for a prologue."""
    count, env = coordinates(() if access.prologue else access.part.grid, past)
    ranges = access.box if box is None else box
    out = np.empty((count, len(ranges), 2), np.int64)
    for axis, (low, high) in enumerate(ranges):
        out[:, axis, 0] = numbers(low, count, env)
        out[:, axis, 1] = numbers(high, count, env)
    return out


def tile_name(part: Part, number: int, past: int) -> str:
    """`t0 = 3, t1 = 0` of tile `number` of a part."""
    _, env = coordinates(part.grid, past)
    return ", ".join(f"t{i} = {int(env[f't{i}'][number])}" for i in range(len(part.grid)))  # type: ignore[index]


@dataclass
class Order:
    """What is finished before each tile of a window of stages, at one position.

    Tiles are numbered through the window; sets of tiles are integers. `body[part]` has an entry a
    tile. `entry[part]` has one too: what is finished before the prologue whose results the tile
    uses, None where the tile's worker has been through it already."""

    first: dict[int, int] = field(default_factory=dict)
    """The number of a part's first tile."""
    body: dict[int, list[int]] = field(default_factory=dict)
    entry: dict[int, list[int | None]] = field(default_factory=dict)
    stuck: tuple[Stage, Part, int] | None = None
    """A tile that can never begin."""


class Run:
    """Runs a window of stages greedily, as often as any tile can begin. Waits only ever become
    complete, so if some interleaving gets stuck then so does this one."""

    def __init__(self, program: Program, past: int, stages: Sequence[Stage]):
        self.program = program
        self.past = past
        self.stages = stages
        self.inside = {p.number for s in stages for p in s.parts}
        self.order = Order()
        self.counts: dict[int, int] = {}
        self.waits: dict[int, list[tuple[Event, np.ndarray, np.ndarray]]] = {}
        self.signals: dict[int, list[tuple[Event, np.ndarray]]] = {}
        self.left: dict[tuple[Event, int], int] = {}
        self.joined: dict[tuple[Event, int], int] = {}
        total = 0
        for stage in stages:
            for part in stage.parts:
                self.prepare(part, total)
                total += self.counts[part.number]

    def prepare(self, part: Part, start: int) -> None:
        n = part.number
        count, env = coordinates(part.grid, self.past)
        self.counts[n] = count
        self.order.first[n] = start
        self.order.body[n] = [0] * count
        self.order.entry[n] = [None] * count
        self.waits[n] = [
            (w.event, numbers(w.first, count, env), numbers(w.count, count, env))
            for w in part.waits
        ]
        self.signals[n] = [(s.event, numbers(s.group, count, env)) for s in part.signals]
        for event, groups in self.signals[n]:
            for g in groups.tolist():
                self.left[event, g] = self.left.get((event, g), 0) + 1

    def run(self) -> Order:
        workers = self.program.workers
        tiles = [
            (stage, part, i, l)
            for stage in self.stages
            for l, (part, i) in enumerate(  # noqa: E741 - the number of a tile in its stage
                (part, i) for part in stage.parts for i in range(self.counts[part.number])
            )
        ]
        if workers is None:
            self.claimed(tiles)
        else:
            self.static(tiles, workers)
        return self.order

    def claimed(self, tiles: list[tuple[Stage, Part, int, int]]) -> None:
        """In the order of the program, which is what a single worker does."""
        for stage, part, i, _ in tiles:
            entry, body = self.entered(stage), self.begun(part, i)
            if entry is None or body is None:
                self.order.stuck = (stage, part, i)
                return
            self.order.entry[part.number][i] = entry
            self.finish(part, i, entry | body)

    def static(self, tiles: list[tuple[Stage, Part, int, int]], workers: int) -> None:
        queues: list[list[tuple[Stage, Part, int, int]]] = [[] for _ in range(workers)]
        for stage, part, i, l in tiles:  # noqa: E741
            queues[(l + stage.shift) % workers].append((stage, part, i, l))
        done = [0] * workers  # tiles finished
        past = [0] * workers  # the set of tiles finished before a worker's next
        moved = True
        while moved:
            moved = False
            for w, queue in enumerate(queues):
                while done[w] < len(queue):
                    stage, part, i, l = queue[done[w]]  # noqa: E741
                    first = done[w] == 0 or queue[done[w] - 1][0] is not stage
                    entry = self.entered(stage) if first else 0
                    body = self.begun(part, i)
                    if entry is None or body is None:
                        break
                    if first:
                        self.order.entry[part.number][i] = entry | past[w]
                    past[w] |= entry | body
                    past[w] = self.finish(part, i, past[w])
                    done[w] += 1
                    moved = True
        for w, queue in enumerate(queues):
            if done[w] < len(queue):
                stage, part, i, _ = queue[done[w]]
                self.order.stuck = (stage, part, i)
                return

    def entered(self, stage: Stage) -> int | None:
        """What the events of a stage order before it; None while one is not complete."""
        before = 0
        for event in stage.waits:
            for key in self.groups(event):
                if self.left.get(key, 0):
                    return None
                before |= self.joined.get(key, 0)
        return before

    def groups(self, event: Event) -> list[tuple[Event, int]]:
        return [(event, g) for g in range(int(evaluate(event.groups, {"P": self.past})))]

    def begun(self, part: Part, tile: int) -> int | None:
        before = 0
        for event, first, count in self.waits[part.number]:
            for g in range(int(first[tile]), int(first[tile] + count[tile])):
                if self.left.get((event, g), 0):
                    return None
                before |= self.joined.get((event, g), 0)
        return before

    def finish(self, part: Part, tile: int, before: int) -> int:
        """Counts the tile; returns what is finished with it."""
        n = part.number
        self.order.body[n][tile] = before
        after = before | 1 << (self.order.first[n] + tile)
        for event, groups in self.signals[n]:
            key = (event, int(groups[tile]))
            self.left[key] -= 1
            self.joined[key] = self.joined.get(key, 0) | after
        return after
