/*
 * channels.c - one table of objects; see channels.h.
 *
 * Invariant: an object's GPU is found when it is added, by its parent. An object whose parent is not here, as
 * it was allocated before we watched, is in doubt. Why the numbers: a handle may be given anew as soon as it
 * has been freed, and the free is noted after that. So an entry is as old as its number, and a free removes
 * none that are younger than its beginning.
 */
#include "preempt/channels.h"

#include "common/lock.h"

#define OBJECTS_MAX 8192 /* a context has 24 on driver 580 */

enum kind { FREE, DEVICE, SUBDEVICE, GROUP, CHANNEL };

struct object {
  enum kind kind;
  int fd;
  uint32_t client, parent, handle;
  uint32_t device; /* of this handle is the device that it belongs to */
  uint32_t gpu;
  uint32_t engine; /* of a group, and its channels */
  uint64_t number;
  bool own;     /* of a context of ours: never stopped, never sliced */
  bool stopped; /* by us */
};

static __thread bool allocating_own __attribute__((tls_model("initial-exec")));

static struct lock lock = LOCK(LOCK_CHANNELS); /* protects all below */
static struct object objects[OBJECTS_MAX];
static size_t used; /* entries that have ever been */
static uint64_t last_number;
static bool in_doubt;

/* The calling thread has the lock, and this is a signal handler that has interrupted it. */
static __thread bool inside __attribute__((tls_model("initial-exec")));

static bool enter(void) {
  if (inside)
    return false;
  inside = true;
  lock_take(&lock);
  return true;
}

static void leave(bool taken) {
  if (!taken)
    return;
  lock_release(&lock);
  inside = false;
}

static struct object *find(uint32_t client, uint32_t handle) {
  for (struct object *o = objects; o < objects + used; o++)
    if (o->kind != FREE && o->client == client && o->handle == handle)
      return o;
  return NULL;
}

static struct object *find_free(void) {
  for (struct object *o = objects; o < objects + used; o++)
    if (o->kind == FREE)
      return o;
  return used < OBJECTS_MAX ? &objects[used++] : NULL;
}

/* Channels are steered by a subdevice of their own client. */
static bool has_subdevice(const struct object *parent) {
  for (const struct object *o = objects; o < objects + used; o++)
    if (o->kind == SUBDEVICE && o->client == parent->client && o->device == parent->device)
      return true;
  return false;
}

static enum kind kind_of(uint32_t class) {
  switch (class) {
  case RM_DEVICE:
    return DEVICE;
  case RM_SUBDEVICE:
    return SUBDEVICE;
  case RM_GROUP:
    return GROUP;
  default:
    return rm_is_channel(class) ? CHANNEL : FREE;
  }
}

void channels_add(int fd, const struct rm_alloc_short *made, uint32_t value) {
  enum kind kind = kind_of(made->class);
  if (kind == FREE)
    return;
  bool taken = enter();
  const struct object *parent = kind == DEVICE ? NULL : find(made->client, made->parent);
  struct object *o = kind == DEVICE || parent ? find_free() : NULL;
  if (!o || (kind == DEVICE && value >= CHANNELS_GPUS) || (kind == CHANNEL && !has_subdevice(parent)))
    in_doubt = true;
  else
    *o = (struct object){.kind = kind,
                         .fd = fd,
                         .client = made->client,
                         .parent = made->parent,
                         .handle = made->handle,
                         .device = parent ? parent->device : made->handle,
                         .gpu = parent ? parent->gpu : value,
                         .engine = kind == GROUP ? value
                                   : parent      ? parent->engine
                                                 : 0,
                         .number = ++last_number,
                         .own = allocating_own};
  leave(taken);
}

void channels_own(bool begins) { allocating_own = begins; }

uint64_t channels_now(void) {
  bool taken = enter();
  uint64_t now = last_number;
  leave(taken);
  return now;
}

static void remove_tree(uint32_t client, uint32_t handle, uint64_t now) {
  for (struct object *o = objects; o < objects + used; o++) {
    if (o->kind == FREE || o->client != client || o->number > now)
      continue;
    bool is_child = o->parent == handle && o->handle != handle;
    if (o->handle == handle || is_child || client == handle)
      o->kind = FREE;
    if (is_child)
      remove_tree(client, o->handle, now);
  }
}

void channels_remove(uint32_t client, uint32_t handle, uint64_t now) {
  bool taken = enter();
  remove_tree(client, handle, now);
  leave(taken);
}

void channels_doubt(void) {
  bool taken = enter();
  in_doubt = true;
  leave(taken);
}

bool channels_are_known(void) {
  bool taken = enter();
  bool known = !in_doubt;
  leave(taken);
  return known;
}

static struct channels_object address_of(const struct object *o) {
  return (struct channels_object){.fd = o->fd, .client = o->client, .handle = o->handle};
}

