/*
 * loops.c - bench_loops' jobs: each order names a loop and says how many milliseconds it shall last, and the
 * answer is what one pass has taken. They know nothing of gpushare.
 */
#include "worker.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 100, IN_A_ROW = 16 };

struct loop {
  struct probe p;
  CUmemoryPool pool; /* NULL: the current one */
  CUdeviceptr memory[IN_A_ROW];
  size_t bytes;
  unsigned row; /* passes between two waits */
  uint64_t passes;
  CUdeviceptr reserved; /* by scenes whose passes do not */
  bool exports;         /* physical memory, each time */
};

/* ---- streams, events, contexts ---- */

static bool pass_streams(struct loop *loop) {
  CUstream stream;
  return !TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) && !TRY(launch_empty(&loop->p, stream)) &&
         !TRY(cuStreamSynchronize(stream)) && !TRY(cuStreamDestroy(stream));
}

static bool pass_events(struct loop *loop) {
  CUstream stream;
  CUevent event;
  return !TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) &&
         !TRY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)) && !TRY(launch_empty(&loop->p, stream)) &&
         !TRY(cuEventRecord(event, stream)) && !TRY(cuEventSynchronize(event)) &&
         !TRY(cuEventDestroy(event)) && !TRY(cuStreamDestroy(stream));
}

/* The free meets the kernel. */
static bool pass_memory(struct loop *loop) {
  CUstream stream;
  CUdeviceptr at;
  return !TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) && !TRY(cuMemAlloc(&at, loop->bytes)) &&
         !TRY(launch_fill(&loop->p, at, loop->bytes, stream)) && !TRY(cuMemFree(at)) &&
         !TRY(cuStreamDestroy(stream));
}

static bool pass_many(struct loop *loop) {
  CUstream streams[MANY];
  for (int i = 0; i < MANY; i++)
    if (TRY(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING)) || TRY(launch_empty(&loop->p, streams[i])))
      return false;
  for (int i = 0; i < MANY; i++)
    if (TRY(cuStreamSynchronize(streams[i])) || TRY(cuStreamDestroy(streams[i])))
      return false;
  return true;
}

static bool pass_context(struct loop *loop) {
  CUcontext context;
#if CUDA_VERSION >= 13000
  CUresult result = TRY(cuCtxCreate(&context, NULL, 0, loop->p.device));
#else
  CUresult result = TRY(cuCtxCreate(&context, 0, loop->p.device));
#endif
  return !result && !TRY(cuCtxDestroy(context));
}

/* ---- memory ---- */

static bool pass_alloc(struct loop *loop) {
  CUdeviceptr at;
  return !TRY(cuMemAlloc(&at, loop->bytes)) && !TRY(cuMemFree(at));
}

static bool export(CUmemGenericAllocationHandle handle) {
  int fd;
  return !TRY(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)) &&
         close(fd) == 0;
}

/* Physical memory, mapped and used. */
static bool map_once(struct loop *loop, CUdeviceptr at) {
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp kind;
  CUmemAccessDesc access;
  memset(&kind, 0, sizeof kind);
  memset(&access, 0, sizeof access);
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  kind.location.id = loop->p.device;
  kind.requestedHandleTypes =
      loop->exports ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  access.location = kind.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return !TRY(cuMemCreate(&handle, loop->bytes, &kind, 0)) && !TRY(cuMemMap(at, loop->bytes, 0, handle, 0)) &&
         !TRY(cuMemSetAccess(at, loop->bytes, &access, 1)) &&
         !TRY(cuMemsetD8Async(at, 1, loop->bytes, loop->p.stream)) &&
         !TRY(cuStreamSynchronize(loop->p.stream)) && (!loop->exports || export(handle)) &&
         !TRY(cuMemUnmap(at, loop->bytes)) && !TRY(cuMemRelease(handle));
}

static bool pass_vmm(struct loop *loop) { return map_once(loop, loop->reserved); }

static bool pass_vmm_reserve(struct loop *loop) {
  CUdeviceptr at;
  return !TRY(cuMemAddressReserve(&at, loop->bytes, 0, 0, 0)) && map_once(loop, at) &&
         !TRY(cuMemAddressFree(at, loop->bytes));
}

static bool pass_async(struct loop *loop) {
  CUdeviceptr at;
  CUstream stream = loop->p.stream;
  return !TRY(loop->pool ? cuMemAllocFromPoolAsync(&at, loop->bytes, loop->pool, stream)
                         : cuMemAllocAsync(&at, loop->bytes, stream)) &&
         !TRY(cuMemsetD8Async(at, 1, loop->bytes, stream)) && !TRY(cuMemFreeAsync(at, stream)) &&
         (++loop->passes % loop->row || !TRY(cuStreamSynchronize(stream)));
}

/* Several allocations at a time, so that they are not all the same one. */
static bool pass_group(struct loop *loop) {
  CUstream stream = loop->p.stream;
  for (int i = 0; i < IN_A_ROW; i++)
    if (TRY(cuMemAllocAsync(&loop->memory[i], loop->bytes, stream)) ||
        TRY(cuMemsetD8Async(loop->memory[i], 1, loop->bytes, stream)))
      return false;
  for (int i = 0; i < IN_A_ROW; i++)
    if (TRY(cuMemFreeAsync(loop->memory[i], stream)))
      return false;
  return !TRY(cuStreamSynchronize(stream));
}

