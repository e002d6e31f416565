/* A pool of workers that runs stages of tiles under the claimed schedule.
 *
 * Workers take tiles from one global order, stage after stage. A tile waits for its stage's
 * events; an event is complete when every tile of every stage that signals it is done. Waiting
 * cannot deadlock: whatever a tile waits for belongs to earlier stages (checked at launch), so
 * its claimants are already at work.
 *
 * The ticket holds the launch's generation in its upper half and the tiles still unclaimed in its
 * lower half; claiming is one compare-and-swap. A worker touches the description of a launch only
 * while it holds one of its tiles, so a launch is over when its last tile is, whoever sleeps:
 * nobody checks in or out, and a suspended worker delays only the tile it holds.
 *
 * Order of memory: the launcher writes the description, then publishes the ticket (release); a
 * claim acquires it. A tile's writes come before its counts (release), which waiters acquire. */
#ifndef AMK_POOL_H
#define AMK_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "fpenv.h"
#include "parking.h"

typedef struct amk_ctx {
  long past;              /* rows of the cache written before this launch */
  void *const *buffers;
  const long *capacity;   /* rows a cache holds, by buffer index */
} amk_ctx;

typedef struct amk_stage {
  void (*prologue)(const amk_ctx *, const int *operands, float *priv); /* or null */
  void (*tile)(const amk_ctx *, const int *operands, const float *priv, long tile);
  long (*tiles)(long past); /* how many; zero is legal */
  const int *operands;
  const int *waits;         /* events that must be complete before the prologue */
  int nwaits;
  int signal;               /* event its tiles count towards, or -1 */
  const char *name;
} amk_stage;

enum amk_pool_error {
  AMK_POOL_OK = 0,
  AMK_POOL_NO_MEMORY = 1,
  AMK_POOL_FORKED = 2,    /* the pool belongs to the parent process: make another */
  AMK_POOL_BUSY = 3,      /* a launch is under way on another thread */
  AMK_POOL_BAD_EVENT = 4, /* an event outside [0, nevents) */
  AMK_POOL_BAD_TILES = 5, /* a negative count of tiles, or 2^32 and more in all */
  AMK_POOL_BAD_ORDER = 6, /* a stage waits for an event that it or a later stage signals */
};

/* An event's progress has a cache line to itself; the target is fixed during a launch. */
typedef struct amk_event {
  _Alignas(64) _Atomic int64_t done;
  int64_t target;
  int last_signaller;
} amk_event;

typedef struct amk_pool amk_pool;

typedef struct amk_worker {
  amk_pool *pool;
  float *priv;
  pthread_t thread;
} amk_worker;

struct amk_pool {
  _Alignas(64) _Atomic uint64_t ticket;
  _Alignas(64) _Atomic int64_t finished; /* tiles done in this launch */
  _Alignas(64) atomic_int stop;
  atomic_flag running;
  amk_parking idle;     /* workers between launches */
  amk_parking progress; /* workers waiting for an event, and the launcher for the end */
  /* The launch. */
  const amk_stage *stages;
  const amk_ctx *ctx;
  int64_t *first_tile; /* of each stage, and the total after the last */
  amk_event *events;
  int nstages, stage_room, event_room;
  /* The pool. */
  amk_worker *workers;
  char *priv;
  int nworkers, started;
  atomic_long spin_ns;
  pid_t pid;
};

/* How long a waiter spins before it sleeps; 0 sleeps at once. */
static inline void amk_pool_set_spin(amk_pool *pool, long nanoseconds) {
  atomic_store(&pool->spin_ns, nanoseconds);
}

/* ---- waiting ----------------------------------------------------------------------------- */

static inline int amk_event_complete(void *event) {
  amk_event *e = event;
  return atomic_load(&e->done) >= e->target;
}
static inline int amk_launch_finished(void *pool) {
  amk_pool *p = pool;
  return atomic_load(&p->finished) == p->first_tile[p->nstages];
}
static inline int amk_work_offered(void *pool) {
  amk_pool *p = pool;
  return (uint32_t)atomic_load(&p->ticket) != 0 || atomic_load(&p->stop);
}

/* ---- working ----------------------------------------------------------------------------- */

/* Takes the next tile; false when none is left. */
static inline int amk_claim(amk_pool *pool, uint32_t *generation, int64_t *tile) {
  uint64_t ticket = atomic_load(&pool->ticket);
  do {
    if ((uint32_t)ticket == 0) return 0;
  } while (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket - 1));
  *generation = (uint32_t)(ticket >> 32);
  *tile = pool->first_tile[pool->nstages] - (int64_t)(uint32_t)ticket;
  return 1;
}

