"""`warp-reductions`: the order of every sum, as a GPU's warps add it.

A contraction takes a warp a row, 16 bytes a thread: 256 lanes for weights of 16 bits, 128 for f32.
A row of 256 elements or more is reduced by the block, a lane a thread, a shorter one by a warp.
Attention takes eight elements of a head a thread. All from shapes and dtypes alone, so results do
not depend on the machine, and every chunk size gives the same bits.

Before:

    mk.program "decode" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
      %w = mk.buffer "weight" "w" : !mk.buffer<32x64xbf16>
      %y = mk.buffer "output" "logits" : !mk.buffer<1x32xf32>
      mk.stage "head" prologue {
        %x = mk.load %w[0, 0] : !mk.buffer<32x64xbf16> -> tensor<1x64xf32>
        mk.yield %x : tensor<1x64xf32>
      } parts {
      ^bb0(%k: tensor<1x64xf32>):
        mk.part[4] {
          %d = mk.matmul %k, %w[t0 * 8, 0]
            {reduction = #mk.reduction<lanes = 16, chains = 2>}
            : tensor<1x64xf32>, !mk.buffer<32x64xbf16> -> tensor<1x8xf32>
          mk.store %d, %y[0, t0 * 8] : tensor<1x8xf32> -> !mk.buffer<1x32xf32>
        }
      }
    }

After:

    mk.program "decode" attributes {tokens = 1 : i64, max_seq = 64 : i64} {
      %w = mk.buffer "weight" "w" : !mk.buffer<32x64xbf16>
      %y = mk.buffer "output" "logits" : !mk.buffer<1x32xf32>
      mk.stage "head" prologue {
        %x = mk.load %w[0, 0] : !mk.buffer<32x64xbf16> -> tensor<1x64xf32>
        mk.yield %x : tensor<1x64xf32>
      } parts {
      ^bb0(%k: tensor<1x64xf32>):
        mk.part[4] {
          %d = mk.matmul %k, %w[t0 * 8, 0]
            {reduction = #mk.reduction<lanes = 256, chains = 1>}
            : tensor<1x64xf32>, !mk.buffer<32x64xbf16> -> tensor<1x8xf32>
          mk.store %d, %y[0, t0 * 8] : tensor<1x8xf32> -> !mk.buffer<1x32xf32>
        }
      }
    }
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntAttr, ModuleOp
from xdsl.passes import ModulePass

from amk.codegen.cuda.rules import attention_lanes
from amk.codegen.cuda.stage import COMPUTE_THREADS
from amk.ir import mk
from amk.ir.lm import shape_of

WARP = 32
LOAD_BYTES = 16


def order(lanes: int) -> mk.ReductionAttr:
    return mk.ReductionAttr(IntAttr(lanes), IntAttr(1))


@dataclass(frozen=True)
class WarpReductions(ModulePass):
    name = "warp-reductions"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for inner in op.walk():
            if isinstance(inner, mk.MatmulOp):
                weight = mk.buffer_of(inner.weight).type
                inner.properties["reduction"] = order(WARP * LOAD_BYTES // weight.element_bytes())
            elif isinstance(inner, mk.ReduceOp):
                wide = shape_of(inner.input)[-1] >= COMPUTE_THREADS
                inner.properties["reduction"] = order(COMPUTE_THREADS if wide else WARP)
            elif isinstance(inner, mk.AttentionOp):
                lanes = attention_lanes(shape_of(inner.query)[2])
                for name, n in zip(("dot", "total", "mix"), lanes, strict=True):
                    inner.properties[name] = order(n)
