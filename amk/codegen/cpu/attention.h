/* Attention of one kv head, split along the cache in chunks of C keys, and their combination.
 *
 * Chunk c covers keys [c C, (c + 1) C). A row at absolute position p sees keys [max(0, p - W + 1), p]
 * (all up to p when W <= 0). For each row and head the chunk gives, over the keys it sees,
 *   score_j = dot(q, k_j) * scale           lanes = 16, chains = 1, tail zero padded
 *   score_j = tanh(score_j / softcap) * softcap               when softcap > 0
 *   m = max_j score_j
 *   e_j = exp(score_j - m);  l = sum_j e_j  lane (j - c C) % 16, adjacent tree
 *   o_d = fma(e_j, v_jd, o_d)               in increasing j from +0
 * and (m, l, o) = (-inf, 0, 0) when it sees none. Nothing depends on the number of rows, nor on where
 * they lie: in a ring of R rows key j is row j mod R of memory, in one with N sinks row j below N, else
 * N + (j - N) mod (R - N). Keys outside the limits [from, to) are not seen. */
#ifndef AMK_ATTENTION_H
#define AMK_ATTENTION_H

#include "scalar_math.h"

/* Values are taken in register blocks of up to four heads by four vectors, over keys few enough
 * to stay in the first-level cache while the blocks pass over them. */
#define AMK_VALUE_VECTORS 4
#define AMK_VALUE_HEADS 4
#define AMK_VALUE_KEYS 32
/* From this many heads on, a key takes so many operations that hardware prefetch falls behind: ask
 * for keys and values ahead. With fewer heads asking costs more than it gives. */
#define AMK_PREFETCH_HEADS 4

/* Where key j lies in a ring of `rows` rows, 0 for a cache that is none, the first `sinks` of which
 * stay; and the limits. */
typedef struct { long rows, sinks, from, to; } amk_ring;
AMK_INLINE long amk_slot(long j, amk_ring ring) {
  if (ring.rows <= 0 || j < ring.sinks) return j;
  return ring.sinks + (j - ring.sinks) % (ring.rows - ring.sinks);
}

/* Scores of keys [first, first + 16) against G heads, each head's in one vector: lane t is key
 * first + t. Keys outside [lo, hi) are not read and score minus infinity. */
AMK_INLINE void amk_attention_scores(amk_v16 *scores, const float *q, const void *k, long ldk,
                                     int dtype, long first, long lo, long hi, long G, long D,
                                     float scale, float softcap, amk_ring ring) {
  amk_v16 dots[G][16];
  long full = D / 16 * 16;
  long from = lo > first ? lo - first : 0, to = hi < first + 16 ? hi - first : 16;
  for (long g = 0; g < G; g++)
    for (long t = 0; t < 16; t++)
      if (t < from || t >= to) dots[g][t] = (amk_v16){0};
  for (long t = from; t < to; t++) {
    const void *key = amk_at(k, amk_slot(first + t, ring) * ldk, dtype);
    if (G >= AMK_PREFETCH_HEADS) {
      AMK_UNROLL
      for (long d = 0; d < D; d += 64 / amk_dtype_size(dtype))
        amk_prefetch(amk_at(key, 16 * ldk + d, dtype));
    }
    AMK_UNROLL
    for (long g = 0; g < G; g++) {
      amk_v16 dot = {0};
      AMK_UNROLL
      for (long d = 0; d < full; d += 16)
        dot = amk_fma16(amk_load16(q + g * D + d, AMK_F32),
                        amk_load16(amk_at(key, d, dtype), dtype), dot);
      if (D % 16)
        dot = amk_fma16(amk_load_tail(q + g * D + full, D % 16, AMK_F32),
                        amk_load_tail(amk_at(key, full, dtype), D % 16, dtype), dot);
      dots[g][t] = dot;
    }
  }
  amk_i16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  amk_i16 seen = (lane >= (int)from) & (lane < (int)to);
  for (long g = 0; g < G; g++) {
    amk_v16 score = amk_hsum16x16(dots[g]) * scale;
    if (softcap > 0.0f) score = amk_tanh16(score / softcap) * softcap;
    scores[g] = amk_select16(seen, score, amk_set16(-__builtin_inff()));
  }
}

/* o[g * ldo + d] = fma(e, v, o) over keys [lo, hi) for `heads` heads and `vectors` vectors of the
 * head dimension; e of head g and key j is e[g * lde + j - lo]. */
