/* graph_api.c - the API of graphs. */
#include <stdlib.h>
#include <string.h>

#include "copy.h"
#include "graph.h"
#include "kernel.h"

/* ---- graphs and nodes ---- */

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags) {
  CUresult result = process_check();
  if (result == CUDA_SUCCESS && (phGraph == NULL || flags))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    *phGraph = graph_create();
  return result;
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS || hGraph == NULL)
    return hGraph ? result : CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&objects_lock);
  graph_destroy(hGraph);
  pthread_mutex_unlock(&objects_lock);
  return CUDA_SUCCESS;
}

static CUresult node_add(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                         const struct work *work) {
  CUresult result = process_check();
  if (result == CUDA_SUCCESS &&
      (out == NULL || graph == NULL || (count && after == NULL) || work_lacks_memory(work)))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&objects_lock);
  *out = graph_add(graph, work, after, count);
  pthread_mutex_unlock(&objects_lock);
  return CUDA_SUCCESS;
}

/* The card of the named context, or of the current one. */
static CUresult gpu_of_context(CUcontext context, unsigned *gpu) {
  CUresult result = context ? process_check() : context_current(&context);
  if (result == CUDA_SUCCESS)
    *gpu = context->gpu;
  return result;
}

#define NODE_PARAMETERS                                                                                      \
  CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies
#define ADD(work) node_add(phGraphNode, hGraph, dependencies, numDependencies, work)

CUresult cuGraphAddEmptyNode(NODE_PARAMETERS) {
  const struct work work = {.kind = WORK_EMPTY};
  return ADD(&work);
}

static CUresult kernel_work(struct work *work, CUfunction function, void **params, void **extra,
                            CUcontext context) {
  CUresult result = kernel_bind(work, function, params, extra);
  return result == CUDA_SUCCESS ? gpu_of_context(context, &work->gpu) : result;
}

#define SET_GRID(work, p)                                                                                    \
  memcpy((work)->kernel.grid, (unsigned[]){(p)->gridDimX, (p)->gridDimY, (p)->gridDimZ},                     \
         sizeof(work)->kernel.grid)

static CUresult kernel_work_v1(struct work *work, const CUDA_KERNEL_NODE_PARAMS_v1 *p) {
  CUresult result = kernel_work(work, p->func, p->kernelParams, p->extra, NULL);
  SET_GRID(work, p);
  return result;
}

static CUresult kernel_work_v2(struct work *work, const CUDA_KERNEL_NODE_PARAMS *p) {
  CUresult result =
      kernel_work(work, p->func ? p->func : (CUfunction)p->kern, p->kernelParams, p->extra, p->ctx);
  SET_GRID(work, p);
  return result;
}

CUresult cuGraphAddKernelNode(NODE_PARAMETERS, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
  struct work work;
  CUresult result = kernel_work_v1(&work, nodeParams);
  return result == CUDA_SUCCESS ? ADD(&work) : result;
}

CUresult cuGraphAddKernelNode_v2(NODE_PARAMETERS, const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
  struct work work;
  CUresult result = kernel_work_v2(&work, nodeParams);
  return result == CUDA_SUCCESS ? ADD(&work) : result;
}

static CUresult copy_work(struct work *work, const CUDA_MEMCPY3D *params, CUcontext context) {
  CUresult result = copy_from_3d(work, params);
  return result == CUDA_SUCCESS ? gpu_of_context(context, &work->gpu) : result;
}

CUresult cuGraphAddMemcpyNode(NODE_PARAMETERS, const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
  struct work work;
  CUresult result = copy_work(&work, copyParams, ctx);
  return result == CUDA_SUCCESS ? ADD(&work) : result;
}

static CUresult set_work(struct work *work, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context) {
  *work = (struct work){.kind = WORK_SET};
  work->set.at = (uintptr_t)p->dst;
  work->set.pitch = p->pitch;
  work->set.width = p->width;
  work->set.height = p->height;
  work->set.value = p->value;
  work->set.element_bytes = p->elementSize;
  if (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4)
    return CUDA_ERROR_INVALID_VALUE;
  return gpu_of_context(context, &work->gpu);
}

CUresult cuGraphAddMemsetNode(NODE_PARAMETERS, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx) {
  struct work work;
  CUresult result = set_work(&work, memsetParams, ctx);
  return result == CUDA_SUCCESS ? ADD(&work) : result;
}

CUresult cuGraphAddHostNode(NODE_PARAMETERS, const CUDA_HOST_NODE_PARAMS *nodeParams) {
  struct work work = {.kind = WORK_HOST_FUNCTION};
  work.host.function = nodeParams->fn;
  work.host.data = nodeParams->userData;
  return ADD(&work);
}

