"""`lower-lm-to-mk`: every `lm.stage` of @step becomes a stage of tiles over buffers.

Values that cross stages become activation buffers, caches and weights become buffers, the results
of @step other than caches become output buffers. A stage's outputs are cut along the output
features of the contractions behind them; what is the same for every tile is computed in the
prologue. Tile sizes come from shapes alone. @init stays as it is.

Before:

    builtin.module attributes {amk.max_seq = 64 : i64} {
      func.func @step(%tokens: tensor<1x1xi64>, %pos: index) -> tensor<1x1x20xf32> {
        %e = lm.weight "embed.weight" : tensor<20x8xf32>
        %g = lm.weight "norm.weight" : tensor<8xf32>
        %y = lm.stage "head" {
          %x = lm.embedding %e, %tokens
            : tensor<20x8xf32>, tensor<1x1xi64> -> tensor<1x1x8xf32>
          %n = lm.rms_norm %x weight %g : tensor<8xf32> {eps = 1.0e-5 : f64} : tensor<1x1x8xf32>
          %l = lm.linear %n, %e : tensor<1x1x8xf32>, tensor<20x8xf32> -> tensor<1x1x20xf32>
          %s = lm.mul_scalar %l, 0.5 : f64 : tensor<1x1x20xf32> -> tensor<1x1x20xf32>
          lm.yield %s : tensor<1x1x20xf32>
        } : tensor<1x1x20xf32>
        func.return %y : tensor<1x1x20xf32>
      }
    }

After, with `lower-lm-to-mk{tile-bytes=256}`:

    builtin.module attributes {amk.max_seq = 64 : i64} {
      mk.program "decode" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
        %tokens = mk.buffer "input" "tokens" : !mk.buffer<1x1xi64>
        %logits = mk.buffer "output" "logits" : !mk.buffer<1x1x20xf32>
        %embed_weight = mk.buffer "weight" "embed.weight" : !mk.buffer<20x8xf32>
        %norm_weight = mk.buffer "weight" "norm.weight" : !mk.buffer<8xf32>
        mk.stage "head" prologue {
          %0 = mk.gather %embed_weight, %tokens[0]
            : !mk.buffer<20x8xf32>, !mk.buffer<1x1xi64> -> tensor<1x8xf32>
          %1 = mk.reshape %0 : tensor<1x8xf32> -> tensor<1x1x8xf32>
          %2 = mk.binary "mul" %1, %1 : tensor<1x1x8xf32>, tensor<1x1x8xf32> -> tensor<1x1x8xf32>
          %3 = mk.reduce "mean" %2 {reduction = #mk.reduction<lanes = 16, chains = 1>}
            : tensor<1x1x8xf32> -> tensor<1x1x1xf32>
          %4 = mk.scalar "add" %3, 1.000000e-05 : f64 : tensor<1x1x1xf32>
          %5 = mk.unary "rsqrt" %4 : tensor<1x1x1xf32>
          %6 = mk.binary "mul" %1, %5 : tensor<1x1x8xf32>, tensor<1x1x1xf32> -> tensor<1x1x8xf32>
          %7 = mk.load %norm_weight[0] : !mk.buffer<8xf32> -> tensor<8xf32>
          %8 = mk.binary "mul" %6, %7 : tensor<1x1x8xf32>, tensor<8xf32> -> tensor<1x1x8xf32>
          %9 = mk.reshape %8 : tensor<1x1x8xf32> -> tensor<1x8xf32>
          mk.yield %9 : tensor<1x8xf32>
        } parts {
        ^bb0(%10: tensor<1x8xf32>):
          mk.part[4] {
            %11 = mk.matmul %10, %embed_weight[t0 * 5, 0]
              {reduction = #mk.reduction<lanes = 16, chains = 2>}
              : tensor<1x8xf32>, !mk.buffer<20x8xf32> -> tensor<1x5xf32>
            %12 = mk.reshape %11 : tensor<1x5xf32> -> tensor<1x1x5xf32>
            %13 = mk.scalar "mul" %12, 5.000000e-01 : f64 : tensor<1x1x5xf32>
            mk.store %13, %logits[0, 0, t0 * 5] : tensor<1x1x5xf32> -> !mk.buffer<1x1x20xf32>
          }
        }
      }
    }
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType, f32, i8, i64
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.passes import ModulePass

from amk.errors import AmkError
from amk.ir import kv, lm, mk
from amk.ir.lm import integer, shape_of
from amk.passes.lower_stage import StageLowering
from amk.passes.max_seq import resolve_max_seq
from amk.passes.rewriting import step_of
from amk.passes.tile_components import TILE_BYTES
from amk.passes.tile_rules import strip_casts


@dataclass(frozen=True)
class LowerLmToMk(ModulePass):
    name = "lower-lm-to-mk"
    max_seq: int | None = None
    """Positions the program is compiled for; by default the module's `amk.max_seq`."""
    program: str = "decode"
    """The symbol of the program."""
    tile_bytes: int = TILE_BYTES
    """Bytes of weights that a tile reads, about."""
    workers: int = 0
    """Of a static schedule that follows: tile sizes then give all of them as much to read, with
    `tile_bytes` a tile at most."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        step = step_of(op, self.name)
        arguments = step.body.block.args
        if not arguments or not isinstance(arguments[0].type, TensorType):
            raise AmkError("lower-lm-to-mk: the first argument of @step is the tokens [1, S]")
        tokens = shape_of(arguments[0])[-1]
        max_seq = resolve_max_seq(op, self.max_seq, self.name)
        if max_seq < tokens:
            raise AmkError(f"lower-lm-to-mk: max-seq {max_seq} is below the {tokens} new tokens")
        program = mk.ProgramOp(self.program, tokens, max_seq)
        op.body.block.insert_op_before(program, step)
        sizes = self.tile_bytes, self.workers
        Lowering(step.body.block, program.body.block, *sizes).run()
        step.detach()
        step.erase()


def buffer_type(type: Attribute) -> mk.BufferType:
    """How a value of an `lm` type lies in memory."""
    assert isinstance(type, TensorType | kv.CacheType)
    return mk.BufferType.get(type.get_shape(), type.element_type)


def growth(cache: kv.CacheType) -> dict[str, Attribute]:
    """How a cache's memory grows, as properties of its buffer."""
    found: dict[str, Attribute] = {}
    if cache.policy.data != "static":
        found["policy"] = cache.policy
    if cache.is_ring:
        found |= {"rows": integer(cache.rows.data), "window": integer(cache.window.data)}
        if cache.sinks.data:
            found["sinks"] = integer(cache.sinks.data)
    return found


