"""What the tests of the host's kernels share: programs, runs, mutants, and a child process for the
sanitizers that must be loaded before everything else.

    python -m tests.runtime.simt_tools SANITIZER ORDER STEPS [MUTANT]
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from amk import compiler
from amk.errors import AmkError
from amk.runtime.kernel_program import KernelProgram
from amk.runtime.kernel_session import KernelSession
from amk.runtime.simt import SimtDevice, Weather
from amk.runtime.source import as_source
from amk.runtime.toolchain import find_compiler

MAX_SEQ = 300
SANITIZERS = {
    "thread": ("-fsanitize=thread", "-g", "-O1"),
    "address": ("-fsanitize=address", "-g", "-O1"),
    "undefined": ("-fsanitize=undefined", "-fno-sanitize-recover=undefined", "-g", "-O1"),
}
PRELOADS = {"thread": "libtsan.so", "address": "libasan.so"}
STORMS = (Weather("random", 1), Weather("random", 2, late_block=1), Weather("lifo", late_block=0))


def toy(workers: int = 3, dtype: str = "bf16", tile_bytes: int | None = 1024) -> KernelProgram:
    """The toy's kernels for so many blocks; small tiles, so that every group map counts."""
    return compiler.compile_kernels(
        "toy", "h100", MAX_SEQ, dtype, workers=workers, machine_code=False, tile_bytes=tile_bytes
    )


def logits(
    program: KernelProgram,
    weather: Weather | None = None,
    mutant: str | None = None,
    steps: int = 4,
    start: int = 254,
    flags: tuple[str, ...] = (),
    patience_s: float = 1.0,
) -> np.ndarray:
    """The logits [steps, vocab] of decode steps from position `start` on, over a cache of zeros:
    by default across the border of two chunks of attention."""
    edit = MUTANTS[mutant].edit if mutant else None
    device = SimtDevice(program, weather, flags, edit)
    with KernelSession(program, as_source("toy", program.facts.dtype), device, patience_s) as s:
        assert s.cache is not None
        s.cache.reserve(0, start + steps)
        s._moved()
        s.tokens = [0] * start
        return np.stack([s.step(7 * i % s.vocab) for i in range(steps)])


@dataclass(frozen=True)
class Mutant:
    """One fault: the file it is in, a text there and what stands in its place (the first time, or
    the last), and which of "bits", "hang" and "race" is expected to see it."""

    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]
    last: bool = False

    def edit(self, name: str, text: str) -> str:
        if name != self.file or self.old not in text:
            return text
        head, tail = (text.rpartition if self.last else text.partition)(self.old)[::2]
        return head + self.new + tail


