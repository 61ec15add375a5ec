/* overrides.h - the settings that single GPUs have of their own, in place of the general ones. */
#ifndef GS_OVERRIDES_H
#define GS_OVERRIDES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/scheduler.h"

/* As many as the daemon knows GPUs. */
#define OVERRIDES_MAX 256

enum {
  OVERRIDE_TQ = 1,
  OVERRIDE_MODE = 2,
  OVERRIDE_CAPACITY = 4,
  OVERRIDE_MEMORY = 8,
  OVERRIDE_POLICY = 16,
  OVERRIDE_LOSS = 32,
  OVERRIDE_SPATIAL = 64,
  OVERRIDE_SIZE = 128,
};

struct override {
  uint8_t uuid[GS_UUID_SIZE]; /* zeros: of no GPU yet */
  bool numbered;              /* the UUID follows from the number */
  uint32_t number;            /* GS_GPU_NUMBER */
  unsigned fields;            /* OVERRIDE_*: what of the settings counts */
  struct sched_settings settings;
};

struct overrides {
  size_t count;
  struct override list[OVERRIDES_MAX];
};

/* That of the GPU, a new one if there is none; NULL: there are too many. */
struct override *overrides_provide(struct overrides *overrides, const uint8_t uuid[GS_UUID_SIZE]);

/* Likewise, of the GPU with a number, whichever that is. What a GPU has by its UUID counts instead. */
struct override *overrides_provide_numbered(struct overrides *overrides, uint32_t number);

/* The GPU's settings: the general ones, but for what it has of its own. */
struct sched_settings overrides_settings(const struct overrides *overrides, const uint8_t uuid[GS_UUID_SIZE],
                                         struct sched_settings general);

/* Give the GPU the scheduler's defaults and what it has of its own. */
void overrides_apply(const struct overrides *overrides, struct sched_gpu *gpu, uint64_t now_ns,
                     struct sched_change *change);

/*
 * ---- decisions ----
 *
 * The settings that persons have made while the daemon runs, beside those of the configuration. The later
 * word counts. A decision notes what the configuration said about the same setting of the same GPU at that
 * time: as long as that says so, the decision counts, over restarts and reloads; once it says something
 * else, the configuration counts. Pure.
 */

/* What can be decided: OVERRIDE_TQ, OVERRIDE_MODE, OVERRIDE_POLICY, OVERRIDE_CAPACITY. */
#define DECISIONS_PER_GPU 4
#define DECISIONS_MAX ((OVERRIDES_MAX + 1) * DECISIONS_PER_GPU)

struct decision {
  uint8_t uuid[GS_UUID_SIZE]; /* all zero: of all GPUs without a word of their own */
  unsigned field;             /* OVERRIDE_* */
  uint64_t value;
  uint64_t base; /* what the configuration said */
};

bool decision_is_general(const struct decision *decision);

struct decisions {
  size_t count;
  struct decision list[DECISIONS_MAX];
};

/* The word for it ("tq"), and back: NULL and 0 if nobody decides about it. */
const char *decisions_name(unsigned field);
unsigned decisions_field(const char *name);

/* NULL, or what is wrong with the value. */
const char *decisions_wrong(unsigned field, uint64_t value);

/* NULL: none. uuid all zero: the general one. */
const struct decision *decisions_find(const struct decisions *decisions, const uint8_t uuid[GS_UUID_SIZE],
                                      unsigned field);

/* Take this one up, in the place of one of the same setting and GPU. False: there are too many. */
bool decisions_put(struct decisions *decisions, const struct decision *decision);

/* Forget the one of this setting and GPU. */
void decisions_remove(struct decisions *decisions, const struct decision *decision);

/* Likewise those of this setting, of all GPUs. */
void decisions_clear(struct decisions *decisions, unsigned field);

/* Somebody sets it for this GPU; NULL: for all GPUs, whatever was set for single ones. What the configuration
 * says anyway is no decision. */
void decisions_set(struct decisions *decisions, const struct sched_settings *general,
                   const struct overrides *overrides, const uint8_t *uuid, unsigned field, uint64_t value);

/* The configuration is this one now: the decisions that it has overruled go. How many. As long as a section
 * for a number is of no known GPU, it may be that of any: what it says of single GPUs overrules nothing. */
size_t decisions_review(struct decisions *decisions, const struct sched_settings *general,
                        const struct overrides *overrides);

/* Settings of the configuration become those that count. */
void decisions_apply(const struct decisions *decisions, struct sched_settings *general,
                     struct overrides *overrides);

#endif
