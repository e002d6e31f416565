"""The `mk` dialect: one megakernel, as stages of tiles over buffers, ordered by events.

    mk.program @decode {tokens = 1, max_seq = 2048} {
      buffers …, events …, stages …
    }

A stage has a prologue, computed once a worker and private to it, and parts: grids of tiles whose
bodies load boxes of buffers, compute on small tensors and store boxes. Bodies are IR, not opcodes.
Values inside are f32 tensors (storage dtypes live in buffers) or indices. Extents and offsets are
index expressions (amk/ir/expr.py). Constraints are numbered M1 … as in docs/dialects/mk.md.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar, cast

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    ArrayAttr,
    DenseArrayBase,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    TensorType,
    f32,
    i8,
    i64,
)
from xdsl.ir import (
    Attribute,
    Block,
    Dialect,
    Operation,
    ParametrizedAttribute,
    Region,
    SSAValue,
    TypeAttribute,
)
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, NoTerminator, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from amk.ir.expr import Const, Expr, Exprs, ExprsAttr, exprs
from amk.ir.kv import POLICIES
from amk.ir.lm import broadcast_shapes, integer, ints, product, real, shape_of, tensor

KINDS = ("weight", "activation", "cache", "input", "output", "constant")
WRITABLE = ("activation", "cache", "output")
SCHEDULES = ("claimed", "static")
COUNTERS = ("launch", "monotonic")
UNARY_FUNCTIONS = (
    "neg", "abs", "exp", "sqrt", "rsqrt", "tanh", "sigmoid", "silu", "relu", "erf", "gelu",
    "gelu_tanh",
)  # fmt: skip
BINARY_FUNCTIONS = ("add", "sub", "mul", "div", "max", "min")
REDUCE_FUNCTIONS = ("sum", "mean", "max")


def numbers(attribute: DenseArrayBase) -> list[int]:
    """The numbers in an `array<i64: …>`."""
    return [int(n) for n in cast("DenseArrayBase[IntegerType]", attribute).get_values()]


def require(holds: bool, rule: str) -> None:
    if not holds:
        raise VerifyException(f"mk {rule}")


# ---- types and attributes -----------------------------------------------------------------


@irdl_attr_definition
class BufferType(ParametrizedAttribute, TypeAttribute):
    """`!mk.buffer<1x3x?x64xbf16>`: a row-major array in memory; `?` is a cache's open axis, whose
    stride-giving extent is the capacity at run time. Elements are f32, bf16, f16 or i64. M2."""

    name = "mk.buffer"
    shape: ArrayAttr[IntAttr]
    element_type: Attribute

    @classmethod
    def get(cls, shape: Sequence[int], element_type: Attribute) -> BufferType:
        return cls(ArrayAttr([IntAttr(d) for d in shape]), element_type)

    def get_shape(self) -> tuple[int, ...]:
        return tuple(d.data for d in self.shape)

    def element_bytes(self) -> int:
        assert isinstance(self.element_type, AnyFloat | IntegerType)
        return self.element_type.bitwidth // 8

    def nbytes(self) -> int:
        """Bytes of a buffer without open axes."""
        return product(self.get_shape()) * self.element_bytes()

    def verify(self) -> None:
        require(sum(d == -1 for d in self.get_shape()) <= 1, "M2: one axis at most is open")
        require(all(d == -1 or d > 0 for d in self.get_shape()), "M2: extents are positive")
        known = isinstance(self.element_type, AnyFloat) or self.element_type in (i8, i64)
        require(known, "M2: elements are floats, i64 or i8")

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            dims = ["?" if d == -1 else str(d) for d in self.get_shape()]
            printer.print_string("x".join(dims) + "x")
            printer.print_attribute(self.element_type)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            shape, element = parser.parse_ranked_shape()
        return [ArrayAttr([IntAttr(-1 if d == DYNAMIC_INDEX else d) for d in shape]), element]


@irdl_attr_definition
class EventType(ParametrizedAttribute, TypeAttribute):
    """Counts of finished tiles: signals release, waits acquire, at the scope of the device."""

    name = "mk.event"


@irdl_attr_definition
class StreamType(ParametrizedAttribute, TypeAttribute):
    """A ring of weight tiles, one a worker, filled in the order of the worker's list."""

    name = "mk.stream"


@irdl_attr_definition
class ReductionAttr(ParametrizedAttribute):
    """`#mk.reduction<lanes = 16, chains = 2>`: the order of a sum, the same on every run.

    Element k belongs to lane k mod lanes of chain (k div lanes) mod chains; a chain adds its
    elements in ascending k, by fused multiply-add in a contraction; then chains, then lanes, are
    summed pairwise, neighbours first."""

    name = "mk.reduction"
    lanes: IntAttr
    chains: IntAttr

    def verify(self) -> None:
        for n in (self.lanes.data, self.chains.data):
            require(n > 0 and n & (n - 1) == 0, "M3: lanes and chains are powers of two")

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(f"<lanes = {self.lanes.data}, chains = {self.chains.data}>")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            parser.parse_keyword("lanes")
            parser.parse_punctuation("=")
            lanes = parser.parse_integer(allow_boolean=False)
            parser.parse_punctuation(",")
            parser.parse_keyword("chains")
            parser.parse_punctuation("=")
            chains = parser.parse_integer(allow_boolean=False)
        return [IntAttr(lanes), IntAttr(chains)]


NO_LIMIT = 1 << 62
MATMUL_ORDER = ReductionAttr(IntAttr(16), IntAttr(2))
ROW_ORDER = ReductionAttr(IntAttr(16), IntAttr(1))


class MkOp(IRDLOperation, ABC):
    irdl_options = (ParsePropInAttrDict(),)
    custom_directives = (Exprs,)


# ---- structure ----------------------------------------------------------------------------


