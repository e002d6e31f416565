"""`amk explain`: why a program is right or wrong, and what each wait of a stage is for.

A subcommand file as `amk/cli/main.py` lists them; reads IR in text form at the level of `mk`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amk.cli.common import UsageError, add_json, command, print_json
from amk.errors import AmkError

if TYPE_CHECKING:
    from amk.ir.mk import ProgramOp
    from amk.verify.needs import Awaited, Needs

EXAMPLES = """\
  amk explain decode.mlir                            the proof, or every reason against it
  amk explain decode.mlir --wait @attention_split    which hazard each of its waits prevents
  amk explain decode.mlir --wait 3 --json            of stage number 3, as JSON
"""


def register(subparsers: Any) -> None:
    parser = command(
        subparsers, "explain", run, "say why a scheduled program is right, or wrong", EXAMPLES
    )
    parser.add_argument("file", metavar="FILE", help="IR with mk programs, or - for stdin")
    parser.add_argument(
        "--wait", metavar="STAGE", help="why each wait of a stage, @name or number, is there"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    programs = read_programs(options.file)
    explain = explain_proof if options.wait is None else explain_waits
    answers = [answer for program in programs for answer in explain(program, options)]
    if not answers:
        raise UsageError(f"no stage {options.wait!r} that waits; name one as in the file")
    if options.json:
        print_json({"answers": [answer for answer, _ in answers]})
    else:
        print("\n".join(text for _, text in answers))
    return 0 if all(answer.get("holds", True) for answer, _ in answers) else 1


def read_programs(file: str) -> list[ProgramOp]:
    from xdsl.utils.exceptions import ParseError, VerifyException

    from amk.ir import parse_module
    from amk.ir.mk import ProgramOp
    from amk.passes import first_line, last_line, verify

    text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    try:
        module = parse_module(text, file)
        verify(module)
    except ParseError as error:
        raise AmkError(f"{file}: {last_line(error)}") from error
    except VerifyException as error:
        raise AmkError(f"{file}: {first_line(error)}") from error
    programs = [op for op in module.ops if isinstance(op, ProgramOp)]
    if not programs:
        raise AmkError(f"{file}: no mk.program; lower it first (amk-opt -p amk-decode)")
    return programs


Answer = tuple[dict[str, Any], str]


def explain_proof(program: ProgramOp, options: argparse.Namespace) -> Iterator[Answer]:
    from dataclasses import asdict

    from amk.verify import prove

    report = prove(program)
    yield {**asdict(report), "holds": report.holds}, report.summary()


def explain_waits(program: ProgramOp, options: argparse.Namespace) -> Iterator[Answer]:
    from amk.verify import prove
    from amk.verify.needs import Needs

    report = prove(program)
    if not report.holds:
        raise AmkError(f"{report.name} is wrong as it is: {report.findings[0]}")
    needs = Needs(program)
    for awaited in needs.waits():
        if is_stage(awaited, options.wait):
            yield answer(needs, awaited)


def is_stage(awaited: Awaited, wanted: str) -> bool:
    name = wanted.removeprefix("@")
    return name in (awaited.stage.name, str(awaited.stage.number))


def answer(needs: Needs, awaited: Awaited) -> Answer:
    finding = needs.without(awaited)
    signallers = list(dict.fromkeys(p.stage.name for p, _ in awaited.event.signallers))
    facts = {
        "wait": str(awaited),
        "signalled by": signallers,
        "needed": finding is not None,
        "without": None if finding is None else str(finding),
    }
    source = " and ".join(map(repr, signallers)) or "nobody"
    why = f"without it, {finding}" if finding else "not needed: the proof stands without it"
    return facts, f"{awaited}, signalled by {source}\n  {why}"
