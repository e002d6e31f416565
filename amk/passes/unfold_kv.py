"""`unfold-kv`: the inverse of `fold-kv`: caches become tensors that the caller passes in and gets.

For backends that keep no state of their own. A cache that is appended to once, in its own dtype,
and returned, and whose rows are read packed and in full, becomes an argument open on its sequence
axis, `concat(past, new)` and a result. Any other cache is an error: as a tensor it would have no
place to live in.

Before:

    !cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
    func.func @step(%new: tensor<1x2x1x4xf32>, %past: !cache) -> !cache {
      %next = kv.append %past, %new : tensor<1x2x1x4xf32> -> !cache
      func.return %next : !cache
    }

After:

    func.func @step(%new: tensor<1x2x1x4xf32>, %past: tensor<1x2x?x4xf32>)
        -> tensor<1x2x?x4xf32> {
      %all = lm.concat %past, %new {dim = 2 : i64}
        : tensor<1x2x?x4xf32>, tensor<1x2x1x4xf32> -> tensor<1x2x?x4xf32>
      func.return %all : tensor<1x2x?x4xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import BlockArgument
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from amk.errors import AmkError
from amk.ir import kv, lm
from amk.passes.rewriting import where


@dataclass(frozen=True)
class UnfoldKv(ModulePass):
    name = "unfold-kv"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in op.ops:
            if isinstance(function, func.FuncOp) and not function.is_declaration:
                caches = [a for a in function.body.block.args if isinstance(a.type, kv.CacheType)]
                found = [(cache, the_append(cache)) for cache in caches]
                for cache, append in found:
                    unfold(cache, append)
                function.update_function_type()


def the_append(cache: BlockArgument) -> kv.AppendOp:
    """The append of a cache that `unfold` takes. AmkError for any other."""
    users = kv.users(cache)
    if len(users) != 1 or not isinstance(users[0], kv.AppendOp):
        raise AmkError("unfold-kv: a cache has another use than one append to it")
    append = users[0]
    entries = append.entries.type
    assert isinstance(entries, TensorType)
    if entries.element_type != kv.cache_type(cache).element_type:
        raise AmkError(f"unfold-kv: rows are stored in another dtype, at {where(append)}")
    readers = kv.users(append.result)
    if sum(isinstance(op, func.ReturnOp) for op in readers) != 1:
        raise AmkError(f"unfold-kv: a cache is not returned once, at {where(append)}")
    live = kv.length_of(append.result)
    for op in readers:
        whole = isinstance(op, kv.RowsOp) and op.length.data[0] == live
        if not whole and not isinstance(op, func.ReturnOp):
            raise AmkError(f"unfold-kv: {op.name} reads a cache, at {where(op)}")
    return append


def unfold(cache: BlockArgument, append: kv.AppendOp) -> None:
    axis, entries = kv.cache_type(cache).axis.data, append.entries
    past = Rewriter.replace_value_with_new_type(cache, kv.rows_type(kv.cache_type(cache)))
    concat = lm.ConcatOp([past, entries], axis)
    concat.location = append.location
    block = append.parent
    assert block is not None
    block.insert_op_before(concat, append)
    for op in kv.users(append.result):
        if isinstance(op, kv.RowsOp):
            concat.result.name_hint = op.result.name_hint
            op.result.replace_all_uses_with(concat.result)
            op.detach()
            op.erase()
    append.result.replace_all_uses_with(concat.result)
    append.detach()
    append.erase()
