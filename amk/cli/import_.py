"""`amk import`: a model as a module of the lm dialect."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from amk.cli.common import (
    add_dtype,
    add_model,
    command,
    module_text,
    positive,
    progress,
    say,
    write_file,
)

EXAMPLES = """\
  amk import toy                                       decode, one new token, to stdout
  amk import model.gguf --tokens 16 -o prefill.mlir    sixteen new tokens, to a file
  amk import toy | amk-opt -p canonicalize,raise
"""


def register(subparsers: Any) -> None:
    parser = command(subparsers, "import", run, "import a model as lm IR", EXAMPLES)
    add_model(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: stdout")
    parser.add_argument(
        "--tokens", type=positive, default=1, metavar="S", help="new tokens a launch (default 1)"
    )
    add_dtype(parser)


def run(options: argparse.Namespace) -> int:
    from amk.runtime.source import open_source

    source = open_source(options.model)
    with progress() as report:
        report(f"importing {source.name}")
        from amk.frontend.hf import import_model

        module = import_model(source.importable(), options.tokens, options.dtype)
        text = module_text(module)
    if options.output is None:
        print(text, end="")
    else:
        write_file(options.output, text)
        say(f"wrote {options.output}")
    return 0
