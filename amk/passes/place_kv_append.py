"""`place-kv-append`: decides which stage writes the new rows of each cache.

`epilogue` puts the append into the stage that computes the rows: its tiles store them into the
cache and nowhere else. `stage` gives the append a stage of its own, which reads the rows back.
`auto` takes the epilogue. All choices write the same bits. Ordering relied on: an append writes
rows [P, P + S), which only the stages that read the returned version may touch, after it.

Before:

    func.func @step(
        %x: tensor<1x2x1x4xf32>, %pos: index,
        %k: !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
    ) -> !kv.cache<1x2x?x4xf32, axis = 2, policy = "static"> {
      %y = lm.stage "qkv" {
        %n = lm.neg %x : tensor<1x2x1x4xf32>
        lm.yield %n : tensor<1x2x1x4xf32>
      } : tensor<1x2x1x4xf32>
      %k1 = kv.append %k, %y
        : tensor<1x2x1x4xf32> -> !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
      func.return %k1 : !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
    }

After:

    func.func @step(
        %x: tensor<1x2x1x4xf32>, %pos: index,
        %k: !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
    ) -> !kv.cache<1x2x?x4xf32, axis = 2, policy = "static"> {
      %k1 = lm.stage "qkv" {
        %n = lm.neg %x : tensor<1x2x1x4xf32>
        %next = kv.append %k, %n
          : tensor<1x2x1x4xf32> -> !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
        lm.yield %next : !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
      } : !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
      func.return %k1 : !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
    }
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.passes import ModulePass

from amk.errors import AmkError
from amk.ir import kv, lm

CHOICES = ("auto", "epilogue", "stage")


@dataclass(frozen=True)
class PlaceKvAppend(ModulePass):
    name = "place-kv-append"
    choice: str = "auto"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.choice not in CHOICES:
            raise AmkError(f"place-kv-append: choice {self.choice!r}; known: {', '.join(CHOICES)}")
        for append in [a for a in op.walk() if isinstance(a, kv.AppendOp)]:
            if isinstance(append.parent_op(), lm.StageOp):
                continue
            stage = append.entries.owner
            if self.choice != "stage" and isinstance(stage, lm.StageOp):
                into_epilogue(append, stage)
            else:
                into_own_stage(append)


def into_epilogue(append: kv.AppendOp, stage: lm.StageOp) -> None:
    """Rebuilds `stage` so that it yields the cache's next version beside, or in place of, the
    appended rows."""
    last = stage.body.block.last_op
    assert isinstance(last, lm.YieldOp)
    index = list(stage.results).index(append.entries)  # type: ignore[arg-type]
    inner = kv.AppendOp(append.cache, last.arguments[index])
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
    body = Block([inner, lm.YieldOp(inner.result)])
    stage = lm.StageOp(Region(body), [inner.result.type], "kv.append")
    block.insert_op_before(stage, append)
    append.result.replace_all_uses_with(stage.results[0])
    append.detach()
    append.erase()
