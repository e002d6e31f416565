"""Builds the `lm` module of a `DecoderSpec`, op by op as an importer would, and its weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from xdsl.dialects.builtin import (
    BFloat16Type,
    DenseIntOrFPElementsAttr,
    Float32Type,
    IndexType,
    IntegerAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    i64,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, OpResult, Region, SSAValue

from amk.ir import kv, lm
from amk.ir.lm import shape_of
from tests.property.generate import MAX_SEQ, DecoderSpec

ELEMENTS = {"f32": Float32Type(), "bf16": BFloat16Type()}
TORCH = {"f32": torch.float32, "bf16": torch.bfloat16}
EPS = 1e-5


def build(spec: DecoderSpec) -> tuple[ModuleOp, dict[str, Tensor]]:
    """The module and its weights by key. Equal specs give equal modules and weights."""
    builder = DecoderBuilder(spec)
    return builder.module(), builder.weights


class DecoderBuilder:
    def __init__(self, spec: DecoderSpec):
        self.spec = spec
        self.element = ELEMENTS[spec.dtype]
        self.random = torch.Generator().manual_seed(spec.seed)
        self.weights: dict[str, Tensor] = {}
        self.known: dict[str, OpResult] = {}
        self.place = ""
        caches = 2 * spec.layers
        cache = kv.CacheType.get((1, spec.kv_heads, -1, spec.head), 2, ELEMENTS[spec.cache_dtype])
        tokens = lm.tensor((1, spec.tokens), i64)
        self.block = Block(arg_types=[tokens, IndexType(), *[cache] * caches])
        self.tokens, self.position, *self.caches = self.block.args

    def __call__(self, op: Operation) -> OpResult:
        op.location = NameLoc(StringAttr(self.place or "model"), NoneAttr())
        self.block.add_op(op)
        return op.results[0]

    def module(self) -> ModuleOp:
        s = self.spec
        x = self.embed()
        finals: list[SSAValue] = []
        self.tables = self.rope_tables()
        for i in range(s.layers):
            self.place = f"layers.{i}"
            x, caches = self.layer(x, f"layers.{i}.", *self.caches[2 * i : 2 * i + 2])
            finals += caches
        self.place = ""
        logits = self.head(self.norm(x, "norm"))
        results = [logits, *finals]
        self.block.add_op(ReturnOp(*results))
        types = ([a.type for a in self.block.args], [r.type for r in results])
        module = ModuleOp([FuncOp("step", types, Region(self.block))])
        module.attributes["amk.tokens"] = IntegerAttr(s.tokens, i64)
        module.attributes["amk.max_seq"] = IntegerAttr(MAX_SEQ, i64)
        return module

    # ---- leaves ---------------------------------------------------------------------------

    def weight(self, key: str, *shape: int, around: float = 0.0, scale: float = 0.4) -> OpResult:
        if key not in self.known:
            noise = torch.randn(shape, generator=self.random) * scale + around
            self.weights[key] = noise.to(TORCH[self.spec.dtype])
            self.known[key] = self(lm.WeightOp(key, lm.tensor(shape, self.element)))
        return self.known[key]

    def constant(self, values: list[float], shape: tuple[int, ...], element=None) -> OpResult:
        type = lm.tensor(shape, element or ELEMENTS["f32"])
        return self(lm.ConstantOp(DenseIntOrFPElementsAttr.from_list(type, values)))

    def wide(self, x: SSAValue) -> SSAValue:
        return x if self.spec.dtype == "f32" else self(lm.CastOp(x, ELEMENTS["f32"]))

    def narrow(self, x: SSAValue) -> SSAValue:
        return x if self.spec.dtype == "f32" else self(lm.CastOp(x, self.element))

    # ---- parts ----------------------------------------------------------------------------

    def embed(self) -> SSAValue:
        s = self.spec
        table = self.weight("embed.weight", s.vocab, s.width, scale=1.0)
        x: SSAValue = self(lm.EmbeddingOp(table, self.tokens))
        x = self.scaled(x, s.embedding_scale, s.scale_is_tensor)
        if s.positions.startswith("learned"):
            offset = 2 if s.positions == "learned-offset" else 0
            ids: SSAValue = self(lm.PositionsOp(self.position, lm.tensor((1, s.tokens), i64)))
            if offset:
                ids = self(lm.AddScalarOp(ids, offset))
            rows = self.weight("positions.weight", MAX_SEQ + offset, s.width)
            x = self(lm.AddOp(x, self(lm.EmbeddingOp(rows, ids))))
        return x

    def scaled(self, x: SSAValue, factor: float | None, as_tensor: bool = False) -> SSAValue:
        if factor is None:
            return x
        if as_tensor:
            return self(lm.MulOp(x, self.constant([factor], (), self.element)))
        return self(lm.MulScalarOp(x, factor))

    def rope_tables(self) -> tuple[SSAValue, SSAValue] | None:
        """cos and sin, [1, S, D] or [1, S, D / 2]."""
        s = self.spec
        if not s.positions.startswith("rope"):
            return None
        half = s.rotary // 2
        frequencies = [10.0 ** (-i / half) for i in range(half)]
        ids = self(lm.PositionsOp(self.position, lm.tensor((1, s.tokens), i64)))
        f32 = ELEMENTS["f32"]
        if s.positions == "rope-matmul":
            row = self(lm.CastOp(self(lm.ReshapeOp(ids, (1, 1, s.tokens))), f32))
            column = self(lm.ExpandOp(self.constant(frequencies, (1, half, 1)), (1, half, 1)))
            angles = self(lm.MatmulOp(column, row))
            angles = self(lm.TransposeOp(angles, [0, 2, 1]))
        else:
            column = self(lm.CastOp(self(lm.ReshapeOp(ids, (1, s.tokens, 1))), f32))
            if s.positions == "rope-outer":
                angles = self(lm.MatmulOp(column, self.constant(frequencies, (1, half))))
            else:
                angles = self(lm.MulOp(column, self.constant(frequencies, (half,))))
        if s.positions != "rope-halves":
            angles = self(lm.ConcatOp([angles, angles], 2))
        cos = self(lm.MulScalarOp(self(lm.CosOp(angles)), 1.0))
        sin = self(lm.MulScalarOp(self(lm.SinOp(angles)), 1.0))
        return self.narrow(cos), self.narrow(sin)

    def norm(self, x: SSAValue, key: str) -> SSAValue:
        s = self.spec
        n = shape_of(x)[-1]
        if s.norm == "layer":
            w, b = self.weight(f"{key}.weight", n, around=1.0), self.weight(f"{key}.bias", n)
            return self(lm.LayerNormOp(x, w, EPS, b))
        h = self.wide(x)
        last = [len(shape_of(h)) - 1]
        if s.norm.startswith("layer"):
            h = self(lm.SubOp(h, self(lm.MeanOp(h, last, True))))
        square = self(lm.MulOp(h, h)) if s.norm == "rms-square" else self(lm.PowScalarOp(h, 2.0))
        shifted = self(lm.AddScalarOp(self(lm.MeanOp(square, last, True)), EPS))
        power = s.norm == "rms-power"
        factor = self(lm.PowScalarOp(shifted, -0.5)) if power else self(lm.RsqrtOp(shifted))
        y = self.narrow(self(lm.MulOp(h, factor)))
        if s.norm == "rms-plain":
            return y
        w: SSAValue = self.weight(f"{key}.weight", n, around=1.0)
        if s.norm == "rms-plus-one":
            w = self(lm.AddScalarOp(w, 1.0))
        y = self(lm.MulOp(y, w)) if s.norm == "rms-square" else self(lm.MulOp(w, y))
        if s.norm == "layer-steps":
            y = self(lm.AddOp(y, self.weight(f"{key}.bias", n)))
        return y

    def linear(self, x: SSAValue, key: str, n: int, conv1d: bool = False) -> SSAValue:
        k = shape_of(x)[-1]
        if conv1d:
            w, b = self.weight(f"{key}.weight", k, n), self.weight(f"{key}.bias", n)
            flat = self(lm.ReshapeOp(x, (self.spec.tokens, k)))
            y = self(lm.AddmmOp(b, flat, w))
            return self(lm.ReshapeOp(y, (*shape_of(x)[:-1], n)))
        bias = self.weight(f"{key}.bias", n) if self.spec.bias else None
        return self(lm.LinearOp(x, self.weight(f"{key}.weight", n, k), bias))

    def sliced(self, x: SSAValue, dim: int, start: int, end: int) -> SSAValue:
        return self(lm.SliceOp(x, dim, start, end))

    def in_heads(self, x: SSAValue) -> SSAValue:
        """[1, S, H · D] or [1, S, 1, H, D] → [1, H, S, D]"""
        s = self.spec
        heads = lm.product(shape_of(x)[2:]) // s.head
        viewed = self(lm.ReshapeOp(x, (1, s.tokens, heads, s.head)))
        return self(lm.TransposeOp(viewed, [0, 2, 1, 3]))

    def qkv(self, x: SSAValue, key: str) -> tuple[SSAValue, SSAValue, SSAValue]:
        s = self.spec
        q, k = s.heads * s.head, s.kv_heads * s.head
        if s.qkv == "separate":
            parts = [self.linear(x, f"{key}{n}", m) for n, m in (("q", q), ("k", k), ("v", k))]
            return tuple(self.in_heads(p) for p in parts)  # type: ignore[return-value]
        if s.qkv == "fused-heads" and s.group == 1:
            y = self.linear(x, f"{key}qkv", 3 * q)
            y = self(lm.ReshapeOp(y, (1, s.tokens, s.heads, 3 * s.head)))
            y = self(lm.TransposeOp(y, [0, 2, 1, 3]))
            bounds = [(i * s.head, (i + 1) * s.head) for i in range(3)]
            return tuple(self.sliced(y, 3, a, b) for a, b in bounds)  # type: ignore[return-value]
        if s.qkv == "fused-planes" and s.group == 1:
            y = self.linear(x, f"{key}qkv", 3 * q)
            y = self(lm.ReshapeOp(y, (1, s.tokens, 3, s.heads, s.head)))
            planes = [self.sliced(y, 2, i, i + 1) for i in range(3)]
            return tuple(self.in_heads(p) for p in planes)  # type: ignore[return-value]
        y = self.linear(x, f"{key}qkv", q + 2 * k, s.qkv == "conv1d")
        bounds = [(0, q), (q, q + k), (q + k, q + 2 * k)]
        return tuple(self.in_heads(self.sliced(y, 2, a, b)) for a, b in bounds)  # type: ignore[return-value]

    def rope(self, x: SSAValue) -> SSAValue:
        s = self.spec
        if self.tables is None:
            return x
        cos, sin = (self(lm.ReshapeOp(t, (1, *shape_of(t)))) for t in self.tables)
        rest = None
        if s.rotary != s.head:
            rest = self.sliced(x, 3, s.rotary, s.head)
            x = self.sliced(x, 3, 0, s.rotary)
        half = s.rotary // 2
        low, high = self.sliced(x, 3, 0, half), self.sliced(x, 3, half, s.rotary)
        mul: Callable[[SSAValue, SSAValue], OpResult] = lambda a, b: self(lm.MulOp(a, b))  # noqa: E731
        if s.positions == "rope-halves":
            first = self(lm.SubOp(mul(low, cos), mul(high, sin)))
            second = self(lm.AddOp(mul(high, cos), mul(low, sin)))
            y = self(lm.ConcatOp([first, second], 3))
        else:
            turned = self(lm.ConcatOp([self(lm.NegOp(high)), low], 3))
            y = self(lm.AddOp(mul(x, cos), mul(turned, sin)))
        return y if rest is None else self(lm.ConcatOp([y, rest], 3))

    def attention(
        self, x: SSAValue, key: str, keys: SSAValue, values: SSAValue
    ) -> tuple[SSAValue, list[SSAValue]]:
        s = self.spec
        q, k, v = self.qkv(x, key)
        if s.qk_norm:
            q, k = self.norm(q, f"{key}q_norm"), self.norm(k, f"{key}k_norm")
        q, k = self.rope(q), self.rope(k)
        keys, values = self(kv.AppendOp(keys, k)), self(kv.AppendOp(values, v))
        sinks = self.weight(f"{key}sinks", s.heads) if s.sinks else None
        o = self(
            lm.AttentionOp(
                q, keys, values, self.position, 1 / math.sqrt(s.head), s.window,
                s.attention_softcap, sinks, s.first_rows,
            )
        )  # fmt: skip
        flat = self(lm.ReshapeOp(o, (1, s.tokens, s.heads * s.head)))
        return self.linear(flat, f"{key}o", s.width, s.qkv == "conv1d"), [keys, values]

    def activation(self, x: SSAValue) -> SSAValue:
        kinds = {"silu": lm.SiluOp, "gelu": lm.GeluOp, "gelu_tanh": lm.GeluTanhOp}
        if self.spec.activation == "relu":
            return self(lm.ReluOp(x))
        if self.spec.activation != "gelu-steps":
            return self(kinds[self.spec.activation](x))
        half = self(lm.MulScalarOp(x, 0.5))
        cube = self(lm.MulScalarOp(self(lm.PowScalarOp(x, 3.0)), 0.044715))
        inner = self(lm.MulScalarOp(self(lm.AddOp(x, cube)), math.sqrt(2.0 / math.pi)))
        return self(lm.MulOp(half, self(lm.AddScalarOp(self(lm.TanhOp(inner)), 1.0))))

    def mlp(self, x: SSAValue, key: str) -> SSAValue:
        s = self.spec
        conv1d = s.mlp == "plain-conv1d"
        if s.mlp == "gated":
            gate, up = self.linear(x, f"{key}gate", s.inner), self.linear(x, f"{key}up", s.inner)
            h: SSAValue = self(lm.MulOp(self.activation(gate), up))
        elif s.mlp == "gated-fused":
            both = self.linear(x, f"{key}gate_up", 2 * s.inner)
            gate, up = (self.sliced(both, 2, i * s.inner, (i + 1) * s.inner) for i in (0, 1))
            h = self(lm.MulOp(up, self.activation(gate)))
        else:
            h = self.activation(self.linear(x, f"{key}fc", s.inner, conv1d))
        return self.linear(h, f"{key}down", s.width, conv1d)

    def layer(
        self, x: SSAValue, key: str, keys: SSAValue, values: SSAValue
    ) -> tuple[SSAValue, list[SSAValue]]:
        s = self.spec
        a, caches = self.attention(self.norm(x, f"{key}norm1"), f"{key}attn.", keys, values)
        a = self.scaled(a, s.residual_scale)
        if s.parallel:
            m = self.mlp(self.norm(x, f"{key}norm1"), f"{key}mlp.")
            return self(lm.AddOp(self(lm.AddOp(a, m)), x)), caches
        x = self(lm.AddOp(x, a))
        m = self.mlp(self.norm(x, f"{key}norm2"), f"{key}mlp.")
        return self(lm.AddOp(x, self.scaled(m, s.residual_scale))), caches

    def head(self, x: SSAValue) -> SSAValue:
        s = self.spec
        key = "embed.weight" if s.tied else "head.weight"
        y = self(lm.LinearOp(x, self.weight(key, s.vocab, s.width)))
        if s.logits_softcap is None:
            return y
        y = self(lm.TanhOp(self(lm.DivScalarOp(y, s.logits_softcap))))
        return self(lm.MulScalarOp(y, s.logits_softcap))
