"""Builds the `mk` ops that compute one box of an `lm` value, pulling boxes of its operands.

What does not depend on tile coordinates is built once, in the stage's prologue; the rest in the
part. How one op is built stands in `tile_rules`.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import LocationAttr, UnknownLoc
from xdsl.ir import Block, Operation, SSAValue

from amk.errors import AmkError
from amk.ir import mk
from amk.ir.expr import Const
from amk.ir.lm import product, shape_of
from amk.passes.boxes import Box, full, offsets, replace, sizes
from amk.passes.tile_rules import RULES


class TileBuilder:
    """Pulls boxes into one part of a stage. `buffers` maps lm values that live in memory to their
    buffers; `prologue` and `kept` are shared by the parts of a stage, `part` and `made` are not."""

    def __init__(self, buffers: Callable[[SSAValue], SSAValue | None], prologue: Block):
        self.buffers = buffers
        self.prologue = prologue
        self.kept: dict[tuple[SSAValue, Box], SSAValue] = {}
        self.matrices: dict[SSAValue, SSAValue] = {}
        self.part = Block()
        self.made: dict[tuple[SSAValue, Box], SSAValue] = {}
        self.extents: dict[str, int] = {}
        self.location: LocationAttr = UnknownLoc()

    def begin_part(self, *extents: int) -> Block:
        """A new part, whose coordinates t0, t1, … are below `extents` where these are given."""
        self.part = Block()
        self.made = {}
        self.extents = {f"t{i}": n for i, n in enumerate(extents)}
        return self.part

    def emit(self, op: Operation, box: Box) -> SSAValue:
        """Adds `op` to the prologue when `box` is the same for every tile, else to the part."""
        fixed = all(offset.symbols() <= {"P"} for offset, _ in box)
        # A contraction is the work the tiles share out; a worker never repeats it.
        if isinstance(op, mk.MatmulOp) or any(
            isinstance(v.owner, Operation) and v.owner.parent is self.part for v in op.operands
        ):
            fixed = False
        op.location = self.location
        (self.prologue if fixed else self.part).add_op(op)
        return op.results[0]

    def pull(self, value: SSAValue, box: Box) -> SSAValue:
        """The mk value that holds `box` of `value`."""
        key = (value, box)
        for memo in (self.made, self.kept):
            if key in memo:
                return memo[key]
        whole = self.kept.get((value, full(value)))
        if whole is not None:
            result = self.emit(mk.SliceOp(whole, offsets(box), sizes(box)), box)
        else:
            buffer = self.buffers(value)
            if buffer is not None:
                result = self.emit(mk.LoadOp(buffer, offsets(box), sizes(box)), box)
            else:
                result = self.compute(value, box)
        owner = result.owner
        fixed = isinstance(owner, Operation) and owner.parent is self.prologue
        (self.kept if fixed else self.made)[key] = result
        return result

    def compute(self, value: SSAValue, box: Box) -> SSAValue:
        """Runs the rule of the op behind `value`; what it builds takes that op's location."""
        op = value.owner
        if isinstance(op, Operation):
            for kind, rule in RULES.items():
                if isinstance(op, kind):
                    outer, self.location = self.location, op.location
                    try:
                        return rule(self, op, box)
                    finally:
                        self.location = outer
        name = op.name if isinstance(op, Operation) else "a block argument"
        raise AmkError(f"lower-lm-to-mk: no rule for {name} inside a stage")

    def whole_row(self, value: SSAValue, box: Box, axis: int) -> SSAValue:
        """`value` with the axis in full and the other axes as in `box`."""
        return self.pull(value, replace(box, axis, 0, shape_of(value)[axis]))

    def narrow(self, result: SSAValue, box: Box, axis: int) -> SSAValue:
        """From a value that holds the axis in full, the part of it that `box` asks for."""
        if shape_of(result)[axis] == box[axis][1]:
            return result
        at = [Const(0)] * len(box)
        at[axis] = box[axis][0]  # type: ignore[assignment]
        return self.emit(mk.SliceOp(result, at, sizes(box)), box)

    def matrix(self, value: SSAValue) -> SSAValue:
        """All of `value` as [rows, features]."""
        if value not in self.matrices:
            box, shape = full(value), shape_of(value)
            flat = mk.ReshapeOp(self.pull(value, box), (product(shape[:-1]), shape[-1]))
            self.matrices[value] = self.emit(flat, box)
        return self.matrices[value]

    def through_full(self, value: SSAValue, box: Box) -> SSAValue:
        """`box` cut from the whole of `value`, for what cannot be computed box by box."""
        return self.emit(mk.SliceOp(self.pull(value, full(value)), offsets(box), sizes(box)), box)
