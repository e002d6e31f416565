"""Elementary functions on float32 arrays, the formulas of `amk/codegen/cpu/scalar_math.h`.

What each formula rests on is explained there; the operations and their order are the same here.
All functions take anything array-like, compute in float32 and return float32 of the same shape.
"""

import numpy as np
from numpy.typing import ArrayLike

from amk.interpreters.numerics_float import F32, fma32, quiet

_EXP = (
    1.3821696629747748e-3,
    8.368670009076595e-3,
    4.1668254882097244e-2,
    1.666652113199234e-1,
    4.999999403953552e-1,
)
_TANH = (
    -5.7162027806043625e-3,
    2.0649708807468414e-2,
    -5.374317243695259e-2,
    1.3331486284732819e-1,
    -3.333328366279602e-1,
)
_ERF = (
    -6.068946095183492e-4,
    5.002499092370272e-3,
    -2.6767468079924583e-2,
    1.1281602829694748e-1,
    -3.761242628097534e-1,
    1.2837916709551256e-1,
)
_ERFC = (
    3.5765934735536575e-2,
    -1.9102586805820465e-1,
    3.8139837980270386e-1,
    -2.895573377609253e-1,
    -2.1996021270751953e-2,
    3.5430289804935455e-2,
    5.486685782670975e-2,
    1.855982393026352e-1,
    2.4517855048179626e-1,
    2.822524607181549e-1,
    2.820885181427002e-1,
)
_LOG2_E = float.fromhex("0x1.715476p+0")
_LN2_HIGH = float.fromhex("0x1.62e430p-1")
_LN2_LOW = float.fromhex("-0x1.05c610p-29")
_ROUND = float.fromhex("0x1.8p+23")
_ROUND_BITS = np.uint32(0x4B400000)

ONE = np.float32(1)
TWO = np.float32(2)


def _horner(x: F32, coefficients: tuple[float, ...]) -> F32:
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = fma32(value, x, coefficient)
    return value


def _power_of_two(exponent: np.ndarray) -> F32:
    return (exponent << np.uint32(23)).view(np.float32)


def exp(x: ArrayLike) -> F32:
    """e to the x: within 2 ulp, 0 from about -104 down, infinity from about 88.73 up."""
    x = np.asarray(x, np.float32)
    with quiet():
        x = np.where(x > 89, np.float32(89), x)
        x = np.where(x < -104, np.float32(-104), x)
        shifted = fma32(x, _LOG2_E, _ROUND)
        n = shifted - np.float32(_ROUND)
        r = fma32(n, -_LN2_HIGH, x)
        r = fma32(n, -_LN2_LOW, r)
        e = fma32(_horner(r, _EXP), r * r, r) + ONE
        power = shifted.view(np.uint32) - _ROUND_BITS + np.uint32(512)
        half = power >> np.uint32(1)
        low = _power_of_two(half - np.uint32(256 - 127))
        high = _power_of_two(power - half - np.uint32(256 - 127))
        return e * low * high


def tanh(x: ArrayLike) -> F32:
    """Hyperbolic tangent, relatively accurate near zero; keeps the sign of zero."""
    x = np.asarray(x, np.float32)
    with quiet():
        a, u = np.abs(x), x * x
        near = fma32(_horner(u, _TANH) * u, a, a)
        far = ONE - TWO / (exp(a + a) + ONE)
        return np.copysign(np.where(a < np.float32(0.625), near, far), x).astype(np.float32)


def sigmoid(x: ArrayLike) -> F32:
    """1 / (1 + exp(-x)), relatively accurate on both sides."""
    x = np.asarray(x, np.float32)
    with quiet():
        e = exp(-np.abs(x))
        return np.asarray(np.where(x < 0, e, ONE) / (e + ONE), np.float32)


def silu(x: ArrayLike) -> F32:
    """x sigmoid(x)."""
    x = np.asarray(x, np.float32)
    with quiet():
        return x * sigmoid(x)


def gelu_tanh(x: ArrayLike) -> F32:
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2."""
    x = np.asarray(x, np.float32)
    with quiet():
        cubic = fma32(x * x, 0.044715, ONE) * x
        return x * sigmoid(cubic * np.float32(1.5957691216057308))


def _erfc_positive(a: F32) -> F32:
    t = TWO / (a + TWO)
    square = a * a
    rest = fma32(a, a, -square)
    e = exp(-square)
    return np.asarray(fma32(-e, rest, e) * (_horner(t, _ERFC) * t), np.float32)


def erf(x: ArrayLike) -> F32:
    """The error function, relatively accurate near zero."""
    x = np.asarray(x, np.float32)
    with quiet():
        a, u = np.abs(x), x * x
        near = fma32(_horner(u, _ERF), a, a)
        far = ONE - _erfc_positive(np.where(a > 5, np.float32(5), a))
        return np.copysign(np.where(a < np.float32(0.8), near, far), x).astype(np.float32)


def gelu_erf(x: ArrayLike) -> F32:
    """x (1 + erf(x / sqrt 2)) / 2."""
    x = np.asarray(x, np.float32)
    with quiet():
        a = np.abs(x) * np.float32(0.70710678118654752)
        c = _erfc_positive(np.where(a > 11, np.float32(11), a))
        return np.asarray(x * np.float32(0.5) * np.where(x < 0, c, TWO - c), np.float32)


def rsqrt(x: ArrayLike) -> F32:
    """1 / sqrt(x), two roundings."""
    with quiet():
        return np.asarray(ONE / np.sqrt(np.asarray(x, np.float32)), np.float32)
