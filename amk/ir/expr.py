"""Index expressions of `mk`: affine in the position and tile coordinates, plus min, max and floor
division by a constant. Anything else cannot be written, which keeps proofs for every position
possible.

Symbols: `P` (past length) and `t0`, `t1`, … (tile coordinates of the enclosing part). Expressions
are simplified as they are built and print canonically, so equal
expressions compare equal far more often than not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    irdl_custom_directive,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer


@dataclass(frozen=True)
class Expr:
    """Base of the five forms below; operators build simplified expressions."""

    def __add__(self, other: Expr | int) -> Expr:
        return add(self, wrap(other))

    __radd__ = __add__

    def __sub__(self, other: Expr | int) -> Expr:
        return add(self, mul(wrap(other), -1))

    def __rsub__(self, other: int) -> Expr:
        return add(wrap(other), mul(self, -1))

    def __mul__(self, factor: int) -> Expr:
        return mul(self, factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Expr:
        return floordiv(self, divisor)

    def evaluate(self, env: Mapping[str, int]) -> int:
        raise NotImplementedError

    def symbols(self) -> set[str]:
        return {e.name for e in self.walk() if isinstance(e, Sym)}

    def walk(self) -> Iterator[Expr]:
        yield self

    def substitute(self, env: Mapping[str, Expr]) -> Expr:
        return self

    @property
    def constant(self) -> int | None:
        return None


@dataclass(frozen=True)
class Const(Expr):
    value: int

    def evaluate(self, env: Mapping[str, int]) -> int:
        return self.value

    @property
    def constant(self) -> int | None:
        return self.value

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Sym(Expr):
    name: str

    def evaluate(self, env: Mapping[str, int]) -> int:
        return env[self.name]

    def substitute(self, env: Mapping[str, Expr]) -> Expr:
        return env.get(self.name, self)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Sum(Expr):
    """Σ coefficient · term + offset; terms are Sym, Div or Bound, sorted by their text."""

    terms: tuple[tuple[Expr, int], ...]
    offset: int

    def evaluate(self, env: Mapping[str, int]) -> int:
        return sum(c * t.evaluate(env) for t, c in self.terms) + self.offset

    def walk(self) -> Iterator[Expr]:
        yield self
        for t, _ in self.terms:
            yield from t.walk()

    def substitute(self, env: Mapping[str, Expr]) -> Expr:
        total: Expr = Const(self.offset)
        for t, c in self.terms:
            total = add(total, mul(t.substitute(env), c))
        return total

    def __str__(self) -> str:
        text = ""
        for t, c in self.terms:
            term = str(t) if abs(c) == 1 else f"{t} * {abs(c)}"
            text += (" - " if c < 0 else " + ") + term if text else ("-" if c < 0 else "") + term
        if self.offset:
            text += f" {'-' if self.offset < 0 else '+'} {abs(self.offset)}"
        return text


@dataclass(frozen=True)
class Div(Expr):
    """floor(value / divisor), divisor > 0"""

    value: Expr
    divisor: int

    def evaluate(self, env: Mapping[str, int]) -> int:
        return self.value.evaluate(env) // self.divisor

    def walk(self) -> Iterator[Expr]:
        yield self
        yield from self.value.walk()

    def substitute(self, env: Mapping[str, Expr]) -> Expr:
        return floordiv(self.value.substitute(env), self.divisor)

    def __str__(self) -> str:
        inner = f"({self.value})" if isinstance(self.value, Sum) else str(self.value)
        return f"{inner} floordiv {self.divisor}"


@dataclass(frozen=True)
class Bound(Expr):
    """min or max of two expressions"""

    kind: str
    a: Expr
    b: Expr

    def evaluate(self, env: Mapping[str, int]) -> int:
        pick = min if self.kind == "min" else max
        return pick(self.a.evaluate(env), self.b.evaluate(env))

    def walk(self) -> Iterator[Expr]:
        yield self
        yield from self.a.walk()
        yield from self.b.walk()

    def substitute(self, env: Mapping[str, Expr]) -> Expr:
        return bound(self.kind, self.a.substitute(env), self.b.substitute(env))

    def __str__(self) -> str:
        return f"{self.kind}({self.a}, {self.b})"


def wrap(value: Expr | int) -> Expr:
    return Const(value) if isinstance(value, int) else value


def _parts(e: Expr) -> tuple[dict[Expr, int], int]:
    if isinstance(e, Const):
        return {}, e.value
    if isinstance(e, Sum):
        return dict(e.terms), e.offset
    return {e: 1}, 0


def _sum(terms: dict[Expr, int], offset: int) -> Expr:
    live = sorted(((t, c) for t, c in terms.items() if c), key=lambda tc: str(tc[0]))
    if not live:
        return Const(offset)
    if len(live) == 1 and live[0][1] == 1 and offset == 0:
        return live[0][0]
    return Sum(tuple(live), offset)


def add(a: Expr, b: Expr) -> Expr:
    terms, offset = _parts(a)
    more, extra = _parts(b)
    for t, c in more.items():
        terms[t] = terms.get(t, 0) + c
    return _sum(terms, offset + extra)


def mul(e: Expr, factor: int) -> Expr:
    terms, offset = _parts(e)
    return _sum({t: c * factor for t, c in terms.items()}, offset * factor)


def floordiv(e: Expr, divisor: int) -> Expr:
    if divisor <= 0:
        raise ValueError(f"floordiv by {divisor}: the divisor is a positive constant")
    if divisor == 1:
        return e
    terms, offset = _parts(e)
    # What the divisor divides leaves the floor: (d·x + r) floordiv d = x + r floordiv d.
    whole = {t: c // divisor for t, c in terms.items() if c % divisor == 0}
    rest = {t: c for t, c in terms.items() if c % divisor}
    if not rest:
        return _sum(whole, offset // divisor)
    inner = _sum(rest, offset % divisor)
    if isinstance(inner, Div):
        inner, divisor = inner.value, inner.divisor * divisor
    return add(_sum(whole, offset // divisor if whole or offset else 0), Div(inner, divisor))


def bound(kind: str, a: Expr, b: Expr) -> Expr:
    if a == b:
        return a
    difference = (a - b).constant
    if difference is not None:
        return a if (difference < 0) == (kind == "min") else b
    first, second = sorted((a, b), key=lambda e: (not isinstance(e, Const), str(e)))
    return Bound(kind, first, second)


def minimum(a: Expr | int, b: Expr | int) -> Expr:
    return bound("min", wrap(a), wrap(b))


def maximum(a: Expr | int, b: Expr | int) -> Expr:
    return bound("max", wrap(a), wrap(b))


def ceildiv(e: Expr | int, divisor: int) -> Expr:
    return floordiv(wrap(e) + (divisor - 1), divisor)


P = Sym("P")


def parse_expr(parser: AttrParser) -> Expr:
    """sum := product (('+' | '-') product)*; product := atom ('*' int | 'floordiv' int)*"""
    if parser.parse_optional_punctuation("-") is not None:
        total = mul(_product(parser), -1)
    else:
        total = _product(parser)
    while True:
        if parser.parse_optional_punctuation("+") is not None:
            total = total + _product(parser)
        elif parser.parse_optional_punctuation("-") is not None:
            total = total - _product(parser)
        else:
            return total


def _product(parser: AttrParser) -> Expr:
    e = _atom(parser)
    while True:
        if parser.parse_optional_punctuation("*") is not None:
            e = mul(e, parser.parse_integer(allow_boolean=False))
        elif parser.parse_optional_keyword("floordiv") is not None:
            divisor = parser.parse_integer(allow_boolean=False)
            if divisor <= 0:
                parser.raise_error("mk M1: the divisor of floordiv is a positive constant")
            e = floordiv(e, divisor)
        else:
            return e


def _atom(parser: AttrParser) -> Expr:
    number = parser.parse_optional_integer(allow_boolean=False)
    if number is not None:
        return Const(number)
    if parser.parse_optional_punctuation("(") is not None:
        e = parse_expr(parser)
        parser.parse_punctuation(")")
        return e
    name = parser.parse_identifier()
    if name not in ("min", "max"):
        return Sym(name)
    parser.parse_punctuation("(")
    a = parse_expr(parser)
    parser.parse_punctuation(",")
    b = parse_expr(parser)
    parser.parse_punctuation(")")
    return bound(name, a, b)


@irdl_attr_definition
class ExprsAttr(Data[tuple[Expr, ...]]):
    """A list of index expressions: `#mk.exprs<[t0 * 32, P + 1]>`."""

    name = "mk.exprs"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Expr, ...]:
        with parser.in_angle_brackets():
            return cls.parse_list(parser)

    @staticmethod
    def parse_list(parser: AttrParser) -> tuple[Expr, ...]:
        return tuple(
            parser.parse_comma_separated_list(
                parser.Delimiter.SQUARE, lambda: parse_expr(parser), " in index expressions"
            )
        )

    def print_list(self, printer: Printer) -> None:
        printer.print_string("[" + ", ".join(map(str, self.data)) + "]")

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            self.print_list(printer)

    def __iter__(self) -> Iterator[Expr]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)


def exprs(*items: Expr | int) -> ExprsAttr:
    return ExprsAttr(tuple(wrap(e) for e in items))


@irdl_custom_directive
class Exprs(CustomDirective):
    """`custom<Exprs>($offsets)`: prints an `ExprsAttr` property as a plain bracketed list."""

    attr: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> bool:
        self.attr.set(state, ExprsAttr(ExprsAttr.parse_list(parser)))
        return True

    def print(self, printer: Printer, state: PrintingState, op) -> None:  # type: ignore[no-untyped-def]
        value = self.attr.get(op)
        assert isinstance(value, ExprsAttr)
        value.print_list(printer)
        state.should_emit_space = True
        state.last_was_punctuation = False
