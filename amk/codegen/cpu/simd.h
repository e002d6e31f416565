/* Sixteen-lane float vectors: loads, stores, conversions, fused multiply-add, horizontal sums.
 *
 * Written with GNU vector types, so any target of gcc 12 or clang 15 and later works; narrower
 * machines split each vector into pieces and give the same bits. Compile with
 * -ffp-contract=off: only amk_fma16 and __builtin_fmaf may fuse. Machines without a fused
 * multiply-add need -lm. */
#ifndef AMK_SIMD_H
#define AMK_SIMD_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || (defined(__AVX__) && defined(__FMA__))
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define AMK_INLINE static inline __attribute__((always_inline, unused))

/* Put before a loop whose trip count is a constant once its function is inlined. */
#if defined(__clang__)
#define AMK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define AMK_UNROLL _Pragma("GCC unroll 64")
#endif

typedef float amk_v16 __attribute__((vector_size(64)));
typedef int32_t amk_i16 __attribute__((vector_size(64)));
typedef uint32_t amk_u16 __attribute__((vector_size(64)));
typedef uint16_t amk_h16 __attribute__((vector_size(32)));

/* Element types of weights and caches; a constant argument at every call. */
enum amk_dtype { AMK_F32 = 0, AMK_BF16 = 1, AMK_F16 = 2 };

AMK_INLINE long amk_dtype_size(int dtype) { return dtype == AMK_F32 ? 4 : 2; }

/* The address of element i of an array of dtype. */
AMK_INLINE const void *amk_at(const void *p, long i, int dtype) {
  return (const char *)p + i * amk_dtype_size(dtype);
}

AMK_INLINE amk_v16 amk_set16(float x) {
  return (amk_v16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}

/* a * b + c with one rounding in every lane. */
AMK_INLINE amk_v16 amk_fma16(amk_v16 a, amk_v16 b, amk_v16 c) {
#if defined(__AVX512F__)
  return (amk_v16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX__) && defined(__FMA__)
  union { amk_v16 v; __m256 h[2]; } p = {a}, q = {b}, r = {c};
  for (int i = 0; i < 2; i++) r.h[i] = _mm256_fmadd_ps(p.h[i], q.h[i], r.h[i]);
  return r.v;
#elif defined(__aarch64__)
  union { amk_v16 v; float32x4_t h[4]; } p = {a}, q = {b}, r = {c};
  for (int i = 0; i < 4; i++) r.h[i] = vfmaq_f32(r.h[i], p.h[i], q.h[i]);
  return r.v;
#else
  for (int i = 0; i < 16; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

/* a where the mask's lane is all ones, b where it is zero. */
AMK_INLINE amk_v16 amk_select16(amk_i16 mask, amk_v16 a, amk_v16 b) {
  return (amk_v16)(((amk_i16)a & mask) | ((amk_i16)b & ~mask));
}

/* The larger lane; a NaN on either side wins, and of equal values the first is kept. */
AMK_INLINE amk_v16 amk_max16(amk_v16 a, amk_v16 b) {
  return amk_select16((b > a) | (b != b), b, a);
}
AMK_INLINE float amk_max(float a, float b) { return (b > a || b != b) ? b : a; }

/* ---- scalar conversions ------------------------------------------------------------------ */

AMK_INLINE uint32_t amk_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  return u;
}
AMK_INLINE float amk_from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, 4);
  return x;
}

AMK_INLINE float amk_bf16_to_f32(uint16_t h) { return amk_from_bits((uint32_t)h << 16); }

/* Round to nearest even; a NaN stays one (its quiet bit is set, its sign and top bits kept). */
AMK_INLINE uint16_t amk_f32_to_bf16(float x) {
  uint32_t u = amk_bits(x);
  uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return (uint16_t)(x != x ? (u >> 16) | 0x40u : rounded);
}

/* Half to float in integer steps: shift the fields in place, then scale by 2^112, which is exact
 * and also normalises subnormals; infinities and NaNs get float's largest exponent instead. */
AMK_INLINE float amk_f16_to_f32(uint16_t h) {
  uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
  uint32_t finite = amk_bits(amk_from_bits(magnitude) * 0x1p112f);
  uint32_t u = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite;
  return amk_from_bits(u | (uint32_t)(h & 0x8000u) << 16);
}

/* Round to nearest even; NaN gives 0x7e00 with its sign. Adding 0.5 places a half subnormal's
 * last bit at the float's last bit, so the addition itself rounds it. */
AMK_INLINE uint16_t amk_f32_to_f16(float x) {
  uint32_t u = amk_bits(x), sign = (u >> 16) & 0x8000u;
  u &= 0x7fffffffu;
  uint32_t special = u > 0x7f800000u ? 0x7e00u : 0x7c00u;
  uint32_t subnormal = amk_bits(amk_from_bits(u) + 0.5f) - 0x3f000000u;
  uint32_t normal = (u - 0x38000000u + 0xfffu + ((u >> 13) & 1u)) >> 13;
  uint32_t h = u >= 0x47800000u ? special : u < 0x38800000u ? subnormal : normal;
  return (uint16_t)(h | sign);
}

