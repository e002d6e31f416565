/* A worker: one block, its compute warps and the warp that streams weights; how it waits for events
 * and raises them, and what it leaves behind when it has waited too long.
 *
 * Events count finished tiles and are never reset: each step adds the same number to each of them
 * (`tiles`, the most the event can see at any position; what a position lacks is topped up), so
 * in step n, counting from 1 over all launches, an event is complete when its counter has reached
 * n * tiles. */
#ifndef AMK_WORKER_H
#define AMK_WORKER_H

#include "amk_device.h"

#ifndef AMK_WARPS
#define AMK_WARPS 8
#endif
#define AMK_COMPUTE (AMK_WARPS * 32)
#define AMK_COMPUTE_BARRIER 1

struct amk_launch {
  long past;               /* positions in the cache */
  long capacity;           /* rows a cache has room for */
  void *const *operands;   /* the buffers of stage after stage */
  uint32_t *events;        /* counters, zero before the first launch */
  uint32_t *trouble;       /* AMK_TROUBLE_WORDS words, zero unless a launch failed */
  uint8_t *scratch;        /* AMK_SCRATCH_BYTES a worker, for what shared memory cannot hold */
  uint64_t patience;       /* nanoseconds an event may take */
  const int64_t *token;    /* the token a step makes, which is the one the next step reads */
  int64_t *made;           /* what each step of this launch made */
  const int64_t *ends;     /* tokens after which no further step is taken */
  uint32_t number;         /* of this launch's first step, from 1 */
  uint32_t steps;          /* greedy steps this launch takes, at most */
  uint32_t end_count;
  uint32_t unused;
  uint64_t *timeline;      /* of a kernel with stamps: AMK_STAMPS times a stage, a block's in a row */
};

/* What is written down when something did not come in time. */
enum { AMK_TROUBLE_STATE, AMK_TROUBLE_KIND, AMK_TROUBLE_WHAT, AMK_TROUBLE_STAGE, AMK_TROUBLE_BLOCK,
       AMK_TROUBLE_VALUE, AMK_TROUBLE_TARGET, AMK_TROUBLE_POSITION, AMK_TROUBLE_WORDS };
enum { AMK_EVENT_STUCK = 1, AMK_FULL_STUCK = 2, AMK_EMPTY_STUCK = 3 };

struct amk_worker {
  const amk_launch *launch;
  long past;
  uint8_t *shared;      /* all shared memory of the block */
  uint8_t *ring;        /* the ring's slots */
  uint64_t *full;       /* a barrier a slot: filled */
  uint64_t *empty;      /* a barrier a slot: free again */
  float *sums;          /* two sets of AMK_WARPS floats, and of places, for sums over the block */
  uint8_t *scratch;     /* the worker's own part of global memory */
  int block, thread, lane, warp;
  int slot, parity;     /* the ring's next slot and the parity of its phase */
  int next;             /* the warp that takes the next row of a matmul */
  int turn;             /* which of two areas is written now */
  uint32_t number;      /* of the step, over all launches */
  int stage;            /* for reports */
};

AMK_INLINE void amk_sync(const amk_worker &w) { amk_barrier(AMK_COMPUTE_BARRIER, AMK_COMPUTE); }

/* When a block came to a stage, had what it waited for, and was through with it: nanoseconds of the
 * GPU's own clock, in kernels that were emitted with a timeline. */
enum { AMK_BEGIN, AMK_READY, AMK_END, AMK_STAMPS };
#ifdef AMK_TIMELINE
AMK_INLINE void amk_stamp(const amk_worker &w, int what) {
  if (w.thread != 0) return;
  w.launch->timeline[(w.block * AMK_TIMELINE + w.stage) * AMK_STAMPS + what] = amk_nanoseconds();
}
#else
AMK_INLINE void amk_stamp(const amk_worker &, int) {}
#endif

/* Writes the report of the first trouble of a launch; later ones find the place taken. The slow
 * paths take what they need by value: a worker whose address is taken would not stay in registers. */
