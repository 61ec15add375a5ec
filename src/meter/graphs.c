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
#include "memory/reach.h"

#define BUCKETS 1024

struct node {
  CUgraphNode node; /* of the graph that it was instantiated from */
  struct amount amount;
  bool disabled;
};

struct entry {
  CUgraphExec graph;
  struct amount sum; /* of the nodes that are not disabled */
  size_t count;
  struct node *nodes;
  size_t found; /* where the last one was found */
  struct entry *next;
};

/* Protects the table. Never held over a call of the driver. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *buckets[BUCKETS];

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
  for (size_t i = 0; nodes && i < *count; i++)
    nodes[i] = (struct node){.node = handles[i], .amount = amount_node(handles[i])};
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

static void add(CUgraphExec graph, CUgraph source) {
  struct entry *entry = calloc(1, sizeof *entry);
  if (!entry)
    return;
  drop(graph);
  entry->graph = graph;
  entry->nodes = count_nodes(source, &entry->count);
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

/* The new graph has the same nodes as the first one, in the same order: later changes name those of the
 * first. */
static void update(CUgraphExec graph, CUgraph source) {
  size_t count;
  struct node *nodes = count_nodes(source, &count);
  lock_take(&lock);
  struct entry *entry = *find(graph);
  for (size_t i = 0; entry && i < count && i < entry->count; i++)
    replace(entry, &entry->nodes[i], nodes[i].amount);
  lock_release(&lock);
  free(nodes);
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
  gate_enter_reaching(NULL, gate_several ? reach_3d(copyParams) : 0);
  return changed(left(driver.cuGraphExecMemcpyNodeSetParams(hGraphExec, hNode, copyParams, ctx)), hGraphExec,
                 hNode, (struct amount){.bytes = amount_3d(copyParams)});
}

CUresult hook_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx) {
  gate_enter(NULL);
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