@irdl_op_definition
class ProgramOp(MkOp):
    """One megakernel: `tokens` new positions a launch, positions below `max_seq`. M4.

    `schedule` is "claimed" (workers take tiles from the program's order) or "static": tile l of a
    stage, linear over its parts in order, belongs to worker (l + shift) mod `workers`, and each
    worker runs its tiles in the program's order, which counts as happens-before."""

    name = "mk.program"
    sym_name = prop_def(StringAttr)
    tokens = prop_def(IntegerAttr)
    max_seq = prop_def(IntegerAttr)
    arena = opt_prop_def(IntegerAttr)
    schedule = opt_prop_def(StringAttr)
    workers = opt_prop_def(IntegerAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator(), SymbolOpInterface())
    assembly_format: ClassVar[str] = "$sym_name attr-dict-with-keyword $body"

    def __init__(self, name: str, tokens: int, max_seq: int, body: Region | None = None):
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "tokens": integer(tokens),
                "max_seq": integer(max_seq),
            },
            regions=[body or Region(Block())],
        )

    def verify_(self) -> None:
        require(0 < self.tokens.value.data <= self.max_seq.value.data, "M4: 0 < tokens ≤ max_seq")
        for op in self.body.block.ops:
            require(
                isinstance(op, BufferOp | EventOp | StreamOp | StageOp),
                f"M4: a program holds buffers, events, streams and stages, not {op.name}",
            )
        schedule = "claimed" if self.schedule is None else self.schedule.data
        require(schedule in SCHEDULES, f"M4: schedule {schedule!r}; known: {SCHEDULES}")
        require(
            (self.workers is not None) == (schedule == "static"),
            "M4: a static schedule, and only it, has a number of workers",
        )
        require(self.workers is None or self.workers.value.data > 0, "M4: workers are positive")

    def buffers(self) -> list[BufferOp]:
        return [op for op in self.body.block.ops if isinstance(op, BufferOp)]

    @property
    def static_workers(self) -> int | None:
        """The workers of a static schedule, None under a claimed one."""
        return None if self.workers is None else self.workers.value.data

    def events(self) -> list[EventOp]:
        return [op for op in self.body.block.ops if isinstance(op, EventOp)]

    def stages(self) -> list[StageOp]:
        return [op for op in self.body.block.ops if isinstance(op, StageOp)]


@irdl_op_definition
class BufferOp(MkOp):
    """An array of a kind. `source` is a weight's key, a cache's or an input's name. After
    `plan-buffers` an activation has a byte `offset` in the arena and a `lifetime`
    [first, last], the stages that write and last read it.

    A cache has a growth `policy`, "static" unless given. Ops address its rows by position; a
    "ring" has memory for `rows` of them, position j in slot j mod `rows`. A position reads the
    last `window` rows up to its own, so these outlast a launch: rows ≥ window − 1 + tokens. The
    first `sinks` rows, when there are some, stay in the first slots, and the others share the rest
    in the same way. M5."""

    name = "mk.buffer"
    kind = prop_def(StringAttr)
    source = prop_def(StringAttr)
    offset = opt_prop_def(IntegerAttr)
    lifetime = opt_prop_def(DenseArrayBase)
    policy = opt_prop_def(StringAttr)
    rows = opt_prop_def(IntegerAttr)
    window = opt_prop_def(IntegerAttr)
    sinks = opt_prop_def(IntegerAttr)
    result = result_def(BufferType)
    assembly_format: ClassVar[str] = "$kind $source attr-dict `:` type($result)"

    def __init__(self, kind: str, source: str, type: BufferType):
        super().__init__(
            properties={"kind": StringAttr(kind), "source": StringAttr(source)},
            result_types=[type],
        )

    @property
    def type(self) -> BufferType:
        assert isinstance(self.result.type, BufferType)
        return self.result.type

    @property
    def ring_rows(self) -> int:
        """Rows of a ring, 0 for any other buffer."""
        return 0 if self.rows is None else self.rows.value.data

    @property
    def sink_rows(self) -> int:
        """Rows of a ring that stay, 0 for none."""
        return 0 if self.sinks is None else self.sinks.value.data

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """The shape in memory: that of a ring is closed."""
        return tuple(self.ring_rows or -1 if d == -1 else d for d in self.type.get_shape())

    @property
    def growth(self) -> str:
        """The policy of a cache, "" for any other buffer."""
        default = "static" if self.kind.data == "cache" else ""
        return default if self.policy is None else self.policy.data

    def verify_(self) -> None:
        require(self.kind.data in KINDS, f"M5: kind {self.kind.data!r}; known: {KINDS}")
        is_open = -1 in self.type.get_shape()
        require(is_open == (self.kind.data == "cache"), "M5: a cache, and only it, is open")
        if self.offset is not None:
            require(self.kind.data == "activation", "M5: only activations live in the arena")
            require(self.offset.value.data >= 0, "M5: an offset is not negative")
        given = self.policy is not None
        require(not given or self.kind.data == "cache", "M5: only a cache has a policy")
        require(not given or self.growth in POLICIES, f"M5: policy; known: {POLICIES}")
        ring = self.growth == "ring"
        stay = self.sinks is None or (ring and self.sink_rows > 0)
        require(stay, "M5: only a ring has sinks, and then some")
        for number in (self.rows, self.window):
            require(ring == (number is not None), "M5: a ring, and only it, has rows and a window")
        if ring:
            require(self.type.get_shape()[2:3] == (-1,), "M5: the rows of a ring are axis 2")
            self.verify_outlasts()

    def verify_outlasts(self) -> None:
        """No launch writes over a row of a ring that it still reads."""
        assert self.window is not None
        program = self.parent_op()
        if isinstance(program, ProgramOp):
            window, tokens = self.window.value.data, program.tokens.value.data
            require(
                window > 0 and self.ring_rows - self.sink_rows >= window - 1 + tokens,
                f"M5: a ring of {self.ring_rows} rows is too short for a window of {window} and"
                f" {tokens} new ones",
            )


