"""One `lm.stage` as a stage of tiles: what each part computes, stores and keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from xdsl.ir import Block, Region, SSAValue

from amk.errors import AmkError
from amk.ir import kv, lm, mk
from amk.ir.expr import Const, Expr, P, Sym
from amk.ir.lm import integer, shape_of
from amk.passes.argmax_search import Search, searchable
from amk.passes.boxes import Box, full, replace
from amk.passes.tile_balance import balanced
from amk.passes.tile_builder import TileBuilder
from amk.passes.tile_components import Component, components, stage_tilings
from amk.passes.tile_rules import chunk_range

T0, T1 = Sym("t0"), Sym("t1")
SMALLEST_SCALE = 2.0**-100


class Memory(Protocol):
    """The buffers of the program that a stage is lowered into."""

    memory: dict[SSAValue, SSAValue]
    scales: dict[SSAValue, SSAValue]
    buffers: list[mk.BufferOp]

    def buffer(self, value: SSAValue) -> SSAValue | None: ...


class StageLowering:
    """Lowers one stage. `outputs` maps what it yields to its results outside."""

    def __init__(self, stage: lm.StageOp, program: Memory, tile_bytes: int, workers: int = 0):
        self.stage = stage
        self.program = program
        self.builder = TileBuilder(program.buffer, Block())
        last = stage.body.block.last_op
        assert isinstance(last, lm.YieldOp)
        self.outputs = dict(zip(last.arguments, stage.results, strict=True))
        if len(self.outputs) != len(stage.results):
            raise AmkError(f"lower-lm-to-mk: stage {stage.sym_name.data!r} yields a value twice")
        tilings, anchors = stage_tilings(stage)
        self.searches = {
            v.owner.input: Search(v.owner, outer)
            for v, outer in self.outputs.items()
            if isinstance(v.owner, lm.ArgmaxOp) and searchable(v, tilings)
        }
        found = {s.op.result for s in self.searches.values()}
        partials = {
            r
            for op in stage.body.block.ops
            if isinstance(op, lm.AttentionSplitOp)
            for r in op.results
        }
        # What an attention of this stage reads is appended by its own tiles.
        self.appends = [
            op
            for op in stage.body.block.ops
            if isinstance(op, kv.AppendOp)
            and any(isinstance(u, lm.AttentionSplitOp) for u in kv.users(op.result))
        ]
        partials |= {op.result for op in self.appends}
        values = [v for v in self.outputs if v not in found | partials]
        values += [v for v in self.searches if v not in values]
        self.components = components(values, tilings, anchors)
        self.sizes = self.tile_sizes(tile_bytes, workers)

    def tile_sizes(self, tile_bytes: int, workers: int) -> list[int]:
        """Features of a tile of each component that is cut; for `workers` where they are given."""
        cut = [c for c in self.components if c.tilings]
        for component in cut:
            if any(self.outputs.get(v) in self.program.scales for v in component.values):
                component.cuts = []  # the scale of a row of i8 needs the whole head
        if workers and cut:
            return balanced(cut, workers, tile_bytes)
        return [c.tile_features(tile_bytes) for c in cut]

    def run(self) -> list[mk.StageOp]:
        """The stage, and one more for each argmax, which joins what its tiles found."""
        parts: list[mk.PartOp] = []
        for op in self.stage.body.block.ops:
            if isinstance(op, lm.AttentionSplitOp):
                parts += self.attention_parts(op)
        sizes = iter(self.sizes)
        for group in self.components:
            if group.tilings:
                parts += self.feature_parts(group, next(sizes))
            else:
                parts.append(self.single_part(group))
        name = self.stage.sym_name.data
        stages = [assemble(name, self.builder.prologue, parts)]
        stages[0].location = self.stage.location
        for search in self.searches.values():
            join = search.join(self.program.memory[search.result])
            stages.append(assemble(f"{name}.argmax", Block(), [join]))
        return stages

    def single_part(self, group: Component) -> mk.PartOp:
        """One tile for outputs that come from no contraction, or cannot be cut like it."""
        body = self.builder.begin_part()
        for value in group.values:
            self.store(value, full(source_of(value)))
        return mk.PartOp([1], Region(body))

    def feature_parts(self, group: Component, size: int) -> list[mk.PartOp]:
        """Tiles of `size` features each, and one more tile for what is left over."""
        if size % group.granule and size < group.features:
            return [self.head_part(group, size)]
        count, left = divmod(group.features, size)
        for value in group.values:
            if value in self.searches:
                self.program.buffers += self.searches[value].declare(count + (left > 0))
        parts = [self.feature_part(group, 0, count, size)]
        if left:
            parts.append(self.feature_part(group, count * size, 1, left, count))
        return parts

    def feature_part(
        self, group: Component, start: int, tiles: int, size: int, first_tile: int = 0
    ) -> mk.PartOp:
        """`tiles` tiles of `size` features from feature `start` on."""
        body = self.builder.begin_part()
        for value, tiling in zip(group.values, group.tilings, strict=True):
            box = full(source_of(value))
            if not tiling.whole:
                offset = T0 * tiling.extent(size) + tiling.extent(start)
                box = replace(box, tiling.axis, offset, tiling.extent(size))
            if value in self.outputs:
                self.store(value, box)
            if value in self.searches:
                self.searches[value].search_tile(self.builder, box, T0 + first_tile)
        return mk.PartOp([tiles], Region(body))

    def head_part(self, group: Component, size: int) -> mk.PartOp:
        """A tile t0, t1 holds elements of head t0: the t1-th `size` of them, or of each half the
        t1-th size / 2."""
        each = group.cuts[0].size // size
        heads = group.features // group.cuts[0].size
        body = self.builder.begin_part(heads, each)
        for value, cut in zip(group.values, group.cuts, strict=True):
            for box in cut.boxes(full(source_of(value)), T0, T1, size):
                self.store(value, box)
        return mk.PartOp([heads, each], Region(body))

    def store(self, value: SSAValue, box: Box) -> None:
        """Stores a box of a stage's output; an appended box lands P rows further on."""
        result = self.builder.pull(source_of(value), box)
        at: list[Expr] = [offset for offset, _ in box]
        if isinstance(value.type, kv.CacheType):
            axis = value.type.axis.data
            at[axis] = at[axis] + P
        buffer = self.program.memory[self.outputs[value]]
        scales = self.program.scales.get(self.outputs[value])
        if scales is not None:
            result = self.scaled(result, scales, at)
        self.builder.part.add_op(mk.StoreOp(result, buffer, at))

    def scaled(self, rows: SSAValue, scales: SSAValue, at: list[Expr]) -> SSAValue:
        """Rows of whole heads as multiples of their largest element / 127, which is stored."""
        if rows.type.get_shape()[-1] != self.depth_of(scales):  # type: ignore[attr-defined]
            raise AmkError("lower-lm-to-mk: a tile appends a part of a head to a cache of i8")
        size = mk.UnaryOp("abs", rows)
        most = mk.ReduceOp("max", size.result)
        scale = mk.ScalarOp("mul", most.result, 1 / 127)
        # A row of zeros has no scale; any will do.
        safe = mk.ScalarOp("max", scale.result, SMALLEST_SCALE)
        whole = mk.BinaryOp("div", rows, safe.result)
        self.builder.part.add_ops([size, most, scale, safe, whole])
        self.builder.part.add_op(mk.StoreOp(safe.result, scales, [*at[:-1], Const(0)]))
        return whole.result

    def depth_of(self, scales: SSAValue) -> int:
        """Elements of a row of the cache that scales belong to."""
        (cache,) = {self.program.memory[v] for v, s in self.program.scales.items() if s is scales}
        return mk.buffer_of(cache).type.get_shape()[-1]

    def attention_parts(self, op: lm.AttentionSplitOp) -> list[mk.PartOp]:
        """A tile a kv head and a chunk: t0 the head, t1 the chunk, from the first visible one.

        Where the tiles also append, the new rows begin in chunk P div C and may reach into the
        next: one tile a kv head writes them all and attends to both, and no other sees them."""
        _, kv_heads, tokens, _, _ = op.dims()
        first, end = chunk_range(op, tokens)
        if op.kept:
            # The rows that stay, joined first, then the chunks without them.
            stay = self.attention_part(
                op, [kv_heads], [Const(0)], at=first, limits={"high": op.kept}
            )
            return [
                stay,
                self.attention_part(
                    op, [kv_heads, end - first], [T1 + first], at=T1 + first + 1,
                    limits={"low": op.kept},
                ),
            ]  # fmt: skip
        if not self.appends:
            return [self.attention_part(op, [kv_heads, end - first], [T1 + first])]
        last: Expr = P // op.chunk.value.data
        reach = end - last - 1
        parts = [self.attention_part(op, [kv_heads, last - first], [T1 + first])]
        parts.append(self.attention_part(op, [kv_heads, 1 - reach], [last], self.appends))
        if reach.constant != 0:
            both = [last, last + 1]
            parts.append(self.attention_part(op, [kv_heads, reach], both, self.appends))
        return parts

    def attention_part(
        self,
        op: lm.AttentionSplitOp,
        grid: list[Expr | int],
        chunks: list[Expr],
        appends: Sequence[kv.AppendOp] = (),
        at: Expr | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> mk.PartOp:
        """Tiles that first append the rows of a head and then attend to some chunks. A chunk's
        partial lies in the place of its number, or `at`; `limits` are `low` or `high` rows."""
        heads, kv_heads, tokens, depth, _ = op.dims()
        group = heads // kv_heads
        builder, body = self.builder, self.builder.begin_part()
        for append in appends:
            box = replace(full(append.entries), 1, T0, 1)
            self.store(append.result, box)
        box: Box = ((Const(0), 1), (T0 * group, group), (Const(0), tokens), (Const(0), depth))
        query = builder.pull(op.query, box)
        query = builder.emit(mk.TransposeOp(query, (0, 2, 1, 3)), box)
        query = builder.emit(mk.ReshapeOp(query, (tokens, group, depth)), box)
        copied = ("scale", "window", "softcap", "chunk")
        numbers = {k: v for k, v in op.properties.items() if k in copied}
        numbers |= {name: integer(row) for name, row in (limits or {}).items()}
        if "high" in numbers:
            numbers.pop("window")  # they stay
        memory, scales = self.program.memory, self.program.scales
        pair = (scales[op.keys], scales[op.values]) if op.keys in scales else None
        for index in chunks:
            partial = mk.AttentionOp(
                query, memory[op.keys], memory[op.values], T0, index, numbers, pair
            )
            body.add_op(partial)
            for value, result in zip(op.results, partial.results, strict=True):
                shape = shape_of(result)
                boxed = mk.ReshapeOp(result, (1, 1, *shape))
                place: list[Expr | int] = [index if at is None else at, T0, *[0] * len(shape)]
                into = memory[self.outputs[value]]
                body.add_ops([boxed, mk.StoreOp(boxed.result, into, place)])
        return mk.PartOp(grid, Region(body))


def source_of(value: SSAValue) -> SSAValue:
    """The tensor behind a stage's output: an append's entries, or the value itself."""
    return value.owner.entries if isinstance(value.owner, kv.AppendOp) else value


def assemble(name: str, prologue: Block, parts: list[mk.PartOp]) -> mk.StageOp:
    """Joins prologue and parts: what the parts use of the prologue is yielded to them."""
    body = Block(parts)
    kept = [
        r
        for op in prologue.ops
        for r in op.results
        if any(u.operation.parent is not prologue for u in r.uses)
    ]
    for value in kept:
        arg = body.insert_arg(value.type, len(body.args))
        value.replace_uses_with_if(arg, lambda use: use.operation.parent is not prologue)
    prologue.add_op(mk.YieldOp(*kept))
    return mk.StageOp(name, Region(prologue), Region(body))
