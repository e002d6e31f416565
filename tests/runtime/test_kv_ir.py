"""Lengths, windows and recognition on the IR. Numbers in brackets are the cases of
docs/dialects/kv.md."""

from __future__ import annotations

import pytest
import torch
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from amk.errors import AmkError
from amk.interpreters import lm as interpreter
from amk.ir import kv, parse_module
from amk.passes import run_pipeline, verify

CACHE = '!kv.cache<1x2x?x4xf32, axis = 2, policy = "static">'

APPENDS = f"""
!cache = {CACHE}
func.func @step(%t: tensor<1x1xi64>, %pos: index, %x: tensor<1x2x3x4xf32>, %c: !cache)
    -> (tensor<1x2x?x4xf32>, !cache) {{
  %n = kv.append %c, %x : tensor<1x2x3x4xf32> -> !cache
  %rows = kv.pack %n[P + 3] : !cache -> tensor<1x2x?x4xf32>
  %y = lm.neg %rows : tensor<1x2x?x4xf32>
  func.return %y, %n : tensor<1x2x?x4xf32>, !cache
}}
"""


def ops_of(module: ModuleOp, kind: type) -> list:
    return [op for op in module.walk() if isinstance(op, kind)]


def test_lengths_add_up() -> None:
    """[33]: P + S on the sequence axis, every other extent as it is."""
    (append,) = ops_of(parse_module(APPENDS), kv.AppendOp)
    assert str(kv.length_of(append.cache)) == "P"
    assert str(kv.length_of(append.result)) == "P + 3"
    assert kv.cache_type(append.result).get_shape() == (1, 2, -1, 4)


def test_window_and_pack_compute_the_same() -> None:
    """[16]: the pass changes where rows lie, not what they are."""
    before, after = parse_module(APPENDS), parse_module(APPENDS)
    run_pipeline(after, "kv-window-outputs")
    assert ops_of(after, kv.WindowOp)
    cache, new = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 3, 4)
    outs = []
    for module in (before, after):
        step = interpreter.function_named(module, "step")
        given = [torch.zeros(1, 1, dtype=torch.int64), 5, new, cache]
        outs.append(interpreter.evaluate(step, given, {}, past=5))
    assert torch.equal(outs[0][0], outs[1][0])
    assert torch.equal(outs[0][0], -torch.cat([cache, new], 2))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("func.return %rows, %n : tensor<1x2x?x4xf32>, !cache", "it is an output"),
        (
            "%y = lm.concat %rows, %x {dim = 2 : i64} : tensor<1x2x?x4xf32>, "
            "tensor<1x2x3x4xf32> -> tensor<1x2x?x4xf32>\n"
            "func.return %y, %n : tensor<1x2x?x4xf32>, !cache",
            "lm.concat reads no strides",
        ),
    ],
)
def test_pass_says_why_it_packs(body: str, reason: str) -> None:
    """[11, 17, 19]"""
    text = APPENDS[: APPENDS.index("  %y")] + body + "\n}"
    (report,) = run_pipeline(parse_module(text), "kv-window-outputs")
    assert report.statistics == {"packed": 1}
    assert [str(r) for r in report.remarks] == [f"kv.pack: rows stay packed: {reason}"]


def test_nothing_reads_the_rows() -> None:
    """[20]"""
    text = APPENDS.replace("%y = lm.neg %rows", "%y = lm.neg %other").replace(
        "%c: !cache)", "%c: !cache, %other: tensor<1x2x?x4xf32>)"
    )
    (report,) = run_pipeline(parse_module(text), "kv-window-outputs")
    assert [r.text for r in report.remarks] == ["rows stay packed: nothing reads it"]


def test_empty_window_is_defined() -> None:
    """[7, 8]"""
    text = APPENDS.replace("x3x4", "x0x4").replace("P + 3", "P")
    step = interpreter.function_named(parse_module(text), "step")
    given = [torch.zeros(1, 1, dtype=torch.int64), 0, torch.zeros(1, 2, 0, 4)]
    rows, cache = interpreter.evaluate(step, [*given, torch.zeros(1, 2, 0, 4)], {}, past=0)
    assert rows.shape == cache.shape == (1, 2, 0, 4)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_append_on_any_axis(axis: int) -> None:
    """[9]"""
    shape = [2, 3, 4]
    entry = "x".join(str(2 if i == axis else d) for i, d in enumerate(shape))
    opened = "x".join("?" if i == axis else str(d) for i, d in enumerate(shape))
    cache = f'!kv.cache<{opened}xf32, axis = {axis}, policy = "doubling">'
    module = parse_module(f"""
      func.func @step(%x: tensor<{entry}xf32>, %c: {cache}) -> {cache} {{
        %n = kv.append %c, %x : tensor<{entry}xf32> -> {cache}
        func.return %n : {cache}
      }}""")
    (step,) = ops_of(module, interpreter.func.FuncOp)
    old = torch.randn([5 if i == axis else d for i, d in enumerate(shape)])
    new = torch.randn([2 if i == axis else d for i, d in enumerate(shape)])
    (found,) = interpreter.evaluate(step, [new, old], {}, past=5)
    assert torch.equal(found, torch.cat([old, new], axis))


