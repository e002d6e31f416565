"""`amk targets`: the machines a program can be compiled for."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from amk.cli.common import add_json, command, print_json

EXAMPLES = "  amk targets\n  amk targets --json\n"


def register(subparsers: Any) -> None:
    parser = command(subparsers, "targets", run, "list the targets", EXAMPLES)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    from amk.targets import TARGETS

    if options.json:
        print_json({"targets": [asdict(target) for target in TARGETS.values()]})
        return 0
    width = max(map(len, TARGETS))
    for target in TARGETS.values():
        print(f"{target.name:{width}}  {target.summary}")
    return 0
