"""A machine with a GPU, as the checks of this folder see it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amk import compiler
from amk.runtime.cuda_driver import CudaDevice, detect
from amk.runtime.cuda_nvrtc import CUBIN_NAME, compile_cubin
from amk.runtime.kernel_program import KernelProgram
from amk.runtime.kernel_session import PATIENCE_S, KernelSession
from amk.runtime.source import Source
from amk.targets import Target

Edit = Callable[[str], str]
"""From the text of a program to the one that is compiled in its place."""


@dataclass
class Machine:
    """The driver (`api` stands in for its bindings), the row its GPU is, and programs for it."""

    api: Any = None
    target: Target = field(init=False)
    patience_s: float = PATIENCE_S

    def __post_init__(self) -> None:
        self.target = detect(self.api)

    def compile(self, source: Source, max_seq: int, dtype: str, **more: Any) -> KernelProgram:
        return compiler.compile_kernels(source, self.target, max_seq, dtype, **more)

    def code(self, text: str) -> bytes:
        """Machine code of a program's text."""
        assert self.target.gpu is not None
        return (compile_cubin(text, self.target.gpu.arch) / CUBIN_NAME).read_bytes()

    def edited(self, made: KernelProgram, edit: Edit) -> KernelProgram:
        """A program with its decode kernel changed, which no certificate vouches for."""
        folder = Path(tempfile.mkdtemp()) / "program"
        shutil.copytree(made.folder, folder)
        text = edit(made.source(0))
        assert text != made.source(0)
        (folder / f"{made.name(0)}.cubin").write_bytes(self.code(text))
        program = KernelProgram(folder)
        program.check = lambda: None  # type: ignore[method-assign]
        return program

    def session(
        self, program: KernelProgram, source: Source, patience_s: float | None = None
    ) -> KernelSession:
        device = CudaDevice(program, self.api)
        return KernelSession(program, source, device, patience_s or self.patience_s)
