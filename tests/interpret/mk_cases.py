"""What each op of `mk` means, case by case: a program, its inputs, and its outputs in f64.

The expected values come from numpy in f64 (or are written out), never from the functions the
interpreter uses. `CASES` maps a name to (arguments of Bench, what fills it).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from amk.ir import mk
from amk.ir.expr import P, Sym, maximum, minimum
from amk.ir.lm import integer, real
from tests.interpret.mk_bench import Bench, Case

T0, T1 = Sym("t0"), Sym("t1")
CASES: dict[str, tuple[dict[str, Any], Case]] = {}
ULP = 2.0**-23
INF, NAN = math.inf, math.nan


def case(name: str, **arguments: Any) -> Callable[[Case], Case]:
    def register(fill: Case) -> Case:
        assert name not in CASES
        CASES[name] = (arguments, fill)
        return fill

    return register


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """f32 values, as f64."""
    noise = np.random.default_rng([seed, *shape]).standard_normal(shape) * scale
    return noise.astype(np.float32).astype(np.float64)


def bf16(x: np.ndarray) -> np.ndarray:
    """Nearest bfloat16, ties to even, by arithmetic on f64: 8 bits of mantissa."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 256) / 256, exponent)


# ---- memory -------------------------------------------------------------------------------

for dtype, rounded in (
    ("f32", lambda x: x),
    ("bf16", bf16),
    ("f16", lambda x: x.astype(np.float16)),
):

    @case(f"load {dtype}", past=2, grid=(3,))
    def _(b: Bench, dtype: str = dtype, rounded: Any = rounded) -> None:
        w = random(8, 10)
        box = b(mk.LoadOp(b.weight(w, dtype), [T0 * 2, P + 1], (2, 5)))
        y = b.output((6, 5), rounded(w)[:6, 3:8])
        b(mk.StoreOp(box, y, [T0 * 2, 0]))

    @case(f"store {dtype}", past=3)
    def _(b: Bench, dtype: str = dtype, rounded: Any = rounded) -> None:
        x = random(2, 4)
        expected = np.full((1, 2, 8, 4), 7.0)
        expected[0, :, 3:4] = rounded(x)[:, None]
        cache = b.cache(np.full((1, 2, 8, 4), 7.0), dtype)
        boxed = b(mk.ReshapeOp(b.value(x), (1, 2, 1, 4)))
        b(mk.StoreOp(boxed, cache, [0, 0, P, 0]))
        b.expected["c0"] = (expected, 0.0)


@case("store rounds ties to even")
def _(b: Bench) -> None:
    x = np.array([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 3.4e38, INF, -INF, NAN, -0.0])
    y = [1.0, 1 + 2 * 2**-7, -1.0, INF, INF, -INF, NAN, -0.0]
    b(mk.StoreOp(b.value(x), b.output((8,), y, 0.0, "bf16"), [0]))


@case("store i64")
def _(b: Bench) -> None:
    x = np.array([[0.0, 1.0, 96.0, 16777215.0]])
    b(mk.StoreOp(b.value(x), b.output((1, 4), x.astype(np.int64), 0.0, "i64"), [0, 0]))


@case("load heads of a cache", past=5)
def _(b: Bench) -> None:
    c = random(1, 3, 9, 4)
    box = b(mk.LoadOp(b.cache(c), [0, 1, P - 2, 1], (1, 2, 4, 3)))
    b.store(box, c[:, 1:3, 3:7, 1:4])


@case("gather", tokens=3, grid=(2,))
def _(b: Bench) -> None:
    table = random(11, 8)
    rows = b(mk.GatherOp(b.weight(table, "bf16"), b.token_buffer([10, 0, 7]), T0 * 4, 4))
    y = b.output((3, 8), bf16(table)[[10, 0, 7]])
    b(mk.StoreOp(rows, y, [0, T0 * 4]))


# ---- contractions -------------------------------------------------------------------------

