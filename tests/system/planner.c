/*
 * planner.c - speaks to the driver about memory that is not on the card. usage: planner SITUATION BYTES.
 * Fills its memory, says "ready", waits for a line, and then
 *   nodes      builds a graph that sets and copies the memory
 *   edits      changes such a graph, of before, to another part of it
 *   questions  asks again what it has asked before, and says "same" (or what differs)
 * The graph is launched and must do what it says; what it does not touch must be as it was. Then "ok".
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

#define PART_BYTES 65536

struct plan {
  struct gpu gpu;
  CUgraph graph;
  CUgraphNode set, copy;
  CUgraphExec exec;
  unsigned char host[2 * PART_BYTES];
};

static CUDA_MEMSET_NODE_PARAMS setting(CUdeviceptr at) {
  return (CUDA_MEMSET_NODE_PARAMS){.dst = at, .value = 7, .elementSize = 1, .width = PART_BYTES, .height = 1};
}

static CUDA_MEMCPY3D copying(CUdeviceptr at, void *host) {
  return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = at,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = host,
                         .WidthInBytes = PART_BYTES,
                         .Height = 1,
                         .Depth = 1};
}

static void build(struct plan *plan, CUdeviceptr at, void *host) {
  CUDA_MEMSET_NODE_PARAMS set = setting(at);
  CUDA_MEMCPY3D copy = copying(at, host);
  MUST(cuGraphCreate(&plan->graph, 0));
  MUST(cuGraphAddMemsetNode(&plan->set, plan->graph, NULL, 0, &set, plan->gpu.context));
  MUST(cuGraphAddMemcpyNode(&plan->copy, plan->graph, &plan->set, 1, &copy, plan->gpu.context));
  MUST(cuGraphInstantiateWithFlags(&plan->exec, plan->graph, 0));
}

static void edit(struct plan *plan, CUdeviceptr at, void *host) {
  CUDA_MEMSET_NODE_PARAMS set = setting(at);
  CUDA_MEMCPY3D copy = copying(at, host);
  MUST(cuGraphExecMemcpyNodeSetParams(plan->exec, plan->copy, &copy, plan->gpu.context));
  MUST(cuGraphExecMemsetNodeSetParams(plan->exec, plan->set, &set, plan->gpu.context));
  MUST(cuGraphMemcpyNodeSetParams(plan->copy, &copy));
  MUST(cuGraphMemsetNodeSetParams(plan->set, &set));
}

static void launch(struct plan *plan, const unsigned char *expected) {
  MUST(cuGraphLaunch(plan->exec, NULL));
  MUST(cuCtxSynchronize());
  for (int i = 0; i < PART_BYTES; i++)
    if (expected[i] != 7)
      gpu_must(CUDA_ERROR_UNKNOWN, "the graph has not done its work");
}

/* What programs ask about a pointer. */
struct answers {
  uint64_t values[12][2];
  CUdeviceptr base;
  size_t bytes, free_bytes, total_bytes;
};

static void ask(CUdeviceptr at, struct answers *answers) {
  static CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_CONTEXT,        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
      CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_BUFFER_ID,
      CU_POINTER_ATTRIBUTE_IS_MANAGED,     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_MAPPED,         CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
      CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
  memset(answers, 0, sizeof *answers);
  void *data[12];
  for (int i = 0; i < 12; i++) {
    MUST(cuPointerGetAttribute(&answers->values[i][0], attributes[i], at));
    data[i] = &answers->values[i][1];
  }
  MUST(cuPointerGetAttributes(12, attributes, data, at));
  MUST(cuMemGetAddressRange(&answers->base, &answers->bytes, at));
  MUST(cuMemGetInfo(&answers->free_bytes, &answers->total_bytes));
}

static void compare(const struct answers *before, CUdeviceptr at, uint64_t bytes) {
  struct answers now;
  ask(at, &now);
  bool same = memcmp(before, &now, sizeof now) == 0 && now.bytes == bytes;
  gpu_say(same ? "same" : "the answers are others now");
}

int main(int argc, char **argv) {
  static struct plan plan;
  struct answers before;
  if (argc != 3)
    return 2;
  const char *situation = argv[1];
  uint64_t bytes = strtoull(argv[2], NULL, 0), words = bytes / sizeof(uint64_t);
  gpu_start(&plan.gpu, 0);
  CUdeviceptr at = gpu_alloc(words), part = at + bytes - PART_BYTES;
  unsigned char *host = plan.host + PART_BYTES;
  gpu_fill(&plan.gpu, NULL, at, words, 3);
  MUST(cuCtxSynchronize());
  if (strcmp(situation, "edits") == 0)
    build(&plan, at, plan.host);
  ask(at + PART_BYTES, &before);
  gpu_say("ready");
  gpu_await_line();
  if (strcmp(situation, "nodes") == 0)
    build(&plan, part, host);
  else if (strcmp(situation, "edits") == 0)
    edit(&plan, part, host);
  else
    compare(&before, at + PART_BYTES, bytes);
  if (plan.exec)
    launch(&plan, host);
  gpu_verify(at, words - PART_BYTES / sizeof(uint64_t), 3, 0);
  gpu_say("ok");
  return 0;
}