/* Claims and runs tiles until none is left. A worker meets the stages of a launch in order. */
static inline void amk_work(amk_worker *worker) {
  amk_pool *pool = worker->pool;
  uint32_t generation, current = 0;
  int64_t tile;
  int stage = 0, entered = -1;
  for (int first = 1; amk_claim(pool, &generation, &tile); first = 0) {
    if (first || generation != current) current = generation, stage = 0, entered = -1;
    while (tile >= pool->first_tile[stage + 1]) stage++;
    const amk_stage *s = &pool->stages[stage];
    if (entered != stage) {
      for (int i = 0; i < s->nwaits; i++)
        amk_wait(&pool->progress, amk_event_complete, &pool->events[s->waits[i]], pool->spin_ns);
      if (s->prologue) s->prologue(pool->ctx, s->operands, worker->priv);
      entered = stage;
    }
    s->tile(pool->ctx, s->operands, worker->priv, tile - pool->first_tile[stage]);
    int complete = 0;
    if (s->signal >= 0) {
      amk_event *e = &pool->events[s->signal];
      complete = atomic_fetch_add(&e->done, 1) + 1 == e->target;
    }
    /* After this count the launch may be over: its description is not touched again. */
    int64_t total = pool->first_tile[pool->nstages];
    complete |= atomic_fetch_add(&pool->finished, 1) + 1 == total;
    if (complete) amk_wake(&pool->progress);
  }
}

static inline void *amk_worker_main(void *argument) {
  amk_worker *worker = argument;
  amk_pool *pool = worker->pool;
  amk_fpenv_set(AMK_FPENV_DEFAULT);
  for (;;) {
    amk_wait(&pool->idle, amk_work_offered, pool, pool->spin_ns);
    if (atomic_load(&pool->stop)) return 0;
    amk_work(worker);
  }
}

/* ---- launching --------------------------------------------------------------------------- */

static inline int amk_pool_reserve(amk_pool *pool, int nstages, int nevents) {
  if (nstages > pool->stage_room) {
    int64_t *grown = realloc(pool->first_tile, ((size_t)nstages + 1) * sizeof(int64_t));
    if (!grown) return AMK_POOL_NO_MEMORY;
    pool->first_tile = grown, pool->stage_room = nstages;
  }
  if (nevents > pool->event_room) {
    amk_event *grown = aligned_alloc(64, (size_t)nevents * sizeof(amk_event));
    if (!grown) return AMK_POOL_NO_MEMORY;
    free(pool->events);
    pool->events = grown, pool->event_room = nevents;
  }
  return AMK_POOL_OK;
}

/* Counts tiles, sets the targets of the events, and checks what keeps the schedule from hanging. */
static inline int amk_pool_describe(amk_pool *pool, const amk_stage *stages, int nstages,
                                    int nevents, const amk_ctx *ctx) {
  int error = amk_pool_reserve(pool, nstages, nevents);
  if (error) return error;
  for (int e = 0; e < nevents; e++) {
    atomic_store_explicit(&pool->events[e].done, 0, memory_order_relaxed);
    pool->events[e].target = 0, pool->events[e].last_signaller = -1;
  }
  pool->first_tile[0] = 0;
  for (int i = 0; i < nstages; i++) {
    long tiles = stages[i].tiles(ctx->past);
    if (tiles < 0 || tiles > UINT32_MAX - pool->first_tile[i]) return AMK_POOL_BAD_TILES;
    pool->first_tile[i + 1] = pool->first_tile[i] + tiles;
    if (stages[i].signal < -1 || stages[i].signal >= nevents) return AMK_POOL_BAD_EVENT;
    if (stages[i].signal < 0) continue;
    pool->events[stages[i].signal].target += tiles;
    pool->events[stages[i].signal].last_signaller = i;
  }
  for (int i = 0; i < nstages; i++)
    for (int w = 0; w < stages[i].nwaits; w++) {
      int e = stages[i].waits[w];
      if (e < 0 || e >= nevents) return AMK_POOL_BAD_EVENT;
      if (pool->events[e].last_signaller >= i) return AMK_POOL_BAD_ORDER;
    }
  pool->stages = stages, pool->nstages = nstages, pool->ctx = ctx;
  return AMK_POOL_OK;
}

/* Takes the pool for one launch, until amk_pool_leave; or says why it cannot be had. */
static inline int amk_pool_take(amk_pool *pool) {
  if (getpid() != pool->pid) return AMK_POOL_FORKED;
  return atomic_flag_test_and_set(&pool->running) ? AMK_POOL_BUSY : AMK_POOL_OK;
}
static inline void amk_pool_leave(amk_pool *pool) { atomic_flag_clear(&pool->running); }

