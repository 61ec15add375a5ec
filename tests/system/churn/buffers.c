/* buffers.c - memory of every kind: allocated, looked at, freed in the middle of work. */
#include <stdio.h>
#include <stdlib.h>

#include "worker.h"

enum { PITCHED_WIDTH_MAX = 8192 };

static enum buffer_kind kind_random(struct worker *worker) {
  uint64_t dice = random_below(worker, 100);
  return dice < 58   ? BUFFER_PLAIN
         : dice < 70 ? BUFFER_PITCHED
         : dice < 84 ? BUFFER_ASYNC
         : dice < 94 ? BUFFER_POOL
                     : BUFFER_MANAGED;
}

static CUresult pitched_allocate(struct worker *worker, struct buffer *buffer) {
  static const unsigned elements[] = {4, 8, 16};
  uint64_t width = random_size(worker, PITCHED_WIDTH_MAX), height = buffer->bytes / PITCHED_WIDTH_MAX + 1;
  size_t pitch;
  CUresult result = cuMemAllocPitch(&buffer->at, &pitch, width, height, elements[random_below(worker, 3)]);
  if (result == CUDA_SUCCESS)
    buffer->bytes = pitch * height;
  return result;
}

/* Half of them have a part that is to live in host memory. */
static CUresult managed_allocate(struct worker *worker, struct buffer *buffer) {
#if CUDA_VERSION >= 13000
  const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
#else
  const CUdevice host = CU_DEVICE_CPU;
#endif
  CUresult result = cuMemAllocManaged(&buffer->at, buffer->bytes, CU_MEM_ATTACH_GLOBAL);
  if (result == CUDA_SUCCESS && one_in(worker, 2)) {
    uint64_t from = random_below(worker, buffer->bytes);
    MUST(cuMemAdvise(buffer->at + from, random_below(worker, buffer->bytes - from) + 1,
                     CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host));
  }
  return result;
}

static CUresult allocate(struct worker *worker, struct buffer *buffer) {
  CUstream stream = worker->lanes[buffer->lane].stream;
  switch (buffer->kind) {
  case BUFFER_PITCHED:
    return pitched_allocate(worker, buffer);
  case BUFFER_ASYNC:
    return cuMemAllocAsync(&buffer->at, buffer->bytes, stream);
  case BUFFER_POOL:
    return cuMemAllocFromPoolAsync(&buffer->at, buffer->bytes, worker->place->pool, stream);
  case BUFFER_MANAGED:
    return managed_allocate(worker, buffer);
  default:
    return cuMemAlloc(&buffer->at, buffer->bytes);
  }
}

/* Most are small, but the large ones make up the memory. */
static uint64_t bytes_random(struct worker *worker) {
  uint64_t left = worker->used_bytes < worker->share_bytes ? worker->share_bytes - worker->used_bytes : 1;
  uint64_t most = worker->largest_bytes < left ? worker->largest_bytes : left;
  return one_in(worker, 4) ? most / 2 + random_below(worker, most / 2 + 1) + 1 : random_size(worker, most);
}

struct buffer *buffer_create(struct worker *worker) {
  struct buffer *buffer = calloc(1, sizeof *buffer);
  if (!buffer)
    abort();
  buffer->kind = kind_random(worker);
  buffer->bytes = bytes_random(worker);
  buffer->lane = lane_random(worker);
  CUresult result = allocate(worker, buffer);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    worker->tally.refused++;
    free(buffer);
    return NULL;
  }
  must(result, buffer_kind_name(buffer->kind));
  model_create(&buffer->model, buffer->bytes);
  worker->buffers[worker->count++] = buffer;
  worker->used_bytes += buffer->bytes;
  worker->tally.allocations++;
  return buffer;
}

/* What the program has submitted may still use it: both kinds of free wait for that, each in its way. */
static void release(struct worker *worker, const struct buffer *buffer) {
  bool in_order = buffer->kind == BUFFER_ASYNC || buffer->kind == BUFFER_POOL;
  if (in_order && !one_in(worker, 8)) {
    enum lane_name lane = lane_random(worker);
    lane_follow(worker, lane, buffer->lane);
    MUST(cuMemFreeAsync(buffer->at, worker->lanes[lane].stream));
    return;
  }
  if (in_order || one_in(worker, 3))
    lane_wait(worker, buffer->lane);
  MUST(cuMemFree(buffer->at));
}

