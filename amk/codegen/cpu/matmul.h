/* y = x wᵀ with the reduction order #mk.reduction<lanes = 16, chains = C>, C a power of two.
 *
 * Element k of a row goes to lane k % 16 of chain (k / 16) % C. A chain is fma(w, x, sum) in
 * increasing k, from +0; a last partial vector is filled with zeros. Chains are added pairwise in
 * adjacent order, then lanes likewise. The order of one output never depends on how many rows or
 * tokens are computed with it, so the blocking below is free to follow the cache. */
#ifndef AMK_MATMUL_H
#define AMK_MATMUL_H

#include "simd.h"

#define AMK_MAX_CHAINS 4
/* A register block of several tokens: with two chains 2 x 6 keeps 24 sums in registers. */
#ifndef AMK_BLOCK_ROWS
#define AMK_BLOCK_ROWS 2
#define AMK_BLOCK_TOKENS 6
#endif

/* One step of every chain sum of a block: vector `step` of each row and each token. */
AMK_INLINE void amk_dot_step(amk_v16 *acc, const float *x, long ldx, const void *w, long ldw,
                             int dtype, long k, long n, int chain, int chains, int rows,
                             int tokens) {
  amk_v16 wv[AMK_BLOCK_ROWS];
  AMK_UNROLL
  for (int r = 0; r < rows; r++) {
    const void *at = amk_at(w, r * ldw + k, dtype);
    wv[r] = n == 16 ? amk_load16(at, dtype) : amk_load_tail(at, n, dtype);
  }
  AMK_UNROLL
  for (int t = 0; t < tokens; t++) {
    const float *at = x + t * ldx + k;
    amk_v16 xv = n == 16 ? amk_load16(at, AMK_F32) : amk_load_tail(at, n, AMK_F32);
    AMK_UNROLL
    for (int r = 0; r < rows; r++) {
      amk_v16 *sum = &acc[(t * rows + r) * chains + chain];
      *sum = amk_fma16(wv[r], xv, *sum);
    }
  }
}

/* sums[t * rows + r] = the sixteen lane sums of token t with row r, chains already added. */
AMK_INLINE void amk_dot_block(amk_v16 *sums, const float *x, long ldx, const void *w, long ldw,
                              int dtype, long K, int chains, int rows, int tokens) {
  amk_v16 acc[AMK_BLOCK_ROWS * AMK_BLOCK_TOKENS * AMK_MAX_CHAINS];
  AMK_UNROLL
  for (int i = 0; i < rows * tokens * chains; i++) acc[i] = (amk_v16){0};
  long k = 0;
  for (; k + 16 * chains <= K; k += 16 * chains) {
    AMK_UNROLL
    for (int c = 0; c < chains; c++)
      amk_dot_step(acc, x, ldx, w, ldw, dtype, k + 16 * c, 16, c, chains, rows, tokens);
  }
  AMK_UNROLL
  for (int c = 0; c < chains; c++) {
    long at = k + 16 * c;
    if (at + 16 <= K)
      amk_dot_step(acc, x, ldx, w, ldw, dtype, at, 16, c, chains, rows, tokens);
    else if (at < K)
      amk_dot_step(acc, x, ldx, w, ldw, dtype, at, K - at, c, chains, rows, tokens);
  }
  AMK_UNROLL
  for (int i = 0; i < rows * tokens; i++) {
    amk_v16 *chain = acc + i * chains;
    AMK_UNROLL
    for (int step = 1; step < AMK_MAX_CHAINS; step *= 2) {
      AMK_UNROLL
      for (int c = 0; c + step < chains; c += 2 * step) chain[c] += chain[c + step];
    }
    sums[i] = chain[0];
  }
}

/* One token: rows stream by one after another, since hardware prefetch follows one stream better
 * than several (about twice the bandwidth of four rows together on a Zen 4). */
