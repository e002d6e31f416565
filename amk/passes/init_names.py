"""Readable names for what `@init` computes: they say from which weight, and how."""

from __future__ import annotations

from xdsl.dialects.builtin import NameLoc
from xdsl.ir import Operation, SSAValue

from amk.ir import lm
from amk.ir.lm import shape_of
from amk.passes.rewriting import integers

LONGEST = 120

SCALAR_SIGN: dict[type[lm.ScalarOp], str] = {
    lm.AddScalarOp: "+",
    lm.SubScalarOp: "-",
    lm.MulScalarOp: "*",
    lm.DivScalarOp: "/",
    lm.PowScalarOp: "^",
}
BINARY_SIGN: dict[type[lm.BinaryOp], str] = {
    lm.AddOp: "+",
    lm.SubOp: "-",
    lm.MulOp: "*",
    lm.DivOp: "/",
    lm.PowOp: "^",
}


def describe(value: SSAValue) -> str:
    """The arithmetic that makes `value`, on keys: `norm.weight+1`, `qkv.weight[0:64]`."""
    op = value.owner
    if isinstance(op, lm.WeightOp):
        return op.key.data.removeprefix("@init/")
    if isinstance(op, (lm.ReshapeOp, lm.CastOp, lm.ExpandOp)):
        return describe(op.input)
    if isinstance(op, lm.SliceOp):
        dim, start, end, step = op.bounds()
        stride = "" if step == 1 else f":{step}"
        return f"{describe(op.input)}[{':,' * dim}{start}:{end}{stride}]"
    if isinstance(op, lm.TransposeOp):
        matrix = len(shape_of(op.input)) == 2
        axes = ",".join(map(str, integers(op.permutation)))
        return f"{describe(op.input)}.T" + ("" if matrix else f"({axes})")
    if type(op) in SCALAR_SIGN:
        assert isinstance(op, lm.ScalarOp)
        return f"{describe(op.input)}{SCALAR_SIGN[type(op)]}{op.value.value.data:g}"
    if type(op) in BINARY_SIGN:
        assert isinstance(op, lm.BinaryOp)
        return f"({describe(op.lhs)}{BINARY_SIGN[type(op)]}{describe(op.rhs)})"
    assert isinstance(op, Operation)
    name = op.name.removeprefix("lm.")
    return f"{name}({','.join(describe(v) for v in op.operands)})" if op.operands else name


def weight_name(value: SSAValue) -> str:
    """`describe(value)`, or when that is too long the place it was imported from and its op."""
    full = describe(value)
    if len(full) <= LONGEST:
        return full
    op = value.owner
    assert isinstance(op, Operation)
    place = f"{op.location.desc.data}." if isinstance(op.location, NameLoc) else ""
    return place + op.name.removeprefix("lm.")


def table_name(value: SSAValue) -> str:
    """`rope_cos` or `rope_sin` after the cosine or sine nearest to `value`, else by its op."""
    level = [value]
    while level:
        for v in level:
            if isinstance(v.owner, lm.CosOp):
                return "rope_cos"
            if isinstance(v.owner, lm.SinOp):
                return "rope_sin"
        level = [u for v in level if isinstance(v.owner, Operation) for u in v.owner.operands]
    op = value.owner
    assert isinstance(op, Operation)
    return "positions_" + op.name.removeprefix("lm.")


class Names:
    """Hands out names once; a repeated one gets `_2`, `_3`, …"""

    def __init__(self, taken: set[str]):
        self.taken = set(taken)

    def new(self, name: str) -> str:
        unique, n = name, 1
        while unique in self.taken:
            n += 1
            unique = f"{name}_{n}"
        self.taken.add(unique)
        return unique