void buffer_destroy(struct worker *worker, struct buffer *buffer) {
  recordings_drop(worker, buffer);
  release(worker, buffer);
  for (int i = 0; i < worker->count; i++)
    if (worker->buffers[i] == buffer)
      worker->buffers[i] = worker->buffers[--worker->count];
  worker->used_bytes -= buffer->bytes;
  worker->tally.frees++;
  model_destroy(&buffer->model);
  free(buffer);
}

struct buffer *buffer_random(struct worker *worker) {
  return worker->count ? worker->buffers[random_below(worker, (uint64_t)worker->count)] : NULL;
}

const char *buffer_kind_name(enum buffer_kind kind) {
  static const char *const names[BUFFER_KINDS] = {"cuMemAlloc", "cuMemAllocPitch", "cuMemAllocAsync",
                                                  "cuMemAllocFromPoolAsync", "cuMemAllocManaged"};
  return names[kind];
}

/* ---- what the driver says of it ---- */

struct question {
  CUpointer_attribute attribute;
  const char *name;
  uint64_t answer;
};

static void answer_check(const struct buffer *buffer, const char *name, uint64_t answer, uint64_t expected) {
  if (answer == expected)
    return;
  printf("error %s of %llu bytes of %s at %#llx: %#llx, not %#llx\n", name, (unsigned long long)buffer->bytes,
         buffer_kind_name(buffer->kind), (unsigned long long)buffer->at, (unsigned long long)answer,
         (unsigned long long)expected);
  give_up();
}

static void attributes_check(struct worker *worker, const struct buffer *buffer, uint64_t offset) {
  const struct question questions[] = {
      {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "MEMORY_TYPE", CU_MEMORYTYPE_DEVICE},
      {CU_POINTER_ATTRIBUTE_IS_MANAGED, "IS_MANAGED", buffer->kind == BUFFER_MANAGED},
      {CU_POINTER_ATTRIBUTE_DEVICE_POINTER, "DEVICE_POINTER", buffer->at + offset},
      {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "DEVICE_ORDINAL", (uint64_t)worker->place->device},
      {CU_POINTER_ATTRIBUTE_CONTEXT, "CONTEXT", (uintptr_t)worker->place->context},
      {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, "RANGE_START_ADDR", buffer->at},
      {CU_POINTER_ATTRIBUTE_RANGE_SIZE, "RANGE_SIZE", buffer->bytes},
  };
  enum { COUNT = sizeof questions / sizeof *questions };
  CUpointer_attribute list[COUNT];
  uint64_t answers[COUNT] = {0}, single = 0;
  void *data[COUNT];
  for (int i = 0; i < COUNT; i++) {
    list[i] = questions[i].attribute;
    data[i] = &answers[i];
  }
  MUST(cuPointerGetAttributes(COUNT, list, data, buffer->at + offset));
  for (int i = 0; i < COUNT; i++)
    answer_check(buffer, questions[i].name, answers[i], questions[i].answer);
  const struct question *one = &questions[random_below(worker, COUNT)];
  MUST(cuPointerGetAttribute(&single, one->attribute, buffer->at + offset));
  answer_check(buffer, one->name, single, one->answer);
}

/* Those of pools differ between drivers in what they call a range. */
void buffer_check_address(struct worker *worker, const struct buffer *buffer) {
  uint64_t offset = random_below(worker, buffer->bytes);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (buffer->kind != BUFFER_PLAIN && buffer->kind != BUFFER_PITCHED)
    return;
  MUST(cuMemGetAddressRange(&base, &bytes, buffer->at + offset));
  answer_check(buffer, "cuMemGetAddressRange base", base, buffer->at);
  answer_check(buffer, "cuMemGetAddressRange size", bytes, buffer->bytes);
  attributes_check(worker, buffer, offset);
}
