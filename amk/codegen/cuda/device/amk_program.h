/* What the text of a program leans on: tables and the areas of shared memory, by the macros the
 * program defines. */
#ifndef AMK_PROGRAM_H
#define AMK_PROGRAM_H

#include "amk_attention.h"
#include "amk_mma.h"

struct amk_stage {
  short function;   /* which stage_N, and feed_N */
  short shift;      /* its tile l belongs to worker (l + shift) mod AMK_WORKERS */
  int operands;     /* its first buffer in the table of buffers */
  int waits;        /* the counters it waits for, in amk_waits, */
  short wait_count; /* and how many */
  short signal;     /* the counter its tiles raise, or -1 */
  int bases;        /* in amk_bases: the first counters of the events its tiles wait for and raise */
};

/* Before each stage: what a stage derives from its thread's number is not kept for the next one. */
AMK_INLINE void amk_renew(amk_worker &w) {
  w.thread = amk_anew(w.thread);
  w.lane = amk_anew(w.lane);
  w.warp = amk_anew(w.warp);
}

/* The first tile of this worker's list. */
AMK_INLINE long amk_first_tile(const amk_worker &w, int shift) {
  const int first = w.block - shift;
  return first < 0 ? first + AMK_WORKERS : first;
}

/* Memory for what a tile computes. With two areas, used in turn, the barrier inside each tile keeps
 * a tile's last reads apart from the writes of the tile after next; with one, a barrier here does. */
AMK_INLINE uint8_t *amk_area(const amk_worker &w, int &turn) {
  if (AMK_AREAS == 1) amk_sync(w);
  uint8_t *area = w.shared + AMK_AREA + turn * AMK_AREA_BYTES;
  turn ^= AMK_AREAS - 1;
  return area;
}

#endif
