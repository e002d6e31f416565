"""Where boxes of two accesses meet, at one position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

BLOCK = 1 << 22


def meets(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """For each row of `a` [n, axes, 2] that meets some row of `b`, which."""
    if not len(a) or not len(b):
        return
    rows = max(1, BLOCK // (len(b) * a.shape[1]))
    for start in range(0, len(a), rows):
        low = np.maximum(a[start : start + rows, None, :, 0], b[None, :, :, 0])
        high = np.minimum(a[start : start + rows, None, :, 1], b[None, :, :, 1])
        hit = np.all(low < high, axis=2)
        for i, row in enumerate(hit):
            if row.any():
                yield start + i, np.flatnonzero(row)


def common(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The ranges two boxes share."""
    return np.stack([np.maximum(a[:, 0], b[:, 0]), np.minimum(a[:, 1], b[:, 1])], axis=1)


def paint(mask: np.ndarray, boxes: np.ndarray) -> None:
    """Marks the elements of boxes, cut to the array."""
    for box in boxes.tolist():
        mask[tuple(slice(max(a, 0), max(b, 0)) for a, b in box)] = True


def gap(mask: np.ndarray, boxes: np.ndarray) -> tuple[int, tuple[int, ...]] | None:
    """The first box that holds an unmarked element, and that element."""
    for i, box in enumerate(boxes.tolist()):
        view = mask[tuple(slice(max(a, 0), max(b, 0)) for a, b in box)]
        if not view.all():
            at = np.argwhere(~view)[0]
            return i, tuple(int(n) + max(a, 0) for n, (a, _) in zip(at, box, strict=True))
    return None


def cells(boxes: np.ndarray, shape: Sequence[int], start: int, unit: int) -> list[int]:
    """Each box as a set of cells: `start` cells before the buffer, `unit` cells an element."""
    strides = [unit] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        strides[i] = strides[i + 1] * shape[i + 1]
    found: list[int] = []
    for box in boxes.tolist():
        sets = (1 << unit) - 1
        for (low, high), stride in zip(reversed(box), reversed(strides), strict=True):
            low = max(low, 0)
            sets = repeat(sets, max(high - low, 0), stride) << (low * stride)
        found.append(sets << start)
    return found


def repeat(pattern: int, count: int, stride: int) -> int:
    """`count` copies of a bit pattern, `stride` bits apart."""
    result, width = 0, 0
    block, length = pattern, 1
    while count:
        if count & 1:
            result |= block << (width * stride)
            width += length
        block |= block << (length * stride)
        length *= 2
        count >>= 1
    return result
