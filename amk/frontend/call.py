"""One call in an exported graph, its arguments by name, as the rows of the ATen table see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx
from xdsl.ir import Attribute, Operation, SSAValue

from amk.errors import ImportRefused
from amk.frontend.types import element

Result = SSAValue | tuple[SSAValue, ...]


@dataclass
class Call:
    """One ATen call: its arguments by name, and where its lm ops go."""

    node: fx.Node
    arguments: dict[str, Any]
    env: dict[fx.Node, Result]
    emit: Callable[[Operation], SSAValue]
    read: set[str] = field(default_factory=set)

    def get(self, name: str) -> Any:
        """The argument as it stands in the graph; counts as read."""
        self.read.add(name)
        return self.arguments[name]

    def tensor(self, name: str) -> SSAValue:
        value = self.value(self.get(name))
        if value is None:
            raise ImportRefused(f"{name} of {self.node.target} is not a tensor")
        return value

    def optional(self, name: str) -> SSAValue | None:
        argument = self.get(name)
        return None if argument is None else self.value(argument)

    def tensors(self, name: str) -> list[SSAValue]:
        values = [self.value(v) for v in self.get(name)]
        return [v for v in values if v is not None]

    def value(self, argument: Any) -> SSAValue | None:
        """The SSA value of a graph node; None for a literal."""
        if not isinstance(argument, fx.Node):
            return None
        value = self.env.get(argument)
        if not isinstance(value, SSAValue):
            raise ImportRefused(f"{self.node.target} reads {argument}, which is not one tensor")
        return value

    def number(self, name: str) -> float:
        argument = self.get(name)
        if isinstance(argument, bool) or not isinstance(argument, int | float):
            raise ImportRefused(f"{name} of {self.node.target} is {argument!r}, not a number")
        if float(argument) != argument:
            raise ImportRefused(f"{name} of {self.node.target} is {argument}, too large for f64")
        return float(argument)

    def axis(self, name: str, rank: int) -> int:
        return int(self.get(name)) % rank

    def axes(self, name: str, rank: int) -> list[int]:
        dims = self.get(name)
        return sorted(int(d) % rank for d in dims) if dims else list(range(rank))

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""
        return tuple(int(d) for d in self.node.meta["val"].shape)

    @property
    def element(self) -> Attribute:
        """The result's element type."""
        return element(self.node.meta["val"].dtype)


def bind(node: fx.Node) -> dict[str, Any]:
    """The node's arguments by schema name, defaults filled in."""
    target: Any = node.target
    bound: dict[str, Any] = {}
    for i, argument in enumerate(target._schema.arguments):
        if i < len(node.args) and not argument.kwarg_only:
            bound[argument.name] = node.args[i]
        else:
            bound[argument.name] = node.kwargs.get(argument.name, argument.default_value)
    return bound


def unread(call: Call) -> str | None:
    """The first argument the row did not read and that is not the schema's default."""
    target: Any = call.node.target
    for argument in target._schema.arguments:
        name = argument.name
        if name not in call.read and call.arguments[name] != argument.default_value:
            return f"{name} = {call.arguments[name]!r}"
    return None


def result_types(node: fx.Node) -> list[Tensor]:
    value = node.meta["val"]
    return list(value) if isinstance(value, tuple | list) else [value]
