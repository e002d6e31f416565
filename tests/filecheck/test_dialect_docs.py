"""The pages of lm and mk: examples verify, and no op and no constraint is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_pass_docs import BLOCK, parse
from xdsl.ir import Dialect

from amk.ir.lm import LM
from amk.ir.mk import MK
from amk.passes import verify

ROOT = Path(__file__).parents[2]
PAGES = {dialect.name: ROOT / "docs" / "dialects" / f"{dialect.name}.md" for dialect in (LM, MK)}
DIALECTS = {d.name: d for d in (LM, MK)}
LETTERS = {"lm": "L", "mk": "M"}


def page(name: str) -> str:
    return PAGES[name].read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_examples(name: str) -> None:
    blocks = BLOCK.findall(page(name))
    assert blocks
    for _, text in blocks:
        module = parse(text)
        verify(module)
        assert str(parse(str(module))) == str(module)


@pytest.mark.parametrize("name", PAGES)
def test_every_op_has_a_section(name: str) -> None:
    text = page(name)
    dialect: Dialect = DIALECTS[name]
    ops = {op.name for op in dialect.operations}
    headings = re.findall(r"^###? .*$", text, re.MULTILINE)
    named = {n for h in headings for n in re.findall(rf"`({name}\.[a-z0-9_]+)`", h)}
    assert ops <= named, f"no section: {sorted(ops - named)}"
    assert named <= ops, f"no such op: {sorted(named - ops)}"


@pytest.mark.parametrize("name", PAGES)
def test_every_constraint_is_stated(name: str) -> None:
    """What a verifier numbers, the page states; and the other way round."""
    letter = LETTERS[name]
    sources = [ROOT / "amk" / "ir" / f"{name}.py"]
    sources += [ROOT / "amk" / "ir" / "expr.py"] if name == "mk" else []
    code = "\n".join(p.read_text(encoding="utf-8") for p in sources)
    checked = set(re.findall(rf"\b{letter}\d+(?=: )", code))
    stated = set(re.findall(rf"\*\*({letter}\d+)\b", page(name)))
    assert checked == stated