AMK_INLINE void amk_attention_values(float *o, long ldo, const float *e, long lde, const void *v,
                                     long ldv, int dtype, long keys, long heads, long vectors) {
  amk_v16 acc[AMK_VALUE_HEADS * AMK_VALUE_VECTORS];
  AMK_UNROLL
  for (long i = 0; i < heads * vectors; i++)
    acc[i] = amk_load16(o + i / vectors * ldo + i % vectors * 16, AMK_F32);
  for (long j = 0; j < keys; j++) {
    if (heads >= AMK_PREFETCH_HEADS) {
      AMK_UNROLL
      for (long d = 0; d < 16 * vectors; d += 64 / amk_dtype_size(dtype))
        amk_prefetch(amk_at(v, (j + AMK_VALUE_KEYS) * ldv + d, dtype));
    }
    AMK_UNROLL
    for (long d = 0; d < vectors; d++) {
      amk_v16 value = amk_load16(amk_at(v, j * ldv + d * 16, dtype), dtype);
      AMK_UNROLL
      for (long g = 0; g < heads; g++)
        acc[g * vectors + d] = amk_fma16(amk_set16(e[g * lde + j]), value, acc[g * vectors + d]);
    }
  }
  AMK_UNROLL
  for (long i = 0; i < heads * vectors; i++)
    amk_store16(o + i / vectors * ldo + i % vectors * 16, acc[i]);
}

/* The D % 16 last dimensions of the values. */
AMK_INLINE void amk_attention_values_tail(float *o, long ldo, const float *e, long lde,
                                          const void *v, long ldv, int dtype, long keys, long G,
                                          long n) {
  for (long g = 0; g < G; g++) {
    amk_v16 acc = amk_load_tail(o + g * ldo, n, AMK_F32);
    for (long j = 0; j < keys; j++)
      acc = amk_fma16(amk_set16(e[g * lde + j]), amk_load_tail(amk_at(v, j * ldv, dtype), n, dtype),
                      acc);
    amk_store_tail(o + g * ldo, n, acc);
  }
}

/* Keys [0, keys) from v against all heads. */
AMK_INLINE void amk_attention_value_block(float *o, const float *e, long lde, const void *v,
                                          long ldv, int dtype, long keys, long G, long D) {
  for (long d = 0; d < D / 64 * 64; d += 64) {
#define AMK_VALUES(heads)                                                                        \
  amk_attention_values(o + g * D + d, D, e + g * lde, lde, amk_at(v, d, dtype), ldv, dtype, keys, \
                       heads, AMK_VALUE_VECTORS)
    long g = 0;
    for (; g < G / 4 * 4; g += 4) AMK_VALUES(4);
    if (G % 4 == 3) AMK_VALUES(3);
    if (G % 4 == 2) AMK_VALUES(2);
    if (G % 4 == 1) AMK_VALUES(1);
#undef AMK_VALUES
  }
  for (long d = D / 64 * 64; d < D / 16 * 16; d += 16)
    for (long g = 0; g < G; g++)
      amk_attention_values(o + g * D + d, D, e + g * lde, lde, amk_at(v, d, dtype), ldv, dtype,
                           keys, 1, 1);
  long d = D / 16 * 16;
  if (D % 16)
    amk_attention_values_tail(o + d, D, e, lde, amk_at(v, d, dtype), ldv, dtype, keys, G, D % 16);
}

