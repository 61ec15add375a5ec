/* rm.c - see rm.h. Statuses and layouts are those of src/preempt/rm.h, which describes the real one. */
#include "preempt/rm.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "objects.h"
#include "process.h"
#include "rm.h"

enum { OBJECTS = 16384, OLDER_STOP_BYTES = 528, FIRST_HANDLE = 0xC1D00000 };

struct object {
  uint32_t client, parent, handle, class; /* class 0: free */
  uint32_t gpu;
  bool scheduled, stopped;
  unsigned running; /* threads in it */
  uint64_t slice_us;
  uint64_t number;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct object objects[OBJECTS];
static uint32_t used, last_client = FIRST_HANDLE;
static uint64_t last_number;

static void set_up(void) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&changed, &attributes);
}

static struct object *find(uint32_t client, uint32_t handle) {
  for (struct object *o = objects; o < objects + used; o++)
    if (o->class && o->client == client && o->handle == handle)
      return o;
  return NULL;
}

/* Of a class, or NULL. */
static struct object *find_of(uint32_t client, uint32_t handle, bool (*is)(uint32_t class)) {
  struct object *o = find(client, handle);
  return o && is(o->class) ? o : NULL;
}

static struct object *find_free(void) {
  for (struct object *o = objects; o < objects + used; o++)
    if (!o->class)
      return o;
  return used < OBJECTS ? &objects[used++] : NULL;
}

/* ---- allocs and frees ---- */

enum { CLASS_CLIENT = 0x0041 };

static uint32_t alloc(struct rm_alloc *call) {
  struct object *parent = find(call->client, call->parent), *o;
  if (call->class == CLASS_CLIENT)
    call->client = call->parent = call->handle = ++last_client;
  else if (!parent)
    return RM_NOT_FOUND;
  if (!(o = find_free()))
    return 0x1A;
  *o = (struct object){.client = call->client,
                       .parent = call->parent,
                       .handle = call->handle,
                       .class = call->class,
                       .gpu = parent ? parent->gpu : 0,
                       .number = ++last_number};
  if (call->class == RM_DEVICE)
    o->gpu = ((const struct rm_device_parameters *)(uintptr_t)call->parameters)->instance;
  return RM_OK;
}

/* What other processes see of it. */
static void tell_standing(unsigned gpu) {
  uint32_t count = 0;
  for (const struct object *o = objects; o < objects + used; o++)
    count += rm_is_channel(o->class) && o->gpu == gpu && o->stopped;
  atomic_store(&sim.slot->standing[gpu], count);
}

static void free_tree(uint32_t client, uint32_t handle) {
  for (struct object *o = objects; o < objects + used; o++)
    if (o->class && o->client == client && (o->handle == handle || o->parent == handle)) {
      o->class = 0;
      if (o->handle != handle)
        free_tree(client, o->handle);
    }
}

static uint32_t free_object(const struct rm_free *call) {
  const struct object *o = find(call->client, call->handle);
  if (!o)
    return RM_NOT_FOUND;
  unsigned gpu = o->gpu;
  free_tree(call->client, call->handle);
  tell_standing(gpu);
  pthread_cond_broadcast(&changed);
  return RM_OK;
}

/* ---- controls ---- */

static bool is_subdevice(uint32_t class) { return class == RM_SUBDEVICE; }
static bool is_group(uint32_t class) { return class == RM_GROUP; }

/* As many threads as run in the channel have come to stand, or are gone. */
static void await_standstill(const struct object *channel, uint64_t number) {
  while (channel->class && channel->number == number && channel->stopped && channel->running > 0)
    pthread_cond_wait(&changed, &lock);
}

/* The real one may lose what is just being submitted: rarely, so that no test would see it. */
static void lose_work(void) {
  fprintf(stderr, "simulated driver: channels are stopped that stand still already\n");
  abort();
}

static uint32_t stop_channels(const struct object *subdevice, const struct rm_stop_channels *list) {
  uint64_t numbers[RM_CHANNELS_MAX];
  struct object *channels[RM_CHANNELS_MAX];
  if (list->count > RM_CHANNELS_MAX || list->event)
    return 0x1F;
  for (uint32_t i = 0; i < list->count; i++) {
    channels[i] = find_of(list->clients[i], list->channels[i], rm_is_channel);
    if (!channels[i])
      return RM_NOT_FOUND; /* those before it are stopped, those behind it are not */
    if (channels[i]->client != subdevice->client || channels[i]->gpu != subdevice->gpu)
      return RM_BAD_CLIENT;
    numbers[i] = channels[i]->number;
    if (list->stop && channels[i]->stopped)
      lose_work();
    if (!list->only_scheduling && !sim.card.stop_ignored)
      channels[i]->stopped = list->stop;
  }
  if (!list->stop)
    tell_standing(subdevice->gpu);
  pthread_cond_broadcast(&changed);
  for (uint32_t i = 0; i < list->count && list->stop; i++)
    await_standstill(channels[i], numbers[i]);
  tell_standing(subdevice->gpu);
  return RM_OK;
}

