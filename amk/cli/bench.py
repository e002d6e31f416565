"""`amk bench`: tokens a second, against others in interleaved rounds."""

from __future__ import annotations

import argparse
from typing import Any

from amk.cli.common import (
    UsageError,
    add_dtype,
    add_json,
    add_model,
    command,
    positive,
    print_json,
    progress,
)

EXAMPLES = """\
  amk bench model.gguf --against roof
  amk bench model.gguf --against hf,torch-compile,llama.cpp,roof --threads 2 --json
  amk bench model.gguf --position 2000          how time a token grows with the cache

The roof is a bare matrix-vector loop over the same weights. llama.cpp is run through llama-bench,
found on the PATH or by AMK_LLAMA_BENCH. Ratios are medians over rounds in which all take turns.
"""


def register(subparsers: Any) -> None:
    parser = command(subparsers, "bench", run, "measure speed against others", EXAMPLES)
    add_model(parser)
    parser.add_argument(
        "--against", default="", metavar="LIST",
        help="some of hf, torch-compile, llama.cpp, roof, by commas",
    )  # fmt: skip
    add_dtype(parser, "bf16")
    parser.add_argument("--threads", type=positive, default=2, metavar="N", help="default 2")
    parser.add_argument("--tokens", type=positive, default=32, metavar="N", help="a round")
    parser.add_argument("--rounds", type=positive, default=7, metavar="N")
    parser.add_argument("--max-seq", type=positive, metavar="N", help="positions of the cache")
    parser.add_argument(
        "--position", type=positive, metavar="P", help="also time a token after P others"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    from amk.runtime.bench import CONTENDERS, bench
    from amk.runtime.source import open_source

    against = [name for name in options.against.split(",") if name]
    for name in against:
        if name not in CONTENDERS:
            raise UsageError(f"unknown contender {name!r}; known: {', '.join(CONTENDERS)}")
    if len(set(against)) != len(against):
        raise UsageError("--against names a contender twice")
    source = open_source(options.model)
    with progress() as report:
        found = bench(
            source, against, options.dtype, options.threads, options.tokens, options.rounds,
            options.max_seq, options.position, report,
        )  # fmt: skip
    if options.json:
        print_json(found.to_dict())
    else:
        print(table(found))
    return 0


def table(found: Any) -> str:
    lines = [f"{'':14} {'tokens/s':>10} {'amk is':>10}"]
    for row in found.rows:
        times = "" if row.name == "amk" else f"{row.amk_over_it:.2f} x"
        lines.append(f"{row.name:14} {row.tokens_per_s:10.1f} {times:>10}")
    if found.scaling is not None:
        s = found.scaling
        lines.append(
            f"position {s.position}: {s.time_ratio:.3f} x the time at 0, "
            f"{s.bytes_ratio:.3f} x the bytes: {s.over_bytes:.3f}"
        )
    lines.append(
        f"{found.model}, {found.dtype}, {found.threads} threads, "
        f"{found.rounds} rounds of {found.tokens} tokens"
    )
    return "\n".join(lines)