int channels_gpu_of(uint32_t client, uint32_t handle, struct channels_object *group) {
  bool taken = enter();
  const struct object *o = find(client, handle);
  const struct object *above = o && o->kind == CHANNEL ? find(client, o->parent) : NULL;
  int gpu = o && !o->own && (o->kind == GROUP || o->kind == CHANNEL) ? (int)o->gpu : -1;
  if (gpu >= 0)
    *group = address_of(above && above->kind == GROUP ? above : o);
  leave(taken);
  return gpu;
}

/* The client's first for a device takes the controls for all of its channels. */
static bool is_first_subdevice(const struct object *subdevice) {
  for (const struct object *o = objects; o < subdevice; o++)
    if (o->kind == SUBDEVICE && o->client == subdevice->client && o->device == subdevice->device)
      return false;
  return subdevice->kind == SUBDEVICE;
}

bool channels_subdevice(unsigned gpu, struct channels_object *subdevice) {
  bool found = false, taken = enter();
  for (const struct object *o = objects; o < objects + used && !found; o++)
    if (o->kind == SUBDEVICE && o->gpu == gpu) {
      *subdevice = address_of(o);
      found = true;
    }
  leave(taken);
  return found;
}

/* A handle that is being freed may have been given anew. */
static bool is_listed(const struct channels_batch *batch, uint32_t handle) {
  for (uint32_t i = 0; i < batch->count; i++)
    if (batch->channels[i] == handle)
      return true;
  return false;
}

static bool is_in(const struct object *o, const struct channels_object *group) {
  return !group || (o->client == group->client && (o->parent == group->handle || o->handle == group->handle));
}

bool channels_next(unsigned gpu, const struct channels_object *group, bool stop,
                   struct channels_cursor *cursor, struct channels_batch *batch) {
  bool taken = enter();
  batch->count = 0;
  for (; cursor->subdevice < used && batch->count == 0; cursor->subdevice += batch->count == 0) {
    const struct object *subdevice = &objects[cursor->subdevice];
    if (subdevice->gpu != gpu || !is_first_subdevice(subdevice))
      continue;
    batch->subdevice = address_of(subdevice);
    for (; cursor->next < used && batch->count < RM_CHANNELS_MAX; cursor->next++) {
      const struct object *o = &objects[cursor->next];
      if (o->kind == CHANNEL && !o->own && !(stop && o->stopped) && o->client == subdevice->client &&
          o->device == subdevice->device && is_in(o, group) && !is_listed(batch, o->handle))
        batch->channels[batch->count++] = o->handle;
    }
    if (batch->count == 0)
      cursor->next = 0;
  }
  leave(taken);
  return batch->count > 0;
}

void channels_mark(const struct channels_batch *batch, bool stopped) {
  bool taken = enter();
  for (struct object *o = objects; o < objects + used; o++)
    if (o->kind == CHANNEL && o->client == batch->subdevice.client && is_listed(batch, o->handle))
      o->stopped = stopped;
  leave(taken);
}

void channels_scheduled(const struct channels_object *group) {
  bool taken = enter();
  for (struct object *o = objects; o < objects + used; o++)
    if (o->kind == CHANNEL && is_in(o, group))
      o->stopped = false;
  leave(taken);
}

void channels_refresh(struct channels_batch *batch) {
  bool taken = enter();
  uint32_t count = 0;
  for (uint32_t i = 0; i < batch->count; i++)
    if (find(batch->subdevice.client, batch->channels[i]))
      batch->channels[count++] = batch->channels[i];
  batch->count = find(batch->subdevice.client, batch->subdevice.handle) ? count : 0;
  leave(taken);
}

bool channels_next_group(unsigned gpu, const struct channels_object *group, size_t *cursor,
                         struct channels_object *found) {
  bool any = false, taken = enter();
  for (; *cursor < used && !any; ++*cursor) {
    const struct object *o = &objects[*cursor];
    any = o->kind == GROUP && !o->own && o->gpu == gpu && is_in(o, group);
    if (any)
      *found = address_of(o);
  }
  leave(taken);
  return any;
}

struct channels_count channels_count(unsigned gpu) {
  struct channels_count count = {0};
  bool taken = enter();
  for (const struct object *o = objects; o < objects + used; o++) {
    bool compute = o->engine == RM_ENGINE_COMPUTE;
    if (o->own)
      continue;
    if (o->kind == GROUP && o->gpu == gpu)
      ++*(compute ? &count.compute_groups : &count.other_groups);
    if (o->kind == CHANNEL && o->gpu == gpu)
      ++*(compute ? &count.compute_channels : &count.other_channels);
  }
  leave(taken);
  return count;
}

void channels_fork_child(void) {
  lock = (struct lock)LOCK(LOCK_CHANNELS);
  for (struct object *o = objects; o < objects + used; o++)
    o->kind = FREE;
  used = 0;
  in_doubt = inside = false;
}
