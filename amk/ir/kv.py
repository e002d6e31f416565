"""The `kv` dialect: the KV cache as a linear SSA value.

A cache has a shape whose sequence axis is open (printed `?`), an axis, a growth policy and a
storage dtype. `kv.append` returns the next version of a cache; each version has one later append
at most, and `@step` returns the final version. See docs/dialects/kv.md.
"""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    ArrayAttr,
    IndexType,
    IntAttr,
    StringAttr,
    TensorType,
)
from xdsl.ir import Attribute, Dialect, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    VarConstraint,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    result_def,
    traits_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

POLICIES = ("static", "doubling", "ring")


@irdl_attr_definition
class CacheType(ParametrizedAttribute, TypeAttribute):
    """`!kv.cache<1x3x?x64xf32, axis = 2, policy = "static">`: one growing tensor.

    `shape` holds −1 at the sequence axis. `element_type` is the storage dtype, which may differ
    from the dtype of what is appended.
    """

    name = "kv.cache"
    shape: ArrayAttr[IntAttr]
    axis: IntAttr
    policy: StringAttr
    element_type: Attribute

    @classmethod
    def get(
        cls, shape: tuple[int, ...], axis: int, element_type: Attribute, policy: str = "static"
    ) -> CacheType:
        return cls(
            ArrayAttr([IntAttr(d) for d in shape]), IntAttr(axis), StringAttr(policy), element_type
        )

    def get_shape(self) -> tuple[int, ...]:
        return tuple(d.data for d in self.shape)

    def verify(self) -> None:
        shape = self.get_shape()
        if not 0 <= self.axis.data < len(shape):
            raise VerifyException(f"kv C1: axis {self.axis.data} is outside rank {len(shape)}")
        if [i for i, d in enumerate(shape) if d == -1] != [self.axis.data]:
            raise VerifyException("kv C1: exactly the sequence axis of a cache is open (`?`)")
        if any(d < 1 for i, d in enumerate(shape) if i != self.axis.data):
            raise VerifyException("kv C1: every other extent of a cache is positive")
        if self.policy.data not in POLICIES:
            raise VerifyException(f"kv C2: policy {self.policy.data!r}; known: {POLICIES}")
        if not isinstance(self.element_type, AnyFloat):
            raise VerifyException("kv C3: a cache stores floats")

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            dims = ["?" if d == -1 else str(d) for d in self.get_shape()]
            printer.print_string("x".join(dims) + "x")
            printer.print_attribute(self.element_type)
            printer.print_string(f', axis = {self.axis.data}, policy = "{self.policy.data}"')

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            shape, element_type = parser.parse_ranked_shape()
            parser.parse_punctuation(",")
            parser.parse_keyword("axis")
            parser.parse_punctuation("=")
            axis = parser.parse_integer(allow_boolean=False, allow_negative=False)
            parser.parse_punctuation(",")
            parser.parse_keyword("policy")
            parser.parse_punctuation("=")
            policy = parser.parse_str_literal()
        return [
            ArrayAttr([IntAttr(-1 if d == DYNAMIC_INDEX else d) for d in shape]),
            IntAttr(axis),
            StringAttr(policy),
            element_type,
        ]


def verify_entry(cache: CacheType, entry: TensorType, what: str) -> None:
    """kv C4: an entry has the cache's extents on every axis but the sequence axis."""
    shape, rows = cache.get_shape(), entry.get_shape()
    same = len(shape) == len(rows) and all(
        a == b for i, (a, b) in enumerate(zip(shape, rows, strict=True)) if i != cache.axis.data
    )
    if not same:
        raise VerifyException(f"kv C4: {what} of {rows} does not fit a cache of {shape}")


@irdl_op_definition
class AppendOp(IRDLOperation):
    """`%next = kv.append %cache, %entries`: the cache with `entries` after its last row."""

    name = "kv.append"
    CACHE: ClassVar = VarConstraint("CACHE", base(CacheType))
    cache = operand_def(CACHE)
    entries = operand_def(TensorType)
    result = result_def(CACHE)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$cache `,` $entries attr-dict `:` type($entries) `->` type($result)"
    )

    def __init__(self, cache: SSAValue, entries: SSAValue):
        super().__init__(operands=[cache, entries], result_types=[cache.type])

    def verify_(self) -> None:
        assert isinstance(self.cache.type, CacheType)
        assert isinstance(self.entries.type, TensorType)
        verify_entry(self.cache.type, self.entries.type, "append")
        appends = [u for u in self.cache.uses if isinstance(u.operation, AppendOp)]
        if len(appends) > 1:
            raise VerifyException("kv C6: a cache version has two appends; each has one at most")


@irdl_op_definition
class LengthOp(IRDLOperation):
    """`%n = kv.length %cache : index`: the number of live rows, P or P + a constant."""

    name = "kv.length"
    cache = operand_def(CacheType)
    result = result_def(IndexType())
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$cache attr-dict `:` type($cache)"

    def __init__(self, cache: SSAValue):
        super().__init__(operands=[cache], result_types=[IndexType()])


KV = Dialect("kv", [AppendOp, LengthOp], [CacheType])
