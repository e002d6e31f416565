"""Which tiles a program has at a position, who runs them, and the counters that order them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from xdsl.ir import SSAValue

from amk.ir import mk

Group = tuple[SSAValue, int]
"""One counter of an event."""


@dataclass(frozen=True, eq=False)
class Tile:
    """Tile `number` of a stage, linear over its parts in order; `env` holds P, t0, t1, …"""

    stage: mk.StageOp
    part: mk.PartOp
    number: int
    env: dict[str, int]

    def waits(self) -> list[Group]:
        """The counters that must be complete before its body, beyond those of its stage."""
        return self._waits

    def signals(self) -> list[Group]:
        """The counters it counts towards once it has finished."""
        return self._signals

    @cached_property
    def _waits(self) -> list[Group]:
        return list(self._find_waits())

    @cached_property
    def _signals(self) -> list[Group]:
        return list(self._find_signals())

    def _find_waits(self) -> Iterator[Group]:
        for op in self.part.waits():
            first, count = (e.evaluate(self.env) for e in op.groups)
            yield from ((op.event, g) for g in range(first, first + count))

    def _find_signals(self) -> Iterator[Group]:
        yield from ((event, 0) for event in self.stage.signals)
        for op in self.part.signals():
            yield op.event, op.group.data[0].evaluate(self.env)

    def worker(self, workers: int) -> int:
        """Who runs it under a static schedule."""
        shift = 0 if self.stage.shift is None else self.stage.shift.value.data
        return (self.number + shift) % workers


def tiles_of(stage: mk.StageOp, past: int) -> list[Tile]:
    """The tiles of a stage at past length `past`, in order; a negative extent counts as none."""
    found: list[Tile] = []
    for part in stage.part_ops():
        extents = [e.evaluate({"P": past}) for e in part.grid]
        for at in product(*(range(n) for n in extents)):
            env = {"P": past, **{f"t{i}": t for i, t in enumerate(at)}}
            found.append(Tile(stage, part, len(found), env))
    return found


class Counters:
    """The counters of a program's events: `begin` a launch, count tiles, ask what is complete."""

    def __init__(self, program: mk.ProgramOp):
        self.program = program
        self.launches = 0
        self.counts: Counter[Group] = Counter()
        self.targets: dict[Group, int] = {}
        self.groups: dict[SSAValue, int] = {}

    def begin(self, past: int, tiles: list[Tile]) -> None:
        """Starts a launch: sets the targets, and to zero what is not monotonic."""
        self.launches += 1
        signals = Counter(group for tile in tiles for group in tile.signals())
        for event in self.program.events():
            key, monotonic = event.result, is_monotonic(event)
            self.groups[key] = event.group_count.evaluate({"P": past})
            for g in range(self.groups[key]):
                target = signals[key, g]
                if event.threshold is not None:
                    target = event.threshold.data[0].evaluate({"P": past, "g": g})
                self.targets[key, g] = target * (self.launches if monotonic else 1)
                if not monotonic:
                    self.counts[key, g] = 0

    def complete(self, group: Group) -> bool:
        return self.counts[group] >= self.targets[group]

    def stage_ready(self, stage: mk.StageOp) -> bool:
        return all(self.complete((e, g)) for e in stage.waits for g in range(self.groups[e]))

    def tile_ready(self, tile: Tile) -> bool:
        return all(self.complete(group) for group in tile.waits())

    def finish(self, tile: Tile) -> None:
        self.counts.update(tile.signals())


def is_monotonic(event: mk.EventOp) -> bool:
    return event.counter is not None and event.counter.data == "monotonic"