for tokens, depth, rows, dtype, chains in (
    (1, 32, 16, "f32", 2),
    (1, 7, 3, "f32", 2),
    (1, 80, 37, "bf16", 2),
    (3, 33, 5, "bf16", 1),
    (7, 100, 18, "f32", 4),
    (16, 48, 2, "f16", 2),
):

    @case(f"matmul {tokens}x{depth}x{rows} {dtype} chains {chains}", tokens=tokens, grid=(2,))
    def _(
        b: Bench, t: int = tokens, k: int = depth, n: int = rows, dtype=dtype, chains=chains
    ) -> None:
        x, w = random(t, k), random(2 * n, k + 3)
        stored = bf16(w) if dtype == "bf16" else w.astype("f2" if dtype == "f16" else "f4")
        order = mk.ReductionAttr(mk.MATMUL_ORDER.lanes, type(mk.MATMUL_ORDER.lanes)(chains))
        y = b(mk.MatmulOp(b.value(x), b.weight(w, dtype), [T0 * n, 3], n, order))
        exact = x @ stored.astype(np.float64)[:, 3:].T
        bound = (np.abs(x) @ np.abs(stored[:, 3:].astype(np.float64)).T).max() * ULP * (k / 16 + 6)
        b(mk.StoreOp(y, b.output((t, 2 * n), exact, bound), [0, T0 * n]))


# ---- elementwise --------------------------------------------------------------------------

ERF = np.vectorize(math.erf)
UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "neg": lambda x: -x,
    "abs": np.abs,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "erf": ERF,
    "gelu": lambda x: x * 0.5 * (1 + ERF(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}
for function, meaning in UNARY.items():

    @case(f"unary {function}")
    def _(b: Bench, function: str = function, meaning: Any = meaning) -> None:
        x = random(3, 19, scale=3.0)
        x = np.abs(x) if "sqrt" in function else x
        y = meaning(x)
        b.store(b(mk.UnaryOp(function, b.value(x))), y, 8 * ULP * np.abs(y).max())


SPECIAL: dict[str, list[float]] = {
    "exp": [INF, 0.0, NAN, 1.0],
    "sqrt": [INF, NAN, NAN, -0.0],
    "tanh": [1.0, -1.0, NAN, -0.0],
    "sigmoid": [1.0, 0.0, NAN, 0.5],
    "relu": [INF, 0.0, NAN, 0.0],
    "abs": [INF, INF, NAN, 0.0],
    "erf": [1.0, -1.0, NAN, -0.0],
}
for function, values in SPECIAL.items():

    @case(f"unary {function} of inf, -inf, nan, -0")
    def _(b: Bench, function: str = function, values: Any = values) -> None:
        b.store(b(mk.UnaryOp(function, b.value([INF, -INF, NAN, -0.0]))), values)


BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "max": np.maximum,
    "min": np.minimum,
}
SHAPES = {
    "same": ((2, 3, 5), (2, 3, 5)),
    "row": ((2, 3, 5), (5,)),
    "column": ((2, 3, 1), (1, 1, 5)),
    "scalar": ((1,), (4, 6)),
}
for function, meaning in BINARY.items():
    for shapes, (left, right) in SHAPES.items():

        @case(f"binary {function} {shapes}")
        def _(b: Bench, function=function, meaning=meaning, left=left, right=right) -> None:
            x, y = random(*left), random(*right, seed=1)
            z = meaning(x, y)
            made = b(mk.BinaryOp(function, b.value(x), b.value(y)))
            b.store(made, z, ULP * np.abs(z).max())

    for value in (2.5, -0.75):
        for reverse in (False, True):

            @case(f"scalar {function} {value}{' reversed' if reverse else ''}")
            def _(
                b: Bench, function=function, meaning=meaning, value=value, reverse=reverse
            ) -> None:
                x = random(4, 9)
                y = meaning(value, x) if reverse else meaning(x, value)
                made = b(mk.ScalarOp(function, b.value(x), value, reverse))
                b.store(made, y, ULP * np.abs(y).max())


for function, zeros in (("max", [0.0, -0.0]), ("min", [0.0, -0.0])):

    @case(f"binary {function} of nan and zeros")
    def _(b: Bench, function: str = function, zeros: Any = zeros) -> None:
        """The left one of two zeros; NaN if either is."""
        x, y = [NAN, 1.0, NAN, *zeros], [1.0, NAN, NAN, *zeros[::-1]]
        made = b(mk.BinaryOp(function, b.value(x), b.value(y)))
        b.store(made, [NAN, NAN, NAN, *zeros])


