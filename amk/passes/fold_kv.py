"""`fold-kv`: a graph that takes and returns its caches as tensors gets caches instead.

Exports with explicit caches compute `concat(past, new)` and return it for the caller to pass in
again. Where an argument open on one axis has that concat as its only use, past first, along its
open axis and with a fixed number of new rows, and the result is returned once, it is a cache:
the argument and the result become one, the concat an append, and other readers get packed rows.
Everything else is left alone; a remark says why. `unfold-kv` is the inverse.

Before:

    func.func @step(%new: tensor<1x2x1x4xf32>, %past: tensor<1x2x?x4xf32>)
        -> (tensor<1x2x?xf32>, tensor<1x2x?x4xf32>) {
      %all = lm.concat %past, %new {dim = 2 : i64}
        : tensor<1x2x?x4xf32>, tensor<1x2x1x4xf32> -> tensor<1x2x?x4xf32>
      %m = lm.amax %all {dims = array<i64: 3>, keepdim = 0 : i1}
        : tensor<1x2x?x4xf32> -> tensor<1x2x?xf32>
      func.return %m, %all : tensor<1x2x?xf32>, tensor<1x2x?x4xf32>
    }

After:

    !cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
    func.func @step(%new: tensor<1x2x1x4xf32>, %past: !cache) -> (tensor<1x2x?xf32>, !cache) {
      %next = kv.append %past, %new : tensor<1x2x1x4xf32> -> !cache
      %all = kv.pack %next[P + 1] : !cache -> tensor<1x2x?x4xf32>
      %m = lm.amax %all {dims = array<i64: 3>, keepdim = 0 : i1}
        : tensor<1x2x?x4xf32> -> tensor<1x2x?xf32>
      func.return %m, %next : tensor<1x2x?xf32>, !cache
    }
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import DYNAMIC_INDEX, ModuleOp, TensorType
from xdsl.ir import BlockArgument, Operation
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from amk.ir import kv, lm
from amk.passes.remarks import Remark, remark


@dataclass(frozen=True)
class FoldKv(ModulePass):
    name = "fold-kv"
    statistics: dict[str, int] = field(default_factory=dict, init=False, compare=False)
    remarks: list[Remark] = field(default_factory=list, init=False, compare=False)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.statistics.clear()
        self.remarks.clear()
        for function in op.ops:
            if isinstance(function, func.FuncOp) and not function.is_declaration:
                for past in list(function.body.block.args):
                    if open_axis(past) is not None:
                        self.fold(past)
                function.update_function_type()

    def fold(self, past: BlockArgument) -> None:
        reason = why_not(past)
        what = "folded" if reason is None else "left alone"
        self.statistics[what] = self.statistics.get(what, 0) + 1
        if reason is None:
            replace(past)
            return
        name = repr(past.name_hint or f"argument {past.index}")
        reader = next((use.operation for use in past.uses), past.block.parent_op())
        assert reader is not None
        self.remarks.append(remark(reader, f"{name} is no cache: {reason}"))


def open_axis(value: BlockArgument) -> int | None:
    """The one open axis of a tensor, if it has exactly one."""
    if not isinstance(value.type, TensorType):
        return None
    axes = [i for i, d in enumerate(value.type.get_shape()) if d == DYNAMIC_INDEX]
    return axes[0] if len(axes) == 1 else None


def why_not(past: BlockArgument) -> str | None:
    """Why an argument is no cache; None when it is one."""
    uses = list(past.uses)
    if len(uses) != 1 or not isinstance(uses[0].operation, lm.ConcatOp):
        return "its rows have another use than one concat"
    concat = uses[0].operation
    if len(concat.inputs) != 2 or concat.inputs[0] is not past:
        return "the new rows do not come last"
    if concat.dim.value.data != open_axis(past):
        return "the concat is along another axis than the open one"
    new = concat.inputs[1].type
    assert isinstance(new, TensorType)
    if DYNAMIC_INDEX in new.get_shape():
        return "the number of new rows is not fixed"
    returned = sum(isinstance(u.operation, func.ReturnOp) for u in concat.result.uses)
    if returned != 1:
        return "the rows are not returned once"
    return None


def replace(past: BlockArgument) -> None:
    (use,) = past.uses
    concat, axis, type = use.operation, open_axis(past), past.type
    assert isinstance(concat, lm.ConcatOp)
    assert isinstance(type, TensorType)
    assert axis is not None
    shape = tuple(-1 if d == DYNAMIC_INDEX else d for d in type.get_shape())
    cache = Rewriter.replace_value_with_new_type(
        past, kv.CacheType.get(shape, axis, type.element_type)
    )
    append = kv.AppendOp(cache, concat.inputs[1])
    made: list[Operation] = [append]
    readers = [u for u in concat.result.uses if not isinstance(u.operation, func.ReturnOp)]
    (output,) = (u for u in concat.result.uses if isinstance(u.operation, func.ReturnOp))
    output.operation.operands[output.index] = append.result
    if readers:
        pack = kv.PackOp(append.result)
        pack.result.name_hint = concat.result.name_hint
        concat.result.replace_all_uses_with(pack.result)
        made.append(pack)
    block = concat.parent
    assert block is not None
    for op in made:
        op.location = concat.location
        block.insert_op_before(op, concat)
    concat.detach()
    concat.erase()
