"""CUDA C to machine code by NVRTC, on machines with or without a GPU, once per text."""

from __future__ import annotations

import importlib
import importlib.util
import re
from dataclasses import dataclass
from functools import cache as once
from importlib.resources import files
from pathlib import Path
from typing import Any

from amk.errors import ToolchainError
from amk.runtime.cache import Cache, stable_hash

# --fmad=false: a fused multiply-add rounds once where the reference rounds twice, so contraction is
# the emitter's choice and never the compiler's. Divisions and roots are exact by default.
OPTIONS = ("--std=c++17", "--fmad=false", "--ptxas-options=-v")
INSTALL_HINT = "install the extra: pip install 'amk[cuda]'"
SOURCE_NAME, CUBIN_NAME, LOG_NAME = "program.cu", "program.cubin", "program.log"


@dataclass(frozen=True)
class Usage:
    """What the machine code of a kernel takes, as ptxas reports it."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


@once
def device_headers() -> dict[str, str]:
    """The device's headers by name."""
    folder = files("amk.codegen") / "cuda" / "device"
    found = {f.name: f.read_text() for f in folder.iterdir() if f.name.endswith(".h")}
    shared = files("amk.codegen") / "cpu" / "formulas.h"
    return {**found, "formulas.h": shared.read_text()}


@once
def nvrtc() -> Any:
    """The NVRTC bindings; ToolchainError without them."""
    if (
        importlib.util.find_spec("cuda") is None
        or importlib.util.find_spec("cuda.bindings") is None
    ):
        raise ToolchainError(f"no CUDA compiler: cuda-bindings is missing; {INSTALL_HINT}")
    try:
        bindings = importlib.import_module("cuda.bindings.nvrtc")
        bindings.nvrtcVersion()
    except Exception as error:  # the bindings raise their own kinds when the library is absent
        raise ToolchainError(f"no CUDA compiler: {error}; {INSTALL_HINT}") from error
    return bindings


def call(function: str, *arguments: object) -> Any:
    """One NVRTC call; its result, ToolchainError when it fails."""
    api = nvrtc()
    status, *rest = getattr(api, function)(*arguments)
    if int(status) != 0:
        raise ToolchainError(f"{function} failed: {api.nvrtcGetErrorString(status)[1].decode()}")
    return rest[0] if len(rest) == 1 else rest or None


def check_arch(arch: str) -> None:
    """ToolchainError when this NVRTC does not know an architecture such as "90a"."""
    known = call("nvrtcGetSupportedArchs")
    if int(arch.rstrip("af")) not in known:
        names = ", ".join(f"sm_{n}" for n in known)
        raise ToolchainError(f"sm_{arch}: this NVRTC does not know it; it compiles for {names}")


def compile_cubin(source: str, arch: str, cache: Cache | None = None) -> Path:
    """The folder with the machine code of CUDA C `source`, its text and its compile log.

    Compiled only when the cache lacks it; the key covers the text, the headers, the options, the
    architecture and the compiler's version. ToolchainError, with the compiler's first error line
    and the place of the kept source, when compiling fails.
    """
    check_arch(arch)
    cache = cache if cache is not None else Cache("cubin")
    options = (f"--gpu-architecture=sm_{arch}", *OPTIONS)
    version = ".".join(map(str, call("nvrtcVersion")))
    key = stable_hash(source, device_headers(), options, version)

    def keep(folder: Path) -> None:
        (folder / SOURCE_NAME).write_text(source)

    def build(folder: Path) -> None:
        cubin, log = compile_text(source, options)
        if cubin is None:
            kept = Cache("failed", cache.root).put(key, keep)
            raise ToolchainError(
                f"NVRTC failed for sm_{arch}: {first_error(log)} (source kept in"
                f" {kept / SOURCE_NAME})"
            )
        (folder / SOURCE_NAME).write_text(source)
        (folder / CUBIN_NAME).write_bytes(cubin)
        (folder / LOG_NAME).write_text(log)

    return cache.put(key, build)


def compile_text(source: str, options: tuple[str, ...]) -> tuple[bytes | None, str]:
    """Machine code, or None, and the log."""
    headers = device_headers()
    texts = [t.encode() for t in headers.values()]
    names = [n.encode() for n in headers]
    program = call(
        "nvrtcCreateProgram", source.encode(), SOURCE_NAME.encode(), len(names), texts, names
    )
    try:
        api = nvrtc()
        (status,) = api.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        log = bytearray(call("nvrtcGetProgramLogSize", program))
        call("nvrtcGetProgramLog", program, log)
        text = log.rstrip(b"\0").decode(errors="replace")
        if int(status) != 0:
            return None, text
        cubin = bytearray(call("nvrtcGetCUBINSize", program))
        call("nvrtcGetCUBIN", program, cubin)
        return bytes(cubin), text
    finally:
        nvrtc().nvrtcDestroyProgram(program)


def first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")


def usage_of(log: str, kernel: str = "amk_program") -> Usage:
    """The kernel's figures in a compile log; ToolchainError when the log lacks them."""
    at = log.find(f"Function properties for {kernel}")
    text = log[at:] if at >= 0 else ""
    stack = re.search(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", text
    )
    registers = re.search(r"Used (\d+) registers", text)
    if stack is None or registers is None:
        raise ToolchainError(f"NVRTC's log has no resource usage of {kernel}")
    frame, stores, loads = map(int, stack.groups())
    return Usage(int(registers[1]), frame, stores, loads)
