"""The C snippets of the native target against their numpy mirror, bit for bit."""

import ctypes
import math
import mmap
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import amk.codegen.cpu
from amk.interpreters import numerics
from amk.ring import ring_slot

HEADERS = Path(amk.codegen.cpu.__file__).parent
FLAGS = "-O3 -march=native -std=gnu11 -ffp-contract=off -fno-math-errno -shared -fPIC -pthread"
UNARY = ("exp", "tanh", "sigmoid", "silu", "gelu_tanh", "gelu_erf", "erf", "rsqrt")
DTYPES = {"f32": 0, "bf16": 1, "f16": 2}

HARNESS = """
#include "attention.h"
#include "matmul.h"
#include "reduce.h"
#define UNARY(f)                                                                       \\
  void f##_loop(float *y, const float *x, long n) {                                    \\
    for (long i = 0; i < n; i++) y[i] = amk_##f(x[i]);                                 \\
  }                                                                                    \\
  void f##_lanes(float *y, const float *x, long n) {                                   \\
    for (long i = 0; i < n; i += 16)                                                   \\
      amk_store16(y + i, amk_##f##16(amk_load16(x + i, AMK_F32)));                     \\
  }
UNARY(exp) UNARY(tanh) UNARY(sigmoid) UNARY(silu) UNARY(gelu_tanh) UNARY(gelu_erf) UNARY(erf)
UNARY(rsqrt)
void fma_loop(float *y, const float *a, const float *b, const float *c, long n) {
  for (long i = 0; i < n; i++) y[i] = amk_fma(a[i], b[i], c[i]);
}
void fma_lanes(float *y, const float *a, const float *b, const float *c, long n) {
  for (long i = 0; i < n; i += 16)
    amk_store16(y + i, amk_fma16(amk_load16(a + i, 0), amk_load16(b + i, 0), amk_load16(c + i, 0)));
}
#define BY_DTYPE(call)                                                                 \\
  if (dtype == AMK_F32) { enum { T = AMK_F32 }; call; }                                \\
  if (dtype == AMK_BF16) { enum { T = AMK_BF16 }; call; }                              \\
  if (dtype == AMK_F16) { enum { T = AMK_F16 }; call; }
void narrow(void *y, const float *x, long n, int dtype) {
  BY_DTYPE(for (long i = 0; i < n; i++) amk_put(y, i, x[i], T))
}
void widen(float *y, const void *x, long n, int dtype) {
  BY_DTYPE(for (long i = 0; i < n; i++) y[i] = amk_get(x, i, T))
}
void widen_lanes(float *y, const void *x, long n, int dtype) {
  long i = n / 16 * 16;
  BY_DTYPE(for (long j = 0; j < i; j += 16) amk_store16(y + j, amk_load16(amk_at(x, j, T), T));
           amk_store_tail(y + i, n - i, amk_load_tail(amk_at(x, i, T), n - i, T)))
}
void hsums(float *y, float *z, const float *x) {
  amk_v16 v[16];
  for (int i = 0; i < 16; i++) v[i] = amk_load16(x + 16 * i, AMK_F32), z[i] = amk_hsum16(v[i]);
  amk_store16(y, amk_hsum16x16(v));
}
void reduce(float *y, const float *x, long n) {
  y[0] = amk_row_sum(x, n), y[1] = amk_row_mean(x, n), y[2] = amk_row_max(x, n);
  y[3] = amk_row_sum_squares(x, n);
}
void partial_fixed(float *o, float *m, float *l, const float *q, const void *k, const void *v,
                   long past, long c) {
  amk_attention_partial(o, m, l, q, 192, k, 64, v, 64, AMK_BF16, past, 1, 3, 64, c, 256, 0,
                        0.125f, 0.0f, (amk_ring){0, 0, 0, 1L << 62});
}
void matmul_fixed(float *y, const float *x, const void *w, long S, int dtype) {
  if (S == 1) { BY_DTYPE(amk_matmul(y, 19, x, 45, w, T, 45, 1, 19, 45, 2)) }
  if (S == 7) { BY_DTYPE(amk_matmul(y, 19, x, 45, w, T, 45, 7, 19, 45, 2)) }
}
void combine(float *out, const float *o, const float *m, const float *l, long n, long H, long S,
             long G, long D, const float *sinks) {
  for (long h = 0; h < H; h++)
    amk_attention_combine(out, o, m, l, n, H, S, G, D, sinks, h, 1);
}
"""

