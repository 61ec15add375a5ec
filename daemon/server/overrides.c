/* overrides.c - the settings that single GPUs have of their own. */
#include "server/overrides.h"

#include <string.h>

#include "common/parse.h"

bool override_is_unsettled(const struct override *override) {
  return override->numbered && uuid_is_zero(override->uuid);
}

static const struct override *find(const struct overrides *overrides, const uint8_t uuid[GS_UUID_SIZE],
                                   bool numbered) {
  for (size_t i = 0; i < overrides->count; i++)
    if (overrides->list[i].numbered == numbered && !override_is_unsettled(&overrides->list[i]) &&
        memcmp(overrides->list[i].uuid, uuid, GS_UUID_SIZE) == 0)
      return &overrides->list[i];
  return NULL;
}

static struct override *add(struct overrides *overrides) {
  if (overrides->count == OVERRIDES_MAX)
    return NULL;
  struct override *added = &overrides->list[overrides->count++];
  *added = (struct override){.fields = 0};
  return added;
}

struct override *overrides_provide(struct overrides *overrides, const uint8_t uuid[GS_UUID_SIZE]) {
  const struct override *found = find(overrides, uuid, false);
  if (found)
    return &overrides->list[found - overrides->list];
  const struct override *numbered = find(overrides, uuid, true);
  struct override *added = add(overrides);
  if (!added)
    return NULL;
  if (numbered) { /* from now on this one counts instead */
    added->fields = numbered->fields;
    added->settings = numbered->settings;
  }
  memcpy(added->uuid, uuid, GS_UUID_SIZE);
  return added;
}

struct override *overrides_provide_numbered(struct overrides *overrides, uint32_t number) {
  for (size_t i = 0; i < overrides->count; i++)
    if (overrides->list[i].numbered && overrides->list[i].number == number)
      return &overrides->list[i];
  struct override *added = add(overrides);
  if (added) {
    added->numbered = true;
    added->number = number;
  }
  return added;
}

struct sched_settings overrides_settings(const struct overrides *overrides, const uint8_t uuid[GS_UUID_SIZE],
                                         struct sched_settings general) {
  const struct override *own = find(overrides, uuid, false);
  if (!own)
    own = find(overrides, uuid, true);
  unsigned fields = own ? own->fields : 0;
  if (fields & OVERRIDE_TQ)
    general.tq_ns = own->settings.tq_ns;
  if (fields & OVERRIDE_LOSS)
    general.loss_permille = own->settings.loss_permille;
  if (fields & OVERRIDE_MODE)
    general.mode = own->settings.mode;
  if (fields & OVERRIDE_CAPACITY)
    general.capacity_bytes = own->settings.capacity_bytes;
  if (fields & OVERRIDE_MEMORY)
    general.memory = own->settings.memory;
  if (fields & OVERRIDE_POLICY)
    general.policy = own->settings.policy;
  if (fields & OVERRIDE_SPATIAL)
    general.spatial = own->settings.spatial;
  if (fields & OVERRIDE_SIZE)
    general.card_bytes = own->settings.card_bytes;
  return general;
}

void overrides_apply(const struct overrides *overrides, struct sched_gpu *gpu, uint64_t now_ns,
                     struct sched_change *change) {
  struct scheduler *scheduler = gpu->scheduler;
  struct sched_settings settings = overrides_settings(overrides, gpu->uuid, scheduler->defaults);
  gpu->settings.loss_permille = settings.loss_permille; /* counts from the quantum on, which is set below */
  scheduler_set_memory(scheduler, gpu, settings.memory);
  scheduler_set_policy(scheduler, gpu, settings.policy, now_ns, change);
  scheduler_set_capacity(scheduler, gpu, settings.capacity_bytes, now_ns, change);
  scheduler_set_mode(scheduler, gpu, settings.mode, now_ns, change);
  scheduler_set_tq(scheduler, gpu, settings.tq_ns, now_ns, change);
}
