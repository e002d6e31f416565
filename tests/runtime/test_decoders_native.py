"""Every decoder that is imported compiles to C and says what transformers says.

The families of `tests/families.py` are held to bits by `test_families_native.py`; here come the
others of `tests/interpret/test_every_decoder.py`.
"""

from __future__ import annotations

import numpy as np
import pytest

import amk
from amk.runtime.program import Program
from tests import families
from tests.interpret.test_every_decoder import IMPORTED, config_of, seeded

TOKENS = 40
RATIO, FLOOR = 3.0, 1e-6
"""Error against float64, over that of transformers in float32; and of the logits' deviation."""


@pytest.mark.slow
@pytest.mark.usefixtures("cache_root")
@pytest.mark.parametrize("name", IMPORTED.split())
def test_native(name: str) -> None:
    model = seeded(config_of(name), "f32")
    program = amk.compile(model, target="cpu", max_seq=64, dtype="f32")
    assert isinstance(program, Program)
    session = program.session(model)
    tokens = families.random_tokens(TOKENS)
    found = np.stack([session.step(token) for token in tokens])
    theirs = families.Eager(model).step(tokens).numpy()
    exact = families.Eager(model.double()).step(tokens).numpy()
    ours, eager = np.abs(found - exact).max(), np.abs(theirs - exact).max()
    assert ours <= RATIO * eager + FLOOR * exact.std()
