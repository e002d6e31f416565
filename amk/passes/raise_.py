"""`raise`: finds the ops a compiler reasons about in the arithmetic they were written as.

RMSNorm, LayerNorm, rotate-half RoPE, the tanh form of GELU and gated activations. Run it after
`canonicalize`. What is raised, and whether the raised op has the bits of what it replaces (in
f32, in the `lm` interpreter), stands at each rule.

Before:

    func.func @step(%x: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
      %w = lm.weight "norm.weight" : tensor<8xf32>
      %p = lm.pow_scalar %x, 2.0 : f64 : tensor<1x1x8xf32> -> tensor<1x1x8xf32>
      %m = lm.mean %p {dims = array<i64: 2>, keepdim = true}
        : tensor<1x1x8xf32> -> tensor<1x1x1xf32>
      %a = lm.add_scalar %m, 1.0e-6 : f64 : tensor<1x1x1xf32> -> tensor<1x1x1xf32>
      %r = lm.rsqrt %a : tensor<1x1x1xf32>
      %n = lm.mul %x, %r : tensor<1x1x8xf32>, tensor<1x1x1xf32> -> tensor<1x1x8xf32>
      %y = lm.mul %w, %n : tensor<8xf32>, tensor<1x1x8xf32> -> tensor<1x1x8xf32>
      func.return %y : tensor<1x1x8xf32>
    }

After, with `raise`:

    func.func @step(%x: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
      %w = lm.weight "norm.weight" : tensor<8xf32>
      %y = lm.rms_norm %x weight %w : tensor<8xf32> {eps = 1.0e-6 : f64} : tensor<1x1x8xf32>
      func.return %y : tensor<1x1x8xf32>
    }
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from amk.ir import lm
from amk.ir.lm import shape_of
from amk.passes.rewriting import Build, LmPass, Rules, has_one_use, integers, producer, rewrite

ACTIVATIONS: dict[type[lm.UnaryOp], str] = {
    lm.SiluOp: "silu",
    lm.GeluOp: "gelu",
    lm.GeluTanhOp: "gelu_tanh",
    lm.ReluOp: "relu",
    lm.SigmoidOp: "sigmoid",
    lm.TanhOp: "tanh",
}


def both_orders(op: lm.BinaryOp) -> Iterator[tuple[SSAValue, SSAValue]]:
    yield op.lhs, op.rhs
    yield op.rhs, op.lhs


# ---- norms --------------------------------------------------------------------------------


def square_of(value: SSAValue) -> SSAValue | None:
    """x, when `value` is x² (as a power or a product: the same bits)."""
    power = producer(value, lm.PowScalarOp)
    if power is not None and power.value.value.data == 2.0:
        return power.input
    product = producer(value, lm.MulOp)
    return product.lhs if product is not None and product.lhs is product.rhs else None


def last_mean_of(value: SSAValue) -> SSAValue | None:
    """x, when `value` is the mean of x over its last axis, kept as 1."""
    mean = producer(value, lm.MeanOp)
    if mean is None or not mean.keepdim.value.data:
        return None
    last = len(shape_of(mean.input)) - 1
    return mean.input if integers(mean.dims) == [last] else None


def inverse_rms_of(value: SSAValue) -> tuple[SSAValue, float] | None:
    """(x, eps), when `value` is 1 / √(mean(x²) + eps), as rsqrt or as the power −1/2."""
    power = producer(value, lm.PowScalarOp)
    rsqrt = producer(value, lm.RsqrtOp)
    if rsqrt is None and (power is None or power.value.value.data != -0.5):
        return None
    inner = rsqrt.input if rsqrt is not None else power.input  # type: ignore[union-attr]
    shifted = producer(inner, lm.AddScalarOp)
    mean = None if shifted is None else last_mean_of(shifted.input)
    x = None if mean is None else square_of(mean)
    if shifted is None or x is None:
        return None
    return x, shifted.value.value.data


def rms_norm(op: lm.MulOp, build: Build) -> SSAValue | None:
    """x · rsqrt(mean(x²) + eps), no weight yet. Same bits as rsqrt; as a power, within 1 ulp."""
    for x, factor in both_orders(op):
        found = inverse_rms_of(factor)
        if found is not None and found[0] is x and x.type == op.result.type:
            return build(lm.RMSNormOp(x, None, found[1]))
    return None


def norm_weight(op: lm.MulOp, build: Build) -> SSAValue | None:
    """norm(x) · w with w [H] becomes the norm's weight. Same bits."""
    for n, w in both_orders(op):
        norm = n.owner
        if not isinstance(norm, lm.NormOp) or norm.weight is not None or norm.bias is not None:
            continue
        if shape_of(w) == shape_of(n)[-1:] and has_one_use(n) and n.type == op.result.type:
            return build(type(norm)(norm.input, w, norm.eps.value.data))
    return None


