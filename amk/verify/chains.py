"""The chain of events that should have ordered two accesses: how far it goes, and where it breaks.

Every tile that must come after the first access is found at one position, with the longest chain
of events (and, under a static schedule, of neighbours in a worker's list) that leads to it. The
chain shown ends before the stage of the second access, as near to it as any does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from amk.verify.model import Access, Event, Part, Program, Stage, Wait
from amk.verify.tiles import coordinates, numbers, tile_name

MOST_LINKS = 6
Tile = tuple[Part, int]
Group = tuple[Event, int]


@dataclass
class Reach:
    """Tiles that come after one tile. `depth` is the length of the longest chain to each, and
    `link` its last step: the tile before, and the group that passes it on, None for a list."""

    depth: dict[Tile, int] = field(default_factory=dict)
    link: dict[Tile, tuple[Tile, Group | None]] = field(default_factory=dict)
    groups: dict[Group, Tile] = field(default_factory=dict)
    """The signaller of each group with the longest chain."""
    events: dict[Event, Group] = field(default_factory=dict)
    last: dict[int, Tile] = field(default_factory=dict)
    """The tile each worker of a static schedule was reached at last."""


def reach(program: Program, stages: Sequence[Stage], past: int, start: Tile) -> Reach:
    """What comes after the tile `start` among some stages, at one position."""
    found = Reach()
    for stage in stages:
        entries = [found.events[e] for e in stage.waits if e in found.events]
        number = stage.shift
        for part in stage.parts:
            count, env = coordinates(part.grid, past)
            waits = [
                (w.event, numbers(w.first, count, env), numbers(w.count, count, env))
                for w in part.waits
            ]
            signals = [(s.event, numbers(s.group, count, env)) for s in part.signals]
            for i in range(count):
                tile = (part, i)
                worker = None if program.workers is None else number % program.workers
                number += 1
                own = [
                    (event, g)
                    for event, first, size in waits
                    for g in range(int(first[i]), int(first[i] + size[i]))
                    if (event, g) in found.groups
                ]
                before: list[tuple[Tile, Group | None]] = []
                before += [(found.groups[g], g) for g in (*entries, *own)]
                if worker in found.last:
                    before.append((found.last[worker], None))
                if tile != start and not before:
                    continue
                if before and tile != start:
                    found.link[tile] = max(before, key=lambda b: found.depth[b[0]])
                    found.depth[tile] = found.depth[found.link[tile][0]] + 1
                else:
                    found.depth[tile] = 0
                if worker is not None:
                    found.last[worker] = tile
                for event, groups in signals:
                    passed_on(found, (event, int(groups[i])), tile)
    return found


def passed_on(found: Reach, group: Group, tile: Tile) -> None:
    """A reached tile signals a group."""
    known = found.groups.get(group)
    if known is None or found.depth[known] < found.depth[tile]:
        found.groups[group] = tile
    event = group[0]
    best = found.events.get(event)
    if best is None or found.depth[found.groups[best]] < found.depth[tile]:
        found.events[event] = group


def chain(
    program: Program, stages: Sequence[Stage], past: int, early: Tile, late: Tile, prologue: bool
) -> tuple[str, ...]:
    """The longest chain from tile `early` towards tile `late` (towards its prologue) at position
    `past`, and where it breaks; or the chain that orders them the other way round."""
    found = reach(program, stages, past, early)
    if late not in found.depth:
        back = reach(program, stages, past, late)
        if early in back.depth and early != late:
            return (f"chain, the other way round: {links(back, early, past)}",)
    nearer = [t for t in found.depth if t[0].stage.number < late[0].stage.number]
    end = max(nearer, key=lambda t: (found.depth[t], t[0].number, -t[1]), default=early)
    return (f"chain: {links(found, end, past)}{broken(end, late, past, prologue)}",)


def links(found: Reach, end: Tile, past: int) -> str:
    """`stage 'a', tile t0 = 1 → %e[1] → stage 'b'`, cut in the middle when it is long."""
    texts = [named(end, past)]
    tile = end
    while tile in found.link:
        tile, group = found.link[tile]
        how = "the worker's list" if group is None else group_name(group)
        texts = [f"{named(tile, past)} → {how}", *texts]
    if len(texts) > MOST_LINKS:
        left = len(texts) - MOST_LINKS + 1
        texts = [*texts[:3], f"({left} more)", *texts[left + 3 :]]
    return " → ".join(texts)


def named(tile: Tile, past: int) -> str:
    part, i = tile
    several = f", part {part.index}" if len(part.stage.parts) > 1 else ""
    name = tile_name(part, i, past)
    alone = coordinates(part.grid, past)[0] == 1
    return f"stage {part.stage.name!r}{several}" + ("" if alone else f", tile {name}")


def group_name(group: Group) -> str:
    event, g = group
    whole = event.groups.constant == 1
    return f"%{event.name}" if whole else f"%{event.name}[{g}]"


def broken(end: Tile, late: Tile, past: int, prologue: bool) -> str:
    """What the last tile signals, and which stage would have to wait for it."""
    part, i = end
    count, env = coordinates(part.grid, past)
    sent = dict.fromkeys((s.event, int(numbers(s.group, count, env)[i])) for s in part.signals)
    if not sent:
        return ", which signals no event"
    names = " and ".join(map(group_name, sent))
    if prologue:
        return f" → {names}, for which the prologue of stage {late[0].stage.name!r} does not wait"
    others = [w for w in late[0].waits if w.event in {e for e, _ in sent}]
    if others:
        return f" → {names}, while {named(late, past)} waits for {awaited(others[0], late, past)}"
    return f" → {names}, for which {named(late, past)} does not wait"


def awaited(wait: Wait, late: Tile, past: int) -> str:
    count, env = coordinates(late[0].grid, past)
    first = int(numbers(wait.first, count, env)[late[1]])
    size = int(numbers(wait.count, count, env)[late[1]])
    groups = f"[{first}]" if size == 1 else f"[{first}] to [{first + size - 1}]"
    return f"%{wait.event.name}{groups}" if size > 0 else f"no group of %{wait.event.name}"


def tile_of(access: Access, tile: int, counts: dict[int, int]) -> Tile:
    """The tile that an access belongs to; of a prologue `tile` counts from its stage's first."""
    if not access.prologue:
        return access.part, tile
    for part in access.part.stage.parts:
        if tile < counts[part.number]:
            return part, tile
        tile -= counts[part.number]
    raise IndexError(tile)
