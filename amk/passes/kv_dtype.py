"""`kv-dtype`: the dtype caches are stored in, whatever the dtype of computation.

An append rounds to nearest even when it stores; attention widens what it reads. So the cache's
bytes, and what a launch reads of it, shrink with `storage`, while sums stay f32. `keep` leaves the
dtype that the model was imported with. `int8` stores whole multiples of a scale that each row has
for each head, its largest element / 127: attention is split by then, for only what reads scales
may read it.

Before:

    !cache = !kv.cache<1x2x?x8xf32, axis = 2, policy = "static">
    func.func @step(
        %x: tensor<1x2x1x8xf32>, %q: tensor<1x4x1x8xf32>, %pos: index, %k: !cache
    ) -> (tensor<1x1x4x8xf32>, !cache) {
      %n = kv.append %k, %x : tensor<1x2x1x8xf32> -> !cache
      %o = lm.attention %q, %n, %n at %pos {scale = 1.0 : f64}
        : tensor<1x4x1x8xf32>, !cache, !cache -> tensor<1x1x4x8xf32>
      func.return %o, %n : tensor<1x1x4x8xf32>, !cache
    }

After, with `kv-dtype{storage=bf16}`:

    !cache = !kv.cache<1x2x?x8xbf16, axis = 2, policy = "static">
    func.func @step(
        %x: tensor<1x2x1x8xf32>, %q: tensor<1x4x1x8xf32>, %pos: index, %k: !cache
    ) -> (tensor<1x1x4x8xf32>, !cache) {
      %n = kv.append %k, %x : tensor<1x2x1x8xf32> -> !cache
      %o = lm.attention %q, %n, %n at %pos {scale = 1.0 : f64}
        : tensor<1x4x1x8xf32>, !cache, !cache -> tensor<1x1x4x8xf32>
      func.return %o, %n : tensor<1x1x4x8xf32>, !cache
    }
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, bf16, f16, f32, i8
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from amk.errors import AmkError
from amk.ir import kv
from amk.passes.kv_policy import versions_of

STORAGE = {"f32": f32, "bf16": bf16, "f16": f16, "int8": i8}


@dataclass(frozen=True)
class KvDtype(ModulePass):
    name = "kv-dtype"
    storage: str = "keep"
    """`f32`, `bf16`, `f16` or `int8`, or `keep`."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.storage == "keep":
            return
        if self.storage not in STORAGE:
            known = ", ".join([*STORAGE, "keep"])
            raise AmkError(f"kv-dtype: storage {self.storage!r}; known: {known}")
        for function in op.ops:
            if isinstance(function, func.FuncOp) and not function.is_declaration:
                for cache in function.body.block.args:
                    if isinstance(cache.type, kv.CacheType):
                        new = cache.type.with_storage(STORAGE[self.storage])
                        for version in versions_of(cache):
                            refuse_rows(version)
                            Rewriter.replace_value_with_new_type(version, new)
                function.update_function_type()


def refuse_rows(version) -> None:  # type: ignore[no-untyped-def]
    """A view or copy of rows has the storage dtype, which its readers were not made for."""
    for op in kv.users(version):
        if isinstance(op, kv.RowsOp | kv.SaveOp):
            raise AmkError(f"kv-dtype: {op.name} reads rows in their dtype; run it before")
