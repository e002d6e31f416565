"""Rules of `raise` for the tanh form of GELU and gated activations."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from amk.ir import lm
from amk.passes.rewriting import Build, Rules, both_orders, has_one_use, producer

ACTIVATIONS: dict[type[lm.UnaryOp], str] = {
    lm.SiluOp: "silu",
    lm.GeluOp: "gelu",
    lm.GeluTanhOp: "gelu_tanh",
    lm.ReluOp: "relu",
    lm.SigmoidOp: "sigmoid",
    lm.TanhOp: "tanh",
}


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


ACTIVATION_RULES: Rules = {lm.MulOp: (gelu_tanh, gated_act)}
