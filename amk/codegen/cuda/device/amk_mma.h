/* y = x Wᵀ for chunks of sixteen tokens by matrix instructions, eight rows of W a warp.
 *
 * x is split into two halves of W's format, x = high + low with an error of about 2^-17 of it, and
 * both are multiplied: the product keeps fp32 inputs nearly exact and costs nothing where weights
 * are what is waited for. The sum's order inside an instruction is the hardware's own. */
#ifndef AMK_MMA_H
#define AMK_MMA_H

#include "amk_matmul.h"

template <int T>
AMK_INLINE uint16_t amk_narrow(float x) {
  return T == AMK_BF16 ? amk_f32_to_bf16(x) : amk_f32_to_f16(x);
}
template <int T>
AMK_INLINE float amk_widen(uint16_t x) {
  return T == AMK_BF16 ? amk_bf16_to_f32(x) : amk_f16_to_f32(x);
}

/* A pair of neighbours as high and low words. */
template <int T>
AMK_INLINE void amk_split(uint32_t &high, uint32_t &low, float a, float b) {
  uint16_t x = amk_narrow<T>(a), y = amk_narrow<T>(b);
  high = x | (uint32_t)y << 16;
  low = amk_narrow<T>(a - amk_widen<T>(x)) | (uint32_t)amk_narrow<T>(b - amk_widen<T>(y)) << 16;
}

/* y [tokens, rows] += ..., K a multiple of 32. A step of 32 elements is two instructions: lane t holds
 * elements 8 (t % 4) and on of its token and of its row of W, so both sides load 16 bytes; which of
 * them an instruction calls column c matters to nobody, as long as x and W agree. */
template <int T, int K, int TOKENS>
AMK_INLINE void amk_matmul_mma(const amk_worker &w, float *y, const float *x, int ldx,
                               const uint8_t *weight, int rows) {
  const int at = w.lane % 4 * 8, row = w.lane / 4;
  for (int r = w.warp * 8; r < rows; r += AMK_WARPS * 8) {
    const bool there = r + row < rows;
    const uint8_t *from = weight + (long)(there ? r + row : 0) * K * 2;
    for (int s = 0; s < TOKENS; s += 16) {
      const float *x0 = x + (long)(s + row) * ldx, *x1 = x0 + 8L * ldx;
      float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 2
      for (int k = at; k < K; k += 32) {
        amk_u4 b = amk_load_weight(from + k * 2);
        float a0[8], a1[8];
        amk_take4(a0, x0 + k), amk_take4(a0 + 4, x0 + k + 4);
        amk_take4(a1, x1 + k), amk_take4(a1 + 4, x1 + k + 4);
        AMK_UNROLL
        for (int half = 0; half < 2; half++) {
          const int i = half * 4;
          uint32_t high[4], low[4];
          amk_split<T>(high[0], low[0], a0[i], a0[i + 1]);
          amk_split<T>(high[1], low[1], a1[i], a1[i + 1]);
          amk_split<T>(high[2], low[2], a0[i + 2], a0[i + 3]);
          amk_split<T>(high[3], low[3], a1[i + 2], a1[i + 3]);
          const uint32_t words[2] = {half ? b.z : b.x, half ? b.w : b.y};
          if (T == AMK_BF16) {
            amk_mma_bf16(d, low, words);
            amk_mma_bf16(d, high, words);
          } else {
            amk_mma_f16(d, low, words);
            amk_mma_f16(d, high, words);
          }
        }
      }
      AMK_UNROLL
      for (int i = 0; i < 4; i++) {
        const int column = r + w.lane % 4 * 2 + i % 2;
        if (column < rows) y[(s + row + i / 2 * 8) * rows + column] = d[i];
      }
    }
  }
}

#endif