ANY_SHAPE = """
void matmul(float *y, long ldy, const float *x, long ldx, const void *w, int dtype, long ldw,
            long S, long R, long K, int chains) {
  if (chains == 1) amk_matmul(y, ldy, x, ldx, w, AMK_F32, ldw, S, R, K, 1);
  if (chains == 2) { BY_DTYPE(amk_matmul(y, ldy, x, ldx, w, T, ldw, S, R, K, 2)) }
  if (chains == 4) amk_matmul(y, ldy, x, ldx, w, AMK_F32, ldw, S, R, K, 4);
}
void partial(float *o, float *m, float *l, const float *q, long ldq, const void *k, long ldk,
             const void *v, long ldv, int dtype, long past, long S, long G, long D, long c, long C,
             long window, float scale, float softcap, long ring, long sinks, long from, long to) {
  BY_DTYPE(amk_attention_partial(o, m, l, q, ldq, k, ldk, v, ldv, T, past, S, G, D, c, C, window,
                                 scale, softcap, ((amk_ring){ring, sinks, from, to})))
}
"""


def build(folder: Path, flags: str, source: str) -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    (folder / "harness.c").write_text(source)
    output = folder / "harness.so"
    command = [compiler, *flags.split(), f"-I{HEADERS}", str(folder / "harness.c")]
    subprocess.run([*command, "-o", str(output), "-lm"], check=True)
    return ctypes.CDLL(str(output))


@pytest.fixture(scope="module")
def lib(tmp_path_factory):
    return build(
        tmp_path_factory.mktemp("snippets"), f"{FLAGS} -Wall -Wextra -Werror", HARNESS + ANY_SHAPE
    )


def at(a):
    return None if a is None else ctypes.c_void_p(a.ctypes.data)


def call(function, *arguments):
    """Arrays go as pointers, ints as long, floats as float."""
    kinds = {int: ctypes.c_long, float: ctypes.c_float}
    function(
        *[at(a) if a is None or hasattr(a, "ctypes") else kinds[type(a)](a) for a in arguments]
    )


