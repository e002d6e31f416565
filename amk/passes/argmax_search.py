"""An argmax over the features of a contraction: the best of each tile, then the best of those.

Each tile that computes features also leaves their maximum and where it is; a stage of one tile
then picks the first largest. Positions travel as f32, which is exact below 2²⁴.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects.builtin import f32
from xdsl.ir import Block, Region, SSAValue

from amk.errors import AmkError
from amk.ir import lm, mk
from amk.ir.expr import Expr
from amk.ir.lm import product, shape_of
from amk.passes.boxes import Box
from amk.passes.tile_builder import TileBuilder
from amk.passes.tiling import Tiling

EXACT_POSITIONS = 1 << 24


def searchable(value: SSAValue, tilings: dict[SSAValue, Tiling]) -> bool:
    """Is `value` an argmax over features that tiles share out?"""
    if not isinstance(value.owner, lm.ArgmaxOp):
        return False
    scores = value.owner.input
    tiling = tilings.get(scores)
    last = len(shape_of(scores)) - 1
    return tiling is not None and tiling.axis == last and not tiling.whole


@dataclass
class Search:
    """An argmax of a stage, its result outside, and where the tiles leave what they find."""

    op: lm.ArgmaxOp
    result: SSAValue
    memory: list[SSAValue] = field(default_factory=list)

    def __post_init__(self) -> None:
        if shape_of(self.op.input)[-1] > EXACT_POSITIONS:
            raise AmkError("lower-lm-to-mk: lm.argmax over more than 2²⁴ elements")

    def declare(self, tiles: int) -> list[mk.BufferOp]:
        """The buffers [rows, tiles] that hold each tile's maximum and its position."""
        rows = product(shape_of(self.op.result))
        buffers: list[mk.BufferOp] = []
        for what in ("maxima", "positions"):
            buffer = mk.BufferOp(
                "activation", f"argmax.{what}", mk.BufferType.get((rows, tiles), f32)
            )
            buffer.result.name_hint = what
            buffers.append(buffer)
        self.memory = [b.result for b in buffers]
        return buffers

    def search_tile(self, builder: TileBuilder, box: Box, tile: Expr) -> None:
        """Adds to a part what leaves the best of `box` in column `tile`."""
        value = builder.pull(self.op.input, box)
        rows, width = product(shape_of(value)[:-1]), shape_of(value)[-1]
        flat = mk.ReshapeOp(value, (rows, width))
        best = mk.ArgmaxOp(flat.result, box[-1][0])
        builder.part.add_ops([flat, best])
        for memory, result in zip(self.memory, best.results, strict=True):
            builder.part.add_op(mk.StoreOp(result, memory, [0, tile]))

    def join(self, out: SSAValue) -> mk.PartOp:
        """One tile that stores the best of the tiles' best into `out`."""
        maxima, positions = self.memory
        assert isinstance(maxima.type, mk.BufferType)
        shape = maxima.type.get_shape()
        top, at = (mk.LoadOp(v, [0, 0], shape) for v in (maxima, positions))
        best = mk.PickOp(at.result, top.result)
        boxed = mk.ReshapeOp(best.result, shape_of(self.op.result))
        store = mk.StoreOp(boxed.result, out, [0] * len(shape_of(self.op.result)))
        return mk.PartOp([1], Region(Block([top, at, best, boxed, store])))
