/* recording.c - graphs that are launched again and again with the addresses that they were made with:
 * captured, or built node by node; and given other parameters in between. */
#include <time.h>

#include "worker.h"

enum { CAPTURE_PAUSE_NS_MAX = 2000000 };

/* ---- captured ---- */

/* On the stream itself, or on another one that joins the capture for this operation. */
static void capture_one(struct worker *worker, const struct operation *operation) {
  const struct lane *origin = &worker->lanes[LANE_FIRST], *joined = &worker->lanes[LANE_SECOND];
  if (one_in(worker, 3)) {
    MUST(cuEventRecord(origin->event, origin->stream));
    MUST(cuStreamWaitEvent(joined->stream, origin->event, 0));
    operation_submit(worker, operation, joined->stream);
    MUST(cuEventRecord(joined->event, joined->stream));
    MUST(cuStreamWaitEvent(origin->stream, joined->event, 0));
  } else {
    operation_submit(worker, operation, origin->stream);
  }
}

/* Recording takes its time in other programs, too. */
static void capture_pause(struct worker *worker) {
  if (one_in(worker, 3))
    nanosleep(&(struct timespec){.tv_nsec = (long)random_below(worker, CAPTURE_PAUSE_NS_MAX)}, NULL);
}

static void capture(struct worker *worker, struct recording *recording) {
  static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                              CU_STREAM_CAPTURE_MODE_RELAXED};
  CUstream stream = worker->lanes[LANE_FIRST].stream;
  pthread_rwlock_rdlock(&capture_lock);
  MUST(cuStreamBeginCapture(stream, modes[random_below(worker, 2)]));
  for (int i = 0; i < recording->count; i++) {
    capture_one(worker, &recording->operations[i]);
    capture_pause(worker);
  }
  MUST(cuStreamEndCapture(stream, &recording->graph));
  pthread_rwlock_unlock(&capture_lock);
}

/* ---- built ---- */

static CUDA_MEMCPY3D copy_box(const struct operation *copy) {
  return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = copy->from->at + copy->from_at,
                         .srcPitch = copy->rows > 1 ? copy->from_pitch : copy->bytes,
                         .srcHeight = copy->rows,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = copy->to->at + copy->to_at,
                         .dstPitch = copy->rows > 1 ? copy->to_pitch : copy->bytes,
                         .dstHeight = copy->rows,
                         .WidthInBytes = copy->bytes,
                         .Height = copy->rows,
                         .Depth = 1};
}

static CUDA_MEMSET_NODE_PARAMS set_box(const struct operation *set) {
  uint64_t mask = set->element == 1 ? 0xff : set->element == 2 ? 0xffff : 0xffffffff;
  return (CUDA_MEMSET_NODE_PARAMS){.dst = set->to->at + set->to_at,
                                   .pitch = set->to_pitch,
                                   .value = (unsigned)(set->value & mask),
                                   .elementSize = set->element,
                                   .width = set->bytes / set->element,
                                   .height = set->rows};
}

struct kernel_values { /* what a kernel's parameters point to */
  CUdeviceptr at;
  uint64_t words, value;
  void *list[3];
};

static CUDA_KERNEL_NODE_PARAMS kernel_node(struct worker *worker, const struct operation *operation,
                                           struct kernel_values *values) {
  *values = (struct kernel_values){.at = operation->to->at + operation->to_at,
                                   .words = operation->bytes / 8,
                                   .value = operation->value,
                                   .list = {&values->at, &values->words, &values->value}};
  return (CUDA_KERNEL_NODE_PARAMS){.func = operation->kind == OPERATION_FILL ? worker->place->fill
                                                                             : worker->place->add,
                                   .gridDimX = grid_of(values->words),
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = BLOCK_THREADS,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .kernelParams = values->list};
}

static void node_add(struct worker *worker, struct recording *recording, int i) {
  const struct operation *operation = &recording->operations[i];
  const CUgraphNode *after = i ? &recording->nodes[i - 1] : NULL;
  CUgraphNode *node = &recording->nodes[i];
  size_t count = i > 0;
  if (operation->kind == OPERATION_COPY) {
    const CUDA_MEMCPY3D box = copy_box(operation);
    MUST(cuGraphAddMemcpyNode(node, recording->graph, after, count, &box, worker->place->context));
  } else if (operation->kind == OPERATION_SET) {
    const CUDA_MEMSET_NODE_PARAMS box = set_box(operation);
    MUST(cuGraphAddMemsetNode(node, recording->graph, after, count, &box, worker->place->context));
  } else {
    struct kernel_values values;
    const CUDA_KERNEL_NODE_PARAMS kernel = kernel_node(worker, operation, &values);
    MUST(cuGraphAddKernelNode(node, recording->graph, after, count, &kernel));
  }
}

