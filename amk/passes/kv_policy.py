"""`kv-policy`: chooses how the memory of each cache grows.

`policy` is for the caches whose rows are all read again. One that only windowed attention reads
becomes, under `windowed = "ring"`, a ring: its memory is bounded by the window and not by the
text. A ring of R rows keeps the row of position j in slot j mod R, so rows must outlast the window
of every query of a launch: R ≥ window − 1 + `tokens`, the widest launch of any program that shares
the cache. First rows that stay in sight beside the window, the sinks, take slots of their own. R is
the next multiple of 16, so that each head begins on a line of memory. Chunks of
attention are counted by position, and sums run as they would in a cache that holds all rows: bits
are the same under every policy.

Before:

    !cache = !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">
    func.func @step(
        %x: tensor<1x2x1x8xf32>, %q: tensor<1x4x1x8xf32>, %pos: index, %k: !cache
    ) -> (tensor<1x1x4x8xf32>, !cache) {
      %n = kv.append %k, %x : tensor<1x2x1x8xf32> -> !cache
      %o = lm.attention %q, %n, %n at %pos {scale = 1.0 : f64, window = 24 : i64}
        : tensor<1x4x1x8xf32>, !cache, !cache -> tensor<1x1x4x8xf32>
      func.return %o, %n : tensor<1x1x4x8xf32>, !cache
    }

After, with `kv-policy{max-seq=1024 tokens=8}`:

    !cache = !kv.cache<1x2x?x8xf32, axis = 2, policy = "ring", rows = 32, window = 24, sinks = 0>
    func.func @step(
        %x: tensor<1x2x1x8xf32>, %q: tensor<1x4x1x8xf32>, %pos: index, %k: !cache
    ) -> (tensor<1x1x4x8xf32>, !cache) {
      %n = kv.append %k, %x : tensor<1x2x1x8xf32> -> !cache
      %o = lm.attention %q, %n, %n at %pos {scale = 1.0 : f64, window = 24 : i64}
        : tensor<1x4x1x8xf32>, !cache, !cache -> tensor<1x1x4x8xf32>
      func.return %o, %n : tensor<1x1x4x8xf32>, !cache
    }
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from amk.errors import AmkError
from amk.ir import kv, lm
from amk.passes.max_seq import resolve_max_seq

GROWING = ("static", "doubling")
WINDOWED = ("ring", "keep")
WIDEST = 16
ROWS_OF_A_LINE = 16
"""So many rows are whole cache lines, whatever a row's bytes (4 at least)."""


@dataclass(frozen=True)
class KvPolicy(ModulePass):
    name = "kv-policy"
    policy: str = "doubling"
    """Of caches whose rows are all read again: `static` or `doubling`."""
    windowed: str = "ring"
    """Of caches that windowed attention alone reads: `ring`, or `keep` for `policy`."""
    tokens: int = WIDEST
    """New tokens of the widest launch of a program that shares the caches."""
    max_seq: int | None = None
    """Positions the program is compiled for; by default the module's `amk.max_seq`."""
    statistics: dict[str, int] = field(default_factory=dict, init=False, compare=False)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.policy not in GROWING or self.windowed not in WINDOWED:
            raise AmkError(
                f"kv-policy: policy is {' or '.join(GROWING)}, windowed {' or '.join(WINDOWED)}"
            )
        max_seq = resolve_max_seq(op, self.max_seq, self.name)
        self.statistics.clear()
        for function in op.ops:
            if isinstance(function, func.FuncOp) and not function.is_declaration:
                for cache in function.body.block.args:
                    if isinstance(cache.type, kv.CacheType):
                        self.choose(cache, max_seq)
                function.update_function_type()

    def choose(self, cache: BlockArgument, max_seq: int) -> None:
        type = kv.cache_type(cache)
        versions = versions_of(cache)
        attentions = [
            use.operation
            for v in versions
            for use in v.uses
            if isinstance(use.operation, lm.AttentionBase)
        ]
        rows, window, sinks = self.ring(attentions, versions)
        if 0 < rows < max_seq and type.axis.data == 2 and self.windowed == "ring":
            new = type.with_policy("ring", rows, window, sinks)
        else:
            new = type.with_policy(self.policy)
        self.statistics[new.policy.data] = self.statistics.get(new.policy.data, 0) + 1
        for v in versions:
            Rewriter.replace_value_with_new_type(v, new)

    def ring(
        self, attentions: list[lm.AttentionBase], versions: list[SSAValue]
    ) -> tuple[int, int, int]:
        """(rows, window, sinks) of a ring that holds what every reader sees; or zeros."""
        windows = [a.window.value.data for a in attentions if a.window is not None]
        sinks = {a.kept for a in attentions}
        unbounded = len(windows) < len(attentions) or not windows
        if unbounded or len(sinks) > 1 or read_otherwise(versions):
            return 0, 0, 0
        tokens = max(a.dims()[2] for a in attentions)
        if tokens > self.tokens:
            raise AmkError(f"kv-policy: a launch of {tokens} tokens, but tokens = {self.tokens}")
        (kept,) = sinks
        needed = kept + max(windows) - 1 + self.tokens
        return -(-needed // ROWS_OF_A_LINE) * ROWS_OF_A_LINE, max(windows), kept


def versions_of(cache: SSAValue) -> list[SSAValue]:
    """A cache and all its later versions, through appends, truncations and stages."""
    found = [cache]
    for version in found:
        for use in version.uses:
            op = use.operation
            if isinstance(op, kv.AppendOp | kv.TruncateOp):
                found.append(op.result)
            elif isinstance(op, lm.YieldOp):
                stage = op.parent_op()
                assert isinstance(stage, lm.StageOp)
                found.append(stage.results[use.index])
    return found


READERS = (lm.AttentionBase, kv.AppendOp, kv.TruncateOp, kv.LengthOp, lm.YieldOp, func.ReturnOp)


def read_otherwise(versions: list[SSAValue]) -> bool:
    """Does anything want all rows in order?"""
    uses: list[Operation] = [use.operation for v in versions for use in v.uses]
    return any(not isinstance(op, READERS) for op in uses)
