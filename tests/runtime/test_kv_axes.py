"""Caches on any axis, in programs of several widths that share one. Numbers in brackets are the
cases of docs/dialects/kv.md."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from amk.errors import AmkError
from amk.ir import mk, parse_module
from amk.passes import run_pipeline, verify
from tests.runtime.kernel_bench import RUNNERS, Interpreted

pytestmark = pytest.mark.usefixtures("cache_root")
WIDTHS = (1, 3, 2)
TABLE = np.random.default_rng(0).standard_normal((16, 24)).astype(np.float32)
WEIGHTS = {"embed.weight": TABLE}


def dims(axis: int, rows: int) -> tuple[int, ...]:
    return (*(2, 3, 4)[:axis], rows, *(2, 3, 4)[axis:])


def typed(axis: int, rows: int) -> str:
    """As part of a type; −1 rows are open."""
    return "x".join("?" if d == -1 else str(d) for d in dims(axis, rows)) + "xf32"


def appending(axis: int, rows: int) -> ModuleOp:
    """Appends the rows of `rows` tokens; the logits are their negatives."""
    entry = f"tensor<{typed(axis, rows)}>"
    cache = f'!kv.cache<{typed(axis, -1)}, axis = {axis}, policy = "doubling">'
    order = [*range(1, axis + 1), 0, *range(axis + 1, 4)]
    return parse_module(f"""
      func.func @step(%t: tensor<1x{rows}xi64>, %pos: index, %c: {cache})
          -> (tensor<1x{rows}x24xf32>, {cache}) {{
        %w = lm.weight "embed.weight" : tensor<16x24xf32>
        %e = lm.embedding %w, %t
          : tensor<16x24xf32>, tensor<1x{rows}xi64> -> tensor<1x{rows}x24xf32>
        %h = lm.reshape %e : tensor<1x{rows}x24xf32> -> tensor<{rows}x2x3x4xf32>
        %n = lm.transpose %h {{permutation = array<i64: {", ".join(map(str, order))}>}}
          : tensor<{rows}x2x3x4xf32> -> {entry}
        %a = kv.append %c, %n : {entry} -> {cache}
        %y = lm.neg %e : tensor<1x{rows}x24xf32>
        func.return %y, %a : tensor<1x{rows}x24xf32>, {cache}
      }}""")


def lowered(axis: int, passes: str) -> list[mk.ProgramOp]:
    found = []
    for rows in WIDTHS:
        module = appending(axis, rows)
        run_pipeline(module, f"fuse,place-kv-append,lower-lm-to-mk{{max-seq=64}},{passes}")
        found += [op for op in module.ops if isinstance(op, mk.ProgramOp)]
    return found


@pytest.mark.parametrize("backend", RUNNERS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_appends_equal_concatenation(axis: int, backend: str) -> None:
    """[9, 15]: chunks of mixed sizes into a cache with spare rows, that moves in between; nothing
    else of it is touched. With the axis outermost the live rows are contiguous."""
    kind = RUNNERS[backend]
    runner = kind(lowered(axis, kind.passes), WEIGHTS)
    rng, past, capacity = np.random.default_rng(1), 0, 4
    rows = np.full(dims(axis, capacity), np.nan, np.float32)
    plain = np.zeros(dims(axis, 0), np.float32)
    for width in (1, 3, 1, 2, 2, 3, 1):
        if past + width > capacity:
            wider = np.full(dims(axis, 2 * capacity), np.nan, np.float32)
            np.moveaxis(wider, axis, 0)[:past] = np.moveaxis(rows, axis, 0)[:past]
            rows, capacity = wider, 2 * capacity
        tokens = rng.integers(0, 16, width)
        caches = {"c": rows}
        logits = runner.launch(WIDTHS.index(width), tokens, past, caches)
        np.testing.assert_array_equal(logits[0], -TABLE[tokens])
        new = np.moveaxis(TABLE[tokens].reshape(width, 2, 3, 4), 0, axis)
        plain = np.concatenate([plain, new], axis)
        past += width
        live = np.moveaxis(rows, axis, 0)
        np.testing.assert_array_equal(np.moveaxis(live[:past], 0, axis), plain)
        assert np.isnan(live[past:]).all()
    assert (axis == 0) == rows[(slice(None),) * axis + (slice(past),)].flags.c_contiguous


READS = """
func.func @step(%t: tensor<1x1xi64>, %pos: index, %q: tensor<1x2x1x4xf32>, %c: !cache)
    -> (tensor<1x1x2x4xf32>, !cache) {
  %o = lm.attention %q, %c, %c at %pos {scale = 1.0 : f64}
    : tensor<1x2x1x4xf32>, !cache, !cache -> tensor<1x1x2x4xf32>
  func.return %o, %c : tensor<1x1x2x4xf32>, !cache
}
"""


def test_attention_over_another_axis_is_refused() -> None:
    """[9]: what attends wants [1, heads, rows, depth], and says so."""
    alias = '!cache = !kv.cache<1x?x2x4xf32, axis = 1, policy = "static">'
    with pytest.raises((AmkError, VerifyException), match="L14: axis 2 is open"):
        verify(parse_module(alias + READS))


def test_rows_as_a_tensor_are_refused_below_lm() -> None:
    """[16]: a window or a copy of rows has no kernel; the refusal names the op."""
    for read in ("kv.window", "kv.pack"):
        module = parse_module(f"""
          !cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
          func.func @step(%t: tensor<1x1xi64>, %pos: index, %x: tensor<1x2x1x4xf32>, %c: !cache)
              -> (tensor<1x2x?x4xf32>, !cache) {{
            %y = lm.neg %x : tensor<1x2x1x4xf32>
            %n = kv.append %c, %y : tensor<1x2x1x4xf32> -> !cache
            %r = {read} %n[P + 1] : !cache -> tensor<1x2x?x4xf32>
            func.return %r, %n : tensor<1x2x?x4xf32>, !cache
          }}""")
        with pytest.raises(AmkError, match=read):
            run_pipeline(module, "fuse")


def test_the_interpreter_sees_a_row_too_far() -> None:
    """A launch over capacity is an error of the box, never a wrap."""
    runner = Interpreted(lowered(2, Interpreted.passes), WEIGHTS)
    with pytest.raises(AmkError, match="leaves buffer"):
        runner.launch(1, np.arange(3), 2, {"c": np.zeros(dims(2, 4), np.float32)})
