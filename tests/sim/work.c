/* work.c - doing one piece of work, whatever it is, and what it holds. */
#include "work.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"
#include "managed.h"
#include "objects.h"
#include "vmm.h"

bool work_counts(const struct work *work) {
  switch (work->kind) {
  case WORK_EMPTY:
  case WORK_ALLOC:
  case WORK_FREE:
    return false;
  default:
    return true;
  }
}

bool work_in_channel(const struct work *work) {
  switch (work->kind) {
  case WORK_PREFETCH:
  case WORK_DISCARD:
  case WORK_ALLOC:
  case WORK_FREE:
    return false;
  default:
    return true;
  }
}

/* What takes no time begins only while the channel runs. */
static void await_channel(void) {
  rm_enter(channel_for(ENGINE_COMPUTE));
  rm_leave(channel_for(ENGINE_COMPUTE));
}

static bool side_lacks(const struct work_side *side, const struct work *work) {
  size_t width = work->copy.width, height = work->copy.height, depth = work->copy.depth;
  return width && height && depth &&
         vmm_lacks(side->at, (depth - 1) * side->slice + (height - 1) * side->pitch + width);
}

static bool set_lacks(const struct work *work) {
  size_t width = work->set.width * work->set.element_bytes, height = work->set.height;
  return width && height && vmm_lacks(work->set.at, (height - 1) * work->set.pitch + width);
}

bool work_lacks_memory(const struct work *work) {
  if (work->kind == WORK_COPY)
    return side_lacks(&work->copy.from, work) || side_lacks(&work->copy.to, work);
  return work->kind == WORK_SET && set_lacks(work);
}

struct work_list *work_list_create(size_t count) {
  struct work_list *list = calloc(1, sizeof(*list));
  if (list == NULL)
    abort();
  list->references = 1;
  list->count = count;
  list->works = calloc(count ? count : 1, sizeof(struct work));
  if (list->works == NULL)
    abort();
  return list;
}

void work_list_release(struct work_list *list) {
  if (list == NULL || atomic_fetch_sub(&list->references, 1) > 1)
    return;
  for (size_t i = 0; i < list->count; i++)
    work_release(&list->works[i]);
  free(list->works);
  free(list);
}

void work_release(struct work *work) {
  if (work->kind == WORK_COPY)
    free(work->copy.staged);
  if (work->kind == WORK_GRAPH)
    work_list_release(work->graph);
}

/* ---- stream memory operations ---- */

static bool value_reached(const struct work *work) {
  uint64_t now = work->value.bytes == 8 ? __atomic_load_n((uint64_t *)work->value.at, __ATOMIC_ACQUIRE)
                                        : __atomic_load_n((uint32_t *)work->value.at, __ATOMIC_ACQUIRE);
  uint64_t mask = work->value.bytes == 8 ? UINT64_MAX : UINT32_MAX, wanted = work->value.value & mask;
  switch (work->value.flags & 3) {
  case CU_STREAM_WAIT_VALUE_EQ:
    return now == wanted;
  case CU_STREAM_WAIT_VALUE_AND:
    return (now & wanted) != 0;
  case CU_STREAM_WAIT_VALUE_NOR:
    return (~(now | wanted) & mask) != 0;
  default: /* GEQ, cyclic */
    return work->value.bytes == 8 ? (int64_t)(now - wanted) >= 0 : (int32_t)(uint32_t)(now - wanted) >= 0;
  }
}

/* Whoever changes the value stores to memory and tells nobody, so there is nothing to wait for but time.
 * While the channel is stopped, nobody looks: the memory may be away. */
static void value_wait(const struct work *work) {
  const struct timespec pause = {.tv_nsec = 20 * 1000};
  for (;;) {
    rm_enter(channel_for(ENGINE_COMPUTE));
    bool reached = value_reached(work);
    rm_leave(channel_for(ENGINE_COMPUTE));
    if (reached)
      return;
    nanosleep(&pause, NULL);
  }
}

static void value_write(const struct work *work) {
  if (work->value.bytes == 8)
    __atomic_store_n((uint64_t *)work->value.at, work->value.value, __ATOMIC_RELEASE);
  else
    __atomic_store_n((uint32_t *)work->value.at, (uint32_t)work->value.value, __ATOMIC_RELEASE);
}

static uint64_t graph_run(const struct work_list *list, uint64_t due_ns) {
  for (size_t i = 0; i < list->count; i++)
    due_ns = work_run(&list->works[i], due_ns);
  return due_ns;
}

uint64_t work_run(struct work *work, uint64_t due_ns) {
  if (process_fault() != CUDA_SUCCESS && (work->kind == WORK_KERNEL || work->kind == WORK_COPY ||
                                          work->kind == WORK_SET || work->kind == WORK_WAIT_VALUE))
    return due_ns; /* what was queued behind a kernel that has faulted */
  switch (work->kind) {
  case WORK_KERNEL:
    return kernel_run(work, due_ns);
  case WORK_COPY:
    return copy_run(work, due_ns);
  case WORK_SET:
    return set_run(work, due_ns);
  case WORK_HOST_FUNCTION:
    engine_wait_until(due_ns);
    await_channel();
    work->host.function(work->host.data);
    return 0;
  case WORK_CALLBACK:
    engine_wait_until(due_ns);
    await_channel();
    work->callback.function(work->callback.stream, CUDA_SUCCESS, work->callback.data);
    return 0;
  case WORK_WAIT_VALUE:
    value_wait(work);
    return 0;
  case WORK_WRITE_VALUE:
    rm_enter(channel_for(ENGINE_COMPUTE));
    value_write(work);
    rm_leave(channel_for(ENGINE_COMPUTE));
    return due_ns;
  case WORK_PREFETCH:
    return managed_prefetch(work->range.at, work->range.bytes, work->range.to, work->gpu, due_ns);
  case WORK_DISCARD:
    managed_discard(work->range.at, work->range.bytes, work->gpu);
    return due_ns;
  case WORK_FREE:
    memory_free(work->free.at, KIND_BIT(MEMORY_PLAIN) | KIND_BIT(MEMORY_MANAGED) | KIND_BIT(MEMORY_HOST));
    return due_ns;
  case WORK_GRAPH:
    return graph_run(work->graph, due_ns);
  case WORK_EMPTY:
  case WORK_ALLOC:
    break;
  }
  return due_ns;
}