/* Element i of an array of dtype, as float, and the store that rounds to dtype. */
AMK_INLINE float amk_get(const void *p, long i, int dtype) {
  const void *at = amk_at(p, i, dtype);
  if (dtype == AMK_F32) {
    float x;
    memcpy(&x, at, 4);
    return x;
  }
  uint16_t h;
  memcpy(&h, at, 2);
  return dtype == AMK_BF16 ? amk_bf16_to_f32(h) : amk_f16_to_f32(h);
}
AMK_INLINE void amk_put(void *p, long i, float x, int dtype) {
  void *at = (char *)p + i * amk_dtype_size(dtype);
  if (dtype == AMK_F32) {
    memcpy(at, &x, 4);
    return;
  }
  uint16_t h = dtype == AMK_BF16 ? amk_f32_to_bf16(x) : amk_f32_to_f16(x);
  memcpy(at, &h, 2);
}

/* ---- vector loads ------------------------------------------------------------------------ */

/* Zero-extends; gcc 12 splits the generic conversion of a 512-bit vector in two. */
AMK_INLINE amk_u16 amk_widen_bits(amk_h16 h) {
#if defined(__AVX512F__)
  return (amk_u16)_mm512_cvtepu16_epi32((__m256i)h);
#else
  return __builtin_convertvector(h, amk_u16);
#endif
}

AMK_INLINE amk_v16 amk_widen_bf16(amk_h16 h) { return (amk_v16)(amk_widen_bits(h) << 16); }

AMK_INLINE amk_v16 amk_widen_f16(amk_h16 h) {
#if defined(__AVX512F__)
  return (amk_v16)_mm512_cvtph_ps((__m256i)h);
#elif defined(__aarch64__)
  typedef _Float16 half16 __attribute__((vector_size(32)));
  return __builtin_convertvector((half16)h, amk_v16);
#else
  amk_u16 u = amk_widen_bits(h);
  amk_u16 magnitude = (u & 0x7fffu) << 13;
  amk_v16 finite = (amk_v16)magnitude * 0x1p112f;
  amk_v16 special = (amk_v16)(magnitude | 0x7f800000u);
  amk_v16 both = amk_select16((amk_i16)(magnitude >= 0x0f800000u), special, finite);
  return (amk_v16)((amk_u16)both | (u & 0x8000u) << 16);
#endif
}

/* Sixteen elements from any address, widened to float. */
AMK_INLINE amk_v16 amk_load16(const void *at, int dtype) {
  if (dtype == AMK_F32) {
    amk_v16 v;
    memcpy(&v, at, sizeof v);
    return v;
  }
  amk_h16 h;
  memcpy(&h, at, sizeof h);
  return dtype == AMK_BF16 ? amk_widen_bf16(h) : amk_widen_f16(h);
}

/* The first n < 16 elements, the other lanes +0; reads nothing past them. */
AMK_INLINE amk_v16 amk_load_tail(const void *at, long n, int dtype) {
  char padded[64] __attribute__((aligned(64))) = {0};
  memcpy(padded, at, (size_t)(n * amk_dtype_size(dtype)));
  return amk_load16(padded, dtype);
}

/* Asks the second-level cache for the 64 bytes at any address, soon to be read. */
AMK_INLINE void amk_prefetch(const void *at) { __builtin_prefetch(at, 0, 2); }

AMK_INLINE void amk_store16(float *at, amk_v16 v) { memcpy(at, &v, sizeof v); }
AMK_INLINE void amk_store_tail(float *at, long n, amk_v16 v) {
  memcpy(at, &v, (size_t)n * sizeof(float));
}

/* ---- horizontal sums --------------------------------------------------------------------- */

/* Adjacent pairwise tree: ((l0+l1)+(l2+l3)) + ((l4+l5)+(l6+l7)) and so on. */
AMK_INLINE float amk_hsum16(amk_v16 v) {
  v += __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
  v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  return v[0];
}

/* The same tree for max. */
AMK_INLINE float amk_hmax16(amk_v16 v) {
  float t[16];
  memcpy(t, &v, sizeof t);
  AMK_UNROLL
  for (int step = 1; step < 16; step *= 2)
    for (int i = 0; i < 16; i += 2 * step) t[i] = amk_max(t[i], t[i + step]);
  return t[0];
}

/* Neighbouring lanes added, a's pairs then b's within every quarter of the vector. */
AMK_INLINE amk_v16 amk_pair_lanes(amk_v16 a, amk_v16 b) {
  return __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
         __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
}

/* Neighbouring quarters added, a's two sums in front of b's. */
AMK_INLINE amk_v16 amk_pair_quarters(amk_v16 a, amk_v16 b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
         __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}

/* Lane i of the result is amk_hsum16(v[i]), bit for bit, for sixteen vectors at once. */
AMK_INLINE amk_v16 amk_hsum16x16(const amk_v16 *v) {
  amk_v16 quads[4];
  AMK_UNROLL
  for (int i = 0; i < 4; i++)
    quads[i] = amk_pair_lanes(amk_pair_lanes(v[4 * i], v[4 * i + 1]),
                              amk_pair_lanes(v[4 * i + 2], v[4 * i + 3]));
  return amk_pair_quarters(amk_pair_quarters(quads[0], quads[1]),
                           amk_pair_quarters(quads[2], quads[3]));
}

#endif
