"""The table of cases in docs/dialects/kv.md is complete and names tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.runtime.kv_probe import BACKEND_NAMES

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+) \| .* \| (.*) \| (.*) \|$", re.MULTILINE)
CASES = {int(n): (re.findall(r"`(.*?)`", tests), on) for n, tests, on in ROW.findall(
    (ROOT / "docs/dialects/kv.md").read_text("utf-8")
)}  # fmt: skip


def functions() -> dict[str, ast.FunctionDef]:
    """Every test of the cache, by its name without `test_`."""
    found = {}
    for path in Path(__file__).parent.glob("test_kv_*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[node.name.removeprefix("test_")] = node
    return found


def test_all_cases_and_backends_are_there() -> None:
    assert sorted(CASES) == list(range(1, 47))
    assert sorted(BACKEND_NAMES) == ["native", "reference", "simt"]


@pytest.mark.parametrize("number", CASES)
def test_row_is_true(number: int) -> None:
    """Its tests exist and say that they show the case; "all" has one that takes a backend."""
    names, on = CASES[number]
    known, backends = functions(), False
    assert names
    for name in names:
        if name.endswith(".mlir"):
            (path,) = (ROOT / "tests/filecheck").rglob(name)
            assert path.is_file()
            continue
        node = known[name]
        said = ast.get_docstring(node) or ""
        marked = re.findall(r"\d+", " ".join(re.findall(r"\[([\d, ]+)\]", said)))
        assert str(number) in marked, f"{name} does not name case {number}"
        backends = backends or "backend" in [a.arg for a in node.args.args]
    assert backends == (on == "all")
