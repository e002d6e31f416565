"""Real programs are proved; each way to break one is caught by the rule that should."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest

from amk.interpreters.explore import Script, sample
from amk.ir import mk
from amk.verify import prove
from tests import families
from tests.property.family_programs import MAX_SEQ, SCHEDULES, WIDE, family_program
from tests.property.mutations import OPERATORS, STEP_OPERATORS


@dataclass(frozen=True)
class Mutant:
    what: str
    name: str
    program: mk.ProgramOp
    rules: set[str]


PROGRAMS = [(tokens, schedule) for tokens in (1, WIDE) for schedule in SCHEDULES]


def mutants(family: str, names: Iterable[str], seed: int = 0) -> Iterator[Mutant]:
    """All that apply, of the operators named."""
    for tokens, schedule in PROGRAMS:
        original = family_program(family, tokens, schedule)
        for name in names:
            operator, rules = OPERATORS[name]
            mutant = original.clone()
            assert isinstance(mutant, mk.ProgramOp)
            if operator(mutant, random.Random(f"{family}{tokens}{schedule}{name}{seed}")):
                yield Mutant(f"{family}, {tokens} tokens, {schedule}: {name}", name, mutant, rules)


def check_family(family: str, names: Iterable[str] = tuple(OPERATORS)) -> set[str]:
    """The operators that broke a program of the family, each caught."""
    for tokens, schedule in PROGRAMS:
        report = prove(family_program(family, tokens, schedule))
        assert report.holds, report.summary()
        assert report.positions == MAX_SEQ - tokens + 1
    broken: set[str] = set()
    for mutant in mutants(family, names):
        report = prove(mutant.program)
        findings = report.findings
        if mutant.name in STEP_OPERATORS:
            assert report.holds, f"{mutant.what}: {report.findings[0]}"
            findings = report.step_findings
        found = {f.rule for f in findings}
        if not found:
            assert harmless(mutant, report.positions), f"{mutant.what} is not caught"
            continue
        rules = sorted(mutant.rules)
        assert found & mutant.rules, f"{mutant.what} is caught by {sorted(found)}, not {rules}"
        broken.add(mutant.name)
    return broken


def harmless(mutant: Mutant, positions: int) -> bool:
    """A lost wait may follow from others or from the list of a worker, and two buffers may share
    bytes that each tile reads before it writes: then the mutant is a right program, and the oracle
    says so too, at every position."""
    if not mutant.rules & {"V4", "V6"}:
        return False
    script = Script(mutant.program)
    return not any(sample(mutant.program, p, runs=0, script=script) for p in range(positions))


def test_enough_operators() -> None:
    assert len(OPERATORS) >= 40


def test_every_operator_is_caught() -> None:
    """One family with all operators, a second with those the first has no place for."""
    broken = check_family("llama")
    broken |= check_family("gemma3", set(OPERATORS) - broken)
    assert broken == set(OPERATORS)


@pytest.mark.slow
@pytest.mark.parametrize("family", families.FAMILIES)
def test_all_families(family: str) -> None:
    check_family(family)


def test_wrong_beyond_a_position_names_that_position() -> None:
    """A chunk that is missing from position 16 on is found there and not before."""
    operator, _ = OPERATORS["chunk_missing_from_a_position_on"]
    mutant = family_program("llama", 1, "claimed").clone()
    assert isinstance(mutant, mk.ProgramOp)
    assert operator(mutant, random.Random(0))
    assert {f.position for f in prove(mutant).findings} == {16}


def test_row_off_by_one_is_found_at_the_last_position() -> None:
    operator, _ = OPERATORS["table_row_off_by_one"]
    mutant = family_program("llama", 1, "claimed").clone()
    assert isinstance(mutant, mk.ProgramOp)
    assert operator(mutant, random.Random(0))
    assert {f.position for f in prove(mutant).findings} == {MAX_SEQ - 1}


@pytest.mark.parametrize("tokens", [1, WIDE])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_real_programs_run_clean(family: str, tokens: int) -> None:
    """What is proved is also what the oracle sees, at first, middle and last chunks."""
    for schedule in SCHEDULES:
        program = family_program(family, tokens, schedule)
        for past in (0, 15, 16, 33, MAX_SEQ - tokens):
            assert not sample(program, past, runs=1), f"{schedule} at {past}"
