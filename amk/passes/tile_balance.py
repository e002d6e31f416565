"""Tile sizes for a fixed number of workers: what makes the longest list of a stage short.

Tile l of a stage belongs to worker l mod workers, so a stage takes as long as the worker with the
most bytes to read. A barrier ends each tile; it costs about what so many bytes do. Rows of a
contraction are independent, so sizes decide how long a step takes and never what it computes.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from amk.passes.tile_components import Component

MAX_FEATURES = 256
"""Of a tile: what it computes stays in shared memory."""
BARRIER_BYTES = 2048
"""What a worker reads while it waits for a barrier of its own, about 60 ns at 33 GB/s."""
LEFT_OVER_BYTES = 2048
"""A last, smaller tile is a part, and so a copy of the stage's text, of its own."""

Shape = tuple[int, int, tuple[int, ...]]
"""Of a component: features, bytes a feature, and the sizes its tiles may have."""


def balanced(group: list[Component], workers: int, tile_bytes: int) -> list[int]:
    """Features of a tile of each component of a stage, of at most `tile_bytes` of weights (or of
    the fewest that the component can be cut into)."""
    shapes = tuple(shape_of(c, tile_bytes) for c in group)
    return list(choose(shapes, workers))


def shape_of(component: Component, tile_bytes: int) -> Shape:
    features, granule = component.features, component.granule
    if granule == 1:
        sizes = list(range(1, min(features, MAX_FEATURES) + 1))
    else:
        whole = range(granule, max(MAX_FEATURES, granule) + 1, granule)
        sizes = [*component.parts_of_heads(), *(n for n in whole if n <= features)]
    fitting = [n for n in sizes if n * component.row_bytes <= tile_bytes]
    return features, component.row_bytes, tuple(fitting or sizes[:1])


@lru_cache
def choose(shapes: tuple[Shape, ...], workers: int) -> tuple[int, ...]:
    """Sizes of about the same bytes for all components; of equally good ones the largest."""
    limits = sorted({n * row for _, row, sizes in shapes for n in sizes}, reverse=True)
    best: tuple[float, tuple[int, ...]] | None = None
    for limit in limits:
        sizes = tuple(
            max((n for n in sizes if n * row <= limit), default=sizes[0])
            for _, row, sizes in shapes
        )
        cost = longest(shapes, sizes, workers)
        if best is None or cost < best[0]:
            best = cost, sizes
    assert best is not None
    return best[1]


def longest(shapes: tuple[Shape, ...], sizes: tuple[int, ...], workers: int) -> float:
    """Bytes, and what stands for barriers, of the worker with the longest list."""
    tiles: list[np.ndarray] = []
    extra = 0
    for (features, row, _), size in zip(shapes, sizes, strict=True):
        count, left = divmod(features, size)
        tiles.append(np.full(count, size * row + BARRIER_BYTES, np.int64))
        if left:
            tiles.append(np.array([left * row + BARRIER_BYTES]))
            extra += LEFT_OVER_BYTES
    lists = np.concatenate(tiles)
    turn = np.arange(len(lists)) % workers
    return float(np.bincount(turn, lists).max()) + extra
