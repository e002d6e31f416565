"""`split-init`: what depends on weights, constants or positions alone leaves `@step`.

`@init` computes it once at load; `@step` reads a result by `lm.weight "@init/NAME"`. The names
stand in the attribute `amk.names` of `@init`, one a result.

- What depends on weights and constants alone, and is more than a weight, a constant or a cast of
  one. A pure change of layout keeps the storage dtype and is cast in `@step`.
- What depends on positions and constants alone, such as the cosines of RoPE: `@init` makes a
  table [max_seq, D], and `@step` reads rows of it. Shape ops on top of it stay in `@step`.

Before:

    func.func @step(%x: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
      %w = lm.weight "norm.weight" : tensor<8xf32>
      %s = lm.add_scalar %w, 1.0 : f64 : tensor<8xf32> -> tensor<8xf32>
      %y = lm.mul %x, %s : tensor<1x1x8xf32>, tensor<8xf32> -> tensor<1x1x8xf32>
      %p = lm.positions %pos : tensor<1x1xi64>
      %f = lm.cast %p : tensor<1x1xi64> -> tensor<1x1xf32>
      %c = lm.cos %f : tensor<1x1xf32>
      %u = lm.reshape %c : tensor<1x1xf32> -> tensor<1x1x1xf32>
      %z = lm.mul %y, %u : tensor<1x1x8xf32>, tensor<1x1x1xf32> -> tensor<1x1x8xf32>
      func.return %z : tensor<1x1x8xf32>
    }

After, with `split-init{max-seq=64}`:

    func.func @init() -> (tensor<64x1xf32>, tensor<8xf32>)
        attributes {amk.names = ["rope_cos", "norm.weight+1"]} {
      %zero = arith.constant 0 : index
      %p = lm.positions %zero : tensor<1x64xi64>
      %f = lm.cast %p : tensor<1x64xi64> -> tensor<1x64xf32>
      %c = lm.cos %f : tensor<1x64xf32>
      %table = lm.reshape %c : tensor<1x64xf32> -> tensor<64x1xf32>
      %w = lm.weight "norm.weight" : tensor<8xf32>
      %s = lm.add_scalar %w, 1.0 : f64 : tensor<8xf32> -> tensor<8xf32>
      func.return %table, %s : tensor<64x1xf32>, tensor<8xf32>
    }
    func.func @step(%x: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
      %s = lm.weight "@init/norm.weight+1" : tensor<8xf32>
      %y = lm.mul %x, %s : tensor<1x1x8xf32>, tensor<8xf32> -> tensor<1x1x8xf32>
      %table = lm.weight "@init/rope_cos" : tensor<64x1xf32>
      %rows = lm.rows %table, %pos : tensor<64x1xf32> -> tensor<1x1x1xf32>
      %c = lm.reshape %rows : tensor<1x1x1xf32> -> tensor<1x1xf32>
      %u = lm.reshape %c : tensor<1x1xf32> -> tensor<1x1x1xf32>
      %z = lm.mul %y, %u : tensor<1x1x8xf32>, tensor<1x1x1xf32> -> tensor<1x1x8xf32>
      func.return %z : tensor<1x1x8xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import AnyFloat, ArrayAttr, FunctionType, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.transforms.common_subexpression_elimination import cse

from amk.ir import lm
from amk.ir.lm import element_of, product, shape_of
from amk.passes.init_names import Names, table_name, weight_name
from amk.passes.max_seq import resolve_max_seq
from amk.passes.position_rows import PositionTables, positions_under
from amk.passes.rewriting import Build, LmPass, function, replace, rewrite, step_of
from amk.passes.shape_rules import widens

INIT = "@init/"
NAMES = "amk.names"


class Init:
    """`@init` being written: a new function, or the module's with more results."""

    def __init__(self, module: ModuleOp):
        self.module = module
        old = function(module, "init")
        self.function = old or FuncOp("init", ((), ()))
        if old is None:
            self.function.body.block.add_op(ReturnOp())
        self.block = self.function.body.block
        last = self.block.last_op
        assert isinstance(last, ReturnOp)
        self.results: dict[str, SSAValue] = dict(
            zip(init_names(self.function), last.arguments, strict=True)
        )
        last.detach()
        last.erase()
        self.names = Names(set(self.results))
        self.copies: dict[SSAValue, SSAValue] = {}
        self.layouts: dict[SSAValue, SSAValue] = {}

    def copy(self, value: SSAValue) -> SSAValue:
        """`value` of `@step`, computed in `@init`. It must not depend on @step's arguments."""
        if value in self.copies:
            return self.copies[value]
        op = value.owner
        assert isinstance(op, Operation)
        if isinstance(op, lm.WeightOp) and op.key.data.startswith(INIT):
            self.copies[value] = self.results[op.key.data.removeprefix(INIT)]
            return self.copies[value]
        mapping = {v: self.copy(v) for v in op.operands}
        made = op.clone(value_mapper=mapping)
        self.block.add_op(made)
        made.location = op.location
        for old, new in zip(op.results, made.results, strict=True):
            self.copies[old] = new
        return self.copies[value]

    def copy_in_storage(self, value: SSAValue, storage: Attribute) -> SSAValue:
        """A layout of weights, rebuilt with their storage dtype."""
        if value not in self.layouts:
            self.layouts[value] = self._copy_in_storage(value, storage)
        return self.layouts[value]

    def _copy_in_storage(self, value: SSAValue, storage: Attribute) -> SSAValue:
        op = value.owner
        assert isinstance(op, Operation)
        if isinstance(op, lm.WeightOp):
            return self.copy(value)
        if isinstance(op, lm.CastOp):
            return self.copy_in_storage(op.input, storage)
        mapping = {v: self.copy_in_storage(v, storage) for v in op.operands}
        made = op.clone(value_mapper=mapping)
        self.block.add_op(made)
        shape = shape_of(value)
        return Rewriter.replace_value_with_new_type(made.results[0], lm.tensor(shape, storage))

    def add(self, name: str, value: SSAValue) -> lm.WeightOp:
        """Makes `value` a result; returns the op by which `@step` reads it."""
        unique = self.names.new(name)
        self.results[unique] = value
        assert isinstance(value.type, lm.TensorType)
        return lm.WeightOp(INIT + unique, value.type)

    def finish(self) -> None:
        """Writes the return and the signature; puts a new `@init` first in the module."""
        self.block.add_op(ReturnOp(*self.results.values()))
        types = [v.type for v in self.results.values()]
        self.function.function_type = FunctionType.from_lists([], types)
        self.function.attributes[NAMES] = ArrayAttr([StringAttr(n) for n in self.results])
        if self.results and self.function.parent is None:
            first = self.module.body.block.first_op
            assert first is not None
            self.module.body.block.insert_op_before(self.function, first)


