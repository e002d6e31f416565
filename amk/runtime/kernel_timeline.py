"""Where the time of a launch goes, from the stamps of a kernel that was emitted with a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from amk.runtime.kernel_program import Plan

STAMPS = 3
"""Times a block and stage: it came, had what it waits for, was through (device/amk_worker.h)."""


@dataclass(frozen=True)
class StageTime:
    """One stage of a launch. Microseconds; `start` and `end` count from the launch's first stamp.

    `wait` and `work` are medians over the blocks that had tiles, `longest` the most any of them
    worked; `blocks` is how many they were."""

    name: str
    start: float
    end: float
    wait: float
    work: float
    longest: float
    blocks: int


def stamp_bytes(plan: Plan) -> int:
    return 8 * STAMPS * plan.blocks * len(plan.stages)


def stage_times(stamps: np.ndarray, plan: Plan) -> list[StageTime]:
    """The stages of a launch from its stamps, nanoseconds, uint64 [blocks · stages · STAMPS]. A
    block without tiles never was ready: it leaves an older stamp there, or none."""
    by_block = stamps.reshape(plan.blocks, len(plan.stages), STAMPS).astype(np.int64)
    first = int(by_block[:, 0, 0].min())
    return [stage_time(name, by_block[:, i], first) for i, name in enumerate(plan.stages)]


def stage_time(name: str, stamps: np.ndarray, first: int) -> StageTime:
    begin, ready, end = ((stamps - first) / 1e3).T
    had = (ready >= begin) & (ready <= end)
    wait, work = (ready - begin)[had], (end - ready)[had]
    if not had.any():
        wait = work = np.zeros(1)
    return StageTime(
        name, float(begin.min()), float(end.max()), float(np.median(wait)), float(np.median(work)),
        float(work.max()), int(had.sum()),
    )  # fmt: skip


def table(times: Sequence[StageTime]) -> str:
    """Stages of one name pattern together, the most time first, and the span of the launch."""
    groups: dict[str, list[StageTime]] = {}
    for time in times:
        key = ".".join("*" if word.isdigit() else word for word in time.name.split("."))
        groups.setdefault(key, []).append(time)
    lines = [
        f"{'stage':46} {'count':>5} {'blocks':>6} {'wait us':>9} {'work us':>9} {'longest':>9}"
    ]
    for key, found in sorted(groups.items(), key=lambda kv: -sum(t.wait + t.work for t in kv[1])):
        wait, work, longest = (
            sum(getattr(t, f) for t in found) for f in ("wait", "work", "longest")
        )
        blocks = sum(t.blocks for t in found) / len(found)
        lines.append(
            f"{key[:46]:46} {len(found):5} {blocks:6.0f} {wait:9.1f} {work:9.1f} {longest:9.1f}"
        )
    span = max(t.end for t in times) - min(t.start for t in times)
    lines.append(f"{'from the first stamp to the last':46} {'':5} {'':6} {'':9} {'':9} {span:9.1f}")
    return "\n".join(lines)
