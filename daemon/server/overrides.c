/* overrides.c - the settings that single GPUs have of their own. */
#include "server/overrides.h"

#include <stddef.h>
#include <string.h>

#include "common/parse.h"

#define AT(member) offsetof(struct sched_settings, member), sizeof(((struct sched_settings *)0)->member)

static const struct {
  unsigned field;
  size_t at, size;
  const char *name; /* NULL: nobody decides about it while the daemon runs */
} fields[] = {
    {OVERRIDE_TQ, AT(tq_ns), "tq"},           {OVERRIDE_MODE, AT(mode), "mode"},
    {OVERRIDE_POLICY, AT(policy), "policy"},  {OVERRIDE_CAPACITY, AT(capacity_bytes), "capacity"},
    {OVERRIDE_LOSS, AT(loss_permille), NULL}, {OVERRIDE_MEMORY, AT(memory), NULL},
    {OVERRIDE_SPATIAL, AT(spatial), NULL},    {OVERRIDE_SIZE, AT(card_bytes), NULL},
};
#define FIELD_COUNT (sizeof fields / sizeof *fields)

/* Nobody knows yet which GPU has its number. */
static bool override_is_unsettled(const struct override *override) {
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
  for (size_t i = 0; own && i < FIELD_COUNT; i++)
    if (own->fields & fields[i].field)
      memcpy((char *)&general + fields[i].at, (const char *)&own->settings + fields[i].at, fields[i].size);
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

/* ---- decisions ---- */

static const uint8_t all_gpus[GS_UUID_SIZE];

const char *decisions_name(unsigned field) {
  for (size_t i = 0; i < FIELD_COUNT; i++)
    if (fields[i].field == field)
      return fields[i].name;
  return NULL;
}

unsigned decisions_field(const char *name) {
  for (size_t i = 0; i < FIELD_COUNT; i++)
    if (fields[i].name && strcmp(fields[i].name, name) == 0)
      return fields[i].field;
  return 0;
}

const char *decisions_wrong(unsigned field, uint64_t value) {
  switch (field) {
  case OVERRIDE_TQ:
    return value != SCHED_TQ_AUTO && (value < GS_TQ_MIN_NS || value > GS_TQ_MAX_NS)
               ? "the quantum must be auto, or from " TQ_RANGE
               : NULL;
  case OVERRIDE_MODE:
    return value > GS_MODE_OFF ? "the mode must be auto, on or off" : NULL;
  case OVERRIDE_POLICY:
    return value > GS_POLICY_PACK ? "the policy must be " POLICY_NAMES : NULL;
  default:
    return value > SCHED_BYTES_MAX ? "the capacity must be at most 8T" : NULL;
  }
}

/* ---- one setting among others ---- */

static uint64_t value_of(const struct sched_settings *settings, unsigned field) {
  return field == OVERRIDE_TQ       ? settings->tq_ns
         : field == OVERRIDE_MODE   ? settings->mode
         : field == OVERRIDE_POLICY ? settings->policy
                                    : settings->capacity_bytes;
}

static void set_value(struct sched_settings *settings, unsigned field, uint64_t value) {
  if (field == OVERRIDE_TQ)
    settings->tq_ns = value;
  else if (field == OVERRIDE_MODE)
    settings->mode = (enum gs_mode)value;
  else if (field == OVERRIDE_POLICY)
    settings->policy = (enum gs_policy)value;
  else
    settings->capacity_bytes = value;
}

bool decision_is_general(const struct decision *decision) { return uuid_is_zero(decision->uuid); }

/* What the configuration says. */
static uint64_t configured(const struct sched_settings *general, const struct overrides *overrides,
                           const uint8_t uuid[GS_UUID_SIZE], unsigned field) {
  struct sched_settings settings = overrides_settings(overrides, uuid, *general);
  return value_of(&settings, field);
}

/* ---- the list ---- */

const struct decision *decisions_find(const struct decisions *decisions, const uint8_t uuid[GS_UUID_SIZE],
                                      unsigned field) {
  for (size_t i = 0; i < decisions->count; i++)
    if (decisions->list[i].field == field && memcmp(decisions->list[i].uuid, uuid, GS_UUID_SIZE) == 0)
      return &decisions->list[i];
  return NULL;
}

static struct decision *find_decision(struct decisions *decisions, const uint8_t uuid[GS_UUID_SIZE],
                                      unsigned field) {
  const struct decision *found = decisions_find(decisions, uuid, field);
  return found ? &decisions->list[found - decisions->list] : NULL;
}

static void drop(struct decisions *decisions, struct decision *decision) {
  *decision = decisions->list[--decisions->count];
}

bool decisions_put(struct decisions *decisions, const struct decision *decision) {
  struct decision *place = find_decision(decisions, decision->uuid, decision->field);
  if (!place && decisions->count == DECISIONS_MAX)
    return false;
  if (!place)
    place = &decisions->list[decisions->count++];
  *place = *decision;
  return true;
}

void decisions_remove(struct decisions *decisions, const struct decision *decision) {
  struct decision *found = find_decision(decisions, decision->uuid, decision->field);
  if (found)
    drop(decisions, found);
}

void decisions_clear(struct decisions *decisions, unsigned field) {
  for (size_t i = decisions->count; i-- > 0;)
    if (decisions->list[i].field == field)
      drop(decisions, &decisions->list[i]);
}

static void set_one(struct decisions *decisions, const struct sched_settings *general,
                    const struct overrides *overrides, const uint8_t uuid[GS_UUID_SIZE], unsigned field,
                    uint64_t value) {
  struct decision made = {.field = field, .value = value};
  memcpy(made.uuid, uuid, GS_UUID_SIZE);
  made.base = configured(general, overrides, uuid, field);
  decisions_put(decisions, &made);
}

void decisions_set(struct decisions *decisions, const struct sched_settings *general,
                   const struct overrides *overrides, const uint8_t *uuid, unsigned field, uint64_t value) {
  if (!uuid) {
    decisions_clear(decisions, field);
    for (size_t i = 0; i < overrides->count; i++)
      if (overrides->list[i].fields & field && !override_is_unsettled(&overrides->list[i]))
        set_one(decisions, general, overrides, overrides->list[i].uuid, field, value);
  }
  set_one(decisions, general, overrides, uuid ? uuid : all_gpus, field, value);
  /* A word about a single GPU is needless once it says what counts for it anyway. */
  for (size_t i = decisions->count; i-- > 0;) {
    struct decision *decision = &decisions->list[i];
    bool overruled = !decision_is_general(decision) && find_decision(decisions, all_gpus, decision->field);
    if (decision->value == configured(general, overrides, decision->uuid, decision->field) && !overruled)
      drop(decisions, decision);
  }
}

size_t decisions_review(struct decisions *decisions, const struct sched_settings *general,
                        const struct overrides *overrides) {
  size_t before = decisions->count;
  for (size_t i = decisions->count; i-- > 0;) {
    struct decision *decision = &decisions->list[i];
    /* What the configuration says of a GPU may be in a section for a number that no GPU has yet. */
    bool unsettled = false;
    for (size_t k = 0; k < overrides->count && !decision_is_general(decision); k++)
      unsettled |= overrides->list[k].fields & decision->field && override_is_unsettled(&overrides->list[k]);
    if (!unsettled && configured(general, overrides, decision->uuid, decision->field) != decision->base)
      drop(decisions, decision);
  }
  return before - decisions->count;
}

void decisions_apply(const struct decisions *decisions, struct sched_settings *general,
                     struct overrides *overrides) {
  for (size_t i = 0; i < decisions->count; i++) {
    const struct decision *decision = &decisions->list[i];
    struct override *own =
        decision_is_general(decision) ? NULL : overrides_provide(overrides, decision->uuid);
    if (decision_is_general(decision))
      set_value(general, decision->field, decision->value);
    if (!own)
      continue;
    own->fields |= decision->field;
    set_value(&own->settings, decision->field, decision->value);
  }
}