/* One row: q is [G][D]; o is [G][D], m and l are [G]. */
AMK_INLINE void amk_attention_row(float *o, float *m, float *l, const float *q, const void *k,
                                  long ldk, const void *v, long ldv, int dtype, long position,
                                  long G, long D, long chunk_index, long C, long window,
                                  float scale, float softcap, amk_ring ring) {
  long begin = chunk_index * C, lo = begin, hi = begin + C;
  if (window > 0 && position - window + 1 > lo) lo = position - window + 1;
  if (position + 1 < hi) hi = position + 1;
  if (ring.from > lo) lo = ring.from;
  if (ring.to < hi) hi = ring.to;
  for (long i = 0; i < G * D; i++) o[i] = 0.0f;
  for (long g = 0; g < G; g++) m[g] = -__builtin_inff(), l[g] = 0.0f;
  if (lo >= hi) return;

  long start = lo / 16 * 16, end = (hi + 15) / 16 * 16;
  float e[G][C] __attribute__((aligned(64)));
  amk_v16 top[G], scores[G];
  for (long g = 0; g < G; g++) top[g] = amk_set16(-__builtin_inff());
  for (long j = start; j < end; j += 16) {
    amk_attention_scores(scores, q, k, ldk, dtype, j, lo, hi, G, D, scale, softcap,
                         ring);
    for (long g = 0; g < G; g++) {
      top[g] = amk_max16(top[g], scores[g]);
      amk_store16(&e[g][j - begin], scores[g]);
    }
  }
  for (long g = 0; g < G; g++) m[g] = amk_hmax16(top[g]);
  for (long g = 0; g < G; g++) {
    amk_v16 sum = {0};
    for (long j = start; j < end; j += 16) {
      amk_v16 weight = amk_exp16(amk_load16(&e[g][j - begin], AMK_F32) - m[g]);
      sum += weight;
      amk_store16(&e[g][j - begin], weight);
    }
    l[g] = amk_hsum16(sum);
  }
  for (long j = lo, keys; j < hi; j += keys) {
    long slot = amk_slot(j, ring);
    keys = hi - j < AMK_VALUE_KEYS ? hi - j : AMK_VALUE_KEYS;
    if (ring.rows > 0 && keys > ring.rows - slot) keys = ring.rows - slot;
    amk_attention_value_block(o, &e[0][j - begin], C, amk_at(v, slot * ldv, dtype), ldv, dtype,
                              keys, G, D);
  }
}

/* All rows of one kv head and one chunk. Row s of q, at position past + s, is q + s * ldq, its G
 * heads one after another; row j of memory is at k + j * ldk and v + j * ldv, elements of dtype.
 * o is [S][G][D], m and l are [S][G]. C is a multiple of 16; window <= 0 means none. Only keys in
 * sight of some row are read, which in a ring are no more than it has rows. */
AMK_INLINE void amk_attention_partial(float *o, float *m, float *l, const float *q, long ldq,
                                      const void *k, long ldk, const void *v, long ldv, int dtype,
                                      long past, long S, long G, long D, long chunk_index, long C,
                                      long window, float scale, float softcap, amk_ring ring) {
  for (long s = 0; s < S; s++)
    amk_attention_row(o + s * G * D, m + s * G, l + s * G, q + s * ldq, k, ldk, v, ldv, dtype,
                      past + s, G, D, chunk_index, C, window, scale, softcap, ring);
}

/* One head of one row from its n partial results, chunk c's at o + c * ldo, m[c * ldm], l[c * ldm]:
 *   M = max_c m_c, and the sink's logit where there is one (sink not null)
 *   w_c = exp(m_c - M);  L = fma(w_c, l_c, L);  O_d = fma(w_c, o_cd, O_d)   in increasing c from +0
 *   L = L + exp(sink - M);  out = O / L
 * A chunk with m_c = -inf is passed over, so chunks out of a row's sight leave no trace. */
AMK_INLINE void amk_attention_combine_head(float *out, const float *o, long ldo, const float *m,
                                           const float *l, long ldm, long n, long D,
                                           const float *sink) {
  float top = sink ? *sink : -__builtin_inff(), total = 0.0f;
  for (long c = 0; c < n; c++) top = amk_max(top, m[c * ldm]);
  for (long d = 0; d < D; d++) out[d] = 0.0f;
  for (long c = 0; c < n; c++) {
    if (m[c * ldm] == -__builtin_inff()) continue;
    float weight = amk_exp(m[c * ldm] - top);
    total = amk_fma(weight, l[c * ldm], total);
    for (long d = 0; d < D; d++) out[d] = amk_fma(weight, o[c * ldo + d], out[d]);
  }
  if (sink) total += amk_exp(*sink - top);
  for (long d = 0; d < D; d++) out[d] = out[d] / total;
}

/* Every head: o is [n][H][S][G][D], m and l are [n][H][S][G], out is [S][H * G][D]; sinks is [H * G]
 * or null. A tile may take a range of kv heads by giving H and `first`, `count`. */
AMK_INLINE void amk_attention_combine(float *out, const float *o, const float *m, const float *l,
                                      long n, long H, long S, long G, long D, const float *sinks,
                                      long first, long count) {
  long ldm = H * S * G;
  for (long h = first; h < first + count; h++)
    for (long s = 0; s < S; s++)
      for (long g = 0; g < G; g++) {
        long at = (h * S + s) * G + g, head = h * G + g;
        amk_attention_combine_head(out + (s * H * G + head) * D, o + at * D, ldm * D, m + at,
                                   l + at, ldm, n, D, sinks ? sinks + head : 0);
      }
}

#endif
