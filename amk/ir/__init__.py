"""The dialects of amk, by name; each is imported when something first names it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Dialect
from xdsl.parser import Parser


def _dialect(module: str, variable: str) -> Callable[[], Dialect]:
    return lambda: getattr(import_module(module), variable)


DIALECTS: dict[str, Callable[[], Dialect]] = {
    "arith": _dialect("xdsl.dialects.arith", "Arith"),
    "builtin": _dialect("xdsl.dialects.builtin", "Builtin"),
    "func": _dialect("xdsl.dialects.func", "Func"),
    "kv": _dialect("amk.ir.kv", "KV"),
    "lm": _dialect("amk.ir.lm", "LM"),
    "mk": _dialect("amk.ir.mk", "MK"),
}


def context() -> Context:
    """A context that knows every dialect of amk, and builtin, func and arith."""
    ctx = Context()
    for name, factory in DIALECTS.items():
        ctx.register_dialect(name, factory)
    return ctx


def parse_module(text: str, name: str = "<text>") -> ModuleOp:
    """The module a text holds. Raises xDSL's ParseError."""
    return Parser(context(), text, name).parse_module()