/* Runs the stages once, on a pool that was taken. Returns when every tile is done, or an
 * amk_pool_error before any is begun. The calling thread is worker 0. */
static inline int amk_pool_pass(amk_pool *pool, const amk_stage *stages, int nstages, int nevents,
                                const amk_ctx *ctx) {
  int error = amk_pool_describe(pool, stages, nstages, nevents, ctx);
  int64_t total = error ? 0 : pool->first_tile[nstages];
  if (total > 0) {
    amk_fpenv saved = amk_fpenv_get();
    amk_fpenv_set(AMK_FPENV_DEFAULT);
    atomic_store(&pool->finished, 0);
    uint64_t generation = (atomic_load(&pool->ticket) >> 32) + 1;
    atomic_store(&pool->ticket, generation << 32 | (uint64_t)total);
    if (total > 1) amk_wake(&pool->idle);
    amk_work(&pool->workers[0]);
    amk_wait(&pool->progress, amk_launch_finished, pool, pool->spin_ns);
    amk_fpenv_set(saved);
  }
  return error;
}

/* A launch of one pass. `stages` and `ctx` stay the caller's. */
static inline int amk_pool_run(amk_pool *pool, const amk_stage *stages, int nstages, int nevents,
                               const amk_ctx *ctx) {
  int error = amk_pool_take(pool);
  if (error) return error;
  error = amk_pool_pass(pool, stages, nstages, nevents, ctx);
  amk_pool_leave(pool);
  return error;
}

/* ---- the pool's life --------------------------------------------------------------------- */

/* Ends the workers and frees the pool; in a forked child, which has no workers, only frees. No
 * launch may be under way. Null is allowed. */
static inline void amk_pool_destroy(amk_pool *pool) {
  if (!pool) return;
  if (getpid() == pool->pid) {
    atomic_store(&pool->stop, 1);
    amk_wake(&pool->idle);
    for (int i = 1; i < pool->started; i++) pthread_join(pool->workers[i].thread, 0);
    amk_parking_destroy(&pool->idle);
    amk_parking_destroy(&pool->progress);
  }
  free(pool->first_tile);
  free(pool->events);
  free(pool->workers);
  free(pool->priv);
  free(pool);
}

/* A thread with a large, lazily mapped stack, deaf to signals: those are the caller's. */
static inline int amk_worker_start(amk_worker *worker) {
  pthread_attr_t attributes;
  sigset_t all, before;
  if (pthread_attr_init(&attributes)) return -1;
  pthread_attr_setstacksize(&attributes, (size_t)64 << 20);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&worker->thread, &attributes, amk_worker_main, worker);
  pthread_sigmask(SIG_SETMASK, &before, 0);
  pthread_attr_destroy(&attributes);
  return failed;
}

/* nworkers - 1 threads, none for one worker, each with priv_bytes of private memory on a 64-byte
 * boundary. Null when nworkers < 1, or memory or threads are not to be had. Workers spin for
 * 50 us before they sleep, not at all when there are more of them than processors. */
static inline amk_pool *amk_pool_create(int nworkers, size_t priv_bytes) {
  if (nworkers < 1) return 0;
  size_t each = (priv_bytes + 127) / 64 * 64; /* never empty, and workers never share a line */
  amk_pool *pool = aligned_alloc(64, sizeof *pool);
  if (!pool) return 0;
  *pool = (amk_pool){.nworkers = nworkers, .started = 1, .stage_room = -1, .pid = getpid()};
  amk_pool_set_spin(pool, nworkers > sysconf(_SC_NPROCESSORS_ONLN) ? 0 : 50000);
  atomic_flag_clear(&pool->running);
  amk_parking_init(&pool->idle);
  amk_parking_init(&pool->progress);
  pool->workers = calloc((size_t)nworkers, sizeof(amk_worker));
  pool->priv = aligned_alloc(64, each * (size_t)nworkers);
  int failed = !pool->workers || !pool->priv;
  for (int i = 0; i < nworkers && !failed; i++) {
    pool->workers[i].pool = pool;
    pool->workers[i].priv = (float *)(void *)(pool->priv + (size_t)i * each);
    if (i == 0) continue;
    failed = amk_worker_start(&pool->workers[i]);
    if (!failed) pool->started++;
  }
  if (!failed) return pool;
  amk_pool_destroy(pool);
  return 0;
}

#endif
