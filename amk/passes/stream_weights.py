"""`stream-weights`: the weights of one-token contractions pass through a ring of slots.

A ring private to a worker is filled in the order of the worker's list and never waits for an event,
so weight traffic runs ahead over stage boundaries. Legal because weights are read only and the list
is static; verify-mk proves that a slot is refilled after its last reader only. A contraction takes
part when its rows are whole multiples of 16 bytes and fit a slot; `slot-bytes` 0 takes 16 KB, or
the widest row that leaves room for two.

Before:

    mk.program "decode" attributes {tokens = 1 : i64, max_seq = 64 : i64,
        schedule = "static", workers = 3 : i64} {
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

    mk.program "decode" attributes {tokens = 1 : i64, max_seq = 64 : i64,
        schedule = "static", workers = 3 : i64} {
      %w = mk.buffer "weight" "w" : !mk.buffer<32x64xbf16>
      %y = mk.buffer "output" "logits" : !mk.buffer<1x32xf32>
      %ring = mk.stream {slots = 4 : i64, slot_bytes = 16384 : i64}
      mk.stage "head" prologue {
        %x = mk.load %w[0, 0] : !mk.buffer<32x64xbf16> -> tensor<1x64xf32>
        mk.yield %x : tensor<1x64xf32>
      } parts {
      ^bb0(%k: tensor<1x64xf32>):
        mk.part[4] {
          %d = mk.matmul %k, %w[t0 * 8, 0] through %ring
            {reduction = #mk.reduction<lanes = 16, chains = 2>}
            : tensor<1x64xf32>, !mk.buffer<32x64xbf16> -> tensor<1x8xf32>
          mk.store %d, %y[0, t0 * 8] : tensor<1x8xf32> -> !mk.buffer<1x32xf32>
        }
      }
    }
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from amk.errors import AmkError
from amk.ir import mk
from amk.ir.lm import shape_of

SLOT_BYTES = 16 * 1024
GRANULE = 1024


@dataclass(frozen=True)
class StreamWeights(ModulePass):
    name = "stream-weights"
    ring_bytes: int = 0
    """Shared memory for the ring."""
    slot_bytes: int = 0

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in op.walk():
            if isinstance(program, mk.ProgramOp):
                stream(program, self.ring_bytes, self.slot_bytes)


def row_bytes(op: mk.MatmulOp) -> int:
    return shape_of(op.input)[1] * mk.buffer_of(op.weight).type.element_bytes()


def stream(program: mk.ProgramOp, ring_bytes: int, slot_bytes: int) -> None:
    if program.static_workers is None:
        raise AmkError("stream-weights: the schedule is not static; run assign-workers")
    matmuls = [
        op
        for op in program.walk()
        if isinstance(op, mk.MatmulOp) and shape_of(op.input)[0] == 1 and row_bytes(op) % 16 == 0
    ]
    limit = slot_bytes or max(SLOT_BYTES, ring_bytes // 2 // GRANULE * GRANULE)
    matmuls = [op for op in matmuls if row_bytes(op) <= limit]
    widest = max((row_bytes(op) for op in matmuls), default=0)
    size = slot_bytes or max(SLOT_BYTES, -(-widest // GRANULE) * GRANULE)
    if not matmuls or ring_bytes // size < 2:
        return
    ring = mk.StreamOp(ring_bytes // size, size)
    ring.result.name_hint = "ring"
    program.body.block.insert_op_before(ring, program.stages()[0])
    for op in matmuls:
        op.operands = [op.input, op.weight, ring.result]
