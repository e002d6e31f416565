"""`place-kv-append`: decides which stage writes the new rows of each cache.

`at` names the place: `epilogue` puts the append into the stage that computes the rows, whose tiles
store them into the cache and, unless something else reads them, nowhere else. `attention` puts it
into the first attention stage that reads them: the tile of a kv head that attends to the last rows
writes them first. `stage` gives the append a stage of its own. `auto` takes the cheapest that the
program allows (see `append_places`). All write the same bits. A remark says, for each append, what
was chosen and which ordering of reads and writes it relies on.

Before:

    !cache = !kv.cache<1x1x?x4xf32, axis = 2, policy = "static">
    func.func @step(%x: tensor<1x1x1x4xf32>, %pos: index, %k: !cache)
        -> (tensor<4x1x1x1x4xf32>, !cache) {
      %w = lm.weight "k.weight" : tensor<4x4xf32>
      %y = lm.stage "kv" {
        %n = lm.linear %x, %w
          : tensor<1x1x1x4xf32>, tensor<4x4xf32> -> tensor<1x1x1x4xf32>
        lm.yield %n : tensor<1x1x1x4xf32>
      } : tensor<1x1x1x4xf32>
      %next = kv.append %k, %y : tensor<1x1x1x4xf32> -> !cache
      %o = lm.stage "attend" {
        %p, %m, %s = lm.attention_split %x, %next, %next at %pos
          {scale = 0.5 : f64, chunk = 16 : i64}
          : tensor<1x1x1x4xf32>, !cache, !cache
          -> tensor<4x1x1x1x4xf32>, tensor<4x1x1x1xf32>, tensor<4x1x1x1xf32>
        lm.yield %p : tensor<4x1x1x1x4xf32>
      } : tensor<4x1x1x1x4xf32>
      func.return %o, %next : tensor<4x1x1x1x4xf32>, !cache
    }

After:

    !cache = !kv.cache<1x1x?x4xf32, axis = 2, policy = "static">
    func.func @step(%x: tensor<1x1x1x4xf32>, %pos: index, %k: !cache)
        -> (tensor<4x1x1x1x4xf32>, !cache) {
      %w = lm.weight "k.weight" : tensor<4x4xf32>
      %next = lm.stage "kv" {
        %n = lm.linear %x, %w
          : tensor<1x1x1x4xf32>, tensor<4x4xf32> -> tensor<1x1x1x4xf32>
        %a = kv.append %k, %n : tensor<1x1x1x4xf32> -> !cache
        lm.yield %a : !cache
      } : !cache
      %o = lm.stage "attend" {
        %p, %m, %s = lm.attention_split %x, %next, %next at %pos
          {scale = 0.5 : f64, chunk = 16 : i64}
          : tensor<1x1x1x4xf32>, !cache, !cache
          -> tensor<4x1x1x1x4xf32>, tensor<4x1x1x1xf32>, tensor<4x1x1x1xf32>
        lm.yield %p : tensor<4x1x1x1x4xf32>
      } : tensor<4x1x1x1x4xf32>
      func.return %o, %next : tensor<4x1x1x1x4xf32>, !cache
    }
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.passes import ModulePass

from amk.errors import AmkError
from amk.ir import kv, lm
from amk.passes.append_places import (
    PLACES,
    choices,
    computing_stage,
    reading_attention,
    row_stage,
)
from amk.passes.remarks import Remark, remark
from amk.passes.rewriting import where

CHOICES = ("auto", *PLACES)
ORDERINGS = {
    "epilogue": "rows [P, P + {rows}) of {cache} are written by the tiles of {stage} alone, and"
    " read by stages that wait for it",
    "attention": "the tile of a kv head whose chunk holds rows [P, P + {rows}) of {cache} writes"
    " them before it reads them; the other tiles read rows below the chunk of P",
    "stage": "rows [P, P + {rows}) of {cache} are written by a stage of their own, which waits for"
    " {stage}, and read by stages that wait for it",
}


@dataclass(frozen=True)
class PlaceKvAppend(ModulePass):
    name = "place-kv-append"
    at: str = "auto"
    """`auto`, `epilogue`, `attention` or `stage`."""
    statistics: dict[str, int] = field(default_factory=dict, init=False, compare=False)
    remarks: list[Remark] = field(default_factory=list, init=False, compare=False)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.at not in CHOICES:
            raise AmkError(f"place-kv-append: at {self.at!r}; known: {', '.join(CHOICES)}")
        self.statistics.clear()
        self.remarks.clear()
        for append in [a for a in op.walk() if isinstance(a, kv.AppendOp)]:
            if isinstance(append.parent_op(), lm.StageOp):
                continue
            place = self.choose(append)
            self.statistics[place] = self.statistics.get(place, 0) + 1
            PLACERS[place](append)

    def choose(self, append: kv.AppendOp) -> str:
        """The place, after a remark on it. AmkError when the forced one is not allowed."""
        found = choices(append)
        allowed = [c for c in found.values() if c.refusal is None]
        cheapest = min(allowed, key=lambda c: c.cost)
        chosen = cheapest if self.at == "auto" else found[self.at]
        if chosen.refusal is not None:
            raise AmkError(
                f"place-kv-append: at={self.at} at {where(append)}: {chosen.refusal}; use at=auto"
            )
        stage = computing_stage(append)
        ordering = ORDERINGS[chosen.place].format(
            rows=append.entries.type.get_shape()[kv.cache_type(append.cache).axis.data],  # type: ignore[attr-defined]
            cache=repr(append.cache.name_hint or "a cache"),
            stage="what computes them" if stage is None else repr(stage.sym_name.data),
        )
        costs = ", ".join(f"{c.place} {c}" for c in found.values())
        self.remarks.append(remark(append, f"in the {chosen.place} ({costs}): {ordering}"))
        return chosen.place


def into_epilogue(append: kv.AppendOp) -> None:
    """Rebuilds the stage that computes the rows so that it yields the cache's next version beside,
    or in place of, them."""
    stage = computing_stage(append)
    assert stage is not None
    last = stage.body.block.last_op
    assert isinstance(last, lm.YieldOp)
    index = list(stage.results).index(append.entries)  # type: ignore[arg-type]
    inner = kv.AppendOp(append.cache, last.arguments[index])
    inner.location = append.location
    stage.body.block.insert_op_before(inner, last)
    only_use = len(list(append.entries.uses)) == 1
    yielded: list[SSAValue] = list(last.arguments)
    results: list[SSAValue] = list(stage.results)
    if only_use:
        yielded[index] = inner.result
    else:
        yielded.append(inner.result)
    stage.body.block.insert_op_before(lm.YieldOp(*yielded), last)
    last.detach()
    last.erase()
    rebuilt = lm.StageOp(
        stage.detach_region(stage.body),
        [v.type for v in yielded],
        stage.sym_name.data,
    )
    rebuilt.location = stage.location
    block = stage.parent
    assert block is not None
    block.insert_op_after(rebuilt, stage)
    append.result.replace_all_uses_with(rebuilt.results[index if only_use else -1])
    append.detach()
    append.erase()
    for i, old in enumerate(results):
        if not (only_use and i == index):
            old.replace_all_uses_with(rebuilt.results[i])
    stage.detach()
    stage.erase()


def into_own_stage(append: kv.AppendOp) -> None:
    """Wraps the append into a stage of its own, where it stands."""
    block = append.parent
    assert block is not None
    inner = kv.AppendOp(append.cache, append.entries)
    inner.location = append.location
    body = Block([inner, lm.YieldOp(inner.result)])
    stage = lm.StageOp(Region(body), [inner.result.type], "kv.append")
    block.insert_op_before(stage, append)
    append.result.replace_all_uses_with(stage.results[0])
    append.detach()
    append.erase()


def into_attention(append: kv.AppendOp) -> None:
    """Appends at the start of the attention stage that reads the rows first, which yields the next
    version to whoever else reads it."""
    reader, made = reading_attention(append), row_stage(append)
    assert reader is not None
    stage = reader.parent_op()
    assert isinstance(stage, lm.StageOp)
    block = stage.parent
    assert block is not None
    body = stage.body.block
    inner = kv.AppendOp(append.cache, append.entries)
    inner.location = append.location
    first, last = body.first_op, body.last_op
    assert first is not None
    assert isinstance(last, lm.YieldOp)
    body.insert_op_before(inner, first)
    if made is not None:
        move_in(made, inner)
    append.result.replace_uses_with_if(
        inner.result, lambda use: use.operation.parent is body and use.operation is not inner
    )
    yielded = [*last.arguments, inner.result]
    body.insert_op_before(lm.YieldOp(*yielded), last)
    last.detach()
    last.erase()
    rebuilt = lm.StageOp(
        stage.detach_region(stage.body), [v.type for v in yielded], stage.sym_name.data
    )
    rebuilt.location = stage.location
    block.insert_op_after(rebuilt, stage)
    for old, new in zip(stage.results, rebuilt.results, strict=False):
        old.replace_all_uses_with(new)
    append.result.replace_all_uses_with(rebuilt.results[-1])
    append.detach()
    append.erase()
    stage.detach()
    stage.erase()


def move_in(stage: lm.StageOp, append: kv.AppendOp) -> None:
    """Moves what a stage computes in front of the append of its one result; the stage goes."""
    body = append.parent
    last = stage.body.block.last_op
    assert body is not None
    assert isinstance(last, lm.YieldOp)
    for op in [op for op in stage.body.block.ops if op is not last]:
        op.detach()
        body.insert_op_before(op, append)
    stage.results[0].replace_all_uses_with(last.arguments[0])
    stage.detach()
    stage.erase()


PLACERS = {"epilogue": into_epilogue, "attention": into_attention, "stage": into_own_stage}
