/*
 * played_rm.h - a resource manager that does what the test says, a libcuda that allocates from it, and a GPU
 * that does a stream's work while no channel is stopped. Include it once.
 */
#ifndef GS_TEST_PLAYED_RM_H
#define GS_TEST_PLAYED_RM_H

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../suite.h"
#include "common/clock.h"
#include "driver/driver.h"
#include "driver/libraries.h"
#include "preempt/channels.h"
#include "preempt/preempt.h"
#include "preempt/rm.h"
#include "preempt/tap.h"
#include "settings.h"

enum {
  FD = 7,
  CLIENT = 0xC1D00001,
  OTHER_CLIENT = 0xC1D00002,
  DEVICE = 0x5C000000,
  SUBDEVICE = 0x5C100000,
  HANDLES = 20000
};

/* ---- the resource manager ---- */

static _Atomic bool stopped[HANDLES];      /* of channels */
static _Atomic uint32_t owner[HANDLES];    /* of channels */
static _Atomic uint64_t slice_of[HANDLES]; /* of groups */
static _Atomic unsigned stop_calls, go_calls, slice_calls, calls;
static _Atomic unsigned longest_list;
static uint32_t (*answer)(const struct rm_stop_channels *list); /* NULL: it is done */
static uint32_t (*slice_answer)(uint64_t us);
static void (*during_free)(void);
static uint32_t alloc_status, free_status;
static _Atomic uint32_t last_subdevice;

static uint32_t answer_stop(const struct rm_control *call) {
  const struct rm_stop_channels *list = (const void *)(uintptr_t)call->parameters;
  ck_assert_uint_eq(call->parameters_size, sizeof *list);
  ck_assert(list->count > 0 && list->count <= RM_CHANNELS_MAX);
  ck_assert(!list->only_scheduling && !list->rewind && list->event == 0);
  last_subdevice = call->object;
  atomic_fetch_add(list->stop ? &stop_calls : &go_calls, 1);
  if (list->count > longest_list)
    longest_list = list->count;
  for (uint32_t i = 0; i < list->count; i++)
    ck_assert(list->clients[i] == call->client && owner[list->channels[i]] == call->client);
  uint32_t status = answer ? answer(list) : RM_OK;
  for (uint32_t i = 0; i < list->count && status == RM_OK; i++)
    stopped[list->channels[i]] = list->stop;
  return status;
}

static uint32_t answer_control(const struct rm_control *call) {
  struct rm_get_uuid *uuid = (void *)(uintptr_t)call->parameters;
  switch (call->command) {
  case RM_STOP_CHANNELS:
    return answer_stop(call);
  case RM_SCHEDULE_GROUP: /* lets on what has been stopped before; not known of the real one */
    for (uint32_t channel = call->object + 1; channel < HANDLES && owner[channel] == call->client; channel++)
      stopped[channel] = false;
    return RM_OK;
  case RM_GET_UUID:
    uuid->length = RM_UUID_BYTES;
    memset(uuid->bytes, (int)(call->object - SUBDEVICE) + 1, RM_UUID_BYTES);
    return RM_OK;
  case RM_SET_SLICE: {
    uint64_t us = ((const struct rm_set_slice *)(uintptr_t)call->parameters)->slice_us;
    uint32_t status = slice_answer ? slice_answer(us) : RM_OK;
    slice_calls++;
    if (status == RM_OK)
      slice_of[call->object] = us;
    return status;
  }
  default:
    return RM_OK;
  }
}

int ioctl(int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void *argument = va_arg(list, void *);
  va_end(list);
  calls++;
  if (fd != FD || _IOC_TYPE(request) != RM_TYPE) {
    errno = ENOTTY;
    return -1;
  }
  if (_IOC_NR(request) == RM_ALLOC && _IOC_SIZE(request) == sizeof(struct rm_alloc))
    ((struct rm_alloc *)argument)->status = alloc_status;
  if (_IOC_NR(request) == RM_ALLOC && _IOC_SIZE(request) == sizeof(struct rm_alloc_short))
    ((struct rm_alloc_short *)argument)->status = alloc_status;
  if (_IOC_NR(request) == RM_FREE) {
    ((struct rm_free *)argument)->status = free_status;
    if (during_free)
      during_free();
  }
  if (_IOC_NR(request) == RM_CONTROL)
    ((struct rm_control *)argument)->status = answer_control(argument);
  errno = EDOM; /* of no meaning, but libcuda's to see */
  return 0;
}

/* ---- libcuda ---- */

static int (*libcuda_call)(int fd, unsigned long request, void *argument);

static struct library played_library;
const struct library *driver_in_use(const struct libraries *libraries) {
  return libraries ? NULL : &played_library;
}
void libraries_visit(void (*visit)(const struct libraries *, void *), void *argument) {
  visit(NULL, argument);
}

static void open_libcuda(const char *path) {
  struct link_map *map;
  void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  ck_assert_msg(handle != NULL, "%s", dlerror());
  libcuda_call = (int (*)(int, unsigned long, void *))dlsym(handle, "libcuda_call");
  ck_assert(libcuda_call && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0);
  uintptr_t end = (uintptr_t)libcuda_call + 0x100000;
  ck_assert(elf_read(&played_library.elf, map->l_addr, end, map->l_ld));
  preempt_begin();
  ck_assert(tap_is_on());
}

