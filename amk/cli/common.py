"""What the subcommands share: options, checks of what was typed, progress, JSON."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amk.errors import AmkError

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

DTYPES = ("f32", "bf16", "f16")


class UsageError(Exception):
    """What was typed does not make sense; the command exits with 2."""


@contextmanager
def usage() -> Iterator[None]:
    """Around checks of what was typed: their ValueError or KeyError is a usage error."""
    try:
        yield
    except (ValueError, KeyError) as error:
        raise UsageError(str(error.args[0]) if error.args else str(error)) from error


def command(
    subparsers: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    examples: str,
) -> argparse.ArgumentParser:
    """A subcommand's parser, with its examples below the options."""
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="examples:\n" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="folder, .gguf file, hub id in the local cache, toy, toy-2L"
    )


def add_dtype(parser: argparse.ArgumentParser, default: str = "f32") -> None:
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default=default,
        help=f"storage dtype of weights and cache; arithmetic is f32 (default {default})",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, no more")


def positive(text: str) -> int:
    """An argparse type: an integer of one or more."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def write_file(path: Path, text: str) -> None:
    """Writes a text file that appears whole, by rename, or not at all."""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)
    except OSError as error:
        raise AmkError(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        os.unlink(temporary)
        raise AmkError(f"cannot write {path}: {error.strerror}") from error
    except BaseException:
        os.unlink(temporary)
        raise


def module_text(module: ModuleOp) -> str:
    """A module as text that keeps each op's location, the path of the module it came from."""
    from xdsl.printer import Printer

    stream = io.StringIO()
    Printer(stream=stream, print_debuginfo=True).print_op(module)
    return stream.getvalue() + "\n"


def mebibytes(nbytes: float) -> str:
    return f"{nbytes / 2**20:.1f} MiB"


def say(text: str) -> None:
    """A line for people."""
    print(text, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A `report(text)` that shows what long work is at, on stderr, when that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update
