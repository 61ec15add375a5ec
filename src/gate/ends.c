/* ends.c - the calls with which iterations end. See ends.h. */
#include "gate/ends.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "client/client.h"
#include "common/clock.h"
#include "common/lock.h"
#include "gate/gate.h"
#include "gate/iteration.h"
#include "interpose/driver.h"
#include "interpose/hooks.h"
#include "memory/deferred.h"
#include "memory/reach.h"
#include "meter/graphs.h"
#include "meter/meter.h"
#include "meter/service.h"

#define SMALL_BYTES (64u << 10) /* results, not data */
#define STRANGE_GRAPHS 16       /* in a row: the program has gone on to another one */

/* The earlier one is believed before the later one: after it the GPU has nothing left to do. */
enum kind { WAITED, COPIED, LAUNCHED, KINDS };

struct ends {
  struct iteration kinds[KINDS];
  CUgraphExec graph; /* whose launches are LAUNCHED */
  unsigned strange;  /* launches of others since */
};

/* Protects `devices`. Taken under client.lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ends devices[GS_GPUS_PER_CLIENT];
static _Atomic uint64_t watched; /* mask */

static uint64_t bit(CUdevice device) { return UINT64_C(1) << device; }

void ends_watch(CUdevice device, bool watch) {
  if (watch) {
    atomic_fetch_or(&watched, bit(device));
    return;
  }
  atomic_fetch_and(&watched, ~bit(device));
  lock_take(&lock);
  for (enum kind kind = 0; kind < KINDS; kind++)
    iteration_pause(&devices[device].kinds[kind]);
  lock_release(&lock);
}

/* NULL: none is regular. Lock held. */
static struct iteration *believed(struct ends *ends) {
  for (struct iteration *it = ends->kinds; it < ends->kinds + KINDS; it++)
    if (iteration_is_known(it))
      return it;
  return NULL;
}

uint64_t ends_next_ns(CUdevice device, uint64_t now_ns) {
  lock_take(&lock);
  const struct iteration *it = believed(&devices[device]);
  uint64_t next_ns = it ? iteration_next_ns(it, now_ns) : UINT64_MAX;
  lock_release(&lock);
  return next_ns;
}

/* Lock held. */
static bool is_same_graph(struct ends *ends, CUgraphExec graph) {
  if (ends->graph != graph && (!ends->graph || ++ends->strange > STRANGE_GRAPHS)) {
    ends->graph = graph;
    ends->kinds[LAUNCHED] = (struct iteration){0};
  }
  if (ends->graph == graph)
    ends->strange = 0;
  return ends->graph == graph;
}

/* True if a turn may end here. */
static bool take(CUdevice device, enum kind kind, CUgraphExec graph) {
  lock_take(&lock);
  struct ends *ends = &devices[device];
  bool counts = kind != LAUNCHED || is_same_graph(ends, graph);
  if (counts)
    iteration_end(&ends->kinds[kind], clock_now_ns(), gate_calls());
  counts = counts && believed(ends) == &ends->kinds[kind];
  lock_release(&lock);
  return counts;
}

static __attribute__((noinline)) void note(enum kind kind, CUgraphExec graph) {
  int saved = errno;
  CUdevice device;
  if (driver.cuCtxGetDevice(&device) == CUDA_SUCCESS && device >= 0 && device < GS_GPUS_PER_CLIENT &&
      (atomic_load(&watched) & bit(device)) && take(device, kind, graph))
    client_iteration_ended(device);
  errno = saved;
}

static inline void end(enum kind kind, CUgraphExec graph) {
  if (__builtin_expect(atomic_load_explicit(&watched, memory_order_relaxed) != 0, 0))
    note(kind, graph);
}

void ends_fork_child(void) {
  pthread_mutex_init(&lock, NULL);
  atomic_store(&watched, 0);
  for (struct ends *ends = devices; ends < devices + GS_GPUS_PER_CLIENT; ends++)
    *ends = (struct ends){0};
}

/* ---- the hooks ---- */

static CUresult waited(uint64_t since_ns, CUresult result) {
  deferred_reap();
  end(WAITED, NULL);
  service_waited(since_ns);
  return result;
}

CUresult hook_cuStreamSynchronize(CUstream hStream) {
  uint64_t since_ns = service_wait();
  return waited(since_ns, driver.cuStreamSynchronize(hStream));
}

CUresult hook_cuStreamSynchronize_ptsz(CUstream hStream) {
  uint64_t since_ns = service_wait();
  return waited(since_ns, driver.cuStreamSynchronize_ptsz(hStream));
}

CUresult hook_cuEventSynchronize(CUevent hEvent) {
  uint64_t since_ns = service_wait();
  return waited(since_ns, driver.cuEventSynchronize(hEvent));
}

CUresult hook_cuCtxSynchronize(void) {
  uint64_t since_ns = service_wait();
  return waited(since_ns, driver.cuCtxSynchronize());
}

