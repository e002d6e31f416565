"""A kernel that writes down when its blocks were in each stage: the same bits, plausible times."""

from __future__ import annotations

import numpy as np
import pytest

from amk import compiler
from amk.errors import AmkError
from amk.runtime.kernel_program import KernelProgram, Plan
from amk.runtime.kernel_session import KernelSession
from amk.runtime.kernel_timeline import STAMPS, stage_times, table
from amk.runtime.simt import SimtDevice
from amk.runtime.source import as_source
from tests.runtime.simt_tools import toy

pytestmark = pytest.mark.usefixtures("cache_root")


def stamped() -> KernelProgram:
    return compiler.compile_kernels(
        "toy", "h100", 300, "bf16", workers=3, machine_code=False, tile_bytes=1024, timeline=True
    )


def session(program: KernelProgram) -> KernelSession:
    return KernelSession(program, as_source("toy", "bf16"), SimtDevice(program), 60)


def test_stamps_are_all_that_is_added() -> None:
    """The usual text has none, and the stamped one differs by the stamps alone."""
    for number in range(2):
        plain, with_stamps = toy().source(number), stamped().source(number)
        assert "TIMELINE" not in plain
        assert "stamp" not in plain
        rest = [x for x in with_stamps.splitlines() if "TIMELINE" not in x and "stamp" not in x]
        assert rest == plain.splitlines()


def test_bits_and_times() -> None:
    program = stamped()
    with session(program) as timed, session(toy()) as plain:
        for token in (3, 1, 4):
            np.testing.assert_array_equal(timed.step(token), plain.step(token))
        np.testing.assert_array_equal(timed.prefill(range(16)), plain.prefill(range(16)))
        for number, plan in enumerate(program.plans):
            stages = timed.timeline(number)
            assert [s.name for s in stages] == plan.stages
            assert min(s.start for s in stages) == 0
            assert all(s.start <= s.end and s.wait >= 0 for s in stages)
            assert all(0 <= s.work <= s.longest <= s.end - s.start for s in stages)
            assert all(1 <= s.blocks <= plan.blocks for s in stages)
            assert sum(s.work for s in stages) > 0
        with pytest.raises(AmkError, match="compiled without a timeline"):
            plain.timeline()


def test_what_stamps_mean() -> None:
    plan = Plan(1, 3, 256, 0, 0, 1, stages=["layers.0.a", "layers.1.a"])
    stamps = np.zeros((3, 2, STAMPS), np.uint64)
    stamps[0] = [[1000, 2000, 5000], [5000, 9000, 12000]]
    stamps[1] = [[1500, 3500, 4500], [4500, 8500, 11000]]
    stamps[2] = [[1200, 0, 1300], [1300, 700, 1400]]  # no tiles: it never was ready
    first, second = stage_times(stamps.reshape(-1), plan)
    assert (first.start, first.end, first.blocks) == (0, 4, 2)
    assert (first.wait, first.work, first.longest) == (1.5, 2, 3)
    assert (second.wait, second.work, second.longest) == (4, 2.75, 3)
    lines = table([first, second]).splitlines()
    assert lines[1].split() == ["layers.*.a", "2", "2", "5.5", "4.8", "6.0"]
    assert lines[-1].split()[-1] == "11.0"
    idle = stage_times(np.zeros(18, np.uint64), plan)
    assert idle[0].blocks in (0, 3)
