/* How near the CPU snippets come to a plain read of the same bytes.
 *
 *   cc -O3 -march=native -std=gnu11 -ffp-contract=off -fno-math-errno -pthread \
 *      -Iamk/codegen/cpu benchmarks/cpu_roof.c -o cpu_roof -lm && ./cpu_roof [threads]
 *
 * About 270 MB of bf16 or f32 in anonymous memory on huge pages, taken as weight rows or as keys
 * and values. Within each repetition every kind of work runs once, so all see the same machine.
 * Prints the best and the median rate: GB/s of weights or cache, GFLOP/s for several tokens. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "attention.h"
#include "matmul.h"

enum { ROWS = 64, MAX_TOKENS = 64, MAX_WIDTH = 1536, CHUNK = 256, REPETITIONS = 15 };
static const long BYTES = 270L << 20;

static float x[MAX_TOKENS * MAX_WIDTH] __attribute__((aligned(64)));
static volatile uint32_t sink;

/* ---- one tile of each kind, given its bytes ------------------------------------------------ */

static void read_tile(const void *bytes) {
  const amk_u16 *p = bytes;
  amk_u16 sum[4] = {{0}};
  for (long i = 0; i < 65536 / 64; i += 4) {
    AMK_UNROLL
    for (int j = 0; j < 4; j++) sum[j] |= p[i + j];
  }
  sink = (sum[0] | sum[1] | sum[2] | sum[3])[0];
}

#define PRODUCT(name, dtype, tokens, width)                                                 \
  static void name(const void *w) {                                                         \
    static _Thread_local float y[MAX_TOKENS * ROWS];                                        \
    amk_matmul(y, ROWS, x, width, w, dtype, width, tokens, ROWS, width, 2);                 \
    sink = amk_bits(y[0]);                                                                  \
  }
PRODUCT(matvec_576, AMK_BF16, 1, 576)
PRODUCT(matvec_1536, AMK_BF16, 1, 1536)
PRODUCT(matvec_f16, AMK_F16, 1, 576)
PRODUCT(matvec_f32, AMK_F32, 1, 576)
PRODUCT(product_16, AMK_BF16, 16, 576)
PRODUCT(product_64, AMK_BF16, 64, 576)

#define ATTENTION(name, dtype, G, D)                                                        \
  static void name(const void *keys) {                                                      \
    static _Thread_local float o[G * D], m[G], l[G];                                        \
    amk_attention_partial(o, m, l, x, G * D, keys, D, amk_at(keys, CHUNK *D, dtype), D, dtype, \
                          CHUNK - 1, 1, G, D, 0, CHUNK, 0, 0.125f, 0.0f);                   \
    sink = amk_bits(o[0]);                                                                  \
  }
ATTENTION(attention_f32_3_64, AMK_F32, 3, 64)
ATTENTION(attention_bf16_3_64, AMK_BF16, 3, 64)
ATTENTION(attention_f32_4_128, AMK_F32, 4, 128)
ATTENTION(attention_bf16_4_128, AMK_BF16, 4, 128)
ATTENTION(attention_f32_8_128, AMK_F32, 8, 128)
ATTENTION(attention_bf16_8_128, AMK_BF16, 8, 128)

static const struct {
  const char *name;
  void (*tile)(const void *);
  long bytes;  /* of a tile */
  long tokens; /* more than one: count operations over an eighth of the memory */
} kinds[] = {
    {"read", read_tile, 65536, 1},
    {"matvec bf16 576", matvec_576, ROWS * 576 * 2, 1},
    {"matvec bf16 1536", matvec_1536, ROWS * 1536 * 2, 1},
    {"matvec f16 576", matvec_f16, ROWS * 576 * 2, 1},
    {"matvec f32 576", matvec_f32, ROWS * 576 * 4, 1},
    {"16 tokens bf16 576", product_16, ROWS * 576 * 2, 16},
    {"64 tokens bf16 576", product_64, ROWS * 576 * 2, 64},
    {"attention f32 G3 D64", attention_f32_3_64, CHUNK * 64 * 8, 1},
    {"attention bf16 G3 D64", attention_bf16_3_64, CHUNK * 64 * 4, 1},
    {"attention f32 G4 D128", attention_f32_4_128, CHUNK * 128 * 8, 1},
    {"attention bf16 G4 D128", attention_bf16_4_128, CHUNK * 128 * 4, 1},
    {"attention f32 G8 D128", attention_f32_8_128, CHUNK * 128 * 8, 1},
    {"attention bf16 G8 D128", attention_bf16_8_128, CHUNK * 128 * 4, 1},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- threads and clock --------------------------------------------------------------------- */

static const char *memory;
static int threads = 2, kind;
static pthread_barrier_t barrier;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void part(long index) {
  long tiles = BYTES / (kinds[kind].tokens > 1 ? 8 : 1) / kinds[kind].bytes;
  for (long t = tiles * index / threads; t < tiles * (index + 1) / threads; t++)
    kinds[kind].tile(memory + t * kinds[kind].bytes);
}

static void *worker(void *index) {
  for (;;) {
    pthread_barrier_wait(&barrier);
    if (kind < 0) return 0;
    part((long)index);
    pthread_barrier_wait(&barrier);
  }
}

/* Finite, moderate values whether read as f32, bf16 or f16. */
static char *fill(void) {
  size_t page = 2 << 20;
  char *p = mmap(0, (size_t)BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return 0;
  p = (char *)(((uintptr_t)p + page - 1) & ~(uintptr_t)(page - 1));
  madvise(p, (size_t)BYTES, MADV_HUGEPAGE);
  for (long i = 0; i < BYTES / 2; i++)
    ((uint16_t *)(void *)p)[i] = (uint16_t)(0x3c00 + i * 7919 % 256 + (i % 3 ? 0x8000 : 0));
  return p;
}

static int ascending(const void *a, const void *b) {
  double p = *(const double *)a, q = *(const double *)b;
  return (p > q) - (p < q);
}

int main(int argc, char **argv) {
  if (argc > 1) threads = atoi(argv[1]);
  if (threads < 1 || threads > 64) return fprintf(stderr, "threads must be 1 to 64\n"), 2;
  memory = fill();
  if (!memory) return perror("mmap"), 1;
  for (long i = 0; i < MAX_TOKENS * MAX_WIDTH; i++) x[i] = (float)(i * 31 % 101 - 50) * 0.01f;

  pthread_t id[64];
  pthread_barrier_init(&barrier, 0, (unsigned)threads);
  for (long i = 1; i < threads; i++) pthread_create(&id[i], 0, worker, (void *)i);
  static double seconds[KINDS][REPETITIONS];
  for (int r = 0; r < REPETITIONS; r++)
    for (int k = 0; k < KINDS; k++) {
      kind = k;
      pthread_barrier_wait(&barrier);
      double start = now();
      part(0);
      pthread_barrier_wait(&barrier);
      seconds[k][r] = now() - start;
    }
  kind = -1;
  pthread_barrier_wait(&barrier);
  for (int i = 1; i < threads; i++) pthread_join(id[i], 0);

  for (int k = 0; k < KINDS; k++) {
    qsort(seconds[k], REPETITIONS, sizeof(double), ascending);
    int several = kinds[k].tokens > 1;
    double work = (double)BYTES * (several ? (double)kinds[k].tokens / 8 : 1);
    printf("%-24s best %6.2f  median %6.2f %s\n", kinds[k].name, work / seconds[k][0] * 1e-9,
           work / seconds[k][REPETITIONS / 2] * 1e-9, several ? "GFLOP/s" : "GB/s");
  }
  return 0;
}
