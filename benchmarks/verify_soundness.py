"""Soundness of `verify-mk`: compares it with the oracle on many generated programs.

    python benchmarks/verify_soundness.py [--programs 20000] [--first 0]

Prints how many programs were accepted and rejected and by which rules, how many accepted ones
misbehaved under the oracle (must be 0), and each rejection without a witness (should be none).
Exits with 1 when there is either. About eleven minutes of one core for 20,000 programs.
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first program")
    arguments = parser.parse_args()
    totals: Counter[str] = Counter()
    start = time.perf_counter()
    for number in range(arguments.programs):
        seed = arguments.first + number
        if number and number % 1000 == 0:
            print(f"{number} programs", file=sys.stderr, flush=True)
        text = random_plan(seed).text()
        try:
            program = program_of(text)
        except VerifyException:
            totals["refused by the dialect"] += 1
            continue
        outcome = compare(program, seed)
        outcome.count(totals)
        if outcome.unsound:
            print(f"seed {seed}: accepted, but {outcome.unsound}")
        for finding in outcome.false:
            print(f"seed {seed}: no witness of {finding}")
    seconds = time.perf_counter() - start
    print(f"{'programs':<24}{arguments.programs}, {seconds:.0f} s")
    for name in ("accepted", "rejected", "refused by the dialect"):
        print(f"{name:<24}{totals[name]}")
    print(f"accepted, but misbehaving     {totals['unsound']}")
    print(f"rejected without a witness    {totals['false rejections']}")
    rules = sorted((k for k in totals if k.startswith("V")), key=lambda k: int(k[1:]))
    print("rejected by  " + "  ".join(f"{rule} {totals[rule]}" for rule in rules))
    return 1 if totals["unsound"] or totals["false rejections"] else 0


if __name__ == "__main__":
    sys.exit(main())
