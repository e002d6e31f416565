"""The worker pool: random graphs of stages, errors, forks, idling; also under ThreadSanitizer."""

import shutil
import subprocess
from pathlib import Path

import pytest

import amk.codegen.cpu

HEADERS = Path(amk.codegen.cpu.__file__).parent

PROGRAM = r"""
#define _GNU_SOURCE
#include "steps.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { MAX_STAGES = 24, MAX_TILES = 64, EVENTS = 12, MAX_OPERANDS = 2 + MAX_STAGES };

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                         \
      _exit(1);                                                                       \
    }                                                                                 \
  } while (0)

static uint64_t state;
static uint64_t draw(uint64_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % n;
}

static long none(long past) { (void)past; return 0; }
static long one(long past) { (void)past; return 1; }
static long few(long past) { return past % 4; }
static long some(long past) { return 3 + past % 7; }
static long many(long past) { return past % MAX_TILES; }
static long (*const counts[])(long) = {none, one, few, some, many};

/* A stage's operands: its number, how many stages it reads, and those. Its prologue digests all
 * they wrote; a tile mixes that with its own number. A read too early gives another digest. */
static uint64_t written[MAX_STAGES][MAX_TILES];
static atomic_int prologues[MAX_STAGES];
static amk_stage stages[MAX_STAGES];
static int operands[MAX_STAGES][MAX_OPERANDS], waits[MAX_STAGES][EVENTS], nstages;

static uint64_t mix(uint64_t a, uint64_t b) { return (a ^ b) * 0x9e3779b97f4a7c15u + (a >> 29); }

static void prologue(const amk_ctx *ctx, const int *ops, float *priv) {
  uint64_t digest = 1;
  for (int i = 0; i < ops[1]; i++) {
    int read = ops[2 + i];
    for (long t = 0; t < stages[read].tiles(ctx->past); t++) digest = mix(digest, written[read][t]);
  }
  CHECK((uintptr_t)priv % 64 == 0);
  memcpy(priv, &digest, sizeof digest);
  atomic_fetch_add(&prologues[ops[0]], 1);
}

static void tile(const amk_ctx *ctx, const int *ops, const float *priv, long t) {
  uint64_t digest;
  memcpy(&digest, priv, sizeof digest);
  uint64_t spin = mix(digest, (uint64_t)(ctx->past + t)) % 256;
  for (volatile uint64_t i = 0; i < spin; i++) {}
  written[ops[0]][t] += mix(digest, (uint64_t)t + 1);
}

/* A stage waits for some of the events so far, and reads the stages that signal them. It signals
 * a new event, or joins the newest one while nobody waits for it yet, or none. */
static void make_graph(void) {
  int waited[EVENTS] = {0}, events = 0;
  nstages = 1 + (int)draw(MAX_STAGES);
  for (int i = 0; i < nstages; i++) {
    amk_stage *s = &stages[i];
    *s = (amk_stage){prologue, tile, counts[draw(5)], operands[i], waits[i], 0, -1, "test"};
    operands[i][0] = i, operands[i][1] = 0;
    for (int e = 0; e < events; e++) {
      if (draw(3) == 0) continue;
      waited[e] = 1, waits[i][s->nwaits++] = e;
      for (int j = 0; j < i; j++)
        if (stages[j].signal == e) operands[i][2 + operands[i][1]++] = j;
    }
    if (events > 0 && !waited[events - 1] && draw(2))
      s->signal = events - 1;
    else if (events < EVENTS && draw(4))
      s->signal = events++;
  }
}

static void run_in_order(const amk_ctx *ctx) {
  float priv[16] __attribute__((aligned(64)));
  for (int i = 0; i < nstages; i++) {
    long n = stages[i].tiles(ctx->past);
    if (n) prologue(ctx, operands[i], priv);
    for (long t = 0; t < n; t++) tile(ctx, operands[i], priv, t);
  }
}

static int threads(void) {
  int n = -2;
  DIR *tasks = opendir("/proc/self/task");
  while (readdir(tasks)) n++;
  closedir(tasks);
  return n;
}

static void random_graphs(int nworkers, int launches, long spin) {
  amk_pool *pool = amk_pool_create(nworkers, 64);
  CHECK(pool);
  if (nworkers == 1) CHECK(threads() == 1);
  if (spin >= 0) amk_pool_set_spin(pool, spin);
  for (int n = 0; n < launches; n++) {
    if (n % 8 == 0) make_graph();
    amk_ctx ctx = {(long)draw(200), 0, 0};
    uint64_t expected[MAX_STAGES][MAX_TILES];
    memset(written, 0, sizeof written);
    run_in_order(&ctx);
    memcpy(expected, written, sizeof written);
    memset(written, 0, sizeof written);
    for (int i = 0; i < nstages; i++) atomic_store(&prologues[i], 0);
    CHECK(amk_pool_run(pool, stages, nstages, EVENTS, &ctx) == AMK_POOL_OK);
    CHECK(memcmp(expected, written, sizeof written) == 0);
    for (int i = 0; i < nstages; i++) {
      long tiles = stages[i].tiles(ctx.past);
      int ran = atomic_load(&prologues[i]);
      CHECK(ran <= nworkers && ran <= tiles && (ran > 0) == (tiles > 0));
    }
    if (draw(64) == 0) usleep(200);
  }
  amk_pool_destroy(pool);
}

static void errors(void) {
  amk_pool *pool = amk_pool_create(2, 0);
  amk_ctx ctx = {7, 0, 0};
  int own[] = {0}, beyond[] = {5}, first[] = {0, 0};
  amk_stage s = {0, tile, one, first, own, 1, 0, "waits for itself"};
  CHECK(amk_pool_run(pool, &s, 1, 1, &ctx) == AMK_POOL_BAD_ORDER);
  s.waits = beyond;
  CHECK(amk_pool_run(pool, &s, 1, 1, &ctx) == AMK_POOL_BAD_EVENT);
  s.nwaits = 0, s.signal = 3;
  CHECK(amk_pool_run(pool, &s, 1, 1, &ctx) == AMK_POOL_BAD_EVENT);
  CHECK(amk_pool_run(pool, 0, 0, 0, &ctx) == AMK_POOL_OK);
  CHECK(!amk_pool_create(0, 0));
  amk_pool_destroy(pool);
  amk_pool_destroy(0);
}

static long minus(long past) { return past < 0 ? past : -past; }
static long huge(long past) { return past << 40; }
static void bad_tiles(void) {
  amk_pool *pool = amk_pool_create(1, 0);
  amk_ctx ctx = {7, 0, 0};
  amk_stage s = {0, tile, minus, 0, 0, 0, -1, "bad"};
  CHECK(amk_pool_run(pool, &s, 1, 0, &ctx) == AMK_POOL_BAD_TILES);
  s.tiles = huge;
  CHECK(amk_pool_run(pool, &s, 1, 0, &ctx) == AMK_POOL_BAD_TILES);
  amk_pool_destroy(pool);
}

static amk_pool *shared;
static void nested(const amk_ctx *ctx, const int *ops, const float *priv, long t) {
  (void)ops, (void)priv, (void)t;
  CHECK(amk_pool_run(shared, stages, 1, 0, ctx) == AMK_POOL_BUSY);
}
static void busy(void) {
  shared = amk_pool_create(2, 0);
  amk_ctx ctx = {7, 0, 0};
  amk_stage s = {0, nested, some, 0, 0, 0, -1, "launches"};
  CHECK(amk_pool_run(shared, &s, 1, 0, &ctx) == AMK_POOL_OK);
  CHECK(amk_pool_run(shared, &s, 1, 0, &ctx) == AMK_POOL_OK);
  amk_pool_destroy(shared);
}

static void forked(void) {
  amk_pool *pool = amk_pool_create(3, 0);
  amk_ctx ctx = {7, 0, 0};
  int ops[2] = {0, 0};
  amk_stage s = {prologue, tile, some, ops, 0, 0, -1, "forked"};
  CHECK(amk_pool_run(pool, &s, 1, 0, &ctx) == AMK_POOL_OK);
  pid_t child = fork();
  if (child == 0) {
    alarm(10);
    CHECK(amk_pool_run(pool, &s, 1, 0, &ctx) == AMK_POOL_FORKED);
    amk_pool_destroy(pool);
    pool = amk_pool_create(2, 0);
    CHECK(amk_pool_run(pool, &s, 1, 0, &ctx) == AMK_POOL_OK);
    amk_pool_destroy(pool);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(amk_pool_run(pool, &s, 1, 0, &ctx) == AMK_POOL_OK);
  amk_pool_destroy(pool);
}

static double cpu_seconds(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}
static void idle(void) {
  amk_pool *pool = amk_pool_create(2, 0);
  amk_pool_set_spin(pool, 50000);
  usleep(20000);
  double before = cpu_seconds();
  usleep(400000);
  CHECK(cpu_seconds() - before < 0.02);
  amk_pool_destroy(pool);
}

static volatile float tiny = 0x1p-126f;
static atomic_int flushed;
static void halve(const amk_ctx *ctx, const int *ops, const float *priv, long t) {
  (void)ctx, (void)ops, (void)priv, (void)t;
  if (tiny * 0.5f == 0.0f) atomic_fetch_add(&flushed, 1);
  usleep(100);
}
static void subnormals(void) {
#if defined(__x86_64__)
  amk_fpenv flush = AMK_FPENV_DEFAULT | 0x8040;
#else
  amk_fpenv flush = 1u << 24;
#endif
  amk_fpenv_set(flush);
  CHECK(tiny * 0.5f == 0.0f);
  amk_pool *pool = amk_pool_create(3, 0);
  amk_ctx ctx = {60, 0, 0};
  amk_stage s = {0, halve, many, 0, 0, 0, -1, "halve"};
  CHECK(amk_pool_run(pool, &s, 1, 0, &ctx) == AMK_POOL_OK);
  CHECK(atomic_load(&flushed) == 0);
  CHECK(amk_fpenv_get() == flush || tiny * 0.5f == 0.0f);
  amk_pool_destroy(pool);
}

/* Steps: the tiles of a first stage mix the token with their number, one tile of a second stage
 * digests what they left into the next token. A step that reads at the wrong time goes astray. */
static int64_t token, next;
static uint64_t left[16];
static uint64_t digest(long past, int64_t from, long t) {
  return mix((uint64_t)from * 31 + (uint64_t)past, (uint64_t)t + 1);
}
static void spread(const amk_ctx *ctx, const int *ops, const float *priv, long t) {
  (void)ops, (void)priv;
  left[t] = digest(ctx->past, token, t);
}
static void collect(const amk_ctx *ctx, const int *ops, const float *priv, long t) {
  (void)ops, (void)priv, (void)t;
  uint64_t all = 0;
  for (long i = 0; i < some(ctx->past); i++) all = mix(all, left[i]);
  next = (int64_t)(all % 1000);
}
static int64_t expected(long past, int64_t from) {
  uint64_t all = 0;
  for (long i = 0; i < some(past); i++) all = mix(all, digest(past, from, i));
  return (int64_t)(all % 1000);
}
static void steps(int nworkers, int rounds, long spin) {
  static const int first[] = {0};
  const amk_stage two[] = {{0, spread, some, 0, 0, 0, 0, "spread"},
                           {0, collect, one, 0, first, 1, -1, "collect"}};
  amk_pool *pool = amk_pool_create(nworkers, 0);
  amk_pool_set_spin(pool, spin);
  int64_t made[8], wanted[8];
  long taken;
  for (int round = 0; round < rounds; round++) {
    const long past = (long)draw(100), count = 1 + (long)draw(8), upto = (long)draw(12);
    token = (int64_t)draw(1000);
    int64_t from = token;
    for (long i = 0; i < count; i++) from = wanted[i] = expected(past + i, from);
    const int64_t ends[] = {-7, upto < count ? wanted[upto] : -8};
    long until = 0;
    while (until + 1 < count && wanted[until] != ends[1]) until++;
    amk_steps_request request = {count, &token, &next, made, ends, 2};
    const amk_ctx ctx = {past, 0, 0};
    CHECK(amk_pool_steps(pool, two, 2, 1, ctx, &request, &taken) == AMK_POOL_OK);
    CHECK(taken == until + 1);
    for (long i = 0; i < taken; i++) CHECK(made[i] == wanted[i]);
  }
  amk_steps_request request = {3, &token, &next, made, 0, 0};
  const amk_stage bad = {0, spread, minus, 0, 0, 0, -1, "bad"};
  const amk_ctx ctx = {7, 0, 0};
  CHECK(amk_pool_steps(pool, &bad, 1, 0, ctx, &request, &taken) == AMK_POOL_BAD_TILES && !taken);
  CHECK(amk_pool_steps(pool, two, 2, 1, ctx, &request, &taken) == AMK_POOL_OK && taken == 3);
  amk_pool_destroy(pool);
}

int main(int argc, char **argv) {
  CHECK(argc > 1);
  const char *mode = argv[1];
  if (!strcmp(mode, "graphs")) {
    state = (uint64_t)atoi(argv[5]);
    random_graphs(atoi(argv[2]), atoi(argv[3]), atol(argv[4]));
  }
  if (!strcmp(mode, "steps")) steps(atoi(argv[2]), atoi(argv[3]), atol(argv[4]));
  if (!strcmp(mode, "errors")) errors(), bad_tiles();
  if (!strcmp(mode, "busy")) busy();
  if (!strcmp(mode, "forked")) forked();
  if (!strcmp(mode, "idle")) idle();
  if (!strcmp(mode, "subnormals")) subnormals();
  puts(mode);
  return 0;
}
"""


