"""The programs of one model share an @init, however each of them wrote it."""

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import amk
from amk.errors import AmkError
from amk.interpreters.common_init import common_init
from amk.ir import parse_module
from tests import families

TABLE = """
func.func @init() -> tensor<4x2xf32> attributes {{amk.names = ["table"]}} {{
  %c = lm.constant dense<[{0}, 2.0]> : tensor<2xf32>
  %r = lm.reshape %c : tensor<2xf32> -> tensor<{1}xf32>
  %e = lm.expand %r : tensor<{1}xf32> -> tensor<{2}xf32>
  %t = lm.reshape %e : tensor<{2}xf32> -> tensor<4x2xf32>
  func.return %t : tensor<4x2xf32>
}}
"""
SCALED = """
func.func @init() -> tensor<2xf32> attributes {{amk.names = ["scaled"]}} {{
  %w = lm.weight "w" : tensor<2xf32>
  %y = lm.mul_scalar %w, {0} : f64 : tensor<2xf32> -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}}
"""


def module(text: str, *values: str) -> ModuleOp:
    return parse_module(text.format(*values))


def test_tables_written_in_two_ways_are_one():
    a, b = module(TABLE, "1.0", "1x2", "4x2"), module(TABLE, "1.0", "1x1x2", "1x4x2")
    assert common_init([a, b]) == str(a) + "\n"


@pytest.mark.parametrize(
    ("a", "b", "name"),
    [
        (module(TABLE, "1.0", "1x2", "4x2"), module(TABLE, "1.5", "1x1x2", "1x4x2"), "table"),
        (module(SCALED, "1.0"), module(SCALED, "2.0"), "scaled"),
        (module(SCALED, "1.0"), ModuleOp([]), "scaled"),
    ],
)
def test_a_disagreement_is_named(a: ModuleOp, b: ModuleOp, name: str):
    with pytest.raises(AmkError, match=f"disagree about {name}$"):
        common_init([a, b])


@pytest.mark.parametrize("name", ["cohere", "glm4"])
def test_families_whose_tables_differ_compile(name: str):
    model = families.build(name)
    tokens = families.random_tokens(20)
    expected = families.Eager(model).step(tokens).numpy()
    with amk.compile(model, max_seq=64).session(model) as session:
        np.testing.assert_allclose(session.logits(tokens), expected, rtol=1e-4, atol=1e-4)
