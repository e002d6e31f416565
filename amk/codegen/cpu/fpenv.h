/* The floating-point environment of tiles: round to nearest, subnormals kept, nothing trapped.
 *
 * A thread inherits the environment of its creator, and libraries turn on flush-to-zero behind a
 * caller's back; with the default set around each launch every worker gives the same bits. */
#ifndef AMK_FPENV_H
#define AMK_FPENV_H

#include <stdint.h>

typedef uint64_t amk_fpenv;

#if defined(__x86_64__)
#define AMK_FPENV_DEFAULT 0x1f80u
static inline amk_fpenv amk_fpenv_get(void) { return __builtin_ia32_stmxcsr(); }
static inline void amk_fpenv_set(amk_fpenv e) { __builtin_ia32_ldmxcsr((unsigned)e); }
#elif defined(__aarch64__)
#define AMK_FPENV_DEFAULT 0u
static inline amk_fpenv amk_fpenv_get(void) {
  uint64_t e;
  __asm__ volatile("mrs %0, fpcr" : "=r"(e));
  return e;
}
static inline void amk_fpenv_set(amk_fpenv e) { __asm__ volatile("msr fpcr, %0" : : "r"(e)); }
#else
#error "amk: add this machine's floating-point control register to fpenv.h"
#endif

#endif
