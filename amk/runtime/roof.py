"""The practical roof of decoding at batch 1: a bare matrix-vector loop over a program's weights.

No norms, attention, events or waits inside a token: workers take blocks of rows, one matrix after
another, and multiply. What it reaches is what the memory of this machine allows.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence

import numpy as np

from amk.codegen.layout import Slot
from amk.errors import AmkError
from amk.runtime.program import INIT_PREFIX
from amk.runtime.source import EMBEDDING_LEAVES, HEAD_LEAVES, has_leaf
from amk.runtime.toolchain import CFLAGS, compile_shared

# Storage dtype -> the number the C side knows it by.
KINDS = {"f32": 0, "bf16": 1, "f16": 2}

# Nothing is compared with what this loop computes, so that multiplies and adds may fuse.
FLAGS = (*CFLAGS, "-ffp-contract=fast")

SOURCE = r"""
#include <pthread.h>
#include <stdint.h>
#include <string.h>

typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef _Float16 f16x16 __attribute__((vector_size(32)));

typedef struct { const void *data; long rows, columns, kind; } matrix;

static inline f32x16 load(const void *p, long kind) {
  f32x16 wide;
  if (kind == 0) {
    memcpy(&wide, p, sizeof wide);
  } else if (kind == 1) {
    u16x16 bits;
    memcpy(&bits, p, sizeof bits);
    u32x16 shifted = __builtin_convertvector(bits, u32x16) << 16;
    memcpy(&wide, &shifted, sizeof wide);
  } else {
    f16x16 narrow;
    memcpy(&narrow, p, sizeof narrow);
    wide = __builtin_convertvector(narrow, f32x16);
  }
  return wide;
}

static inline float across(f32x16 v) {
  f32x8 a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
            __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  f32x4 b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
  return (b[0] + b[1]) + (b[2] + b[3]);
}

enum { BLOCK = 256 }; /* rows a worker takes at a time, as a system thread may be held up */

static inline __attribute__((always_inline)) float block_of(const matrix *m, const float *x,
                                                            long first, long kind) {
  const long size = kind == 0 ? 4 : 2, steps = m->columns / 64;
  const long end = first + BLOCK < m->rows ? first + BLOCK : m->rows;
  float total = 0;
  for (long r = first; r < end; r++) {
    const char *w = (const char *)m->data + r * m->columns * size;
    f32x16 sum[4] = {{0}};
    for (long i = 0; i < steps; i++)
      for (int j = 0; j < 4; j++) {
        f32x16 v;
        memcpy(&v, x + i * 64 + j * 16, sizeof v);
        sum[j] += load(w + (i * 64 + j * 16) * size, kind) * v;
      }
    total += across((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
  return total;
}

typedef struct {
  const matrix *matrices;
  long count, tokens;
  const float *x;
  long *next; /* a counter for each token, of blocks over all matrices in order */
  pthread_barrier_t *barrier;
  float sink;
} job;

static void *work(void *argument) {
  job *j = argument;
  for (long t = 0; t < j->tokens; t++) {
    long i = 0, before = 0;
    for (;;) {
      long mine = __atomic_fetch_add(&j->next[t], 1, __ATOMIC_RELAXED);
      while (i < j->count && mine >= before + (j->matrices[i].rows + BLOCK - 1) / BLOCK)
        before += (j->matrices[i++].rows + BLOCK - 1) / BLOCK;
      if (i == j->count) break;
      const matrix *m = &j->matrices[i];
      const long first = (mine - before) * BLOCK;
      if (m->kind == 0) j->sink += block_of(m, j->x, first, 0);
      else if (m->kind == 1) j->sink += block_of(m, j->x, first, 1);
      else j->sink += block_of(m, j->x, first, 2);
    }
    pthread_barrier_wait(j->barrier);
  }
  return 0;
}

/* `next` has a zero for each token. */
int roof(const matrix *matrices, long count, const float *x, int workers, long tokens, long *next) {
  pthread_barrier_t barrier;
  pthread_t ids[64];
  job jobs[64];
  if (workers < 1 || workers > 64 || pthread_barrier_init(&barrier, 0, (unsigned)workers)) return 1;
  for (int i = 0; i < workers; i++) jobs[i] = (job){matrices, count, tokens, x, next, &barrier, 0};
  for (int i = 1; i < workers; i++)
    if (pthread_create(&ids[i], 0, work, &jobs[i])) return 2;
  work(&jobs[0]);
  for (int i = 1; i < workers; i++) pthread_join(ids[i], 0);
  pthread_barrier_destroy(&barrier);
  return 0;
}
"""


class _Matrix(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("rows", ctypes.c_long),
        ("columns", ctypes.c_long),
        ("kind", ctypes.c_long),
    ]


def read_each_token(slots: Sequence[Slot], max_seq: int) -> list[Slot]:
    """The matrices a decode step reads whole: not the tables it takes a row of."""
    matrices = [s for s in slots if s.kind == "weight" and len(s.shape) == 2]
    untied = any(has_leaf(s.source, HEAD_LEAVES) for s in matrices)
    found = []
    for slot in matrices:
        table = slot.source.startswith(INIT_PREFIX) and slot.shape[0] == max_seq
        if not table and not (untied and has_leaf(slot.source, EMBEDDING_LEAVES)):
            found.append(slot)
    return found


class Roof:
    """The loop over matrices in memory; `workers` up to 64."""

    def __init__(self, matrices: Mapping[Slot, np.ndarray], workers: int):
        self._held = matrices
        self._table = (_Matrix * len(matrices))(
            *(
                _Matrix(a.ctypes.data, *slot.shape, KINDS[slot.dtype])
                for slot, a in matrices.items()
            )
        )
        self._x = np.ones(max(slot.shape[1] for slot in matrices), np.float32)
        self._workers = workers
        self._library = ctypes.CDLL(str(compile_shared(SOURCE, FLAGS)))
        self._library.roof.argtypes = [
            ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_long,
            ctypes.c_void_p,
        ]  # fmt: skip

    def seconds(self, tokens: int) -> float:
        """Wall time of `tokens` passes over all matrices."""
        taken = np.zeros(tokens, np.int64)
        start = time.perf_counter()
        error = self._library.roof(
            self._table, len(self._table), self._x.ctypes.data, self._workers, tokens,
            taken.ctypes.data,
        )  # fmt: skip
        if error:
            raise AmkError(f"the roof loop could not start {self._workers} workers")
        return time.perf_counter() - start
