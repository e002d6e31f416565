"""`lower-lm-to-mk`: every `lm.stage` of @step becomes a stage of tiles over buffers.

Values that cross stages become activation buffers, caches and weights become buffers, the results
of @step other than caches become output buffers. A stage's outputs are cut along the output
features of the contractions behind them; what is the same for every tile is computed in the
prologue. Tile sizes come from shapes alone. @init stays as it is.

Before:

    %y = lm.stage "down" {
      %l = lm.linear %h, %w : tensor<1x1x96xf32>, tensor<64x96xf32> -> tensor<1x1x64xf32>
      %r = lm.add %x, %l : tensor<1x1x64xf32>, tensor<1x1x64xf32> -> tensor<1x1x64xf32>
      lm.yield %r : tensor<1x1x64xf32>
    } : tensor<1x1x64xf32>

After:

    mk.stage "down" prologue {
      %0 = mk.load %h[0, 0, 0] : !mk.buffer<1x1x96xf32> -> tensor<1x1x96xf32>
      %1 = mk.reshape %0 : tensor<1x1x96xf32> -> tensor<1x96xf32>
      mk.yield %1 : tensor<1x96xf32>
    } parts {
    ^bb0(%2: tensor<1x96xf32>):
      mk.part[2] {
        %3 = mk.load %x[0, 0, t0 * 32] : !mk.buffer<1x1x64xf32> -> tensor<1x1x32xf32>
        %4 = mk.matmul %2, %w[t0 * 32, 0] {reduction = …} : … -> tensor<1x32xf32>
        %5 = mk.reshape %4 : tensor<1x32xf32> -> tensor<1x1x32xf32>
        %6 = mk.binary "add" %3, %5 : … -> tensor<1x1x32xf32>
        mk.store %6, %y[0, 0, t0 * 32] : tensor<1x1x32xf32> -> !mk.buffer<1x1x64xf32>
      }
    }
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lcm

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, TensorType, f32, i64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass

from amk.errors import AmkError
from amk.ir import kv, lm, mk
from amk.ir.expr import Const, Expr, P, Sym
from amk.ir.lm import product, shape_of
from amk.passes.tile_builder import Box, TileBuilder, chunk_range, full, replace, strip_casts
from amk.passes.tiling import Tiling, of_linear, through

TILE_BYTES = 48 * 1024
MAX_TILES = 256
T0, T1 = Sym("t0"), Sym("t1")


@dataclass(frozen=True)
class LowerLmToMk(ModulePass):
    name = "lower-lm-to-mk"
    max_seq: int = 0
    program: str = "decode"
    tile_bytes: int = TILE_BYTES

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        steps = [f for f in op.ops if isinstance(f, func.FuncOp) and f.sym_name.data == "step"]
        if len(steps) != 1:
            raise AmkError("lower-lm-to-mk: the module has no func.func @step")
        tokens = shape_of(steps[0].body.block.args[0])[1]
        recorded = op.attributes.get("amk.max_seq")
        max_seq = self.max_seq or (recorded.value.data if isinstance(recorded, IntegerAttr) else 0)
        if max_seq < tokens:
            raise AmkError(f"lower-lm-to-mk: max-seq {max_seq} is below the {tokens} new tokens")
        program = mk.ProgramOp(self.program, tokens, max_seq)
        op.body.block.insert_op_before(program, steps[0])
        Lowering(steps[0].body.block, program.body.block, self.tile_bytes).run()
        steps[0].detach()
        steps[0].erase()


class Lowering:
    """Lowers the stages of one block of `lm` into the block of a program."""

    def __init__(self, source: Block, target: Block, tile_bytes: int):
        self.source = source
        self.target = target
        self.tile_bytes = tile_bytes
        self.memory: dict[SSAValue, SSAValue] = {}
        self.buffers: list[mk.BufferOp] = []
        last = source.last_op
        assert isinstance(last, func.ReturnOp)
        self.returned = list(last.operands)

    def run(self) -> None:
        tokens, _, *caches = self.source.args
        self.declare(tokens, "input", "tokens")
        for i, cache in enumerate(caches):
            self.declare(cache, "cache", cache.name_hint or f"cache{i}")
        stages: list[mk.StageOp] = []
        for op in self.source.ops:
            if isinstance(op, lm.StageOp):
                self.declare_results(op)
                stages += self.lower(op)
            elif isinstance(op, kv.AppendOp):
                raise AmkError("lower-lm-to-mk: kv.append outside a stage; run place-kv-append")
        used = [b for b in self.buffers if b.result.first_use or b.kind.data != "weight"]
        for op in (*used, *stages):
            self.target.add_op(op)

    def declare(self, value: SSAValue, kind: str, source: str) -> SSAValue:
        if isinstance(value.type, kv.CacheType):
            type = mk.BufferType.get(value.type.get_shape(), value.type.element_type)
        else:
            assert isinstance(value.type, TensorType)
            type = mk.BufferType.get(shape_of(value), value.type.element_type)
        buffer = mk.BufferOp(kind, source, type)
        buffer.result.name_hint = "".join(c if c.isalnum() else "_" for c in source)
        self.buffers.append(buffer)
        self.memory[value] = buffer.result
        return buffer.result

    def declare_results(self, stage: lm.StageOp) -> None:
        last = stage.body.block.last_op
        assert isinstance(last, lm.YieldOp)
        for i, (inner, outer) in enumerate(zip(last.arguments, stage.results, strict=True)):
            if isinstance(outer.type, kv.CacheType):
                owner = inner.owner
                assert isinstance(owner, kv.AppendOp)
                self.memory[outer] = self.memory[owner.cache]
                continue
            name = stage.sym_name.data if stage.sym_name else "stage"
            if outer in self.returned:
                place = self.returned.index(outer)
                i64_output = isinstance(outer.type, TensorType) and outer.type.element_type == i64
                source = "next" if i64_output else "logits" if place == 0 else f"output{place}"
                self.declare(outer, "output", source)
            else:
                self.declare(outer, "activation", f"{name}#{i}")

    def buffer(self, value: SSAValue) -> SSAValue | None:
        """The buffer of a value that lives in memory; weights are declared when first used."""
        value = strip_casts(value)
        if value not in self.memory and isinstance(value.owner, lm.WeightOp):
            self.declare(value, "weight", value.owner.key.data)
        return self.memory.get(value)

    # ---- one stage ----

    def lower(self, stage: lm.StageOp) -> list[mk.StageOp]:
        """The stage, and one more for each argmax, which joins what its tiles found."""
        last = stage.body.block.last_op
        assert isinstance(last, lm.YieldOp)
        builder = TileBuilder(self.buffer, Block())
        parts: list[mk.PartOp] = []
        outputs = dict(zip(last.arguments, stage.results, strict=True))
        splits = [op for op in stage.body.block.ops if isinstance(op, lm.AttentionSplitOp)]
        for split in splits:
            parts.append(self.attention_part(builder, split, outputs))
        done = {r for s in splits for r in s.results}
        tilings, anchors = stage_tilings(stage)
        searches = [
            Search(v.owner, outputs[v])
            for v in outputs
            if isinstance(v.owner, lm.ArgmaxOp) and v.owner.input in tilings
        ]
        done |= {s.op.result for s in searches}
        values = [v for v in outputs if v not in done]
        values += [s.op.input for s in searches if s.op.input not in values]
        for group in components(values, tilings, anchors):
            parts += self.feature_parts(builder, group, outputs, searches)
        name = stage.sym_name.data if stage.sym_name else "stage"
        joins = [self.join_search(s, name) for s in searches]
        return [assemble(name, builder, parts), *joins]

    def feature_parts(
        self,
        builder: TileBuilder,
        group: Component,
        outputs: dict[SSAValue, SSAValue],
        searches: list[Search],
    ) -> list[mk.PartOp]:
        """Tiles of a number of features, and one more tile for what is left over."""
        if not group.tilings:
            body = builder.begin_part()
            for value in group.values:
                self.store(builder, value, full(source_of(value)), outputs)
            return [mk.PartOp([1], Region(body))]
        parts: list[mk.PartOp] = []
        features, size = group.features, group.tile_features(self.tile_bytes)
        count = features // size
        tiles = -(-features // size)
        for search in searches:
            if search.op.input in group.values:
                self.declare_search(search, tiles)
        for base, n, tile in ((0, count, size), (count * size, 1, features - count * size)):
            if tile == 0:
                continue
            body = builder.begin_part()
            for value, t in zip(group.values, group.tilings, strict=True):
                entries = source_of(value)
                box = full(entries)
                if not t.whole:
                    offset = T0 * t.extent(tile) + t.extent(base)
                    box = replace(box, t.axis, offset, t.extent(tile))
                if value in outputs:
                    self.store(builder, value, box, outputs)
                for search in searches:
                    if search.op.input is value:
                        self.search_tile(builder, search, box, T0 + base // size)
            parts.append(mk.PartOp([n], Region(body)))
        return parts

    # ---- argmax: the best of each tile, then the best of those ----

    def declare_search(self, search: Search, tiles: int) -> None:
        rows = product(shape_of(search.op.result))
        for what in ("maxima", "positions"):
            type = mk.BufferType.get((rows, tiles), f32)
            buffer = mk.BufferOp("activation", f"argmax.{what}", type)
            buffer.result.name_hint = what
            self.buffers.append(buffer)
            search.memory.append(buffer.result)

    def search_tile(self, builder: TileBuilder, search: Search, box: Box, tile: Expr) -> None:
        value = builder.pull(search.op.input, box)
        rows, width = product(shape_of(value)[:-1]), shape_of(value)[-1]
        flat = mk.ReshapeOp(value, (rows, width))
        best = mk.ArgmaxOp(flat.result, box[-1][0])
        builder.part.add_ops([flat, best])
        for memory, result in zip(search.memory, best.results, strict=True):
            builder.part.add_op(mk.StoreOp(result, memory, [0, tile]))

    def join_search(self, search: Search, name: str) -> mk.StageOp:
        """One tile that picks the best of the tiles' best."""
        body = Block()
        maxima, positions = search.memory
        shape = maxima.type.get_shape()  # type: ignore[attr-defined]
        loads = [mk.LoadOp(v, [0, 0], shape) for v in (maxima, positions)]
        best = mk.PickOp(loads[1].result, loads[0].result)
        out = self.memory[search.result]
        boxed = mk.ReshapeOp(best.result, shape_of(search.op.result))
        at = [0] * len(shape_of(search.op.result))
        body.add_ops([*loads, best, boxed, mk.StoreOp(boxed.result, out, at)])
        builder = TileBuilder(self.buffer, Block())
        return assemble(f"{name}.argmax", builder, [mk.PartOp([1], Region(body))])

    def store(
        self, builder: TileBuilder, value: SSAValue, box: Box, outputs: dict[SSAValue, SSAValue]
    ) -> None:
        """Stores a box of a stage's output; an appended box lands P rows further on."""
        result = builder.pull(source_of(value), box)
        at: list[Expr] = [offset for offset, _ in box]
        if isinstance(value.type, kv.CacheType):
            axis = value.type.axis.data
            at[axis] = at[axis] + P
        builder.part.add_op(mk.StoreOp(result, self.memory[outputs[value]], at))

    def attention_part(
        self, builder: TileBuilder, op: lm.AttentionSplitOp, outputs: dict[SSAValue, SSAValue]
    ) -> mk.PartOp:
        """A tile a kv head and a chunk: t0 the head, t1 the chunk, from the first visible one."""
        heads, kv_heads, tokens, depth, _ = op.dims()
        group = heads // kv_heads
        first, end = chunk_range(op, tokens)
        index = T1 + first
        body = builder.begin_part()
        box: Box = ((Const(0), 1), (T0 * group, group), (Const(0), tokens), (Const(0), depth))
        query = builder.pull(op.query, box)
        query = builder.emit(mk.TransposeOp(query, (0, 2, 1, 3)), box)
        query = builder.emit(mk.ReshapeOp(query, (tokens, group, depth)), box)
        numbers = {
            k: v for k, v in op.properties.items() if k in ("scale", "window", "softcap", "chunk")
        }
        keys, values = self.memory[op.keys], self.memory[op.values]
        partial = mk.AttentionOp(query, keys, values, T0, index, numbers)
        body.add_op(partial)
        for value, result in zip(op.results, partial.results, strict=True):
            shape = shape_of(result)
            boxed = mk.ReshapeOp(result, (1, 1, *shape))
            at: list[Expr | int] = [index, T0, *[0] * len(shape)]
            body.add_ops([boxed, mk.StoreOp(boxed.result, self.memory[outputs[value]], at)])
        return mk.PartOp([kv_heads, end - first], Region(body))


def source_of(value: SSAValue) -> SSAValue:
    """The tensor behind a stage's output: an append's entries, or the value itself."""
    return value.owner.entries if isinstance(value.owner, kv.AppendOp) else value


@dataclass
class Search:
    """An argmax of a stage, its result outside, and where the tiles leave what they find."""

    op: lm.ArgmaxOp
    result: SSAValue
    memory: list[SSAValue] = field(default_factory=list)


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
        """Features of a tile: about `tile_bytes` of weights, no more than MAX_TILES tiles, whole
        granules. From shapes alone, so that results never depend on the machine."""
        granule = lcm(*(t.granule for t in self.tilings))
        wanted = max(tile_bytes // self.row_bytes, -(-self.features // MAX_TILES), 8)
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


def assemble(name: str, builder: TileBuilder, parts: list[mk.PartOp]) -> mk.StageOp:
    """Joins prologue and parts: what the parts use of the prologue is yielded to them."""
    prologue, body = builder.prologue, Block(parts)
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
