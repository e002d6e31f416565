"""`amk eval`: how well a compiled model predicts a text, and how close it is to HuggingFace."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
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
    usage,
)
from amk.errors import AmkError

EXAMPLES = """\
  amk eval model.gguf --text chapter.txt
  amk eval model.gguf --text chapter.txt --dtype bf16 --tokens 1024 --json
"""

DEFAULT_TOKENS = 2048


def register(subparsers: Any) -> None:
    parser = command(
        subparsers, "eval", run, "measure perplexity, and KL to HuggingFace's float32", EXAMPLES
    )
    add_model(parser)
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="UTF-8 text")
    parser.add_argument(
        "--tokens", type=positive, default=DEFAULT_TOKENS, metavar="N",
        help=f"use the first N tokens of the text (default {DEFAULT_TOKENS})",
    )  # fmt: skip
    parser.add_argument("--max-seq", type=positive, metavar="N", help="positions of the cache")
    add_dtype(parser)
    parser.add_argument("--threads", type=positive, metavar="N", help="workers (default: all CPUs)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    from amk.compiler import options_for
    from amk.runtime.backends import Settings, open_decoder
    from amk.runtime.source import open_source

    text = read_text(options.text)
    source = open_source(options.model)
    with usage():
        limit = options_for(source, "cpu", options.max_seq, options.dtype).max_seq
    ids = source.tokenizer().encode(text)[: options.tokens]
    if len(ids) < 2:
        raise UsageError(f"{options.text} holds {len(ids)} tokens: two are needed to predict one")
    if len(ids) > limit:
        raise UsageError(f"{len(ids)} tokens exceed max_seq {limit}: give --tokens or --max-seq")
    with progress() as report:
        settings = Settings(
            max_seq=options.max_seq, dtype=options.dtype, threads=options.threads, report=report
        )
        with open_decoder("native", source, settings) as decoder:
            from amk.runtime.evaluate import evaluate
            from amk.runtime.verify import eager_model

            report("loading the model in transformers")
            eager = eager_model(source)
            found = evaluate(decoder, eager, ids, source.name, options.dtype, report)
    if options.json:
        print_json({**found.to_dict(), "text": str(options.text)})
    else:
        print(table(found))
    return 0


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise AmkError(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from error
    except UnicodeDecodeError as error:
        raise AmkError(f"{path} is not UTF-8 text (byte {error.start})") from error


def table(found: Any) -> str:
    """The three runs as rows, and the ratios below."""
    from amk.runtime.evaluate import MEAN_BAR, P95_BAR

    rows = [("amk", found.dtype, found.amk), ("HuggingFace", "f32", found.hf_f32)]
    if found.hf_dtype is not None:
        rows.append(("HuggingFace", found.dtype, found.hf_dtype))
    lines = [f"{'':16} {'NLL':>8} {'perplexity':>11} {'KL mean':>11} {'KL p95':>11}"]
    for who, dtype, fit in rows:
        measured = (fit.kl_mean, fit.kl_p95)
        shown = " ".join(f"{'-' if v is None else format(v, '.3e'):>11}" for v in measured)
        lines.append(f"{who + ' ' + dtype:16} {fit.nll:8.4f} {fit.perplexity:11.3f} {shown}")
    if found.mean_ratio is not None and found.p95_ratio is not None:
        lines.append(
            f"KL over HuggingFace's own in {found.dtype}: mean {found.mean_ratio:.3f} "
            f"(bar {MEAN_BAR}), p95 {found.p95_ratio:.3f} (bar {P95_BAR})"
        )
    lines.append(f"{found.tokens} tokens")
    return "\n".join(lines)
