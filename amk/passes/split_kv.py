"""`split-kv`: attention over the cache becomes partial softmaxes over chunks, then their join.

A chunk of cache rows is one unit of parallel work whatever the position is (split-KV, Dao et al.
2023); how many there are follows from `chunk` and `max-seq`, never from a worker count. Needs f32
queries: run `promote-f32` first.

Before:

    func.func @step(
        %q: tensor<1x4x1x8xf32>, %pos: index,
        %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">,
        %v: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">
    ) -> tensor<1x1x4x8xf32> {
      %o = lm.attention %q, %k, %v at %pos {scale = 0.5 : f64}
        : tensor<1x4x1x8xf32>,
          !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">,
          !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">
        -> tensor<1x1x4x8xf32>
      func.return %o : tensor<1x1x4x8xf32>
    }

After, with `split-kv{chunk=256 max-seq=1024}`:

    func.func @step(
        %q: tensor<1x4x1x8xf32>, %pos: index,
        %k: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">,
        %v: !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">
    ) -> tensor<1x1x4x8xf32> {
      %p, %m, %s = lm.attention_split %q, %k, %v at %pos {scale = 0.5 : f64, chunk = 256 : i64}
        : tensor<1x4x1x8xf32>,
          !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">,
          !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">
        -> tensor<4x2x1x2x8xf32>, tensor<4x2x1x2xf32>, tensor<4x2x1x2xf32>
      %o = lm.attention_combine %p, %m, %s at %pos {chunk = 256 : i64}
        : tensor<4x2x1x2x8xf32>, tensor<4x2x1x2xf32>, tensor<4x2x1x2xf32> -> tensor<1x1x4x8xf32>
      func.return %o : tensor<1x1x4x8xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.ir import SSAValue

from amk.errors import AmkError
from amk.ir import lm
from amk.ir.lm import element_of
from amk.passes.max_seq import resolve_max_seq
from amk.passes.rewriting import Build, LmPass, rewrite, where


def split(op: lm.AttentionOp, build: Build, *, chunk: int, max_seq: int) -> SSAValue:
    if element_of(op.query) != f32:
        raise AmkError(f"split-kv: queries are not f32 at {where(op)}; run promote-f32 first")
    if op.kept > chunk:
        raise AmkError(
            f"split-kv: the first {op.kept} rows stay, more than a chunk of {chunk}, at {where(op)}"
        )
    parts = lm.AttentionSplitOp(op, chunk, max_seq, f32)
    build(parts)
    return build(lm.AttentionCombineOp(parts, op.sinks))


@dataclass(frozen=True)
class SplitKv(LmPass):
    name = "split-kv"
    tolerance: ClassVar[float] = 1e-5
    """The softmax is summed a chunk at a time."""

    chunk: int = 256
    """Cache rows a chunk holds."""
    max_seq: int | None = None
    """Positions the program is compiled for; by default the module's `amk.max_seq`."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.chunk < 1:
            raise AmkError(f"split-kv: chunk is {self.chunk}; give a positive number of rows")
        max_seq = resolve_max_seq(op, self.max_seq, self.name)
        rule = partial(split, chunk=self.chunk, max_seq=max_seq)
        self.counts["split"] += rewrite(op, {lm.AttentionOp: (rule,)}, self.name).total()
