"""The IR that docs/architecture.md shows is what the passes print for `toy`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from amk.codegen.cpu.emit import emit_c
from amk.compiler import programs_of
from amk.frontend.hf import import_model
from amk.passes import PIPELINES, run_pipeline
from amk.runtime.source import as_source

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
BLOCK = re.compile(r"<!-- toy: (\S+) -->\n```c?\n(.*?)\n```", re.DOTALL)
MAX_SEQ = 128


@cache
def levels() -> dict[str, str]:
    module: ModuleOp = import_model(as_source("toy", "f32").importable(), tokens=1)
    stages, lowering = PIPELINES["amk-mk"].split(",lower-lm-to-mk", 1)
    found = {"imported": str(module)}
    for name, passes in (
        ("amk-lm", f"amk-lm{{max-seq={MAX_SEQ}}}"),
        ("stages", stages),
        ("amk-mk", f"lower-lm-to-mk{lowering}"),
    ):
        run_pipeline(module, passes, check="never")
        found[name] = str(module)
    return {**found, "c": emit_c(list(programs_of(module)))[0]}


def plain(line: str) -> str:
    """A line without indentation and without the numbers of values."""
    return re.sub(r"%\d+", "%", line.strip())


def shows(shown: str, real: str) -> bool:
    """Is `shown`, cut short where it ends in "…", the line `real`?"""
    return real.startswith(shown[:-1].rstrip()) if shown.endswith("…") else real == shown


BLOCKS = dict(BLOCK.findall(PAGE.read_text(encoding="utf-8")))


@pytest.mark.parametrize("level", BLOCKS)
def test_block_is_true(level: str) -> None:
    """Its lines follow each other in the output."""
    shown = [plain(line) for line in BLOCKS[level].splitlines()]
    real = [plain(line) for line in levels()[level].splitlines()]
    starts = [i for i in range(len(real)) if shows(shown[0], real[i])]
    assert any(
        all(shows(a, b) for a, b in zip(shown, real[i : i + len(shown)], strict=False))
        for i in starts
    ), "\n".join(real)


def test_every_level_is_shown() -> None:
    assert set(BLOCKS) == set(levels())


def test_folders_exist() -> None:
    """Every file and folder of amk that the page names is there."""
    text = PAGE.read_text(encoding="utf-8")
    names = re.findall(r"`((?:amk|tests|docs)/[\w/.]+)`", text)
    assert names
    for name in names:
        assert (ROOT / name).exists(), name
