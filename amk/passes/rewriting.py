"""What the passes on `lm` share: rules, the driver that applies them, and the base of a pass.

A *rule* is a plain function `rule(op, build) -> value | None`. It looks first, returns None when
it does not apply, and else builds what replaces the only result of `op` and returns it. A pass is
a table from op class to rules. The driver visits ops in program order, keeps names and locations,
erases what dies, and stops with an error when rules do not come to an end.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

from xdsl.dialects.builtin import DenseArrayBase, IntegerType, ModuleOp, NameLoc, UnknownLoc
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.traits import Pure

from amk.errors import AmkError
from amk.ir import lm

OpT = TypeVar("OpT", bound=Operation)


class Build:
    """Inserts ops before one op; they take its location."""

    def __init__(self, before: Operation):
        self.before = before
        self.made: list[Operation] = []

    def __call__(self, op: Operation) -> OpResult:
        block = self.before.parent
        assert block is not None
        op.location = self.before.location
        block.insert_op_before(op, self.before)
        self.made.append(op)
        return op.results[0]


Rule = Callable[[Any, Build], SSAValue | None]
Rules = Mapping[type[Operation], Sequence[Rule]]


def merged(*tables: Rules) -> Rules:
    """One table with the rules of all, those of earlier tables first."""
    kinds = {kind for table in tables for kind in table}
    return {kind: tuple(r for table in tables for r in table.get(kind, ())) for kind in kinds}


REWRITES_AN_OP = 64
"""How many rewrites the driver allows for each op it was given, before it reports a loop."""


def is_dead(op: Operation) -> bool:
    return bool(op.results) and op.has_trait(Pure) and not any(r.uses for r in op.results)


def rewrite(root: Operation, rules: Rules, what: str) -> Counter[str]:
    """Applies `rules` to the ops in `root` until none applies, and erases dead ops.

    Returns how often each rule applied, by its name. Raises AmkError when a rule changes a type,
    or when the rules go on without end; `what` names the pass in both messages.
    """
    start = [op for op in root.walk() if op is not root]
    queue = deque(start)
    counts: Counter[str] = Counter()
    left = REWRITES_AN_OP * (len(start) + 16)

    def erase(op: Operation) -> None:
        owners = {v.owner: None for v in op.operands}
        op.detach()
        op.erase()
        queue.extendleft(o for o in owners if isinstance(o, Operation))

    while queue:
        op = queue.popleft()
        if op.parent is None:
            continue
        if is_dead(op):
            erase(op)
            continue
        for rule in rules.get(type(op), ()):
            build = Build(op)
            value = rule(op, build)
            if value is None:
                for made in reversed(build.made):
                    made.detach()
                    made.erase()
                continue
            name = getattr(rule, "__name__", str(rule))
            if value.type != op.results[0].type:
                raise AmkError(f"{what}: {name} changes a type at {where(op)}")
            left -= 1
            if left < 0:
                raise AmkError(f"{what}: {name} does not come to an end at {where(op)}")
            counts[name] += 1
            replace(op.results[0], value)
            erase(op)
            # What is new is looked at before what follows, which then sees its final form.
            again = [*build.made, *dict.fromkeys(users(value))]
            queue.extendleft(reversed(again))
            break
    return counts


def replace(old: SSAValue, new: SSAValue) -> None:
    """Puts `new` where `old` was used, keeping the name that was printed for it."""
    if new.name_hint is None:
        new.name_hint = old.name_hint
    old.replace_all_uses_with(new)


def producer(value: SSAValue, kind: type[OpT]) -> OpT | None:
    """The op that makes `value`, when it is of class `kind`."""
    owner = value.owner
    return owner if isinstance(owner, kind) else None


def integers(attribute: DenseArrayBase) -> list[int]:
    """The numbers in an `array<i64: …>`."""
    return [int(i) for i in cast("DenseArrayBase[IntegerType]", attribute).get_values()]


def both_orders(op: lm.BinaryOp) -> Iterator[tuple[SSAValue, SSAValue]]:
    yield op.lhs, op.rhs
    yield op.rhs, op.lhs


def users(value: SSAValue) -> list[Operation]:
    return [use.operation for use in value.uses]


def has_one_use(value: SSAValue) -> bool:
    return value.has_one_use()


def where(op: Operation) -> str:
    """The module path an op was imported from, else its own name, for messages."""
    location = op.location
    if isinstance(location, NameLoc):
        return f"{location.desc.data} ({op.name})"
    return op.name if isinstance(location, UnknownLoc) else f"{location} ({op.name})"


def function(module: ModuleOp, name: str) -> FuncOp | None:
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and op.sym_name.data == name:
            return op
    return None


def step_of(module: ModuleOp, what: str) -> FuncOp:
    """`@step`; raises AmkError when the module has none."""
    step = function(module, "step")
    if step is None or not step.body.blocks:
        raise AmkError(f"{what}: the module has no func.func @step with a body")
    return step


@dataclass(frozen=True)
class LmPass(ModulePass):
    """A pass on `lm`.

    `tolerance` bounds |after − before| of every logit relative to the largest |logit|, both run
    by the `lm` interpreter; 0.0 means the same bits. `statistics` counts what the pass did.
    """

    tolerance: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "statistics", Counter())

    @property
    def counts(self) -> Counter[str]:
        """What the last `apply` did, by rule or by kind of op made."""
        return self.__dict__["statistics"]
