"""`fuse`: groups the ops of @step into stages, each around contractions or an attention.

Ops that follow a contraction and can be cut like its output join its epilogue; ops that need a
whole row (a norm, the join of attention's partials) run in the prologue of the stages that need
them. Contractions of one input become one stage (QKV, gate and up). A row value that several
stages need is stored by the first of them. Pure regrouping: every value is computed as before.

`whole-heads` says where an op runs that needs all of a head (a norm over it, a slice of it): in
the `epilogue` of the contraction, whose tiles then hold whole heads, or with the `reader` of its
result, which leaves the contraction's tiles as small as they like.

Before:

    func.func @step(%x: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
      %g = lm.weight "norm.weight" : tensor<8xf32>
      %wg = lm.weight "mlp.gate.weight" : tensor<12x8xf32>
      %wu = lm.weight "mlp.up.weight" : tensor<12x8xf32>
      %wd = lm.weight "mlp.down.weight" : tensor<8x12xf32>
      %n = lm.rms_norm %x weight %g : tensor<8xf32> {eps = 1.0e-5 : f64} : tensor<1x1x8xf32>
      %a = lm.linear %n, %wg : tensor<1x1x8xf32>, tensor<12x8xf32> -> tensor<1x1x12xf32>
      %b = lm.linear %n, %wu : tensor<1x1x8xf32>, tensor<12x8xf32> -> tensor<1x1x12xf32>
      %h = lm.gated_act "silu" %a, %b : tensor<1x1x12xf32>
      %d = lm.linear %h, %wd : tensor<1x1x12xf32>, tensor<8x12xf32> -> tensor<1x1x8xf32>
      %y = lm.add %x, %d : tensor<1x1x8xf32>, tensor<1x1x8xf32> -> tensor<1x1x8xf32>
      func.return %y : tensor<1x1x8xf32>
    }

After:

    func.func @step(%x: tensor<1x1x8xf32>, %pos: index) -> tensor<1x1x8xf32> {
      %g = lm.weight "norm.weight" : tensor<8xf32>
      %wg = lm.weight "mlp.gate.weight" : tensor<12x8xf32>
      %wu = lm.weight "mlp.up.weight" : tensor<12x8xf32>
      %wd = lm.weight "mlp.down.weight" : tensor<8x12xf32>
      %h = lm.stage "mlp.gate+up" {
        %n = lm.rms_norm %x weight %g : tensor<8xf32> {eps = 1.000000e-05 : f64}
          : tensor<1x1x8xf32>
        %a = lm.linear %n, %wg : tensor<1x1x8xf32>, tensor<12x8xf32> -> tensor<1x1x12xf32>
        %b = lm.linear %n, %wu : tensor<1x1x8xf32>, tensor<12x8xf32> -> tensor<1x1x12xf32>
        %h_1 = lm.gated_act "silu" %a, %b : tensor<1x1x12xf32>
        lm.yield %h_1 : tensor<1x1x12xf32>
      } : tensor<1x1x12xf32>
      %y = lm.stage "mlp.down" {
        %d = lm.linear %h, %wd : tensor<1x1x12xf32>, tensor<8x12xf32> -> tensor<1x1x8xf32>
        %y_1 = lm.add %x, %d : tensor<1x1x8xf32>, tensor<1x1x8xf32> -> tensor<1x1x8xf32>
        lm.yield %y_1 : tensor<1x1x8xf32>
      } : tensor<1x1x8xf32>
      func.return %y : tensor<1x1x8xf32>
    }
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, UnknownLoc
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass

from amk.errors import AmkError
from amk.ir import kv, lm
from amk.ir.lm import shape_of
from amk.passes.head_cut import Cut, head_cut, needs_head
from amk.passes.tiling import FUSIBLE, Tiling, of_linear, through

WHOLE_HEADS = ("epilogue", "reader")
ANCHORS = (lm.LinearOp, lm.AttentionSplitOp)
FLOATING = (*FUSIBLE, lm.EmbeddingOp, lm.AttentionCombineOp, lm.ArgmaxOp)


@dataclass
class Group:
    """A stage in the making: its ops in order, and for contraction values how they are cut."""

    ops: list[Operation] = field(default_factory=list)
    tilings: dict[SSAValue, Tiling] = field(default_factory=dict)
    needs: set[int] = field(default_factory=set)

    def input(self) -> SSAValue | None:
        """The one input of a group whose anchors are contractions."""
        anchors = [op for op in self.ops if isinstance(op, ANCHORS)]
        inputs = {op.input if isinstance(op, lm.LinearOp) else None for op in anchors}
        return next(iter(inputs)) if len(inputs) == 1 else None


class Fuser:
    """Assigns every op of one block to a group, or leaves it floating (cloned where needed) or
    free (depends on weights, constants and the position alone; stays outside stages)."""

    def __init__(self, block: Block, whole_heads: str = "epilogue"):
        self.block = block
        self.whole_heads = whole_heads
        self.cuts: dict[SSAValue, Cut] = {}
        self.groups: dict[int, Group] = {}
        self.numbers = count()  # a group's number is its place; merged groups leave gaps
        self.home: dict[SSAValue, int] = {}  # value → group that computes it
        self.needs: dict[SSAValue, set[int]] = {}  # value → groups it is computed from
        self.free: set[SSAValue] = set()
        self.floating: list[Operation] = []
        self.appends: list[kv.AppendOp] = []

    def run(self) -> None:
        position = self.block.args[1] if len(self.block.args) > 1 else None
        for arg in self.block.args:
            self.needs[arg] = set()
            if arg is position:
                self.free.add(arg)
        for op in self.block.ops:
            if isinstance(op, func.ReturnOp):
                self.finish(op)
            elif all(v in self.free for v in op.operands):
                self.free.update(op.results)
                self.needs.update((r, set()) for r in op.results)
            elif isinstance(op, kv.AppendOp):
                self.append(op)
            elif isinstance(op, ANCHORS):
                self.start(op)
            elif not self.join(op):
                self.float(op)
        self.merge_siblings()
        self.place_floating()

    def reads(self, op: Operation) -> set[int]:
        """The groups that must have run before `op` can."""
        found: set[int] = set()
        for v in op.operands:
            found |= {self.home[v]} if v in self.home else self.needs[v]
        return found

    def enter(self, op: Operation, number: int) -> None:
        for r in op.results:
            self.home[r] = number
            self.needs[r] = {number}

    def start(self, op: Operation) -> None:
        number = next(self.numbers)
        group = self.groups[number] = Group([op], needs=self.reads(op))
        if isinstance(op, lm.LinearOp):
            group.tilings[op.result] = of_linear(op)
        self.enter(op, number)

    def append(self, op: kv.AppendOp) -> None:
        if op.entries not in self.home:
            self.start_row([op.entries])
        self.appends.append(op)
        self.needs[op.result] = {self.home[op.entries]} | self.needs[op.cache]

    def start_row(self, values: list[SSAValue]) -> None:
        """A group without a contraction, for floating values that must be stored."""
        number = next(self.numbers)
        group = self.groups[number] = Group()
        for v in values:
            op = v.owner
            if not isinstance(op, Operation):
                raise AmkError(
                    f"fuse: argument {v.name_hint or 'of @step'!r} is appended or returned as it"
                    " is: no stage computes it"
                )
            group.ops.append(op)
            group.needs |= self.reads(op)
            self.enter(op, number)
            if op in self.floating:
                self.floating.remove(op)

    def finish(self, op: func.ReturnOp) -> None:
        rows = [
            v for v in op.operands if v not in self.home and not isinstance(v.type, kv.CacheType)
        ]
        if rows:
            self.start_row(rows)

    def float(self, op: Operation) -> None:
        if not isinstance(op, FLOATING):
            raise AmkError(f"fuse: {op.name} can neither start nor join a stage")
        self.floating.append(op)
        for r in op.results:
            self.needs[r] = self.reads(op)

    def join(self, op: Operation) -> bool:
        """Puts `op` into the epilogue of the last group it reads, if it can be cut like it."""
        reads = self.reads(op)
        number = max(reads, default=-1)
        inside = [v for v in op.operands if self.home.get(v) == number]
        late = [v for v in op.operands if v not in self.home and number in self.needs[v]]
        if not inside or late or not isinstance(op, (*FUSIBLE, lm.ArgmaxOp)):
            return False
        group = self.groups[number]
        if isinstance(op, lm.ArgmaxOp):
            return self.join_argmax(op, number)
        siblings = [
            v for v in op.operands if v not in inside and self.can_absorb(number, self.home.get(v))
        ]
        tilings: set[Tiling | None] = set()
        for v in [*inside, *siblings]:
            t = self.groups[self.home[v]].tilings.get(v)
            tilings.add(None if t is None else through(op, v, t))
        if len(tilings) != 1 or None in tilings:
            return False
        if self.whole_heads == "reader" and any(needs_head(op, self.cut(v)) for v in inside):
            return False
        for v in siblings:
            self.absorb(number, self.home[v])
        group.ops.append(op)
        group.needs |= reads - {number} - {self.home[v] for v in siblings}
        group.tilings[op.results[0]] = next(t for t in tilings if t is not None)
        self.enter(op, number)
        return True

    def cut(self, value: SSAValue) -> Cut:
        """How a value of a group is cut inside its heads."""
        return head_cut(value, self.home, self.cuts)

    def join_argmax(self, op: lm.ArgmaxOp, number: int) -> bool:
        """An argmax over the features of a contraction is found tile by tile."""
        tiling = self.groups[number].tilings.get(op.input)
        if tiling is None or tiling.axis != len(shape_of(op.input)) - 1 or tiling.whole:
            return False
        self.groups[number].ops.append(op)
        self.enter(op, number)
        return True

    def can_absorb(self, into: int, other: int | None) -> bool:
        """May the earlier group `other` move to the place of `into`? Both contract one input, and
        no group between depends on `other`."""
        if other is None or other == into:
            return other is not None
        a, b = self.groups[into].input(), self.groups[other].input()
        used = any(other in g.needs for g in self.groups.values())
        appended = any(self.home.get(op.entries) == other for op in self.appends)
        return a is not None and a is b and not used and not appended

    def absorb(self, into: int, other: int) -> None:
        if into == other or other not in self.groups:
            return
        moved = self.groups.pop(other)
        group = self.groups[into]
        group.ops = moved.ops + group.ops
        group.tilings |= moved.tilings
        group.needs |= moved.needs
        self.rename(other, into)

    def rename(self, old: int, new: int) -> None:
        self.home = {v: new if n == old else n for v, n in self.home.items()}
        for needs in (*self.needs.values(), *(g.needs for g in self.groups.values())):
            if old in needs:
                needs.discard(old)
                needs.add(new)
        for number, group in self.groups.items():
            group.needs.discard(number)

    def merge_siblings(self) -> None:
        """Contractions of one input become one stage, at the place of the first."""
        first: dict[SSAValue, int] = {}
        for number in sorted(self.groups):
            value = self.groups[number].input()
            if value is None:
                continue
            into = first.setdefault(value, number)
            group = self.groups[number]
            if into != number and all(n < into for n in group.needs):
                self.groups.pop(number)
                self.groups[into].ops += group.ops
                self.groups[into].tilings |= group.tilings
                self.rename(number, into)

    def place_floating(self) -> None:
        """A floating op goes into the one stage that needs it, or is stored by the first of
        several. Uses are looked at last to first, so a chain of floating ops follows its end."""
        for op in reversed(self.floating):
            users = {self.home[r] for u in uses(op) for r in u.results if r in self.home}
            if not users:
                continue
            number = min(users)
            self.groups[number].ops.insert(0, op)
            self.enter(op, number)

    # ---- rewriting ----

    def rewrite(self) -> None:
        """Moves each group into an `lm.stage`, in order, each append after what it appends."""
        last = self.block.last_op
        assert last is not None
        pending = list(self.appends)
        for number in sorted(self.groups):
            stage = self.build(number)
            self.block.insert_op_before(stage, last)
            for op in [a for a in pending if a.entries in stage.results]:
                pending.remove(op)
                op.detach()
                self.block.insert_op_before(op, last)
        for op in self.floating:
            if op.parent is self.block and not any(r.first_use for r in op.results):
                op.detach()
                op.erase()

    def build(self, number: int) -> lm.StageOp:
        members = set(self.groups[number].ops)
        ops = [op for op in self.block.ops if op in members]
        yields = [
            r for op in ops for r in op.results if any(u.operation not in members for u in r.uses)
        ]
        name = stage_name(ops)
        for op in ops:
            op.detach()
        body = Block(ops)
        stage = lm.StageOp(Region(body), [v.type for v in yields], name)
        stage.location = next((op.location for op in ops if isinstance(op, ANCHORS)), UnknownLoc())
        for value, result in zip(yields, stage.results, strict=True):
            value.replace_uses_with_if(result, lambda use: use.operation not in members)
        body.add_op(lm.YieldOp(*yields))
        return stage


def uses(op: Operation) -> list[Operation]:
    return [u.operation for r in op.results for u in r.uses]


def stage_name(ops: list[Operation]) -> str:
    """Named by its contractions' weights, by its attention, or by its first op."""
    keys: list[str] = []
    for op in ops:
        if isinstance(op, lm.LinearOp):
            source = op.weight.owner
            while isinstance(source, lm.CastOp):
                source = source.input.owner
            if isinstance(source, lm.WeightOp):
                keys.append(source.key.data.removesuffix(".weight"))
    if not keys:
        named = next((op for op in ops if isinstance(op, ANCHORS)), ops[0] if ops else None)
        return "row" if named is None else named.name.removeprefix("lm.")
    prefix = keys[0].rpartition(".")[0]
    rest = [k.removeprefix(prefix + ".") if k.startswith(prefix + ".") else k for k in keys]
    return f"{prefix}.{'+'.join(rest)}" if prefix else "+".join(rest)


@dataclass(frozen=True)
class Fuse(ModulePass):
    name = "fuse"
    whole_heads: str = "epilogue"
    """Where what needs a whole head runs: `epilogue` or `reader`."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.whole_heads not in WHOLE_HEADS:
            known = ", ".join(WHOLE_HEADS)
            raise AmkError(f"fuse: whole-heads {self.whole_heads!r}; known: {known}")
        for function in op.ops:
            if isinstance(function, func.FuncOp) and function.sym_name.data == "step":
                fuser = Fuser(function.body.block, self.whole_heads)
                fuser.run()
                fuser.rewrite()
