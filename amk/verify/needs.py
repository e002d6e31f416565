"""What each wait of a program is for: take it out, and see which hazard appears.

`Needs` holds the facts of a program that was proved. `without` takes one wait out and returns the
first finding, or None when the proof stands; `remove` takes it out for good. Where the proof covers
any number of steps a launch, it stands only while it still does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from amk.ir import mk
from amk.verify.arena import compare, turns
from amk.verify.context import Context
from amk.verify.findings import Finding
from amk.verify.model import Event, Part, Stage, Wait, read_program
from amk.verify.ordering import read_after_write, reads_of_writes
from amk.verify.steps import feedback_of, hazards


@dataclass(frozen=True, eq=False)
class Awaited:
    """One wait: of a stage for an event, or of a part for groups of one."""

    stage: Stage
    event: Event
    part: Part | None = None
    wait: Wait | None = None

    def __str__(self) -> str:
        if self.wait is None:
            return f"stage {self.stage.name!r} waits for %{self.event.name}"
        assert self.part is not None
        groups = f"[{self.wait.first}, {self.wait.count}]"
        where = f"stage {self.stage.name!r}, part {self.part.index}"
        return f"{where}, waits for %{self.event.name}{groups}"


class Needs:
    def __init__(self, program: mk.ProgramOp):
        self.ctx = Context.of(read_program(program))
        self.reads = sorted(reads_of_writes(self.ctx), key=lambda p: p[1].part.number)
        feedback = feedback_of(self.ctx.program)
        covered = feedback is not None and not any(hazards(self.ctx, feedback))
        self.feedback = feedback if covered else None
        """Of a program whose launches may take several steps."""

    def waits(self) -> list[Awaited]:
        """Every wait, in program order."""
        found: list[Awaited] = []
        for stage in self.ctx.program.stages:
            found += [Awaited(stage, event) for event in stage.waits]
            for part in stage.parts:
                found += [Awaited(stage, w.event, part, w) for w in part.waits]
        return found

    def without(self, awaited: Awaited) -> Finding | None:
        """What goes wrong first without a wait."""
        place = self.take(awaited)
        finding = next(self.findings(awaited.stage), None)
        self.put(awaited, place)
        return finding

    def remove(self, awaited: Awaited) -> None:
        self.take(awaited)

    def take(self, awaited: Awaited) -> int:
        if awaited.wait is None:
            place = awaited.stage.waits.index(awaited.event)
            del awaited.stage.waits[place]
        else:
            assert awaited.part is not None
            place = awaited.part.waits.index(awaited.wait)
            del awaited.part.waits[place]
        self.refresh(awaited)
        return place

    def put(self, awaited: Awaited, place: int) -> None:
        if awaited.wait is None:
            awaited.stage.waits.insert(place, awaited.event)
        else:
            assert awaited.part is not None
            awaited.part.waits.insert(place, awaited.wait)
        self.refresh(awaited)

    def refresh(self, awaited: Awaited) -> None:
        self.ctx.orders.clear()
        self.ctx.closure.extend(awaited.stage.number)

    def findings(self, first: Stage) -> Iterator[Finding]:
        """Hazards among what `first` and later stages do: nothing earlier can have changed."""
        for write, read in self.reads:
            if read.part.stage.number < first.number:
                continue
            finding = read_after_write(self.ctx, write, read)
            if finding is not None:
                yield finding
        for owner, buffer, over in turns(self.ctx):
            if not over:
                finding = compare(self.ctx, owner, buffer)
                if finding is not None:
                    yield finding
        if self.feedback is not None:
            yield from hazards(self.ctx, self.feedback)
