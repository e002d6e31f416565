"""The meaning of each op of `mk`, against numpy in f64 (see mk_cases)."""

from __future__ import annotations

import numpy as np
import pytest

from amk.interpreters.mk import RULES
from tests.interpret.mk_bench import Bench, interpret
from tests.interpret.mk_cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    arguments, fill = CASES[name]
    bench = Bench(**arguments)
    fill(bench)
    found = interpret(bench, bench.program())
    for source, (expected, tolerance) in bench.expected.items():
        assert_close(found[source], expected, tolerance)


def assert_close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Within `tolerance` where finite; infinities, NaNs and, at 0, the sign of zeros agree."""
    assert found.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite].astype(found.dtype))
    error = np.abs(found[finite].astype(np.float64) - expected[finite])
    assert error.max(initial=0.0) <= tolerance, f"{error.max()} > {tolerance}"
    if tolerance == 0.0:
        np.testing.assert_array_equal(np.signbit(found[finite]), np.signbit(expected[finite]))


def test_every_op_has_a_case() -> None:
    seen = set()
    for arguments, fill in CASES.values():
        bench = Bench(**arguments)
        fill(bench)
        seen |= {type(op) for op in bench.program().walk()}
    assert set(RULES) <= seen
