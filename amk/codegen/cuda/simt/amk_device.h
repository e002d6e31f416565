/* The host's side of the device interface: see device/amk_device.h for what each name means. */
#ifndef AMK_DEVICE_H
#define AMK_DEVICE_H

#include "amk_fibre.h"

#define AMK_DEVICE inline
#define AMK_FUNCTION static __attribute__((noinline, unused))
#define AMK_INLINE static inline __attribute__((unused))
#define AMK_TABLE static const
#define AMK_UNROLL
#define AMK_KERNEL(name, threads) \
  static const int amk_kernel_threads = threads; \
  static void name(const amk_launch &launch)
#define AMK_SHARED(name) uint8_t *const name = amk_here->shared
#define AMK_HAS_BULK 1
#define AMK_HAS_ASYNC 1
#define AMK_COPY_ARRIVALS 1
#define __align__(n) __attribute__((aligned(n)))

/* ---- arithmetic ---- */

AMK_INLINE float amk_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
AMK_INLINE float amk_div(float a, float b) { return a / b; }
AMK_INLINE float amk_sqrt(float x) { return __builtin_sqrtf(x); }
AMK_INLINE uint32_t amk_bits(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  return u;
}
AMK_INLINE float amk_from_bits(uint32_t u) {
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
}

/* ---- threads of a block ---- */

static AMK_RUNTIME int amk_thread() { return amk_here->self->thread; }
AMK_INLINE int amk_anew(int x) { return x; }
static AMK_RUNTIME int amk_block() { return amk_here->index; }
static AMK_RUNTIME int amk_blocks() { return amk_here->blocks; }

AMK_INLINE void amk_barrier(int id, int count) {
  amk_gate *g = &amk_here->gates[id];
  amk_wait_at(g, count, g);
}
static AMK_RUNTIME void amk_warp_barrier() {
  amk_simt_block *b = amk_here;
  amk_warp *w = &b->warps[b->self->thread / 32];
  (void)w;
  AMK_RELEASED(w);
  amk_exchange(0.0f);
  AMK_ACQUIRED(w);
}
static AMK_RUNTIME float amk_shuffle_xor(float x, int mask) {
  int lane = amk_here->self->thread % 32;
  return amk_exchange(x)[lane ^ mask];
}
static AMK_RUNTIME float amk_warp_sum(float x, int width = 32) {
  int lane = amk_here->self->thread % 32;
  const float *all = amk_exchange(x);
  float t[32];
  for (int i = 0; i < width; i++) t[i] = all[lane / width * width + i];
  for (int n = width / 2; n > 0; n /= 2)
    for (int i = 0; i < n; i++) t[i] = t[2 * i] + t[2 * i + 1];
  return t[0];
}

/* ---- memory that other blocks write ---- */

