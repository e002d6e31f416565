"""The `kv` dialect: the KV cache as a linear SSA value.

A cache has a shape whose sequence axis is open (printed `?`), an axis, a growth policy and a
storage dtype. `kv.append` returns the next version of a cache; each version has one later append
or truncation at most, and `@step` returns the final version. What a version holds are its *live*
rows; the memory behind it may have spare ones, which nothing reads.

Live lengths are expressions in the past length P, a symbol: P for the caches `@step` is given,
S more after an append of S rows. They are bound when a launch begins, to the live length and
never to the capacity. See docs/dialects/kv.md, which numbers the constraints C1 ….
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import ClassVar

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    ArrayAttr,
    IndexType,
    IntAttr,
    StringAttr,
    TensorType,
    i8,
)
from xdsl.ir import (
    Attribute,
    BlockArgument,
    Dialect,
    Operation,
    ParametrizedAttribute,
    SSAValue,
    TypeAttribute,
)
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from amk.errors import AmkError
from amk.ir.expr import Const, Expr, Exprs, ExprsAttr, P, exprs

POLICIES = ("static", "doubling", "ring")
RING = ("rows", "window", "sinks")
"""Parameters that a ring has and no other cache."""


def require(holds: bool, rule: str) -> None:
    if not holds:
        raise VerifyException(f"kv {rule}")


@irdl_attr_definition
class CacheType(ParametrizedAttribute, TypeAttribute):
    """`!kv.cache<1x3x?x64xf32, axis = 2, policy = "static">`: one growing tensor.

    `shape` holds −1 at the sequence axis and is the layout, row major; `element_type` is the
    storage dtype, which may differ from the dtype of what is appended. A row and head of i8 has
    one scale, its largest element / 127, and elements are whole multiples of that.

    A ring, `policy = "ring", rows = 32, window = 16, sinks = 0`, has memory for `rows` rows: the
    first `sinks` stay, row j of the rest lies in slot sinks + (j − sinks) mod (rows − sinks).
    A position sees the sinks and the last `window` rows up to its own.
    """

    name = "kv.cache"
    shape: ArrayAttr[IntAttr]
    axis: IntAttr
    policy: StringAttr
    element_type: Attribute
    rows: IntAttr
    window: IntAttr
    sinks: IntAttr

    @classmethod
    def get(
        cls,
        shape: tuple[int, ...],
        axis: int,
        element_type: Attribute,
        policy: str = "static",
        rows: int = 0,
        window: int = 0,
        sinks: int = 0,
    ) -> CacheType:
        return cls(
            ArrayAttr([IntAttr(d) for d in shape]), IntAttr(axis), StringAttr(policy), element_type,
            IntAttr(rows), IntAttr(window), IntAttr(sinks),
        )  # fmt: skip

    def get_shape(self) -> tuple[int, ...]:
        return tuple(d.data for d in self.shape)

    @property
    def is_ring(self) -> bool:
        return self.policy.data == "ring"

    def with_policy(self, policy: str, rows: int = 0, window: int = 0, sinks: int = 0) -> CacheType:
        return CacheType.get(
            self.get_shape(), self.axis.data, self.element_type, policy, rows, window, sinks
        )

    def with_storage(self, element_type: Attribute) -> CacheType:
        return CacheType.get(
            self.get_shape(), self.axis.data, element_type, self.policy.data,
            self.rows.data, self.window.data, self.sinks.data,
        )  # fmt: skip

    def verify(self) -> None:
        shape = self.get_shape()
        require(
            0 <= self.axis.data < len(shape),
            f"C1: axis {self.axis.data} is outside rank {len(shape)}",
        )
        require(
            [i for i, d in enumerate(shape) if d == -1] == [self.axis.data],
            "C1: exactly the sequence axis of a cache is open (`?`)",
        )
        require(
            all(d > 0 for i, d in enumerate(shape) if i != self.axis.data),
            "C1: every other extent of a cache is positive",
        )
        policy, rows, window = self.policy.data, self.rows.data, self.window.data
        require(policy in POLICIES, f"C2: policy {policy!r}; known: {POLICIES}")
        if self.is_ring:
            sinks = self.sinks.data
            require(
                0 < window <= rows - sinks and sinks >= 0,
                f"C2: a ring of {rows} rows and {sinks} sinks has no room for a window of {window}",
            )
        else:
            none = rows == window == self.sinks.data == 0
            require(none, "C2: only a ring has rows, a window and sinks")
        known = isinstance(self.element_type, AnyFloat) or self.element_type == i8
        require(known, "C3: a cache stores floats, or i8 with a scale a row and head")

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            dims = ["?" if d == -1 else str(d) for d in self.get_shape()]
            printer.print_string("x".join(dims) + "x")
            printer.print_attribute(self.element_type)
            printer.print_string(f', axis = {self.axis.data}, policy = "{self.policy.data}"')
            if self.is_ring:
                for name in RING:
                    printer.print_string(f", {name} = {getattr(self, name).data}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        def number(name: str) -> IntAttr:
            parser.parse_punctuation(",")
            parser.parse_keyword(name)
            parser.parse_punctuation("=")
            return IntAttr(parser.parse_integer(allow_boolean=False, allow_negative=False))

        with parser.in_angle_brackets():
            shape, element_type = parser.parse_ranked_shape()
            axis = number("axis")
            parser.parse_punctuation(",")
            parser.parse_keyword("policy")
            parser.parse_punctuation("=")
            policy = parser.parse_str_literal()
            ring = [number(n) if policy == "ring" else IntAttr(0) for n in RING]
        return [
            ArrayAttr([IntAttr(-1 if d == DYNAMIC_INDEX else d) for d in shape]),
            axis,
            StringAttr(policy),
            element_type,
            *ring,
        ]


def cache_type(value: SSAValue) -> CacheType:
    assert isinstance(value.type, CacheType)
    return value.type


# ---- symbolic lengths ---------------------------------------------------------------------


def length_of(cache: SSAValue) -> Expr:
    """The live length of a version of a cache: P, or P plus what was appended to it."""
    owner = cache.owner
    if isinstance(owner, AppendOp):
        assert isinstance(owner.entries.type, TensorType)
        rows = owner.entries.type.get_shape()[cache_type(cache).axis.data]
        return length_of(owner.cache) + rows
    if isinstance(owner, TruncateOp | LoadOp):
        return owner.length.data[0]
    if isinstance(cache, BlockArgument):
        return P
    # A stage hands a version on: its yield says which.
    assert isinstance(owner, Operation)
    last = owner.regions[0].block.last_op
    assert last is not None
    return length_of(last.operands[list(owner.results).index(cache)])  # type: ignore[arg-type]


def resolve(length: Expr, bound: Mapping[str, int]) -> int:
    """A length with its symbols bound to numbers of rows. AmkError names those that are not."""
    unbound = sorted(length.symbols() - bound.keys())
    if unbound:
        raise AmkError(f"kv: the length {length} has no number: bind {' and '.join(unbound)}")
    return length.evaluate(bound)


# ---- ops ----------------------------------------------------------------------------------


class KvOp(IRDLOperation, ABC):
    irdl_options = (ParsePropInAttrDict(),)
    custom_directives = (Exprs,)


def verify_entry(cache: CacheType, entry: TensorType, what: str) -> None:
    """kv C4: an entry has the cache's extents on every axis but the sequence axis."""
    shape, rows = cache.get_shape(), entry.get_shape()
    same = len(shape) == len(rows) and all(
        a == b for i, (a, b) in enumerate(zip(shape, rows, strict=True)) if i != cache.axis.data
    )
    require(same, f"C4: {what} of {rows} does not fit a cache of {shape}")


