"""Kernels without a GPU: the CUDA C text itself, unchanged, compiled by the host's C++ compiler and
run with a thread a block and a fibre a CUDA thread."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache as once
from importlib.resources import files
from pathlib import Path

import numpy as np

from amk.errors import AmkError, ToolchainError
from amk.runtime.cache import Cache, stable_hash
from amk.runtime.kernel_device import Arguments
from amk.runtime.kernel_program import KernelProgram, Plan
from amk.runtime.packed import huge_array
from amk.runtime.toolchain import _first_error, _run, cpu_identity, find_compiler

FLAGS = (
    "-x", "c++", "-std=gnu++17", "-O2", "-march=native", "-ffp-contract=off", "-fno-exceptions",
    "-fno-rtti", "-fno-strict-aliasing", "-fno-math-errno", "-Wno-unknown-pragmas", "-shared",
    "-fPIC", "-pthread",
)  # fmt: skip
BLOCKS = 4  # of a grid made for the host: results do not depend on it
SIMT_PATIENCE_S = 120.0
SOURCE_NAME, LIBRARY_NAME = "program.cu", "program.so"
ORDERS = {"fifo": 0, "lifo": 1, "random": 2}
Edit = Callable[[str, str], str]
"""From a file's name and text to the text that is compiled."""
ERRORS = {2: "out of memory or threads"}


@dataclass(frozen=True)
class Weather:
    """How the host schedules the fibres of a launch: "fifo", "lifo" or "random" by `seed`, and a
    block that runs late (−1 for none). Results must not depend on it."""

    order: str = "fifo"
    seed: int = 0
    late_block: int = -1


@once
def host_headers() -> dict[str, str]:
    """The device's headers by name, the host's own in place of amk_device.h."""
    cuda = files("amk.codegen") / "cuda"
    found = {
        f.name: f.read_text()
        for folder in (cuda / "device", cuda / "simt")
        for f in folder.iterdir()
        if f.name.endswith(".h")
    }
    return {**found, "formulas.h": (files("amk.codegen") / "cpu" / "formulas.h").read_text()}


def compile_simt(
    source: str,
    flags: Sequence[str] = (),
    cache: Cache | None = None,
    edit: Edit | None = None,
) -> Path:
    """The shared library of a kernel's text, compiled only when the cache lacks it; `flags` add to
    the usual ones, and `edit` changes files before (tests break them on purpose).
    ToolchainError when there is no C++ compiler or it fails."""
    cache = cache if cache is not None else Cache("simt")
    compiler = find_compiler()
    headers = host_headers()
    if edit is not None:
        headers = {name: edit(name, text) for name, text in headers.items()}
        source = edit(SOURCE_NAME, source)
    key = stable_hash(
        source, headers, FLAGS, tuple(flags), compiler.command, compiler.version, cpu_identity()
    )

    def build(folder: Path) -> None:
        for name, text in headers.items():
            (folder / name).write_text(text)
        (folder / SOURCE_NAME).write_text(source + '\n#include "amk_simt.h"\n')
        done = _run((*compiler.command, *FLAGS, *flags, "-o", LIBRARY_NAME, SOURCE_NAME), folder)
        if done.returncode != 0 or not (folder / LIBRARY_NAME).is_file():
            raise ToolchainError(f"{compiler.command[0]}, compiling C++: {_first_error(done)}")

    return cache.put(key, build) / LIBRARY_NAME


class SimtDevice:
    """The host as a device: memory is the process's own, a launch returns when it is done."""

    def __init__(
        self,
        program: KernelProgram,
        weather: Weather | None = None,
        flags: Sequence[str] = (),
        edit: Edit | None = None,
    ):
        self.weather = weather or Weather()
        self._arrays: dict[int, np.ndarray] = {}
        self._libraries = [
            load(compile_simt(program.source(i), flags, edit=edit))
            for i in range(len(program.plans))
        ]

    def allocate(self, nbytes: int) -> int:
        array = huge_array(-(-nbytes // 256) * 256)
        array[...] = 0
        self._arrays[array.ctypes.data] = array
        return array.ctypes.data

    def free(self, address: int) -> None:
        del self._arrays[address]

    def write(self, address: int, array: np.ndarray) -> None:
        array = np.ascontiguousarray(array)
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def read(self, address: int, array: np.ndarray) -> None:
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        ctypes.memmove(to, source, nbytes)

    def launch(self, number: int, plan: Plan, arguments: Arguments) -> None:
        weather = self.weather
        error = self._libraries[number].amk_simt_launch(
            ctypes.byref(arguments), plan.blocks, ORDERS[weather.order], weather.late_block,
            weather.seed,
        )  # fmt: skip
        if error in ERRORS:
            raise AmkError(f"simt: {ERRORS[error]} for {plan.blocks} blocks")

    def close(self) -> None:
        self._arrays = {}


def load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.amk_simt_launch.argtypes = [
        ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_uint64,
    ]  # fmt: skip
    return library
