"""Exact float32 building blocks: the fused multiply-add and the 16-bit formats."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

_DISCARDED = np.int64((1 << 29) - 1)  # bits of a float64's mantissa that float32 lacks
_HALFWAY = np.int64(1 << 28)
_SMALLEST_NORMAL = 2.0**-126


def quiet():
    """Infinities and NaNs are values here, never warnings."""
    return np.errstate(all="ignore")


def fma32(a: ArrayLike, b: ArrayLike, c: ArrayLike) -> F32:
    """a * b + c in float32 with one rounding; the arguments broadcast."""
    with quiet():
        product = np.multiply(np.asarray(a, np.float32), np.asarray(b, np.float32), dtype="f8")
        addend = np.asarray(c, np.float32).astype(np.float64)
        total = np.asarray(product + addend)
        mend_double_rounding(total, product, addend)
        return total.astype(np.float32)


def mend_double_rounding(total: F64, product: F64, addend: F64) -> None:
    """Makes `total` = product + addend, rounded to float64, safe to round again to float32.

    The product of two float32 is exact in float64. Rounding the sum twice goes wrong only where
    the first rounding lands halfway between two float32 (or anywhere below their normal range,
    where the halfway points lie elsewhere). Those elements are rounded to odd instead: an inexact
    sum with an even last bit moves one step towards the exact value, and a sum that is odd in 53
    bits rounds correctly to 24 or fewer (Boldo and Melquiond, "Emulation of a FMA and correctly
    rounded sums", 2008).
    """
    suspect = (total.view(np.int64) & _DISCARDED) == _HALFWAY
    suspect |= np.abs(total) < _SMALLEST_NORMAL
    if not suspect.any():
        return
    suspect &= np.isfinite(total) & (total != 0)
    s = total[suspect]
    p = np.broadcast_to(product, total.shape)[suspect]
    q = np.broadcast_to(addend, total.shape)[suspect]
    virtual = s - p  # TwoSum: the exact error of s
    error = (p - (s - virtual)) + (q - virtual)
    even = (s.view(np.int64) & 1) == 0
    towards = np.nextafter(s, np.where(error > 0, np.inf, -np.inf))
    total[suspect] = np.where(even & (error != 0), towards, s)


def to_bf16_bits(x: ArrayLike) -> NDArray[np.uint16]:
    """float32 to bfloat16, nearest even; a NaN keeps its sign and top bits and becomes quiet."""
    values = np.asarray(x, np.float32)
    u = values.view(np.uint32)
    rounded = (u.astype(np.uint64) + 0x7FFF + ((u >> 16) & 1)) >> 16
    return np.where(np.isnan(values), (u >> 16) | 0x40, rounded).astype(np.uint16)


def from_bf16_bits(bits: ArrayLike) -> F32:
    """bfloat16 bit patterns to float32, exactly."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


def to_f16_bits(x: ArrayLike) -> NDArray[np.uint16]:
    """float32 to IEEE half, nearest even; every NaN becomes 0x7e00 with its sign."""
    values = np.asarray(x, np.float32)
    with quiet():
        bits = values.astype(np.float16).view(np.uint16)
    nan = np.where(np.signbit(values), 0xFE00, 0x7E00).astype(np.uint16)
    return np.where(np.isnan(values), nan, bits)


def from_f16_bits(bits: ArrayLike) -> F32:
    """IEEE half bit patterns to float32, exactly."""
    return np.asarray(bits, np.uint16).view(np.float16).astype(np.float32)
