/* graphs.c - a table of the executable graphs whose nodes allocate, from the calls that make, launch and
 * destroy them. The driver takes that memory with a
 * launch, and keeps it until it is trimmed (pinned.h). */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/lock.h"
#include "driver/driver.h"
#include "driver/hooks.h"
#include "gate/gate.h"
#include "memory/budget.h"
#include "memory/device.h"
#include "memory/forked.h"
#include "memory/pinned.h"

#define BUCKETS 1024

struct entry {
  CUgraphExec graph;
  uint64_t bytes; /* that its nodes allocate, at most at a time */
  CUdevice device;
  uint64_t trims; /* 1 more than when it has taken that; 0: never */
  struct entry *next;
};

/* What one launch takes. */
struct take {
  bool allocates; /* the driver takes memory for it */
  uint64_t bytes; /* reserved for that; 0: it was refused */
  CUdevice device;
  uint64_t trims;
  struct pinned_patience patience;
};

/* Protects the table. Never held over a call of the driver. */
static struct lock lock = LOCK(LOCK_GRAPHS);
static struct entry *buckets[BUCKETS];
static _Atomic bool any; /* there is, or was, an entry */

static struct entry **find(CUgraphExec graph) {
  struct entry **at = &buckets[((uintptr_t)graph >> 4) % BUCKETS];
  while (*at && (*at)->graph != graph)
    at = &(*at)->next;
  return at;
}

static void drop(CUgraphExec graph) {
  if (!atomic_load(&any))
    return;
  lock_take(&lock);
  struct entry **at = find(graph), *gone = *at;
  if (gone)
    *at = gone->next;
  lock_release(&lock);
  free(gone);
}

/* ---- what the nodes allocate ---- */

static uint64_t bytes_at(const CUDA_MEM_ALLOC_NODE_PARAMS *all, size_t count, CUdeviceptr address) {
  for (size_t i = 0; i < count; i++)
    if (all[i].dptr == address)
      return all[i].bytesize;
  return 0;
}

/* The nodes of a graph, to be freed; their count is 0 where the driver does not tell them. */
static CUgraphNode *nodes_of(CUgraph graph, size_t *count) {
  size_t all = 0;
  bool known = driver.cuGraphGetNodes(graph, NULL, &all) == CUDA_SUCCESS;
  CUgraphNode *nodes = known ? calloc(all + 1, sizeof *nodes) : NULL;
  *count = all;
  if (!nodes || driver.cuGraphGetNodes(graph, nodes, count) != CUDA_SUCCESS || *count > all)
    *count = 0;
  return nodes;
}

/* What the nodes have allocated and not freed, at most, as they were added: that is about the order in which
 * they run. */
static uint64_t most_bytes(CUgraph graph, CUdevice *device) {
  size_t count;
  CUgraphNode *nodes = nodes_of(graph, &count);
  CUDA_MEM_ALLOC_NODE_PARAMS *all = calloc(count + 1, sizeof *all), *next = all;
  uint64_t bytes = 0, most = 0;
  for (size_t i = 0; all && i < count; i++) {
    CUgraphNodeType type;
    CUdeviceptr freed;
    if (driver.cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS)
      continue;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
        driver.cuGraphMemAllocNodeGetParams(nodes[i], next) == CUDA_SUCCESS) {
      *device = next->poolProps.location.id;
      bytes += next++->bytesize;
    } else if (type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
               driver.cuGraphMemFreeNodeGetParams(nodes[i], &freed) == CUDA_SUCCESS) {
      uint64_t less_bytes = bytes_at(all, (size_t)(next - all), freed);
      bytes -= less_bytes < bytes ? less_bytes : bytes;
    }
    most = bytes > most ? bytes : most;
  }
  free(all);
  free(nodes);
  return most;
}

static void add(CUgraphExec graph, CUgraph source) {
  CUdevice device = -1;
  uint64_t bytes = most_bytes(source, &device);
  drop(graph);
  struct entry *entry = bytes && device_valid(device) ? calloc(1, sizeof *entry) : NULL;
  if (!entry)
    return;
  *entry = (struct entry){.graph = graph, .bytes = bytes, .device = device};
  reserves_watch_graphs(device);
  lock_take(&lock);
  *find(graph) = entry;
  atomic_store(&any, true);
  lock_release(&lock);
}

/* ---- a launch ---- */

/* Before a launch, outside of the gate: reserve and await what the graph will take. Where it has not been
 * trimmed since its last launch, that is still there. */
