"""The FileCheck tests themselves: each reaches FileCheck, and the runner can fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mlir_runner import FileCheckFailure, checks_of, run_file, run_lines, split_pipe

from amk.ir.kv import KV
from amk.ir.lm import LM
from amk.ir.mk import MK

HERE = Path(__file__).parent
FILES = sorted(HERE.rglob("*.mlir"))

GOOD = """\
// RUN: amk-opt %s | filecheck %s
func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = lm.neg %x : tensor<2xf32>
  func.return %y : tensor<2xf32>
}
// CHECK: lm.neg
"""


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(HERE)))
def test_every_run_line_checks_something(path: Path) -> None:
    lines = run_lines(path.read_text(encoding="utf-8"))
    assert lines, "no RUN line"
    for line in lines:
        assert split_pipe(line)[-1][0] == "filecheck"
        assert checks_of(path, line) > 0, line


def test_there_are_files() -> None:
    assert len(FILES) > 10


def write(folder: Path, text: str) -> Path:
    path = folder / "case.mlir"
    path.write_text(text, encoding="utf-8")
    return path


def test_good_file_passes(tmp_path: Path) -> None:
    run_file(write(tmp_path, GOOD))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (GOOD.replace("// CHECK: lm.neg", "// CHECK: lm.abs"), "lm.abs"),
        (GOOD.replace("// CHECK: lm.neg", ""), "No check strings"),
        (GOOD.replace("// RUN: amk-opt", "// RUN: not amk-opt"), "exits with 0, not 1"),
        (GOOD.replace("lm.neg %x", "lm.neg %z"), "exits with 1, not 0"),
        (GOOD.replace("| filecheck %s", ""), "a RUN line is"),
        (GOOD.replace("// RUN:", "//"), "no RUN line"),
    ],
)
def test_bad_file_fails(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(FileCheckFailure, match=why):
        run_file(write(tmp_path, text))


@pytest.mark.parametrize("name", sorted(op.name for d in (LM, KV, MK) for op in d.operations))
def test_every_op_makes_the_round_trip(name: str) -> None:
    texts = [p.read_text(encoding="utf-8") for p in (HERE / "dialects").glob("*.mlir")]
    trips = [t for t in texts if "| amk-opt | filecheck" in t]
    checked = re.compile(rf"CHECK.*{re.escape(name)}[ \[]")
    assert any(checked.search(line) for t in trips for line in t.splitlines())
