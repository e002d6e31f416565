"""How the outputs of one stage are cut into tiles: by the contractions they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import lcm

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from amk.ir import lm, mk
from amk.ir.lm import shape_of
from amk.passes.head_cut import Cut, HeadCut, head_cut
from amk.passes.tile_rules import strip_casts
from amk.passes.tiling import Tiling, of_linear, through

TILE_BYTES = 224 * 1024
SMALL_TILE_BYTES = 48 * 1024
MIN_TILES = 8
MAX_TILES = 256


@dataclass
class Component:
    """Outputs of a stage that come from the same contractions, and how each is cut; `cuts` is how
    each may be cut inside a head, empty where heads stay whole."""

    values: list[SSAValue]
    tilings: list[Tiling]
    row_bytes: int = 0
    cuts: list[HeadCut] = field(default_factory=list)

    @property
    def features(self) -> int:
        return self.tilings[0].features

    @property
    def granule(self) -> int:
        """Features that only a cut inside heads takes apart."""
        return lcm(*(t.granule for t in self.tilings))

    def tile_features(self, tile_bytes: int) -> int:
        """Features of a tile: about `tile_bytes` of weights, less where that leaves fewer than
        MIN_TILES tiles to share out, but not below SMALL_TILE_BYTES; MAX_TILES tiles at most, whole
        granules. From shapes alone, so that results never depend on the machine."""
        granule = self.granule
        small = min(SMALL_TILE_BYTES, tile_bytes) // self.row_bytes
        shared = max(self.features // MIN_TILES, small)
        least = -(-self.features // MAX_TILES)
        wanted = max(min(tile_bytes // self.row_bytes, shared), least, 8)
        parts = [n for n in self.parts_of_heads() if n <= wanted]
        if wanted < granule and parts:
            return max(parts)
        size = max(wanted // granule, 1) * granule
        for candidate in range(size, granule - 1, -granule):
            if self.features % candidate == 0 and 2 * candidate > size:
                return candidate
        return min(size, self.features)

    def parts_of_heads(self) -> list[int]:
        """Features, fewer than a head has, that a tile may hold."""
        return self.cuts[0].sizes() if self.cuts else []


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
    known: dict[SSAValue, Cut] = {}
    for ops, component in groups:
        component.row_bytes = sum(weight_row_bytes(op) for op in ops)
        component.cuts = common_cuts([head_cut(v, anchors, known) for v in component.values])
    return [c for _, c in groups] + ([loose] if loose.values else [])


def common_cuts(cuts: Sequence[Cut]) -> list[HeadCut]:
    """One cut for all values of a component, [] when there is none: heads of one size, and when
    one is rotated the others give their columns in pairs too."""
    found = [c for c in cuts if isinstance(c, HeadCut)]
    if len(found) < len(cuts) or len({c.size for c in found}) != 1 or found[0].size < 2:
        return []
    paired = any(c.paired for c in found)
    return [replace(c, paired=paired) for c in found]


def weight_row_bytes(op: Operation) -> int:
    assert isinstance(op, lm.LinearOp)
    weight = strip_casts(op.weight)
    assert isinstance(weight.type, TensorType)
    return mk.BufferType.get((shape_of(weight)[1],), weight.type.element_type).nbytes()
