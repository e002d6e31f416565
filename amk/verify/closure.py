"""Which parts are finished, every tile of them, before others begin: at every position.

Sets of parts are integers, bit n for part n. Only events count here, not the order of a worker's
list, so what holds does so under both schedules and any number of workers. A part that may be
empty passes nothing on: with no tile to wait, whatever stands behind it waits for nobody.
"""

from __future__ import annotations

from amk.verify.families import Families, affine
from amk.verify.model import Access, Event, Part, Program, Signal, Stage, Wait
from amk.verify.positions import Positions, always, both


class Closure:
    """`prologue[s]`: finished before a worker enters stage s. `body[p]`: finished before the body
    of any tile of part p. `through[p]`: finished once all tiles of part p are."""

    def __init__(self, program: Program, positions: Positions, families: Families):
        self.positions = positions
        self.families = families
        self.prologue: list[int] = []
        self.body: list[int] = []
        self.through: list[int] = []
        self.solid = [always(positions.tiles(p.grid) > 0) for p in program.parts]
        self.stages = program.stages
        self.extend(0)

    def extend(self, start: int) -> None:
        """Finds anew the sets of stage `start` and all after it."""
        stages = self.stages[start:]
        del self.prologue[start:]
        first = next((s.parts[0].number for s in stages if s.parts), len(self.body))
        del self.body[first:]
        del self.through[first:]
        for stage in stages:
            entered = self.enter(stage)
            self.prologue.append(entered)
            for part in stage.parts:
                body, covered = entered, 0
                for wait in part.waits:
                    more, joined = self.wait(wait, part)
                    body |= more
                    covered |= joined
                self.body.append(body)
                self.through.append(1 << part.number | self.passed(part, body | covered))

    def passed(self, part: Part, found: int) -> int:
        return found if self.solid[part.number] else 0

    def known(self, part: Part) -> int:
        """`through` of a part met already; of a later one, itself (rule V9 looks at those)."""
        n = part.number
        return self.through[n] if n < len(self.through) else 1 << n

    def enter(self, stage: Stage) -> int:
        found = 0
        for event in stage.waits:
            for part, _ in event.signallers:
                found |= self.known(part)
        return found

    def wait(self, wait: Wait, waiter: Part) -> tuple[int, int]:
        """(finished before each tile that waits, finished once all of them are)"""
        body = covered = 0
        for part, signal in wait.event.signallers:
            if part.number >= len(self.through):
                continue
            everything, something, jointly = self.meets(wait, waiter, part, signal)
            if everything:
                body |= self.known(part)
            elif something and self.solid[part.number]:
                body |= self.body[part.number]
            if jointly:
                covered |= self.known(part)
        return body, covered

    def meets(
        self, wait: Wait, waiter: Part, part: Part, signal: Signal
    ) -> tuple[bool, bool, bool]:
        """Do the groups a tile waits for hold all that `part` signals, at least one; do those of
        all tiles together hold all?"""
        at, end = self.positions, wait.first + wait.count
        low, high = at.interval(signal.group, part.grid)
        first = at.interval(wait.first, waiter.grid)
        last = at.interval(end, waiter.grid)
        count = at.interval(wait.count, waiter.grid)
        everything = always(both(first[1] <= low, last[0] > high))
        # One coordinate with factor 1 takes every value between its ends.
        steps = affine(signal.group)
        unbroken = steps is not None and list(steps.values()) in ([], [1])
        inside = both(both(first[0] >= low, first[1] <= high), count[0] >= 1)
        _, dense = self.families.strides(((wait.first, end),), waiter.grid)
        jointly = dense and always(both(first[0] <= low, last[1] > high))
        return everything, unbroken and always(inside), jointly

    # ---- questions ----

    def before(self, access: Access) -> int:
        """Parts finished before an access happens."""
        part = access.part
        return self.prologue[part.stage.number] if access.prologue else self.body[part.number]

    def ordered(self, early: Access, late: Access) -> bool:
        """Is every tile that makes access `early` finished before any makes `late`?"""
        return all(self.before(late) >> n & 1 for n in parts_of(early))


def parts_of(access: Access) -> list[int]:
    """The parts whose tiles make an access: a prologue's belongs to every part of its stage."""
    if access.prologue:
        return [p.number for p in access.part.stage.parts]
    return [access.part.number]


def waits_between(early: Part, late: Part) -> list[tuple[Event, Wait, Signal]]:
    """The grouped waits of `late` that tiles of `early` count towards."""
    return [
        (wait.event, wait, signal)
        for wait in late.waits
        for part, signal in wait.event.signallers
        if part is early
    ]
