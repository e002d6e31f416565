/* y = x Wᵀ, a warp a row of W, in the order #mk.reduction<lanes = 32 V, chains = 1>: V elements are
 * 16 bytes, a thread's lanes are neighbours, so its loads are whole vectors and adjacent pairwise
 * sums run first inside a thread and then across the warp.
 *
 * x lies in shared memory, or for long rows of a chunk in global memory, as [tokens, ld] floats; a
 * "dealt" row holds the first four elements of every thread's eight before the second four, block
 * by block, so that the warp reads whole lines without bank conflicts (`amk_dealt`). */
#ifndef AMK_MATMUL_H
#define AMK_MATMUL_H

#include "amk_number.h"

/* Where element k of a dealt row stands. */
AMK_INLINE long amk_dealt(long k) {
  return (k & ~255L) + ((k >> 2) & 1) * 128 + ((k & 255) >> 3) * 4 + (k & 3);
}

struct __attribute__((aligned(16))) amk_f4 { float x, y, z, w; };

AMK_INLINE void amk_take4(float *out, const float *from) {
  amk_f4 v = *(const amk_f4 *)from;
  out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
}

/* The V elements of x that this thread multiplies in step `i`. */
template <int T>
AMK_INLINE void amk_take_x(float *out, const float *x, int i, int lane) {
  const int V = amk_pack<T>::size;
  amk_take4(out, x + i * 32 * V + lane * 4);
  if (V == 8) amk_take4(out + 4, x + i * 32 * V + 128 + lane * 4);
}

template <int T, bool IN_RING>
AMK_INLINE amk_u4 amk_take_w(const uint8_t *at) {
  return IN_RING ? *(const amk_u4 *)at : amk_load_weight(at);
}

/* One vector a thread of each row. */
template <int T, int ROWS, int BYTES, bool IN_RING>
AMK_INLINE void amk_dot_step(float (&sum)[ROWS][amk_pack<T>::size], const uint8_t *weight,
                             const float *x, int i, int lane) {
  const int V = amk_pack<T>::size;
  float xs[V], ws[V];
  amk_take_x<T>(xs, x, i, lane);
  AMK_UNROLL
  for (int r = 0; r < ROWS; r++) {
    amk_unpack<T>(ws, amk_take_w<T, IN_RING>(weight + r * BYTES + i * 512 + lane * 16));
    AMK_UNROLL
    for (int v = 0; v < V; v++) sum[r][v] = amk_fma(ws[v], xs[v], sum[r][v]);
  }
}

/* What a step with nothing but zeros does: a sum of minus zero becomes zero. */
template <int V, int ROWS>
AMK_INLINE void amk_add_zeros(float (&sum)[ROWS][V]) {
  AMK_UNROLL
  for (int r = 0; r < ROWS; r++) {
    AMK_UNROLL
    for (int v = 0; v < V; v++) sum[r][v] = sum[r][v] + 0.0f;
  }
}