@irdl_op_definition
class EventOp(MkOp):
    """An array of counters, `groups` of them (an expression in P, by default 1). A group is
    complete once every tile that signals it has finished. M16.

    `threshold`, in terms of P and the group `g`, states that number of tiles for emitters; absent,
    it is derived. `counter` is "launch" (zero at the start of a launch, the default) or
    "monotonic" (never reset: launch n, from 1, waits for n times the threshold)."""

    name = "mk.event"
    groups = opt_prop_def(ExprsAttr)
    threshold = opt_prop_def(ExprsAttr)
    counter = opt_prop_def(StringAttr)
    result = result_def(EventType())
    assembly_format: ClassVar[str] = "attr-dict"

    def __init__(
        self,
        groups: Expr | int | None = None,
        threshold: Expr | int | None = None,
        counter: str | None = None,
    ) -> None:
        super().__init__(
            properties={
                **({} if groups is None else {"groups": exprs(groups)}),
                **({} if threshold is None else {"threshold": exprs(threshold)}),
                **({} if counter is None else {"counter": StringAttr(counter)}),
            },
            result_types=[EventType()],
        )

    @property
    def group_count(self) -> Expr:
        return Const(1) if self.groups is None else self.groups.data[0]

    def verify_(self) -> None:
        for attr, symbols in ((self.groups, {"P"}), (self.threshold, {"P", "g"})):
            if attr is None:
                continue
            require(len(attr) == 1, "M16: groups and threshold are one expression each")
            known = attr.data[0].symbols() <= symbols
            require(known, f"M16: {attr.data[0]} uses a symbol that is not among {sorted(symbols)}")
        counter = "launch" if self.counter is None else self.counter.data
        require(counter in COUNTERS, f"M16: counter {counter!r}; known: {COUNTERS}")
        users = [use.operation for use in self.result.uses]
        short = any(isinstance(op, StageOp) and self.result in op.signals for op in users)
        long = any(isinstance(op, SignalOp) for op in users)
        require(not (short and long), "M16: one event is signalled in one form, short or long")


@irdl_op_definition
class StreamOp(MkOp):
    """A ring private to each worker through which the weight tiles of its matmuls pass, in the
    order of its list: `slots` slots of `slot_bytes` bytes. A piece is as many whole rows of a
    weight tile as fit a slot; it is filled up to `ahead` pieces (default `slots`) before the
    oldest piece still in use, and never waits for an event, as weights are read only. Meaningless
    under a claimed schedule. M17."""

    name = "mk.stream"
    slots = prop_def(IntegerAttr)
    slot_bytes = prop_def(IntegerAttr)
    ahead = opt_prop_def(IntegerAttr)
    result = result_def(StreamType())
    assembly_format: ClassVar[str] = "attr-dict"

    def __init__(self, slots: int, slot_bytes: int, ahead: int | None = None) -> None:
        super().__init__(
            properties={
                "slots": integer(slots),
                "slot_bytes": integer(slot_bytes),
                **({} if ahead is None else {"ahead": integer(ahead)}),
            },
            result_types=[StreamType()],
        )

    @property
    def lookahead(self) -> int:
        return (self.slots if self.ahead is None else self.ahead).value.data

    def verify_(self) -> None:
        numbers = (self.slots.value.data, self.slot_bytes.value.data, self.lookahead)
        require(min(numbers) > 0, "M17: slots, slot_bytes and ahead are positive")


@irdl_op_definition
class YieldOp(MkOp):
    """Ends a prologue: the values a worker keeps for the tiles it runs."""

    name = "mk.yield"
    arguments = var_operand_def()
    traits = traits_def(IsTerminator())
    assembly_format: ClassVar[str] = "attr-dict ($arguments^ `:` type($arguments))?"

    def __init__(self, *arguments: SSAValue):
        super().__init__(operands=[list(arguments)])


@irdl_op_definition
class StageOp(MkOp):
    """Waits for events, all groups of each, then runs its prologue once a worker and the tiles of
    its parts; each finished tile counts towards group 0 of the events it signals. `shift` moves
    its tiles to later workers of a static schedule. M6."""

    name = "mk.stage"
    sym_name = prop_def(StringAttr)
    waits = var_operand_def(EventType())
    signals = var_operand_def(EventType())
    shift = opt_prop_def(IntegerAttr)
    prologue = region_def("single_block")
    parts = region_def("single_block")
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(NoTerminator())
    assembly_format: ClassVar[str] = (
        "$sym_name (`waits` `(` $waits^ `)`)? (`signals` `(` $signals^ `)`)?"
        " attr-dict-with-keyword `prologue` $prologue `parts` $parts"
    )

    def __init__(
        self,
        name: str,
        prologue: Region,
        parts: Region,
        waits: Sequence[SSAValue] = (),
        signals: Sequence[SSAValue] = (),
    ):
        super().__init__(
            operands=[list(waits), list(signals)],
            properties={"sym_name": StringAttr(name)},
            regions=[prologue, parts],
        )

    def verify_(self) -> None:
        last = self.prologue.block.last_op
        require(isinstance(last, YieldOp), "M6: a prologue ends in mk.yield")
        assert isinstance(last, YieldOp)
        kept = tuple(v.type for v in last.arguments)
        args = tuple(v.type for v in self.parts.block.args)
        require(kept == args, "M6: the parts take what the prologue yields")
        for op in self.parts.block.ops:
            require(isinstance(op, PartOp), f"M6: a stage holds parts, not {op.name}")
        for op in self.prologue.block.ops:
            require(not isinstance(op, StoreOp), "M6: a prologue stores nothing")
            require(not isinstance(op, WaitOp | SignalOp), "M6: waits and signals are a part's")

    def part_ops(self) -> list[PartOp]:
        return [op for op in self.parts.block.ops if isinstance(op, PartOp)]


