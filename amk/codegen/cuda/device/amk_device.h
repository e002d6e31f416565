/* The device's side of everything that a GPU does in its own way: threads, barriers, shuffles,
 * events across blocks, asynchronous copies, matrix instructions. simt/amk_device.h is the same
 * interface on a CPU; every other line of a kernel is plain C++ that both compile.
 *
 * Memory order. An event is a counter in global memory. Raising it is a release, reading it an
 * acquire, both at the scope of the device; a block barrier before the release and after the
 * acquire extends them to every thread of the block (they are cumulative). */
#ifndef AMK_DEVICE_H
#define AMK_DEVICE_H

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;

#define AMK_DEVICE __device__ __forceinline__
#define AMK_FUNCTION static __device__ __noinline__
#define AMK_INLINE static __device__ __forceinline__
#define AMK_TABLE __constant__ const
#define AMK_UNROLL _Pragma("unroll")
#define AMK_KERNEL(name, threads) \
  extern "C" __global__ void __launch_bounds__(threads, 1) name(const __grid_constant__ amk_launch launch)
#define AMK_SHARED(name) extern __shared__ __align__(1024) uint8_t name[]
#define AMK_HAS_BULK (__CUDA_ARCH__ >= 900)
#define AMK_HAS_ASYNC (__CUDA_ARCH__ >= 800)

/* ---- arithmetic: each operation rounds once, to nearest even ---- */

AMK_INLINE float amk_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
AMK_INLINE float amk_div(float a, float b) { return __fdiv_rn(a, b); }
AMK_INLINE float amk_sqrt(float x) { return __fsqrt_rn(x); }
AMK_INLINE uint32_t amk_bits(float x) { return __float_as_uint(x); }
AMK_INLINE float amk_from_bits(uint32_t u) { return __uint_as_float(u); }

/* ---- threads of a block ---- */

AMK_INLINE int amk_thread() { return threadIdx.x; }
/* The same number, but the compiler no longer knows: what it computes from it stays where it is
 * written, instead of in a register through loops around it. */
AMK_INLINE int amk_anew(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
AMK_INLINE int amk_block() { return blockIdx.x; }
AMK_INLINE int amk_blocks() { return gridDim.x; }

/* Waits for `count` threads of the block at barrier `id`. */
AMK_INLINE void amk_barrier(int id, int count) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
}
AMK_INLINE void amk_warp_barrier() { __syncwarp(); }
AMK_INLINE float amk_shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }

/* The pairwise sum of groups of `width` neighbouring lanes, known to every lane of the group. */
AMK_INLINE float amk_warp_sum(float x, int width = 32) {
  AMK_UNROLL
  for (int mask = 1; mask < 32; mask *= 2)
    if (mask < width) x = x + amk_shuffle_xor(x, mask);
  return x;
}

/* ---- memory that other blocks write ---- */

AMK_INLINE uint32_t amk_load_acquire(const uint32_t *at) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
AMK_INLINE void amk_add_release(uint32_t *at, uint32_t n) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(at), "r"(n) : "memory");
}
AMK_INLINE uint32_t amk_load_relaxed(const uint32_t *at) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
/* Puts `desired` where `expected` stands; true for the one that did. */
AMK_INLINE bool amk_claim(uint32_t *at, uint32_t expected, uint32_t desired) {
  return atomicCAS(at, expected, desired) == expected;
}
AMK_INLINE void amk_store_release(uint32_t *at, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

/* ---- time ---- */

AMK_INLINE uint64_t amk_nanoseconds() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
/* Between two looks at something that is not there yet. */
AMK_INLINE void amk_pause() {
#if __CUDA_ARCH__ >= 700
  __nanosleep(20);
#endif
}
AMK_INLINE void amk_trap() { __trap(); }

/* ---- loads ---- */

struct __align__(16) amk_u4 { uint32_t x, y, z, w; };

/* 16 bytes of a weight: read only, read once. */
AMK_INLINE amk_u4 amk_load_weight(const void *at) {
  amk_u4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at));
  return v;
}

/* ---- barriers of asynchronous copies, in shared memory ----
 *
 * `arrivals` threads arrive at a barrier, and the bytes announced to it land, before its phase
 * turns. A waiter names the parity of the phase it waits for. */

