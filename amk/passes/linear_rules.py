"""Canonicalization rules that bring products with a weight to `lm.linear`.

They keep the meaning, not every bit: a matrix library sums in an order that depends on shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from amk.ir import kv, lm
from amk.ir.lm import product, shape_of
from amk.passes.rewriting import Build, Rules, producer, users
from amk.passes.shape_rules import permutation_of

ENDS_A_HEAD = (
    lm.LinearOp, lm.AddmmOp, lm.MatmulOp, lm.AttentionOp, lm.AttentionSplitOp, kv.AppendOp,
)  # fmt: skip
"""Behind these ops, parts of a projection meet whether they belong together or not."""


def is_from_one_weight(value: SSAValue) -> bool:
    """Whether `value` is a weight under shape ops and casts alone."""
    while isinstance(value.owner, (lm.ReshapeOp, lm.TransposeOp, lm.SliceOp, lm.CastOp)):
        value = value.owner.input
    return isinstance(value.owner, lm.WeightOp)


def addmm_is_linear(op: lm.AddmmOp, build: Build) -> SSAValue | None:
    """bias + x · W = linear(x, Wᵀ, bias)"""
    return build(lm.LinearOp(op.input, build(lm.TransposeOp(op.weight, [1, 0])), op.bias))


def matmul_by_weight_is_linear(op: lm.MatmulOp, build: Build) -> SSAValue | None:
    """x · W = linear(x, Wᵀ) for one matrix W of weights"""
    if len(shape_of(op.rhs)) != 2 or not is_from_one_weight(op.rhs):
        return None
    return build(lm.LinearOp(op.lhs, build(lm.TransposeOp(op.rhs, [1, 0]))))


def linear_of_matrix(op: lm.LinearOp, build: Build) -> SSAValue | None:
    """Rows that were flattened to a matrix [M, K] are [1, M, K] again: one shape of activations."""
    shape = shape_of(op.input)
    if len(shape) != 2:
        return None
    rows = build(lm.ReshapeOp(op.input, (1, *shape)))
    linear = build(lm.LinearOp(rows, op.weight, op.bias))
    return build(lm.ReshapeOp(linear, shape_of(op.result)))


def leading_axes(lead: Sequence[int], viewed: Sequence[int]) -> int | None:
    """How many axes of the view are `lead` with unit axes put in or left out; the most that may."""
    wanted = [d for d in lead if d != 1]
    counts = [n for n in range(len(viewed) + 1) if [d for d in viewed[:n] if d != 1] == wanted]
    return max((n for n in counts if n < len(viewed)), default=None)


@dataclass(frozen=True)
class FeatureSlice:
    """A slice of the features of a linear, whose N features were viewed as `factors` after the
    axes `lead`, then permuted; `axis` is the factor that is sliced. Unit axes before the features
    count to `lead`, so that one token and many are viewed alike."""

    linear: lm.LinearOp
    lead: tuple[int, ...]
    factors: tuple[int, ...]
    permutation: tuple[int, ...]
    axis: int

    @classmethod
    def of(cls, op: lm.SliceOp) -> FeatureSlice | None:
        value: SSAValue = op.input
        permutation = tuple(range(len(shape_of(value))))
        if isinstance(value.owner, lm.TransposeOp):
            permutation = tuple(permutation_of(value.owner))
            value = value.owner.input
        viewed = shape_of(value)
        if isinstance(value.owner, lm.ReshapeOp):
            value = value.owner.input
        linear = producer(value, lm.LinearOp)
        if linear is None:
            return None
        count = leading_axes(shape_of(linear.result)[:-1], viewed)
        if count is None or permutation[op.dim.value.data] < count:
            return None
        axis = permutation[op.dim.value.data] - count
        return cls(linear, viewed[:count], viewed[count:], permutation, axis)

    def rows(self, value: SSAValue, op: lm.SliceOp, build: Build) -> SSAValue:
        """The rows of a weight [N, K] or bias [N] that belong to the slice."""
        _, start, end, step = op.bounds()
        rest = shape_of(value)[1:]
        if self.axis == 0 and step == 1:
            inner = product(self.factors[1:])
            return build(lm.SliceOp(value, 0, start * inner, end * inner))
        viewed = build(lm.ReshapeOp(value, (*self.factors, *rest)))
        part = build(lm.SliceOp(viewed, self.axis, start, end, step))
        count = product(shape_of(part)) // product(rest)
        return build(lm.ReshapeOp(part, (count, *rest)))


def leaves(value: SSAValue) -> Iterator[Operation]:
    """The ops that read `value` behind reshapes and transposes."""
    for user in users(value):
        if isinstance(user, (lm.ReshapeOp, lm.TransposeOp)):
            yield from leaves(user.result)
        else:
            yield user


def joined_by(value: SSAValue) -> set[Operation]:
    """The concats that `value` reaches before its head ends."""
    found: set[Operation] = set()
    seen: set[Operation] = set()
    todo = [value]
    while todo:
        for user in users(todo.pop()):
            if user in seen:
                continue
            seen.add(user)
            if isinstance(user, lm.ConcatOp):
                found.add(user)
            if not isinstance(user, ENDS_A_HEAD):
                todo.extend(user.results)
    return found


def splits(linear: lm.LinearOp) -> bool:
    """Whether `linear` is several projections in one: it is read through slices of its features
    alone, they do not overlap, and no two are joined again (as partial RoPE and norms of single
    heads do)."""
    slices = list(leaves(linear.result))
    rows = 0
    joined: set[Operation] = set()
    for op in slices:
        if not isinstance(op, lm.SliceOp) or (part := FeatureSlice.of(op)) is None:
            return False
        rows += (
            product(part.factors) // part.factors[part.axis] * shape_of(op.result)[op.bounds()[0]]
        )
        concats = joined_by(op.result)
        if joined & concats:
            return False
        joined |= concats
    return rows <= shape_of(linear.weight)[0]


def slice_of_linear(op: lm.SliceOp, build: Build) -> SSAValue | None:
    """A slice of a fused projection is a linear with those rows of the weight."""
    part = FeatureSlice.of(op)
    if part is None or not splits(part.linear):
        return None
    linear = part.linear
    weight = part.rows(linear.weight, op, build)
    bias = None if linear.bias is None else part.rows(linear.bias, op, build)
    result = build(lm.LinearOp(linear.input, weight, bias))
    factors = list(part.factors)
    factors[part.axis] = shape_of(op.result)[op.dim.value.data]
    viewed = build(lm.ReshapeOp(result, (*part.lead, *factors)))
    return build(lm.TransposeOp(viewed, part.permutation))


LINEAR_RULES: Rules = {
    lm.AddmmOp: (addmm_is_linear,),
    lm.MatmulOp: (matmul_by_weight_is_linear,),
    lm.LinearOp: (linear_of_matrix,),
    lm.SliceOp: (slice_of_linear,),
}
