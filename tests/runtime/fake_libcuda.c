/* A libcuda.so.1 that runs on the host: so that NVIDIA's own bindings, and how they are called, can
 * be tested without a GPU. Machine code is the path of a library with amk_simt_launch; memory is
 * the process's; an event is a time. Statuses: 1 invalid value, 2 out of memory, 500 not found. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int (*launch_t)(const void *, int, int, int, uint64_t);
static __thread int current;
static int retained;
#define NEEDS_CONTEXT if (!current) return 201

static int init(unsigned flags) { return flags ? 1 : 0; }
static int version(int *v) { return *v = 13000, 0; }
static int count(int *n) { return *n = 1, 0; }
static int get(int *device, int ordinal) { return ordinal ? 101 : (*device = 0, 0); }
static int name(char *to, int n, int device) {
  strncpy(to, "NVIDIA H200", (size_t)n);
  return device;
}
static int attribute(int *value, int which, int device) {
  switch (which) {
    case 16: *value = 132; break;
    case 75: *value = 9; break;
    case 76: *value = 0; break;
    case 95: *value = 1; break;
    case 97: *value = 232448; break;
    default: return 1;
  }
  return device;
}
static int total(size_t *bytes, int device) { return *bytes = (size_t)140 << 30, device; }
static int retain(void **context, int device) { return *context = &retained, retained++, device; }
static int release(int device) { return retained-- > 0 ? device : 201; }
static int set_current(void *context) { return current = context == &retained, !current; }
static int memory(size_t *free, size_t *all) {
  NEEDS_CONTEXT;
  return *free = *all = (size_t)140 << 30, 0;
}
static int load(void **module, const char *image) {
  NEEDS_CONTEXT;
  *module = dlopen(image, RTLD_NOW);
  return *module ? 0 : 200;
}
static int function(void **found, void *module, const char *symbol) {
  if (strcmp(symbol, "amk_program")) return 500;
  *found = dlsym(module, "amk_simt_launch");
  return *found ? 0 : 500;
}
static int unload(void *module) { return dlclose(module); }
static int set_function(void *f, int which, int value) { return f && which == 8 && value > 0 ? 0 : 1; }
static int occupancy(int *blocks, void *f, int threads, size_t shared) {
  return *blocks = 1, f && threads <= 1024 && shared <= 232448 ? 0 : 1;
}
static int allocate(uint64_t *at, size_t bytes) {
  NEEDS_CONTEXT;
  void *p = bytes ? aligned_alloc(256, (bytes + 255) / 256 * 256) : 0;
  *at = (uint64_t)(uintptr_t)p;
  return p ? 0 : 2;
}
static int fill(uint64_t at, unsigned char value, size_t bytes) {
  NEEDS_CONTEXT;
  return memset((void *)(uintptr_t)at, value, bytes), 0;
}
static int release_memory(uint64_t at) {
  NEEDS_CONTEXT;
  return free((void *)(uintptr_t)at), 0;
}
static int to_device(uint64_t to, const void *from, size_t bytes) {
  NEEDS_CONTEXT;
  return memcpy((void *)(uintptr_t)to, from, bytes), 0;
}
static int to_host(void *to, uint64_t from, size_t bytes) {
  NEEDS_CONTEXT;
  return memcpy(to, (void *)(uintptr_t)from, bytes), 0;
}
static int on_device(uint64_t to, uint64_t from, size_t bytes) {
  NEEDS_CONTEXT;
  return memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes), 0;
}
static int launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned shared, void *stream, void **parameters) {
  NEEDS_CONTEXT;
  if (!f || gy != 1 || gz != 1 || bx % 32 || by != 1 || bz != 1 || !shared || stream) return 1;
  ((launch_t)f)(parameters[0], (int)gx, 0, -1, 0);
  return 0;
}
static int error_string(int status, const char **text) {
  *text = status == 2 ? "out of memory" : "a failure";
  return 0;
}
static int event(double **made, unsigned flags) { return *made = calloc(1, 8), flags ? 1 : 0; }
static int record(double *event, void *stream) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  *event = 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
  return stream != 0;
}
static int synchronize(double *event) { return !event; }
static int elapsed(float *ms, const double *start, const double *end) {
  return *ms = (float)(*end - *start), 0;
}

static const struct { const char *name; void *function; } table[] = {
    {"cuInit", init}, {"cuDriverGetVersion", version}, {"cuDeviceGetCount", count},
    {"cuDeviceGet", get}, {"cuDeviceGetName", name}, {"cuDeviceGetAttribute", attribute},
    {"cuDeviceTotalMem", total}, {"cuDevicePrimaryCtxRetain", retain},
    {"cuDevicePrimaryCtxRelease", release}, {"cuCtxSetCurrent", set_current},
    {"cuMemGetInfo", memory}, {"cuModuleLoadData", load}, {"cuModuleGetFunction", function},
    {"cuModuleUnload", unload}, {"cuFuncSetAttribute", set_function},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessor", occupancy}, {"cuMemAlloc", allocate},
    {"cuMemsetD8", fill}, {"cuMemFree", release_memory}, {"cuMemcpyHtoD", to_device},
    {"cuMemcpyDtoH", to_host}, {"cuMemcpyDtoD", on_device},
    {"cuLaunchCooperativeKernel", launch}, {"cuGetErrorString", error_string},
    {"cuEventCreate", event}, {"cuEventRecord", record}, {"cuEventSynchronize", synchronize},
    {"cuEventElapsedTime", elapsed},
};

static void *find(const char *symbol) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(symbol, table[i].name)) return table[i].function;
  return 0;
}
int cuGetProcAddress_v2(const char *symbol, void **found, int cuda, uint64_t flags, int *status) {
  (void)cuda, (void)flags;
  *found = strcmp(symbol, "cuGetProcAddress") ? find(symbol) : (void *)cuGetProcAddress_v2;
  if (status) *status = *found ? 0 : 1;
  return *found ? 0 : 500;
}
int cuGetProcAddress(const char *symbol, void **found, int cuda, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, found, cuda, flags, 0);
}
int cuInit(unsigned flags) { return init(flags); }
int cuDeviceGetCount(int *n) { return count(n); }
