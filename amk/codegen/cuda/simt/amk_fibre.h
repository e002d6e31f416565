/* A block of CUDA threads on one thread of the host: each CUDA thread is a fibre with a stack of its
 * own, and a switch happens only where it waits. Which of the fibres that can run goes on is FIFO,
 * LIFO or drawn from a seed; so is the moment at which an asynchronous copy lands. */
#ifndef AMK_FIBRE_H
#define AMK_FIBRE_H

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define AMK_RUNTIME __attribute__((noinline, unused, no_sanitize("thread")))
#define AMK_RELEASED(at) __tsan_release(at)
#define AMK_ACQUIRED(at) __tsan_acquire(at)
#elif defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define AMK_RUNTIME __attribute__((noinline, unused, no_sanitize("address")))
#define AMK_RELEASED(at)
#define AMK_ACQUIRED(at)
#else
#define AMK_RUNTIME __attribute__((noinline, unused))
#define AMK_RELEASED(at)
#define AMK_ACQUIRED(at)
#endif

#ifndef AMK_STACK_BYTES
#define AMK_STACK_BYTES (256 * 1024)
#endif

#define AMK_COPIES 256 /* under way in a block */

enum { AMK_FIFO = 0, AMK_LIFO = 1, AMK_RANDOM = 2 };

struct amk_schedule {
  int order;          /* AMK_FIFO, AMK_LIFO or AMK_RANDOM */
  int late_block;     /* a block that starts, and now and then goes on, late; -1 for none */
  uint64_t seed;
};

struct amk_fibre {
  void *sp;
  char *stack;
  void *sanitizer;
  int thread;
};

struct amk_warp { int waiting, generation; amk_fibre *sleepers[32]; float values[2][32]; };
struct amk_gate { int waiting; amk_fibre **sleepers; };
struct amk_copy { void *to; const void *from; int bytes; void *bar; };

struct amk_simt_block {
  int index, blocks, threads, live, failed, idle;
  uint64_t random;
  amk_schedule schedule;
  void *main_sp;
  void *main_sanitizer;
  const void *main_stack;
  size_t main_stack_bytes;
  amk_fibre *fibres, *self;
  amk_fibre **ready; /* a ring of threads + 1 places */
  int first, count;
  amk_warp *warps;
  amk_gate gates[16];
  amk_copy *copies;
  int copy_count;
  uint8_t *shared;
  void (*entry)(const void *);
  const void *argument;
};

static __thread amk_simt_block *amk_here;

/* ---- the switch ---- */

extern "C" void amk_switch(void **save, void *load);
#if defined(__x86_64__)
__asm__(".text\n.weak amk_switch\n.type amk_switch, @function\namk_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
#define AMK_SAVED_WORDS 6
#define AMK_ENTRY_WORD 6
#elif defined(__aarch64__)
__asm__(".text\n.weak amk_switch\n.type amk_switch, %function\namk_switch:\n"
        "sub sp, sp, #160\nstp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\n"
        "stp d14, d15, [sp, #144]\nmov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\n"
        "ldp d14, d15, [sp, #144]\nadd sp, sp, #160\nret\n");
#define AMK_SAVED_WORDS 20
#define AMK_ENTRY_WORD 11
#else
#error "amk: add this machine's switch of stacks to amk_fibre.h"
#endif

static AMK_RUNTIME void amk_jump(void **save, void *load, amk_fibre *to, bool dying) {
  amk_simt_block *b = amk_here;
  (void)b, (void)to, (void)dying;
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to ? to->sanitizer : b->main_sanitizer, 1 /* nothing is ordered by it */);
#elif defined(__SANITIZE_ADDRESS__)
  void *fake = 0;
  __sanitizer_start_switch_fiber(dying ? 0 : &fake, to ? to->stack : b->main_stack,
                                 to ? AMK_STACK_BYTES : b->main_stack_bytes);
#endif
  amk_switch(save, load);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, 0, 0);
#endif
}

/* ---- who runs ---- */

