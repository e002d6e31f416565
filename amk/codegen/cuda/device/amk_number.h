/* Numbers: storage formats, elementary functions, sums in the order of #mk.reduction. */
#ifndef AMK_NUMBER_H
#define AMK_NUMBER_H

#include "amk_worker.h"

enum { AMK_F32 = 0, AMK_BF16 = 1, AMK_F16 = 2, AMK_I8 = 3 };

/* ---- elementary functions: the formulas every target shares ---- */

AMK_INLINE float amk_set(float x) { return x; }
AMK_INLINE float amk_select(bool mask, float a, float b) { return mask ? a : b; }
AMK_INLINE uint32_t amk_word(float x) { return amk_bits(x); }
AMK_INLINE float amk_unword(uint32_t u) { return amk_from_bits(u); }
/* The larger; a NaN on either side wins, and of equal values the first is kept. */
AMK_INLINE float amk_max(float a, float b) { return (b > a || b != b) ? b : a; }

#include "formulas.h"
AMK_MATH(float, uint32_t, )

/* ---- index arithmetic ---- */

AMK_INLINE long amk_floordiv(long a, long b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
AMK_INLINE long amk_minl(long a, long b) { return a < b ? a : b; }
AMK_INLINE long amk_maxl(long a, long b) { return a > b ? a : b; }

/* ---- storage formats ---- */

AMK_INLINE float amk_bf16_to_f32(uint16_t h) { return amk_from_bits((uint32_t)h << 16); }
AMK_INLINE uint16_t amk_f32_to_bf16(float x) {
  uint32_t u = amk_bits(x);
  uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return (uint16_t)(x != x ? (u >> 16) | 0x40u : rounded);
}
/* The fields shifted in place and scaled by 2^112, exactly; infinities and NaNs apart. */
AMK_INLINE float amk_f16_to_f32(uint16_t h) {
  uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
  uint32_t finite = amk_bits(amk_from_bits(magnitude) * 0x1p112f);
  uint32_t u = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite;
  return amk_from_bits(u | (uint32_t)(h & 0x8000u) << 16);
}
AMK_INLINE uint16_t amk_f32_to_f16(float x) {
  uint32_t u = amk_bits(x), sign = (u >> 16) & 0x8000u;
  u &= 0x7fffffffu;
  uint32_t special = u > 0x7f800000u ? 0x7e00u : 0x7c00u;
  uint32_t subnormal = amk_bits(amk_from_bits(u) + 0.5f) - 0x3f000000u;
  uint32_t normal = (u - 0x38000000u + 0xfffu + ((u >> 13) & 1u)) >> 13;
  uint32_t h = u >= 0x47800000u ? special : u < 0x38800000u ? subnormal : normal;
  return (uint16_t)(h | sign);
}

/* The nearest whole number, to even, within [-127, 127]: beyond 2^23 a float has no fraction. */
AMK_INLINE signed char amk_f32_to_i8(float x) {
  const float low = x > -127.0f ? x : -127.0f, clipped = low < 127.0f ? low : 127.0f;
  const float shifted = clipped + 0x1.8p23f;
  return (signed char)(shifted - 0x1.8p23f);
}

template <int T>
AMK_INLINE float amk_get(const void *p, long i) {
  if (T == AMK_F32) return ((const float *)p)[i];
  if (T == AMK_I8) return (float)((const signed char *)p)[i];
  uint16_t h = ((const uint16_t *)p)[i];
  return T == AMK_BF16 ? amk_bf16_to_f32(h) : amk_f16_to_f32(h);
}
template <int T>
AMK_INLINE void amk_put(void *p, long i, float x) {
  if (T == AMK_F32)
    ((float *)p)[i] = x;
  else if (T == AMK_I8)
    ((signed char *)p)[i] = amk_f32_to_i8(x);
  else
    ((uint16_t *)p)[i] = T == AMK_BF16 ? amk_f32_to_bf16(x) : amk_f32_to_f16(x);
}
template <int T>
AMK_INLINE const uint8_t *amk_at(const void *p, long i) {
  return (const uint8_t *)p + i * (T == AMK_F32 ? 4 : T == AMK_I8 ? 1 : 2);
}

/* Elements that 16 bytes hold, and their unpacking. */
template <int T>
struct amk_pack { static const int size = T == AMK_F32 ? 4 : 8; };

template <int T>
AMK_INLINE void amk_unpack(float *out, const amk_u4 &v) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
  AMK_UNROLL
  for (int i = 0; i < 4; i++) {
    if (T == AMK_F32) {
      out[i] = amk_from_bits(words[i]);
    } else if (T == AMK_BF16) {
      out[2 * i] = amk_from_bits(words[i] << 16);
      out[2 * i + 1] = amk_from_bits(words[i] & 0xffff0000u);
    } else {
      out[2 * i] = amk_f16_to_f32((uint16_t)words[i]);
      out[2 * i + 1] = amk_f16_to_f32((uint16_t)(words[i] >> 16));
    }
  }
}