STAGE_WAIT = "amk_wait(w, amk_tiles, amk_waits + row.waits, row.wait_count);"
MUTANTS = {
    "drop the wait of a stage": Mutant("program.cu", STAGE_WAIT, "amk_sync(w);", ("race",), True),
    "drop the waits of tiles": Mutant(
        "amk_worker.h", "if (!amk_reached(amk_load_acquire(w.launch->events + event), target))",
        "if (false)", ("bits",),
    ),
    "weaken a release": Mutant(
        "amk_device.h", "__atomic_fetch_add(at, n, __ATOMIC_RELEASE)",
        "__atomic_fetch_add(at, n, __ATOMIC_RELAXED)", ("race",),
    ),
    "weaken an acquire": Mutant(
        "amk_device.h", "__atomic_load_n(at, __ATOMIC_ACQUIRE)",
        "__atomic_load_n(at, __ATOMIC_RELAXED)", ("race",),
    ),
    "shift a group map by one": Mutant(
        "program.cu", "amk_raise(w, amk_bases[row.bases + 1] + t0, 1);",
        "amk_raise(w, amk_bases[row.bases + 1] + t0 + 1, 1);", ("hang",),
    ),
    "shift the groups waited for": Mutant(
        "program.cu", "amk_look(w, amk_tiles, amk_bases[row.bases + 1] + t0 * 2, 2);",
        "amk_look(w, amk_tiles, amk_bases[row.bases + 1] + t0, 2);", ("bits", "race"),
    ),
    "signal before the barrier": Mutant(
        "amk_worker.h", "  amk_sync(w);\n  amk_raise(w, event, n);",
        "  amk_raise(w, event, n);\n  amk_sync(w);", ("bits", "race"),
    ),
    "drop the barrier after a prologue": Mutant(
        "program.cu", "  amk_sync(w);\n  long n = 0;", "  long n = 0;", ("bits", "race"), True
    ),
    "drop the barrier of a sum": Mutant(
        "amk_number.h", "values[w.warp] = x.value, places[w.warp] = x.at;\n  amk_sync(w);",
        "values[w.warp] = x.value, places[w.warp] = x.at;", ("race",),
    ),
    "drop the barrier of attention": Mutant(
        "amk_attention.h", "maxima[w.warp * GB + g] = top[g];\n  }\n  amk_sync(w);",
        "maxima[w.warp * GB + g] = top[g];\n  }", ("bits", "race"),
    ),
    "free a slot early": Mutant(
        "amk_matmul.h",
        "amk_wait_bar(w, w.full + w.slot, w.parity, AMK_FULL_STUCK);",
        "amk_wait_bar(w, w.full + w.slot, w.parity, AMK_FULL_STUCK);"
        " if (w.lane == 0) amk_bar_arrive(w.empty + w.slot);"
        " amk_preempt();",
        ("bits", "hang", "race"),
    ),
    "free a slot without the warp": Mutant(
        "amk_matmul.h", "amk_warp_barrier(); /* all lanes have read the slot */", "",
        ("race",),
    ),
    "wrong phase when filled": Mutant(
        "amk_matmul.h", "w.full + w.slot, w.parity,", "w.full + w.slot, w.parity ^ 1,",
        ("bits", "hang"),
    ),
    "wrong phase when free": Mutant(
        "amk_worker.h", "w.empty + w.slot, w.parity ^ 1,", "w.empty + w.slot, w.parity,", ("hang",)
    ),
    "one chunk too few combined": Mutant(
        "program.cu", "(P / 256) + 1, false", "(P / 256), false", ("bits",)
    ),
    "one chunk too few computed": Mutant(
        "program.cu", "const long tiles = 2 * ((P / 256) + 1);", "const long tiles = 2;",
        ("bits", "hang"),
    ),
    "no top-up": Mutant("amk_worker.h", "&& n > 0) amk_add", "&& n > 9999) amk_add", ("hang",)),
}  # fmt: skip


def race(program_workers: int, mutant: str | None, order: str = "random", steps: int = 3) -> str:
    """Runs a child under ThreadSanitizer; its report, empty when it found nothing."""
    return sanitize("thread", order, steps, mutant, program_workers)


def sanitize(kind: str, order: str, steps: int, mutant: str | None = None, workers: int = 3) -> str:
    """The report of a sanitizer, empty when the run was clean."""
    environment = {
        **os.environ, "ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "exitcode=66",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }  # fmt: skip
    if kind in PRELOADS:
        environment["LD_PRELOAD"] = runtime_of(kind)
    command = [
        sys.executable, "-m", "tests.runtime.simt_tools", kind, order, str(steps), str(workers),
        *([mutant] if mutant else []),
    ]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    return "" if done.returncode == 0 else done.stderr + done.stdout or "died"


def runtime_of(kind: str) -> str:
    """The path of a sanitizer's runtime library, "" when the compiler has none."""
    command = (*find_compiler().command, f"-print-file-name={PRELOADS[kind]}")
    path = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return path if os.path.isabs(path) else ""


def checked(see: Callable[[], np.ndarray], expected: np.ndarray) -> str | None:
    """Which of "hang" and "bits" sees a fault in a run, None when neither does."""
    try:
        found = see()
    except AmkError:
        return "hang"
    return None if np.array_equal(found, expected) else "bits"


def main() -> None:
    kind, order, steps, workers, *mutant = sys.argv[1:]
    program = toy(int(workers))
    found = logits(
        program, Weather(order, 5, 1), mutant[0] if mutant else None, int(steps),
        flags=SANITIZERS[kind], patience_s=30.0,
    )  # fmt: skip
    if not mutant:
        device = SimtDevice(program, Weather(order, 6, 1), SANITIZERS[kind])
        with KernelSession(program, as_source("toy", program.facts.dtype), device, 60) as session:
            session.steps(7, 3)
            session.prefill(list(range(16)))
        assert np.array_equal(found, logits(program, steps=int(steps))), "the bits differ"


if __name__ == "__main__":
    main()
