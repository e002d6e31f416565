"""`pack-weights`: rows of a contraction's weight that 16-byte loads cannot take are padded.

A GPU reads a row of a weight in pieces of 16 bytes and moves whole rows by bulk copies, which
start at 16 bytes too. Rows lie one after another, so a row length that is no multiple of 16 bytes
puts them out of place. Such a weight becomes a result of `@init`: the same rows, in the same dtype,
with zeros up to the next 64 bytes (32 elements of 16 bits, what a matrix instruction takes); its
input gets zeros as well. Zeros add nothing to a sum, at the place they take in its order: the bits
of a step are those without the pass. A weight whose rows fit stays as it is in its file.

Before:

    func.func @step(%x: tensor<1x1x6xf32>, %pos: index) -> tensor<1x1x8xf32> {
      %w = lm.weight "w" : tensor<8x6xbf16>
      %f = lm.cast %w : tensor<8x6xbf16> -> tensor<8x6xf32>
      %y = lm.linear %x, %f : tensor<1x1x6xf32>, tensor<8x6xf32> -> tensor<1x1x8xf32>
      func.return %y : tensor<1x1x8xf32>
    }

After:

    func.func @init() -> (tensor<8x32xbf16>, tensor<1x1x26xf32>)
        attributes {amk.names = ["w|32", "zeros"]} {
      %w = lm.weight "w" : tensor<8x6xbf16>
      %n = lm.constant dense<0.000000e+00> : tensor<1x26xbf16>
      %e = lm.expand %n : tensor<1x26xbf16> -> tensor<8x26xbf16>
      %p = lm.concat %w, %e {dim = 1 : i64}
        : tensor<8x6xbf16>, tensor<8x26xbf16> -> tensor<8x32xbf16>
      %z = lm.constant dense<0.000000e+00> : tensor<1x1x26xf32>
      func.return %p, %z : tensor<8x32xbf16>, tensor<1x1x26xf32>
    }
    func.func @step(%x: tensor<1x1x6xf32>, %pos: index) -> tensor<1x1x8xf32> {
      %p = lm.weight "@init/w|32" : tensor<8x32xbf16>
      %f = lm.cast %p : tensor<8x32xbf16> -> tensor<8x32xf32>
      %z = lm.weight "@init/zeros" : tensor<1x1x26xf32>
      %xz = lm.concat %x, %z {dim = 2 : i64}
        : tensor<1x1x6xf32>, tensor<1x1x26xf32> -> tensor<1x1x32xf32>
      %y = lm.linear %xz, %f : tensor<1x1x32xf32>, tensor<8x32xf32> -> tensor<1x1x8xf32>
      func.return %y : tensor<1x1x8xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import AnyFloat, DenseIntOrFPElementsAttr, ModuleOp, TensorType, f32
from xdsl.ir import Attribute, SSAValue

from amk.ir import lm, mk
from amk.ir.lm import element_of, shape_of
from amk.passes.init_names import weight_name
from amk.passes.rewriting import Build, LmPass, rewrite, step_of
from amk.passes.split_init import Init
from amk.passes.tile_rules import strip_casts

LOAD_BYTES = 16
PAD_BYTES = 64


def zeros(shape: tuple[int, ...], element: Attribute) -> lm.ConstantOp:
    assert isinstance(element, AnyFloat)
    type = TensorType(element, shape)
    return lm.ConstantOp(DenseIntOrFPElementsAttr.from_list(type, [0.0]))


def padded_depth(weight: SSAValue) -> int:
    """Elements of a padded row of a weight [N, K], K where its rows fit."""
    depth = shape_of(weight)[1]
    size = mk.BufferType.get((1,), element_of(weight)).element_bytes()
    if depth * size % LOAD_BYTES == 0:
        return depth
    return -(-depth * size // PAD_BYTES) * PAD_BYTES // size


class Packer:
    """Pads weights and inputs of one @step, each once."""

    def __init__(self, init: Init):
        self.init = init
        self.inputs: dict[tuple[SSAValue, int], SSAValue] = {}
        self.weights: dict[tuple[str, Attribute], str] = {}
        self.zeros: dict[int, str] = {}

    def pack(self, op: lm.LinearOp) -> bool:
        """Rewrites a contraction whose weight's rows do not fit; says whether it did."""
        weight = strip_casts(op.weight)
        if not isinstance(weight.owner, lm.WeightOp):
            return False
        depth, wanted = shape_of(weight)[1], padded_depth(weight)
        if wanted == depth:
            return False
        build = Build(op)
        read = build(self.padded(weight.owner, wanted))
        if element_of(op.weight) != element_of(weight):
            read = build(lm.CastOp(read, element_of(op.weight)))
        key = op.input, wanted - depth
        if key not in self.inputs:
            self.inputs[key] = self.padded_input(*key, build)
        bias = [] if op.bias is None else [op.bias]
        op.operands = [self.inputs[key], read, *bias]
        return True

    def padded(self, weight: lm.WeightOp, depth: int) -> lm.WeightOp:
        """Reads the padded weight, a result of @init."""
        key = (weight.key.data, weight.result.type)
        element, (rows, old) = element_of(weight.result), shape_of(weight.result)
        type = lm.tensor((rows, depth), element)
        if key not in self.weights:
            block = self.init.block
            source = self.init.copy(weight.result)
            zero = zeros((1, depth - old), element)
            more = lm.ExpandOp(zero.result, (rows, depth - old))
            joined = lm.ConcatOp([source, more.result], 1)
            block.add_ops([zero, more, joined])
            name = f"{weight_name(weight.result)}|{depth}"
            read = self.init.add(name, joined.result)
            self.weights[key] = read.key.data
            return read
        return lm.WeightOp(self.weights[key], type)

    def padded_input(self, value: SSAValue, more: int, build: Build) -> SSAValue:
        """`value` with `more` zeros in its last axis."""
        assert isinstance(value.type, TensorType)
        shape = shape_of(value)
        flat = (*(1 for _ in shape[:-1]), more)
        if more not in self.zeros:
            zero = zeros(flat, f32)
            self.init.block.add_op(zero)
            self.zeros[more] = self.init.add("zeros", zero.result).key.data
        tail = build(lm.WeightOp(self.zeros[more], lm.tensor(flat, f32)))
        if flat[:-1] != shape[:-1]:
            tail = build(lm.ExpandOp(tail, (*shape[:-1], more)))
        return build(lm.ConcatOp([value, tail], len(shape) - 1))


@dataclass(frozen=True)
class PackWeights(LmPass):
    name = "pack-weights"
    tolerance: ClassVar[float] = 1e-6
    """The interpreter of `lm` leaves the order of a sum to its library."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        step = step_of(op, self.name)
        linears = [
            inner
            for inner in step.body.block.ops
            if isinstance(inner, lm.LinearOp) and element_of(inner.input) == f32
        ]
        if not any(needs_padding(inner) for inner in linears):
            return
        init = Init(op)
        packer = Packer(init)
        self.counts["weights"] += sum(packer.pack(inner) for inner in linears)
        init.finish()
        rewrite(op, {}, self.name)


def needs_padding(op: lm.LinearOp) -> bool:
    weight = strip_casts(op.weight)
    return isinstance(weight.owner, lm.WeightOp) and padded_depth(weight) != shape_of(weight)[1]
