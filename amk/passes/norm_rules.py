"""Rules of `raise` for RMSNorm and LayerNorm. Each says whether the raised op has the same bits."""

from __future__ import annotations

from xdsl.ir import SSAValue

from amk.ir import lm
from amk.ir.lm import shape_of
from amk.passes.rewriting import Build, Rules, both_orders, has_one_use, integers, producer


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


NORM_RULES: Rules = {
    lm.MulOp: (rms_norm, norm_weight),
    lm.RMSNormOp: (layer_norm,),
    lm.AddOp: (layer_norm_bias,),
}
