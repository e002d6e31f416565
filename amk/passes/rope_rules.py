"""Rules of `raise` for rotary embeddings in rotate-half form (Su et al. 2021)."""

from __future__ import annotations

from xdsl.ir import SSAValue

from amk.ir import lm
from amk.ir.lm import shape_of
from amk.passes.rewriting import Build, Rules, both_orders, producer


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


ROPE_RULES: Rules = {lm.AddOp: (rope,), lm.ConcatOp: (rope_of_halves,)}