AMK_FUNCTION void amk_report(const amk_launch *launch, int kind, uint32_t what, int stage,
                             int block, uint32_t value, uint32_t target) {
  uint32_t *at = launch->trouble;
  if (!amk_claim(at, 0, 1)) return;
  at[AMK_TROUBLE_KIND] = kind;
  at[AMK_TROUBLE_WHAT] = what;
  at[AMK_TROUBLE_STAGE] = stage;
  at[AMK_TROUBLE_BLOCK] = block;
  at[AMK_TROUBLE_VALUE] = value;
  at[AMK_TROUBLE_TARGET] = target;
  at[AMK_TROUBLE_POSITION] = (uint32_t)launch->past;
  amk_store_release(at, 2);
}

AMK_INLINE bool amk_reached(uint32_t value, uint32_t target) {
  return (int)(value - target) >= 0; /* counters may wrap around */
}

/* Looks at a counter until it has reached its target. When it does not in time, or another worker
 * has given up, the launch is lost: the worker runs on to its end without waiting. */
AMK_FUNCTION void amk_wait_long(const amk_launch *launch, uint32_t event, uint32_t target, int stage,
                                int block) {
  uint64_t until = amk_nanoseconds() + launch->patience;
  for (uint32_t n = 1;; n++) {
    uint32_t value = amk_load_acquire(launch->events + event);
    if (amk_reached(value, target)) return;
    amk_pause();
    if (n % 64 != 0) continue;
    if (amk_load_relaxed(launch->trouble) != 0) return;
    if (amk_nanoseconds() > until) {
      amk_report(launch, AMK_EVENT_STUCK, event, stage, block, value, target);
      return;
    }
  }
}

AMK_INLINE void amk_look_at(const amk_worker &w, const uint32_t *tiles, int event) {
  const uint32_t target = tiles[event] * w.number;
  if (!amk_reached(amk_load_acquire(w.launch->events + event), target))
    amk_wait_long(w.launch, event, target, w.stage, w.block);
}

/* Waits for the counters in `list`, each lane of the first warp for its own, and then for the other
 * compute warps: what the last stage left in shared memory may be overwritten afterwards. */
AMK_INLINE void amk_wait(const amk_worker &w, const uint32_t *tiles, const short *list, int count) {
  if (w.warp == 0)
    for (int i = w.lane; i < count; i += 32) amk_look_at(w, tiles, list[i]);
  amk_sync(w);
  amk_stamp(w, AMK_READY);
}

/* The first warp waits for counters [event, event + count); the others at the barrier after it. */
AMK_INLINE void amk_look(const amk_worker &w, const uint32_t *tiles, long event, long count) {
  if (w.warp == 0)
    for (long i = w.lane; i < count; i += 32) amk_look_at(w, tiles, event + i);
}

/* `n` more finished tiles at a counter, after a barrier that all their stores came before. */
AMK_INLINE void amk_raise(const amk_worker &w, long event, uint32_t n) {
  if (w.thread == 0) amk_add_release(w.launch->events + event, n);
}

/* Every compute thread's stores so far, then `n` more finished tiles at a counter. */
AMK_INLINE void amk_signal(const amk_worker &w, int event, uint32_t n) {
  amk_sync(w);
  amk_raise(w, event, n);
}

/* What a position has fewer tiles than the event counts. */
AMK_INLINE void amk_top_up(const amk_worker &w, int event, uint32_t n) {
  if (w.block == 0 && w.thread == 0 && n > 0) amk_add_release(w.launch->events + event, n);
}

/* ---- the ring ---- */

AMK_INLINE void amk_next_slot(amk_worker &w, int slots) {
  w.slot++;
  if (w.slot == slots) {
    w.slot = 0;
    w.parity ^= 1;
  }
}

/* A barrier's phase turns, unless the ring's own protocol is broken: then nothing sensible can
 * follow, and the launch is aborted. */
