"""Speculative against plain greedy decoding, on a text that repeats itself.

    python benchmarks/speculate.py [MODEL] [--tokens N] [--rounds N]

Both run in one process on one compiled program, round by round in turn; their tokens must agree.
Prints tokens a second of each (best round), their ratio, and the bytes of the cache.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from find_model import find_model

from amk.compiler import compile
from amk.runtime.generate import decode
from amk.runtime.source import open_source
from amk.runtime.speculate import Speculation, speculate

TEXT = (
    "The cat sat on the mat. The dog sat on the log. The cat sat on the mat. The dog sat on the "
    "log. The cat sat on the mat. The dog sat on the log. The cat sat on the mat."
)


def timed(run: Callable[[], list[int]]) -> tuple[float, list[int]]:
    start = time.perf_counter()
    made = run()
    return time.perf_counter() - start, made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-seq", type=int, default=8192)
    parser.add_argument("--text", default=TEXT)
    options = parser.parse_args()
    source = open_source(options.model or str(find_model()))
    program = compile(source, max_seq=options.max_seq, speculate=True)
    prompt = source.tokenizer().encode(options.text)
    with program.session(source) as session:
        best = {"plain": float("inf"), "speculative": float("inf")}
        report = Speculation()
        for _ in range(options.rounds):
            made = {}
            for name, run in (("plain", decode), ("speculative", speculate)):
                session.reset()
                first = session.prefill(prompt[:-1])
                assert first is not None
                extra = {"report": report} if name == "speculative" else {}
                seconds, made[name] = timed(
                    lambda run=run, extra=extra: run(session, prompt[-1:], options.tokens, **extra)
                )
                best[name] = min(best[name], seconds)
            assert made["plain"] == made["speculative"], "the tokens differ"
        for name, seconds in best.items():
            print(f"{name}: {options.tokens / seconds:.1f} tokens/s")
        print(f"ratio: {best['plain'] / best['speculative']:.2f}")
        print(f"kept {report.kept} of {report.proposed} proposed, {report.checks} checks")
        print(f"cache: {session.cache_bytes() / 1e6:.2f} MB at {session.length} positions")


if __name__ == "__main__":
    main()