/* The driver may have no pools of unified memory: then there is none. */
static CUmemoryPool pool_make(const struct loop *loop, CUmemAllocationType type) {
  CUmemPoolProps props;
  CUmemoryPool pool;
  memset(&props, 0, sizeof props);
  props.allocType = type;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = loop->p.device;
  return cuMemPoolCreate(&pool, &props) == CUDA_SUCCESS ? pool : NULL;
}

/* ---- orders ---- */

#define ALLOCATION_MANAGED ((CUmemAllocationType)2) /* headers before 13.0 lack it */

/* As bench_loops.c lists them. */
static const struct scene {
  const char *name;
  bool (*pass)(struct loop *loop);
  size_t bytes;
  unsigned row;             /* passes between two waits; 0: 1 */
  unsigned times;           /* a pass is so many of what is told; 0: 1 */
  CUmemAllocationType pool; /* 0: none of its own */
  bool exports;
} scenes[] = {
    {.name = "streams", .pass = pass_streams},
    {.name = "streams_event", .pass = pass_events},
    {.name = "streams_memory", .pass = pass_memory, .bytes = MIB},
    {.name = "streams_many", .pass = pass_many, .times = MANY},
    {.name = "contexts", .pass = pass_context},
    {.name = "async_4K", .pass = pass_async, .bytes = 4096},
    {.name = "async_4K_16", .pass = pass_async, .bytes = 4096, .row = IN_A_ROW},
    {.name = "async_1M", .pass = pass_async, .bytes = MIB},
    {.name = "async_1M_16", .pass = pass_async, .bytes = MIB, .row = IN_A_ROW},
    {.name = "async_64M", .pass = pass_async, .bytes = 64 * MIB},
    {.name = "async_64M_16", .pass = pass_async, .bytes = 64 * MIB, .row = IN_A_ROW},
    {.name = "group_1M", .pass = pass_group, .bytes = MIB, .times = IN_A_ROW},
    {.name = "pool_1M", .pass = pass_async, .bytes = MIB, .pool = CU_MEM_ALLOCATION_TYPE_PINNED},
    {.name = "pool_1M_16",
     .pass = pass_async,
     .bytes = MIB,
     .row = IN_A_ROW,
     .pool = CU_MEM_ALLOCATION_TYPE_PINNED},
    {.name = "unified_1M", .pass = pass_async, .bytes = MIB, .pool = ALLOCATION_MANAGED},
    {.name = "unified_1M_16", .pass = pass_async, .bytes = MIB, .row = IN_A_ROW, .pool = ALLOCATION_MANAGED},
    {.name = "alloc_4K", .pass = pass_alloc, .bytes = 4096},
    {.name = "alloc_2M", .pass = pass_alloc, .bytes = 2 * MIB},
    {.name = "alloc_64M", .pass = pass_alloc, .bytes = 64 * MIB},
    {.name = "vmm_2M", .pass = pass_vmm, .bytes = 2 * MIB},
    {.name = "vmm_64M", .pass = pass_vmm, .bytes = 64 * MIB},
    {.name = "vmm_2M_reserve", .pass = pass_vmm_reserve, .bytes = 2 * MIB},
    {.name = "export_2M", .pass = pass_vmm, .bytes = 2 * MIB, .exports = true},
    {.name = "export_32M", .pass = pass_vmm, .bytes = 32 * MIB, .exports = true},
    {.name = "export_64M", .pass = pass_vmm, .bytes = 64 * MIB, .exports = true},
};

static const struct scene *scene_find(const char *name) {
  for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
    if (strcmp(scenes[i].name, name) == 0)
      return &scenes[i];
  return NULL;
}

/* The first pass is not counted: it makes what the others find. False: a line has told why. */
static bool scene_play(struct loop *loop, const struct scene *scene, uint64_t ms, double *ns) {
  uint64_t begun_ns, now_ns, passes = 0;
  loop->bytes = scene->bytes;
  loop->row = scene->row ? scene->row : 1;
  loop->exports = scene->exports;
  if (!scene->pass(loop))
    return false;
  begun_ns = clock_now_ns();
  do {
    if (!scene->pass(loop))
      return false;
    passes++;
    now_ns = clock_now_ns();
  } while (now_ns < begun_ns + ms * NS_PER_MS || loop->passes % loop->row);
  *ns = (double)(now_ns - begun_ns) / (double)passes / (scene->times ? scene->times : 1);
  return true;
}

static bool obey(struct loop *loop, const char *order) {
  char name[32];
  uint64_t ms;
  double ns;
  const struct scene *scene = NULL;
  if (sscanf(order, "%31s %" SCNu64, name, &ms) != 2 || !(scene = scene_find(name)))
    return false;
  loop->pool = scene->pool ? pool_make(loop, scene->pool) : NULL;
  loop->passes = 0;
  if (scene->pool && !loop->pool)
    return worker_say("none");
  loop->reserved = 0;
  bool maps = scene->pass == pass_vmm;
  if (maps && TRY(cuMemAddressReserve(&loop->reserved, scene->bytes, 0, 0, 0)))
    return false;
  bool ok = scene_play(loop, scene, ms, &ns);
  if (maps)
    ok = !TRY(cuMemAddressFree(loop->reserved, scene->bytes)) && ok;
  if (loop->pool)
    ok = !TRY(cuMemPoolDestroy(loop->pool)) && ok;
  return ok && worker_say("%.1f", ns);
}

int loops_run(void) {
  struct loop loop = {.pool = NULL};
  char order[WORKER_TEXT_SIZE];
  if (!probe_open(&loop.p) || !worker_say("filled"))
    return 1;
  while (worker_hear(order))
    if (!obey(&loop, order))
      return 1;
  return 0;
}