def same(got, want):
    """Equal bits, any NaN standing for every NaN."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    assert got.dtype == want.dtype == np.float32
    differ = (got.view(np.uint32) != want.view(np.uint32)) & ~(np.isnan(got) & np.isnan(want))
    assert not differ.any(), f"{differ.sum()} differ, first {got[differ][:4]} {want[differ][:4]}"


def every_float(step=1009):
    """A sample of all float32 bit patterns, special ones included, in a multiple of 16."""
    bits = np.arange(0, 1 << 32, step, dtype=np.uint64)[: (1 << 32) // step // 16 * 16]
    special = [0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000]
    special = np.array(special + [s | 1 << 31 for s in special], np.uint64)
    return np.concatenate([special, bits]).astype(np.uint32).view(np.float32)


def encode(x, dtype):
    return {"f32": x, "bf16": numerics.to_bf16_bits(x), "f16": numerics.to_f16_bits(x)}[dtype]


def decode(x, dtype):
    return {"f32": lambda a: a, "bf16": numerics.from_bf16_bits, "f16": numerics.from_f16_bits}[
        dtype
    ](x)


@pytest.mark.parametrize("name", UNARY)
def test_functions_match_the_mirror(lib, name):
    near = np.linspace(-110, 110, 400_000, dtype=np.float32)
    for x in (every_float(4099), near, near / 64):
        want = getattr(numerics, name)(x)
        for form in ("loop", "lanes"):
            got = np.empty_like(x)
            call(getattr(lib, f"{name}_{form}"), got, x, x.size)
            same(got, want)


def ulps(got, want):
    """Distance from float64 `want` in units of the float32 last place at it."""
    exponent = np.maximum(np.frexp(want)[1], -125)
    return np.abs(got.astype(np.float64) - want) / np.ldexp(1.0, exponent - 24)


def vector(function):
    return lambda x: np.array([function(v) for v in x])


def phi(x):
    return x * 0.5 * math.erfc(-x / math.sqrt(2))


def gelu_tanh_reference(x):
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return x / (1 + np.exp(-2 * u))


ACCURACY = [  # function, float64 reference, range, ulp allowed
    ("exp", np.exp, (-104, 88.7), 1.0),
    ("tanh", np.tanh, (-10, 10), 2.5),
    ("tanh", np.tanh, (-1e-3, 1e-3), 1.0),
    ("erf", vector(math.erf), (-5, 5), 2.0),
    ("erf", vector(math.erf), (-1e-3, 1e-3), 1.0),
    ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), (-87, 87), 3.0),
    ("silu", lambda x: x / (1 + np.exp(-x)), (-80, 80), 4.0),
    ("gelu_tanh", gelu_tanh_reference, (-3, 30), 16.0),
    ("gelu_erf", vector(phi), (-3, 30), 16.0),
    ("rsqrt", lambda x: 1 / np.sqrt(x), (1e-6, 1e6), 1.5),
]


@pytest.mark.parametrize(("name", "reference", "limits", "allowed"), ACCURACY)
def test_functions_are_accurate(name, reference, limits, allowed):
    x = np.random.default_rng(0).uniform(*limits, 100_000).astype(np.float32)
    assert ulps(getattr(numerics, name)(x), reference(x.astype(np.float64))).max() <= allowed


def test_limits_of_functions():
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    x = np.array([-inf, -105, 89, inf, nan, -0.0], np.float32)
    same(numerics.exp(x), np.array([0, 0, inf, inf, nan, 1], np.float32))
    same(numerics.tanh(x), np.array([-1, -1, 1, 1, nan, -0.0], np.float32))
    same(numerics.erf(x), np.array([-1, -1, 1, 1, nan, -0.0], np.float32))
    assert numerics.sigmoid(x)[0] == 0
    assert numerics.sigmoid(x)[3] == 1
    assert numerics.exp(88.72283) < inf
    assert numerics.exp(-103.9) > 0


def test_fma_rounds_once(lib):
    rng = np.random.default_rng(1)
    n = 1 << 20
    bits = rng.integers(0, 1 << 32, (3, n), dtype=np.uint64).astype(np.uint32)
    tight = bits & 0x807FF000 | rng.integers(100, 150, (3, n), dtype=np.uint32) << 23
    low = bits & 0x80FFF000 | rng.integers(32, 64, (3, n), dtype=np.uint32) << 23
    low[2] = bits[2] & 0x80FFFFFF  # products and sums among the subnormals
    for sample in (bits, tight, low):
        a, b, c = sample.view(np.float32)
        want = numerics.fma32(a, b, c)
        for form in ("loop", "lanes"):
            got = np.empty_like(a)
            call(getattr(lib, f"fma_{form}"), got, a, b, c, n)
            same(got, want)


@pytest.mark.parametrize(
    ("a", "b", "c", "want"),
    [
        # The exact sum is just above or below the middle of two floats; float64 rounds onto it.
        (1 + 2.0**-12, 1 + 2.0**-12, 2.0**-80, 1 + 2.0**-11 + 2.0**-23),
        (1 + 2.0**-12, 1 + 2.0**-12, -(2.0**-80), 1 + 2.0**-11),
        (2.0**-75, 2.0**-75, 2.0**-149, 2.0**-148),
        (2.0**-75, 2.0**-75, 0.0, 0.0),
        (1.5 * 2.0**-75, 2.0**-75, 0.0, 2.0**-149),
    ],
)
def test_fma_at_the_middle(a, b, c, want):
    assert numerics.fma32(a, b, c) == np.float32(want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_conversions(lib, dtype):
    x = every_float(997)
    code = DTYPES[dtype]
    narrow = np.zeros(x.size, np.uint32 if dtype == "f32" else np.uint16)
    call(lib.narrow, narrow, x, x.size, code)
    want = encode(x, dtype)
    numbers = ~np.isnan(x)
    assert (narrow.view(want.dtype)[numbers] == want[numbers]).all()
    assert np.isnan(decode(narrow.view(want.dtype), dtype)[~numbers]).all()
    if dtype != "f32":
        narrow = np.arange(1 << 16, dtype=np.uint16)
        x = np.empty(1 << 16, np.float32)
    for n in (x.size, x.size - 3):
        for function in (lib.widen, lib.widen_lanes):
            got = np.empty(n, np.float32)
            call(function, got, narrow, n, code)
            same(got, decode(narrow.view(want.dtype)[:n], dtype))


def test_bf16_rounding_agrees_with_arithmetic():
    x = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, 3.4e38], np.float32)
    want = np.array([1, 1 + 2.0**-6, 1 + 2.0**-7, np.inf], np.float32)
    assert (numerics.from_bf16_bits(numerics.to_bf16_bits(x)) == want).all()


def test_horizontal_sums_agree(lib):
    x = np.random.default_rng(2).standard_normal((16, 16)).astype(np.float32)
    y, z = np.empty(16, np.float32), np.empty(16, np.float32)
    call(lib.hsums, y, z, x)
    same(y, z)
    same(z, numerics.reduce_sum(x))


@given(st.integers(0, 200), st.integers(0, 2**32 - 1), st.sampled_from([None, np.nan, np.inf]))
@settings(max_examples=150, deadline=None)
def test_row_reductions(lib, n, seed, special):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n)).astype(np.float32)
    if special is not None and n:
        x[rng.integers(n)] = special
    x[rng.random(n) < 0.1] = -0.0
    got = np.empty(4, np.float32)
    call(lib.reduce, got, x, n)
    names = ("sum", "mean", "max", "sum_squares")
    same(got, np.array([getattr(numerics, f"reduce_{name}")(x) for name in names]))


def run_matmul(lib, x, ldx, w, dtype, ldw, rows, size, chains):
    tokens = x.shape[0]
    y = np.full((tokens, rows + 3), np.nan, np.float32)
    lengths = (DTYPES[dtype], ldw, tokens, rows, size, chains)
    call(lib.matmul, y, rows + 3, x, ldx, w, *lengths)
    assert np.isnan(y[:, rows:]).all()
    return y[:, :rows].copy()


@given(
    st.integers(1, 20),
    st.integers(1, 40),
    st.integers(1, 150),
    st.sampled_from([("f32", 1), ("f32", 2), ("bf16", 2), ("f16", 2), ("f32", 4)]),
    st.integers(0, 5),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=200, deadline=None)
def test_matmul(lib, tokens, rows, size, kind, gap, seed):
    dtype, chains = kind
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((tokens, size + gap)).astype(np.float32)
    w = rng.standard_normal((rows, size + gap)).astype(np.float32)
    w[rng.random(w.shape) < 0.05] *= 1e-20
    w[:, size:] = np.nan  # beyond a row's end: never used
    held = encode(w, dtype)
    got = run_matmul(lib, x, size + gap, held, dtype, size + gap, rows, size, chains)
    exact = decode(held, dtype)[:, :size]
    want = numerics.matmul(x[:, :size], exact, chains=chains)
    same(got, want)
    alone = [
        run_matmul(lib, x[s : s + 1], size + gap, held, dtype, size + gap, rows, size, chains)
        for s in range(tokens)
    ]
    same(np.concatenate(alone), want)
    reference = x[:, :size].astype(np.float64) @ exact.astype(np.float64).T
    assert np.allclose(want, reference, rtol=1e-4, atol=1e-4 * math.sqrt(size))


def test_matmul_order_is_the_documented_one():
    """Element by element, with nothing but scalar fma32 and the written order."""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((2, 1, 83)).astype(np.float32)
    for chains in (1, 2, 4):
        sums = np.zeros((chains, 16), np.float32)
        for k in range(96):
            a, b = (x[0, k], w[0, k]) if k < 83 else (0, 0)
            c = sums[k // 16 % chains, k % 16]
            sums[k // 16 % chains, k % 16] = numerics.fma32(b, a, c)
        while len(sums) > 1:
            sums = sums[0::2] + sums[1::2]
        lanes = sums[0]
        while len(lanes) > 1:
            lanes = lanes[0::2] + lanes[1::2]
        same(numerics.matmul(x, w, chains=chains)[0], lanes)


def run_partial(
    lib, q, k, v, dtype, past, c, chunk, window, scale, softcap, ring=(0, 0, 0, 1 << 62)
):
    tokens, heads, size = q.shape
    out = tuple(np.empty(s, np.float32) for s in (q.shape, q.shape[:2], q.shape[:2]))
    position = (past, tokens, heads, size, c, chunk, window, scale, softcap, *ring)
    stride = k.shape[1]
    call(lib.partial, *out, q, heads * size, k, stride, v, stride, DTYPES[dtype], *position)
    return out


@given(
    st.integers(0, 90), st.integers(1, 5), st.integers(1, 40), st.integers(0, 9), st.integers(0, 7),
    st.sampled_from(sorted(DTYPES)), st.sampled_from([16, 32, 64]), st.integers(0, 2**32 - 1),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_attention_over_a_ring(lib, past, tokens, window, extra, sinks, dtype, chunk, seed):
    """A ring of any length that outlasts the launch gives the bits of a cache with all rows, its
    sinks those of the first rows."""
    rng = np.random.default_rng(seed)
    rows, ring = past + tokens, sinks + window - 1 + tokens + extra
    q = rng.standard_normal((tokens, 2, 24)).astype(np.float32)
    k, v = (encode(a, dtype) for a in rng.standard_normal((2, rows, 24)).astype(np.float32))
    kept = []
    for whole in (k, v):
        held = encode(np.full((ring, 24), np.nan, np.float32), dtype)
        for j in range(rows):
            held[ring_slot(j, ring, sinks)] = whole[j]
        kept.append(held)
    if sinks:
        what, limits = (dtype, past, 0, chunk, 0, 0.5, 0.0), (0, sinks)
        got = run_partial(lib, q, *kept, *what, (ring, sinks, *limits))
        exact = numerics.attention_partial(
            q, decode(k, dtype), decode(v, dtype), past, *what[2:], limits=limits
        )
        for a, b in zip(got, exact, strict=True):
            same(a, b)
    for c in range(-(-rows // chunk)):
        what, limits = (dtype, past, c, chunk, window, 0.5, 0.0), (sinks, 1 << 62)
        got = run_partial(lib, q, *kept, *what, (ring, sinks, *limits))
        for a, b in zip(got, run_partial(lib, q, k, v, *what, (0, 0, *limits)), strict=True):
            same(a, b)


@given(
    st.integers(0, 90),
    st.integers(1, 5),
    st.sampled_from([1, 2, 3, 4, 7]),
    st.sampled_from([8, 16, 24, 64, 80, 128]),
    st.sampled_from(sorted(DTYPES)),
    st.sampled_from([16, 32, 64]),
    st.sampled_from([0, 1, 5, 16, 17, 40, 200]),
    st.sampled_from([0.0, 3.0]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=150, deadline=None)
def test_attention(lib, past, tokens, heads, size, dtype, chunk, window, softcap, sinks, seed):
    rng = np.random.default_rng(seed)
    rows, scale = past + tokens, float(np.float32(size**-0.5))
    q = (3 * rng.standard_normal((tokens, heads, size))).astype(np.float32)
    k, v = rng.standard_normal((2, rows, size + 4)).astype(np.float32)
    k, v = encode(k, dtype), encode(v, dtype)
    exact_k, exact_v = (decode(a, dtype)[:, :size] for a in (k, v))
    parts = []
    for c in range(-(-rows // chunk)):
        what = (c, chunk, window, scale, softcap)
        got = run_partial(lib, q, k, v, dtype, past, *what)
        want = numerics.attention_partial(q, exact_k, exact_v, past, *what)
        for g, w in zip(got, want, strict=True):
            same(g, w)
        for s in range(tokens):
            one = run_partial(lib, q[s : s + 1].copy(), k, v, dtype, past + s, *what)
            for a, b in zip(one, want, strict=True):
                same(a[0], b[s])
        parts.append(want)
    o, m, total = (np.stack([p[i] for p in parts])[:, None] for i in range(3))
    sink = rng.standard_normal(heads).astype(np.float32) if sinks else None
    out = np.empty((tokens, heads, size), np.float32)
    call(lib.combine, out, o, m, total, len(parts), 1, tokens, heads, size, sink)
    same(out, numerics.attention_combine(o, m, total, sink))
    reference = plain_attention(q, exact_k, exact_v, past, window, scale, softcap, sink)
    assert np.allclose(out, reference, rtol=2e-4, atol=2e-5)
    # A row's result does not change when later chunks, out of its sight, are added.
    first = past // chunk + 1
    alone = numerics.attention_combine(*(a[:first, :, :1] for a in (o, m, total)), sink)
    same(out[:1], alone)


def plain_attention(q, k, v, past, window, scale, softcap, sink):
    """Softmax attention in float64 with explicit masks."""
    tokens, heads, _ = q.shape
    score = np.einsum("sgd,nd->sgn", q, k, dtype=np.float64) * scale
    if softcap:
        score = np.tanh(score / softcap) * softcap
    p, j = past + np.arange(tokens)[:, None], np.arange(k.shape[0])
    hidden = (j > p) | ((j <= p - window) if window else False)
    score[np.broadcast_to(hidden[:, None], score.shape)] = -np.inf
    if sink is not None:
        column = np.broadcast_to(sink[None, :, None], (tokens, heads, 1))
        score = np.concatenate([score, column], axis=2)
    e = np.exp(score - score.max(axis=2, keepdims=True))
    return np.einsum("sgn,nd->sgd", (e / e.sum(axis=2, keepdims=True))[:, :, : k.shape[0]], v)


def test_attention_at_fixed_shapes(lib):
    """Constant shapes are unrolled and vectorised differently; the bits must not be."""
    check_fixed_attention(lib)


def check_fixed_attention(lib):
    rng = np.random.default_rng(4)
    q = rng.standard_normal((1, 3, 64)).astype(np.float32)
    k, v = numerics.to_bf16_bits(rng.standard_normal((2, 600, 64)))
    for past in (0, 15, 255, 256, 599):
        for c in range(3):
            got = tuple(np.empty(s, np.float32) for s in ((1, 3, 64), (1, 3), (1, 3)))
            call(lib.partial_fixed, *got, q, k, v, past, c)
            keys, values = numerics.from_bf16_bits(k), numerics.from_bf16_bits(v)
            want = numerics.attention_partial(q, keys, values, past, c, 256, 0, 0.125)
            for a, b in zip(got, want, strict=True):
                same(a, b)


def test_attention_survives_infinite_scores(lib):
    q, v = np.ones((1, 1, 16), np.float32), np.ones((4, 16), np.float32)
    k = np.zeros((4, 16), np.float32)
    for value in (np.nan, np.inf, -np.inf, 3e38):
        k[1] = value
        got = run_partial(lib, q, k, v, "f32", 3, 0, 16, 0, 1.0, 0.0)
        for a, b in zip(got, numerics.attention_partial(q, k, v, 3, 0, 16, 0, 1.0), strict=True):
            same(a, b)


def test_combination_passes_over_unseen_chunks(lib):
    """Chunks at minus infinity leave neither NaNs nor the sign of a zero behind."""
    rng = np.random.default_rng(5)
    o = rng.standard_normal((4, 2, 3, 2, 24)).astype(np.float32)
    m, total = rng.standard_normal((2, *o.shape[:-1])).astype(np.float32)
    m[1] = m[3, 0] = -np.inf
    o[1] = total[1] = np.nan
    o[..., 0] = -0.0
    o[3, 0], total[3, 0] = 0.0, 0.0
    for sink in (None, rng.standard_normal(4).astype(np.float32)):
        out = np.empty((3, 4, 24), np.float32)
        call(lib.combine, out, o, m, total, 4, 2, 3, 2, 24, sink)
        same(out, numerics.attention_combine(o, m, total, sink))
        same(out, numerics.attention_combine(o[[0, 2, 3]], m[[0, 2, 3]], total[[0, 2, 3]], sink))
        assert np.isfinite(out).all()


@pytest.fixture
def before_a_guard():
    """A function that copies an array so that it ends where readable memory ends."""
    libc, page, held = ctypes.CDLL(None, use_errno=True), mmap.PAGESIZE, []

    def place(a):
        room = -(-a.nbytes // page) * page
        memory = mmap.mmap(-1, room + page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        if libc.mprotect(ctypes.c_void_p(start + room), ctypes.c_size_t(page), 0):
            pytest.skip("mprotect refused")
        held.append((memory, start + room))
        copy = np.frombuffer(memory, a.dtype, a.size, room - a.nbytes).reshape(a.shape)
        copy[...] = a
        return copy

    yield place
    for _, guard in held:
        libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_is_read_past_the_end(lib, before_a_guard, dtype):
    rng = np.random.default_rng(6)
    for size in (7, 16, 40, 77):
        x = before_a_guard(rng.standard_normal((5, size)).astype(np.float32))
        w = before_a_guard(encode(rng.standard_normal((19, size)).astype(np.float32), dtype))
        for tokens in (1, 5):
            got = run_matmul(lib, x[5 - tokens :], size, w, dtype, size, 19, size, 2)
            same(got, numerics.matmul(x[5 - tokens :], decode(w, dtype)))
        q = before_a_guard(rng.standard_normal((1, 5, size)).astype(np.float32))
        for past in (0, 17, 31):
            keys = rng.standard_normal((past + 1, size)).astype(np.float32)
            k, v = (before_a_guard(encode(a, dtype)) for a in (keys, keys[::-1]))
            got = run_partial(lib, q, k, v, dtype, past, 0, 32, 0, 1.0, 0.0)
            want = numerics.attention_partial(q, decode(k, dtype), decode(v, dtype), past, 0, 32)
            for a, b in zip(got, want, strict=True):
                same(a, b)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86 machines")
@pytest.mark.parametrize("machine", [pytest.param("x86-64", marks=pytest.mark.slow), "x86-64-v3"])
def test_narrower_machines_give_the_same_bits(tmp_path, machine):
    if machine == "x86-64-v3" and "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("needs AVX2")
    narrow = build(tmp_path, f"{FLAGS.replace('native', machine)} -Wno-psabi", HARNESS)
    rng = np.random.default_rng(7)
    x = np.concatenate(
        [every_float(400_009)[:10_000], np.linspace(-90, 90, 6384, dtype=np.float32)]
    )
    for name in UNARY:
        for form in ("loop", "lanes"):
            got = np.empty_like(x)
            call(getattr(narrow, f"{name}_{form}"), got, x, x.size)
            same(got, getattr(numerics, name)(x))
    for dtype, code in DTYPES.items():
        a = rng.standard_normal((7, 45)).astype(np.float32)
        w = encode(rng.standard_normal((19, 45)).astype(np.float32), dtype)
        for tokens in (1, 7):
            got = np.empty((tokens, 19), np.float32)
            call(narrow.matmul_fixed, got, a, w, tokens, code)
            same(got, numerics.matmul(a[:tokens], decode(w, dtype)))
    check_fixed_attention(narrow)
