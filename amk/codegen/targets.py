"""What `amk-opt -t NAME` can print a scheduled module as: a table, one class a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from amk.errors import AmkError
from amk.ir import mk


@dataclass(frozen=True)
class CpuTarget(Target):
    """The C file of a module's programs."""

    name = "cpu"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        from amk.codegen.cpu.emit import emit_c

        programs = [op for op in module.ops if isinstance(op, mk.ProgramOp)]
        if not programs:
            raise AmkError("-t cpu: the module has no mk.program; run amk-decode first")
        output.write(emit_c(programs)[0])


TARGETS: dict[str, Callable[[], type[Target]]] = {"cpu": lambda: CpuTarget}
