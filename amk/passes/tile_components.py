"""How the outputs of one stage are cut into tiles: by the contractions they come from."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from amk.ir import lm, mk
from amk.ir.lm import shape_of
from amk.passes.tile_rules import strip_casts
from amk.passes.tiling import Tiling, of_linear, through

TILE_BYTES = 224 * 1024
SMALL_TILE_BYTES = 48 * 1024
MIN_TILES = 8
MAX_TILES = 256


@dataclass
class Component:
    """Outputs of a stage that come from the same contractions, and how each is cut."""

    values: list[SSAValue]
    tilings: list[Tiling]
    row_bytes: int = 0

    @property
    def features(self) -> int:
        return self.tilings[0].features

    def tile_features(self, tile_bytes: int) -> int:
        """Features of a tile: about `tile_bytes` of weights, less where that leaves fewer than
        MIN_TILES tiles to share out, but not below SMALL_TILE_BYTES; MAX_TILES tiles at most, whole
        granules. From shapes alone, so that results never depend on the machine."""
        granule = lcm(*(t.granule for t in self.tilings))
        small = min(SMALL_TILE_BYTES, tile_bytes) // self.row_bytes
        shared = max(self.features // MIN_TILES, small)
        least = -(-self.features // MAX_TILES)
        wanted = max(min(tile_bytes // self.row_bytes, shared), least, 8)
        size = max(wanted // granule, 1) * granule
        for candidate in range(size, granule - 1, -granule):
            if self.features % candidate == 0 and 2 * candidate > size:
                return candidate
        return min(size, self.features)


Anchors = dict[SSAValue, frozenset[Operation]]


def stage_tilings(stage: lm.StageOp) -> tuple[dict[SSAValue, Tiling], Anchors]:
    """How each value of a stage is cut, and the contractions it comes from."""
    tilings: dict[SSAValue, Tiling] = {}
    anchors: Anchors = {}
    for op in stage.body.block.ops:
        if isinstance(op, lm.LinearOp):
            tilings[op.result] = of_linear(op)
            anchors[op.result] = frozenset([op])
            continue
        inside = [v for v in op.operands if v in tilings]
        found = {through(op, v, tilings[v]) for v in inside}
        if len(found) == 1 and None not in found and op.results:
            tilings[op.results[0]] = next(t for t in found if t is not None)
            anchors[op.results[0]] = frozenset[Operation]().union(*(anchors[v] for v in inside))
    return tilings, anchors


def components(
    values: list[SSAValue], tilings: dict[SSAValue, Tiling], anchors: Anchors
) -> list[Component]:
    """Groups outputs by the contractions they are computed from."""
    groups: list[tuple[frozenset[Operation], Component]] = []
    loose = Component([], [])
    for value in values:
        if value not in tilings:
            loose.values.append(value)
            continue
        ops = anchors[value]
        merged = Component([value], [tilings[value]])
        for other_ops, other in [g for g in groups if g[0] & ops]:
            groups.remove((other_ops, other))
            ops |= other_ops
            merged.values += other.values
            merged.tilings += other.tilings
        groups.append((ops, merged))
    for ops, component in groups:
        component.row_bytes = sum(weight_row_bytes(op) for op in ops)
    return [c for _, c in groups] + ([loose] if loose.values else [])


def weight_row_bytes(op: Operation) -> int:
    assert isinstance(op, lm.LinearOp)
    weight = strip_casts(op.weight)
    assert isinstance(weight.type, TensorType)
    return mk.BufferType.get((shape_of(weight)[1],), weight.type.element_type).nbytes()
