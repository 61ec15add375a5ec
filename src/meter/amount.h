/*
 * amount.h - how much a call submits: CUDA blocks of its kernels, bytes that it copies or sets.
 *
 * Descriptions may be NULL: the driver will say so. Threading: any thread.
 */
#ifndef GS_AMOUNT_H
#define GS_AMOUNT_H

#include <stddef.h>
#include <stdint.h>

#include "interpose/cuda_abi.h"

struct amount {
  uint64_t kernels, blocks, bytes;
};

static inline void amount_add(struct amount *sum, struct amount more) {
  sum->kernels += more.kernels;
  sum->blocks += more.blocks;
  sum->bytes += more.bytes;
}

static inline void amount_subtract(struct amount *sum, struct amount less) {
  sum->kernels -= less.kernels;
  sum->blocks -= less.blocks;
  sum->bytes -= less.bytes;
}

/* A grid has up to 2^63 blocks. */
#define AMOUNT_GRID(x, y, z) ((uint64_t)(x) * (uint64_t)(y) * (uint64_t)(z))
#define AMOUNT_RECTANGLE(element_bytes, width, height)                                                       \
  ((uint64_t)(element_bytes) * (uint64_t)(width) * (uint64_t)(height))

static inline uint64_t amount_config(const CUlaunchConfig *config) {
  return config ? AMOUNT_GRID(config->gridDimX, config->gridDimY, config->gridDimZ) : 0;
}

uint64_t amount_launches(const CUDA_LAUNCH_PARAMS *launches, unsigned count);
uint64_t amount_2d_v1(const CUDA_MEMCPY2D_v1 *copy);
uint64_t amount_2d(const CUDA_MEMCPY2D *copy);
uint64_t amount_3d_v1(const CUDA_MEMCPY3D_v1 *copy);
uint64_t amount_3d(const CUDA_MEMCPY3D *copy);
uint64_t amount_3d_peer(const CUDA_MEMCPY3D_PEER *copy);
uint64_t amount_batch(const size_t *sizes, size_t count);

/* Of copies between arrays, whose elements may have any size: elements. 0 where the headers that this was
 * built with don't tell what is in it. */
uint64_t amount_3d_batch(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count);

/* What a node of a graph submits with each launch; zero for nodes that submit nothing, and for conditional
 * ones, of which nobody knows how often they will run. */
struct amount amount_node(CUgraphNode node, CUgraphNodeType type);
struct amount amount_graph(CUgraph graph);

/* CU_GRAPH_NODE_TYPE_EMPTY where the driver does not tell. */
CUgraphNodeType amount_type(CUgraphNode node);

/* The nodes of a graph, to be freed; their count is 0 where the driver does not tell them. */
CUgraphNode *amount_nodes(CUgraph graph, size_t *count);

/* The same, of a node's parameters. */
struct amount amount_kernel_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *params);
struct amount amount_kernel(const CUDA_KERNEL_NODE_PARAMS *params);
struct amount amount_set(const CUDA_MEMSET_NODE_PARAMS *params);
struct amount amount_node_params(const CUgraphNodeParams *params);

#endif
