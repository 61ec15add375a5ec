/* graphs.c - a table of executable graphs, from the calls that make, change and destroy them. See graphs.h.
 */
#include "meter/graphs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/lock.h"
#include "gate/gate.h"
#include "interpose/driver.h"
#include "interpose/hooks.h"
#include "memory/budget.h"
#include "memory/device.h"
#include "memory/reach.h"
#include "memory/reserves.h"

#define BUCKETS 1024

struct node {
  CUgraphNode node; /* of the graph that it was instantiated from */
  CUgraphNodeType type;
  struct amount amount;
  bool disabled;
};

struct entry {
  CUgraphExec graph;
  struct amount sum; /* of the nodes that are not disabled */
  size_t count;
  struct node *nodes;
  size_t found;          /* where the last one was found */
  size_t updated;        /* where the next update looks first */
  uint64_t memory_bytes; /* that its nodes allocate, at most at a time; 0: none does */
  CUdevice memory_device;
  uint64_t memory_trims; /* 1 more than when it has taken that; 0: never */
  struct entry *next;
};

/* Protects the table. Never held over a call of the driver. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *buckets[BUCKETS];
_Atomic bool graphs_allocate;

/* Moves with every change of the table, so that a thread may keep what it has found there. */
static _Atomic uint64_t generation = 1;

#define RECENT 8

/* What this thread has launched lately: most programs launch the same few graphs again and again. */
struct recent {
  CUgraphExec graph;
  uint64_t generation;
  struct amount sum;
};
static __thread struct recent recent[RECENT] __attribute__((tls_model("initial-exec")));
static __thread unsigned replaced __attribute__((tls_model("initial-exec")));

/* Its place, or the one that was taken longest ago. */
static struct recent *recent_of(CUgraphExec graph) {
  for (struct recent *at = recent; at < recent + RECENT; at++)
    if (at->graph == graph)
      return at;
  return &recent[replaced++ % RECENT];
}

static struct entry **find(CUgraphExec graph) {
  struct entry **at = &buckets[((uintptr_t)graph >> 4) % BUCKETS];
  while (*at && (*at)->graph != graph)
    at = &(*at)->next;
  return at;
}

static void look_up(CUgraphExec graph, struct recent *found) {
  lock_take(&lock);
  const struct entry *entry = *find(graph);
  found->generation = atomic_load(&generation);
  found->sum = entry ? entry->sum : (struct amount){0};
  lock_release(&lock);
  found->graph = graph;
}

struct meter_work graphs_work(CUgraphExec graph) {
  struct recent *found = recent_of(graph);
  if (found->graph != graph || found->generation != atomic_load(&generation))
    look_up(graph, found);
  return (struct meter_work){.what = graph, .amount = found->sum};
}

/* ---- changes ---- */

/* Lock held, as below. */
static void move_on(void) { atomic_fetch_add(&generation, 1); }

/* Its nodes, counted; NULL when memory is out. */
static struct node *count_nodes(CUgraph graph, size_t *count) {
  CUgraphNode *handles = amount_nodes(graph, count);
  struct node *nodes = calloc(*count + 1, sizeof *nodes);
  for (size_t i = 0; nodes && i < *count; i++) {
    CUgraphNodeType type = amount_type(handles[i]);
    nodes[i] = (struct node){.node = handles[i], .type = type, .amount = amount_node(handles[i], type)};
  }
  *count = nodes ? *count : 0;
  free(handles);
  return nodes;
}

/* What a node submits is part of the sum, or not. */
static void take_out(struct entry *entry, const struct node *node) {
  if (!node->disabled)
    amount_subtract(&entry->sum, node->amount);
}

static void put_in(struct entry *entry, const struct node *node) {
  if (!node->disabled)
    amount_add(&entry->sum, node->amount);
  move_on();
}

static void drop(CUgraphExec graph) {
  lock_take(&lock);
  struct entry **at = find(graph), *gone = *at;
  if (gone)
    *at = gone->next;
  move_on();
  lock_release(&lock);
  if (gone)
    free(gone->nodes);
  free(gone);
}

static uint64_t bytes_at(const CUDA_MEM_ALLOC_NODE_PARAMS *all, size_t count, CUdeviceptr address) {
  for (size_t i = 0; i < count; i++)
    if (all[i].dptr == address)
      return all[i].bytesize;
  return 0;
}

/* What the nodes have allocated and not freed, at most, as they were added: that is about the order in which
 * they run. */
