"""Index arithmetic of the emitter: expressions with the range of every symbol, so that what a
reshape divides and multiplies back again cancels, and C text of what is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from amk.ir.expr import Bound, Const, Div, Expr, Sum, Sym, add, bound, floordiv, mul, wrap

Index = tuple[Expr, ...]


@dataclass
class Ranges:
    """Inclusive bounds of symbols."""

    known: dict[str, tuple[int, int]] = field(default_factory=dict)

    def bounds(self, e: Expr) -> tuple[int, int]:
        """Inclusive bounds of an expression; KeyError for a symbol without a range."""
        match e:
            case Const(value):
                return value, value
            case Sym(name):
                return self.known[name]
            case Sum(terms, offset):
                low = high = offset
                for term, c in terms:
                    a, b = self.bounds(term)
                    low += min(a * c, b * c)
                    high += max(a * c, b * c)
                return low, high
            case Div(value, divisor):
                a, b = self.bounds(value)
                return a // divisor, b // divisor
            case Bound(kind, x, y):
                (a, b), (c, d) = self.bounds(x), self.bounds(y)
                pick = min if kind == "min" else max
                return pick(a, c), pick(b, d)
        raise TypeError(f"not an index expression: {e!r}")

    def simplify(self, e: Expr) -> Expr:
        """Replaces divisions and bounds whose outcome the ranges decide."""
        match e:
            case Sym(name):
                low, high = self.known[name]
                return Const(low) if low == high else e
            case Sum(terms, offset):
                total: Expr = Const(offset)
                for term, c in terms:
                    total = add(total, mul(self.simplify(term), c))
                return total
            case Div(value, divisor):
                found = floordiv(self.simplify(value), divisor)
                low, high = self.bounds(found)
                return Const(low) if low == high else found
            case Bound(kind, a, b):
                x, y = self.simplify(a), self.simplify(b)
                low, high = self.bounds(x - y)
                if high <= 0:
                    return x if kind == "min" else y
                if low >= 0:
                    return y if kind == "min" else x
                return bound(kind, x, y)
        return e

    def div(self, e: Expr, divisor: int) -> Expr:
        return self.simplify(floordiv(e, divisor))

    def mod(self, e: Expr, divisor: int) -> Expr:
        return self.simplify(e - floordiv(e, divisor) * divisor)

    def flatten(self, index: Index, shape: Sequence[int]) -> Expr:
        """The place of an index in a row-major array."""
        flat: Expr = Const(0)
        for at, size in zip(index, shape, strict=True):
            flat = flat * size + at
        return self.simplify(flat)

    def unflatten(self, flat: Expr, shape: Sequence[int]) -> Index:
        """The index of a place in a row-major array."""
        out: list[Expr] = []
        for size in reversed(shape):
            out.append(Const(0) if size == 1 else self.mod(flat, size))
            flat = self.div(flat, size)
        return tuple(out[::-1])

    def text(self, e: Expr) -> str:
        """An expression as C; divisions that cannot see a negative number are plain ones."""
        match e:
            case Const(value):
                return str(value)
            case Sym(name):
                return name
            case Sum(terms, offset):
                parts = [*self.remainders(terms)]
                return " + ".join([*parts, *([str(offset)] if offset else [])])
            case Div(value, divisor):
                if self.bounds(value)[0] >= 0:
                    return f"{self.factor(value)} / {divisor}"
                return f"amk_floordiv({self.text(value)}, {divisor})"
            case Bound(kind, a, b):
                return f"amk_{kind}l({self.text(a)}, {self.text(b)})"
        raise TypeError(f"not an index expression: {e!r}")

    def remainders(self, terms: Sequence[tuple[Expr, int]]) -> Iterator[str]:
        """The terms of a sum; x − (x floordiv d) · d as a remainder."""
        left = dict(terms)
        for e, c in terms:
            if not isinstance(e, Div) or -c % e.divisor or not self.known_positive(e.value):
                continue
            factor = left.get(e.value)
            if factor == -c // e.divisor:
                del left[e.value], left[e]
                text = f"{self.factor(e.value)} % {e.divisor}"
                yield text if factor == 1 else f"({text}) * {factor}"
        for e, c in left.items():
            yield self.factor(e) if c == 1 else f"{self.factor(e)} * {c}"

    def known_positive(self, e: Expr) -> bool:
        return self.bounds(e)[0] >= 0

    def factor(self, e: Expr) -> str:
        """Text that binds as tightly as a name."""
        text = self.text(e)
        plain = isinstance(e, Sym | Bound) or (isinstance(e, Const) and e.value >= 0)
        return text if plain else f"({text})"


def offset(index: Index, by: Sequence[Expr | int]) -> Index:
    return tuple(i + wrap(o) for i, o in zip(index, by, strict=True))