def test_truncate_save_load() -> None:
    module = parse_module(f"""
      !cache = {CACHE}
      func.func @step(%c: !cache) -> (!cache, !cache, index) {{
        %t = kv.truncate %c[2] : !cache -> !cache
        kv.save %t to "a" : !cache
        %l = kv.load "a" [Q] : !cache
        %n = kv.length %l : !cache
        func.return %t, %l, %n : !cache, !cache, index
      }}""")
    (step,) = ops_of(module, interpreter.func.FuncOp)
    cache = torch.randn(1, 2, 5, 4)
    kept, loaded, count = interpreter.evaluate(step, [cache], {}, past=5)
    assert torch.equal(kept, cache[:, :, :2])
    assert torch.equal(loaded, kept)
    assert count == 2
    with pytest.raises(AmkError, match="2 rows of a cache that has 1"):
        interpreter.evaluate(step, [cache[:, :, :1]], {}, past=1)


FOLDED = """
func.func @step(%t: tensor<1x1xi64>, %pos: index, %x: tensor<1x2x3x4xf32>,
    %past: tensor<1x2x?x4xf32>) -> (tensor<1x2x?xf32>, tensor<1x2x?x4xf32>) {
  %all = lm.concat %past, %x {dim = 2 : i64}
    : tensor<1x2x?x4xf32>, tensor<1x2x3x4xf32> -> tensor<1x2x?x4xf32>
  %m = lm.amax %all {dims = array<i64: 3>, keepdim = 0 : i1}
    : tensor<1x2x?x4xf32> -> tensor<1x2x?xf32>
  func.return %m, %all : tensor<1x2x?xf32>, tensor<1x2x?x4xf32>
}
"""


def test_fold_then_unfold_is_the_original() -> None:
    """[34]"""
    module = parse_module(FOLDED)
    text = str(module)
    (report,) = run_pipeline(module, "fold-kv")
    assert report.statistics == {"folded": 1}
    assert len(ops_of(module, kv.AppendOp)) == 1
    step = interpreter.function_named(module, "step")
    past, new = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 3, 4)
    given = [torch.zeros(1, 1, dtype=torch.int64), 5, new, past]
    m, cache = interpreter.evaluate(step, given, {}, past=5)
    assert torch.equal(cache, torch.cat([past, new], 2))
    assert torch.equal(m, cache.amax(3))
    run_pipeline(module, "unfold-kv")
    assert str(module) == text


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("%past, %x {dim", "%x, %past {dim", "the new rows do not come last"),  # [35]
        (
            "%m = lm.amax %all",
            "%m = lm.amax %past",
            "its rows have another use than one concat",
        ),
        ("return %m, %all", "return %m, %past", "its rows have another use than one concat"),
    ],
)
def test_left_alone(old: str, new: str, reason: str) -> None:
    """[35, 36] and their like; the axes are in tests/filecheck/passes/fold-kv.mlir."""
    text = FOLDED.replace(old, new)
    if "%x, %past" in new:
        text = text.replace(
            "tensor<1x2x?x4xf32>, tensor<1x2x3x4xf32> ->",
            "tensor<1x2x3x4xf32>, tensor<1x2x?x4xf32> ->",
        )
    module = parse_module(text)
    before = str(module)
    (report,) = run_pipeline(module, "fold-kv")
    assert report.statistics == {"left alone": 1}
    assert [r.text for r in report.remarks] == [f"'past' is no cache: {reason}"]
    assert str(module) == before


def test_caches_that_do_not_pair_are_refused() -> None:
    """[37]: keys and values on different axes, and a version with two appends."""
    other = '!kv.cache<1x?x2x4xf32, axis = 1, policy = "static">'
    text = f"""
      !k = {CACHE}
      !v = {other}
      func.func @step(%q: tensor<1x2x1x4xf32>, %pos: index, %k: !k, %v: !v)
          -> tensor<1x1x2x4xf32> {{
        %o = lm.attention %q, %k, %v at %pos {{scale = 1.0 : f64}}
          : tensor<1x2x1x4xf32>, !k, !v -> tensor<1x1x2x4xf32>
        func.return %o : tensor<1x1x2x4xf32>
      }}"""
    with pytest.raises((VerifyException, AmkError), match="L14: axis 2 is open"):
        verify(parse_module(text))
    twice = APPENDS.replace(
        "  %rows", "  %m = kv.append %c, %x : tensor<1x2x3x4xf32> -> !cache\n  %rows"
    )
    with pytest.raises((VerifyException, AmkError), match="C6: a cache version has two appends"):
        verify(parse_module(twice))