/* ---- sums over the block: lanes = AMK_COMPUTE, one lane a thread ---- */

/* Adjacent pairs of AMK_WARPS values. */
AMK_INLINE float amk_tree(const float *x) {
  float t[AMK_WARPS];
  AMK_UNROLL
  for (int i = 0; i < AMK_WARPS; i++) t[i] = x[i];
  AMK_UNROLL
  for (int n = AMK_WARPS / 2; n > 0; n /= 2) {
    AMK_UNROLL
    for (int i = 0; i < n; i++) t[i] = t[2 * i] + t[2 * i + 1];
  }
  return t[0];
}

/* The two sets of `sums` are used in turn: one barrier between a write and its reads also lies
 * between those reads and the next write to the same set. */
AMK_INLINE float amk_block_sum(amk_worker &w, float x) {
  float *sums = w.sums + (w.turn ^= 1) * AMK_WARPS;
  x = amk_warp_sum(x);
  if (w.lane == 0) sums[w.warp] = x;
  amk_sync(w);
  return amk_tree(sums);
}
AMK_INLINE float amk_warp_max(float x, int from = 1) {
  AMK_UNROLL
  for (int mask = 1; mask < 32; mask *= 2)
    if (mask >= from) x = amk_max(x, amk_shuffle_xor(x, mask));
  return x;
}
AMK_INLINE float amk_block_max(amk_worker &w, float x) {
  float *sums = w.sums + (w.turn ^= 1) * AMK_WARPS;
  x = amk_warp_max(x);
  if (w.lane == 0) sums[w.warp] = x;
  amk_sync(w);
  x = sums[0];
  AMK_UNROLL
  for (int i = 1; i < AMK_WARPS; i++) x = amk_max(x, sums[i]);
  return x;
}

/* The largest element of a row and the lowest index at which it stands; a NaN is larger than any
 * number. `sums` holds the values and, behind both of its sets, the places. */
struct amk_best { float value; int at; };

AMK_INLINE bool amk_better(const amk_best &a, const amk_best &b) {
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  if (a_nan != b_nan) return b_nan;
  if (a_nan || a.value == b.value) return b.at < a.at;
  return b.value > a.value;
}
AMK_INLINE amk_best amk_block_best(amk_worker &w, amk_best x) {
  float *values = w.sums + (w.turn ^= 1) * AMK_WARPS;
  int *places = (int *)(values + 2 * AMK_WARPS);
  AMK_UNROLL
  for (int mask = 1; mask < 32; mask *= 2) {
    const amk_best y = {amk_shuffle_xor(x.value, mask),
                        (int)amk_bits(amk_shuffle_xor(amk_from_bits(x.at), mask))};
    if (amk_better(x, y)) x = y;
  }
  if (w.lane == 0) values[w.warp] = x.value, places[w.warp] = x.at;
  amk_sync(w);
  x = amk_best{values[0], places[0]};
  AMK_UNROLL
  for (int i = 1; i < AMK_WARPS; i++) {
    const amk_best y = {values[i], places[i]};
    if (amk_better(x, y)) x = y;
  }
  return x;
}

#endif