static void find_memory(struct entry *entry) {
  CUDA_MEM_ALLOC_NODE_PARAMS *all = calloc(entry->count + 1, sizeof *all), *next = all;
  uint64_t bytes = 0;
  for (size_t i = 0; all && i < entry->count; i++) {
    CUgraphNodeType type;
    CUdeviceptr freed;
    CUgraphNode node = entry->nodes[i].node;
    if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
      continue;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
        driver.cuGraphMemAllocNodeGetParams(node, next) == CUDA_SUCCESS) {
      entry->memory_device = next->poolProps.location.id;
      bytes += next++->bytesize;
    } else if (type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
               driver.cuGraphMemFreeNodeGetParams(node, &freed) == CUDA_SUCCESS) {
      uint64_t less_bytes = bytes_at(all, (size_t)(next - all), freed);
      bytes -= less_bytes < bytes ? less_bytes : bytes;
    }
    if (bytes > entry->memory_bytes)
      entry->memory_bytes = bytes;
  }
  free(all);
  if (!device_valid(entry->memory_device))
    entry->memory_bytes = 0;
  if (!entry->memory_bytes)
    return;
  reserves_watch_graphs(entry->memory_device);
  atomic_store(&graphs_allocate, true);
}

static void add(CUgraphExec graph, CUgraph source) {
  struct entry *entry = calloc(1, sizeof *entry);
  if (!entry)
    return;
  drop(graph);
  entry->graph = graph;
  entry->nodes = count_nodes(source, &entry->count);
  find_memory(entry);
  lock_take(&lock);
  *find(graph) = entry;
  for (size_t i = 0; i < entry->count; i++)
    put_in(entry, &entry->nodes[i]);
  lock_release(&lock);
}

static void replace(struct entry *entry, struct node *node, struct amount amount) {
  take_out(entry, node);
  node->amount = amount;
  put_in(entry, node);
}

/* Programs update graphs of thousands of nodes for every launch of theirs, and few nodes change what is
 * counted of them. So an update looks at a few nodes only, the next one goes on from there: in a large graph,
 * blocks and bytes follow some updates later. An update changes no node's type, so kernels are always right.
 */
#define LOOKS 8

struct look {
  size_t index;
  CUgraphNodeType type;
  struct amount amount;
};

/* What is inside a child graph keeps its amount: to look would take as many calls as it has nodes. */
static bool may_change(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
         type == CU_GRAPH_NODE_TYPE_MEMSET;
}

/* Which nodes are looked at this time; the count of all. */
static size_t choose_looks(CUgraphExec graph, struct look looks[LOOKS], size_t *chosen) {
  *chosen = 0;
  lock_take(&lock);
  struct entry *entry = *find(graph);
  size_t count = entry ? entry->count : 0;
  for (size_t passed = 0; passed < count && *chosen < LOOKS; passed++) {
    const struct node *node = &entry->nodes[entry->updated];
    if (may_change(node->type))
      looks[(*chosen)++] = (struct look){.index = entry->updated, .type = node->type};
    entry->updated = (entry->updated + 1) % count;
  }
  lock_release(&lock);
  return count;
}

/* The new graph has the same nodes as the first one, in the same order: later changes name those of the
 * first. */
static void update(CUgraphExec graph, CUgraph source) {
  struct look looks[LOOKS];
  size_t chosen, count = choose_looks(graph, looks, &chosen), given = count;
  CUgraphNode *handles = chosen ? malloc(count * sizeof *handles) : NULL;
  if (!handles || driver.cuGraphGetNodes(source, handles, &given) != CUDA_SUCCESS || given != count)
    chosen = 0;
  for (size_t i = 0; i < chosen; i++)
    looks[i].amount = amount_node(handles[looks[i].index], looks[i].type);
  lock_take(&lock);
  struct entry *entry = *find(graph);
  for (size_t i = 0; entry && i < chosen && looks[i].index < entry->count; i++)
    replace(entry, &entry->nodes[looks[i].index], looks[i].amount);
  lock_release(&lock);
  free(handles);
}

/* Programs change one node after the other. */
static struct node *find_node(struct entry *entry, CUgraphNode handle) {
  for (size_t i = 0; entry && i < entry->count; i++) {
    size_t at = (entry->found + i) % entry->count;
    if (entry->nodes[at].node != handle)
      continue;
    entry->found = at;
    return &entry->nodes[at];
  }
  return NULL;
}

static void set_node(CUgraphExec graph, CUgraphNode handle, struct amount amount) {
  lock_take(&lock);
  struct entry *entry = *find(graph);
  struct node *node = find_node(entry, handle);
  if (node)
    replace(entry, node, amount);
  lock_release(&lock);
}

static void set_enabled(CUgraphExec graph, CUgraphNode handle, bool enabled) {
  lock_take(&lock);
  struct entry *entry = *find(graph);
  struct node *node = find_node(entry, handle);
  if (node) {
    take_out(entry, node);
    node->disabled = !enabled;
    put_in(entry, node);
  }
  lock_release(&lock);
}

/* ---- memory ---- */

