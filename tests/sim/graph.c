/* graph.c - building graphs and putting their nodes in order. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static void *must(void *memory) {
  if (memory == NULL)
    abort();
  return memory;
}

CUgraph graph_create(void) {
  CUgraph graph = must(calloc(1, sizeof(*graph)));
  graph->memory = must(calloc(1, sizeof(*graph->memory)));
  graph->memory->references = 1;
  return graph;
}

void graph_memory_release(struct graph_memory *memory) {
  if (--memory->references > 0)
    return;
  graph_memory_unmap(memory);
  for (size_t i = 0; i < memory->count; i++)
    memory_free(memory->addresses[i], KIND_BIT(MEMORY_PLAIN) | KIND_BIT(MEMORY_MANAGED));
  free(memory->addresses);
  free(memory);
}

void graph_own_memory(CUgraph graph, CUdeviceptr address) {
  struct graph_memory *memory = graph->memory;
  struct memory_info info;
  if (memory_find(address, &info) && info.kind == MEMORY_PLAIN && info.pool == NULL) {
    memory->gpu = info.gpu;
    memory->bytes += info.block_bytes;
  }
  memory->addresses = must(realloc(memory->addresses, (memory->count + 1) * sizeof(CUdeviceptr)));
  memory->addresses[memory->count++] = address;
}

static void node_free(CUgraphNode node) {
  work_release(&node->work);
  if (node->child)
    graph_destroy(node->child);
  free(node->after);
  free(node);
}

void graph_destroy(CUgraph graph) {
  while (graph->first) {
    CUgraphNode node = graph->first;
    graph->first = node->next;
    node_free(node);
  }
  graph_memory_release(graph->memory);
  free(graph);
}

CUgraphNodeType graph_type_of(const struct work *work) {
  switch (work->kind) {
  case WORK_KERNEL:
    return CU_GRAPH_NODE_TYPE_KERNEL;
  case WORK_COPY:
    return CU_GRAPH_NODE_TYPE_MEMCPY;
  case WORK_SET:
    return CU_GRAPH_NODE_TYPE_MEMSET;
  case WORK_HOST_FUNCTION:
  case WORK_CALLBACK:
    return CU_GRAPH_NODE_TYPE_HOST;
  case WORK_GRAPH:
    return CU_GRAPH_NODE_TYPE_GRAPH;
  case WORK_WAIT_VALUE:
  case WORK_WRITE_VALUE:
    return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  case WORK_ALLOC:
    return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  case WORK_FREE:
    return CU_GRAPH_NODE_TYPE_MEM_FREE;
  default:
    return CU_GRAPH_NODE_TYPE_EMPTY;
  }
}

CUgraphNode graph_add(CUgraph graph, const struct work *work, const CUgraphNode *after, size_t count) {
  CUgraphNode node = must(calloc(1, sizeof(*node)));
  node->graph = graph;
  node->work = *work;
  node->type = graph_type_of(work);
  if (count) {
    node->after = must(malloc(count * sizeof(CUgraphNode)));
    memcpy(node->after, after, count * sizeof(CUgraphNode));
    node->after_count = count;
  }
  if (work->kind ==
      WORK_FREE) { /* the memory stays as long as the graph: there is nothing to do in a launch */
    graph_own_memory(graph, work->free.at);
    node->work.kind = WORK_EMPTY;
  }
  if (graph->last)
    graph->last->next = node;
  else
    graph->first = node;
  graph->last = node;
  graph->count++;
  return node;
}

CUgraph graph_copy(CUgraph graph) {
  CUgraph copy = graph_create();
  for (CUgraphNode node = graph->first; node; node = node->next) {
    struct work work = node->work;
    if (work.kind == WORK_GRAPH)
      atomic_fetch_add(&work.graph->references, 1);
    CUgraphNode same = graph_add(copy, &work, NULL, 0);
    same->child = node->child ? graph_copy(node->child) : NULL;
  }
  return copy;
}

struct order {
  CUgraphNode *nodes;
  size_t count;
};

static void order_visit(struct order *order, CUgraphNode node) {
  if (node->visited)
    return;
  node->visited = true;
  for (size_t i = 0; i < node->after_count; i++)
    order_visit(order, node->after[i]);
  order->nodes[order->count++] = node;
}

/* Every node comes after those that it depends on; in a cycle one does not. */
static bool order_holds(const struct order *order) {
  bool holds = true;
  for (size_t i = 0; i < order->count; i++)
    order->nodes[i]->visited = false;
  for (size_t i = 0; i < order->count; i++) {
    for (size_t d = 0; d < order->nodes[i]->after_count; d++)
      holds &= order->nodes[i]->after[d]->visited;
    order->nodes[i]->visited = true;
  }
  for (size_t i = 0; i < order->count; i++)
    order->nodes[i]->visited = false;
  return holds;
}

struct work_list *graph_order(CUgraph graph, CUgraphNode **nodes) {
  struct order order = {.nodes = must(malloc((graph->count + 1) * sizeof(CUgraphNode)))};
  struct work_list *list = NULL;
  for (CUgraphNode node = graph->first; node; node = node->next)
    order_visit(&order, node);
  if (order_holds(&order)) {
    list = work_list_create(order.count);
    for (size_t i = 0; i < order.count; i++) {
      list->works[i] = order.nodes[i]->work;
      if (list->works[i].kind == WORK_GRAPH)
        atomic_fetch_add(&list->works[i].graph->references, 1);
    }
  }
  if (nodes && list)
    *nodes = order.nodes;
  else
    free(order.nodes);
  return list;
}