def verify_successor(cache: SSAValue) -> None:
    """kv C6: caches are linear."""
    names = sorted(
        u.operation.name.removeprefix("kv.")
        for u in cache.uses
        if isinstance(u.operation, AppendOp | TruncateOp)
    )
    what = "two appends" if names[:2] == ["append", "append"] else "two later versions"
    require(len(names) < 2, f"C6: a cache version has {what}; each has one at most")


@irdl_op_definition
class AppendOp(KvOp):
    """`%next = kv.append %cache, %entries`: the cache with `entries` after its last row. C4–C6."""

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
        assert isinstance(self.entries.type, TensorType)
        verify_entry(cache_type(self.cache), self.entries.type, "append")
        floats = isinstance(self.entries.type.element_type, AnyFloat)
        require(floats, "C5: what is appended are floats")
        verify_successor(self.cache)


@irdl_op_definition
class TruncateOp(KvOp):
    """`%next = kv.truncate %cache[n]`: the first n live rows. Moves the length alone. C6, C7."""

    name = "kv.truncate"
    CACHE: ClassVar = VarConstraint("CACHE", base(CacheType))
    cache = operand_def(CACHE)
    length = prop_def(ExprsAttr)
    result = result_def(CACHE)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$cache custom<Exprs>($length) attr-dict `:` type($cache) `->` type($result)"
    )

    def __init__(self, cache: SSAValue, length: Expr | int):
        super().__init__(
            operands=[cache], properties={"length": exprs(length)}, result_types=[cache.type]
        )

    def verify_(self) -> None:
        verify_rows(self.cache, self.length, "truncation")
        verify_successor(self.cache)


def verify_rows(cache: SSAValue, rows: ExprsAttr, what: str) -> None:
    """kv C7: what reads or keeps rows takes live ones only, at every past length."""
    require(len(rows) == 1, f"C7: a {what} has one length")
    live, wanted = length_of(cache), rows.data[0]
    spare = (live - wanted).constant
    inside = isinstance(wanted, Const) if spare is None else spare >= 0
    negative = wanted.constant is not None and wanted.constant < 0
    require(
        inside and not negative,
        f"C7: a {what} of {wanted} rows is not within the {live} live ones: the rest is spare",
    )