@irdl_op_definition
class PartOp(MkOp):
    """A grid of tiles; `grid` gives the extents of t0, t1, … in terms of P. M7."""

    name = "mk.part"
    grid = prop_def(ExprsAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format: ClassVar[str] = "custom<Exprs>($grid) attr-dict-with-keyword $body"

    def __init__(self, grid: Sequence[Expr | int], body: Region):
        super().__init__(properties={"grid": exprs(*grid)}, regions=[body])

    def verify_(self) -> None:
        for e in self.grid:
            require(e.symbols() <= {"P"}, f"M7: the grid depends on P alone, not on {e}")
        ranks = [order_rank(op) for op in self.body.block.ops]
        require(ranks == sorted(ranks), "M7: waits come first in a part and signals last")

    def symbols(self) -> set[str]:
        return {"P", *(f"t{i}" for i in range(len(self.grid)))}

    def waits(self) -> list[WaitOp]:
        return [op for op in self.body.block.ops if isinstance(op, WaitOp)]

    def signals(self) -> list[SignalOp]:
        return [op for op in self.body.block.ops if isinstance(op, SignalOp)]


def order_rank(op: Operation) -> int:
    """Where an op may stand in a part: waits, then the work, then signals."""
    return 0 if isinstance(op, WaitOp) else 2 if isinstance(op, SignalOp) else 1


# ---- order --------------------------------------------------------------------------------


@irdl_op_definition
class WaitOp(MkOp):
    """The tile waits for the groups [first, first + count) of an event. It stands before the work
    of a part; the prologue does not wait with it. M16."""

    name = "mk.wait"
    event = operand_def(EventType())
    groups = prop_def(ExprsAttr)
    assembly_format: ClassVar[str] = "$event custom<Exprs>($groups) attr-dict"

    def __init__(self, event: SSAValue, first: Expr | int, count: Expr | int = 1):
        super().__init__(operands=[event], properties={"groups": exprs(first, count)})

    def verify_(self) -> None:
        require(isinstance(self.parent_op(), PartOp), "M16: mk.wait stands in a part")
        require(len(self.groups) == 2, "M16: mk.wait takes [first, count]")
        verify_offsets(self, self.groups)


@irdl_op_definition
class SignalOp(MkOp):
    """The finished tile counts towards one group of an event. M16."""

    name = "mk.signal"
    event = operand_def(EventType())
    group = prop_def(ExprsAttr)
    assembly_format: ClassVar[str] = "$event custom<Exprs>($group) attr-dict"

    def __init__(self, event: SSAValue, group: Expr | int = 0):
        super().__init__(operands=[event], properties={"group": exprs(group)})

    def verify_(self) -> None:
        require(isinstance(self.parent_op(), PartOp), "M16: mk.signal stands in a part")
        require(len(self.group) == 1, "M16: mk.signal takes one group")
        verify_offsets(self, self.group)


# ---- memory -------------------------------------------------------------------------------


def verify_no_ring(buffer: SSAValue) -> None:
    ring = isinstance(buffer.owner, BufferOp) and buffer.owner.ring_rows > 0
    require(not ring, "M8: a ring is read by attention alone")


def verify_offsets(op: IRDLOperation, offsets: ExprsAttr) -> None:
    """M8: offsets use P and the tile coordinates of the enclosing part."""
    known = {"P"}
    part = op.parent_op()
    if isinstance(part, PartOp):
        known |= part.symbols()
    for e in offsets:
        require(e.symbols() <= known, f"M8: {e} uses a symbol that is not among {sorted(known)}")


def buffer_of(value: SSAValue) -> BufferOp:
    """The declaration of a buffer operand."""
    op = value.owner
    assert isinstance(op, BufferOp)
    return op


@irdl_op_definition
class LoadOp(MkOp):
    """The box of the result's shape at `offsets`, widened to f32. M9."""

    name = "mk.load"
    buffer = operand_def(BufferType)
    offsets = prop_def(ExprsAttr)
    result = result_def(TensorType)
    assembly_format: ClassVar[str] = (
        "$buffer custom<Exprs>($offsets) attr-dict `:` type($buffer) `->` type($result)"
    )

    def __init__(self, buffer: SSAValue, offsets: Sequence[Expr | int], shape: Sequence[int]):
        super().__init__(
            operands=[buffer],
            properties={"offsets": exprs(*offsets)},
            result_types=[tensor(shape, f32)],
        )

    def verify_(self) -> None:
        verify_offsets(self, self.offsets)
        verify_box(self.buffer, self.offsets, shape_of(self.result))
        verify_no_ring(self.buffer)
        assert isinstance(self.buffer.type, BufferType)
        floats = isinstance(self.buffer.type.element_type, AnyFloat)
        require(floats, "M9: a load widens floats; i64 is read by mk.gather")


def verify_box(buffer: SSAValue, offsets: ExprsAttr, box: Sequence[int]) -> None:
    assert isinstance(buffer.type, BufferType)
    shape = buffer.type.get_shape()
    require(len(shape) == len(offsets) == len(box), "M9: a box has the rank of its buffer")
    for extent, size, offset in zip(shape, box, offsets, strict=True):
        require(extent == -1 or size <= extent, f"M9: box {tuple(box)} exceeds {shape}")
        at = offset.constant
        inside = at is None or (at >= 0 and (extent == -1 or at + size <= extent))
        require(inside, f"M9: offset {offset} leaves the buffer {shape}")


@irdl_op_definition
class StoreOp(MkOp):
    """Writes a box, rounding to the buffer's dtype (to nearest even). M9."""

    name = "mk.store"
    value = operand_def(TensorType)
    buffer = operand_def(BufferType)
    offsets = prop_def(ExprsAttr)
    assembly_format: ClassVar[str] = (
        "$value `,` $buffer custom<Exprs>($offsets) attr-dict `:` type($value) `->` type($buffer)"
    )

    def __init__(self, value: SSAValue, buffer: SSAValue, offsets: Sequence[Expr | int]):
        super().__init__(operands=[value, buffer], properties={"offsets": exprs(*offsets)})

    def verify_(self) -> None:
        verify_offsets(self, self.offsets)
        verify_box(self.buffer, self.offsets, shape_of(self.value))


@irdl_op_definition
class GatherOp(MkOp):
    """Rows of `table` [V, H] chosen by the i64 buffer `indices` [1, S]: elements
    [column, column + size) of each → [S, size]. The host promises indices in [0, V). M9."""

    name = "mk.gather"
    table = operand_def(BufferType)
    indices = operand_def(BufferType)
    offsets = prop_def(ExprsAttr)
    result = result_def(TensorType)
    assembly_format: ClassVar[str] = (
        "$table `,` $indices custom<Exprs>($offsets) attr-dict"
        " `:` type($table) `,` type($indices) `->` type($result)"
    )

    def __init__(self, table: SSAValue, indices: SSAValue, column: Expr | int, size: int):
        assert isinstance(indices.type, BufferType)
        super().__init__(
            operands=[table, indices],
            properties={"offsets": exprs(column)},
            result_types=[tensor((indices.type.get_shape()[1], size), f32)],
        )

    def verify_(self) -> None:
        verify_offsets(self, self.offsets)
        assert isinstance(self.table.type, BufferType)
        assert isinstance(self.indices.type, BufferType)
        table, indices = self.table.type.get_shape(), self.indices.type.get_shape()
        require(self.indices.type.element_type == i64, "M9: indices are i64")
        require(len(table) == len(indices) == 2 and indices[0] == 1, "M9: ranks of gather")
        shape = shape_of(self.result)
        require(shape[0] == indices[1] and len(self.offsets) == 1, "M9: one row an index")
        verify_box(self.table, exprs(0, *self.offsets), (1, shape[1]))


# ---- computation --------------------------------------------------------------------------


class FunctionOp(MkOp, ABC):
    """Computes on f32 values inside a tile or a prologue."""

    traits = traits_def(Pure())


@irdl_op_definition
class MatmulOp(FunctionOp):
    """[S, K] × rows [N rows at offsets] of a weight buffer [*, K] → [S, N], fused multiply-adds in
    the order of `reduction`; `through` a stream its weight rows pass through the ring. M10."""

    name = "mk.matmul"
    input = operand_def(TensorType)
    weight = operand_def(BufferType)
    stream = opt_operand_def(StreamType())
    offsets = prop_def(ExprsAttr)
    reduction = prop_def(ReductionAttr)
    result = result_def(TensorType)
    assembly_format: ClassVar[str] = (
        "$input `,` $weight custom<Exprs>($offsets) (`through` $stream^)? attr-dict"
        " `:` type($input) `,` type($weight) `->` type($result)"
    )

    def __init__(
        self,
        input: SSAValue,
        weight: SSAValue,
        offsets: Sequence[Expr | int],
        rows: int,
        reduction: ReductionAttr = MATMUL_ORDER,
        stream: SSAValue | None = None,
    ):
        super().__init__(
            operands=[input, weight, stream],
            properties={"offsets": exprs(*offsets), "reduction": reduction},
            result_types=[tensor((shape_of(input)[0], rows), f32)],
        )

    def verify_(self) -> None:
        verify_offsets(self, self.offsets)
        x, y = shape_of(self.input), shape_of(self.result)
        require(len(x) == len(y) == 2 and x[0] == y[0], "M10: [S, K] gives [S, N]")
        verify_box(self.weight, self.offsets, (y[1], x[1]))


@irdl_op_definition
class UnaryOp(FunctionOp):
    """Elementwise function of one operand. M11."""

    name = "mk.unary"
    SAME: ClassVar = VarConstraint("SAME", base(TensorType))
    function = prop_def(StringAttr)
    input = operand_def(SAME)
    result = result_def(SAME)
    assembly_format: ClassVar[str] = "$function $input attr-dict `:` type($result)"

    def __init__(self, function: str, input: SSAValue):
        super().__init__(
            operands=[input],
            properties={"function": StringAttr(function)},
            result_types=[input.type],
        )

    def verify_(self) -> None:
        known = self.function.data in UNARY_FUNCTIONS
        require(known, f"M11: unary {self.function.data!r}; known: {UNARY_FUNCTIONS}")


@irdl_op_definition
class BinaryOp(FunctionOp):
    """Elementwise function of two operands that broadcast. M11."""

    name = "mk.binary"
    function = prop_def(StringAttr)
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    result = result_def(TensorType)
    assembly_format: ClassVar[str] = (
        "$function $lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)"
    )

    def __init__(self, function: str, lhs: SSAValue, rhs: SSAValue):
        super().__init__(
            operands=[lhs, rhs],
            properties={"function": StringAttr(function)},
            result_types=[tensor(broadcast_shapes(shape_of(lhs), shape_of(rhs)), f32)],
        )

    def verify_(self) -> None:
        known = self.function.data in BINARY_FUNCTIONS
        require(known, f"M11: binary {self.function.data!r}; known: {BINARY_FUNCTIONS}")
        shape = broadcast_shapes(shape_of(self.lhs), shape_of(self.rhs))
        require(shape == shape_of(self.result), f"M11: the broadcast shape is {shape}")


@irdl_op_definition
class ScalarOp(FunctionOp):
    """`function(input, value)` with a literal, rounded to f32; `reverse` swaps the two. M11."""

    name = "mk.scalar"
    SAME: ClassVar = VarConstraint("SAME", base(TensorType))
    function = prop_def(StringAttr)
    input = operand_def(SAME)
    value = prop_def(FloatAttr)
    reverse = opt_prop_def(IntegerAttr)
    result = result_def(SAME)
    assembly_format: ClassVar[str] = "$function $input `,` $value attr-dict `:` type($result)"

    def __init__(self, function: str, input: SSAValue, value: float, reverse: bool = False):
        super().__init__(
            operands=[input],
            properties={
                "function": StringAttr(function),
                "value": real(value),
                **({"reverse": integer(1)} if reverse else {}),
            },
            result_types=[input.type],
        )

    def verify_(self) -> None:
        known = self.function.data in BINARY_FUNCTIONS
        require(known, f"M11: scalar {self.function.data!r}; known: {BINARY_FUNCTIONS}")


@irdl_op_definition
class ReduceOp(FunctionOp):
    """Reduces the last axis, kept as 1, in the order of `reduction`. M12."""

    name = "mk.reduce"
    function = prop_def(StringAttr)
    input = operand_def(TensorType)
    reduction = prop_def(ReductionAttr)
    result = result_def(TensorType)
    assembly_format: ClassVar[str] = (
        "$function $input attr-dict `:` type($input) `->` type($result)"
    )

    def __init__(self, function: str, input: SSAValue, reduction: ReductionAttr = ROW_ORDER):
        super().__init__(
            operands=[input],
            properties={"function": StringAttr(function), "reduction": reduction},
            result_types=[tensor((*shape_of(input)[:-1], 1), f32)],
        )

    def verify_(self) -> None:
        known = self.function.data in REDUCE_FUNCTIONS
        require(known, f"M12: reduce {self.function.data!r}; known: {REDUCE_FUNCTIONS}")
        expect = (*shape_of(self.input)[:-1], 1)
        require(shape_of(self.result) == expect, f"M12: the reduced shape is {expect}")


@irdl_op_definition
class ReshapeOp(FunctionOp):
    """The same elements, row-major, under another shape. M13."""

    name = "mk.reshape"
    input = operand_def(TensorType)
    result = result_def(TensorType)
    assembly_format: ClassVar[str] = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, shape: Sequence[int]):
        super().__init__(operands=[input], result_types=[tensor(shape, f32)])

    def verify_(self) -> None:
        same = product(shape_of(self.input)) == product(shape_of(self.result))
        require(same, "M13: a reshape keeps the number of elements")