def init_names(init: FuncOp) -> list[str]:
    """The names of the results of `@init`, in order."""
    names = init.attributes.get(NAMES)
    if not isinstance(names, ArrayAttr):
        return []
    return [n.data for n in names.data if isinstance(n, StringAttr)]


# ---- weights and constants alone ----------------------------------------------------------


def fixed_values(block: Block, leaves: tuple[type[Operation], ...]) -> set[SSAValue]:
    """The values in `block` that depend on ops of class `leaves` alone."""
    fixed: set[SSAValue] = set()
    for op in block.ops:
        inner = bool(op.operands) and not op.regions and all(v in fixed for v in op.operands)
        if isinstance(op, leaves) or inner:
            fixed.update(op.results)
    return fixed


def is_leaf(value: SSAValue) -> bool:
    """A weight, a constant, or a cast of one: `@step` may keep it."""
    while isinstance(value.owner, lm.CastOp):
        value = value.owner.input
    return isinstance(value.owner, (lm.WeightOp, lm.ConstantOp))


def storage_of_layout(value: SSAValue) -> Attribute | None:
    """The one storage dtype of the weights `value` is a mere layout of, or None."""
    op = value.owner
    if isinstance(op, lm.WeightOp):
        return element_of(value)
    if isinstance(op, lm.CastOp):
        storage = storage_of_layout(op.input)
        return storage if storage is not None and widens(storage, element_of(value)) else None
    if not isinstance(op, lm.SHAPE):
        return None
    found = {storage_of_layout(v) for v in op.operands}
    return found.pop() if len(found) == 1 else None


def split_weights(step: FuncOp, init: Init) -> int:
    """Moves what depends on weights and constants alone; returns how many values."""
    block = step.body.block
    fixed = fixed_values(block, (lm.WeightOp, lm.ConstantOp))

    def leaves_step(value: SSAValue) -> bool:
        return any(r not in fixed for u in value.uses for r in u.operation.results) or any(
            not u.operation.results for u in value.uses
        )

    moved = [
        v
        for op in block.ops
        for v in op.results
        if v in fixed and not is_leaf(v) and leaves_step(v)
    ]
    for value in moved:
        op = value.owner
        assert isinstance(op, Operation)
        storage = storage_of_layout(value)
        copy = init.copy(value) if storage is None else init.copy_in_storage(value, storage)
        build = Build(op)
        read = build(init.add(weight_name(value), copy))
        if read.type != value.type:
            read = build(lm.CastOp(read, element_of(value)))
        replace(value, read)
    return len(moved)