def layer_norm(op: lm.RMSNormOp, build: Build) -> SSAValue | None:
    """RMSNorm of x − mean(x) is LayerNorm. Not the same bits: the sums run in another order."""
    centred = producer(op.input, lm.SubOp)
    if centred is None or last_mean_of(centred.rhs) is not centred.lhs:
        return None
    return build(lm.LayerNormOp(centred.lhs, op.weight, op.eps.value.data))


def layer_norm_bias(op: lm.AddOp, build: Build) -> SSAValue | None:
    """layer_norm(x) + b with b [H] becomes the norm's bias. Not the same bits."""
    for n, b in both_orders(op):
        norm = producer(n, lm.LayerNormOp)
        if norm is None or norm.bias is not None or norm.weight is None:
            continue
        if shape_of(b) == shape_of(n)[-1:] and has_one_use(n) and n.type == op.result.type:
            return build(lm.LayerNormOp(norm.input, norm.weight, norm.eps.value.data, b))
    return None


# ---- rope ---------------------------------------------------------------------------------


def half_of(value: SSAValue) -> tuple[SSAValue, int] | None:
    """(x, 0 or 1), when `value` is the first or second half of the last axis of x."""
    part = producer(value, lm.SliceOp)
    if part is None:
        return None
    dim, start, end, step = part.bounds()
    shape = shape_of(part.input)
    width = shape[-1]
    if dim != len(shape) - 1 or step != 1 or width % 2:
        return None
    halves = {(0, width // 2): 0, (width // 2, width): 1}
    return (part.input, halves[start, end]) if (start, end) in halves else None


def rotated(value: SSAValue) -> SSAValue | None:
    """x, when `value` is [−x₁, x₀] for the halves [x₀, x₁] of the last axis of x."""
    concat = producer(value, lm.ConcatOp)
    if concat is None or len(concat.inputs) != 2:
        return None
    if concat.dim.value.data != len(shape_of(value)) - 1:
        return None
    neg = producer(concat.inputs[0], lm.NegOp)
    second = None if neg is None else half_of(neg.input)
    first = half_of(concat.inputs[1])
    if first is None or second is None or (first[1], second[1]) != (0, 1):
        return None
    return first[0] if first[0] is second[0] else None


def product_with(value: SSAValue, x: SSAValue) -> SSAValue | None:
    """c, when `value` is x · c."""
    product = producer(value, lm.MulOp)
    if product is None:
        return None
    for a, c in both_orders(product):
        if a is x:
            return c
    return None


def rope(op: lm.AddOp, build: Build) -> SSAValue | None:
    """x · cos + rotate(x) · sin. Same bits."""
    for straight, turned in both_orders(op):
        product = producer(turned, lm.MulOp)
        if product is None:
            continue
        for r, sin in both_orders(product):
            x = rotated(r)
            cos = None if x is None else product_with(straight, x)
            if x is not None and cos is not None and fits_rope(x, cos, sin, op):
                return build(lm.RopeOp(x, cos, sin))
    return None


def fits_rope(x: SSAValue, cos: SSAValue, sin: SSAValue, op: lm.AddOp) -> bool:
    shape = shape_of(x)
    return (
        x.type == op.result.type
        and len(shape) == 4
        and all(lm.broadcast_shapes(shape_of(v), shape) == shape for v in (cos, sin))
    )


def rope_of_halves(op: lm.ConcatOp, build: Build) -> SSAValue | None:
    """[x₀ · c − x₁ · s, x₁ · c + x₀ · s], tables half as wide. Same bits: −(x₁ · s) = (−x₁) · s."""
    if len(op.inputs) != 2 or op.dim.value.data != len(shape_of(op.result)) - 1:
        return None
    low, high = producer(op.inputs[0], lm.SubOp), producer(op.inputs[1], lm.AddOp)
    first, minus = (producer(v, lm.MulOp) for v in (low.lhs, low.rhs)) if low else (None, None)
    if low is None or high is None or first is None or minus is None:
        return None
    for x0, cos in both_orders(first):
        for x1, sin in both_orders(minus):
            a, b = half_of(x0), half_of(x1)
            if a is None or b is None or a[0] is not b[0] or (a[1], b[1]) != (0, 1):
                continue
            if not is_second_half(high, x0, x1, cos, sin) or len(shape_of(a[0])) != 4:
                continue
            if any(shape_of(t)[-1:] != shape_of(x0)[-1:] for t in (cos, sin)):
                continue
            axes = [len(shape_of(t)) - 1 for t in (cos, sin)]
            wide = [build(lm.ConcatOp([t, t], d)) for t, d in zip((cos, sin), axes, strict=True)]
            return build(lm.RopeOp(a[0], *wide))
    return None


def is_second_half(
    high: lm.AddOp, x0: SSAValue, x1: SSAValue, cos: SSAValue, sin: SSAValue
) -> bool:
    return any(
        product_with(u, x1) is cos and product_with(v, x0) is sin for u, v in both_orders(high)
    )


# ---- gated activations --------------------------------------------------------------------


def gated_act(op: lm.MulOp, build: Build) -> SSAValue | None:
    """activation(gate) · up. Same bits."""
    for a, up in both_orders(op):
        activation = a.owner
        if type(activation) not in ACTIVATIONS or not has_one_use(a):
            continue
        assert isinstance(activation, lm.UnaryOp)
        # x · sigmoid(x) is an activation itself, with nothing to gate.
        if a.type == up.type == op.result.type and activation.input is not up:
            return build(lm.GatedActOp(ACTIVATIONS[type(activation)], activation.input, up))
    return None


GELU_SLOPE = math.sqrt(2.0 / math.pi)
GELU_CUBIC = 0.044715
"""Of the tanh approximation (Hendrycks & Gimpel 2016)."""


def scaled_by(value: SSAValue, factor: float) -> SSAValue | None:
    """x, when `value` is x · factor."""
    op = producer(value, lm.MulScalarOp)
    return op.input if op is not None and op.value.value.data == factor else None


def cubic_argument(value: SSAValue) -> SSAValue | None:
    """x, when `value` is x + 0.044715 · x³."""
    total = producer(value, lm.AddOp)
    if total is None:
        return None
    for x, term in both_orders(total):
        cube = scaled_by(term, GELU_CUBIC)
        power = None if cube is None else producer(cube, lm.PowScalarOp)
        if power is not None and power.value.value.data == 3.0 and power.input is x:
            return x
    return None


def gelu_tanh(op: lm.MulOp, build: Build) -> SSAValue | None:
    """0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))). Not the same bits."""
    for half, factor in both_orders(op):
        x = scaled_by(half, 0.5)
        one_plus = producer(factor, lm.AddScalarOp)
        if x is None or one_plus is None or one_plus.value.value.data != 1.0:
            continue
        tanh = producer(one_plus.input, lm.TanhOp)
        inner = None if tanh is None else scaled_by(tanh.input, GELU_SLOPE)
        if inner is not None and cubic_argument(inner) is x:
            return build(lm.GeluTanhOp(x))
    return None


RULES: Rules = {
    lm.MulOp: (rms_norm, norm_weight, gelu_tanh, gated_act),
    lm.RMSNormOp: (layer_norm,),
    lm.AddOp: (layer_norm_bias, rope),
    lm.ConcatOp: (rope_of_halves,),
}

RAISED = (lm.RMSNormOp, lm.LayerNormOp, lm.RopeOp, lm.GeluTanhOp, lm.GatedActOp)


def count_raised(module: ModuleOp) -> Counter[str]:
    """How many of each raised op the module holds, by op name."""
    return Counter(op.name for op in module.walk() if isinstance(op, RAISED))


@dataclass(frozen=True)
class Raise(LmPass):
    name = "raise"
    tolerance: ClassVar[float] = 1e-5
    """0 where no LayerNorm, no GELU and no power −1/2 was raised."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        before = count_raised(op)
        rewrite(op, RULES, self.name)
        self.counts.update(count_raised(op) - before)
