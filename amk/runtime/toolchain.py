"""The host C compiler: finding one, and compiling a source text to a shared library once."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from amk.errors import ToolchainError
from amk.runtime.cache import Cache, stable_hash

# -ffp-contract=off: a fused multiply-add rounds once where the reference rounds twice, so
# contraction is the emitter's choice and never the compiler's.
CFLAGS = (
    "-O3",
    "-march=native",
    "-std=gnu11",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-shared",
    "-fPIC",
    "-pthread",
)
LIBRARIES = ("-lm",)

CANDIDATES = ("cc", "gcc", "clang")

INSTALL_HINT = "install gcc or clang, or `pip install ziglang`, or set CC"

# The lines of /proc/cpuinfo that decide what -march=native means.
CPU_LINES = ("vendor_id", "cpu family", "model", "model name", "flags", "Features", "CPU part")

SOURCE_NAME = "program.c"
LIBRARY_NAME = "program.so"


@dataclass(frozen=True)
class Compiler:
    """A C compiler: the words that start its command line, and what tells it from another."""

    command: tuple[str, ...]
    version: str


def find_compiler() -> Compiler:
    """The compiler in $CC, else the first of cc, gcc and clang, else the ziglang wheel's.

    $CC is split as a shell would split it but never given to one. ToolchainError when $CC names
    nothing that runs (no other compiler is tried then) or when there is no compiler at all.
    """
    return _find_compiler(os.environ.get("CC", ""), os.environ.get("PATH", ""))


@functools.cache
def _find_compiler(cc: str, _path: str) -> Compiler:
    if cc.strip():
        return _compiler_from_variable(cc)
    for name in CANDIDATES:
        if (found := shutil.which(name)) is not None:
            return Compiler((found,), _version((found, "--version")))
    if importlib.util.find_spec("ziglang") is not None:
        zig = (sys.executable, "-m", "ziglang")
        return Compiler((*zig, "cc"), _version((*zig, "version")))
    raise ToolchainError(f"no C compiler found: {INSTALL_HINT}")


def _compiler_from_variable(cc: str) -> Compiler:
    try:
        words = shlex.split(cc)
    except ValueError as error:
        raise ToolchainError(f"CC={cc!r} cannot be split into words: {error}") from error
    found = shutil.which(words[0]) if words else None
    if found is None:
        raise ToolchainError(f"CC={cc!r} names no program on the PATH: {INSTALL_HINT}")
    command = (found, *words[1:])
    return Compiler(command, _version((*command, "--version")))


def _version(command: tuple[str, ...]) -> str:
    done = _run(command, Path.cwd())
    if done.returncode != 0:
        raise ToolchainError(f"`{shlex.join(command)}` failed: {INSTALL_HINT}")
    return done.stdout.strip()


@functools.cache
def cpu_identity() -> str:
    """A hash of the CPU's model and features, which is what -march=native compiles for."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return stable_hash(platform.machine(), platform.processor())
    # Every core repeats the same lines; the first one is enough.
    first = text.split("\n\n", 1)[0].splitlines()
    wanted = [line for line in first if line.split(":")[0].strip() in CPU_LINES]
    return stable_hash(platform.machine(), wanted)


def compile_shared(source: str, flags: Sequence[str] = CFLAGS, cache: Cache | None = None) -> Path:
    """The shared library made from C `source`, compiled only when the cache lacks it.

    The key covers the source, the flags, the compiler's path and version and the CPU. The entry
    also holds the source. ToolchainError, with the compiler's first error line and the place of
    the kept source, when compiling fails.
    """
    cache = cache if cache is not None else Cache("native")
    compiler = find_compiler()
    flags = tuple(flags)
    key = stable_hash(source, flags, LIBRARIES, compiler.command, compiler.version, cpu_identity())

    def build(directory: Path) -> None:
        (directory / SOURCE_NAME).write_text(source)
        command = (*compiler.command, *flags, "-o", LIBRARY_NAME, SOURCE_NAME, *LIBRARIES)
        done = _run(command, directory)
        if done.returncode != 0 or not (directory / LIBRARY_NAME).is_file():
            kept = _keep_source(cache, key, source)
            raise ToolchainError(
                f"{compiler.command[0]} failed: {_first_error(done)} (source kept in {kept})"
            )

    return cache.put(key, build) / LIBRARY_NAME


def _run(command: tuple[str, ...], directory: Path) -> subprocess.CompletedProcess[str]:
    # The C locale keeps messages in the language `_first_error` looks for.
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise ToolchainError(
            f"cannot run {command[0]} ({error.strerror}): {INSTALL_HINT}"
        ) from error


def _first_error(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    for line in lines:
        if "error" in line:
            return line
    return lines[0] if lines else f"exit status {done.returncode} without a message"


def _keep_source(cache: Cache, key: str, source: str) -> Path:
    kept = Cache("failed", cache.root)

    def build(directory: Path) -> None:
        (directory / SOURCE_NAME).write_text(source)

    return kept.put(key, build) / SOURCE_NAME