static void build(struct worker *worker, struct recording *recording) {
  MUST(cuGraphCreate(&recording->graph, 0));
  for (int i = 0; i < recording->count; i++)
    node_add(worker, recording, i);
}

/* Another change for a node. A memory set keeps its range: given a new one, driver 580 sets some of the
 * former as well. */
static struct operation operation_changed(struct worker *worker, const struct operation *operation) {
  struct operation changed = *operation;
  if (operation->kind != OPERATION_SET)
    return operation_like(worker, operation);
  changed.value = pattern_random(worker, operation->element);
  return changed;
}

/* One node of the executable graph gets other parameters. */
static void node_change(struct worker *worker, struct recording *recording) {
  int i = (int)random_below(worker, (uint64_t)recording->count);
  const struct operation changed = operation_changed(worker, &recording->operations[i]);
  if (changed.kind != recording->operations[i].kind || recording->operations[i].rows > 1)
    return;
  if (changed.kind == OPERATION_COPY) {
    const CUDA_MEMCPY3D box = copy_box(&changed);
    MUST(cuGraphExecMemcpyNodeSetParams(recording->exec, recording->nodes[i], &box, worker->place->context));
  } else if (changed.kind == OPERATION_SET) {
    const CUDA_MEMSET_NODE_PARAMS box = set_box(&changed);
    MUST(cuGraphExecMemsetNodeSetParams(recording->exec, recording->nodes[i], &box, worker->place->context));
  } else {
    struct kernel_values values;
    const CUDA_KERNEL_NODE_PARAMS kernel = kernel_node(worker, &changed, &values);
    MUST(cuGraphExecKernelNodeSetParams(recording->exec, recording->nodes[i], &kernel));
  }
  recording->operations[i] = changed;
}

/* ---- both ---- */

static void instantiate(struct worker *worker, struct recording *recording) {
  if (one_in(worker, 2)) {
    MUST(cuGraphInstantiateWithFlags(&recording->exec, recording->graph, 0));
    return;
  }
  CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = 0};
  MUST(cuGraphInstantiateWithParams(&recording->exec, recording->graph, &params));
}

static void recording_drop(struct worker *worker, int index) {
  struct recording *recording = &worker->recordings[index];
  MUST(cuGraphExecDestroy(recording->exec));
  if (recording->graph)
    MUST(cuGraphDestroy(recording->graph));
  *recording = worker->recordings[--worker->recorded];
}

void recording_make(struct worker *worker) {
  if (worker->recorded == RECORDINGS_MAX)
    recording_drop(worker, (int)random_below(worker, RECORDINGS_MAX));
  struct recording *recording = &worker->recordings[worker->recorded++];
  *recording = (struct recording){.count = 1 + (int)random_below(worker, RECORDED_MAX)};
  for (int i = 0; i < recording->count; i++)
    recording->operations[i] = operation_random(worker);
  bool by_hand = one_in(worker, 2);
  if (by_hand)
    build(worker, recording);
  else
    capture(worker, recording);
  instantiate(worker, recording);
  if (!by_hand) {
    MUST(cuGraphDestroy(recording->graph));
    recording->graph = NULL;
  }
  worker->tally.recordings++;
}

void recording_launch(struct worker *worker) {
  enum lane_name lane = lane_random(worker);
  if (worker->recorded == 0)
    return;
  struct recording *recording = &worker->recordings[random_below(worker, (uint64_t)worker->recorded)];
  if (recording->graph && one_in(worker, 3))
    node_change(worker, recording);
  for (int i = 0; i < recording->count; i++) {
    if (recording->operations[i].from)
      lane_take(worker, lane, recording->operations[i].from);
    lane_take(worker, lane, recording->operations[i].to);
  }
  MUST(cuGraphLaunch(recording->exec, worker->lanes[lane].stream));
  for (int i = 0; i < recording->count; i++)
    operation_apply(&recording->operations[i]);
  worker->tally.launches++;
}

static bool recording_uses(const struct recording *recording, const struct buffer *buffer) {
  for (int i = 0; i < recording->count; i++)
    if (recording->operations[i].to == buffer || recording->operations[i].from == buffer)
      return true;
  return false;
}

void recordings_drop(struct worker *worker, const struct buffer *buffer) {
  for (int i = worker->recorded; i-- > 0;)
    if (!buffer || recording_uses(&worker->recordings[i], buffer))
      recording_drop(worker, i);
}
