/* How near the one-token matvec comes to a plain read of the same weight bytes.
 *
 *   cc -O3 -march=native -std=gnu11 -ffp-contract=off -fno-math-errno -pthread \
 *      -Iamk/codegen/cpu benchmarks/matvec_roof.c -o matvec_roof -lm && ./matvec_roof [threads]
 *
 * Rows of 576 and of 1536 bf16 weights, about 270 MB in anonymous memory on huge pages; the read
 * and the two matvecs alternate within each repetition. Prints the best and the median of each in
 * GB/s, then register-blocked 16- and 64-token products in GFLOP/s. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "matmul.h"

enum { WIDE = 1536, NARROW = 576, ROWS_PER_TILE = 64, REPETITIONS = 15, TOKENS = 64, KINDS = 5 };
static const long BYTES = 270L << 20;

static const void *weights;
static float x[TOKENS * WIDE] __attribute__((aligned(64)));
static int threads = 2;
static volatile uint32_t sink;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void read_bytes(long from, long to) {
  const amk_u16 *p = weights;
  amk_u16 sum[4] = {{0}};
  for (long i = from / 64; i + 4 <= to / 64; i += 4) {
    AMK_UNROLL
    for (int j = 0; j < 4; j++) sum[j] |= p[i + j];
  }
  sink = (sum[0] | sum[1] | sum[2] | sum[3])[0];
}

static __attribute__((noinline)) void tile_narrow(float *y, const void *w) {
  amk_matmul(y, ROWS_PER_TILE, x, NARROW, w, AMK_BF16, NARROW, 1, ROWS_PER_TILE, NARROW, 2);
}
static __attribute__((noinline)) void tile_wide(float *y, const void *w) {
  amk_matmul(y, ROWS_PER_TILE, x, WIDE, w, AMK_BF16, WIDE, 1, ROWS_PER_TILE, WIDE, 2);
}
static __attribute__((noinline)) void tile_16(float *y, const void *w) {
  amk_matmul(y, ROWS_PER_TILE, x, NARROW, w, AMK_BF16, NARROW, 16, ROWS_PER_TILE, NARROW, 2);
}
static __attribute__((noinline)) void tile_64(float *y, const void *w) {
  amk_matmul(y, ROWS_PER_TILE, x, NARROW, w, AMK_BF16, NARROW, 64, ROWS_PER_TILE, NARROW, 2);
}

static const struct {
  const char *name;
  void (*tile)(float *, const void *);
  long width, tokens;
} kinds[KINDS] = {{"read", 0, NARROW, 1},
                  {"matvec 576", tile_narrow, NARROW, 1},
                  {"matvec 1536", tile_wide, WIDE, 1},
                  {"16 tokens x 576", tile_16, NARROW, 16},
                  {"64 tokens x 576", tile_64, NARROW, 64}};
static int kind;
static pthread_barrier_t barrier;

static void part(long index) {
  long tile_bytes = kinds[kind].width * ROWS_PER_TILE * 2, bytes = BYTES;
  if (kinds[kind].tokens > 1) bytes /= 8;
  long tiles = bytes / tile_bytes, from = tiles * index / threads, to = tiles * (index + 1) / threads;
  float y[TOKENS * ROWS_PER_TILE];
  if (!kinds[kind].tile) {
    read_bytes(from * tile_bytes, to * tile_bytes);
    return;
  }
  for (long t = from; t < to; t++) {
    kinds[kind].tile(y, (const char *)weights + t * tile_bytes);
    sink = (uint32_t)y[0];
  }
}

static void *worker(void *index) {
  for (;;) {
    pthread_barrier_wait(&barrier);
    if (kind < 0) return 0;
    part((long)index);
    pthread_barrier_wait(&barrier);
  }
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  if (argc > 1) threads = atoi(argv[1]);
  if (threads < 1 || threads > 64) return fprintf(stderr, "threads must be 1 to 64\n"), 2;
  char *memory = mmap(0, (size_t)BYTES + (2 << 20), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return perror("mmap"), 1;
  memory = (char *)(((uintptr_t)memory + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1));
  madvise(memory, (size_t)BYTES, MADV_HUGEPAGE);
  for (long i = 0; i < BYTES / 2; i++)
    ((uint16_t *)memory)[i] = amk_f32_to_bf16((float)(i * 7919 % 2001 - 1000) * 1e-4f);
  weights = memory;
  for (long i = 0; i < TOKENS * WIDE; i++) x[i] = (float)(i * 31 % 101 - 50) * 0.01f;

  pthread_t id[64];
  pthread_barrier_init(&barrier, 0, (unsigned)threads);
  for (long i = 1; i < threads; i++) pthread_create(&id[i], 0, worker, (void *)i);
  static double seconds[KINDS][REPETITIONS];
  for (int rep = 0; rep < REPETITIONS; rep++)
    for (int k = 0; k < KINDS; k++) {
      kind = k;
      pthread_barrier_wait(&barrier);
      double start = now();
      part(0);
      pthread_barrier_wait(&barrier);
      seconds[k][rep] = now() - start;
    }
  kind = -1;
  pthread_barrier_wait(&barrier);
  for (int i = 1; i < threads; i++) pthread_join(id[i], 0);

  for (int k = 0; k < KINDS; k++) {
    qsort(seconds[k], REPETITIONS, sizeof(double), ascending);
    double work = (double)BYTES * (kinds[k].tokens > 1 ? (double)kinds[k].tokens / 8 : 1);
    printf("%-16s best %6.2f  median %6.2f %s\n", kinds[k].name, work / seconds[k][0] * 1e-9,
           work / seconds[k][REPETITIONS / 2] * 1e-9,
           kinds[k].tokens > 1 ? "GFLOP/s" : "GB/s");
  }
  return 0;
}
