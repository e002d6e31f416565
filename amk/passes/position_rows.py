"""Which axis of a value counts positions, and the same value for a whole table of positions.

`lm.positions` holds P … P + S − 1 along its last axis. An op that works on each position by
itself keeps that axis, and computes a table [max_seq, …] when its operands are tables. An axis is
never told by its extent, since S may be 1: from a chosen axis of a result, `operand_axes` says
which axis each operand must have it on, and a choice holds when it can be carried back to
`lm.positions` everywhere. Any choice that holds gives the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xdsl.dialects.arith import ConstantOp as ArithConstantOp
from xdsl.dialects.builtin import IndexType, TensorType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from amk.ir import lm
from amk.ir.lm import product, shape_of
from amk.passes.rewriting import integers, producer

Axes = tuple[int, ...]
"""For each operand, the axis that would be aligned with the result's; −1 for no such axis."""


def same_axis(op: Operation, axis: int) -> Iterator[Axes]:
    yield tuple(axis for _ in op.operands)


def broadcast_axis(op: Operation, axis: int) -> Iterator[Axes]:
    rank = len(shape_of(op.results[0]))
    yield tuple(axis - (rank - len(shape_of(v))) for v in op.operands)


def reshape_axis(op: lm.ReshapeOp, axis: int) -> Iterator[Axes]:
    before, after = shape_of(op.input), shape_of(op.result)
    for i, extent in enumerate(before):
        if extent == after[axis] and product(before[:i]) == product(after[:axis]):
            yield (i,)


def transpose_axis(op: lm.TransposeOp, axis: int) -> Iterator[Axes]:
    yield (integers(op.permutation)[axis],)


def unsliced_axis(op: lm.SliceOp | lm.ConcatOp | lm.SoftmaxOp, axis: int) -> Iterator[Axes]:
    if axis != op.dim.value.data:
        yield tuple(axis for _ in op.operands)


def reduced_axis(op: lm.ReduceOp, axis: int) -> Iterator[Axes]:
    dims = set(integers(op.dims))
    kept = [i for i in range(len(shape_of(op.input))) if i not in dims]
    if not op.keepdim.value.data:
        yield (kept[axis],)
    elif axis not in dims:
        yield (axis,)


def matmul_axis(op: lm.MatmulOp, axis: int) -> Iterator[Axes]:
    """A row of the result comes from a row of lhs, a column from a column of rhs."""
    rank = len(shape_of(op.result))
    lhs, rhs = (axis - (rank - len(shape_of(v))) for v in (op.lhs, op.rhs))
    if axis == rank - 2:
        yield (lhs, -1)
    elif axis == rank - 1:
        yield (-1, rhs)
    else:
        yield (lhs, rhs)


RELATIONS: dict[type[Operation], Callable[..., Iterator[Axes]]] = {
    **dict.fromkeys((*lm.UNARY, *lm.SCALAR, lm.CastOp), same_axis),
    **dict.fromkeys((*lm.BINARY, lm.ExpandOp), broadcast_axis),
    **dict.fromkeys(lm.REDUCTIONS, reduced_axis),
    lm.ReshapeOp: reshape_axis,
    lm.TransposeOp: transpose_axis,
    lm.SliceOp: unsliced_axis,
    lm.ConcatOp: unsliced_axis,
    lm.SoftmaxOp: unsliced_axis,
    lm.MatmulOp: matmul_axis,
}


class PositionTables:
    """Rebuilds values of `@step` for all positions 0 … max_seq − 1, at the end of `block`.

    `dependent` are the values that depend on `lm.positions`; whatever else they use is given by
    `copy`, which must return it inside `block`.
    """

    def __init__(
        self,
        dependent: set[SSAValue],
        block: Block,
        max_seq: int,
        copy: Callable[[SSAValue], SSAValue],
    ):
        self.dependent = dependent
        self.block = block
        self.max_seq = max_seq
        self.copy = copy
        self.known: dict[tuple[SSAValue, int], Axes | None] = {}
        self.built: dict[tuple[SSAValue, int], SSAValue] = {}

    def axis_of(self, value: SSAValue) -> int | None:
        """The axis that counts positions; one with nothing but units before it if there is."""
        shape = shape_of(value)
        axes = [a for a in range(len(shape)) if self.operands(value, a) is not None]
        return min(axes, key=lambda a: (product(shape[:a]) != 1, -a), default=None)

    def operands(self, value: SSAValue, axis: int) -> Axes | None:
        """The operand axes that make `axis` of `value` count positions, or None."""
        key = (value, axis)
        if key not in self.known:
            self.known[key] = self._operands(value, axis)
        return self.known[key]

    def _operands(self, value: SSAValue, axis: int) -> Axes | None:
        op = value.owner
        if isinstance(op, lm.PositionsOp):
            return () if axis == len(shape_of(value)) - 1 else None
        relation = RELATIONS.get(type(op)) if isinstance(op, Operation) else None
        if relation is None or not isinstance(op, Operation):
            return None
        for axes in relation(op, axis):
            if all(self._fits(op, v, a) for v, a in zip(op.operands, axes, strict=True)):
                return axes
        return None

    def _fits(self, op: Operation, value: SSAValue, axis: int) -> bool:
        if value in self.dependent:
            return axis >= 0 and self.operands(value, axis) is not None
        # What does not depend on positions must broadcast along them, and concat does not.
        return axis < 0 or (shape_of(value)[axis] == 1 and not isinstance(op, lm.ConcatOp))

    def build(self, value: SSAValue, axis: int) -> SSAValue:
        """`value` for all positions, which then run along `axis` with extent max_seq."""
        key = (value, axis)
        if key not in self.built:
            self.built[key] = self._build(value, axis)
        return self.built[key]

    def _build(self, value: SSAValue, axis: int) -> SSAValue:
        op = value.owner
        assert isinstance(op, Operation)
        assert isinstance(value.type, TensorType)
        shape = list(shape_of(value))
        shape[axis] = self.max_seq
        result_type = lm.tensor(shape, value.type.element_type)
        if isinstance(op, lm.PositionsOp):
            zero = ArithConstantOp.from_int_and_width(0, IndexType())
            self.block.add_op(zero)
            made: Operation = lm.PositionsOp(zero.result, result_type)
            self.block.add_op(made)
            return made.results[0]
        axes = self.operands(value, axis)
        assert axes is not None
        mapping = {
            v: self.build(v, a) if v in self.dependent else self.copy(v)
            for v, a in zip(op.operands, axes, strict=True)
        }
        made = op.clone(value_mapper=mapping)
        self.block.add_op(made)
        Rewriter.replace_value_with_new_type(made.results[0], result_type)
        return made.results[0]


def positions_under(value: SSAValue) -> lm.PositionsOp:
    """An `lm.positions` that `value` depends on."""
    todo = [value]
    while todo:
        v = todo.pop()
        if (found := producer(v, lm.PositionsOp)) is not None:
            return found
        if isinstance(v.owner, Operation):
            todo.extend(v.owner.operands)
    raise AssertionError("a table depends on positions")
