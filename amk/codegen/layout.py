"""What a compiled file expects in memory; free of xDSL, since running a program reads it too."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Slot:
    """One entry of the buffer table: what the runtime binds there."""

    kind: str
    source: str
    shape: tuple[int, ...]
    dtype: str
    program: int  # −1 for what programs share
    offset: int  # in the program's arena, −1 outside it
    policy: str = ""  # of a cache: how its memory grows
    window: int = 0  # of a ring: rows a position sees
    sinks: int = 0  # of a ring: rows that stay


@dataclass
class Layout:
    """The buffer table of a compiled file, and the arena and tokens of each program."""

    slots: list[Slot] = field(default_factory=list)
    arenas: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def index(self, slot: Slot) -> int:
        if slot not in self.slots:
            self.slots.append(slot)
        return self.slots.index(slot)