@irdl_op_definition
class TransposeOp(FunctionOp):
    """Result axis i is operand axis `permutation[i]`. M13."""

    name = "mk.transpose"
    input = operand_def(TensorType)
    permutation = prop_def(DenseArrayBase)
    result = result_def(TensorType)
    assembly_format: ClassVar[str] = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, permutation: Sequence[int]):
        shape = shape_of(input)
        super().__init__(
            operands=[input],
            properties={"permutation": ints(permutation)},
            result_types=[tensor([shape[p] for p in permutation], f32)],
        )

    def verify_(self) -> None:
        shape, perm = shape_of(self.input), numbers(self.permutation)
        require(sorted(perm) == list(range(len(shape))), "M13: not a permutation of the axes")
        require(shape_of(self.result) == tuple(shape[p] for p in perm), "M13: permuted shape")


@irdl_op_definition
class SliceOp(FunctionOp):
    """The box of the result's shape at `offsets`; every `steps[i]`-th element of axis i. M13."""

    name = "mk.slice"
    input = operand_def(TensorType)
    offsets = prop_def(ExprsAttr)
    steps = opt_prop_def(DenseArrayBase)
    result = result_def(TensorType)
    assembly_format: ClassVar[str] = (
        "$input custom<Exprs>($offsets) attr-dict `:` type($input) `->` type($result)"
    )

    def __init__(
        self,
        input: SSAValue,
        offsets: Sequence[Expr | int],
        shape: Sequence[int],
        steps: Sequence[int] | None = None,
    ):
        super().__init__(
            operands=[input],
            properties={
                "offsets": exprs(*offsets),
                **({} if steps is None else {"steps": ints(steps)}),
            },
            result_types=[tensor(shape, f32)],
        )

    def strides(self) -> tuple[int, ...]:
        if self.steps is None:
            return (1,) * len(self.offsets)
        return tuple(numbers(self.steps))

    def verify_(self) -> None:
        verify_offsets(self, self.offsets)
        x, y, steps = shape_of(self.input), shape_of(self.result), self.strides()
        require(len(x) == len(y) == len(self.offsets) == len(steps), "M13: ranks of slice")
        for extent, size, offset, step in zip(x, y, self.offsets, steps, strict=True):
            at = offset.constant
            reach = (size - 1) * step + 1
            inside = reach <= extent if at is None else 0 <= at <= extent - reach
            require(step > 0 and inside, f"M13: a slice of {y} at {offset} leaves {x}")


