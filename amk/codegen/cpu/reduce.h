/* Reductions of one row in the order #mk.reduction<lanes = 16, chains = 1>: element k goes to lane
 * k % 16, lanes start from +0 (from minus infinity for max) and grow in increasing k, a last
 * partial vector is filled with that start value, then lanes are combined pairwise in adjacent
 * order. */
#ifndef AMK_REDUCE_H
#define AMK_REDUCE_H

#include "simd.h"

AMK_INLINE float amk_row_sum(const float *x, long n) {
  amk_v16 sum = {0};
  for (long k = 0; k < n / 16 * 16; k += 16) sum += amk_load16(x + k, AMK_F32);
  if (n % 16) sum += amk_load_tail(x + n / 16 * 16, n % 16, AMK_F32);
  return amk_hsum16(sum);
}

AMK_INLINE float amk_row_mean(const float *x, long n) { return amk_row_sum(x, n) / (float)n; }

/* The sum of x * x, each square rounded before it is added. */
AMK_INLINE float amk_row_sum_squares(const float *x, long n) {
  amk_v16 sum = {0};
  for (long k = 0; k < n / 16 * 16; k += 16) {
    amk_v16 v = amk_load16(x + k, AMK_F32);
    sum += v * v;
  }
  if (n % 16) {
    amk_v16 v = amk_load_tail(x + n / 16 * 16, n % 16, AMK_F32);
    sum += v * v;
  }
  return amk_hsum16(sum);
}

/* The largest element; NaN if the row holds one, minus infinity for an empty row. */
AMK_INLINE float amk_row_max(const float *x, long n) {
  amk_v16 top = amk_set16(-__builtin_inff());
  for (long k = 0; k < n / 16 * 16; k += 16) top = amk_max16(top, amk_load16(x + k, AMK_F32));
  if (n % 16) {
    amk_v16 last = amk_set16(-__builtin_inff());
    memcpy(&last, x + n / 16 * 16, (size_t)(n % 16) * sizeof(float));
    top = amk_max16(top, last);
  }
  return amk_hmax16(top);
}

/* The lowest index of the largest of n elements; a NaN is larger than any number. */
AMK_INLINE long amk_row_argmax(const float *x, long n) {
  const float top = amk_row_max(x, n);
  long i = 0;
  if (top != top)
    while (x[i] == x[i]) i++;
  else
    while (x[i] != top) i++;
  return i;
}

#endif
