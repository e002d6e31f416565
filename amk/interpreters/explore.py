"""The oracle: launches of an `mk` program over many interleavings, on shadow memory.

It knows nothing of the rules `verify-mk` proves; it only runs programs and watches. Steps are
taking a tile, entering a stage (its waits, then its prologue), and running a tile (its waits, its
body, its signals). `explore` tries every order of steps that differs in who took which tile or in
which signals a wait saw (sleep sets leave out the others); `sample` tries sequential, adversarial
and random ones.

The adversary gives every tile to a worker of its own, so that nothing but events orders memory,
and fills rings as far ahead as they allow; `hold` makes one tile wait for as long as others can
run.

A launch may take several steps: a step ends when the tile that writes the output `next` does, and
every worker waits for that before it begins the next.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from amk.interpreters.mk_order import Counters, Group, Tile, tiles_of
from amk.interpreters.shadow import Fault, Shadow, Touch, touches
from amk.ir import mk
from amk.ir.lm import shape_of

Key = tuple[str, object]
Choose = Callable[[Sequence[int], "Launch"], int]


@dataclass(eq=False)
class Ring:
    """One worker's ring: how many pieces it has consumed of how many its list has."""

    slots: int
    ahead: int
    total: int
    used: int = 0


class Script:
    """What a program does to memory, tile by tile, looked up once for all launches of it."""

    def __init__(self, program: mk.ProgramOp):
        self.program = program
        self.known: dict[int, list[Tile]] = {}
        self.bodies: dict[Tile, list[Touch]] = {}
        self.prologues: dict[tuple[mk.StageOp, int], list[Touch]] = {}
        self.streams: dict[mk.PartOp, list[mk.MatmulOp]] = {}

    def tiles(self, past: int) -> list[Tile]:
        """The tiles of all stages at a position, in order."""
        if past not in self.known:
            stages = self.program.stages()
            self.known[past] = [t for stage in stages for t in tiles_of(stage, past)]
        return self.known[past]

    def body(self, tile: Tile) -> list[Touch]:
        if tile not in self.bodies:
            self.bodies[tile] = touches(tile.part.body.block.ops, tile.env)
        return self.bodies[tile]

    def prologue(self, stage: mk.StageOp, past: int) -> list[Touch]:
        key = (stage, past)
        if key not in self.prologues:
            self.prologues[key] = touches(stage.prologue.block.ops, {"P": past})
        return self.prologues[key]

    def streamed(self, part: mk.PartOp) -> list[mk.MatmulOp]:
        """The matmuls of a tile whose weights pass through a ring."""
        if part not in self.streams:
            ops = part.body.block.ops
            self.streams[part] = [
                op for op in ops if isinstance(op, mk.MatmulOp) and op.stream is not None
            ]
        return self.streams[part]


