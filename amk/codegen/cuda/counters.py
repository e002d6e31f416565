"""The counters of a program: one a group of each event, and the tiles that raise it in a launch.

What a group counts must not depend on the position, or a counter that is never reset could not
tell launches apart. Where fewer tiles of a stage exist at a position, the kernel tops the counter
of the stage up to its most; a group of tiles whose number varies is refused.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod

from xdsl.ir import SSAValue

from amk.codegen.cuda.index import Ranges
from amk.codegen.cuda.stage import Machine
from amk.errors import AmkError
from amk.ir import mk


class Counters:
    """`tiles[c]` is what counter c rises by in a launch, `names[c]` whose tiles raise it."""

    def __init__(self, program: mk.ProgramOp, machine: Machine):
        self.ranges = Ranges({"P": (0, machine.max_seq - machine.tokens)})
        self.first: dict[SSAValue, int] = {}
        self.count: dict[SSAValue, int] = {}
        self.tiles: list[int] = []
        self.names: list[str] = []
        for event in program.events():
            groups = self.ranges.bounds(event.group_count)[1]
            self.first[event.result], self.count[event.result] = len(self.tiles), groups
            self.tiles += [0] * groups
            self.names += [""] * groups
        for stage in program.stages():
            for event in stage.signals:
                self.add(event, 0, most_tiles(stage, self.ranges), stage.sym_name.data)
            for part in stage.part_ops():
                for op in part.signals():
                    for group, n in self.group_tiles(part, op, stage.sym_name.data).items():
                        self.add(op.event, group, n, stage.sym_name.data)

    def extra(self, name: str, tiles: int = 1) -> int:
        """One more counter, which no event of the program stands for."""
        self.tiles.append(tiles)
        self.names.append(name)
        return len(self.tiles) - 1

    def of(self, event: SSAValue) -> list[int]:
        """The counters of an event."""
        return [self.first[event] + g for g in range(self.count[event])]

    def add(self, event: SSAValue, group: int, tiles: int, name: str) -> None:
        if not 0 <= group < self.count[event]:
            raise AmkError(f"cuda: stage {name!r} raises group {group} of {self.count[event]}")
        self.tiles[self.first[event] + group] += tiles
        self.names[self.first[event] + group] = name

    def group_tiles(self, part: mk.PartOp, op: mk.SignalOp, name: str) -> Counter[int]:
        """How many tiles of a part raise each group."""
        extents = [self.ranges.simplify(e).constant for e in part.grid]
        (group,) = op.group.data
        if any(n is None for n in extents) or "P" in group.symbols():
            raise AmkError(f"cuda: the tiles of {name!r} that raise a group depend on the position")
        tiles = product(*(range(n or 0) for n in extents))
        return Counter(group.evaluate({f"t{i}": t for i, t in enumerate(at)}) for at in tiles)


def most_tiles(stage: mk.StageOp, ranges: Ranges) -> int:
    """The most tiles a stage has at any position."""
    return sum(prod(ranges.bounds(e)[1] for e in part.grid) for part in stage.part_ops())