AMK_INLINE uint32_t amk_load_acquire(const uint32_t *at) {
  amk_preempt();
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
AMK_INLINE void amk_add_release(uint32_t *at, uint32_t n) {
  amk_preempt();
  __atomic_fetch_add(at, n, __ATOMIC_RELEASE);
}
AMK_INLINE uint32_t amk_load_relaxed(const uint32_t *at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
AMK_INLINE bool amk_claim(uint32_t *at, uint32_t expected, uint32_t desired) {
  return __atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
AMK_INLINE void amk_store_release(uint32_t *at, uint32_t value) {
  __atomic_store_n(at, value, __ATOMIC_RELEASE);
}

/* ---- time ---- */

/* Of the process's own work: a process that the system suspends has not waited. */
AMK_INLINE uint64_t amk_nanoseconds() {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}
AMK_INLINE void amk_pause() { amk_yield(amk_here); }
AMK_INLINE void amk_trap() { amk_fail(amk_here); }

/* ---- loads ---- */

struct __align__(16) amk_u4 { uint32_t x, y, z, w; };
AMK_INLINE amk_u4 amk_load_weight(const void *at) { return *(const amk_u4 *)at; }

/* ---- barriers of asynchronous copies ---- */

struct amk_bar { uint16_t arrivals, pending, phase, unused; };
/* Bytes on their way, beside the barrier: a copy that has not landed keeps its phase open. */
static AMK_RUNTIME int amk_bytes_under_way(const void *bar) {
  amk_simt_block *b = amk_here;
  int bytes = 0;
  for (int i = 0; i < b->copy_count; i++)
    if (b->copies[i].bar == bar) bytes += b->copies[i].bytes;
  return bytes;
}
static AMK_RUNTIME void amk_bar_turn(amk_bar *bar) {
  if (bar->pending == 0 && amk_bytes_under_way(bar) == 0) {
    bar->phase ^= 1;
    bar->pending = bar->arrivals;
    amk_here->idle = 0;
  }
}
static AMK_RUNTIME void amk_bar_init(uint64_t *at, int arrivals) {
  amk_bar *bar = (amk_bar *)at;
  bar->arrivals = bar->pending = (uint16_t)arrivals;
  bar->phase = bar->unused = 0;
}
AMK_INLINE void amk_bar_publish() {}
static AMK_RUNTIME void amk_bar_arrive(uint64_t *at) {
  amk_preempt();
  AMK_RELEASED(at);
  ((amk_bar *)at)->pending--;
  amk_bar_turn((amk_bar *)at);
}
static AMK_RUNTIME bool amk_bar_try(uint64_t *at, int parity) {
  amk_preempt();
  bool done = ((amk_bar *)at)->phase != parity;
  if (done) AMK_ACQUIRED(at);
  return done;
}

static AMK_RUNTIME void amk_copy_async(void *to, const void *from, int bytes, uint64_t *bar, int lane) {
  if (lane != 0) return;
  amk_simt_block *b = amk_here;
  if (b->copy_count == AMK_COPIES) amk_fail(b); /* a slot is filled again before it was free */
  b->copies[b->copy_count++] = amk_copy{to, from, bytes, bar};
  AMK_RELEASED(bar);
  ((amk_bar *)bar)->pending--;
  amk_preempt();
}
static AMK_RUNTIME amk_copy amk_take_copy(amk_simt_block *b) {
  int pick = b->schedule.order == AMK_RANDOM ? (int)(amk_draw(b) % b->copy_count)
             : b->schedule.order == AMK_LIFO ? b->copy_count - 1 : 0;
  amk_copy c = b->copies[pick];
  b->copy_count--;
  for (int i = pick; i < b->copy_count; i++) {
    b->copies[i] = b->copies[i + 1];
    __asm__ volatile("" ::: "memory"); /* no call of memmove, which a sanitizer would watch */
  }
  return c;
}
/* Runs on the block's main context: one copy, any of those under way, lands. */
static void amk_land_copy() {
  const amk_copy c = amk_take_copy(amk_here);
  AMK_ACQUIRED(c.bar);
  memcpy(c.to, c.from, c.bytes);
  AMK_RELEASED(c.bar);
  amk_bar_turn((amk_bar *)c.bar);
}

/* ---- matrix instructions ---- */

struct amk_fragments { uint32_t a[32][4], b[32][2]; };

template <bool BF16>
static float amk_half(uint32_t word, int upper) {
  uint32_t h = upper ? word >> 16 : word & 0xffffu;
  if (BF16) return amk_from_bits(h << 16);
  uint32_t magnitude = (h & 0x7fffu) << 13, finite = amk_bits(amk_from_bits(magnitude) * 0x1p112f);
  return amk_from_bits((magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite) | (h & 0x8000u) << 16);
}
/* Products are exact in double; sixteen of them and the sum are added there and rounded once. */
template <bool BF16>
static AMK_RUNTIME void amk_mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const int lane = amk_here->self->thread % 32;
  uint32_t words[6][32];
  for (int i = 0; i < 6; i++) {
    const float *all = amk_exchange(amk_from_bits(i < 4 ? a[i] : b[i - 4]));
    for (int t = 0; t < 32; t++) words[i][t] = amk_bits(all[t]);
  }
  for (int i = 0; i < 4; i++) {
    const int row = lane / 4, column = lane % 4 * 2 + i % 2;
    double sum = d[i];
    for (int k = 0; k < 16; k++) {
      const int owner = k % 8 / 2;
      const uint32_t av = words[(k / 8) * 2 + i / 2][row * 4 + owner];
      const uint32_t bv = words[4 + k / 8][column * 4 + owner];
      sum += (double)amk_half<BF16>(av, k % 2) * amk_half<BF16>(bv, k % 2);
    }
    d[i] = (float)sum;
  }
}
AMK_INLINE void amk_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  amk_mma<true>(d, a, b);
}
AMK_INLINE void amk_mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  amk_mma<false>(d, a, b);
}

#endif