class Lowering:
    """Lowers the stages of one block of `lm` into the block of a program.

    `memory` holds the buffer of each value that lives in one, `buffers` all in order."""

    def __init__(self, source: Block, target: Block, tile_bytes: int, workers: int):
        self.source = source
        self.target = target
        self.sizes = tile_bytes, workers
        self.memory: dict[SSAValue, SSAValue] = {}
        self.scales: dict[SSAValue, SSAValue] = {}
        self.weights: dict[tuple[str, Attribute], SSAValue] = {}
        self.buffers: list[mk.BufferOp] = []
        last = source.last_op
        assert isinstance(last, func.ReturnOp)
        self.returned = list(last.operands)

    def run(self) -> None:
        tokens, _, *caches = self.source.args
        self.memory[tokens] = self.declare("input", "tokens", buffer_type(tokens.type))
        for i, cache in enumerate(caches):
            name = cache.name_hint or f"cache{i}"
            self.memory[cache] = self.declare("cache", name, buffer_type(cache.type))
            self.buffers[-1].properties |= growth(kv.cache_type(cache))
            if kv.cache_type(cache).element_type == i8:
                shape = (*kv.cache_type(cache).get_shape()[:-1], 1)
                scales = mk.BufferType.get(shape, f32)
                self.scales[cache] = self.declare("cache", f"{name}.scale", scales)
                self.buffers[-1].properties |= growth(kv.cache_type(cache))
        stages: list[mk.StageOp] = []
        for op in self.source.ops:
            if isinstance(op, lm.StageOp):
                self.declare_results(op)
                stages += StageLowering(op, self, *self.sizes).run()
            elif isinstance(op, kv.AppendOp):
                raise AmkError("lower-lm-to-mk: kv.append outside a stage; run place-kv-append")
        for op in (*self.buffers, *stages):
            self.target.add_op(op)

    def declare(self, kind: str, source: str, type: mk.BufferType) -> SSAValue:
        buffer = mk.BufferOp(kind, source, type)
        buffer.result.name_hint = identifier(source)
        self.buffers.append(buffer)
        return buffer.result

    def declare_results(self, stage: lm.StageOp) -> None:
        """A stage's results are outputs of the program, activations, or versions of a cache."""
        last = stage.body.block.last_op
        assert isinstance(last, lm.YieldOp)
        for i, (inner, outer) in enumerate(zip(last.arguments, stage.results, strict=True)):
            if isinstance(outer.type, kv.CacheType):
                if not isinstance(inner.owner, kv.AppendOp):
                    raise AmkError("lower-lm-to-mk: a stage yields a cache it does not append to")
                for version in (inner, outer):
                    self.memory[version] = self.memory[inner.owner.cache]
                    if inner.owner.cache in self.scales:
                        self.scales[version] = self.scales[inner.owner.cache]
            elif outer in self.returned:
                self.memory[outer] = self.declare(
                    "output", self.output_name(outer), buffer_type(outer.type)
                )
            else:
                self.memory[outer] = self.declare(
                    "activation", f"{stage.sym_name.data}#{i}", buffer_type(outer.type)
                )

    def output_name(self, value: SSAValue) -> str:
        """The logits come first; what is i64 are the next tokens."""
        if isinstance(value.type, TensorType) and value.type.element_type == i64:
            return "next"
        place = self.returned.index(value)
        return "logits" if place == 0 else f"output{place}"

    def buffer(self, value: SSAValue) -> SSAValue | None:
        """The buffer of a value that lives in memory; weights are declared when first used."""
        value = strip_casts(value)
        if isinstance(value.owner, lm.WeightOp):
            key = (value.owner.key.data, value.type)
            if key not in self.weights:
                self.weights[key] = self.declare("weight", key[0], buffer_type(value.type))
            return self.weights[key]
        return self.memory.get(value)


def identifier(source: str) -> str:
    """A name for SSA values that tells where a buffer comes from."""
    plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in source)
    return f"_{plain}" if not plain or plain[0].isdigit() else plain
