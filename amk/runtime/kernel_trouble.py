"""What a lost launch leaves behind, in words (see device/amk_worker.h)."""

from __future__ import annotations

from collections.abc import Sequence

from amk.runtime.kernel_program import Plan

TROUBLE_WORDS = 8
EVENT, FULL, EMPTY, BLOCK = 1, 2, 3, 4


def explain(words: Sequence[int], plan: Plan) -> str:
    """One line from the trouble words of a launch of `plan`'s program."""
    _, kind, what, stage, block, value, target, position = (int(w) for w in words)
    where = f"block {block}, position {position}"
    if kind == BLOCK:
        return f"launch lost: {where}: a barrier that not every thread reached"
    at = f"stage {stage} ({plan.stages[stage]!r}), {where}" if stage < len(plan.stages) else where
    if kind == EVENT:
        name = plan.counter_names[what] if what < len(plan.counter_names) else "?"
        missing = (target - value) & 0xFFFFFFFF
        return (
            f"launch lost: {at}: waited too long for event {what}, the tiles of {name!r}:"
            f" {value} of {target} counted, {missing} missing"
        )
    if kind in (FULL, EMPTY):
        state = "filled" if kind == FULL else "free"
        return f"launch lost: {at}: slot {what} of the weight ring did not become {state}"
    return f"launch lost: {at}: trouble of unknown kind {kind}"