CUresult hook_cuCtxSynchronize_v2(CUcontext ctx) {
  uint64_t since_ns = service_wait();
  return waited(since_ns, driver.cuCtxSynchronize_v2(ctx));
}

static CUresult asked(CUresult result) {
  if (result == CUDA_ERROR_NOT_READY)
    service_polled();
  return result;
}

CUresult hook_cuStreamQuery(CUstream hStream) { return asked(driver.cuStreamQuery(hStream)); }
CUresult hook_cuStreamQuery_ptsz(CUstream hStream) { return asked(driver.cuStreamQuery_ptsz(hStream)); }
CUresult hook_cuEventQuery(CUevent hEvent) { return asked(driver.cuEventQuery(hEvent)); }

/* Copies to the host, and graphs, go through the gate, and are counted, as ever. */
static bool enter(CUstream stream, struct reach reach, const struct meter_work *work) {
  gate_enter_reaching(stream, reach_gates(reach));
  return meter_begin(stream, work);
}

static CUresult leave(bool look, const struct meter_work *work, CUresult result) {
  meter_end(look, work, result);
  gate_leave();
  return result;
}

static CUresult copied(uint64_t since_ns, CUresult result, size_t bytes) {
  if (bytes <= SMALL_BYTES)
    end(COPIED, NULL);
  service_copied(since_ns);
  return result;
}

CUresult hook_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  struct reach reach = reach_range(srcDevice, ByteCount);
  if (reach.beyond)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t since_ns = service_wait();
  const struct meter_work work = meter_copy((const void *)driver.cuMemcpyDtoH_v2, ByteCount);
  bool look = enter(CU_STREAM_LEGACY, reach, &work);
  CUresult result = driver.cuMemcpyDtoH_v2(dstHost, srcDevice, ByteCount);
  return waited(since_ns, leave(look, &work, result));
}

CUresult hook_cuMemcpyDtoH_v2_ptds(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  struct reach reach = reach_range(srcDevice, ByteCount);
  if (reach.beyond)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t since_ns = service_wait();
  const struct meter_work work = meter_copy((const void *)driver.cuMemcpyDtoH_v2_ptds, ByteCount);
  bool look = enter(CU_STREAM_PER_THREAD, reach, &work);
  CUresult result = driver.cuMemcpyDtoH_v2_ptds(dstHost, srcDevice, ByteCount);
  return waited(since_ns, leave(look, &work, result));
}

CUresult hook_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  struct reach reach = reach_range(srcDevice, ByteCount);
  if (reach.beyond)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t since_ns = service_wait();
  const struct meter_work work = meter_copy((const void *)driver.cuMemcpyDtoHAsync_v2, ByteCount);
  bool look = enter(hStream, reach, &work);
  CUresult result = driver.cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, hStream);
  return copied(since_ns, leave(look, &work, result), ByteCount);
}

CUresult hook_cuMemcpyDtoHAsync_v2_ptsz(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                        CUstream hStream) {
  struct reach reach = reach_range(srcDevice, ByteCount);
  if (reach.beyond)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t since_ns = service_wait();
  const struct meter_work work = meter_copy((const void *)driver.cuMemcpyDtoHAsync_v2_ptsz, ByteCount);
  bool look = enter(PER_THREAD(hStream), reach, &work);
  CUresult result = driver.cuMemcpyDtoHAsync_v2_ptsz(dstHost, srcDevice, ByteCount, hStream);
  return copied(since_ns, leave(look, &work, result), ByteCount);
}

/* The program's call, as it was, in a stream that is resolved. */
static CUresult launch(CUresult (*call)(CUgraphExec, CUstream), CUgraphExec graph, CUstream asked,
                       CUstream stream) {
  const struct meter_work work = graphs_work(graph);
  bool look = enter(stream, REACH_NOTHING, &work);
  return leave(look, &work, call(graph, asked));
}

/* The driver takes the memory of nodes that allocate when it launches them. */
static CUresult launch_allocating(CUresult (*call)(CUgraphExec, CUstream), CUgraphExec graph, CUstream asked,
                                  CUstream stream) {
  struct graph_memory memory = {0};
  CUresult result;
  do {
    graphs_take_memory(graph, &memory);
    result = launch(call, graph, asked, stream);
  } while (graphs_again(result, graph, &memory));
  return result;
}

CUresult hook_cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  end(LAUNCHED, hGraph);
  bool allocates = atomic_load_explicit(&graphs_allocate, memory_order_relaxed);
  return (allocates ? launch_allocating : launch)(driver.cuGraphLaunch, hGraph, hStream, hStream);
}

CUresult hook_cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  end(LAUNCHED, hGraphExec);
  bool allocates = atomic_load_explicit(&graphs_allocate, memory_order_relaxed);
  return (allocates ? launch_allocating : launch)(driver.cuGraphLaunch_ptsz, hGraphExec, hStream,
                                                  PER_THREAD(hStream));
}
