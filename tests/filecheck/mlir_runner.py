"""Runs the RUN lines of a .mlir file in this process.

    // RUN: amk-opt %s -p canonicalize | filecheck %s
    // RUN: not amk-opt %s -p 'split-kv{chunk=0}' 2>&1 | filecheck %s --check-prefix=BAD

A RUN line is a pipe of `amk-opt` commands that ends in `filecheck`. `%s` is the file, `not`
expects exit code 1 (and `not 2` exit code 2), `2>&1` sends stderr down the pipe too. There is no
shell and no process to start, which is what makes hundreds of files cheap.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
from pathlib import Path

from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options, parse_argv_options
from filecheck.parser import Parser, pattern_for_opts

from amk.cli.opt import main as amk_opt


class FileCheckFailure(AssertionError):
    """A RUN line did not do what it says."""


def run_lines(text: str) -> list[str]:
    """The commands of the RUN lines in `text`."""
    return [
        line.split("RUN:", 1)[1].strip()
        for line in text.splitlines()
        if line.lstrip().startswith("// RUN:")
    ]


def split_pipe(command: str) -> list[list[str]]:
    """The words of each command of a pipe."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def run_file(path: Path) -> None:
    """Runs every RUN line of `path`; raises FileCheckFailure for the first that fails."""
    lines = run_lines(path.read_text(encoding="utf-8"))
    if not lines:
        raise FileCheckFailure(f"{path.name} has no RUN line")
    for line in lines:
        run_pipe(path, line)


def run_pipe(path: Path, line: str) -> None:
    *commands, check = split_pipe(line.replace("%s", str(path)))
    if not commands or check[:1] != ["filecheck"]:
        raise FileCheckFailure(f"a RUN line is amk-opt … | filecheck %s, not: {line}")
    text = ""
    for words in commands:
        text = run_opt(words, text)
    check_text(check, text)


def run_opt(words: list[str], stdin: str) -> str:
    """What one `amk-opt` command sends down the pipe."""
    expected = 0
    if words[0] == "not":
        words, expected = (words[2:], 2) if words[1] == "2" else (words[1:], 1)
    both = "2>&1" in words
    words = [w for w in words if w != "2>&1"]
    if words[0] != "amk-opt":
        raise FileCheckFailure(f"a RUN line starts amk-opt only, not {words[0]}")
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out if both else err),
        standard_input(stdin),
    ):
        try:
            code = amk_opt(words[1:])
        except SystemExit as e:  # argparse leaves this way
            code = int(e.code or 0)
    if code != expected:
        printed = err.getvalue() + out.getvalue()
        raise FileCheckFailure(f"{shlex.join(words)} exits with {code}, not {expected}\n{printed}")
    return out.getvalue()


@contextlib.contextmanager
def standard_input(text: str):
    saved = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
    try:
        yield
    finally:
        sys.stdin = saved


def check_text(words: list[str], text: str) -> None:
    options = parse_argv_options(list(words))
    checks = Parser.from_opts(options)
    matcher = Matcher(options, FInput("stdin", text), checks)
    matcher.stderr = report = io.StringIO()
    if matcher.run() != 0:
        raise FileCheckFailure(f"{report.getvalue()}\nThe output was:\n{text}")


def checks_of(path: Path, line: str) -> int:
    """How many check directives the `filecheck` of a RUN line finds in `path`."""
    options: Options = parse_argv_options(split_pipe(line.replace("%s", str(path)))[-1])
    text = io.StringIO(path.read_text(encoding="utf-8"))
    return sum(1 for _ in Parser(options, text, *pattern_for_opts(options)))
