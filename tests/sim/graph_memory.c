/*
 * graph_memory.c - the card memory of nodes that allocate and free: taken when a graph is launched for the
 * first time, and kept by the driver when it is done, and when it is destroyed, until the program gives it
 * back (cuDeviceGraphMemTrim); then the next launch takes it anew. Each graph has its own; the real driver
 * lets graphs share it. objects_lock protects all.
 */
#include "frames.h"
#include "graph.h"

static struct reserve { uint64_t reserved, used, reserved_high, used_high; } reserves[STATE_GPUS];
static struct graph_memory *mapped;

CUresult graph_memory_allocate(unsigned gpu, size_t bytes, CUdeviceptr *address) {
  const struct memory_request request = {.kind = MEMORY_PLAIN, .gpu = gpu, .bytes = bytes, .unpinned = true};
  return memory_allocate(&request, address);
}

static void note_high(struct reserve *reserve) {
  if (reserve->used > reserve->used_high)
    reserve->used_high = reserve->used;
  if (reserve->reserved > reserve->reserved_high)
    reserve->reserved_high = reserve->reserved;
}

CUresult graph_memory_map(struct graph_memory *memory) {
  struct reserve *reserve = &reserves[memory->gpu];
  uint64_t evicted, used = reserve->used + memory->bytes;
  if (memory->mapped || !memory->bytes)
    return CUDA_SUCCESS;
  if (used > reserve->reserved) {
    if (frames_pin(memory->gpu, used - reserve->reserved, &evicted) != 0)
      return CUDA_ERROR_OUT_OF_MEMORY;
    reserve->reserved = used;
  }
  reserve->used = used;
  note_high(reserve);
  memory->mapped = true;
  memory->next = mapped;
  mapped = memory;
  return CUDA_SUCCESS;
}

void graph_memory_unmap(struct graph_memory *memory) {
  struct graph_memory **link = &mapped;
  if (!memory->mapped)
    return;
  while (*link != memory)
    link = &(*link)->next;
  *link = memory->next;
  memory->mapped = false;
  reserves[memory->gpu].used -= memory->bytes;
}

static bool is_idle(unsigned gpu) {
  for (CUcontext context = context_first(); context; context = context->next)
    for (CUstream stream = context->gpu == gpu ? context->streams : NULL; stream; stream = stream->next)
      if (!stream_idle_locked(stream))
        return false;
  return true;
}

/* What may be in use stays. */
CUresult cuDeviceGraphMemTrim(CUdevice device) {
  CUresult result = device_check(device);
  if (result != CUDA_SUCCESS)
    return result;
  unsigned gpu = devices[device].gpu;
  struct reserve *reserve = &reserves[gpu];
  pthread_mutex_lock(&objects_lock);
  bool idle = is_idle(gpu);
  for (struct graph_memory *memory = mapped, *next; memory && idle; memory = next) {
    next = memory->next;
    if (memory->gpu == gpu)
      graph_memory_unmap(memory);
  }
  frames_unpin(gpu, reserve->reserved - reserve->used);
  reserve->reserved = reserve->used;
  pthread_mutex_unlock(&objects_lock);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value) {
  CUresult result = device_check(device);
  if (result != CUDA_SUCCESS || value == NULL)
    return value ? result : CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&objects_lock);
  const struct reserve *reserve = &reserves[devices[device].gpu];
  const uint64_t values[] = {reserve->used, reserve->used_high, reserve->reserved, reserve->reserved_high};
  if ((unsigned)attr < sizeof values / sizeof *values)
    *(cuuint64_t *)value = values[attr];
  else
    result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_unlock(&objects_lock);
  return result;
}