AMK_FUNCTION void amk_wait_bar_long(const amk_launch *launch, uint64_t *bar, int parity, int kind,
                                    int slot, int stage, int block) {
  uint64_t until = amk_nanoseconds() + 2 * launch->patience;
  for (uint32_t n = 1; !amk_bar_try(bar, parity); n++) {
    amk_pause();
    if (n % 64 == 0 && amk_nanoseconds() > until) {
      amk_report(launch, kind, slot, stage, block, 0, parity);
      amk_trap();
    }
  }
}
AMK_INLINE void amk_wait_bar(const amk_worker &w, uint64_t *bar, int parity, int kind) {
  if (!amk_bar_try(bar, parity))
    amk_wait_bar_long(w.launch, bar, parity, kind, w.slot, w.stage, w.block);
}

/* Producer: moves rows [0, rows) of `row_bytes` bytes through the ring, `piece` rows a slot. */
AMK_INLINE void amk_stream(amk_worker &w, const void *from, int rows, int row_bytes, int piece,
                           int slots, int slot_bytes) {
  for (int r = 0; r < rows; r += piece) {
    int n = rows - r < piece ? rows - r : piece;
    amk_wait_bar(w, w.empty + w.slot, w.parity ^ 1, AMK_EMPTY_STUCK);
    amk_warp_barrier();
    amk_copy_async(w.ring + w.slot * slot_bytes, (const uint8_t *)from + (long)r * row_bytes,
                   n * row_bytes, w.full + w.slot, w.lane);
    amk_next_slot(w, slots);
  }
}

/* ---- the start of a launch ---- */

struct amk_areas { int ring, bars, sums; }; /* byte offsets in shared memory */

AMK_INLINE amk_worker amk_begin(const amk_launch &launch, uint8_t *shared, const amk_areas &areas,
                                int slots, long scratch_bytes) {
  amk_worker w;
  w.launch = &launch;
  w.past = launch.past;
  w.number = launch.number;
  w.shared = shared;
  w.ring = shared + areas.ring;
  w.full = (uint64_t *)(shared + areas.bars);
  w.empty = w.full + slots;
  w.sums = (float *)(shared + areas.sums);
  w.block = amk_block();
  w.scratch = launch.scratch + w.block * scratch_bytes;
  w.thread = amk_thread();
  w.lane = w.thread % 32;
  w.warp = w.thread / 32;
  w.slot = w.parity = w.next = w.turn = w.stage = 0;
  if (w.thread == 0) {
    for (int i = 0; i < slots; i++) {
      amk_bar_init(w.full + i, AMK_COPY_ARRIVALS);
      amk_bar_init(w.empty + i, AMK_WARPS);
    }
    amk_bar_publish();
  }
  amk_barrier(0, AMK_COMPUTE + (slots > 0 ? 32 : 0));
  return w;
}

/* ---- several steps in one launch ----
 *
 * Block 0 sees the step's token made, writes it down and raises the counter `stepped`. Everyone
 * reads the token from there, never from where the next step puts its own. By then all tiles of
 * the step are done: the last stage waits for every other, directly or not. */

AMK_INLINE void amk_finish_step(const amk_worker &w, const uint32_t *tiles, int last, int stepped,
                                int step) {
  if (w.block != 0 || w.thread != 0) return;
  amk_look_at(w, tiles, last);
  w.launch->made[step] = *w.launch->token;
  amk_raise(w, stepped, 1);
}

/* On to the next step; false when the token that was made is an end. */
AMK_INLINE bool amk_next_step(amk_worker &w, const uint32_t *tiles, int stepped, int step,
                              bool streams) {
  if (w.thread == 0 || (streams && w.lane == 0)) amk_look_at(w, tiles, stepped);
  if (streams)
    amk_warp_barrier();
  else
    amk_sync(w);
  const int64_t token = w.launch->made[step];
  for (uint32_t i = 0; i < w.launch->end_count; i++)
    if (w.launch->ends[i] == token) return false;
  w.past++;
  w.number++;
  return true;
}

#endif
