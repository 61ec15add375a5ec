/*
 * decisions.h - the settings that persons have made while the daemon runs, beside those of the configuration.
 *
 * The later word counts. A decision notes what the configuration said about the same setting of the same GPU
 * at that time: as long as that says so, the decision counts, over restarts and reloads; once it says
 * something else, the configuration counts. Pure.
 */
#ifndef GS_DECISIONS_H
#define GS_DECISIONS_H

#include <stdbool.h>

#include "server/overrides.h"

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
