"""The meaning of the lm dialect, in torch, on the CPU: one small function an op.

A freshly imported module gives the bits of transformers' eager model, because each op is the
torch op it was imported from. The raised ops have the meaning their docstrings in `amk.ir.lm`
state, computed in f32 where a pass may choose the order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, IndexType, ModuleOp, StringAttr, TensorType
from xdsl.ir import Block, Operation, SSAValue

from amk.errors import AmkError
from amk.interpreters import kv as kv_meaning
from amk.interpreters.attention import attend, repeat_heads, visible
from amk.interpreters.literals import literal_tensor, torch_dtype
from amk.ir import kv, lm

Weights = Mapping[str, Tensor]
Value = Tensor | int


class Machine:
    """Values of SSA names while one function runs."""

    def __init__(self, weights: Weights):
        self.weights = weights
        self.values: dict[SSAValue, Value] = {}

    def tensor(self, value: SSAValue) -> Tensor:
        return cast(Tensor, self.values[value])

    def optional(self, value: SSAValue | None) -> Tensor | None:
        return None if value is None else self.tensor(value)

    def index(self, value: SSAValue) -> int:
        return cast(int, self.values[value])

    def block(self, block: Block) -> list[Value]:
        """Runs the ops of `block`; returns what its terminator passes on."""
        for op in block.ops:
            if isinstance(op, func.ReturnOp | lm.YieldOp):
                return [self.values[v] for v in op.operands]
            meaning = MEANING.get(type(op))
            if meaning is None:
                raise AmkError(f"the lm interpreter has no meaning for {op.name}")
            results = meaning(self, op)
            outs = results if isinstance(results, tuple) else (results,)
            for name, value in zip(op.results, outs, strict=True):
                self.values[name] = checked(op, name, value)
        raise AmkError("a block of the lm dialect ends in func.return or lm.yield")


def checked(op: Operation, name: SSAValue, value: Value) -> Value:
    """A result must have the type the op states: a wrong meaning stops here."""
    if isinstance(name.type, TensorType):
        assert isinstance(value, Tensor)
        found = (tuple(value.shape), value.dtype)
        if found != (name.type.get_shape(), torch_dtype(name.type.element_type)):
            raise AmkError(f"{op.name} gives {found} where its type is {name.type}")
    return value


def run(
    module: ModuleOp,
    tokens: Tensor,
    past: int,
    caches: Sequence[Tensor],
    weights: Weights,
    function: str = "step",
) -> tuple[Tensor, list[Tensor]]:
    """One launch: `tokens` [1, S] i64 at past length `past`.

    `caches` are in the order of the function's arguments, each with exactly `past` rows; `weights`
    map keys to tensors of the dtype and shape the module states. Returns logits and the next
    versions of the caches. The arguments are not changed.
    """
    step = function_named(module, function)
    types = list(step.body.block.arg_types)
    given: list[Value] = [tokens, past, *caches]
    for i, (type, value) in enumerate(zip(types, given, strict=True)):
        check_argument(i, type, value, past)
    results = evaluate(step, given, weights)
    return cast(Tensor, results[0]), cast(list[Tensor], results[1:])


def run_init(module: ModuleOp, weights: Weights, function: str = "init") -> dict[str, Tensor]:
    """What `@init()` computes, as `@init/NAME` → tensor.

    The function's `amk.results` attribute names its results in order.
    """
    init = function_named(module, function)
    names = init.attributes.get("amk.results")
    if not isinstance(names, ArrayAttr):
        raise AmkError(f"@{function} has no amk.results attribute that names its results")
    values = evaluate(init, [], weights)
    keys = [f"@{function}/{cast(StringAttr, n).data}" for n in names]
    return dict(zip(keys, cast(list[Tensor], values), strict=True))


def function_named(module: ModuleOp, name: str) -> func.FuncOp:
    for op in module.body.block.ops:
        if isinstance(op, func.FuncOp) and op.sym_name.data == name:
            return op
    raise AmkError(f"the module has no function @{name}")


def check_argument(i: int, type: Any, value: Value, past: int) -> None:
    if isinstance(type, IndexType):
        ok = isinstance(value, int) and value >= 0
    elif isinstance(type, kv.CacheType):
        shape = tuple(past if d == -1 else d for d in type.get_shape())
        dtype = torch_dtype(type.element_type)
        ok = isinstance(value, Tensor) and (tuple(value.shape), value.dtype) == (shape, dtype)
    else:
        shape, dtype = type.get_shape(), torch_dtype(type.element_type)
        ok = isinstance(value, Tensor) and (tuple(value.shape), value.dtype) == (shape, dtype)
    if not ok:
        raise ValueError(f"argument {i} does not fit {type} at past length {past}")


def evaluate(function: func.FuncOp, arguments: Sequence[Value], weights: Weights) -> list[Value]:
    """The results of `function` on `arguments`, in order."""
    machine = Machine(weights)
    block = function.body.block
    machine.values.update(zip(block.args, arguments, strict=True))
    with torch.no_grad():
        return machine.block(block)


def empty_caches(module: ModuleOp, function: str = "step") -> list[Tensor]:
    """The caches of `function` before the first launch."""
    types = function_named(module, function).body.block.arg_types
    caches = [t for t in types if isinstance(t, kv.CacheType)]
    return [kv_meaning.empty(t, torch_dtype(t.element_type)) for t in caches]


class Decoder:
    """Decodes with one module per chunk length, holding the caches between launches.

    `modules` are imports of one model that differ in `amk.tokens`; where one has an `@init`
    function it runs once, here.
    """

    def __init__(self, modules: ModuleOp | Sequence[ModuleOp], weights: Weights):
        listed = [modules] if isinstance(modules, ModuleOp) else list(modules)
        self.steps = {chunk_length(m): (m, with_init(m, weights)) for m in listed}
        self.caches = empty_caches(listed[0])
        self.past = 0

    def step(self, tokens: Sequence[int]) -> Tensor:
        """One launch over `tokens`; returns logits [S, V]. ValueError if no module has S."""
        count = len(tokens)
        if count not in self.steps:
            raise ValueError(f"no module for {count} tokens; there are {sorted(self.steps)}")
        module, weights = self.steps[count]
        ids = torch.tensor([list(tokens)], dtype=torch.int64)
        logits, self.caches = run(module, ids, self.past, self.caches, weights)
        self.past += count
        return logits[0]

    def prefill(self, tokens: Sequence[int]) -> Tensor:
        """All of `tokens` in the largest chunks that fit; returns logits [len(tokens), V]."""
        rows, done = [], 0
        while done < len(tokens):
            fitting = [s for s in self.steps if s <= len(tokens) - done]
            if not fitting:
                raise ValueError(f"no module for the last {len(tokens) - done} tokens")
            rows.append(self.step(tokens[done : done + max(fitting)]))
            done += max(fitting)
        return torch.cat(rows)


def chunk_length(module: ModuleOp) -> int:
    return lm_integer(module.attributes["amk.tokens"])


def with_init(module: ModuleOp, weights: Weights) -> Weights:
    names = [op.sym_name.data for op in module.body.block.ops if isinstance(op, func.FuncOp)]
    return {**weights, **run_init(module, weights)} if "init" in names else weights


def lm_integer(attribute: Any) -> int:
    return attribute.value.data


# ---- the meaning of each op -----------------------------------------------------------------

Meaning = Callable[[Machine, Any], Value | tuple[Value, ...]]


def unary(function: Callable[[Tensor], Tensor]) -> Meaning:
    return lambda m, op: function(m.tensor(op.input))


def binary(function: Callable[[Tensor, Tensor], Tensor]) -> Meaning:
    return lambda m, op: function(m.tensor(op.lhs), m.tensor(op.rhs))


def scalar(function: Callable[[Tensor, Any], Tensor]) -> Meaning:
    def meaning(m: Machine, op: lm.ScalarOp) -> Tensor:
        value: Any = op.value.value.data
        integral = not torch_dtype(lm.element_of(op.result)).is_floating_point
        return function(m.tensor(op.input), int(value) if integral else value)

    return meaning


def weight(m: Machine, op: lm.WeightOp) -> Tensor:
    key = op.key.data
    if key not in m.weights:
        raise AmkError(f"no weight {key!r} was given")
    return m.weights[key]


def positions(m: Machine, op: lm.PositionsOp) -> Tensor:
    shape = lm.shape_of(op.result)
    past = m.index(op.position)
    return torch.arange(past, past + shape[-1], dtype=torch.int64).reshape(shape)


def cast_(m: Machine, op: lm.CastOp) -> Tensor:
    return m.tensor(op.input).to(torch_dtype(lm.element_of(op.result)))


def axes(op: Any) -> list[int]:
    return [int(d) for d in op.dims.get_values()]


def reduce(function: Callable[..., Tensor]) -> Meaning:
    return lambda m, op: function(
        m.tensor(op.input), dim=axes(op), keepdim=bool(op.keepdim.value.data)
    )


def softmax(m: Machine, op: lm.SoftmaxOp) -> Tensor:
    return torch.softmax(m.tensor(op.input), dim=lm_integer(op.dim))


def argmax(m: Machine, op: lm.ArgmaxOp) -> Tensor:
    x = m.tensor(op.input)
    # torch leaves the choice among equal elements open; the op takes the lowest index.
    return (x == x.amax(dim=-1, keepdim=True)).to(torch.int64).argmax(dim=-1)


def reshape(m: Machine, op: lm.ReshapeOp) -> Tensor:
    return m.tensor(op.input).reshape(lm.shape_of(op.result))


def transpose(m: Machine, op: lm.TransposeOp) -> Tensor:
    return m.tensor(op.input).permute([int(p) for p in op.permutation.get_values()])


def slice_(m: Machine, op: lm.SliceOp) -> Tensor:
    dim, start, end, step = op.bounds()
    index = [slice(None)] * dim + [slice(start, end, step)]
    return m.tensor(op.input)[tuple(index)]


def concat(m: Machine, op: lm.ConcatOp) -> Tensor:
    return torch.cat([m.tensor(v) for v in op.inputs], dim=lm_integer(op.dim))


def expand(m: Machine, op: lm.ExpandOp) -> Tensor:
    return m.tensor(op.input).expand(lm.shape_of(op.result))


def linear(m: Machine, op: lm.LinearOp) -> Tensor:
    return F.linear(m.tensor(op.input), m.tensor(op.weight), m.optional(op.bias))


def addmm(m: Machine, op: lm.AddmmOp) -> Tensor:
    return torch.addmm(m.tensor(op.bias), m.tensor(op.input), m.tensor(op.weight))


def embedding(m: Machine, op: lm.EmbeddingOp) -> Tensor:
    return F.embedding(m.tensor(op.indices), m.tensor(op.weight))


def rows(m: Machine, op: lm.RowsOp) -> Tensor:
    past, count = m.index(op.position), lm.shape_of(op.result)[1]
    table = m.tensor(op.table)
    if past + count > table.shape[0]:
        raise AmkError(f"lm.rows reads rows {past} to {past + count - 1} of {table.shape[0]}")
    return table[None, past : past + count]


def rms_norm(m: Machine, op: lm.RMSNormOp) -> Tensor:
    x = m.tensor(op.input)
    wide = x.to(torch.float32)
    y = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + op.eps.value.data)
    if op.weight is not None:
        y = y * m.tensor(op.weight).to(torch.float32)
    if op.bias is not None:
        y = y + m.tensor(op.bias).to(torch.float32)
    return y.to(x.dtype)


def layer_norm(m: Machine, op: lm.LayerNormOp) -> Tensor:
    x = m.tensor(op.input)
    scale, shift = m.optional(op.weight), m.optional(op.bias)
    return F.layer_norm(x, x.shape[-1:], scale, shift, op.eps.value.data)


def rope(m: Machine, op: lm.RopeOp) -> Tensor:
    x, cos, sin = m.tensor(op.input), m.tensor(op.cos), m.tensor(op.sin)
    a, b = x.chunk(2, dim=-1)
    return (x * cos + torch.cat([-b, a], dim=-1) * sin).to(x.dtype)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def gated_act(m: Machine, op: lm.GatedActOp) -> Tensor:
    return ACTIVATIONS[op.activation.data](m.tensor(op.gate)) * m.tensor(op.up)


def attention(m: Machine, op: lm.AttentionOp) -> Tensor:
    numbers: Any = op.numbers()
    q, k, v = m.tensor(op.query), m.tensor(op.keys), m.tensor(op.values)
    return attend(q, k, v, m.index(op.position), **numbers, sinks=m.optional(op.sinks))


def attention_split(m: Machine, op: lm.AttentionSplitOp) -> tuple[Tensor, Tensor, Tensor]:
    past, chunk, numbers = m.index(op.position), lm_integer(op.chunk), op.numbers()
    query = m.tensor(op.query).to(torch.float32)
    _, heads, tokens, _ = query.shape
    keys, values = (m.tensor(c).to(torch.float32) for c in (op.keys, op.values))
    kv_heads, live = keys.shape[1], past + tokens
    groups = heads // kv_heads
    outputs = torch.zeros(lm.shape_of(op.outputs))
    maxima = torch.full(lm.shape_of(op.maxima), -torch.inf)
    sums = torch.zeros(lm.shape_of(op.sums))
    seen = visible(past, tokens, live, cast("int | None", numbers["window"]))
    for c in range(-(-live // chunk)):
        part = slice(c * chunk, min((c + 1) * chunk, live))
        k, v = repeat_heads(keys[:, :, part], groups), repeat_heads(values[:, :, part], groups)
        scores = torch.matmul(query, k.transpose(2, 3)) * numbers["scale"]
        if numbers["softcap"] is not None:
            scores = torch.tanh(scores / numbers["softcap"]) * numbers["softcap"]
        scores = scores.masked_fill(~seen[:, part], -torch.inf)
        top = scores.amax(dim=-1)
        # exp(−inf − −inf) would be nan: a chunk with no visible row has sum 0.
        base = torch.where(top == -torch.inf, 0.0, top)
        weights = torch.exp(scores - base[..., None])
        outputs[c] = by_group(torch.matmul(weights, v), groups)
        maxima[c], sums[c] = by_group(top, groups), by_group(weights.sum(dim=-1), groups)
    kinds = [torch_dtype(lm.element_of(r)) for r in (op.outputs, op.maxima, op.sums)]
    return outputs.to(kinds[0]), maxima.to(kinds[1]), sums.to(kinds[2])


def by_group(x: Tensor, groups: int) -> Tensor:
    """[1, Hkv · G, S, …] → [Hkv, S, G, …]"""
    _, heads, *rest = x.shape
    return x.reshape(heads // groups, groups, *rest).transpose(1, 2)


def attention_combine(m: Machine, op: lm.AttentionCombineOp) -> Tensor:
    outputs, maxima, sums = (
        m.tensor(v).to(torch.float32) for v in (op.outputs, op.maxima, op.sums)
    )
    _, kv_heads, tokens, groups, depth = outputs.shape
    top = torch.full(maxima.shape[1:], -torch.inf)
    total, out = torch.zeros(sums.shape[1:]), torch.zeros(outputs.shape[1:])
    live = m.index(op.position) + tokens
    for c in range(-(-live // lm_integer(op.chunk))):
        higher = torch.maximum(top, maxima[c])
        kept, added = rescale(top, higher), rescale(maxima[c], higher)
        out = out * kept[..., None] + outputs[c] * added[..., None]
        total = total * kept + sums[c] * added
        top = higher
    if op.sinks is not None:
        sinks = m.tensor(op.sinks).to(torch.float32).reshape(kv_heads, 1, groups)
        total = total + torch.exp(sinks - top)
    out = (out / total[..., None]).transpose(0, 1)
    result = out.reshape(1, tokens, kv_heads * groups, depth)
    return result.to(torch_dtype(lm.element_of(op.result)))


def rescale(old: Tensor, new: Tensor) -> Tensor:
    """exp(old − new), 0 where old is −inf."""
    return torch.where(old == -torch.inf, 0.0, torch.exp(old - new))


def stage(m: Machine, op: lm.StageOp) -> tuple[Value, ...]:
    return tuple(m.block(op.body.block))


MEANING: dict[type[Operation], Meaning] = {
    lm.WeightOp: weight,
    lm.ConstantOp: lambda m, op: literal_tensor(op.value),
    lm.PositionsOp: positions,
    lm.NegOp: unary(torch.neg),
    lm.AbsOp: unary(torch.abs),
    lm.ExpOp: unary(torch.exp),
    lm.LogOp: unary(torch.log),
    lm.SqrtOp: unary(torch.sqrt),
    lm.RsqrtOp: unary(torch.rsqrt),
    lm.CosOp: unary(torch.cos),
    lm.SinOp: unary(torch.sin),
    lm.TanhOp: unary(torch.tanh),
    lm.SigmoidOp: unary(torch.sigmoid),
    lm.SiluOp: unary(F.silu),
    lm.ReluOp: unary(torch.relu),
    lm.ErfOp: unary(torch.erf),
    lm.GeluOp: unary(F.gelu),
    lm.GeluTanhOp: unary(ACTIVATIONS["gelu_tanh"]),
    lm.AddOp: binary(torch.add),
    lm.SubOp: binary(torch.sub),
    lm.MulOp: binary(torch.mul),
    lm.DivOp: binary(torch.div),
    lm.PowOp: binary(torch.pow),
    lm.MaximumOp: binary(torch.maximum),
    lm.MinimumOp: binary(torch.minimum),
    lm.AddScalarOp: scalar(torch.add),
    lm.SubScalarOp: scalar(torch.sub),
    lm.RsubScalarOp: scalar(torch.rsub),
    lm.MulScalarOp: scalar(torch.mul),
    lm.DivScalarOp: scalar(torch.div),
    lm.PowScalarOp: scalar(torch.pow),
    lm.CastOp: cast_,
    lm.MeanOp: reduce(torch.mean),
    lm.SumOp: reduce(torch.sum),
    lm.AmaxOp: reduce(torch.amax),
    lm.SoftmaxOp: softmax,
    lm.ArgmaxOp: argmax,
    lm.ReshapeOp: reshape,
    lm.TransposeOp: transpose,
    lm.SliceOp: slice_,
    lm.ConcatOp: concat,
    lm.ExpandOp: expand,
    lm.LinearOp: linear,
    lm.AddmmOp: addmm,
    lm.MatmulOp: binary(torch.matmul),
    lm.EmbeddingOp: embedding,
    lm.RowsOp: rows,
    lm.RMSNormOp: rms_norm,
    lm.LayerNormOp: layer_norm,
    lm.RopeOp: rope,
    lm.GatedActOp: gated_act,
    lm.AttentionOp: attention,
    lm.AttentionSplitOp: attention_split,
    lm.AttentionCombineOp: attention_combine,
    lm.StageOp: stage,
    kv.AppendOp: lambda m, op: kv_meaning.append(op, m.tensor(op.cache), m.tensor(op.entries)),
    kv.LengthOp: lambda m, op: kv_meaning.length(op, m.tensor(op.cache)),
}