class Launch:
    """One launch, a step at a time. `enabled` lists the workers that can take a step."""

    def __init__(
        self,
        program: mk.ProgramOp,
        past: int,
        workers: int,
        counters: Counters | None = None,
        steps: int = 1,
        script: Script | None = None,
    ):
        self.program = program
        self.script = Script(program) if script is None else script
        self.past = past
        self.more = steps - 1
        self.maker = maker_of(program)
        self.static = program.static_workers is not None
        self.workers = program.static_workers or workers
        self.shadow = Shadow(program, past, self.workers, steps)
        self.counters = Counters(program) if counters is None else counters
        self.rings: dict[tuple[int, SSAValue], Ring] = {}
        self.begin()
        if self.static:
            self.open_rings(steps)

    def begin(self) -> None:
        """The tiles of a step, nobody's yet."""
        tiles = self.tiles = self.script.tiles(self.past)
        self.counters.begin(self.past, tiles)
        self.released: dict[Group, object] = {}
        self.queue = list(reversed(tiles))
        self.own: list[list[Tile]] = [[] for _ in range(self.workers)]
        if self.static:
            for tile in self.queue:
                self.own[tile.worker(self.workers)].append(tile)
        self.tile: list[Tile | None] = [None] * self.workers
        self.stage: list[mk.StageOp | None] = [None] * self.workers

    def busy(self) -> bool:
        """Is any tile of this step unfinished?"""
        left = any(self.own) if self.static else bool(self.queue)
        return left or any(t is not None for t in self.tile)

    def next_step(self, worker: int) -> None:
        """`worker` has written the token: every worker may go on to the next step."""
        self.more -= 1
        if self.busy():
            self.shadow.fault("step", f"a tile at P = {self.past} may run in the next step")
            self.more = 0
            return
        self.settle()
        token = self.shadow.release(worker)
        for other in range(self.workers):
            self.shadow.acquire(other, token)
        self.past += self.shadow.tokens
        self.shadow.next_step()
        self.begin()

    # ---- steps of workers ----

    def next_keys(self, worker: int) -> frozenset[Key] | None:
        """What a worker's next step shares with other workers: the ticket, or groups it waits for
        or counts towards. None when it has no step."""
        tile = self.tile[worker]
        if tile is None:
            left = self.own[worker] if self.static else self.queue
            if not left:
                return None
            return frozenset() if self.static else frozenset([("ticket", 0)])
        if self.stage[worker] is not tile.stage:
            return frozenset(("group", g) for g in self.stage_groups(tile.stage))
        step: list[Key] = [("step", 0)] if self.more else []
        if self.more and tile.part is self.maker:
            step.append(("ticket", 0))
        return frozenset([*step, *(("group", g) for g in (*tile.waits(), *tile.signals()))])

    def stage_groups(self, stage: mk.StageOp) -> list[Group]:
        return [(e, g) for e in stage.waits for g in range(self.counters.groups[e])]

    def enabled(self) -> list[int]:
        found: list[int] = []
        for worker in range(self.workers):
            tile = self.tile[worker]
            if tile is None:
                ready = bool(self.own[worker] if self.static else self.queue)
            elif self.stage[worker] is not tile.stage:
                ready = all(self.met(g) for g in self.stage_groups(tile.stage))
            else:
                ready = all(self.met(g) for g in tile.waits())
            if ready:
                found.append(worker)
        return found

    def met(self, group: Group) -> bool:
        return group not in self.counters.targets or self.counters.complete(group)

    def step(self, worker: int) -> None:
        tile = self.tile[worker]
        if tile is None:
            self.tile[worker] = (self.own[worker] if self.static else self.queue).pop()
            return
        self.shadow.tick(worker)
        if self.stage[worker] is not tile.stage:
            self.acquire(worker, self.stage_groups(tile.stage))
            self.stage[worker] = tile.stage
            self.touch(worker, self.script.prologue(tile.stage, self.past))
            return
        self.acquire(worker, tile.waits())
        self.touch(worker, self.script.body(tile))
        for op in self.script.streamed(tile.part) if self.static else ():
            self.consume(worker, op)
        for group in tile.signals():
            if group not in self.counters.targets:
                self.shadow.fault("group", f"a signal of group {group[1]}, which is not there")
            clock = self.shadow.release(worker)
            before = self.released.get(group)
            self.released[group] = clock if before is None else clock.clip(min=before)  # type: ignore[arg-type]
        self.counters.finish(tile)
        self.tile[worker] = None
        if self.more and tile.part is self.maker:
            self.next_step(worker)

    def touch(self, worker: int, found: list[Touch]) -> None:
        for write, value, low, high in found:
            (self.shadow.write if write else self.shadow.read)(worker, value, low, high)

    def acquire(self, worker: int, groups: list[Group]) -> None:
        for group in groups:
            if group not in self.counters.targets:
                self.shadow.fault("group", f"a wait for group {group[1]}, which is not there")
            released = self.released.get(group)
            if released is not None:
                self.shadow.acquire(worker, released)  # type: ignore[arg-type]

    def finish(self) -> list[Fault]:
        """Faults of a launch in which no worker can take a step any more."""
        if self.busy():
            self.shadow.fault("hang", f"every worker waits at P = {self.past}")
            return self.shadow.faults
        self.settle()
        return self.shadow.faults

    def settle(self) -> None:
        """What a step owes once its tiles are done."""
        self.shadow.finish()
        for group, target in self.counters.targets.items():
            if self.counters.counts[group] != target:
                what = f"group {group[1]} ends at {self.counters.counts[group]}, not {target}"
                self.shadow.fault("counter", what)

    # ---- rings ----

    def open_rings(self, steps: int) -> None:
        """The pieces of all steps: a ring is filled ahead of the token too."""
        for step in range(steps):
            past = self.past + step * self.shadow.tokens
            for tile in self.script.tiles(past):
                worker = tile.worker(self.workers)
                for op in self.script.streamed(tile.part):
                    assert op.stream is not None
                    stream = op.stream.owner
                    assert isinstance(stream, mk.StreamOp)
                    slots, ahead = stream.slots.value.data, stream.lookahead
                    ring = self.rings.setdefault((worker, op.stream), Ring(slots, ahead, 0))
                    ring.total += self.pieces(op, stream)

    def pieces(self, op: mk.MatmulOp, stream: mk.StreamOp) -> int:
        """Pieces of one tile, each of as many whole rows as fit a slot."""
        rows, depth = shape_of(op.result)[1], shape_of(op.input)[1]
        buffer = mk.buffer_of(op.weight)
        fit = stream.slot_bytes.value.data // (depth * buffer.type.element_bytes())
        if fit == 0:
            self.shadow.fault("ring", "a row does not fit a slot")
            return 1
        if buffer.kind.data not in ("weight", "constant"):
            self.shadow.fault("ring", "a slot is filled before its contents are written")
        return -(-rows // fit)

    def consume(self, worker: int, op: mk.MatmulOp) -> None:
        assert op.stream is not None
        stream = op.stream.owner
        assert isinstance(stream, mk.StreamOp)
        ring = self.rings[worker, op.stream]
        for _ in range(self.pieces(op, stream)):
            filled = min(ring.used + ring.ahead, ring.total)
            # The last piece filled into the slot that the next one to use should be in.
            holds = filled - 1 - (filled - 1 - ring.used) % ring.slots
            if holds != ring.used:
                self.shadow.fault("ring", f"slot of piece {ring.used} holds piece {holds}")
            ring.used += 1


def maker_of(program: mk.ProgramOp) -> mk.PartOp | None:
    """The part whose tile writes the token that the next step reads."""
    for stage in program.stages():
        for part in stage.part_ops():
            for op in part.body.block.ops:
                if isinstance(op, mk.StoreOp):
                    buffer = mk.buffer_of(op.buffer)
                    if (buffer.kind.data, buffer.source.data) == ("output", "next"):
                        return part
    return None


# ---- schedules ----------------------------------------------------------------------------


def run(launch: Launch, choose: Choose) -> list[Fault]:
    """Steps until nobody can; `choose` picks one of the enabled workers."""
    while ready := launch.enabled():
        launch.step(choose(ready, launch))
    return launch.finish()


def tile_count(program: mk.ProgramOp, past: int) -> int:
    return sum(len(tiles_of(stage, past)) for stage in program.stages())


def first_ready(ready: Sequence[int], launch: Launch) -> int:
    return ready[0]


def last_ready(ready: Sequence[int], launch: Launch) -> int:
    return ready[-1]


def at_random(rng: random.Random) -> Choose:
    return lambda ready, launch: rng.choice(ready)


def idle_first(ready: Sequence[int], launch: Launch) -> int:
    """Hands out every tile before any runs: a tile a worker, if there are enough."""
    idle = [w for w in ready if launch.tile[w] is None]
    return idle[-1] if idle else ready[-1]


def fresh_first(ready: Sequence[int], launch: Launch) -> int:
    """As `idle_first`, and a worker that knows least: in each step another one a tile."""
    idle = [w for w in ready if launch.tile[w] is None]
    clock = launch.shadow.clock
    return min(idle, key=lambda w: int(clock[w, w])) if idle else ready[-1]


def sample(
    program: mk.ProgramOp,
    past: int,
    seed: int = 0,
    runs: int = 2,
    chained: bool = False,
    steps: int = 1,
    script: Script | None = None,
) -> list[Fault]:
    """Faults over one sequential, some adversarial and some random interleavings, stopping at the
    first with any. `chained` launches at P = 0 first, with counters that go on; each launch takes
    `steps` steps."""
    rng = random.Random(seed)
    script = Script(program) if script is None else script
    many = max(len(script.tiles(past)), 1) * steps
    tries: list[tuple[int, Choose]] = [(1, first_ready), (many, idle_first), (many, last_ready)]
    if steps > 1:
        tries.append((many, fresh_first))
    if program.static_workers is not None:
        tries = [(1, first_ready), (1, last_ready)]
    tries += [(rng.choice((2, 3, many)), at_random(rng)) for _ in range(runs)]
    for workers, choose in tries:
        counters = Counters(program)
        if chained and past:
            before = Launch(program, 0, 1, counters, 1, script)
            run(before, first_ready)
        faults = run(Launch(program, past, workers, counters, steps, script), choose)
        if faults:
            return faults
    return []


def hold(program: mk.ProgramOp, past: int, steps: int, script: Script | None = None) -> list[Fault]:
    """Faults when one tile of the first step, each in turn, waits until nothing else can run."""
    script = Script(program) if script is None else script
    count = len(script.tiles(past))
    for victim in range(count):
        launch = Launch(program, past, count * steps, None, steps, script)
        held = launch.tiles[victim]

        def choose(ready: Sequence[int], launch: Launch, held: Tile = held) -> int:
            others = [w for w in ready if launch.tile[w] is not held]
            return fresh_first(others or ready, launch)

        if faults := run(launch, choose):
            return faults
    return []


def explore(
    program: mk.ProgramOp,
    past: int,
    workers: int,
    limit: int = 10_000,
    steps: int = 1,
    script: Script | None = None,
) -> list[Fault]:
    """Faults over every interleaving of `workers` workers, up to the order of steps that share
    nothing; RuntimeError after `limit` launches."""
    launches, known = 0, Script(program) if script is None else script

    def replay(prefix: list[int]) -> Launch:
        nonlocal launches
        launches += 1
        if launches > limit:
            raise RuntimeError(f"more than {limit} launches")
        launch = Launch(program, past, workers, None, steps, known)
        for worker in prefix:
            launch.step(worker)
        return launch

    def visit(prefix: list[int], sleep: dict[int, frozenset[Key]]) -> Iterator[list[Fault]]:
        launch = replay(prefix)
        ready = launch.enabled()
        if not ready:
            yield launch.finish()
            return
        asleep = dict(sleep)
        for worker in ready:
            if worker in asleep:
                continue
            keys = launch.next_keys(worker)
            assert keys is not None
            free = {w: k for w, k in asleep.items() if not k & keys}
            yield from visit([*prefix, worker], free)
            asleep[worker] = keys

    for faults in visit([], {}):
        if faults:
            return faults
    return []
