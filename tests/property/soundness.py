"""Compares `verify-mk` with the oracle on one program.

Accepted programs must run without a fault at every position, under every schedule tried; tiny ones
under all of them, and twice with the same bits; programs proved for any number of steps a launch,
also with two. Each finding under V1 … V9 and V12 must have a
launch at its position in which the oracle sees a fault too, and each finding against several steps
a launch of two steps.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from amk.interpreters.explore import Script, explore, hold, sample
from amk.interpreters.mk import Machine
from amk.ir import mk, parse_module
from amk.passes import verify as verify_ir
from amk.verify import Finding, Report, prove
from amk.verify.findings import STEPS

TINY = 5
"""Tiles up to which every interleaving is tried, at one position; at all, with two tiles less."""
REPLAYED = {f"V{n}" for n in (*range(1, 10), 12)}


@dataclass
class Outcome:
    """`unsound`: the fault of an accepted program. `false`: findings without a witness, of the
    `replayed` ones that were looked for."""

    report: Report
    unsound: str = ""
    false: list[Finding] = field(default_factory=list)
    replayed: int = 0

    def count(self, totals: Counter[str]) -> None:
        totals["accepted" if self.report.holds else "rejected"] += 1
        if self.report.steps == STEPS[1]:
            totals["any number of steps"] += 1
        totals["against several steps"] += bool(self.report.step_findings)
        totals["findings"] += self.replayed
        totals["unsound"] += bool(self.unsound)
        totals["false rejections"] += len(self.false)
        for rule in {f.rule for f in self.report.findings}:
            totals[rule] += 1


def program_of(text: str) -> mk.ProgramOp:
    module = parse_module(text)
    verify_ir(module)
    return next(op for op in module.ops if isinstance(op, mk.ProgramOp))


def compare(program: mk.ProgramOp, seed: int = 0) -> Outcome:
    report = prove(program)
    if report.holds:
        wrong = misbehaviour(program, report.positions, seed)
        if not wrong and report.steps == STEPS[1]:
            wrong = misbehaviour_in_two_steps(program, report.positions, seed)
        steps = [f for f in report.step_findings if not stumbles(program, f, seed)]
        return Outcome(report, wrong, steps, len(report.step_findings))
    found = [f for f in report.findings if f.rule in REPLAYED]
    false = [f for f in found if not replays(program, f, seed)]
    return Outcome(report, "", false, len(found))


def monotonic(program: mk.ProgramOp) -> bool:
    return any(e.counter is not None and e.counter.data == "monotonic" for e in program.events())


def misbehaviour(program: mk.ProgramOp, positions: int, seed: int) -> str:
    """The first fault at any position, or ""."""
    script = Script(program)
    for past in range(positions):
        faults = sample(program, past, seed, runs=1, script=script)
        if not faults and monotonic(program):
            faults = sample(program, past, seed, runs=0, chained=True, script=script)
        tiny = TINY if past == seed % positions else TINY - 2
        if not faults and program.static_workers is None and len(script.tiles(past)) <= tiny:
            faults = explore(program, past, workers=2, script=script)
        if faults:
            return f"P = {past}: {faults[0]}"
    for past in {0, positions - 1}:
        if not same_bits(program, past):
            return f"P = {past}: two interleavings give two results"
    return ""


def misbehaviour_in_two_steps(program: mk.ProgramOp, positions: int, seed: int) -> str:
    """The first fault of a launch of two steps, or ""."""
    script = Script(program)
    for past in range(positions - 1):
        faults = sample(program, past, seed, runs=1, steps=2, script=script)
        if not faults and monotonic(program):
            faults = sample(program, past, seed, 0, chained=True, steps=2, script=script)
        if not faults and past == seed % (positions - 1):
            faults = hold(program, past, 2, script)
        tiny = past == 0 and len(script.tiles(past)) <= TINY - 2
        if not faults and program.static_workers is None and tiny:
            faults = explore(program, past, workers=2, steps=2, script=script)
        if faults:
            return f"two steps from P = {past}: {faults[0]}"
    return ""


def stumbles(program: mk.ProgramOp, finding: Finding, seed: int) -> bool:
    """Does a launch of two steps go wrong where the finding says?"""
    past = finding.position
    return bool(sample(program, past, seed, steps=2) or hold(program, past, steps=2))


def replays(program: mk.ProgramOp, finding: Finding, seed: int) -> bool:
    """Does the oracle see a fault where the finding says?"""
    past = finding.position
    return bool(
        sample(program, past, seed, runs=3) or sample(program, past, seed, runs=0, chained=True)
    )


def same_bits(program: mk.ProgramOp, past: int) -> bool:
    """V11: the claimed order and a shuffled one on three workers give the same bits."""
    rng = np.random.default_rng(0)
    weights = {
        b.source.data: rng.normal(size=b.type.get_shape()).astype(np.float32)
        for b in program.buffers()
        if b.kind.data == "weight"
    }
    tokens = np.zeros(program.tokens.value.data, np.int64)
    results = []
    for seed in (None, 7):
        caches = {
            b.source.data: np.ones(rows(b, program), np.float32)
            for b in program.buffers()
            if b.kind.data == "cache"
        }
        machine = Machine(program, weights, caches)
        out = machine.launch(tokens, past, workers=3, seed=seed).copy()
        results.append([out, *caches.values()])
    return all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


def rows(buffer: mk.BufferOp, program: mk.ProgramOp) -> list[int]:
    longest = buffer.ring_rows or program.max_seq.value.data
    return [longest if d == -1 else d for d in buffer.type.get_shape()]