def rows_type(cache: CacheType) -> TensorType:
    """The type of a cache's rows as a tensor, open on the sequence axis."""
    shape = [DYNAMIC_INDEX if d == -1 else d for d in cache.get_shape()]
    assert isinstance(cache.element_type, AnyFloat)
    return TensorType(cache.element_type, shape)


class RowsOp(KvOp, ABC):
    """The first rows of a version of a cache as a tensor, open on the sequence axis. C7, C8."""

    cache = operand_def(CacheType)
    length = prop_def(ExprsAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = (
        "$cache custom<Exprs>($length) attr-dict `:` type($cache) `->` type($result)"
    )

    def __init__(self, cache: SSAValue, length: Expr | int | None = None):
        kind = cache_type(cache)
        super().__init__(
            operands=[cache],
            properties={"length": exprs(length_of(cache) if length is None else length)},
            result_types=[rows_type(kind)],
        )

    def verify_(self) -> None:
        kind, what = cache_type(self.cache), self.name.removeprefix("kv.")
        require(kind.element_type != i8, f"C8: rows of i8 are in two pieces: no {what}")
        require(not kind.is_ring, f"C8: the rows of a ring have no order in memory: no {what}")
        expect = rows_type(kind)
        require(self.result.type == expect, f"C8: a {what} of it is {expect}")
        verify_rows(self.cache, self.length, what)


@irdl_op_definition
class WindowOp(RowsOp):
    """`%rows = kv.window %cache[P + 1]`: a view of live rows in the cache's own memory.

    Its strides come from the capacity. It must not be used after a later append: C9."""

    name = "kv.window"

    def verify_(self) -> None:
        super().verify_()
        for use in self.cache.uses:
            if isinstance(use.operation, AppendOp):
                require(
                    not any(is_after(u, use.operation) for u in (self, *users(self.result))),
                    "C9: a window is used after a later append to its cache: use kv.pack",
                )


@irdl_op_definition
class PackOp(RowsOp):
    """`%rows = kv.pack %cache[P + 1]`: a copy of live rows, contiguous, the reader's own."""

    name = "kv.pack"


def users(value: SSAValue) -> list[Operation]:
    return [use.operation for use in value.uses]


def is_after(op: Operation, other: Operation) -> bool:
    """Does `op`, or what it stands in, come after `other` in the block of `other`?"""
    block = other.parent
    while op.parent is not block:
        parent = op.parent_op()
        if parent is None:
            return False
        op = parent
    return op is not other and other.is_before_in_block(op)


class CountOp(KvOp, ABC):
    cache = operand_def(CacheType)
    result = result_def(IndexType())
    traits = traits_def(Pure())
    assembly_format: ClassVar[str] = "$cache attr-dict `:` type($cache)"

    def __init__(self, cache: SSAValue):
        super().__init__(operands=[cache], result_types=[IndexType()])


@irdl_op_definition
class LengthOp(CountOp):
    """`%n = kv.length %cache`: the number of live rows, P or P + a constant."""

    name = "kv.length"


@irdl_op_definition
class CapacityOp(CountOp):
    """`%n = kv.capacity %cache`: the rows there is memory for, at least the live ones."""

    name = "kv.capacity"


@irdl_op_definition
class SaveOp(KvOp):
    """`kv.save %cache to "name"`: writes the live rows out."""

    name = "kv.save"
    cache = operand_def(CacheType)
    to = prop_def(StringAttr)
    traits = traits_def(MemoryWriteEffect())
    assembly_format: ClassVar[str] = "$cache `to` $to attr-dict `:` type($cache)"

    def __init__(self, cache: SSAValue, to: str):
        super().__init__(operands=[cache], properties={"to": StringAttr(to)})


@irdl_op_definition
class LoadOp(KvOp):
    """`%cache = kv.load "name"[Q]`: a cache with the rows that were saved; `Q` names how many."""

    name = "kv.load"
    source = prop_def(StringAttr)
    length = prop_def(ExprsAttr)
    result = result_def(CacheType)
    traits = traits_def(MemoryReadEffect())
    assembly_format: ClassVar[str] = "$source custom<Exprs>($length) attr-dict `:` type($result)"

    def __init__(self, source: str, length: Expr | int, type: CacheType):
        super().__init__(
            properties={"source": StringAttr(source), "length": exprs(length)},
            result_types=[type],
        )

    def verify_(self) -> None:
        require(len(self.length) == 1, "C7: a load has one length")


KV = Dialect(
    "kv",
    [
        AppendOp, TruncateOp, WindowOp, PackOp, LengthOp, CapacityOp, SaveOp, LoadOp,
    ],
    [CacheType],
)  # fmt: skip