AMK_INLINE uint32_t amk_shared_address(const void *at) {
  return (uint32_t)__cvta_generic_to_shared(at);
}

#if AMK_HAS_ASYNC
AMK_INLINE void amk_bar_init(uint64_t *bar, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(amk_shared_address(bar)), "r"(arrivals)
               : "memory");
}
/* Makes initialised barriers visible to the copy engine. */
AMK_INLINE void amk_bar_publish() {
#if AMK_HAS_BULK
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
AMK_INLINE void amk_bar_arrive(uint64_t *bar) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(amk_shared_address(bar))
               : "memory");
}
AMK_INLINE bool amk_bar_try(uint64_t *bar, int parity) {
  uint32_t done;
#if AMK_HAS_BULK
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
               " selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(amk_shared_address(bar)), "r"(parity) : "memory");
#else
  /* sm_80 can test a phase but not sleep on it. */
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2;"
               " selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(amk_shared_address(bar)), "r"(parity) : "memory");
#endif
  return done != 0;
}
#else
/* Without hardware barriers: two words, arrivals so far and arrivals a phase; the parity is that of
 * their quotient. */
AMK_INLINE void amk_bar_init(uint64_t *bar, int arrivals) {
  ((volatile uint32_t *)bar)[0] = 0;
  ((volatile uint32_t *)bar)[1] = arrivals;
}
AMK_INLINE void amk_bar_publish() {}
AMK_INLINE void amk_bar_arrive(uint64_t *bar) {
  __threadfence_block();
  atomicAdd((uint32_t *)bar, 1u);
}
AMK_INLINE bool amk_bar_try(uint64_t *bar, int parity) {
  uint32_t arrived = ((volatile uint32_t *)bar)[0], all = ((volatile uint32_t *)bar)[1];
  bool done = ((arrived / all) & 1u) != (uint32_t)parity;
  if (done) __threadfence_block();
  return done;
}
#endif

/* Copies `bytes` (a multiple of 16, both sides aligned to 16) from global to shared memory by a
 * whole warp. The phase of `bar` turns when all has landed; `bar` was initialised with
 * AMK_COPY_ARRIVALS. */
#if AMK_HAS_BULK
#define AMK_COPY_ARRIVALS 1
AMK_INLINE void amk_copy_async(void *to, const void *from, int bytes, uint64_t *bar, int lane) {
  if (lane != 0) return;
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   amk_shared_address(bar)), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(amk_shared_address(to)), "l"(from), "r"(bytes), "r"(amk_shared_address(bar))
               : "memory");
}
#elif AMK_HAS_ASYNC
#define AMK_COPY_ARRIVALS 32
AMK_INLINE void amk_copy_async(void *to, const void *from, int bytes, uint64_t *bar, int lane) {
  uint32_t at = amk_shared_address(to);
  for (int i = lane * 16; i < bytes; i += 512)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at + i),
                 "l"((const uint8_t *)from + i) : "memory");
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(amk_shared_address(bar))
               : "memory");
}
#else
#define AMK_COPY_ARRIVALS 1
AMK_INLINE void amk_copy_async(void *to, const void *from, int bytes, uint64_t *bar, int lane) {
  for (int i = lane * 16; i < bytes; i += 512)
    *(amk_u4 *)((uint8_t *)to + i) = amk_load_weight((const uint8_t *)from + i);
  amk_warp_barrier();
  if (lane == 0) amk_bar_arrive(bar);
}
#endif

/* ---- matrix instructions: D[16, 8] += A[16, 16] B[16, 8], fp32 sums ----
 *
 * Lane t holds of A the pairs (row t / 4, columns 2 (t % 4) and on), row + 8, columns + 8, both
 * + 8; of B the pairs (rows 2 (t % 4) and on, column t / 4), rows + 8; of D columns 2 (t % 4) and on
 * of rows t / 4 and t / 4 + 8 (PTX ISA, mma.m16n8k16). */
AMK_INLINE void amk_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if AMK_HAS_ASYNC
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3},"
               " {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  amk_trap();
#endif
}
AMK_INLINE void amk_mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if AMK_HAS_ASYNC
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3},"
               " {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  /* sm_75 has the instruction for eight columns of A at a time. */
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6},"
               " {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6},"
               " {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[2]), "r"(a[3]), "r"(b[1]));
#endif
}

#endif
