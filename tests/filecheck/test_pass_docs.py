"""Each pass is documented by IR before and after, which is what the pass really does.

A page docs/passes/NAME.md starts with a ```mlir block, a line with `amk-opt -p '…'`, and a second
block: ```mlir with the result, or ```text with the error. The docstring of the pass file shows
the same two blocks.
"""

from __future__ import annotations

import importlib
import re
import textwrap
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from amk.errors import AmkError
from amk.ir import context
from amk.passes import PASSES, run_pipeline

PAGES = sorted((Path(__file__).parents[2] / "docs" / "passes").glob("*.md"))
BLOCK = re.compile(r"```(mlir|text)\n(.*?)\n```", re.DOTALL)
COMMAND = re.compile(r"`amk-opt -p '([^']+)'`")


def parse(text: str) -> ModuleOp:
    module = Parser(context(), text).parse_module()
    module.verify()
    return module


def plain(module: ModuleOp) -> str:
    """The text of a module without the names of its values."""
    for op in module.walk():
        for region in op.regions:
            for block in region.blocks:
                for argument in block.args:
                    argument.name_hint = None
        for result in op.results:
            result.name_hint = None
    module.attributes.clear()
    return str(module)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_page_is_true(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    (_, before), (kind, after), *_ = BLOCK.findall(text)
    command = COMMAND.search(text)
    assert command is not None, "no `amk-opt -p '…'` on the page"
    assert page.stem in command[1]
    module = parse(before)
    if kind == "text":
        with pytest.raises(AmkError) as caught:
            run_pipeline(module, command[1])
        assert str(caught.value) == after
        return
    run_pipeline(module, command[1])
    assert plain(module) == plain(parse(after))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_further_commands_are_true(page: Path) -> None:
    """Each command of a page, run on its first block, gives the block that follows it."""
    text = page.read_text(encoding="utf-8")
    before = BLOCK.search(text)
    assert before is not None
    at = before.end()
    for block in BLOCK.finditer(text, at):
        commands = COMMAND.findall(text, at, block.start())
        at = block.end()
        if commands and block[1] == "mlir":
            module = parse(before[2])
            run_pipeline(module, commands[-1])
            assert plain(module) == plain(parse(block[2])), commands[-1]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_docstring_shows_the_same(page: Path) -> None:
    (_, before), (_, after), *_ = BLOCK.findall(page.read_text(encoding="utf-8"))
    module = importlib.import_module(PASSES[page.stem]().__module__)
    document = textwrap.dedent(module.__doc__ or "")
    for block in (before, after):
        assert textwrap.indent(block, "    ") in document


@pytest.mark.parametrize("name", sorted(PASSES))
def test_registry(name: str) -> None:
    kind = PASSES[name]()
    assert kind.name == name
    if kind.__module__.startswith("amk."):
        expected = name.replace("-", "_") + ("_" if name == "raise" else "")
        assert kind.__module__ == f"amk.passes.{expected}"
