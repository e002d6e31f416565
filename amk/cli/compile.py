"""`amk compile`: a model through every level, each in a file."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from amk.cli.common import (
    add_dtype,
    add_json,
    add_model,
    command,
    module_text,
    positive,
    print_json,
    progress,
    say,
    usage,
)
from amk.errors import AmkError

EXAMPLES = """\
  amk compile toy -o out
  amk-opt out/decode/03-raise.mlir -p split-init       resume at any level
  amk compile model.gguf --dtype bf16 --max-seq 4096   into the cache alone
"""


def register(subparsers: Any) -> None:
    parser = command(subparsers, "compile", run, "compile a model for a target", EXAMPLES)
    add_model(parser)
    parser.add_argument(
        "--target", default="cpu", metavar="T", help="see `amk targets`; cuda is this machine's GPU"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR",
        help="the IR of every level, the source and the binary; replaces what amk left there",
    )  # fmt: skip
    add_dtype(parser)
    parser.add_argument("--max-seq", type=positive, metavar="N", help="longest sequence")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    from amk import compiler
    from amk.runtime.backends import resolve_target
    from amk.runtime.source import open_source

    with usage():
        options.target = resolve_target(options.target).name
    if options.output is not None:
        check_replaceable(options.output)
    source = open_source(options.model)
    start = time.perf_counter()
    with usage():
        chosen = compiler.options_for(source, options.target, options.max_seq, options.dtype)
    with progress() as report:

        def on_pass(name: str, module: Any, seconds: float) -> None:
            report(f"compiling {source.name}: {name}")

        if options.output is None:
            arguments = (source, options.target, options.max_seq, options.dtype)
            folder = compiler.compile(*arguments, on_pass=on_pass).folder
        else:
            folder = compile_into(options.output, source, chosen, on_pass)
    seconds = time.perf_counter() - start
    if options.json:
        print_json(summary(folder, source.name, chosen, seconds))
    else:
        say(f"compiled {source.name} for {options.target} in {seconds:.1f} s: {folder}")
    return 0


def summary(folder: Path, model: str, chosen: Any, seconds: float) -> dict[str, Any]:
    files = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    return {
        "model": model,
        "target": chosen.target,
        "dtype": chosen.dtype,
        "max_seq": chosen.max_seq,
        "tokens": list(chosen.tokens),
        "folder": str(folder),
        "files": files,
        "seconds": seconds,
    }


def compile_into(folder: Path, source: Any, chosen: Any, on_pass: Any) -> Path:
    """Compiles beside `folder`, which then takes its name from the finished work by rename."""
    from amk import compiler

    parent = folder.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=parent))
    except OSError as error:
        raise AmkError(f"cannot write {folder}: {error.strerror}") from error
    try:
        levels = Levels(beside, on_pass)
        compiler.build(source, chosen, beside, levels)
        os.chmod(beside, 0o755)
        replace_folder(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


class Levels:
    """Writes the module after each pass: `decode/00-import.mlir`, `decode/01-…`, `prefill/…`."""

    def __init__(self, folder: Path, then: Any):
        self.folder = folder
        self.then = then
        self.written: dict[str, int] = {}

    def __call__(self, name: str, module: Any, seconds: float) -> None:
        kind = "decode" if module.attributes["amk.tokens"].value.data == 1 else "prefill"
        number = self.written.get(kind, 0)
        self.written[kind] = number + 1
        (self.folder / kind).mkdir(exist_ok=True)
        (self.folder / kind / f"{number:02d}-{name}.mlir").write_text(module_text(module))
        self.then(name, module, seconds)


def check_replaceable(folder: Path) -> None:
    """AmkError unless `folder` is absent, empty, or what an earlier compile left."""
    from amk.runtime.program import MANIFEST

    if not folder.exists():
        return
    if not folder.is_dir():
        raise AmkError(f"{folder} is a file: give -o a folder")
    if any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise AmkError(f"{folder} holds other files: give -o a new or an empty folder")


def replace_folder(new: Path, folder: Path) -> None:
    """Gives `new` the name `folder`; what had it is moved away first and removed after."""
    if not folder.exists():
        os.rename(new, folder)
        return
    old = new.with_name(new.name + ".old")
    os.rename(folder, old)
    try:
        os.rename(new, folder)
    except BaseException:
        os.rename(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
