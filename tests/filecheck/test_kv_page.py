"""The page of the kv dialect shows what the passes really do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from amk.ir import parse_module
from amk.passes import run_pipeline

PAGE = Path(__file__).parents[2] / "docs" / "dialects" / "kv.md"
BLOCK = re.compile(r"```mlir\n(.*?)\n```", re.DOTALL)
EXCERPT = re.compile(r"```mlir-excerpt\n(.*?)\n```", re.DOTALL)
COMMAND = re.compile(r"`amk-opt -p '([^']+)'`")
ALIAS = re.compile(r"!cache = (.*)\n")

TEXT = PAGE.read_text(encoding="utf-8")
SOURCE, *_ = BLOCK.findall(TEXT)
EXCERPTS = EXCERPT.findall(TEXT)
COMMANDS = COMMAND.findall(TEXT)


def test_each_excerpt_has_its_command() -> None:
    assert len(COMMANDS) == len(EXCERPTS) == 3


@pytest.mark.parametrize(("command", "excerpt"), list(zip(COMMANDS, EXCERPTS, strict=False)))
def test_excerpt_is_true(command: str, excerpt: str) -> None:
    """Its lines come in this order, one after the other except where it says `…`."""
    module = parse_module(SOURCE)
    run_pipeline(module, command)
    printed = [line.strip() for line in str(module).splitlines()]
    alias = ALIAS.match(excerpt)
    if alias is not None:
        excerpt = excerpt[alias.end() :].replace("!cache", alias[1])
    at, free = 0, True
    for line in map(str.strip, excerpt.splitlines()):
        if line == "…":
            free = True
            continue
        found = printed.index(line, at)
        assert free or found == at, line
        at, free = found + 1, False
