/* Attention of one kv head over one chunk of the cache, by all compute warps; and the combination of
 * chunks by log-sum-exp.
 *
 * T = the least power of two with 8 T >= D threads share a key, so a warp sees 32 / T keys and the
 * block L = AMK_WARPS * 32 / T. Key j of the chunk belongs to lane j % L:
 *   score = dot(q, k_j) * scale       lanes = 8 T: eight neighbours a thread, then the threads
 *   score = tanh(score / softcap) * softcap                            when softcap > 0
 *   m = max score, e_j = exp(score_j - m)
 *   l, o = sums of e_j and of e_j v_j in increasing j of each lane, by fma, then over the lanes
 * all pairwise, neighbours first. A row at position p sees keys [max(0, p - window + 1), p].
 *
 * In a ring of R rows key j is row j mod R of memory, in one with N sinks row j below N, else
 * N + (j - N) mod (R - N). Keys outside the limits [from, to) are not seen. An element of an AMK_I8 cache stands for its
 * value times the scale of its row. */
#ifndef AMK_ATTENTION_H
#define AMK_ATTENTION_H

#include "amk_matmul.h"

template <int D>
struct amk_key {
  static const int threads = D <= 8 ? 1 : D <= 16 ? 2 : D <= 32 ? 4 : D <= 64 ? 8 : D <= 128 ? 16 : 32;
  static const int per_warp = 32 / threads;
  static const int lanes = AMK_WARPS * per_warp;
};

/* Eight elements of a row of D, from element `d`; zeros past its end. */
template <int T, int D>
AMK_INLINE void amk_take8(float *out, const void *row, int d) {
  if (D % 8 == 0) {
    if (d < D) {
      const amk_u4 *at = (const amk_u4 *)amk_at<T>(row, d);
      if (T != AMK_I8) {
        amk_unpack<T>(out, at[0]);
        if (T == AMK_F32) amk_unpack<T>(out + 4, at[1]);
        return;
      }
      const uint64_t eight = *(const uint64_t *)at;
      AMK_UNROLL
      for (int i = 0; i < 8; i++) out[i] = (float)(signed char)(uint8_t)(eight >> (8 * i));
      return;
    }
  }
  AMK_UNROLL
  for (int i = 0; i < 8; i++) out[i] = d + i < D ? amk_get<T>(row, d + i) : 0.0f;
}

/* Eight elements of row `slot` of a head's keys or values. */
template <int T, int D>
AMK_INLINE void amk_take_row(float *out, const uint8_t *rows, const float *scales, long slot, int d) {
  amk_take8<T, D>(out, amk_at<T>(rows, slot * D), d);
  if (T != AMK_I8) return;
  const float scale = scales[slot];
  AMK_UNROLL
  for (int i = 0; i < 8; i++) out[i] = out[i] * scale;
}

/* A head's rows and, under AMK_I8, their scales; the chunk's first row, and those that are seen. */
struct amk_keys {
  const uint8_t *k, *v;
  const float *k_scales, *v_scales;
  long begin, low, high;
};

/* Where key j lies; RING is 0 where no row is ever overwritten. */
template <int RING, int SINKS>
AMK_INLINE long amk_slot(long j) {
  const int turn = RING ? RING - SINKS : 1;
  return !RING || j < SINKS ? j : SINKS + (j - SINKS) % turn;
}

/* GB heads of one row. q, o [GB][D], m, l [GB]; scores [GB][CHUNK] and parts [AMK_WARPS][GB][D + 2]
 * are areas of shared memory. */
