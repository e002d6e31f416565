"""The meaning of each op of the lm and kv dialects, in torch: one small function an op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from xdsl.dialects.arith import ConstantOp as ArithConstantOp
from xdsl.ir import Block, Operation, SSAValue

from amk.errors import AmkError
from amk.interpreters import kv as kv_meaning
from amk.interpreters.attention import attend, attend_split, combine
from amk.interpreters.literals import literal_tensor, torch_dtype
from amk.ir import kv, lm

Value = Tensor | int


class Machine(Protocol):
    """What a meaning may ask for while a function runs."""

    weights: Mapping[str, Tensor]
    past: int
    saved: dict[str, Tensor]

    def tensor(self, value: SSAValue) -> Tensor: ...

    def optional(self, value: SSAValue | None) -> Tensor | None: ...

    def index(self, value: SSAValue) -> int: ...

    def block(self, block: Block) -> list[Value]: ...


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


def lm_integer(attribute: Any) -> int:
    return attribute.value.data


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


def transpose(m: Machine, op: Any) -> Tensor:
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


def attention_split(m: Machine, op: lm.AttentionSplitOp) -> tuple[Value, ...]:
    numbers: Any = op.numbers()
    q, k, v = m.tensor(op.query), m.tensor(op.keys), m.tensor(op.values)
    chunks = lm.shape_of(op.outputs)[0]
    parts = attend_split(
        q, k, v, m.index(op.position), **numbers, chunk=lm_integer(op.chunk), chunks=chunks
    )
    results = (op.outputs, op.maxima, op.sums)
    kinds = [torch_dtype(lm.element_of(r)) for r in results]
    return tuple(part.to(kind) for part, kind in zip(parts, kinds, strict=True))


def attention_combine(m: Machine, op: lm.AttentionCombineOp) -> Tensor:
    parts = [m.tensor(v).to(torch.float32) for v in (op.outputs, op.maxima, op.sums)]
    live = m.index(op.position) + lm.shape_of(op.outputs)[2]
    used = -(-live // lm_integer(op.chunk)) + (op.first_rows is not None)
    outputs, maxima, sums = (part[:used] for part in parts)
    out = combine(outputs, maxima, sums, m.optional(op.sinks))
    return out.to(torch_dtype(lm.element_of(op.result)))


def stage(m: Machine, op: lm.StageOp) -> tuple[Value, ...]:
    return tuple(m.block(op.body.block))


MEANING: dict[type[Operation], Any] = {
    lm.WeightOp: weight,
    lm.ConstantOp: lambda m, op: literal_tensor(op.value),
    ArithConstantOp: lambda m, op: lm_integer(op.value),
    lm.PositionsOp: positions,
    lm.NegOp: unary(torch.neg),
    lm.AbsOp: unary(torch.abs),
    lm.FloorOp: unary(torch.floor),
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
    kv.CapacityOp: lambda m, op: kv_meaning.length(op, m.tensor(op.cache)),
    kv.TruncateOp: lambda m, op: kv_meaning.first_rows(op, m.tensor(op.cache), m.past),
    kv.WindowOp: lambda m, op: kv_meaning.first_rows(op, m.tensor(op.cache), m.past),
    kv.PackOp: lambda m, op: kv_meaning.first_rows(op, m.tensor(op.cache), m.past),
    kv.SaveOp: kv_meaning.save,
    kv.LoadOp: kv_meaning.load,
}