CUresult cuGraphAddMemAllocNode(NODE_PARAMETERS, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams) {
  CUresult result = nodeParams ? device_check(nodeParams->poolProps.location.id) : CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS)
    return result;
  unsigned gpu = devices[nodeParams->poolProps.location.id].gpu;
  result = graph_memory_allocate(gpu, nodeParams->bytesize, &nodeParams->dptr);
  const struct work work = {
      .kind = WORK_ALLOC,
      .gpu = gpu,
      .range = {.at = nodeParams->dptr, .bytes = nodeParams->bytesize, .to = (int)gpu},
  };
  return result == CUDA_SUCCESS ? ADD(&work) : result;
}

CUresult cuGraphAddMemFreeNode(NODE_PARAMETERS, CUdeviceptr dptr) {
  const struct work work = {.kind = WORK_FREE, .free = {.at = dptr}};
  return ADD(&work);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out) {
  memset(params_out, 0, sizeof(*params_out));
  params_out->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params_out->poolProps.location.type = SIM_LOCATION_DEVICE;
  for (int d = 0; d < sim.device_count; d++)
    if (devices[d].gpu == hNode->work.gpu)
      params_out->poolProps.location.id = d;
  params_out->bytesize = hNode->work.range.bytes;
  params_out->dptr = hNode->work.range.at;
  return hNode->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? process_check() : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out) {
  *dptr_out = hNode->work.free.at;
  return hNode->type == CU_GRAPH_NODE_TYPE_MEM_FREE ? process_check() : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddChildGraphNode(NODE_PARAMETERS, CUgraph childGraph) {
  struct work work = {.kind = WORK_GRAPH};
  CUresult result = process_check();
  if (result != CUDA_SUCCESS || childGraph == NULL)
    return childGraph ? result : CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&objects_lock);
  work.graph = graph_order(childGraph, NULL);
  CUgraph copy = graph_copy(childGraph);
  pthread_mutex_unlock(&objects_lock);
  result = work.graph ? ADD(&work) : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    (*phGraphNode)->child = copy;
  else
    graph_destroy(copy);
  return result;
}

static void node_after(CUgraphNode node, CUgraphNode other) {
  CUgraphNode *larger = realloc(node->after, (node->after_count + 1) * sizeof(CUgraphNode));
  if (larger == NULL)
    abort();
  node->after = larger;
  node->after[node->after_count++] = other;
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t numDependencies) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS || hGraph == NULL)
    return hGraph ? result : CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&objects_lock);
  for (size_t i = 0; i < numDependencies; i++)
    node_after(to[i], from[i]);
  pthread_mutex_unlock(&objects_lock);
  return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 12030
CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edgeData, size_t numDependencies) {
  (void)edgeData;
  return cuGraphAddDependencies(hGraph, from, to, numDependencies);
}
#endif

/* A question about a graph, which counts. */
static CUresult query_check(void) {
  CUresult result = process_check();
  if (result == CUDA_SUCCESS)
    process_count(0, GS_SIM_graph_queries, 1);
  return result;
}

static CUresult nodes_list(CUgraph graph, CUgraphNode *nodes, size_t *count, bool roots_only) {
  size_t found = 0;
  CUresult result = query_check();
  if (result != CUDA_SUCCESS || graph == NULL || count == NULL)
    return graph && count ? result : CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&objects_lock);
  for (CUgraphNode node = graph->first; node; node = node->next) {
    if (roots_only && node->after_count)
      continue;
    if (nodes && found < *count)
      nodes[found] = node;
    found++;
  }
  pthread_mutex_unlock(&objects_lock);
  for (size_t i = found; nodes && i < *count; i++)
    nodes[i] = NULL;
  *count = found;
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes) {
  return nodes_list(hGraph, nodes, numNodes, false);
}
CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes) {
  return nodes_list(hGraph, rootNodes, numRootNodes, true);
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type) {
  *type = hNode->type;
  return query_check();
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph) {
  *phGraph = hNode->child;
  return hNode->child ? query_check() : CUDA_ERROR_INVALID_VALUE;
}

/* ---- parameters: how much a node does ---- */

#define GET_GRID(suffix, type)                                                                               \
  CUresult cuGraphKernelNodeGetParams##suffix(CUgraphNode hNode, type *nodeParams) {                         \
    const unsigned *grid = hNode->work.kernel.grid;                                                          \
    *nodeParams = (type){.gridDimX = grid[0], .gridDimY = grid[1], .gridDimZ = grid[2]};                     \
    return query_check();                                                                                    \
  }