template <int T, int D, int GB, int CHUNK, int RING, int SINKS>
AMK_INLINE void amk_attend(amk_worker &w, float *o, float *m, float *l, const float *q,
                           const amk_keys &keys, float scale, float softcap, float *scores,
                           float *parts) {
  const int threads = amk_key<D>::threads, lanes = amk_key<D>::lanes;
  const int d = w.lane % threads * 8, key_lane = w.warp * amk_key<D>::per_warp + w.lane / threads;
  float top[GB];
  {
    float qs[GB][8];
    AMK_UNROLL
    for (int g = 0; g < GB; g++) {
      amk_take8<AMK_F32, D>(qs[g], q + g * D, d);
      top[g] = amk_from_bits(0xff800000u);
    }
    for (int i = 0; i < CHUNK; i += lanes) {
      const long j = keys.begin + i + key_lane;
      const bool seen = j >= keys.low && j < keys.high;
      float ks[8];
      if (seen) amk_take_row<T, D>(ks, keys.k, keys.k_scales, amk_slot<RING, SINKS>(j), d);
      AMK_UNROLL
      for (int g = 0; g < GB; g++) {
        float sum[8];
        AMK_UNROLL
        for (int v = 0; v < 8; v++) sum[v] = seen ? amk_fma(ks[v], qs[g][v], 0.0f) : 0.0f;
        AMK_UNROLL
        for (int n = 4; n > 0; n /= 2) {
          AMK_UNROLL
          for (int v = 0; v < n; v++) sum[v] = sum[2 * v] + sum[2 * v + 1];
        }
        float score = amk_warp_sum(sum[0], threads) * scale;
        if (softcap > 0.0f) score = amk_tanh(amk_div(score, softcap)) * softcap;
        if (seen) {
          top[g] = amk_max(top[g], score);
          if (w.lane % threads == 0) scores[g * CHUNK + i + key_lane] = score;
        }
      }
    }
  }
  float *maxima = parts; /* [AMK_WARPS][GB] */
  AMK_UNROLL
  for (int g = 0; g < GB; g++) {
    top[g] = amk_warp_max(top[g], threads);
    if (w.lane == 0) maxima[w.warp * GB + g] = top[g];
  }
  amk_sync(w);
  AMK_UNROLL
  for (int g = 0; g < GB; g++) {
    top[g] = maxima[g];
    AMK_UNROLL
    for (int i = 1; i < AMK_WARPS; i++) top[g] = amk_max(top[g], maxima[i * GB + g]);
  }
  amk_sync(w); /* before the partial sums take the place of the maxima */
  float sum[GB][8], total[GB];
  AMK_UNROLL
  for (int g = 0; g < GB; g++) {
    total[g] = 0.0f;
    AMK_UNROLL
    for (int v = 0; v < 8; v++) sum[g][v] = 0.0f;
  }
  for (int i = 0; i < CHUNK; i += lanes) {
    const long j = keys.begin + i + key_lane;
    if (j < keys.low || j >= keys.high) continue;
    float vs[8];
    amk_take_row<T, D>(vs, keys.v, keys.v_scales, amk_slot<RING, SINKS>(j), d);
    AMK_UNROLL
    for (int g = 0; g < GB; g++) {
      const float e = amk_exp(scores[g * CHUNK + i + key_lane] - top[g]);
      total[g] = total[g] + e;
      AMK_UNROLL
      for (int v = 0; v < 8; v++) sum[g][v] = amk_fma(e, vs[v], sum[g][v]);
    }
  }
  AMK_UNROLL
  for (int g = 0; g < GB; g++) {
    float *part = parts + (w.warp * GB + g) * (D + 2);
    AMK_UNROLL
    for (int mask = 1; mask < 32; mask *= 2)
      if (mask >= threads) total[g] = total[g] + amk_shuffle_xor(total[g], mask);
    if (w.lane == 0) part[D] = total[g];
    AMK_UNROLL
    for (int v = 0; v < 8; v++) {
      AMK_UNROLL
      for (int mask = 1; mask < 32; mask *= 2)
        if (mask >= threads) sum[g][v] = sum[g][v] + amk_shuffle_xor(sum[g][v], mask);
      if (w.lane < threads && d + v < D) part[d + v] = sum[g][v];
    }
  }
  amk_sync(w);
  for (int i = w.thread; i < GB * (D + 1); i += AMK_COMPUTE) {
    float t[AMK_WARPS];
    const int g = i / (D + 1), at = i % (D + 1);
    AMK_UNROLL
    for (int k = 0; k < AMK_WARPS; k++) t[k] = parts[(k * GB + g) * (D + 2) + at];
    (at < D ? o[g * D + at] : l[g]) = amk_tree(t);
  }
  AMK_UNROLL
  for (int g = 0; g < GB; g++) /* no array is indexed by a variable: it would leave registers */
    if (w.thread == g) m[g] = top[g];
  amk_sync(w); /* the areas are free again */
}

/* All rows: q and o are [S][G][D], m and l [S][G]. */
template <int T, int D, int G, int GB, int CHUNK, int S, int RING, int SINKS>
AMK_INLINE void amk_attention(amk_worker &w, float *o, float *m, float *l, const float *q,
                              const uint8_t *k, const uint8_t *v, const float *k_scales,
                              const float *v_scales, long index, long window, long from, long to,
                              float scale, float softcap, float *scores, float *parts) {
  for (int s = 0; s < S; s++) {
    const long position = w.past + s, begin = index * CHUNK;
    amk_keys keys = {k, v, k_scales, v_scales, begin, begin, amk_minl(begin + CHUNK, position + 1)};
    if (window > 0) keys.low = amk_maxl(begin, position - window + 1);
    keys.low = amk_maxl(keys.low, from);
    keys.high = amk_minl(keys.high, to);
    for (int g = 0; g < G; g += GB) {
      const int at = s * G + g;
      amk_attend<T, D, GB, CHUNK, RING, SINKS>(w, o + at * D, m + at, l + at, q + at * D, keys, scale,
                                        softcap, scores, parts);
    }
  }
}

/* One element of one head of one row, from n partial results, chunk c's at o[c * ldo], m[c * ldm]:
 *   M = max_c m_c, and the sink's logit where there is one;  w_c = exp(m_c - M)
 *   L = fma(w_c, l_c, L);  O = fma(w_c, o_c, O)  in increasing c from +0
 *   L = L + exp(sink - M);  out = O / L */
AMK_INLINE float amk_combine(const float *o, long ldo, const float *m, const float *l, long ldm,
                             long n, bool has_sink, float sink) {
  float top = has_sink ? sink : amk_from_bits(0xff800000u), total = 0.0f, out = 0.0f;
  for (long c = 0; c < n; c++) top = amk_max(top, m[c * ldm]);
  for (long c = 0; c < n; c++) {
    if (m[c * ldm] == amk_from_bits(0xff800000u)) continue;
    const float weight = amk_exp(m[c * ldm] - top);
    total = amk_fma(weight, l[c * ldm], total);
    out = amk_fma(weight, o[c * ldo], out);
  }
  if (has_sink) total = total + amk_exp(sink - top);
  return amk_div(out, total);
}

#endif
