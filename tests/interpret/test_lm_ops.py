"""The meaning of the raised ops, each against torch's own function or a longhand formula."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from xdsl.dialects import builtin, func
from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import ArrayAttr, IndexType, IntegerAttr, ModuleOp, StringAttr, f32
from xdsl.ir import Attribute, Block, Region, SSAValue

from amk.errors import AmkError
from amk.interpreters.literals import literal, tensor_type
from amk.interpreters.lm import Decoder, evaluate, run, run_init
from amk.ir import kv, lm

bf16 = builtin.BFloat16Type()
Body = Callable[[Block], list[SSAValue]]


def function(name: str, types: list[Attribute], body: Body) -> func.FuncOp:
    block = Block(arg_types=types)
    results = body(block)
    block.add_op(func.ReturnOp(*results))
    return func.FuncOp(name, (types, [r.type for r in results]), Region(block))


def compute(types: list[Attribute], body: Body, *arguments: Tensor | int) -> list[Tensor]:
    built = function("f", types, body)
    ModuleOp([built]).verify()
    return evaluate(built, arguments, {})  # type: ignore[return-value]


def one(op: Callable[..., lm.LmOp], *arguments: Tensor) -> Tensor:
    """The single result of `op` on tensors."""

    def body(block: Block) -> list[SSAValue]:
        made = op(*block.args)
        block.add_op(made)
        return list(made.results)

    return compute([tensor_type(a) for a in arguments], body, *arguments)[0]


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def test_rms_norm() -> None:
    x, w = random(1, 3, 16), random(16)
    ours = one(lambda x, w: lm.RMSNormOp(x, w, 1e-5), x, w)
    torch.testing.assert_close(ours, F.rms_norm(x, (16,), w, 1e-5))
    torch.testing.assert_close(
        one(lambda x: lm.RMSNormOp(x, None, 1e-5), x), F.rms_norm(x, (16,), None, 1e-5)
    )


def test_rms_norm_works_in_f32() -> None:
    x, w = random(1, 3, 16, dtype=torch.bfloat16), random(16)
    ours = one(lambda x, w: lm.RMSNormOp(x, w, 1e-5), x, w)
    assert torch.equal(ours, F.rms_norm(x.float(), (16,), w, 1e-5).to(torch.bfloat16))


def test_layer_norm() -> None:
    x, w, b = random(1, 3, 16), random(16), random(16) * 2
    ours = one(lambda x, w, b: lm.LayerNormOp(x, w, 1e-5, b), x, w, b)
    assert torch.equal(ours, F.layer_norm(x, (16,), w, b, 1e-5))


def test_rope_rotates_halves() -> None:
    x, angle = random(1, 2, 3, 8), random(1, 1, 3, 4)
    cos, sin = (torch.cat([f(angle)] * 2, dim=-1) for f in (torch.cos, torch.sin))
    ours = one(lm.RopeOp, x, cos, sin)
    turned = torch.view_as_complex(torch.stack([x[..., :4], x[..., 4:]], dim=-1))
    turned = turned * torch.polar(torch.ones_like(angle), angle)
    torch.testing.assert_close(ours, torch.cat([turned.real, turned.imag], dim=-1))


@pytest.mark.parametrize("name", lm.GatedActOp.KNOWN)
def test_gated_act(name: str) -> None:
    gate, up = random(1, 3, 8), random(1, 3, 9)[..., :8]
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "silu": F.silu,
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "relu": F.relu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
    }
    ours = one(lambda g, u: lm.GatedActOp(name, g, u), gate, up)
    assert torch.equal(ours, functions[name](gate) * up)


def test_argmax_takes_the_lowest_of_equals() -> None:
    x = torch.tensor([[[1.0, 5.0, 5.0, 2.0], [7.0, 7.0, 7.0, 7.0]]])
    assert one(lm.ArgmaxOp, x).tolist() == [[1, 0]]


def test_rows() -> None:
    table = random(10, 4)

    def body(block: Block) -> list[SSAValue]:
        op = lm.RowsOp(block.args[0], block.args[1], 3)
        block.add_op(op)
        return [op.result]

    types = [tensor_type(table), IndexType()]
    assert torch.equal(compute(types, body, table, 7)[0], table[None, 7:10])
    with pytest.raises(AmkError, match="rows 8 to 10 of 10"):
        compute(types, body, table, 8)


def test_integers_stay_integers() -> None:
    """A scalar is held as f64, but i64 arithmetic must not pass through floats."""
    x = torch.tensor([[2**53 + 1]])
    assert one(lambda x: lm.AddScalarOp(x, 1.0), x).item() == 2**53 + 2


def test_stage_passes_values_through() -> None:
    x = random(1, 2, 4)

    def body(block: Block) -> list[SSAValue]:
        inner = Block()
        double = lm.AddOp(block.args[0], block.args[0])
        half = lm.MulScalarOp(block.args[0], 0.5)
        inner.add_ops([double, half, lm.YieldOp(double.result, half.result)])
        stage = lm.StageOp(Region(inner), [double.result.type, half.result.type], "s")
        block.add_op(stage)
        return list(stage.results)

    ours = compute([tensor_type(x)], body, x)
    assert torch.equal(ours[0], x + x)
    assert torch.equal(ours[1], x * 0.5)


# ---- attention ----------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 1, 3, 6, 50])
@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize(("past", "tokens"), [(0, 1), (0, 5), (7, 1), (8, 4)])
def test_split_and_combine_equal_attention(
    window: int | None, softcap: float | None, sinks: bool, past: int, tokens: int
) -> None:
    heads, kv_heads, depth, chunk, max_seq = 4, 2, 8, 4, 18
    cache = kv.CacheType.get((1, kv_heads, -1, depth), 2, f32)
    query = random(1, heads, tokens, depth) * 2
    keys, values = (random(1, kv_heads, past + tokens, depth + i)[..., :depth] for i in (0, 1))
    extra = random(heads)

    def body(block: Block) -> list[SSAValue]:
        q, k, v, position, extra = block.args
        given = extra if sinks else None
        whole = lm.AttentionOp(q, k, v, position, 0.4, window, softcap, given)
        split = lm.AttentionSplitOp(whole, chunk, max_seq, f32)
        joined = lm.AttentionCombineOp(split, given)
        block.add_ops([whole, split, joined])
        return [whole.result, joined.result, *split.results]

    types = [tensor_type(query), cache, cache, IndexType(), tensor_type(extra)]
    whole, joined, _, maxima, sums = compute(types, body, query, keys, values, past, extra)
    torch.testing.assert_close(joined, whole, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(
        whole,
        longhand(query, keys, values, past, window, softcap, extra if sinks else None),
        rtol=2e-6,
        atol=2e-6,
    )
    assert maxima.shape == (5, kv_heads, tokens, 2)
    used = -(-(past + tokens) // chunk)
    assert (maxima[used:] == -torch.inf).all()
    assert (sums[used:] == 0).all()


def longhand(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    past: int,
    window: int | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """One query row and one head at a time, in f64, from the definition."""
    _, heads, tokens, _ = query.shape
    out = torch.zeros(1, tokens, heads, values.shape[3], dtype=torch.float64)
    for h in range(heads):
        k, v = (c[0, h // (heads // keys.shape[1])].double() for c in (keys, values))
        for s in range(tokens):
            last = past + s
            first = 0 if window is None else max(0, last - window + 1)
            scores = k[first : last + 1] @ query[0, h, s].double() * 0.4
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            weights = scores.exp()
            total = weights.sum() + (0 if sinks is None else sinks[h].double().exp())
            out[0, s, h] = weights @ v[first : last + 1] / total
    return out.float()


# ---- functions ----------------------------------------------------------------------------


def counter() -> ModuleOp:
    """A step whose logits are the init table's rows plus the cache's length."""
    cache = kv.CacheType.get((1, 1, -1, 4), 2, f32)
    types = [lm.tensor((1, 1), builtin.i64), IndexType(), cache]

    def init(block: Block) -> list[SSAValue]:
        zero = ConstantOp(IntegerAttr(0, IndexType()))
        positions = lm.PositionsOp(zero.result, lm.tensor((1, 8), builtin.i64))
        wide = lm.CastOp(positions.result, f32)
        table = lm.ReshapeOp(wide.result, (8, 1))
        weight = lm.WeightOp("w", lm.tensor((4,), f32))
        double = lm.MulScalarOp(weight.result, 2.0)
        block.add_ops([zero, positions, wide, table, weight, double])
        return [table.result, double.result]

    def step(block: Block) -> list[SSAValue]:
        _, position, cache = block.args
        table = lm.WeightOp("@init/table", lm.tensor((8, 1), f32))
        row = lm.RowsOp(table.result, position, 1)
        double = lm.WeightOp("@init/double", lm.tensor((4,), f32))
        total = lm.AddOp(row.result, double.result)
        entry = lm.ReshapeOp(total.result, (1, 1, 1, 4))
        append = kv.AppendOp(cache, entry.result)
        block.add_ops([table, row, double, total, entry, append])
        return [total.result, append.result]

    first = function("init", [], init)
    first.attributes["amk.names"] = ArrayAttr([StringAttr("table"), StringAttr("double")])
    return ModuleOp([first, function("step", types, step)], {"amk.tokens": lm.integer(1)})


def test_init_runs_once_and_feeds_steps() -> None:
    module, weights = counter(), {"w": torch.arange(4.0)}
    assert run_init(module, weights)["@init/double"].tolist() == [0, 2, 4, 6]
    decoder = Decoder(module, weights)
    assert decoder.step([5]).tolist() == [[0, 2, 4, 6]]
    assert decoder.step([5]).tolist() == [[1, 3, 5, 7]]
    assert decoder.caches[0].shape == (1, 1, 2, 4)


def test_run_leaves_its_arguments_alone() -> None:
    module, weights = counter(), {"w": torch.arange(4.0)}
    weights |= run_init(module, weights)
    cache = torch.zeros(1, 1, 3, 4)
    _, after = run(module, torch.zeros(1, 1, dtype=torch.int64), 3, [cache], weights)
    assert cache.shape == (1, 1, 3, 4)
    assert after[0].shape == (1, 1, 4, 4)


@pytest.mark.parametrize("past", [-1, 2])
def test_a_cache_of_another_length_is_refused(past: int) -> None:
    module, weights = counter(), {"w": torch.arange(4.0)}
    weights |= run_init(module, weights)
    tokens, cache = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1, 3, 4)
    with pytest.raises(ValueError, match="does not fit"):
        run(module, tokens, past, [cache], weights)


def test_missing_weight_is_named() -> None:
    with pytest.raises(AmkError, match="'w'"):
        run_init(counter(), {})


def test_weight_of_another_shape_is_refused() -> None:
    with pytest.raises(AmkError, match=r"lm.weight gives"):
        run_init(counter(), {"w": torch.arange(5.0)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
def test_literals_keep_bits(dtype: torch.dtype) -> None:
    value = (random(3, 4) * 1000).to(dtype)
    op = lm.ConstantOp(literal(value))

    def body(block: Block) -> list[SSAValue]:
        block.add_op(op)
        return [op.result]

    assert torch.equal(compute([], body)[0], value)