GET_GRID(, CUDA_KERNEL_NODE_PARAMS_v1)
GET_GRID(_v2, CUDA_KERNEL_NODE_PARAMS)

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams) {
  *nodeParams = (CUDA_MEMCPY3D){.WidthInBytes = hNode->work.copy.width,
                                .Height = hNode->work.copy.height,
                                .Depth = hNode->work.copy.depth};
  return query_check();
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams) {
  *nodeParams = (CUDA_MEMSET_NODE_PARAMS){.elementSize = hNode->work.set.element_bytes,
                                          .width = hNode->work.set.width,
                                          .height = hNode->work.set.height};
  return query_check();
}

/* ---- new parameters ---- */

static CUresult node_replace(CUgraphNode node, const struct work *work) {
  if (work_lacks_memory(work))
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&objects_lock);
  bool fits = node->work.kind == work->kind;
  if (fits)
    node->work = *work;
  pthread_mutex_unlock(&objects_lock);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct work_list *list_copy(const struct work_list *list) {
  struct work_list *copy = work_list_create(list->count);
  for (size_t i = 0; i < list->count; i++) {
    copy->works[i] = list->works[i];
    if (copy->works[i].kind == WORK_GRAPH)
      atomic_fetch_add(&copy->works[i].graph->references, 1);
  }
  return copy;
}

static CUresult exec_replace(CUgraphExec exec, CUgraphNode node, const struct work *work) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (work_lacks_memory(work))
    return result;
  pthread_mutex_lock(&objects_lock);
  for (size_t i = 0; i < exec->list->count; i++) {
    if (exec->nodes[i] != node || exec->list->works[i].kind != work->kind)
      continue;
    struct work_list *copy = list_copy(exec->list);
    copy->works[i] = *work;
    work_list_release(exec->list);
    exec->list = copy;
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&objects_lock);
  return result;
}

#define REPLACES(suffix, type, make)                                                                         \
  CUresult cuGraphKernelNodeSetParams##suffix(CUgraphNode hNode, const type *nodeParams) {                   \
    struct work work;                                                                                        \
    CUresult result = make(&work, nodeParams);                                                               \
    return result == CUDA_SUCCESS ? node_replace(hNode, &work) : result;                                     \
  }                                                                                                          \
  CUresult cuGraphExecKernelNodeSetParams##suffix(CUgraphExec hGraphExec, CUgraphNode hNode,                 \
                                                  const type *nodeParams) {                                  \
    struct work work;                                                                                        \
    CUresult result = make(&work, nodeParams);                                                               \
    return result == CUDA_SUCCESS ? exec_replace(hGraphExec, hNode, &work) : result;                         \
  }

REPLACES(, CUDA_KERNEL_NODE_PARAMS_v1, kernel_work_v1)
REPLACES(_v2, CUDA_KERNEL_NODE_PARAMS, kernel_work_v2)

#define REPLACES_MEMORY(kind, type, make)                                                                    \
  CUresult cuGraph##kind##NodeSetParams(CUgraphNode hNode, const type *nodeParams) {                         \
    struct work work;                                                                                        \
    CUresult result = make(&work, nodeParams, NULL);                                                         \
    return result == CUDA_SUCCESS ? node_replace(hNode, &work) : result;                                     \
  }                                                                                                          \
  CUresult cuGraphExec##kind##NodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const type *params,   \
                                            CUcontext ctx) {                                                 \
    struct work work;                                                                                        \
    CUresult result = make(&work, params, ctx);                                                              \
    return result == CUDA_SUCCESS ? exec_replace(hGraphExec, hNode, &work) : result;                         \
  }

REPLACES_MEMORY(Memcpy, CUDA_MEMCPY3D, copy_work)
REPLACES_MEMORY(Memset, CUDA_MEMSET_NODE_PARAMS, set_work)

/* ---- instantiation ---- */

