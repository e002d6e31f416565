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
TOLERANCE = 1e-5
"""Of the standard deviation of the logits: sums are taken in another order."""


@pytest.mark.slow
@pytest.mark.usefixtures("cache_root")
@pytest.mark.parametrize("name", IMPORTED.split())
def test_native(name: str) -> None:
    model = seeded(config_of(name), "f32")
    program = amk.compile(model, target="cpu", max_seq=64, dtype="f32")
    assert isinstance(program, Program)
    session = program.session(model)
    tokens = families.random_tokens(TOKENS)
    expected = families.Eager(model).step(tokens).numpy()
    found = np.stack([session.step(token) for token in tokens])
    assert np.abs(found - expected).max() <= TOLERANCE * expected.std()
