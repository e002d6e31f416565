"""`kv-window-outputs`: readers of a cache's rows get a view where every one of them reads strides.

`kv.pack` copies the live rows at every launch, which makes decoding n tokens copy O(n²) bytes;
`kv.window` is a view whose strides come from the capacity. A copy stays where one reader cannot
walk strides, where it is a result of the function (the caller keeps it while the cache grows),
where a later append would make a view stale, or where nothing reads it; a remark at the copy says
why (`amk-opt --remarks`).
Run it after kernels were chosen, for they decide what reads strides. Running it twice changes
nothing.

Before:

    !cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
    func.func @step(%x: tensor<1x2x1x4xf32>, %k: !cache) -> (tensor<1x2x1xf32>, !cache) {
      %n = kv.append %k, %x : tensor<1x2x1x4xf32> -> !cache
      %rows = kv.pack %n[P + 1] : !cache -> tensor<1x2x?x4xf32>
      %t = lm.transpose %rows {permutation = array<i64: 0, 1, 3, 2>}
        : tensor<1x2x?x4xf32> -> tensor<1x2x4x?xf32>
      %y = lm.matmul %x, %t
        : tensor<1x2x1x4xf32>, tensor<1x2x4x?xf32> -> tensor<1x2x1x?xf32>
      %m = lm.amax %y {dims = array<i64: 3>, keepdim = 0 : i1}
        : tensor<1x2x1x?xf32> -> tensor<1x2x1xf32>
      func.return %m, %n : tensor<1x2x1xf32>, !cache
    }

After:

    !cache = !kv.cache<1x2x?x4xf32, axis = 2, policy = "static">
    func.func @step(%x: tensor<1x2x1x4xf32>, %k: !cache) -> (tensor<1x2x1xf32>, !cache) {
      %n = kv.append %k, %x : tensor<1x2x1x4xf32> -> !cache
      %rows = kv.window %n[P + 1] : !cache -> tensor<1x2x?x4xf32>
      %t = lm.transpose %rows {permutation = array<i64: 0, 1, 3, 2>}
        : tensor<1x2x?x4xf32> -> tensor<1x2x4x?xf32>
      %y = lm.matmul %x, %t
        : tensor<1x2x1x4xf32>, tensor<1x2x4x?xf32> -> tensor<1x2x1x?xf32>
      %m = lm.amax %y {dims = array<i64: 3>, keepdim = 0 : i1}
        : tensor<1x2x1x?xf32> -> tensor<1x2x1xf32>
      func.return %m, %n : tensor<1x2x1xf32>, !cache
    }
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from amk.ir import kv, lm
from amk.passes.remarks import Remark, remark

READS_STRIDES = (
    lm.MatmulOp, lm.TransposeOp, lm.SliceOp, lm.ExpandOp, lm.CastOp, lm.SoftmaxOp, *lm.UNARY,
    *lm.BINARY, *lm.SCALAR, *lm.REDUCTIONS,
)  # fmt: skip
"""Ops that walk an operand axis by axis. A reshape, a concat or a contraction with weights takes
rows that follow each other in memory."""


@dataclass(frozen=True)
class KvWindowOutputs(ModulePass):
    name = "kv-window-outputs"
    statistics: dict[str, int] = field(default_factory=dict, init=False, compare=False)
    remarks: list[Remark] = field(default_factory=list, init=False, compare=False)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.statistics.clear()
        self.remarks.clear()
        for pack in [o for o in op.walk() if isinstance(o, kv.PackOp)]:
            reason = why_packed(pack)
            self.count("windows" if reason is None else "packed")
            if reason is not None:
                self.remarks.append(remark(pack, f"rows stay packed: {reason}"))
                continue
            window = kv.WindowOp(pack.cache, pack.length.data[0])
            window.location = pack.location
            window.result.name_hint = pack.result.name_hint
            block = pack.parent
            assert block is not None
            block.insert_op_before(window, pack)
            pack.result.replace_all_uses_with(window.result)
            pack.detach()
            pack.erase()

    def count(self, what: str) -> None:
        self.statistics[what] = self.statistics.get(what, 0) + 1


def why_packed(pack: kv.PackOp) -> str | None:
    """Why a copy must stay a copy; None when a view does."""
    readers = kv.users(pack.result)
    if not readers:
        return "nothing reads it"
    if any(isinstance(op, func.ReturnOp) for op in readers):
        return "it is an output"
    for op in readers:
        if not isinstance(op, READS_STRIDES):
            return f"{op.name} reads no strides"
    appends = [op for op in kv.users(pack.cache) if isinstance(op, kv.AppendOp)]
    if any(kv.is_after(op, append) for append in appends for op in (pack, *readers)):
        return "a later append would make a view stale"
    return None
