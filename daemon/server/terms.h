/*
 * terms.h - what a client's jobs are given: field by field what gpusharectl has set, else what the program
 * has declared, else what its earlier runs have taught, else the default. Weight, priority and class have
 * bounds, which only those may exceed who may change settings.
 */
#ifndef GS_TERMS_H
#define GS_TERMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/list.h"
#include "core/scheduler.h"
#include "server/users.h"

/* What programs, and the owners of their jobs, may ask for. No less than the defaults: who asks for nothing
 * is never cut. */
struct terms_bounds {
  uint32_t max_weight;
  int32_t max_priority;
  bool production_privileged; /* only who may change settings makes a job a production job */
};
#define TERMS_UNBOUNDED ((struct terms_bounds){SCHED_WEIGHT_MAX, SCHED_PRIORITY_MAX, false})
/* Nobody's word makes a job more than others'. */
#define TERMS_DEFAULT_BOUNDS ((struct terms_bounds){SCHED_WEIGHT, 0, true})

/* All zero: nothing is known, the defaults count, and there are no bounds. */
struct terms {
  const struct terms_bounds *bounds; /* they may change; NULL: none */
  struct sched_terms declared;       /* weight 0: the default */
  struct sched_terms set;
  unsigned set_fields;      /* 1 << enum gs_term: what of these counts */
  unsigned standing_fields; /* likewise: what was set by somebody whom the owner can't overrule */
  uint64_t learnt_ns;
};

struct sched_terms terms_of(const struct terms *terms);

/* Somebody has asked for more than the bounds allow. */
bool terms_are_cut(const struct terms *terms);

/* Of them this one: as SET_TERMS tells it. */
uint64_t terms_value(const struct sched_terms *terms, enum gs_term term);

/* DECLARE. */
void terms_declare(struct terms *terms, const struct gs_msg *msg);

/* NULL, or what is wrong with a SET_TERMS. */
const char *terms_wrong(const struct gs_msg *msg);

/* May the owner of the job, who has no other rights, do this? He may ask for less than he has, and say how
 * long it will take. */
bool terms_owner_may(const struct terms *terms, const struct gs_msg *msg);

/* SET_TERMS, neither wrong nor forbidden. by_owner: as above. */
void terms_set(struct terms *terms, const struct gs_msg *msg, bool by_owner);

/* As it was set before, by somebody whom the owner can overrule or not. */
void terms_restore(struct terms *terms, enum gs_term term, uint64_t value, bool standing);

/*
 * ---- limits of users ----
 *
 * What single users have and may, in place of the general settings: [user NAME].
 */

#define USER_LIMITS_MAX 256

enum {
  USER_LIMIT_WEIGHT = 1,
  USER_LIMIT_JOBS = 2,
  USER_LIMIT_MEMORY = 4,
  USER_LIMIT_PRODUCTION = 8,
  USER_LIMIT_MAX_WEIGHT = 16,
  USER_LIMIT_MAX_PRIORITY = 32,
};

struct user_limit {
  uid_t uid;
  unsigned fields; /* USER_LIMIT_*: what of the following counts */
  uint32_t weight; /* of its share (policy.c) */
  uint64_t max_jobs;
  uint64_t max_memory_bytes; /* of its jobs together, on each GPU; 0: as much as there is */
  struct terms_bounds bounds;
};

struct user_limits {
  size_t count;
  struct user_limit list[USER_LIMITS_MAX];
};

/* That of the user, a new one if there is none; NULL: there are too many. */
struct user_limit *user_limits_provide(struct user_limits *limits, uid_t uid);

/* The user's: the general ones, but for what it has of its own. */
struct user_limit user_limits_of(const struct user_limits *limits, uid_t uid,
                                 const struct user_limit *general);

/*
 * ---- what programs have needed before ----
 *
 * For each user and command line, how much GPU time a run takes. Bounded: of the user that has most, what has
 * not been asked for or added to for the longest time is forgotten first. A user's programs teach nothing
 * about another's. One thread.
 */

#define HISTORY_MAX 4096
/* Shorter runs say nothing: they have failed early, or do not matter. */
#define HISTORY_RUN_MIN_NS UINT64_C(1000000000)

#define HISTORY_BUCKETS 1024

struct history_entry {
  struct list used_link, bucket_link;
  struct user_item owned;
  uid_t uid;
  uint64_t command_hash;
  uint64_t expected_ns;
};

struct history {
  struct list used; /* all entries, the longest unused first */
  struct list buckets[HISTORY_BUCKETS];
  size_t count;
  struct user_shares shares;
};

void history_init(struct history *history);
void history_end(struct history *history);

/* A run has ended after so much GPU time. command_hash 0, an unknown command, is passed over. */
void history_add(struct history *history, uid_t uid, uint64_t command_hash, uint64_t gpu_ns);

/* It is known from elsewhere what a run takes. */
void history_put(struct history *history, uid_t uid, uint64_t command_hash, uint64_t expected_ns);

/* What a run takes, the last ones counting most; 0: unknown. */
uint64_t history_expected_ns(struct history *history, uid_t uid, uint64_t command_hash);

#endif