static void take_memory(CUgraphExec graph, struct take *take) {
  lock_take(&lock);
  const struct entry *entry = *find(graph);
  take->bytes = entry ? entry->bytes : 0;
  take->device = entry ? entry->device : 0;
  take->trims = reserves_trims(take->device) + 1;
  if (entry && entry->trims == take->trims)
    take->bytes = 0;
  take->allocates = take->bytes;
  lock_release(&lock);
  /* What is refused may be less in truth: the driver decides. */
  if (pinned_reserve(take->device, BACKING_PINNED_GRAPHS, take->bytes))
    take->bytes = 0;
}

/* A trim between the look and the launch makes the latter take what nobody has waited for. Lock held. */
static bool forget_if_trimmed(CUresult result, struct entry *entry, const struct take *take) {
  bool trimmed = entry && entry->trims && reserves_trims(take->device) + 1 != take->trims;
  if (trimmed)
    entry->trims = 0;
  return trimmed && result == CUDA_ERROR_OUT_OF_MEMORY;
}

/* After it. True: the driver had no memory for it, and is to be asked once more. */
static bool is_again(CUresult result, CUgraphExec graph, struct take *take) {
  bool again = take->bytes && pinned_again(result, take->device, take->bytes, &take->patience);
  if (take->allocates || reserves_trims(take->device) + 1 != take->trims)
    reserves_look(take->device);
  budget_release(take->device, BACKING_PINNED_GRAPHS, take->bytes);
  lock_take(&lock);
  struct entry *entry = *find(graph);
  if (entry && take->allocates && result == CUDA_SUCCESS)
    entry->trims = take->trims;
  again |= forget_if_trimmed(result, entry, take);
  lock_release(&lock);
  return again;
}

static void forget(void) { lock = (struct lock)LOCK(LOCK_GRAPHS); }
IN_FORKED_CHILD(forget);

/* ---- the hooks ---- */

static CUresult left(CUresult result) {
  gate_leave();
  return result;
}

/* The program's call, as it was, in a stream that is resolved. */
static CUresult launch(CUresult (*call)(CUgraphExec, CUstream), CUgraphExec graph, CUstream asked,
                       CUstream stream) {
  struct take take = {0};
  CUresult result;
  bool allocates = atomic_load_explicit(&any, memory_order_relaxed);
  do {
    if (__builtin_expect(allocates, 0))
      take_memory(graph, &take);
    gate_enter(stream);
    result = left(call(graph, asked));
  } while (__builtin_expect(allocates, 0) && is_again(result, graph, &take));
  return result;
}

CUresult hook_cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  return launch(driver.cuGraphLaunch, hGraph, hStream, hStream);
}

CUresult hook_cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  return launch(driver.cuGraphLaunch_ptsz, hGraphExec, hStream, PER_THREAD(hStream));
}

static CUresult instantiated(CUresult result, const CUgraphExec *graph, CUgraph source) {
  if (result == CUDA_SUCCESS)
    add(*graph, source);
  return result;
}

CUresult hook_cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                                 char *logBuffer, size_t bufferSize) {
  gate_enter(NULL);
  return instantiated(
      left(driver.cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize)), phGraphExec,
      hGraph);
}

CUresult hook_cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                                    char *logBuffer, size_t bufferSize) {
  gate_enter(NULL);
  return instantiated(
      left(driver.cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize)),
      phGraphExec, hGraph);
}

CUresult hook_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                          unsigned long long flags) {
  gate_enter(NULL);
  return instantiated(left(driver.cuGraphInstantiateWithFlags(phGraphExec, hGraph, flags)), phGraphExec,
                      hGraph);
}

CUresult hook_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
  gate_enter(instantiateParams ? instantiateParams->hUploadStream : NULL);
  return instantiated(left(driver.cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams)),
                      phGraphExec, hGraph);
}

CUresult hook_cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
                                                CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
  gate_enter(instantiateParams ? PER_THREAD(instantiateParams->hUploadStream) : NULL);
  return instantiated(left(driver.cuGraphInstantiateWithParams_ptsz(phGraphExec, hGraph, instantiateParams)),
                      phGraphExec, hGraph);
}

/* It leaves the table before the driver may give its handle to a new graph. */
CUresult hook_cuGraphExecDestroy(CUgraphExec hGraphExec) {
  drop(hGraphExec);
  return driver.cuGraphExecDestroy(hGraphExec);
}