AMK_INLINE void amk_matvec(float *y, const float *x, const void *w, int dtype, long ldw, long R,
                           long K, int chains) {
  amk_v16 sums[16];
  for (long r = 0; r < R / 16 * 16; r += 16) {
    for (int i = 0; i < 16; i++)
      amk_dot_block(sums + i, x, 0, amk_at(w, (r + i) * ldw, dtype), ldw, dtype, K, chains, 1, 1);
    amk_store16(y + r, amk_hsum16x16(sums));
  }
  for (long i = 0; i < R % 16; i++) {
    long r = R / 16 * 16 + i;
    amk_dot_block(sums, x, 0, amk_at(w, r * ldw, dtype), ldw, dtype, K, chains, 1, 1);
    y[r] = amk_hsum16(sums[0]);
  }
}

/* A block of tokens against all rows, two rows at a time. */
AMK_INLINE void amk_matmul_block(float *y, long ldy, const float *x, long ldx, const void *w,
                                 int dtype, long ldw, long rows, long K, int chains, int tokens) {
  amk_v16 sums[16];
  float out[16];
  amk_dot_block(sums, x, ldx, w, ldw, dtype, K, chains, rows, tokens);
  for (int i = (int)rows * tokens; i < 16; i++) sums[i] = (amk_v16){0};
  amk_store16(out, amk_hsum16x16(sums));
  AMK_UNROLL
  for (int t = 0; t < tokens; t++) {
    AMK_UNROLL
    for (int r = 0; r < rows; r++) y[t * ldy + r] = out[t * rows + r];
  }
}

/* All tokens against `rows` rows, which stay in the first-level cache meanwhile; the next rows are
 * fetched during the work on these. */
AMK_INLINE void amk_matmul_rows(float *y, long ldy, const float *x, long ldx, const void *w,
                                int dtype, long ldw, long S, long rows, long K, int chains) {
  long s = 0;
  for (long r = rows; r < 2 * rows; r++)
    for (long k = 0; k < K; k += 64 / amk_dtype_size(dtype))
      amk_prefetch(amk_at(w, r * ldw + k, dtype));
  for (; s + AMK_BLOCK_TOKENS <= S; s += AMK_BLOCK_TOKENS)
    amk_matmul_block(y + s * ldy, ldy, x + s * ldx, ldx, w, dtype, ldw, rows, K, chains,
                     AMK_BLOCK_TOKENS);
  for (; s + 4 <= S; s += 4)
    amk_matmul_block(y + s * ldy, ldy, x + s * ldx, ldx, w, dtype, ldw, rows, K, chains, 4);
  for (; s < S; s++)
    amk_matmul_block(y + s * ldy, ldy, x + s * ldx, ldx, w, dtype, ldw, rows, K, chains, 1);
}

/* y[s * ldy + r] = dot(row s of x, row r of w), s < S, r < R.
 * x is f32 [S][ldx]; w is [R][ldw] of dtype; strides in elements; y, x, w may have any alignment
 * and must not overlap. Reads exactly K elements of a row. */
AMK_INLINE void amk_matmul(float *y, long ldy, const float *x, long ldx, const void *w, int dtype,
                           long ldw, long S, long R, long K, int chains) {
  if (S == 1) {
    amk_matvec(y, x, w, dtype, ldw, R, K, chains);
    return;
  }
  long paired = R / AMK_BLOCK_ROWS * AMK_BLOCK_ROWS;
  for (long r = 0; r < paired; r += AMK_BLOCK_ROWS)
    amk_matmul_rows(y + r, ldy, x, ldx, amk_at(w, r * ldw, dtype), dtype, ldw, S, AMK_BLOCK_ROWS,
                    K, chains);
  for (long i = 0; i < R % AMK_BLOCK_ROWS; i++)
    amk_matmul_rows(y + paired + i, ldy, x, ldx, amk_at(w, (paired + i) * ldw, dtype), dtype, ldw,
                    S, 1, K, chains);
}

#endif
