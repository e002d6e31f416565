"""verify-mk against the oracle on generated programs; see `soundness` for what is compared.

The full run of 20,000 programs is benchmarks/verify_soundness.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.utils.exceptions import VerifyException

import amk.verify.check as check
from amk.verify import prove, steps
from amk.verify.findings import STEPS
from tests.property.mk_programs import Generator, random_plan
from tests.property.soundness import (
    compare,
    misbehaviour_in_two_steps,
    program_of,
    stumbles,
)

STEPPING = (167, 206, 651)
"""Seeds of programs that are right for one step a launch alone."""
PROGRAMS = int(os.environ.get("AMK_VERIFY_PROGRAMS", "250"))


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_agrees_with_the_oracle_shrinking(data: st.DataObject) -> None:
    plan = Generator(lambda low, high: data.draw(st.integers(low, high))).generate()
    agrees(plan.text(), 0)


@pytest.mark.parametrize("block", range(5))
def test_agrees_with_the_oracle(block: int) -> None:
    accepted = rejected = 0
    for seed in range(block * PROGRAMS // 5, (block + 1) * PROGRAMS // 5):
        holds = agrees(random_plan(seed).text(), seed)
        accepted += holds is True
        rejected += holds is False
    assert min(accepted, rejected) > (accepted + rejected) / 6


def agrees(text: str, seed: int) -> bool | None:
    """None for a text that is refused by the dialect's own verifier."""
    try:
        program = program_of(text)
    except VerifyException:
        return None
    outcome = compare(program, seed)
    assert not outcome.unsound, f"accepted, but {outcome.unsound}\n{text}"
    assert not outcome.false, f"no witness of {outcome.false[0]}\n{text}"
    return outcome.report.holds


@pytest.mark.parametrize(
    "part",
    ["check_bounds", "check_coverage", "check_progress", "check_ordering", "check_arena"],
)
def test_the_oracle_notices_a_rule_that_is_missing(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any one group of rules some of these programs are accepted wrongly."""
    monkeypatch.setattr(check, part, lambda ctx: True)
    for seed in range(400):
        try:
            program = program_of(random_plan(seed).text())
        except VerifyException:
            continue
        if prove(program).holds and compare(program, seed).unsound:
            return
    pytest.fail(f"{part} is never needed")


def test_the_oracle_notices_steps_that_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that are right for one step a launch, taken for right with several."""
    wrong = [s for s in STEPPING if prove(program_of(random_plan(s).text())).step_findings]
    assert wrong == list(STEPPING)
    monkeypatch.setattr(steps, "hazards", lambda ctx, feedback: iter(()))
    for seed in wrong:
        outcome = compare(program_of(random_plan(seed).text()), seed)
        assert outcome.report.steps == STEPS[1]
        assert outcome.unsound.startswith("two steps from")


def test_the_oracle_agrees_about_the_written_examples() -> None:
    """Each rule's example in steps.mlir goes wrong in two steps; the right ones do not."""
    text = (Path(__file__).parents[1] / "filecheck" / "verify_mk" / "steps.mlir").read_text()
    rules: set[str] = set()
    for part in text.split("// -----"):
        program = program_of(part)
        report = prove(program)
        assert report.holds
        if report.steps == STEPS[1]:
            assert not misbehaviour_in_two_steps(program, report.positions, 0)
        for finding in report.step_findings:
            assert stumbles(program, finding, 0), finding
        rules |= {finding.rule for finding in report.step_findings}
    assert rules == {"V4", "V5", "V6", "V9", "V12"}


def test_a_tile_may_wait_for_a_later_one_of_its_stage() -> None:
    """Two workers: the first waits for what the second does, which stands after it in the text.
    Found by the soundness run: the interpreter called it a deadlock."""
    program = program_of("""
    mk.program "p" attributes {tokens = 1 : i64, max_seq = 1 : i64,
        schedule = "static", workers = 2 : i64} {
      %w = mk.buffer "weight" "w" : !mk.buffer<8x4xf32>
      %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
      %x = mk.buffer "output" "logits" : !mk.buffer<8x4xf32>
      %e = mk.event
      mk.stage "s" prologue {
        mk.yield
      } parts {
        mk.part[1] {
          mk.wait %e[0, 1]
          %0 = mk.load %w[0, 0] : !mk.buffer<8x4xf32> -> tensor<4x4xf32>
          mk.store %0, %x[0, 0] : tensor<4x4xf32> -> !mk.buffer<8x4xf32>
        }
        mk.part[1] {
          %1 = mk.load %w[4, 0] : !mk.buffer<8x4xf32> -> tensor<4x4xf32>
          mk.store %1, %x[4, 0] : tensor<4x4xf32> -> !mk.buffer<8x4xf32>
          mk.signal %e[0]
        }
      }
    }
    """)
    outcome = compare(program)
    assert outcome.report.holds
    assert not outcome.unsound


def test_generated_programs_are_of_every_kind() -> None:
    """Groups, static lists, rings, caches, monotonic counters, and what spoils them, all occur."""
    plans = [random_plan(seed) for seed in range(400)]
    assert any(p.workers for p in plans)
    assert any(e.groups != "1" for p in plans for e in p.events)
    assert any(e.monotonic for p in plans for e in p.events)
    assert any(p.stream for p in plans)
    assert len({rule for p in plans for rule in p.spoiled}) > 14