static void call(unsigned number, void *argument, size_t size) {
  errno = 0;
  ck_assert_int_eq(libcuda_call(FD, RM_REQUEST(number, size), argument), 0);
  ck_assert_int_eq(errno, EDOM);
}

static void allocate(uint32_t client, uint32_t parent, uint32_t handle, uint32_t class, uint32_t value) {
  uint32_t parameters[8] = {class == RM_DEVICE ? value : 0, 0, 0, value};
  struct rm_alloc alloc = {.client = client,
                           .parent = parent,
                           .handle = handle,
                           .class = class,
                           .parameters = (uintptr_t)parameters};
  if (rm_is_channel(class))
    owner[handle] = client;
  call(RM_ALLOC, &alloc, sizeof alloc);
}

static void release(uint32_t client, uint32_t handle) {
  struct rm_free free = {.client = client, .handle = handle};
  call(RM_FREE, &free, sizeof free);
}

static void control(uint32_t client, uint32_t object, uint32_t command, uint64_t value) {
  struct rm_control control = {.client = client,
                               .object = object,
                               .command = command,
                               .parameters = (uintptr_t)&value,
                               .parameters_size = sizeof value};
  call(RM_CONTROL, &control, sizeof control);
}

static void open_gpu(uint32_t client, uint32_t gpu) {
  allocate(client, client, DEVICE + gpu, RM_DEVICE, gpu);
  allocate(client, DEVICE + gpu, SUBDEVICE + gpu, RM_SUBDEVICE, 0);
}

/* A group of this handle with so many channels of the handles behind it. */
static void make_group(uint32_t gpu, uint32_t group, uint32_t engine, uint32_t count) {
  allocate(CLIENT, DEVICE + gpu, group, RM_GROUP, engine);
  for (uint32_t i = 1; i <= count; i++)
    allocate(CLIENT, group, group + i, 0xC86F, 0);
  control(CLIENT, group, RM_SET_SLICE, 2048);
  control(CLIENT, group, RM_SCHEDULE_GROUP, 1);
}

/* 8 for kernels, 12 for copies: handles `first` to first + 23. */
static void make_context(uint32_t gpu, uint32_t first) {
  make_group(gpu, first, RM_ENGINE_COMPUTE, 8);
  for (uint32_t i = 0; i < 3; i++)
    make_group(gpu, first + 9 + 5 * i, 0xB + i, 4);
}

static void free_context(uint32_t first) {
  release(CLIENT, first);
  for (uint32_t i = 0; i < 3; i++)
    release(CLIENT, first + 9 + 5 * i);
}

static unsigned count_stopped(void) {
  unsigned count = 0;
  for (unsigned i = 0; i < HANDLES; i++)
    count += stopped[i];
  return count;
}

/* ---- the GPU ---- */

enum { OPS = 64 };
static struct op {
  bool wait;
  _Atomic uint32_t *at;
  uint32_t value;
} ops[OPS];
static _Atomic unsigned ops_made, ops_done;
static _Atomic bool gpu_ignores_stops, gpu_is_away;

static void *gpu_main(void *unused) {
  (void)unused;
  for (;; clock_sleep(20000)) {
    unsigned at = ops_done;
    struct op *op = &ops[at % OPS];
    if (at == ops_made || gpu_is_away || (count_stopped() > 0 && !gpu_ignores_stops))
      continue;
    if (op->wait && *op->at < op->value)
      continue;
    if (!op->wait)
      *op->at = op->value;
    ops_done = at + 1;
  }
  return NULL;
}

static CUresult submit(bool wait, CUdeviceptr at, uint32_t value) {
  ops[ops_made % OPS] = (struct op){wait, (_Atomic uint32_t *)(uintptr_t)at, value};
  ops_made++;
  return CUDA_SUCCESS;
}

static CUresult played_write(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags) {
  (void)stream, (void)flags;
  return submit(false, at, value);
}
static CUresult played_wait(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags) {
  (void)stream, (void)flags;
  return submit(true, at, value);
}
static CUresult played_alloc(void **host, size_t bytes, unsigned flags) {
  (void)flags;
  *host = calloc(1, bytes);
  return CUDA_SUCCESS;
}
static CUresult played_create(CUstream *stream, unsigned flags) {
  (void)flags;
  *stream = NULL;
  return CUDA_SUCCESS;
}
static CUresult played_destroy(CUstream stream) {
  (void)stream;
  return CUDA_SUCCESS;
}
static CUresult played_mode(CUstreamCaptureMode *mode) {
  (void)mode;
  return CUDA_SUCCESS;
}
static CUresult played_uuid(CUuuid *uuid, CUdevice device) {
  memset(uuid->bytes, device + 1, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

struct driver driver = {.cuDeviceGetUuid_v2 = played_uuid,
                        .cuMemHostAlloc = played_alloc,
                        .cuStreamCreate = played_create,
                        .cuStreamDestroy_v2 = played_destroy,
                        .cuStreamWaitValue32_v2 = played_wait,
                        .cuStreamWriteValue32_v2 = played_write,
                        .cuThreadExchangeStreamCaptureMode = played_mode};
_Atomic bool driver_settled;
const struct settings *settings(void) {
  static const struct settings set = {.preempt = true};
  return &set;
}

#endif