@irdl_op_definition
class ConcatOp(FunctionOp):
    """Joins the operands along the axis `dim`. M13."""

    name = "mk.concat"
    inputs = var_operand_def(TensorType)
    dim = prop_def(IntegerAttr)
    result = result_def(TensorType)
    assembly_format: ClassVar[str] = "$inputs attr-dict `:` type($inputs) `->` type($result)"

    def __init__(self, inputs: Sequence[SSAValue], dim: int):
        shape = list(shape_of(inputs[0]))
        shape[dim] = sum(shape_of(v)[dim] for v in inputs)
        super().__init__(
            operands=[list(inputs)],
            properties={"dim": integer(dim)},
            result_types=[tensor(shape, f32)],
        )

    def verify_(self) -> None:
        dim, total, shape = self.dim.value.data, 0, list(shape_of(self.result))
        require(len(self.inputs) > 0 and 0 <= dim < len(shape), "M13: the axis of a concat exists")
        for v in self.inputs:
            part = list(shape_of(v))
            require(len(part) == len(shape), "M13: concat operands have one rank")
            total += part[dim]
            part[dim] = shape[dim]
            require(part == shape, "M13: concat operands agree off the axis")
        require(total == shape[dim], "M13: extents add up")


@irdl_op_definition
class BroadcastOp(FunctionOp):
    """Broadcasts the operand to the result's shape. M13."""

    name = "mk.broadcast"
    input = operand_def(TensorType)
    result = result_def(TensorType)
    assembly_format: ClassVar[str] = "$input attr-dict `:` type($input) `->` type($result)"

    def __init__(self, input: SSAValue, shape: Sequence[int]):
        super().__init__(operands=[input], result_types=[tensor(shape, f32)])

    def verify_(self) -> None:
        shape = shape_of(self.result)
        require(broadcast_shapes(shape_of(self.input), shape) == shape, "M13: broadcast shape")