static AMK_RUNTIME uint64_t amk_draw(amk_simt_block *b) {
  uint64_t x = (b->random += 0x9e3779b97f4a7c15u); /* splitmix64 (Steele, Lea and Flood 2014) */
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static AMK_RUNTIME void amk_make_ready(amk_simt_block *b, amk_fibre *f) {
  int at = b->first + b->count++;
  b->ready[at >= b->threads ? at - b->threads : at] = f;
}

static AMK_RUNTIME amk_fibre *amk_take_ready(amk_simt_block *b) {
  int pick = 0;
  if (b->schedule.order == AMK_LIFO) pick = b->count - 1;
  if (b->schedule.order == AMK_RANDOM) pick = (int)(amk_draw(b) % b->count);
  int at = (b->first + pick) % b->threads, last = (b->first + b->count - 1) % b->threads;
  amk_fibre *f = b->ready[at];
  if (pick == 0) b->first = (b->first + 1) % b->threads;
  else b->ready[at] = b->ready[last];
  b->count--;
  return f;
}

/* Is it time for the main context: to land a copy, or because nothing else can go on? */
static AMK_RUNTIME bool amk_main_due(amk_simt_block *b) {
  if (b->failed || b->count == 0) return true;
  if (b->copy_count == 0) return false;
  return b->idle > b->count || (b->schedule.order == AMK_RANDOM ? amk_draw(b) % 16 == 0 : b->copy_count > 8);
}

/* The running fibre gives way; it goes on when something has made it ready and its turn comes. */
static AMK_RUNTIME void amk_give_way(amk_simt_block *b, bool dying) {
  amk_fibre *from = b->self, *to = 0;
  if (!amk_main_due(b)) {
    to = amk_take_ready(b);
    if (to == from) return;
  }
  b->self = to;
  amk_jump(&from->sp, to ? to->sp : b->main_sp, to, dying);
}

/* Something that is waited for is not there: others first, then other threads of the host. */
static AMK_RUNTIME void amk_yield(amk_simt_block *b) {
  if (++b->idle > 2 * b->count + 2) {
    sched_yield();
    b->idle = b->count + 1;
  }
  if (b->schedule.order == AMK_LIFO && b->count > 0) { /* or the last would starve the others */
    b->first = (b->first + b->threads - 1) % b->threads;
    b->ready[b->first] = b->self;
    b->count++;
  } else {
    amk_make_ready(b, b->self);
  }
  amk_give_way(b, false);
}

/* At random, another thread goes on here. */
static AMK_RUNTIME void amk_preempt() {
  amk_simt_block *b = amk_here;
  if (b->index == b->schedule.late_block && amk_draw(b) % 64 == 0) sched_yield();
  if (b->schedule.order != AMK_RANDOM || amk_draw(b) % 4) return;
  amk_make_ready(b, b->self);
  amk_give_way(b, false);
}

static AMK_RUNTIME void amk_fail(amk_simt_block *b) {
  b->failed = 1;
  amk_give_way(b, true);
  __builtin_unreachable();
}

static AMK_RUNTIME void amk_first_step() {
  amk_simt_block *b = amk_here;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(0, b->main_stack ? 0 : &b->main_stack,
                                  b->main_stack ? 0 : &b->main_stack_bytes);
#endif
  AMK_ACQUIRED(b); /* a launch begins after what came before it, and ends before what follows */
  b->entry(b->argument);
  AMK_RELEASED(&b->live);
  b->live--;
  amk_give_way(b, true);
  __builtin_unreachable();
}

/* ---- waiting for each other ---- */

static AMK_RUNTIME void amk_wait_at(amk_gate *g, int count, const void *order) {
  amk_simt_block *b = amk_here;
  (void)order;
  amk_preempt();
  AMK_RELEASED((void *)order);
  if (++g->waiting == count) {
    g->waiting = 0;
    b->idle = 0;
    for (int i = 0; i < count - 1; i++) amk_make_ready(b, g->sleepers[i]);
  } else {
    g->sleepers[g->waiting - 1] = b->self;
    amk_give_way(b, false);
  }
  AMK_ACQUIRED((void *)order);
}

/* Every lane of a warp gives a number and gets the array of all 32. */
static AMK_RUNTIME const float *amk_exchange(float x) {
  amk_simt_block *b = amk_here;
  amk_warp *w = &b->warps[b->self->thread / 32];
  float *values = w->values[w->generation & 1];
  values[b->self->thread % 32] = x;
  if (++w->waiting == 32) {
    w->waiting = 0;
    w->generation++;
    b->idle = 0;
    for (int i = 0; i < 31; i++) amk_make_ready(b, w->sleepers[i]);
  } else {
    w->sleepers[w->waiting - 1] = b->self;
    amk_give_way(b, false);
  }
  return values;
}

#endif