/* Sums of ROWS rows of W, `row_bytes` apart, with one x; every lane gets them. */
template <int T, int K, int ROWS, bool IN_RING>
AMK_INLINE void amk_dot(float *y, const uint8_t *weight, const float *x, int lane) {
  const int V = amk_pack<T>::size, STEP = 32 * V, BYTES = K * (T == AMK_F32 ? 4 : 2);
  const bool WHOLE = K % V == 0; /* rows start at 16 bytes and end with a whole vector */
  float sum[ROWS][V];
  AMK_UNROLL
  for (int r = 0; r < ROWS; r++) {
    AMK_UNROLL
    for (int v = 0; v < V; v++) sum[r][v] = 0.0f;
  }
  if (WHOLE) {
#pragma unroll 4
    for (int i = 0; i < K / STEP; i++) amk_dot_step<T, ROWS, BYTES, IN_RING>(sum, weight, x, i, lane);
    if (K % STEP != 0) { /* a last vector across the warp is filled up with zeros */
      if (lane * V < K % STEP)
        amk_dot_step<T, ROWS, BYTES, IN_RING>(sum, weight, x, K / STEP, lane);
      else
        amk_add_zeros<V, ROWS>(sum);
    }
  } else {
    for (int k = 0; k < K; k += STEP) {
      AMK_UNROLL
      for (int r = 0; r < ROWS; r++) {
        AMK_UNROLL
        for (int v = 0; v < V; v++) {
          const int at = k + lane * V + v;
          const float xv = at < K ? x[V == 8 ? amk_dealt(at) : at] : 0.0f;
          const float wv = at < K ? amk_get<T>(weight + (long)r * BYTES, at) : 0.0f;
          sum[r][v] = amk_fma(wv, xv, sum[r][v]);
        }
      }
    }
  }
  AMK_UNROLL
  for (int r = 0; r < ROWS; r++) {
    AMK_UNROLL
    for (int n = V / 2; n > 0; n /= 2) {
      AMK_UNROLL
      for (int v = 0; v < n; v++) sum[r][v] = sum[r][2 * v] + sum[r][2 * v + 1];
    }
    y[r] = amk_warp_sum(sum[r][0]);
  }
}

/* Rows [0, rows) of W for all tokens, shared out among the compute warps UNIT by UNIT, going on with
 * the warp after the one that came last. */
template <int T, int K, int TOKENS, int UNIT, bool IN_RING>
AMK_INLINE void amk_rows(amk_worker &w, float *y, int ldy, const float *x, int ldx,
                         const uint8_t *weight, int rows) {
  const int BYTES = K * (T == AMK_F32 ? 4 : 2);
  float sum[UNIT];
  for (int r = ((w.warp - w.next) & (AMK_WARPS - 1)) * UNIT; r < rows; r += AMK_WARPS * UNIT) {
    const uint8_t *at = weight + (long)r * BYTES;
    for (int s = 0; s < TOKENS; s++) {
      if (UNIT == 1 || r + UNIT <= rows) {
        amk_dot<T, K, UNIT, IN_RING>(sum, at, x + s * ldx, w.lane);
        if (w.lane < UNIT) y[s * ldy + r + w.lane] = w.lane ? sum[UNIT - 1] : sum[0];
      } else {
        amk_dot<T, K, 1, IN_RING>(sum, at, x + s * ldx, w.lane);
        if (w.lane == 0) y[s * ldy + r] = sum[0];
      }
    }
  }
  w.next = (w.next + (rows + UNIT - 1) / UNIT) & (AMK_WARPS - 1);
}

/* y [tokens, rows] from weights in global memory. */
template <int T, int K, int TOKENS>
AMK_INLINE void amk_matmul(amk_worker &w, float *y, const float *x, int ldx, const uint8_t *weight,
                           int rows) {
  amk_rows<T, K, TOKENS, AMK_ROWS, false>(w, y, rows, x, ldx, weight, rows);
}

/* The same from the ring, whose next slots hold the rows, PIECE in each. */
template <int T, int K, int TOKENS, int PIECE, int SLOTS, int SLOT_BYTES>
AMK_INLINE void amk_matmul_ring(amk_worker &w, float *y, const float *x, int ldx, int rows) {
  for (int r = 0; r < rows; r += PIECE) {
    const int n = rows - r < PIECE ? rows - r : PIECE;
    amk_wait_bar(w, w.full + w.slot, w.parity, AMK_FULL_STUCK);
    amk_rows<T, K, TOKENS, PIECE % 2 == 0 ? AMK_ROWS : 1, true>(w, y + r, rows, x, ldx,
                                                         w.ring + w.slot * SLOT_BYTES, n);
    amk_warp_barrier(); /* all lanes have read the slot */
    if (w.lane == 0) amk_bar_arrive(w.empty + w.slot);
    amk_next_slot(w, SLOTS);
  }
}

#endif
