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

/* Nobody knows yet which GPU has its number. */
bool override_is_unsettled(const struct override *override);

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

#endif