@case("scalar literals that f32 lacks")
def _(b: Bench) -> None:
    b.store(b(mk.ScalarOp("mul", b.value([1.0]), 0.1)), [np.float32(0.1)])
    b.store(b(mk.ScalarOp("max", b.value([1.0]), -INF)), [1.0])
    b.store(b(mk.ScalarOp("min", b.value([1.0]), INF, True)), [1.0])
    b.store(b(mk.ScalarOp("add", b.value([1.0]), NAN)), [NAN])
    b.store(b(mk.ScalarOp("mul", b.value([1.0]), 1e300)), [INF])


# ---- rows ---------------------------------------------------------------------------------

for n in (1, 15, 16, 17, 100):

    @case(f"reduce rows of {n}")
    def _(b: Bench, n: int = n) -> None:
        x = random(2, 3, n)
        bound = ULP * (n / 16 + 5) * np.abs(x).sum(-1).max()
        for function, y in (
            ("sum", x.sum(-1, keepdims=True)),
            ("mean", x.mean(-1, keepdims=True)),
            ("max", x.max(-1, keepdims=True)),
        ):
            tolerance = 0.0 if function == "max" else bound
            b.store(b(mk.ReduceOp(function, b.value(x))), y, tolerance)


@case("reduce of nan and inf")
def _(b: Bench) -> None:
    x = [[1.0, NAN, 3.0], [-INF, -INF, -INF], [1.0, INF, 2.0]]
    b.store(b(mk.ReduceOp("max", b.value(x))), [[NAN], [-INF], [INF]])
    b.store(b(mk.ReduceOp("sum", b.value(x))), [[NAN], [-INF], [INF]])


@case("argmax takes the first, and a nan before all")
def _(b: Bench) -> None:
    x = np.full((5, 21), -1.0)
    x[0, [4, 17]] = 2.0
    x[1, [20]] = 0.5
    x[2, [3, 9]] = NAN, INF
    x[3, :] = -INF
    x[4, 16] = INF
    best = mk.ArgmaxOp(b.value(x), P + 100)
    b(best)
    b.store(best.maximum, [[2.0], [0.5], [NAN], [-INF], [INF]])
    b.store(best.position, [[104.0], [120.0], [103.0], [100.0], [116.0]])