def build(folder: Path, *flags: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    source, output = folder / "pool.c", folder / "pool"
    source.write_text(PROGRAM)
    command = [compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{HEADERS}"]
    subprocess.run([*command, *flags, str(source), "-o", str(output)], check=True)
    return output


def run(program: Path, mode: str, *arguments: int) -> None:
    command = [str(program), mode, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, mode + "\n"), done.stderr


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("pool"), "-O2")


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tsan")
    try:
        program = build(folder, "-O1", "-g", "-fsanitize=thread")
    except subprocess.CalledProcessError:
        pytest.skip("the compiler has no ThreadSanitizer")
    done = subprocess.run([str(program), "errors"], capture_output=True, text=True, timeout=60)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer does not run on this kernel")
    return program


@pytest.mark.parametrize("workers", [1, 2, 4, 7])
@pytest.mark.parametrize("spin", [-1, 0, 2000])
def test_random_graphs(program, workers, spin):
    run(program, "graphs", workers, 20_000, spin, 17 * workers + spin)


@pytest.mark.parametrize("mode", ["errors", "busy", "forked", "idle", "subnormals"])
def test_behaviour(program, mode):
    run(program, mode)


@pytest.mark.parametrize(("workers", "spin"), [(2, -1), (4, 0), (7, 1000)])
def test_random_graphs_have_no_races(sanitized, workers, spin):
    run(sanitized, "graphs", workers, 3000, spin, workers)


def test_nested_launch_has_no_races(sanitized):
    run(sanitized, "busy")


@pytest.mark.parametrize(("workers", "spin"), [(1, -1), (3, 0), (4, 50_000)])
def test_steps_feed_each_other(program, workers, spin):
    run(program, "steps", workers, 10_000, spin)


@pytest.mark.parametrize(("workers", "spin"), [(2, -1), (4, 1000)])
def test_steps_have_no_races(sanitized, workers, spin):
    run(sanitized, "steps", workers, 2000, spin)
