/* graph.h - graphs: nodes of work with their order. All of it is protected by objects_lock. */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "objects.h"

struct graph_memory { /* what graph nodes allocate and free: lives as long as a graph that uses it */
  unsigned references;
  size_t count;
  CUdeviceptr *addresses;
  unsigned gpu;
  uint64_t bytes;            /* of the card, while it is mapped: graph_memory.c */
  struct graph_memory *next; /* of those that are mapped */
  bool mapped;
};

struct CUgraphNode_st {
  CUgraph graph;
  CUgraphNode next;
  CUgraphNodeType type;
  struct work work;
  CUgraph child;      /* of a child graph node: a copy, for questions only */
  CUgraphNode *after; /* dependencies */
  size_t after_count;
  bool visited; /* while an order is made */
};

struct CUgraph_st {
  CUgraphNode first, last;
  size_t count;
  struct graph_memory *memory;
};

struct CUgraphExec_st {
  struct work_list *list; /* replaced, not changed, so that launches in flight keep theirs */
  CUgraphNode *nodes;     /* the node that each work came from: for identification only */
  struct work *disabled;  /* what the disabled ones of them do, which do nothing; NULL: none ever was */
  struct graph_memory *memory;
  unsigned long long flags;
};

CUgraph graph_create(void);
/* The same nodes, without their order. */
CUgraph graph_copy(CUgraph graph);
void graph_destroy(CUgraph graph);
CUgraphNode graph_add(CUgraph graph, const struct work *work, const CUgraphNode *after, size_t count);
CUgraphNodeType graph_type_of(const struct work *work);
/* The memory goes with the graph. */
void graph_own_memory(CUgraph graph, CUdeviceptr address);
void graph_memory_release(struct graph_memory *memory);
/* Before a launch: what the graph allocates and frees takes its room on the card. */
CUresult graph_memory_map(struct graph_memory *memory);
void graph_memory_unmap(struct graph_memory *memory);
/* Memory for a node that allocates; it takes no room yet. */
CUresult graph_memory_allocate(unsigned gpu, size_t bytes, CUdeviceptr *address);
/* The works in an order that respects the edges. `nodes`, if not NULL, receives a malloc'ed array. NULL on a
 * cycle. */
struct work_list *graph_order(CUgraph graph, CUgraphNode **nodes);

#endif
