"""Faults put into the kernel or its headers on purpose: each must be seen by a named check."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.simt_tools import MUTANTS, STORMS, checked, logits, race, toy

WITHOUT_SANITIZER = [n for n, m in MUTANTS.items() if "race" not in m.caught_by]

pytestmark = pytest.mark.usefixtures("cache_root")


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    return {}


def seen_by(name: str, expected: dict[str, np.ndarray]) -> set[str]:
    """What the runs without a sanitizer see, under any of the storms."""
    if "sound" not in expected:
        expected["sound"] = logits(toy())
    seen = set()
    for weather in STORMS:
        found = checked(lambda w=weather: logits(toy(), w, name, patience_s=0.4), expected["sound"])
        if found is not None:
            return {found}
    return seen


@pytest.mark.parametrize("name", WITHOUT_SANITIZER)
def test_caught_by_bits_or_hang(name: str, expected: dict[str, np.ndarray]) -> None:
    assert seen_by(name, expected) & set(MUTANTS[name].caught_by)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in MUTANTS if n not in WITHOUT_SANITIZER])
def test_caught_by_the_thread_sanitizer(name: str) -> None:
    report = race(3, name)
    assert "data race" in report, f"not seen as a race: {report[-300:]}"


@pytest.mark.parametrize("name", MUTANTS)
def test_applies(name: str) -> None:
    """A mutant that changes nothing would prove nothing."""
    from amk.runtime.simt import SOURCE_NAME, host_headers

    mutant = MUTANTS[name]
    text = toy().source(0) if mutant.file == SOURCE_NAME else host_headers()[mutant.file]
    assert mutant.edit(mutant.file, text) != text
