/* Greedy steps in one launch: the token that a step made is the one the next step reads.
 *
 * The boundary between two steps is one event, the pool's ticket. The launcher sees all tiles of a
 * step done, puts the token where the next step reads it, and publishes that step's ticket; each
 * worker acquires it with its first claim, before its first access of the step. Counters begin at
 * zero in each step, as in a launch of its own, so the bits are those of as many launches. */
#ifndef AMK_STEPS_H
#define AMK_STEPS_H

#include "pool.h"

typedef struct amk_steps_request {
  long count;          /* steps to take, at most */
  int64_t *token;      /* what a step reads; holds the first token */
  const int64_t *next; /* what a step makes */
  int64_t *made;       /* room for `count` tokens: what each step made */
  const int64_t *ends; /* tokens after which no further step is taken */
  long nends;
} amk_steps_request;

static inline int amk_is_end(const amk_steps_request *r, int64_t token) {
  for (long i = 0; i < r->nends; i++)
    if (r->ends[i] == token) return 1;
  return 0;
}

/* Takes steps from past length ctx.past on; `*taken` counts those that were. */
static inline int amk_pool_steps(amk_pool *pool, const amk_stage *stages, int nstages, int nevents,
                                 amk_ctx ctx, const amk_steps_request *r, long *taken) {
  *taken = 0;
  int error = amk_pool_take(pool);
  if (error) return error;
  while (*taken < r->count) {
    error = amk_pool_pass(pool, stages, nstages, nevents, &ctx);
    if (error) break;
    const int64_t made = r->made[(*taken)++] = *r->next;
    if (amk_is_end(r, made)) break;
    *r->token = made;
    ctx.past++;
  }
  amk_pool_leave(pool);
  return error;
}

#endif