@irdl_op_definition
class AttentionOp(FunctionOp):
    """The partial softmax of one kv head and one chunk of cache rows.

    `query` [S, G, D]; `keys` and `values` are cache buffers [1, Hkv, ?, D]; `head` and `index`
    are expressions: which kv head, which chunk. Row s, at position P + s, sees the rows
    [index · chunk, (index + 1) · chunk) ∩ [max(0, P + s − window + 1), P + s], of these those in
    [`low`, `high`) where given. Results: `output` [S, G, Dv] unnormalised, `maximum` and `sum`
    [S, G]; an empty range gives −inf and 0.

    `dot` is the order of a score's sum over D (by default 16 lanes), `total` that of `sum` over a
    chunk's rows (16 lanes) and `mix` that of `output` (one lane); row r of a chunk is element r.
    One chain each.

    Caches of i8 come with `key_scales` and `value_scales`, f32 [1, Hkv, ?, 1]: an element stands
    for its value times the scale of its row. M14."""

    name = "mk.attention"
    irdl_options = (ParsePropInAttrDict(), AttrSizedOperandSegments(as_property=True))
    query = operand_def(TensorType)
    keys = operand_def(BufferType)
    values = operand_def(BufferType)
    key_scales = opt_operand_def(BufferType)
    value_scales = opt_operand_def(BufferType)
    at = prop_def(ExprsAttr)
    chunk = prop_def(IntegerAttr)
    scale = prop_def(FloatAttr)
    window = opt_prop_def(IntegerAttr)
    softcap = opt_prop_def(FloatAttr)
    low = opt_prop_def(IntegerAttr)
    high = opt_prop_def(IntegerAttr)
    dot = opt_prop_def(ReductionAttr)
    total = opt_prop_def(ReductionAttr)
    mix = opt_prop_def(ReductionAttr)
    output = result_def(TensorType)
    maximum = result_def(TensorType)
    sum = result_def(TensorType)
    assembly_format: ClassVar[str] = (
        "$query `,` $keys `,` $values (`scales` $key_scales^ `,` $value_scales `:`"
        " type($key_scales) `,` type($value_scales))?"
        " `at` custom<Exprs>($at) attr-dict `:` type($query) `,`"
        " type($keys) `,` type($values) `->` type($output) `,` type($maximum) `,` type($sum)"
    )

    @property
    def limits(self) -> tuple[int, int]:
        """Rows outside [low, high) are not seen; 2⁶² stands for none."""
        low = 0 if self.low is None else self.low.value.data
        return low, NO_LIMIT if self.high is None else self.high.value.data

    def __init__(
        self,
        query: SSAValue,
        keys: SSAValue,
        values: SSAValue,
        head: Expr | int,
        index: Expr | int,
        properties: dict[str, Attribute],
        scales: tuple[SSAValue, SSAValue] | None = None,
    ):
        tokens, group, _ = shape_of(query)
        assert isinstance(values.type, BufferType)
        depth = values.type.get_shape()[3]
        super().__init__(
            operands=[query, keys, values, *(scales or (None, None))],
            properties={"at": exprs(head, index), **properties},
            result_types=[
                tensor((tokens, group, depth), f32),
                tensor((tokens, group), f32),
                tensor((tokens, group), f32),
            ],
        )

    def verify_(self) -> None:
        verify_offsets(self, self.at)
        assert isinstance(self.keys.type, BufferType)
        assert isinstance(self.values.type, BufferType)
        q, k, v = shape_of(self.query), self.keys.type.get_shape(), self.values.type.get_shape()
        require(len(q) == 3 and len(k) == len(v) == 4, "M14: ranks of attention")
        require(k[:3] == v[:3] and k[2] == -1 and q[2] == k[3], "M14: keys and values agree")
        require(self.chunk.value.data % 16 == 0, "M14: a chunk is a multiple of 16 rows")
        for value in (self.keys, self.values):
            if isinstance(value.owner, BufferOp) and value.owner.window is not None:
                sees = 0 if self.window is None else self.window.value.data
                sinks, (low, high) = value.owner.sink_rows, self.limits
                inside = 0 < sees <= value.owner.window.value.data and low >= sinks
                require(
                    inside or high <= sinks,
                    "M14: what reads a ring has a window within the ring's, or reads its sinks",
                )
        low, high = self.limits
        require(0 <= low < high, "M14: some row lies between the limits")
        require(len(self.at) == 2, "M14: at [head, chunk index]")
        for data, scales in ((self.keys, self.key_scales), (self.values, self.value_scales)):
            assert isinstance(data.type, BufferType)
            need = data.type.element_type == i8
            require(need == (scales is not None), "M14: caches of i8, and only they, have scales")
            if scales is not None:
                assert isinstance(scales.type, BufferType)
                fits = scales.type.get_shape() == (*k[:3], 1) and scales.type.element_type == f32
                require(fits, "M14: scales are f32 [1, Hkv, ?, 1]")
        for order in (self.dot, self.total, self.mix):
            require(order is None or order.chains.data == 1, "M14: sums of one chain")
        ok = shape_of(self.output) == (q[0], q[1], v[3]) and shape_of(self.sum) == q[:2]
        require(ok and shape_of(self.maximum) == q[:2], "M14: results [S, G, Dv], [S, G], [S, G]")