/* Where it has not been trimmed since the last launch, it is still there. */
void graphs_take_memory(CUgraphExec graph, struct graph_memory *memory) {
  lock_take(&lock);
  const struct entry *entry = *find(graph);
  memory->bytes = entry ? entry->memory_bytes : 0;
  memory->device = entry ? entry->memory_device : 0;
  memory->trims = reserves_trims(memory->device) + 1;
  if (entry && entry->memory_trims == memory->trims)
    memory->bytes = 0;
  lock_release(&lock);
  /* What is refused may be less in truth: the driver decides. */
  if (physical_reserve(memory->device, memory->bytes))
    memory->bytes = 0;
}

/* A trim between the look and the launch makes the latter take what nobody has waited for. Lock held. */
static bool forget_if_trimmed(CUresult result, struct entry *entry, const struct graph_memory *memory) {
  bool trimmed = entry && entry->memory_trims && reserves_trims(memory->device) + 1 != memory->trims;
  if (trimmed)
    entry->memory_trims = 0;
  return trimmed && result == CUDA_ERROR_OUT_OF_MEMORY;
}

bool graphs_again(CUresult result, CUgraphExec graph, struct graph_memory *memory) {
  bool again = memory->bytes && physical_again(result, memory->device, memory->bytes, &memory->patience);
  if (memory->bytes || reserves_trims(memory->device) + 1 != memory->trims)
    reserves_look(memory->device);
  budget_release(memory->device, BACKING_PINNED, memory->bytes);
  lock_take(&lock);
  struct entry *entry = *find(graph);
  if (entry && memory->bytes && result == CUDA_SUCCESS)
    entry->memory_trims = memory->trims;
  again |= forget_if_trimmed(result, entry, memory);
  lock_release(&lock);
  return again;
}

void graphs_fork_child(void) { pthread_mutex_init(&lock, NULL); }

/* ---- the hooks ---- */

static CUresult left(CUresult result) {
  gate_leave();
  return result;
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

static CUresult updated(CUresult result, CUgraphExec graph, CUgraph source) {
  if (result == CUDA_SUCCESS)
    update(graph, source);
  return result;
}

CUresult hook_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                                CUgraphExecUpdateResult *updateResult_out) {
  gate_enter(NULL);
  return updated(left(driver.cuGraphExecUpdate(hGraphExec, hGraph, hErrorNode_out, updateResult_out)),
                 hGraphExec, hGraph);
}

CUresult hook_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                   CUgraphExecUpdateResultInfo *resultInfo) {
  gate_enter(NULL);
  return updated(left(driver.cuGraphExecUpdate_v2(hGraphExec, hGraph, resultInfo)), hGraphExec, hGraph);
}

static CUresult changed(CUresult result, CUgraphExec graph, CUgraphNode node, struct amount amount) {
  if (result == CUDA_SUCCESS)
    set_node(graph, node, amount);
  return result;
}

CUresult hook_cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
  struct amount amount = amount_kernel_v1(nodeParams);
  return changed(driver.cuGraphExecKernelNodeSetParams(hGraphExec, hNode, nodeParams), hGraphExec, hNode,
                 amount);
}

CUresult hook_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
  struct amount amount = amount_kernel(nodeParams);
  return changed(driver.cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, nodeParams), hGraphExec, hNode,
                 amount);
}

CUresult hook_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
  struct reach reach = reach_3d(copyParams);
  if (reach.beyond)
    return CUDA_ERROR_INVALID_VALUE;
  gate_enter_reaching(NULL, reach_gates(reach));
  return changed(left(driver.cuGraphExecMemcpyNodeSetParams(hGraphExec, hNode, copyParams, ctx)), hGraphExec,
                 hNode, (struct amount){.bytes = amount_3d(copyParams)});
}

CUresult hook_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx) {
  struct reach reach = reach_set_node(memsetParams);
  if (reach.beyond)
    return CUDA_ERROR_INVALID_VALUE;
  gate_enter_reaching(NULL, reach_gates(reach));
  return changed(left(driver.cuGraphExecMemsetNodeSetParams(hGraphExec, hNode, memsetParams, ctx)),
                 hGraphExec, hNode, amount_set(memsetParams));
}

CUresult hook_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                       CUgraphNodeParams *nodeParams) {
  gate_enter(NULL);
  return changed(left(driver.cuGraphExecNodeSetParams(hGraphExec, hNode, nodeParams)), hGraphExec, hNode,
                 amount_node_params(nodeParams));
}

CUresult hook_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                 CUgraph childGraph) {
  CUresult result = driver.cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, childGraph);
  return result == CUDA_SUCCESS ? changed(result, hGraphExec, hNode, amount_graph(childGraph)) : result;
}

CUresult hook_cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  CUresult result = driver.cuGraphNodeSetEnabled(hGraphExec, hNode, isEnabled);
  if (result == CUDA_SUCCESS)
    set_enabled(hGraphExec, hNode, isEnabled);
  return result;
}

/* It leaves the table before the driver may give its handle to a new graph. */
CUresult hook_cuGraphExecDestroy(CUgraphExec hGraphExec) {
  drop(hGraphExec);
  return driver.cuGraphExecDestroy(hGraphExec);
}
