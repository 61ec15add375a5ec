/* amount.c - see amount.h. */
#include "meter/amount.h"

#include <stdlib.h>

#include "interpose/driver.h"

uint64_t amount_launches(const CUDA_LAUNCH_PARAMS *launches, unsigned count) {
  uint64_t blocks = 0;
  for (unsigned i = 0; launches && i < count; i++)
    blocks += AMOUNT_GRID(launches[i].gridDimX, launches[i].gridDimY, launches[i].gridDimZ);
  return blocks;
}

#define PLANE(copy) ((copy) ? AMOUNT_RECTANGLE(1, (copy)->WidthInBytes, (copy)->Height) : 0)
#define BOX(copy) ((copy) ? AMOUNT_RECTANGLE((copy)->Depth, (copy)->WidthInBytes, (copy)->Height) : 0)

uint64_t amount_2d_v1(const CUDA_MEMCPY2D_v1 *copy) { return PLANE(copy); }
uint64_t amount_2d(const CUDA_MEMCPY2D *copy) { return PLANE(copy); }
uint64_t amount_3d_v1(const CUDA_MEMCPY3D_v1 *copy) { return BOX(copy); }
uint64_t amount_3d(const CUDA_MEMCPY3D *copy) { return BOX(copy); }
uint64_t amount_3d_peer(const CUDA_MEMCPY3D_PEER *copy) { return BOX(copy); }

uint64_t amount_batch(const size_t *sizes, size_t count) {
  uint64_t bytes = 0;
  for (size_t i = 0; sizes && i < count; i++)
    bytes += sizes[i];
  return bytes;
}

#if CUDA_VERSION >= 12080
uint64_t amount_3d_batch(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count) {
  uint64_t bytes = 0;
  for (size_t i = 0; copies && i < count; i++)
    bytes += AMOUNT_RECTANGLE(copies[i].extent.depth, copies[i].extent.width, copies[i].extent.height);
  return bytes;
}
#else
uint64_t amount_3d_batch(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count) {
  (void)copies, (void)count;
  return 0;
}
#endif

/* ---- graphs ---- */

static struct amount of_kernel(uint64_t blocks) { return (struct amount){.kernels = 1, .blocks = blocks}; }

struct amount amount_kernel_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p) {
  return of_kernel(p ? AMOUNT_GRID(p->gridDimX, p->gridDimY, p->gridDimZ) : 0);
}
struct amount amount_kernel(const CUDA_KERNEL_NODE_PARAMS *p) {
  return of_kernel(p ? AMOUNT_GRID(p->gridDimX, p->gridDimY, p->gridDimZ) : 0);
}
struct amount amount_set(const CUDA_MEMSET_NODE_PARAMS *p) {
  return (struct amount){.bytes = p ? AMOUNT_RECTANGLE(p->elementSize, p->width, p->height) : 0};
}

/* Drivers before 12.0 have the first form only. */
static struct amount kernel_node(CUgraphNode node) {
  CUDA_KERNEL_NODE_PARAMS p = {0};
  CUDA_KERNEL_NODE_PARAMS_v1 old = {0};
  if (driver.cuGraphKernelNodeGetParams_v2) {
    driver.cuGraphKernelNodeGetParams_v2(node, &p);
    return amount_kernel(&p);
  }
  driver.cuGraphKernelNodeGetParams(node, &old);
  return amount_kernel_v1(&old);
}

static struct amount copy_node(CUgraphNode node) {
  CUDA_MEMCPY3D copy;
  bool known = driver.cuGraphMemcpyNodeGetParams(node, &copy) == CUDA_SUCCESS;
  return (struct amount){.bytes = known ? amount_3d(&copy) : 0};
}

static struct amount set_node(CUgraphNode node) {
  CUDA_MEMSET_NODE_PARAMS set = {0};
  driver.cuGraphMemsetNodeGetParams(node, &set);
  return amount_set(&set);
}

static struct amount child_node(CUgraphNode node) {
  CUgraph child;
  bool known = driver.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS;
  return known ? amount_graph(child) : (struct amount){0};
}

CUgraphNodeType amount_type(CUgraphNode node) {
  CUgraphNodeType type;
  return driver.cuGraphNodeGetType(node, &type) == CUDA_SUCCESS ? type : CU_GRAPH_NODE_TYPE_EMPTY;
}

struct amount amount_node(CUgraphNode node, CUgraphNodeType type) {
  switch (type) {
  case CU_GRAPH_NODE_TYPE_KERNEL:
    return kernel_node(node);
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    return copy_node(node);
  case CU_GRAPH_NODE_TYPE_MEMSET:
    return set_node(node);
  case CU_GRAPH_NODE_TYPE_GRAPH:
    return child_node(node);
  default:
    return (struct amount){0};
  }
}

CUgraphNode *amount_nodes(CUgraph graph, size_t *count) {
  size_t all = 0;
  bool known = driver.cuGraphGetNodes(graph, NULL, &all) == CUDA_SUCCESS;
  CUgraphNode *nodes = known ? calloc(all + 1, sizeof *nodes) : NULL;
  *count = all;
  if (!nodes || driver.cuGraphGetNodes(graph, nodes, count) != CUDA_SUCCESS || *count > all)
    *count = 0;
  return nodes;
}

struct amount amount_graph(CUgraph graph) {
  struct amount sum = {0};
  size_t count;
  CUgraphNode *nodes = amount_nodes(graph, &count);
  for (size_t i = 0; i < count; i++)
    amount_add(&sum, amount_node(nodes[i], amount_type(nodes[i])));
  free(nodes);
  return sum;
}

#if CUDA_VERSION >= 12020
struct amount amount_node_params(const CUgraphNodeParams *params) {
  switch (params->type) {
  case CU_GRAPH_NODE_TYPE_KERNEL:
    return of_kernel(AMOUNT_GRID(params->kernel.gridDimX, params->kernel.gridDimY, params->kernel.gridDimZ));
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    return (struct amount){.bytes = amount_3d(&params->memcpy.copyParams)};
  case CU_GRAPH_NODE_TYPE_MEMSET:
    return (struct amount){
        .bytes = AMOUNT_RECTANGLE(params->memset.elementSize, params->memset.width, params->memset.height)};
  case CU_GRAPH_NODE_TYPE_GRAPH:
    return amount_graph(params->graph.graph);
  default:
    return (struct amount){0};
  }
}
#else
/* These headers don't tell what is in it. */
struct amount amount_node_params(const CUgraphNodeParams *params) {
  (void)params;
  return (struct amount){0};
}
#endif