@irdl_op_definition
class CombineOp(FunctionOp):
    """Joins the partials [first, end) by log-sum-exp, in ascending order (Dao et al. 2023).

    Buffers `outputs` [n, Hkv, S, G, Dv], `maxima`, `sums` [n, Hkv, S, G] → [S, Hkv · G, Dv].
    `sinks` [Hkv · G] are logits that add to the sum alone. M15."""

    name = "mk.combine"
    outputs = operand_def(BufferType)
    maxima = operand_def(BufferType)
    sums = operand_def(BufferType)
    sinks = opt_operand_def(TensorType)
    range = prop_def(ExprsAttr)
    result = result_def(TensorType)
    assembly_format: ClassVar[str] = (
        "$outputs `,` $maxima `,` $sums (`sinks` $sinks^ `:` type($sinks))?"
        " `over` custom<Exprs>($range) attr-dict"
        " `:` type($outputs) `,` type($maxima) `,` type($sums) `->` type($result)"
    )

    def __init__(
        self,
        outputs: SSAValue,
        maxima: SSAValue,
        sums: SSAValue,
        first: Expr | int,
        end: Expr | int,
        sinks: SSAValue | None = None,
    ):
        assert isinstance(outputs.type, BufferType)
        _, kv_heads, tokens, group, depth = outputs.type.get_shape()
        super().__init__(
            operands=[outputs, maxima, sums, sinks],
            properties={"range": exprs(first, end)},
            result_types=[tensor((tokens, kv_heads * group, depth), f32)],
        )

    def verify_(self) -> None:
        verify_offsets(self, self.range)
        assert isinstance(self.outputs.type, BufferType)
        shape = self.outputs.type.get_shape()
        require(len(shape) == 5 and len(self.range) == 2, "M15: ranks of combine")
        for v in (self.maxima, self.sums):
            assert isinstance(v.type, BufferType)
            require(v.type.get_shape() == shape[:4], "M15: partials agree")
        expect = (shape[2], shape[1] * shape[3], shape[4])
        require(shape_of(self.result) == expect, f"M15: the result is {expect}")


@irdl_op_definition
class ArgmaxOp(FunctionOp):
    """The largest element of each row [.., N] and where it is, both kept as [.., 1].

    `position` is `first` plus the lowest index of the largest element, as f32, exact below 2²⁴; a
    NaN is larger than any number. M18."""

    name = "mk.argmax"
    input = operand_def(TensorType)
    first = prop_def(ExprsAttr)
    maximum = result_def(TensorType)
    position = result_def(TensorType)
    assembly_format: ClassVar[str] = (
        "$input `from` custom<Exprs>($first) attr-dict"
        " `:` type($input) `->` type($maximum) `,` type($position)"
    )

    def __init__(self, input: SSAValue, first: Expr | int):
        row = tensor((*shape_of(input)[:-1], 1), f32)
        super().__init__(
            operands=[input], properties={"first": exprs(first)}, result_types=[row, row]
        )

    def verify_(self) -> None:
        verify_offsets(self, self.first)
        expect = (*shape_of(self.input)[:-1], 1)
        require(len(self.first) == 1, "M18: argmax starts at one index")
        same = shape_of(self.maximum) == shape_of(self.position) == expect
        require(same, f"M18: the results are {expect}")


@irdl_op_definition
class PickOp(FunctionOp):
    """Of each row of `values` [.., T] the element at the first largest element of the same row
    of `keys`, kept as [.., 1]: joins the results of `mk.argmax` over tiles. M18."""

    name = "mk.pick"
    keys = operand_def(TensorType)
    values = operand_def(TensorType)
    result = result_def(TensorType)
    assembly_format: ClassVar[str] = (
        "$values `by` $keys attr-dict `:` type($values) `,` type($keys) `->` type($result)"
    )

    def __init__(self, values: SSAValue, keys: SSAValue):
        row = tensor((*shape_of(values)[:-1], 1), f32)
        super().__init__(operands=[keys, values], result_types=[row])

    def verify_(self) -> None:
        require(shape_of(self.keys) == shape_of(self.values), "M18: a key a value")
        expect = (*shape_of(self.values)[:-1], 1)
        require(shape_of(self.result) == expect, f"M18: the result is {expect}")


STRUCTURE = (ProgramOp, BufferOp, EventOp, StreamOp, YieldOp, StageOp, PartOp)
ORDER = (WaitOp, SignalOp)
MEMORY = (LoadOp, StoreOp, GatherOp)
COMPUTE = (
    MatmulOp, UnaryOp, BinaryOp, ScalarOp, ReduceOp, ReshapeOp, TransposeOp, SliceOp, ConcatOp,
    BroadcastOp, AttentionOp, CombineOp, ArgmaxOp, PickOp,
)  # fmt: skip

MK = Dialect(
    "mk",
    [*STRUCTURE, *ORDER, *MEMORY, *COMPUTE],
    [BufferType, EventType, StreamType, ReductionAttr, ExprsAttr],
)
