/* Waiting for a condition: spin a while, then sleep until woken.
 *
 * No wake-up is lost. A sleeper counts itself and then looks at the condition again; a waker makes
 * the condition true and then looks at the count. All four steps are sequentially consistent, so
 * one of the two sees the other; and the sleeper holds the lock from its look until it sleeps. */
#ifndef AMK_PARKING_H
#define AMK_PARKING_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

typedef struct amk_parking {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  _Alignas(64) atomic_int sleepers;
} amk_parking;

static inline void amk_parking_init(amk_parking *p) {
  pthread_mutex_init(&p->lock, 0);
  pthread_cond_init(&p->changed, 0);
  atomic_store(&p->sleepers, 0);
}

static inline void amk_parking_destroy(amk_parking *p) {
  pthread_cond_destroy(&p->changed);
  pthread_mutex_destroy(&p->lock);
}

/* Call after the condition became true through a sequentially consistent store. */
static inline void amk_wake(amk_parking *p) {
  if (atomic_load(&p->sleepers) == 0) return;
  pthread_mutex_lock(&p->lock);
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
}

static inline void amk_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static inline int64_t amk_nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Returns once ready(argument) holds; `ready` reads with sequential consistency. */
static inline void amk_wait(amk_parking *p, int (*ready)(void *), void *argument, long spin_ns) {
  if (ready(argument)) return;
  if (spin_ns > 0) {
    int64_t until = amk_nanoseconds() + spin_ns;
    do {
      for (int i = 0; i < 32; i++) {
        if (ready(argument)) return;
        amk_pause();
      }
    } while (amk_nanoseconds() < until);
  }
  pthread_mutex_lock(&p->lock);
  atomic_fetch_add(&p->sleepers, 1);
  while (!ready(argument)) pthread_cond_wait(&p->changed, &p->lock);
  atomic_fetch_sub(&p->sleepers, 1);
  pthread_mutex_unlock(&p->lock);
}

#endif
