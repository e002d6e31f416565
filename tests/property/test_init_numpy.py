"""@init in numpy agrees with the lm interpreter op by op, and holds one weight at a time."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from xdsl.dialects.arith import ConstantOp as ArithConstantOp
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from amk.errors import AmkError
from amk.interpreters import init_numpy
from amk.interpreters import lm as interpreter
from amk.interpreters.init_numpy import evaluate_init, iterate_init
from amk.ir import context, lm
from tests.property.running import as_array, as_tensor, distance

F32 = [
    *(
        f"lm.{n} %x : tensor<3x4xf32>"
        for n in ["neg", "abs", "floor", "exp", "sqrt", "rsqrt", "cos", "sin", "tanh"]
    ),
    *(
        f"lm.{n} %x : tensor<3x4xf32>"
        for n in ["log", "sigmoid", "silu", "relu", "erf", "gelu", "gelu_tanh"]
    ),
    *(
        f"lm.{n} %x, %y : tensor<3x4xf32>, tensor<4xf32> -> tensor<3x4xf32>"
        for n in ["add", "sub", "mul", "div", "pow", "maximum", "minimum"]
    ),
    *(
        f"lm.{n}_scalar %x, 0.3 : f64 : tensor<3x4xf32> -> tensor<3x4xf32>"
        for n in ["add", "sub", "rsub", "mul", "div", "pow"]
    ),
    "lm.mean %x {dims = array<i64: 1>, keepdim = true} : tensor<3x4xf32> -> tensor<3x1xf32>",
    "lm.sum %x {dims = array<i64: 0>, keepdim = false} : tensor<3x4xf32> -> tensor<4xf32>",
    "lm.amax %x {dims = array<i64: 1>, keepdim = false} : tensor<3x4xf32> -> tensor<3xf32>",
    "lm.softmax %x {dim = 1 : i64} : tensor<3x4xf32>",
    "lm.reshape %x : tensor<3x4xf32> -> tensor<2x6xf32>",
    "lm.transpose %x {permutation = array<i64: 1, 0>} : tensor<3x4xf32> -> tensor<4x3xf32>",
    "lm.slice %x {dim = 1 : i64, start = 1 : i64, end = 4 : i64, step = 2 : i64}"
    " : tensor<3x4xf32> -> tensor<3x2xf32>",
    "lm.concat %x, %x {dim = 1 : i64} : tensor<3x4xf32>, tensor<3x4xf32> -> tensor<3x8xf32>",
    "lm.expand %y : tensor<4xf32> -> tensor<2x4xf32>",
    "lm.linear %x, %x bias %z : tensor<3xf32> : tensor<3x4xf32>, tensor<3x4xf32>"
    " -> tensor<3x3xf32>",
    "lm.matmul %x, %t : tensor<3x4xf32>, tensor<4x3xf32> -> tensor<3x3xf32>",
    "lm.rms_norm %x weight %y : tensor<4xf32> {eps = 0.1 : f64} : tensor<3x4xf32>",
    "lm.rms_norm %x {eps = 0.1 : f64} : tensor<3x4xf32>",
    "lm.layer_norm %x weight %y : tensor<4xf32> bias %y : tensor<4xf32> {eps = 0.1 : f64}"
    " : tensor<3x4xf32>",
    "lm.cast %x : tensor<3x4xf32> -> tensor<3x4xbf16>",
    "lm.cast %x : tensor<3x4xf32> -> tensor<3x4xf16>",
    "lm.constant dense<[1.5, 0.1]> : tensor<2xf32>",
    "lm.positions %i : tensor<1x5xi64>",
]
BF16 = [
    "lm.cast %b : tensor<2x4xbf16> -> tensor<2x4xf32>",
    "lm.slice %b {dim = 1 : i64, start = 0 : i64, end = 2 : i64, step = 1 : i64}"
    " : tensor<2x4xbf16> -> tensor<2x2xbf16>",
    "lm.mul_scalar %b, 0.3 : f64 : tensor<2x4xbf16> -> tensor<2x4xbf16>",
    "lm.add %b, %b : tensor<2x4xbf16>, tensor<2x4xbf16> -> tensor<2x4xbf16>",
]
WEIGHTS = {
    "x": torch.rand(3, 4, generator=torch.Generator().manual_seed(0)) + 0.1,
    "y": torch.rand(4, generator=torch.Generator().manual_seed(1)) + 0.1,
    "z": torch.rand(3, generator=torch.Generator().manual_seed(2)),
    "b": torch.randn(2, 4, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16),
}
EXACT = {
    "neg", "abs", "floor", "relu", "add", "sub", "mul", "div", "maximum", "minimum",
    "add_scalar", "sub_scalar", "rsub_scalar", "mul_scalar", "div_scalar", "amax", "reshape",
    "transpose", "slice", "concat", "expand", "cast", "constant", "positions",
}  # fmt: skip


def module_of(ops: list[str], types: list[str]) -> ModuleOp:
    names = ", ".join(f'"{i}"' for i in range(len(ops)))
    body = "\n".join(f"%{chr(97 + i)}{i} = {op}" for i, op in enumerate(ops))
    results = ", ".join(f"%{chr(97 + i)}{i}" for i in range(len(ops)))
    return Parser(
        context(),
        f"""
        func.func @init() -> ({", ".join(types)}) attributes {{amk.names = [{names}]}} {{
          %x = lm.weight "x" : tensor<3x4xf32>
          %y = lm.weight "y" : tensor<4xf32>
          %z = lm.weight "z" : tensor<3xf32>
          %b = lm.weight "b" : tensor<2x4xbf16>
          %i = arith.constant 7 : index
          %t = lm.transpose %x {{permutation = array<i64: 1, 0>}}
            : tensor<3x4xf32> -> tensor<4x3xf32>
          {body}
          func.return {results} : {", ".join(types)}
        }}""",
    ).parse_module()


def result_type(op: str) -> str:
    return op.split("->")[-1].strip() if "->" in op else op.split(" : ")[-1].strip()


def read(key: str) -> np.ndarray:
    return as_array(WEIGHTS[key])


@pytest.mark.parametrize("op", F32 + BF16)
def test_agrees_with_torch(op: str) -> None:
    module = module_of([op], [result_type(op)])
    module.verify()
    ours = as_tensor(evaluate_init(module, read)["0"])
    theirs = interpreter.run_init(module, WEIGHTS)["@init/0"]
    name = op.split()[0].removeprefix("lm.")
    assert ours.dtype == theirs.dtype
    if name in EXACT:
        assert torch.equal(ours, theirs)
    else:
        assert distance(theirs, ours) < 3e-7


def test_every_meaning_is_tested() -> None:
    tested = {op.split()[0] for op in F32 + BF16} | {ArithConstantOp.name}
    assert {op.name for op in init_numpy.MEANING} == tested


def test_cosine_is_the_nearest_f32() -> None:
    """Of an angle of thousands of radians, where a cosine in f32 loses bits."""
    module = Parser(
        context(),
        """func.func @init() -> tensor<8192xf32> attributes {amk.names = ["cos"]} {
          %i = arith.constant 0 : index
          %p = lm.positions %i : tensor<8192xi64>
          %f = lm.cast %p : tensor<8192xi64> -> tensor<8192xf32>
          %c = lm.cos %f : tensor<8192xf32>
          func.return %c : tensor<8192xf32>
        }""",
    ).parse_module()
    exact = np.cos(np.arange(8192, dtype=np.float64)).astype(np.float32)
    assert np.array_equal(evaluate_init(module, read)["cos"], exact)
    assert not np.array_equal(np.cos(np.arange(8192, dtype=np.float32)), exact)


def two_weights() -> ModuleOp:
    return module_of(
        [
            "lm.mul_scalar %x, 2.0 : f64 : tensor<3x4xf32> -> tensor<3x4xf32>",
            "lm.mul_scalar %y, 2.0 : f64 : tensor<4xf32> -> tensor<4xf32>",
        ],
        ["tensor<3x4xf32>", "tensor<4xf32>"],
    )


def test_a_weight_is_dropped_after_its_last_result() -> None:
    class Watched(np.ndarray):
        """numpy's own arrays take no weak references."""

    kept: dict[str, weakref.ref] = {}

    def watched(key: str) -> np.ndarray:
        value = read(key).copy().view(Watched)
        kept[key] = weakref.ref(value)
        return value

    results = iterate_init(two_weights(), watched)
    assert next(results)[0] == "0"
    assert list(kept) == ["x"], "the second weight is read when it is needed"
    assert kept["x"]() is None
    assert next(results)[0] == "1"


def test_weights_of_another_shape_or_dtype_are_refused() -> None:
    with pytest.raises(AmkError, match=r"weight 'x' is float32\(2, 2\)"):
        evaluate_init(two_weights(), lambda key: np.zeros((2, 2), np.float32))
    with pytest.raises(AmkError, match="weight 'x' is float64"):
        evaluate_init(two_weights(), lambda key: np.zeros((3, 4), np.float64))


def test_unnamed_results_are_refused() -> None:
    module = two_weights()
    del next(iter(module.body.block.ops)).attributes["amk.names"]
    with pytest.raises(AmkError, match=r"amk\.names must name each result"):
        evaluate_init(module, read)


def test_no_init_gives_nothing() -> None:
    assert evaluate_init(ModuleOp([]), read) == {}


def test_op_without_a_meaning_is_refused() -> None:
    op = "lm.argmax %x : tensor<3x4xf32> -> tensor<3xi64>"
    assert lm.ArgmaxOp not in init_numpy.MEANING
    with pytest.raises(AmkError, match=r"no numpy meaning for lm\.argmax"):
        evaluate_init(module_of([op], ["tensor<3xi64>"]), read)