@case("pick")
def _(b: Bench) -> None:
    keys = [[1.0, 3.0, 3.0], [NAN, 4.0, 5.0], [-INF, -INF, -INF]]
    values = [[7.0, 8.0, 9.0], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    b.store(b(mk.PickOp(b.value(values), b.value(keys))), [[8.0], [1.0], [4.0]])


# ---- shape --------------------------------------------------------------------------------


@case("reshape")
def _(b: Bench) -> None:
    x = random(2, 6)
    b.store(b(mk.ReshapeOp(b.value(x), (3, 1, 4))), x.reshape(3, 1, 4))


for permutation in ((1, 0, 2), (2, 1, 0), (0, 2, 1), (2, 0, 1)):
    for shape in ((2, 3, 4), (1, 3, 4), (2, 1, 4), (1, 1, 4)):

        @case(f"transpose {shape} by {permutation}")
        def _(b: Bench, shape=shape, permutation=permutation) -> None:
            x = random(*shape)
            b.store(b(mk.TransposeOp(b.value(x), permutation)), x.transpose(permutation))


@case("slice", past=4, grid=(2,))
def _(b: Bench) -> None:
    x = random(4, 12)
    made = b(mk.SliceOp(b.value(x), [T0 * 2, P - 1], (2, 5)))
    b(mk.StoreOp(made, b.output((4, 5), x[:, 3:8]), [T0 * 2, 0]))


@case("slice with steps")
def _(b: Bench) -> None:
    x = random(5, 12)
    b.store(b(mk.SliceOp(b.value(x), [1, 2], (2, 4), (3, 3))), x[1:5:3, 2:12:3])


for dim in (0, 1, 2):

    @case(f"concat along {dim}")
    def _(b: Bench, dim: int = dim) -> None:
        parts = []
        for i, extent in enumerate((2, 1, 3)):
            shape = [2, 3, 4]
            shape[dim] = extent
            parts.append(random(*shape, seed=i))
        joined = mk.ConcatOp([b.value(p) for p in parts], dim)
        b.store(b(joined), np.concatenate(parts, dim))


@case("broadcast")
def _(b: Bench) -> None:
    x = random(3, 1)
    b.store(b(mk.BroadcastOp(b.value(x), (2, 3, 5))), np.broadcast_to(x, (2, 3, 5)))


# ---- attention ----------------------------------------------------------------------------


def partial(q, k, v, past, index, chunk, scale, window, softcap):
    """Longhand: for each row and head the weights of the keys in sight, in f64."""
    tokens, group, _ = q.shape
    o, m, total = (
        np.zeros((tokens, group, v.shape[1])),
        np.full((tokens, group), -INF),
        np.zeros(q.shape[:2]),
    )
    for s in range(tokens):
        low = max(0, past + s - window + 1) if window else 0
        seen = [j for j in range(index * chunk, (index + 1) * chunk) if low <= j <= past + s]
        for g in range(group):
            if not seen:
                continue
            scores = np.array([float(q[s, g] @ k[j]) * scale for j in seen])
            scores = np.tanh(scores / softcap) * softcap if softcap else scores
            weights = np.exp(scores - scores.max())
            m[s, g], total[s, g] = scores.max(), weights.sum()
            o[s, g] = weights @ v[seen]
    return o, m, total


ATTENTION: dict[str, dict[str, Any]] = {
    "first position": {"tokens": 1, "past": 0, "group": 2, "depth": 8},
    "one token": {"tokens": 1, "past": 21, "group": 3, "depth": 16},
    "chunk of tokens": {"tokens": 16, "past": 5, "group": 1, "depth": 8},
    "second chunk": {"tokens": 3, "past": 30, "group": 2, "depth": 8, "index": 1},
    "chunk out of sight": {"tokens": 3, "past": 4, "group": 2, "depth": 8, "index": 1},
    "window": {"tokens": 3, "past": 20, "group": 2, "depth": 8, "window": 6, "index": 1},
    "window that hides a chunk": {"tokens": 1, "past": 40, "group": 2, "depth": 8, "window": 3},
    "softcap": {"tokens": 2, "past": 9, "group": 2, "depth": 8, "softcap": 1.5},
    "depth 80": {"tokens": 1, "past": 17, "group": 7, "depth": 80, "chunk": 32},
    "depth 96, bf16": {
        "tokens": 2,
        "past": 17,
        "group": 5,
        "depth": 96,
        "chunk": 32,
        "dtype": "bf16",
    },
    "f16": {"tokens": 1, "past": 9, "group": 4, "depth": 64, "dtype": "f16"},
    "last row": {
        "tokens": 1,
        "past": 63,
        "group": 2,
        "depth": 8,
        "index": 3,
        "rows": 64,
    },
}


def attention_case(
    b: Bench, group, depth, chunk=16, index=0, window=0, softcap=0.0, dtype="f32", rows=64
) -> None:
    tokens, past = b.tokens, b.past
    q = random(tokens, 2 * group, depth)
    k, v = (random(1, 2, rows, depth, seed=s) for s in (1, 2))
    k[:, :, past + tokens :], v[:, :, past + tokens :] = NAN, NAN  # rows that are not live
    properties = {"scale": real(0.3), "chunk": integer(chunk)}
    if window:
        properties["window"] = integer(window)
    if softcap:
        properties["softcap"] = real(softcap)
    query = b(mk.SliceOp(b.value(q), [0, T0 * group, 0], (tokens, group, depth)))
    op = mk.AttentionOp(query, b.cache(k, dtype), b.cache(v, dtype), T0, index, properties)
    b(op)
    rounded = {"f32": lambda x: x, "bf16": bf16, "f16": lambda x: x.astype(np.float16).astype("f8")}
    ks, vs = rounded[dtype](k), rounded[dtype](v)
    expected = [
        np.stack(parts)
        for parts in zip(
            *(
                partial(
                    q[:, h * group : (h + 1) * group], ks[0, h], vs[0, h],
                    past, index, chunk, 0.3, window, softcap,
                )
                for h in (0, 1)
            ),
            strict=True,
        )
    ]  # fmt: skip
    for result, values in zip(op.results, expected, strict=True):
        shape = values.shape[1:]
        boxed = b(mk.ReshapeOp(result, (1, *shape)))
        finite = values[np.isfinite(values)]
        bound = 1e-5 * np.abs(finite).max(initial=1.0)
        b(mk.StoreOp(boxed, b.output(values.shape, values, bound), [T0, *[0] * len(shape)]))


for name, numbers in ATTENTION.items():
    arguments = {k: numbers.pop(k) for k in ("tokens", "past")}

    @case(f"attention: {name}", grid=(2,), **arguments)
    def _(b: Bench, numbers: Any = numbers) -> None:
        attention_case(b, **numbers)


for name, past, first, sinks in (
    ("all chunks", 40, 0, False),
    ("from the first in sight", 40, 1, False),
    ("one chunk", 3, 0, False),
    ("sinks", 40, 0, True),
):

    @case(f"combine: {name}", tokens=2, past=past)
    def _(b: Bench, first: int = first, sinks: bool = sinks) -> None:
        chunks, shape = 5, (2, 2, 3)  # Hkv, S, G
        o, m = random(chunks, *shape, 4), random(chunks, *shape, seed=1)
        total = np.abs(random(chunks, *shape, seed=2)) + 0.5
        m[1, 0, 1, 2], total[1, 0, 1, 2], o[1, 0, 1, 2] = -INF, 0.0, 0.0
        end = (b.past + 2 + 15) // 16
        o[:first], o[end:], m[end:] = NAN, NAN, NAN  # out of range: never read
        op = mk.CombineOp(
            b.weight(o), b.weight(m), b.weight(total), first, (P + 17) // 16,
            b.value(random(6, seed=3)) if sinks else None,
        )  # fmt: skip
        live = slice(first, end)
        scale = np.exp(m[live])
        below = (scale * total[live]).sum(0)
        if sinks:
            below += np.exp(random(6, seed=3)).reshape(2, 1, 3)
        y = (scale[..., None] * o[live]).sum(0) / below[..., None]
        y = y.transpose(1, 0, 2, 3).reshape(2, 6, 4)
        b.store(b(op), y, 1e-5 * np.abs(y).max())


# ---- stages -------------------------------------------------------------------------------


@case("prologue is kept for every tile", grid=(3,))
def _(b: Bench) -> None:
    x = random(2, 6)
    row = b.before(mk.LoadOp(b.weight(x), [0, 0], (2, 6)))
    kept = b.keep(b.before(mk.ScalarOp("mul", row, 2.0)))
    made = b(mk.SliceOp(kept, [0, T0 * 2], (2, 2)))
    b(mk.StoreOp(made, b.output((2, 6), 2 * x), [0, T0 * 2]))


@case("large values live beside what the prologue keeps", grid=(2,))
def _(b: Bench) -> None:
    x, w = random(40, 64), random(2, 40, 64, seed=1)
    kept = b.keep(b.before(mk.LoadOp(b.weight(x), [0, 0], (40, 64))))
    tile = b(mk.ReshapeOp(b(mk.LoadOp(b.weight(w), [T0, 0, 0], (1, 40, 64))), (40, 64)))
    total = b(mk.BinaryOp("add", kept, b(mk.ScalarOp("mul", tile, 4.0))))
    boxed = b(mk.ReshapeOp(total, (1, 40, 64)))
    y = x + 4 * w
    b(mk.StoreOp(boxed, b.output((2, 40, 64), y, ULP * np.abs(y).max()), [T0, 0, 0]))


@case("grid of two axes", grid=(2, 3))
def _(b: Bench) -> None:
    x = random(4, 9)
    box = b(mk.LoadOp(b.weight(x), [T0 * 2, T1 * 3], (2, 3)))
    b(mk.StoreOp(box, b.output((4, 9), x), [T0 * 2, T1 * 3]))


@case("grid in terms of the position", past=9, grid=(P // 4 + 1,))
def _(b: Bench) -> None:
    x = random(8)
    box = b(mk.LoadOp(b.weight(x), [T0], (1,)))
    y = np.where(np.arange(8) < 3, x, NAN)
    b(mk.StoreOp(box, b.output((8,), y), [T0]))


@case("negative extents are no tiles", past=9, grid=(P - 20, 2))
def _(b: Bench) -> None:
    b(mk.StoreOp(b.value([1.0]), b.output((1,), [NAN]), [0]))


@case("min, max and floor division", past=5, grid=(4,))
def _(b: Bench) -> None:
    x = random(16)
    index = maximum(minimum(T0 * 3, P + 2), (P - 12) // 3 + 4)
    box = b(mk.LoadOp(b.weight(x), [index], (1,)))
    places = [max(min(3 * t, 7), math.floor(-7 / 3) + 4) for t in range(4)]
    b(mk.StoreOp(box, b.output((4,), x[places]), [T0]))
