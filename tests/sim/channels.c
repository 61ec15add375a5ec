/* channels.c - see channels.h. */
#include "channels.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "driver/elf.h"
#include "preempt/rm.h"
#include "process.h"

/* Of the classes of Hopper. */
enum { CLASS_CLIENT = 0x0041, CLASS_CHANNEL = 0xC86F };

/* Handles beneath a client. */
enum { DEVICES = 0x5C000000, SUBDEVICES = 0x5C100000 };
static _Atomic uint32_t last_handle = 0x5C200000;

/* The second has the contexts. The first, with which libcuda has looked around, has devices of the same
 * handles. */
static uint32_t looking_client, client;

/* ---- the other end ---- */

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

static void lead_to_rm(const char *name, uintptr_t *slot, void *unused) {
  (void)unused;
  if (strcmp(name, "ioctl") == 0 && !elf_set_slot(slot, (uintptr_t)rm_ioctl))
    abort();
}

/* What the dynamic linker would do if the kernel were this one. */
__attribute__((constructor)) static void open_kernel(void) {
  struct elf_object self;
  if (!elf_read(&self, (uintptr_t)&__ehdr_start, ELF_END_UNKNOWN, _DYNAMIC))
    abort();
  elf_each_import(&self, lead_to_rm, NULL);
}

static void call(unsigned number, void *argument, size_t size) {
  if (ioctl(RM_FD, RM_REQUEST(number, size), argument) != 0)
    abort();
}

static uint32_t allocate(uint32_t owner, uint32_t parent, uint32_t handle, uint32_t class,
                         const void *parameters) {
  struct rm_alloc alloc = {.client = owner,
                           .parent = parent,
                           .handle = handle,
                           .class = class,
                           .parameters = (uintptr_t)parameters};
  call(RM_ALLOC, &alloc, sizeof alloc);
  if (alloc.status != RM_OK)
    abort();
  return alloc.handle;
}

static void control(uint32_t object, uint32_t command, void *parameters, uint32_t size) {
  struct rm_control control = {.client = client,
                               .object = object,
                               .command = command,
                               .parameters = (uintptr_t)parameters,
                               .parameters_size = size};
  call(RM_CONTROL, &control, sizeof control);
}

/* ---- libcuda ---- */

static uint32_t open_client(void) {
  uint32_t opened = allocate(0, 0, 0, CLASS_CLIENT, NULL);
  for (uint32_t gpu = 0; gpu < sim.card.gpus; gpu++) {
    const struct rm_device_parameters device = {.instance = gpu};
    allocate(opened, opened, DEVICES + gpu, RM_DEVICE, &device);
    allocate(opened, DEVICES + gpu, SUBDEVICES + gpu, RM_SUBDEVICE, NULL);
  }
  return opened;
}

void channels_init(void) {
  if (!client)
    client = open_client();
  if (!looking_client)
    looking_client = open_client();
}

static uint32_t next_handle(void) { return ++last_handle; }

static uint32_t make_group(unsigned gpu, uint32_t engine, struct rm_channel *channels, int count) {
  const struct rm_group_parameters parameters = {.engine = engine};
  struct rm_set_slice slice = {.slice_us = sim.card.slice_ns / 1000};
  uint8_t on[3] = {1};
  uint32_t group = allocate(client, DEVICES + gpu, next_handle(), RM_GROUP, &parameters);
  for (int i = 0; i < count; i++)
    channels[i] = rm_find(client, allocate(client, group, next_handle(), CLASS_CHANNEL, NULL));
  control(group, RM_SET_SLICE, &slice, sizeof slice);
  control(group, RM_SCHEDULE_GROUP, on, sizeof on);
  return group;
}

void channels_make(struct channel_set *set, unsigned gpu) {
  set->groups[0] = make_group(gpu, RM_ENGINE_COMPUTE, set->compute, COMPUTE_CHANNELS);
  for (uint32_t i = 0; i < COPY_GROUPS; i++)
    set->groups[1 + i] = make_group(gpu, 0xB + i, set->copy[i], COPY_CHANNELS);
}

void channels_free(struct channel_set *set) {
  for (int i = 0; i < 1 + COPY_GROUPS && set->groups[i]; i++) {
    struct rm_free group = {.client = client, .handle = set->groups[i]};
    call(RM_FREE, &group, sizeof group);
  }
  *set = (struct channel_set){0};
}

/* ---- streams ---- */

static __thread struct { struct rm_channel compute, copy[COPY_GROUPS]; } current;

void channels_use(const struct channel_set *set, uint64_t stream_number) {
  current.compute = set->compute[stream_number % COMPUTE_CHANNELS];
  for (int i = 0; i < COPY_GROUPS; i++)
    current.copy[i] = set->copy[i][stream_number % COPY_CHANNELS];
}

struct rm_channel channel_for(enum engine_kind kind) {
  return kind == ENGINE_COMPUTE ? current.compute : current.copy[kind == ENGINE_IN];
}