static CUresult instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS || out == NULL || graph == NULL)
    return out && graph ? result : CUDA_ERROR_INVALID_VALUE;
  CUgraphExec exec = calloc(1, sizeof(*exec));
  if (exec == NULL)
    return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&objects_lock);
  exec->flags = flags;
  exec->list = graph_order(graph, &exec->nodes);
  if (exec->list) {
    exec->memory = graph->memory;
    exec->memory->references++;
  }
  pthread_mutex_unlock(&objects_lock);
  if (exec->list) {
    *out = exec;
    return CUDA_SUCCESS;
  }
  free(exec);
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                            char *logBuffer, size_t bufferSize) {
  if (phErrorNode)
    *phErrorNode = NULL;
  if (logBuffer && bufferSize)
    *logBuffer = '\0';
  return instantiate(phGraphExec, hGraph, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                               char *logBuffer, size_t bufferSize) {
  return cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags) {
  return instantiate(phGraphExec, hGraph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
  CUresult result = instantiate(phGraphExec, hGraph, instantiateParams->flags);
  instantiateParams->hErrNode_out = NULL;
  instantiateParams->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
  return cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams);
}

/* Until the whole of it is updated. */
static void set_enabled_locked(CUgraphExec exec, size_t i, bool enabled) {
  bool is_disabled = exec->disabled[i].kind != WORK_EMPTY;
  if (enabled != is_disabled)
    return;
  struct work_list *copy = list_copy(exec->list);
  struct work work = copy->works[i];
  copy->works[i] = exec->disabled[i];
  exec->disabled[i] = work;
  work_list_release(exec->list);
  exec->list = copy;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&objects_lock);
  if (hGraphExec->disabled == NULL)
    hGraphExec->disabled = calloc(hGraphExec->list->count + 1, sizeof(struct work));
  for (size_t i = 0; i < hGraphExec->list->count; i++)
    if (hGraphExec->nodes[i] == hNode) {
      set_enabled_locked(hGraphExec, i, isEnabled);
      result = CUDA_SUCCESS;
    }
  pthread_mutex_unlock(&objects_lock);
  return result;
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags) {
  *flags = hGraphExec->flags;
  return process_check();
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  CUresult result = process_check();
  if (result != CUDA_SUCCESS || hGraphExec == NULL)
    return hGraphExec ? result : CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&objects_lock);
  work_list_release(hGraphExec->list);
  graph_memory_release(hGraphExec->memory);
  pthread_mutex_unlock(&objects_lock);
  free(hGraphExec->nodes);
  free(hGraphExec->disabled);
  free(hGraphExec);
  return CUDA_SUCCESS;
}

static bool lists_match(const struct work_list *a, const struct work_list *b) {
  if (a->count != b->count)
    return false;
  for (size_t i = 0; i < a->count; i++)
    if (a->works[i].kind != b->works[i].kind)
      return false;
  return true;
}

/* The same topology with other parameters replaces what is launched from now on. */
static bool exec_update(CUgraphExec exec, CUgraph graph) {
  pthread_mutex_lock(&objects_lock);
  struct work_list *list = graph_order(graph, NULL);
  bool fits = list && lists_match(exec->list, list);
  if (fits) {
    work_list_release(exec->list);
    exec->list = list;
    graph->memory->references++;
    graph_memory_release(exec->memory);
    exec->memory = graph->memory;
  } else {
    work_list_release(list);
  }
  pthread_mutex_unlock(&objects_lock);
  return fits;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                           CUgraphExecUpdateResult *updateResult_out) {
  bool fits = exec_update(hGraphExec, hGraph);
  *hErrorNode_out = NULL;
  *updateResult_out = fits ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  return fits ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo *resultInfo) {
  bool fits = exec_update(hGraphExec, hGraph);
  memset(resultInfo, 0, sizeof(*resultInfo));
  resultInfo->result = fits ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  return fits ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

/* ---- launch ---- */

static bool owns(const struct graph_memory *memory, CUdeviceptr address) {
  for (size_t i = 0; i < memory->count; i++)
    if (memory->addresses[i] == address)
      return true;
  return false;
}

/* What the graph frees it has again at the next launch; the rest is the program's from the first one on. */
static CUresult map_memory(CUgraphExec exec) {
  CUresult result = graph_memory_map(exec->memory);
  for (size_t i = 0; i < exec->list->count && result == CUDA_SUCCESS; i++) {
    const struct work *work = &exec->list->works[i];
    if (work->kind == WORK_ALLOC && !owns(exec->memory, work->range.at))
      result = memory_pin(work->range.at);
  }
  return result;
}

static CUresult launch(CUgraphExec exec, CUstream handle) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  if (result != CUDA_SUCCESS || exec == NULL)
    return exec ? result : CUDA_ERROR_INVALID_VALUE;
  struct work work = {.kind = WORK_GRAPH, .gpu = stream->context->gpu};
  pthread_mutex_lock(&objects_lock);
  result = map_memory(exec);
  if (result == CUDA_SUCCESS) {
    work.graph = exec->list;
    atomic_fetch_add(&work.graph->references, 1);
  }
  pthread_mutex_unlock(&objects_lock);
  return result == CUDA_SUCCESS ? stream_submit(stream, &work) : result;
}

/* Nothing is to be uploaded here; the call is checked as the real one would. */
static CUresult upload(CUgraphExec exec, CUstream handle) {
  CUstream stream;
  CUresult result = stream_resolve(handle, &stream);
  return exec ? result : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) { return launch(hGraph, hStream); }
CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  return launch(hGraphExec, PER_THREAD(hStream));
}
CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream) { return upload(hGraph, hStream); }
CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  return upload(hGraphExec, PER_THREAD(hStream));
}