static uint32_t get_uuid(const struct object *subdevice, struct rm_get_uuid *answer) {
  if (answer->format != RM_UUID_BINARY)
    return 0x1F;
  answer->length = RM_UUID_BYTES;
  device_uuid_bytes(subdevice->gpu, answer->bytes);
  return RM_OK;
}

static void schedule(uint32_t client, uint32_t handle) {
  for (struct object *o = objects; o < objects + used; o++)
    if (rm_is_channel(o->class) && o->client == client && (o->handle == handle || o->parent == handle))
      o->scheduled = true, o->stopped = false; /* also what has been stopped; not known of the real one */
  pthread_cond_broadcast(&changed);
}

static uint32_t control(const struct rm_control *call) {
  void *parameters = (void *)(uintptr_t)call->parameters;
  struct object *subdevice = find_of(call->client, call->object, is_subdevice);
  struct object *group = find_of(call->client, call->object, is_group);
  switch (call->command) {
  case RM_STOP_CHANNELS:
    if (sim.card.stop_status)
      return (uint32_t)sim.card.stop_status;
    if (!subdevice)
      return RM_NOT_FOUND;
    if (atomic_load(&sim.slot->mps) ||
        call->parameters_size != (sim.card.stop_older ? OLDER_STOP_BYTES : sizeof(struct rm_stop_channels)))
      return RM_BAD_PARAMETERS;
    return stop_channels(subdevice, parameters);
  case RM_GET_UUID:
    return !subdevice ? RM_NOT_FOUND : get_uuid(subdevice, parameters);
  case RM_SCHEDULE_GROUP:
  case RM_SCHEDULE_CHANNEL:
    if (!find(call->client, call->object))
      return RM_NOT_FOUND;
    schedule(call->client, call->object);
    return RM_OK;
  case RM_SET_SLICE:
    if (!group)
      return RM_NOT_FOUND;
    if (!atomic_load(&sim.slot->mps))
      group->slice_us = ((const struct rm_set_slice *)parameters)->slice_us;
    return RM_OK;
  default:
    return RM_NOT_SUPPORTED;
  }
}

static void sleep_ns(uint64_t ns) {
  const struct timespec time = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
  nanosleep(&time, NULL);
}

int rm_ioctl(int fd, unsigned long request, ...) {
  va_list rest;
  va_start(rest, request);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  pthread_once(&once, set_up);
  if (fd != RM_FD || _IOC_TYPE(request) != RM_TYPE) {
    errno = fd == RM_FD ? EINVAL : EBADF;
    return -1;
  }
  pthread_mutex_lock(&lock);
  bool slow = false;
  switch (_IOC_NR(request)) {
  case RM_ALLOC:
    ((struct rm_alloc *)argument)->status = alloc(argument);
    break;
  case RM_FREE:
    ((struct rm_free *)argument)->status = free_object(argument);
    break;
  case RM_CONTROL:
    slow = ((struct rm_control *)argument)->command == RM_STOP_CHANNELS;
    ((struct rm_control *)argument)->status = control(argument);
    break;
  }
  pthread_mutex_unlock(&lock);
  if (slow)
    sleep_ns(sim.card.stop_ns);
  return 0;
}

/* ---- work in channels ---- */

static struct object *object_of(struct rm_channel channel) {
  struct object *o = &objects[channel.index];
  return channel.number && o->class && o->number == channel.number ? o : NULL;
}

struct rm_channel rm_find(uint32_t client, uint32_t handle) {
  pthread_mutex_lock(&lock);
  const struct object *o = find(client, handle);
  struct rm_channel channel = {0};
  if (o)
    channel = (struct rm_channel){.index = (uint32_t)(o - objects), .number = o->number};
  pthread_mutex_unlock(&lock);
  return channel;
}

void rm_enter(struct rm_channel channel) {
  struct object *o;
  pthread_mutex_lock(&lock);
  while ((o = object_of(channel)) && (o->stopped || !o->scheduled))
    pthread_cond_wait(&changed, &lock);
  if (o)
    o->running++;
  pthread_mutex_unlock(&lock);
}

void rm_leave(struct rm_channel channel) {
  pthread_mutex_lock(&lock);
  struct object *o = object_of(channel);
  if (o && --o->running == 0)
    pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

bool rm_sleep(struct rm_channel channel, uint64_t due_ns) {
  const struct timespec due = {.tv_sec = (time_t)(due_ns / NS_PER_S), .tv_nsec = (long)(due_ns % NS_PER_S)};
  const struct object *o;
  bool stopped = false;
  pthread_mutex_lock(&lock);
  while ((o = object_of(channel)) && !(stopped = o->stopped) && clock_now_ns() < due_ns &&
         pthread_cond_timedwait(&changed, &lock, &due) == 0)
    ;
  pthread_mutex_unlock(&lock);
  return stopped;
}

uint64_t rm_slice_ns(struct rm_channel channel) {
  pthread_mutex_lock(&lock);
  const struct object *o = object_of(channel), *group = o ? find(o->client, o->parent) : NULL;
  uint64_t slice_ns = group ? group->slice_us * 1000 : 0;
  pthread_mutex_unlock(&lock);
  return slice_ns;
}
