"""Random stages of `mk`: a tile of random ops over random boxes, and what its buffers hold."""

from __future__ import annotations

import random as stdlib_random
from math import prod

import numpy as np
from xdsl.ir import SSAValue

from amk.ir import mk
from amk.ir.expr import Expr, P, Sym, maximum, minimum
from amk.ir.lm import shape_of
from tests.interpret.mk_bench import Bench

STORAGE = ("f32", "f32", "bf16", "f16")
SIZES = (1, 1, 2, 3, 5, 16, 17)


class StageMaker:
    """Draws one stage from a seed; equal seeds give equal stages."""

    def __init__(self, seed: int):
        self.rng = stdlib_random.Random(seed)
        self.noise = np.random.default_rng(seed)
        self.grid = [self.rng.choice((1, 2, 3)) for _ in range(self.rng.choice((1, 1, 2)))]
        past = self.rng.choice((0, 1, 7, 40))
        self.bench = Bench(self.rng.choice((1, 3)), past, self.grid)
        self.values: list[SSAValue] = []

    def make(self) -> Bench:
        for _ in range(self.rng.choice((0, 1, 2))):
            self.prologue_value()
        for _ in range(2):
            self.values.append(self.load())
        for _ in range(self.rng.randint(3, 14)):
            made = self.rng.choice(RULES)(self)
            if made is not None and prod(shape_of(made)) <= 6000:
                self.values.append(made)
        for value in self.values[-3:]:
            self.store(value)
        return self.bench

    # ---- pieces -----------------------------------------------------------------------------

    def array(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.noise.standard_normal(shape)

    def shape(self) -> tuple[int, ...]:
        return tuple(self.rng.choice(SIZES) for _ in range(self.rng.randint(1, 3)))

    def offset(self, extent: int) -> tuple[Expr, int]:
        """An expression of the tile coordinates, and how far it can reach."""
        axis = self.rng.randrange(len(self.grid))
        t, last = Sym(f"t{axis}"), self.grid[axis] - 1
        at = self.rng.choice((t * extent, last - t, minimum(t, P), maximum(t - 1, 0) * 2))
        return at, last * max(extent, 2)

    def any(self) -> SSAValue:
        return self.rng.choice(self.values)

    def load(self) -> SSAValue:
        shape = self.shape()
        places = [self.offset(n) if self.rng.random() < 0.4 else (0, 0) for n in shape]
        whole = tuple(n + reach for n, (_, reach) in zip(shape, places, strict=True))
        buffer = self.bench.weight(self.array(whole), self.rng.choice(STORAGE))
        return self.bench(mk.LoadOp(buffer, [at for at, _ in places], shape))

    def prologue_value(self) -> None:
        shape = self.shape()
        row = self.bench.before(
            mk.LoadOp(self.bench.weight(self.array(shape)), [0] * len(shape), shape)
        )
        function = self.rng.choice(("neg", "tanh", "silu"))
        self.values.append(self.bench.keep(self.bench.before(mk.UnaryOp(function, row))))

    def store(self, value: SSAValue) -> None:
        """Into a box of the tile's own of a new output."""
        shape, tiles = shape_of(value), prod(self.grid)
        number: Expr | int = 0
        for axis, extent in enumerate(self.grid):
            number = number * extent + Sym(f"t{axis}")
        boxed = self.bench(mk.ReshapeOp(value, (1, *shape)))
        output = self.bench.output((tiles, *shape), [], dtype=self.rng.choice(STORAGE))
        self.bench(mk.StoreOp(boxed, output, [number, *[0] * len(shape)]))


def unary(m: StageMaker) -> SSAValue:
    return m.bench(mk.UnaryOp(m.rng.choice(mk.UNARY_FUNCTIONS), m.any()))


def binary(m: StageMaker) -> SSAValue:
    """With itself, a row or a column of it."""
    x = m.any()
    shape = shape_of(x)
    other = m.rng.choice(
        ([*shape], [shape[-1]], [*shape[:-1], 1], [n if m.rng.random() < 0.5 else 1 for n in shape])
    )
    y = m.bench.value(m.array(tuple(other)))
    pair = (x, y) if m.rng.random() < 0.5 else (y, x)
    return m.bench(mk.BinaryOp(m.rng.choice(mk.BINARY_FUNCTIONS), *pair))


def scalar(m: StageMaker) -> SSAValue:
    value = m.rng.choice((0.1, -3.0, 0.0, -0.0, 1e-30, 2.0**20))
    return m.bench(
        mk.ScalarOp(m.rng.choice(mk.BINARY_FUNCTIONS), m.any(), value, m.rng.random() < 0.4)
    )


def reduce(m: StageMaker) -> SSAValue:
    return m.bench(mk.ReduceOp(m.rng.choice(mk.REDUCE_FUNCTIONS), m.any()))


def reshape(m: StageMaker) -> SSAValue:
    x = m.any()
    shape = [*shape_of(x)]
    flat = m.rng.choice(([prod(shape)], [1, *shape], [*shape, 1], [prod(shape[:-1]), shape[-1]]))
    return m.bench(mk.ReshapeOp(x, flat))


def transpose(m: StageMaker) -> SSAValue:
    x = m.any()
    axes = list(range(len(shape_of(x))))
    m.rng.shuffle(axes)
    return m.bench(mk.TransposeOp(x, axes))


def slice_(m: StageMaker) -> SSAValue:
    x = m.any()
    offsets: list[Expr | int] = []
    sizes, steps = [], []
    for extent in shape_of(x):
        step = m.rng.choice((1, 1, 2))
        size = m.rng.randint(1, -(-extent // step))
        room = extent - ((size - 1) * step + 1)
        offsets.append(m.rng.choice((room, 0, minimum(Sym("t0"), room))))
        sizes.append(size)
        steps.append(step)
    return m.bench(mk.SliceOp(x, offsets, sizes, steps))


def concat(m: StageMaker) -> SSAValue:
    x = m.any()
    dim = m.rng.randrange(len(shape_of(x)))
    other = [*shape_of(x)]
    other[dim] = m.rng.choice((1, 4))
    parts = [x, m.bench.value(m.array(tuple(other))), x][: m.rng.randint(1, 3)]
    return m.bench(mk.ConcatOp(parts, dim))


def broadcast(m: StageMaker) -> SSAValue:
    x = m.any()
    wider = [n if n != 1 else m.rng.choice((1, 3)) for n in shape_of(x)]
    return m.bench(mk.BroadcastOp(x, [*m.rng.choice(([], [2])), *wider]))


def matmul(m: StageMaker) -> SSAValue | None:
    x = m.any()
    shape = shape_of(x)
    rows, depth = prod(shape[:-1]), shape[-1]
    if rows > 64:
        return None
    flat = m.bench(mk.ReshapeOp(x, (rows, depth)))
    features = m.rng.choice((1, 5, 16, 33))
    at, reach = m.offset(features)
    weight = m.bench.weight(m.array((features + reach, depth + 2)), m.rng.choice(STORAGE))
    chains = type(mk.MATMUL_ORDER.chains)(m.rng.choice((1, 2, 4)))
    order = mk.ReductionAttr(mk.MATMUL_ORDER.lanes, chains)
    return m.bench(mk.MatmulOp(flat, weight, [at, 2], features, order))


def argmax(m: StageMaker) -> SSAValue:
    best = mk.ArgmaxOp(m.any(), Sym("t0") * 100)
    m.bench(best)
    return m.rng.choice((best.maximum, best.position))


def pick(m: StageMaker) -> SSAValue:
    keys = m.any()
    return m.bench(mk.PickOp(m.bench.value(m.array(shape_of(keys))), keys))


RULES = (
    unary, binary, scalar, reduce, reshape, transpose, slice_, concat, broadcast, matmul, argmax,
    pick,
)  # fmt: skip
