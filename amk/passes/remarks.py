"""Remarks: what a pass decided or refused at one place, for whoever reads its output.

A pass that makes some keeps a list `remarks`; `run_pipeline` hands it on in its report, and
`amk-opt --remarks` prints a line each.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation

from amk.passes.rewriting import where


@dataclass(frozen=True)
class Remark:
    """`text` about the op at `location`: its module path or source line, and its name."""

    location: str
    text: str

    def __str__(self) -> str:
        return f"{self.location}: {self.text}"


def remark(op: Operation, text: str) -> Remark:
    """A remark at an op that is still in the module."""
    return Remark(where(op), text)
