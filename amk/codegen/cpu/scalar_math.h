/* exp, tanh, sigmoid, silu, gelu, erf and rsqrt, for float and for sixteen lanes.
 *
 * Only IEEE add, multiply, divide, square root, fused multiply-add and integer operations on the
 * bits: numpy repeats every result bit for bit (amk/interpreters/numerics_math.py holds the same
 * formulas). Branch-free, so a loop over the scalar forms vectorises. Polynomials were fitted for
 * least relative error by reweighted least squares on Chebyshev nodes, coefficients rounded to
 * float one after another from the lowest. */
#ifndef AMK_SCALAR_MATH_H
#define AMK_SCALAR_MATH_H

#include "formulas.h"
#include "simd.h"

/* The primitives the formulas use, under one name for both widths (suffix empty or 16). */
AMK_INLINE float amk_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
AMK_INLINE float amk_set(float x) { return x; }
AMK_INLINE float amk_select(int mask, float a, float b) { return mask ? a : b; }
AMK_INLINE float amk_sqrt(float x) { return __builtin_sqrtf(x); }
AMK_INLINE uint32_t amk_word(float x) { return amk_bits(x); }
AMK_INLINE float amk_unword(uint32_t u) { return amk_from_bits(u); }
AMK_INLINE amk_u16 amk_word16(amk_v16 x) { return (amk_u16)x; }
AMK_INLINE amk_v16 amk_unword16(amk_u16 u) { return (amk_v16)u; }
AMK_INLINE amk_v16 amk_sqrt16(amk_v16 x) {
  AMK_UNROLL
  for (int i = 0; i < 16; i++) x[i] = __builtin_sqrtf(x[i]);
  return x;
}

AMK_MATH(float, uint32_t, )
AMK_MATH(amk_v16, amk_u16, 16)

#endif
