"""amk compiles a decoder language model into one kernel per decode step.

    program = amk.compile("toy", target="cpu", max_seq=256)
    session = program.session("toy")
    logits = session.step(1)
    record = amk.generate("toy", "cpu", [1, 2, 3], 8)

Importing the package imports nothing else: a name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amk import errors as errors
    from amk.compiler import compile as compile
    from amk.runtime.generate import generate as generate
    from amk.runtime.program import Program as Program
    from amk.runtime.session import Session as Session
    from amk.targets import Target as Target

_HOMES = {
    "compile": "amk.compiler",
    "generate": "amk.runtime.generate",
    "Program": "amk.runtime.program",
    "Session": "amk.runtime.session",
    "Target": "amk.targets",
}

__all__ = ["Program", "Session", "Target", "compile", "errors", "generate"]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("amk.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'amk' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