# ---- positions and constants alone --------------------------------------------------------

STAYS_ON_TOP = (lm.ReshapeOp, lm.ExpandOp, lm.TransposeOp)


def split_tables(step: FuncOp, init: Init, module: ModuleOp, option: int | None) -> int:
    """Moves what depends on positions and constants alone; returns how many tables were made."""
    block = step.body.block
    constants = fixed_values(block, (lm.ConstantOp,))
    dependent = fixed_values(block, (lm.ConstantOp, lm.PositionsOp)) - constants
    if not (roots := table_roots(block, dependent)):
        return 0
    max_seq = resolve_max_seq(module, option, SplitInit.name)
    tables = PositionTables(dependent, init.block, max_seq, init.copy)
    # Every table is built from @step as it is before any value is replaced.
    reads = [
        (value, axis, init.add(table_name(value), as_table(tables, value, axis)))
        for value in roots
        if (axis := tables.axis_of(value)) is not None
    ]
    for value, axis, read in reads:
        read_rows(value, axis, read)
    return len(reads)


def table_roots(block: Block, dependent: set[SSAValue]) -> list[SSAValue]:
    """The float values in `dependent` that something else reads, below the shape ops on top."""
    roots: dict[SSAValue, None] = {}
    for op in block.ops:
        for value in op.operands:
            if value not in dependent or any(r in dependent for r in op.results):
                continue
            while isinstance(value.owner, STAYS_ON_TOP):
                value = value.owner.input
            if isinstance(element_of(value), AnyFloat):
                roots[value] = None
    return list(roots)


def as_table(tables: PositionTables, value: SSAValue, axis: int) -> SSAValue:
    """[max_seq, D], positions first."""
    table = tables.build(value, axis)
    shape = shape_of(table)
    if product(shape[:axis]) != 1:
        move = lm.TransposeOp(table, [axis, *(i for i in range(len(shape)) if i != axis)])
        tables.block.add_op(move)
        table = move.result
    if len(shape_of(table)) != 2 or axis != 0:
        flat = lm.ReshapeOp(table, (shape[axis], product(shape) // shape[axis]))
        tables.block.add_op(flat)
        table = flat.result
    return table


def read_rows(value: SSAValue, axis: int, read: lm.WeightOp) -> None:
    """Replaces `value` by rows of its table, in the shape it had."""
    op = value.owner
    assert isinstance(op, Operation)
    build = Build(op)
    shape = shape_of(value)
    rows = build(lm.RowsOp(build(read), positions_under(value).position, shape[axis]))
    if product(shape[:axis]) == 1:
        result = build(lm.ReshapeOp(rows, shape))
    else:
        first = build(lm.ReshapeOp(rows, (shape[axis], *shape[:axis], *shape[axis + 1 :])))
        back = [i + 1 for i in range(axis)] + [0] + list(range(axis + 1, len(shape)))
        result = build(lm.TransposeOp(first, back))
    replace(value, result)


# ---- constants that are left --------------------------------------------------------------


def split_constants(step: FuncOp, init: Init) -> int:
    """Moves the float constants that `@step` still reads: a program's memory holds weights and
    what `@init` computes, and no literal tables. Returns how many values."""
    moved = [
        op
        for op in step.body.block.ops
        if isinstance(op, lm.ConstantOp)
        and op.result.first_use is not None
        and isinstance(element_of(op.result), AnyFloat)
    ]
    for op in moved:
        replace(op.result, Build(op)(init.add("constant", init.copy(op.result))))
    return len(moved)


@dataclass(frozen=True)
class SplitInit(LmPass):
    name = "split-init"
    tolerance: ClassVar[float] = 1e-5
    """A cosine of a table and one of a single position may differ in the last bit."""

    max_seq: int | None = None
    """Rows of a table of positions; by default the module's `amk.max_seq`."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        # Equal computations of two layers become one value first, and so one result.
        cse(op)
        step = step_of(op, self.name)
        init = Init(op)
        # Tables first: they need to see which constants they are made of.
        self.counts["tables"] += split_tables(step, init, op, self.max_seq)
        rewrite(step, {}, self.name)
        self.counts["weights"] += split_weights(step, init)
        rewrite(step, {}, self.name)
        self.counts["constants"] += split_constants(step, init)
        init.finish()
        rewrite(op, {}, self.name)
