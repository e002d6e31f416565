"""Soundness of `verify-mk`: compares it with the oracle on many generated programs.

    python benchmarks/verify_soundness.py [--programs 20000] [--first 0] [--log FILE]

Prints how many programs were accepted and rejected and by which rules, how many accepted ones
misbehaved under the oracle (must be 0), and each rejection without a witness (should be none), with
its reason. Exits with 1 when there is either. With `--log` the counts so far are kept in a file, so
that a run that is stopped is not lost. About half an hour of one core for 20,000 programs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from xdsl.utils.exceptions import VerifyException

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.property.mk_programs import random_plan
from tests.property.soundness import compare, program_of

STEPS = ("any number of steps", "against several steps")
EVERY = 250
"""Programs between two entries in the log."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first program")
    parser.add_argument("--log", type=Path, help="a file for the counts so far")
    arguments = parser.parse_args()
    totals: Counter[str] = Counter()
    trouble: list[str] = []
    start = time.perf_counter()
    for number in range(arguments.programs):
        judge(arguments.first + number, totals, trouble)
        done = number + 1
        if done % EVERY == 0 or done == arguments.programs:
            text = summary(done, time.perf_counter() - start, totals, trouble)
            if arguments.log is not None:
                replace(arguments.log, text)
            print(f"{done} programs", file=sys.stderr, flush=True)
    print(summary(arguments.programs, time.perf_counter() - start, totals, trouble), end="")
    return 1 if totals["unsound"] or totals["false rejections"] else 0


def judge(seed: int, totals: Counter[str], trouble: list[str]) -> None:
    """Adds one program to the counts, and to `trouble` what should not be."""
    try:
        program = program_of(random_plan(seed).text())
    except VerifyException:
        totals["refused by the dialect"] += 1
        return
    outcome = compare(program, seed)
    outcome.count(totals)
    if outcome.unsound:
        trouble.append(f"seed {seed}: accepted, but {outcome.unsound}")
    trouble += [f"seed {seed}: no witness of {finding}" for finding in outcome.false]


def summary(done: int, seconds: float, totals: Counter[str], trouble: list[str]) -> str:
    rules = sorted((k for k in totals if k.startswith("V")), key=lambda k: int(k[1:]))
    names = ("accepted", "rejected", "refused by the dialect", *STEPS)
    good = totals["accepted"] - totals["unsound"]
    lines = [
        *trouble,
        f"{'programs':<28}{done}, {seconds:.0f} s",
        *(f"{name:<28}{totals[name]}" for name in names),
        f"{'accepted, no misbehaviour':<28}{good} of {totals['accepted']}",
        f"{'findings, each witnessed':<28}{totals['findings'] - totals['false rejections']} of"
        f" {totals['findings']}",
        f"{'accepted, but misbehaving':<28}{totals['unsound']}",
        f"{'findings without a witness':<28}{totals['false rejections']}",
        "programs rejected by  " + "  ".join(f"{rule} {totals[rule]}" for rule in rules),
    ]
    return "\n".join(lines) + "\n"


def replace(path: Path, text: str) -> None:
    """Writes a file by rename, so that it is never half there."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.replace(path)


if __name__ == "__main__":
    sys.exit(main())
