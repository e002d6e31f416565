/* Runs a kernel on the host: a thread a block, the grid at once, as a cooperative launch does.
 *
 *   int amk_simt_launch(const amk_launch *, int blocks, int order, int late_block, uint64_t seed)
 *
 * Returns 0, or 1 when a launch was lost (the trouble words tell), or 2 without memory. */
#ifndef AMK_SIMT_H
#define AMK_SIMT_H

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { AMK_BLOCK_STUCK = 4 };

static void amk_enter(const void *launch) { amk_program(*(const amk_launch *)launch); }

/* Every thread of the block waits and no copy is under way: a barrier that not all of them reach. */
static void amk_report_stuck(amk_simt_block *b) {
  uint32_t *at = ((const amk_launch *)b->argument)->trouble;
  if (!amk_claim(at, 0, 1)) return;
  at[AMK_TROUBLE_KIND] = AMK_BLOCK_STUCK;
  at[AMK_TROUBLE_BLOCK] = b->index;
  at[AMK_TROUBLE_POSITION] = (uint32_t)((const amk_launch *)b->argument)->past;
  amk_store_release(at, 2);
}

static void amk_run_block(amk_simt_block *b) {
  for (int i = 0; i < b->threads; i++) amk_make_ready(b, &b->fibres[i]);
  while (b->live > 0 && !b->failed) {
    if (b->copy_count > 0 && (b->count == 0 || b->idle > b->count || amk_main_due(b))) {
      amk_land_copy();
      if (b->count == 0) continue;
    }
    if (b->count == 0) {
      amk_report_stuck(b);
      b->failed = 1;
      break;
    }
    b->self = amk_take_ready(b);
    amk_jump(&b->main_sp, b->self->sp, b->self, false);
  }
}

static bool amk_make_fibre(amk_simt_block *b, int i, char *stacks) {
  amk_fibre *f = &b->fibres[i];
  f->thread = i;
  f->stack = stacks + (size_t)i * AMK_STACK_BYTES;
  void **top = (void **)(f->stack + AMK_STACK_BYTES - 64);
  top -= AMK_SAVED_WORDS + 2;
  memset(top, 0, (AMK_SAVED_WORDS + 2) * sizeof(void *));
  top[AMK_ENTRY_WORD] = (void *)&amk_first_step;
  f->sp = top;
#if defined(__SANITIZE_THREAD__)
  f->sanitizer = __tsan_create_fiber(0);
#endif
  return true;
}

static void *amk_block_main(void *argument) {
  amk_simt_block *b = (amk_simt_block *)argument;
  amk_here = b;
#if defined(__x86_64__)
  _mm_setcsr(0x1f80);
#endif
#if defined(__SANITIZE_THREAD__)
  b->main_sanitizer = __tsan_get_current_fiber();
#endif
  size_t bytes = (size_t)b->threads * AMK_STACK_BYTES;
  char *stacks = (char *)mmap(0, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) {
    b->failed = 2;
    return 0;
  }
  for (int i = 0; i < b->threads; i++) amk_make_fibre(b, i, stacks);
  if (b->index == b->schedule.late_block) {
    struct timespec pause = {0, 20000000};
    nanosleep(&pause, 0);
  }
  AMK_RELEASED(b);
  amk_run_block(b);
  AMK_ACQUIRED(&b->live);
#if defined(__SANITIZE_THREAD__)
  for (int i = 0; i < b->threads; i++) __tsan_destroy_fiber(b->fibres[i].sanitizer);
#endif
  munmap(stacks, bytes);
  return 0;
}

static void amk_free_block(amk_simt_block *b) {
  for (int i = 0; i < 16; i++) free(b->gates[i].sleepers);
  free(b->fibres), free(b->ready), free(b->warps), free(b->copies), free(b->shared);
}

static void amk_fill_block(amk_simt_block *b, int index, int blocks, const amk_schedule *schedule) {
  memset(b, 0, sizeof *b);
  b->index = index, b->blocks = blocks, b->threads = b->live = amk_kernel_threads;
  b->schedule = *schedule;
  b->random = schedule->seed * 1000003u + index;
  b->entry = amk_enter;
  b->fibres = (amk_fibre *)calloc(b->threads, sizeof(amk_fibre));
  b->ready = (amk_fibre **)calloc(b->threads, sizeof(amk_fibre *));
  b->copies = (amk_copy *)calloc(AMK_COPIES, sizeof(amk_copy));
  b->warps = (amk_warp *)calloc(b->threads / 32 + 1, sizeof(amk_warp));
  for (int i = 0; i < 16; i++)
    b->gates[i].sleepers = (amk_fibre **)calloc(b->threads, sizeof(amk_fibre *));
  b->shared = (uint8_t *)aligned_alloc(1024, (AMK_SHARED_BYTES + 1023) / 1024 * 1024);
  memset(b->shared, 0xff, AMK_SHARED_BYTES); /* NaNs: a read before a write shows */
}

extern "C" int amk_simt_launch(const amk_launch *launch, int blocks, int order, int late_block,
                               uint64_t seed) {
  amk_schedule schedule = {order, late_block, seed};
  amk_simt_block *all = (amk_simt_block *)calloc(blocks, sizeof(amk_simt_block));
  pthread_t *threads = (pthread_t *)calloc(blocks, sizeof(pthread_t));
  int failed = all && threads ? 0 : 2, started = 0;
  for (int i = 0; i < blocks && !failed; i++) {
    amk_fill_block(&all[i], i, blocks, &schedule);
    all[i].argument = launch;
  }
  for (; started < blocks && !failed; started++)
    if (pthread_create(&threads[started], 0, amk_block_main, &all[started])) failed = 2;
  for (int i = 0; i < started; i++) pthread_join(threads[i], 0);
  for (int i = 0; i < blocks && all; i++) {
    if (all[i].failed > failed) failed = all[i].failed;
    amk_free_block(&all[i]);
  }
  free(all), free(threads);
  if (!failed && launch->trouble[0]) failed = 1;
  return failed;
}

#endif
