"""`amk doctor`: what this machine has, and what is missing."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from amk.cli.common import add_json, command, mebibytes, print_json

EXAMPLES = "  amk doctor\n  amk doctor --json\n"

# What a check may find: fine, worth knowing, or in the way of any work.
OK, NOTE, BAD = "ok", "note", "bad"

TRANSPARENT_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def register(subparsers: Any) -> None:
    parser = command(
        subparsers, "doctor", run, "show what this machine has and what is missing", EXAMPLES
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    found = [{"check": name, **check()} for name, check in CHECKS.items()]
    if options.json:
        print_json({"checks": found})
    else:
        width = max(map(len, CHECKS))
        for row in found:
            print(f"{row['status']:4}  {row['check']:{width}}  {row['detail']}")
    return 1 if any(row["status"] == BAD for row in found) else 0


def finding(status: str, detail: str) -> dict[str, str]:
    return {"status": status, "detail": detail}


def check_python() -> dict[str, str]:
    return finding(OK, f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def check_packages() -> dict[str, str]:
    """What pyproject.toml requires, without extras."""
    shown, missing = [], []
    for line in requires("amk") or []:
        if "extra ==" in line:
            continue
        name = line.split(";")[0].strip()
        for mark in "<>=!~[ ":
            name = name.split(mark)[0]
        try:
            shown.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return finding(BAD, f"missing: {', '.join(missing)}; pip install them")
    return finding(OK, ", ".join(shown))


def check_processor() -> dict[str, str]:
    count = len(os.sched_getaffinity(0))
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return finding(OK, f"{model}, {count} CPUs for this process")


def check_huge_pages() -> dict[str, str]:
    try:
        text = TRANSPARENT_HUGE_PAGES.read_text()
    except OSError:
        return finding(NOTE, "the kernel has none: weights are read through small pages")
    chosen = text[text.find("[") + 1 : text.find("]")]
    if chosen == "never":
        return finding(NOTE, f"off: `echo madvise > {TRANSPARENT_HUGE_PAGES}` speeds decoding up")
    return finding(OK, chosen)


def check_compiler() -> dict[str, str]:
    """Compiles a line of C with the flags programs get, in a folder of its own."""
    from amk.errors import AmkError
    from amk.runtime.cache import Cache
    from amk.runtime.toolchain import compile_shared, find_compiler

    try:
        compiler = find_compiler()
        with tempfile.TemporaryDirectory(prefix="amk-doctor-") as folder:
            compile_shared("int answer(void) { return 42; }\n", cache=Cache("c", Path(folder)))
    except AmkError as error:
        return finding(BAD, str(error))
    first = compiler.version.splitlines()[0] if compiler.version else "unknown version"
    return finding(OK, f"{' '.join(compiler.command)}: {first}")


def check_cache() -> dict[str, str]:
    from amk.errors import AmkError
    from amk.runtime.cache import Cache, all_stats, cache_dir

    root = cache_dir()
    probe = Cache("doctor")
    try:
        probe.put("probe", lambda folder: None)
        probe.clear()
    except (AmkError, OSError) as error:
        return finding(BAD, str(error))
    held = sum(stats.nbytes for stats in all_stats())
    free = shutil.disk_usage(root).free
    return finding(OK, f"{root}: {mebibytes(held)} held, {mebibytes(free)} free")


def check_cuda() -> dict[str, str]:
    from amk.runtime.driver import cuda_device_count

    count = cuda_device_count()
    if count == 0:
        return finding(NOTE, "the driver offers no device: programs run on the CPU")
    plural = "s" if count > 1 else ""
    return finding(OK, f"{count} device{plural}: --target cuda runs on the first")


CHECKS: dict[str, Callable[[], dict[str, str]]] = {
    "python": check_python,
    "packages": check_packages,
    "processor": check_processor,
    "huge pages": check_huge_pages,
    "C compiler": check_compiler,
    "cache": check_cache,
    "CUDA": check_cuda,
}
