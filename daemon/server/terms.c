/* terms.c - what a client's jobs are given. */
#include "server/terms.h"
#include <stdbool.h>
#include <stdlib.h>

#include "common/parse.h"

static void set_field(struct sched_terms *terms, enum gs_term term, uint64_t value) {
  uint64_t *const wide[GS_TERM_COUNT] = {[GS_TERM_EXPECTED] = &terms->expected_ns,
                                         [GS_TERM_LIMIT] = &terms->limit_bytes,
                                         [GS_TERM_SOFT_LIMIT] = &terms->soft_limit_bytes,
                                         [GS_TERM_EXPECTED_MEMORY] = &terms->expected_bytes};
  if (term == GS_TERM_WEIGHT)
    terms->weight = (uint32_t)value;
  else if (term == GS_TERM_PRIORITY)
    terms->priority = (int32_t)(int64_t)value;
  else if (term == GS_TERM_CLASS)
    terms->class = (enum gs_class)value;
  else if (term == GS_TERM_RATE)
    terms->rate_percent = (uint32_t)value;
  else if (term == GS_TERM_PAUSED)
    terms->paused = value;
  else if (term < GS_TERM_COUNT)
    *wide[term] = value;
}

uint64_t terms_value(const struct sched_terms *terms, enum gs_term term) {
  const uint64_t values[GS_TERM_COUNT] = {[GS_TERM_WEIGHT] = terms->weight,
                                          [GS_TERM_PRIORITY] = (uint64_t)(int64_t)terms->priority,
                                          [GS_TERM_EXPECTED] = terms->expected_ns,
                                          [GS_TERM_LIMIT] = terms->limit_bytes,
                                          [GS_TERM_SOFT_LIMIT] = terms->soft_limit_bytes,
                                          [GS_TERM_CLASS] = terms->class,
                                          [GS_TERM_RATE] = terms->rate_percent,
                                          [GS_TERM_EXPECTED_MEMORY] = terms->expected_bytes,
                                          [GS_TERM_PAUSED] = terms->paused};
  return term < GS_TERM_COUNT ? values[term] : 0;
}

static bool stands(const struct terms *terms, enum gs_term term) {
  return terms->standing_fields >> term & 1;
}

/* Whatever the bounds are. */
static struct sched_terms asked_for(const struct terms *terms) {
  struct sched_terms given = terms->declared;
  if (given.weight == 0)
    given.weight = SCHED_WEIGHT;
  if (given.expected_ns == 0)
    given.expected_ns = terms->learnt_ns;
  for (unsigned term = 0; term < GS_TERM_COUNT; term++)
    if (terms->set_fields >> term & 1)
      set_field(&given, term, terms_value(&terms->set, term));
  return given;
}

struct sched_terms terms_of(const struct terms *terms) {
  struct sched_terms given = asked_for(terms);
  const struct terms_bounds *bounds = terms->bounds;
  if (bounds && given.weight > bounds->max_weight && !stands(terms, GS_TERM_WEIGHT))
    given.weight = bounds->max_weight;
  if (bounds && given.priority > bounds->max_priority && !stands(terms, GS_TERM_PRIORITY))
    given.priority = bounds->max_priority;
  if (bounds && given.class == GS_CLASS_PRODUCTION && bounds->production_privileged &&
      !stands(terms, GS_TERM_CLASS))
    given.class = GS_CLASS_STANDARD;
  return given;
}

bool terms_are_cut(const struct terms *terms) {
  struct sched_terms asked = asked_for(terms), given = terms_of(terms);
  return given.weight < asked.weight || given.priority < asked.priority || given.class != asked.class;
}

void terms_declare(struct terms *terms, const struct gs_msg *msg) {
  uint32_t weight = msg->declare.weight;
  int32_t priority = msg->declare.priority;
  priority = priority > SCHED_PRIORITY_MAX    ? SCHED_PRIORITY_MAX
             : priority < -SCHED_PRIORITY_MAX ? -SCHED_PRIORITY_MAX
                                              : priority;
  bool known = msg->declare.class <= GS_CLASS_OPPORTUNISTIC;
  terms->declared =
      (struct sched_terms){.weight = weight < SCHED_WEIGHT_MAX ? weight : SCHED_WEIGHT_MAX,
                           .priority = priority,
                           .expected_ns = msg->declare.expected_ns,
                           .limit_bytes = msg->declare.limit_bytes,
                           .soft_limit_bytes = msg->declare.soft_limit_bytes,
                           .class = known ? (enum gs_class)msg->declare.class : GS_CLASS_STANDARD,
                           .expected_bytes = msg->declare.expected_bytes};
}

const char *terms_wrong(const struct gs_msg *msg) {
  uint64_t value = msg->set_terms.value;
  switch (msg->set_terms.term) {
  case GS_TERM_WEIGHT:
    return value < 1 || value > SCHED_WEIGHT_MAX ? "the weight must be from " WEIGHT_RANGE : NULL;
  case GS_TERM_PRIORITY:
    return (int64_t)value < -SCHED_PRIORITY_MAX || (int64_t)value > SCHED_PRIORITY_MAX
               ? "the priority must be from " PRIORITY_RANGE
               : NULL;
  case GS_TERM_CLASS:
    return value > GS_CLASS_OPPORTUNISTIC ? "the class must be " CLASS_NAMES : NULL;
  case GS_TERM_RATE:
    return value > 100 ? "the rate must be auto, or from " RATE_RANGE " of a GPU" : NULL;
  case GS_TERM_PAUSED:
    return value > 1 ? "a job is paused, 1, or not, 0" : NULL;
  case GS_TERM_EXPECTED:
  case GS_TERM_LIMIT:
  case GS_TERM_SOFT_LIMIT:
  case GS_TERM_EXPECTED_MEMORY:
    return NULL;
  default:
    return "there is no such term of a job";
  }
}

/* He may lift what he has set himself. */
static bool owner_may_limit(const struct terms *terms, enum gs_term term, uint64_t given_bytes,
                            uint64_t bytes) {
  return !stands(terms, term) || given_bytes == 0 || (bytes > 0 && bytes <= given_bytes);
}

/* What comes first has most. */
static int standing(uint64_t class) { return class == GS_CLASS_PRODUCTION ? 2 : class == GS_CLASS_STANDARD; }

/* He may also take back what he has asked for himself, and ask for what programs may. */
static bool owner_may_class(const struct terms *terms, enum gs_class given, uint64_t class) {
  bool privileged = class == GS_CLASS_PRODUCTION && terms->bounds && terms->bounds->production_privileged;
  return standing(class) <= standing(given) || (!stands(terms, GS_TERM_CLASS) && !privileged);
}

bool terms_owner_may(const struct terms *terms, const struct gs_msg *msg) {
  struct sched_terms given = terms_of(terms);
  uint64_t value = msg->set_terms.value;
  switch (msg->set_terms.term) {
  case GS_TERM_WEIGHT:
    return value <= given.weight;
  case GS_TERM_PRIORITY:
    return (int64_t)value <= given.priority;
  case GS_TERM_LIMIT:
    return owner_may_limit(terms, GS_TERM_LIMIT, given.limit_bytes, value);
  case GS_TERM_SOFT_LIMIT:
    return owner_may_limit(terms, GS_TERM_SOFT_LIMIT, given.soft_limit_bytes, value);
  case GS_TERM_CLASS:
    return owner_may_class(terms, given.class, value);
  case GS_TERM_RATE: /* production may lose by it */
    return false;
  case GS_TERM_PAUSED:
    return value || !given.paused || !stands(terms, GS_TERM_PAUSED);
  default:
    return true;
  }
}

void terms_set(struct terms *terms, const struct gs_msg *msg, bool by_owner) {
  enum gs_term term = (enum gs_term)msg->set_terms.term;
  if (by_owner && term == GS_TERM_PAUSED && !terms_of(terms).paused)
    terms->standing_fields &= ~(1u << term); /* he may resume what he pauses */
  set_field(&terms->set, term, msg->set_terms.value);
  terms->set_fields |= 1u << term;
  if (!by_owner)
    terms->standing_fields |= 1u << term;
}

void terms_restore(struct terms *terms, enum gs_term term, uint64_t value, bool standing) {
  set_field(&terms->set, term, value);
  terms->set_fields |= 1u << term;
  terms->standing_fields &= ~(1u << term);
  if (standing)
    terms->standing_fields |= 1u << term;
}

/*
 * ---- limits of users ----
 *
 * What single users have and may.
 */

struct user_limit *user_limits_provide(struct user_limits *limits, uid_t uid) {
  for (size_t i = 0; i < limits->count; i++)
    if (limits->list[i].uid == uid)
      return &limits->list[i];
  if (limits->count == USER_LIMITS_MAX)
    return NULL;
  struct user_limit *added = &limits->list[limits->count++];
  *added = (struct user_limit){.uid = uid};
  return added;
}

struct user_limit user_limits_of(const struct user_limits *limits, uid_t uid,
                                 const struct user_limit *general) {
  struct user_limit given = *general;
  given.uid = uid;
  for (size_t i = 0; i < limits->count; i++) {
    const struct user_limit *own = &limits->list[i];
    if (own->uid != uid)
      continue;
    if (own->fields & USER_LIMIT_WEIGHT)
      given.weight = own->weight;
    if (own->fields & USER_LIMIT_JOBS)
      given.max_jobs = own->max_jobs;
    if (own->fields & USER_LIMIT_MEMORY)
      given.max_memory_bytes = own->max_memory_bytes;
    if (own->fields & USER_LIMIT_PRODUCTION)
      given.bounds.production_privileged = own->bounds.production_privileged;
    if (own->fields & USER_LIMIT_MAX_WEIGHT)
      given.bounds.max_weight = own->bounds.max_weight;
    if (own->fields & USER_LIMIT_MAX_PRIORITY)
      given.bounds.max_priority = own->bounds.max_priority;
  }
  return given;
}

/*
 * ---- what programs have needed before ----
 */

static struct list *bucket_of(struct history *history, uid_t uid, uint64_t command_hash) {
  uint64_t mixed = (command_hash ^ uid) * UINT64_C(0x9e3779b97f4a7c15);
  return &history->buckets[(mixed >> 32) % HISTORY_BUCKETS];
}

static struct history_entry *find(struct history *history, uid_t uid, uint64_t command_hash) {
  list_each(node, bucket_of(history, uid, command_hash)) {
    struct history_entry *entry = list_entry(node, struct history_entry, bucket_link);
    if (entry->uid == uid && entry->command_hash == command_hash)
      return entry;
  }
  return NULL;
}

static void touch(struct history *history, struct history_entry *entry) {
  list_remove(&entry->used_link);
  list_append(&history->used, &entry->used_link);
  user_shares_renew(&entry->owned);
}

static void forget(struct history *history, struct history_entry *entry) {
  list_remove(&entry->used_link);
  list_remove(&entry->bucket_link);
  user_shares_remove(&history->shares, &entry->owned);
  free(entry);
  history->count--;
}

/* Without memory nothing is learnt: that is no error. */
static void begin(struct history *history, uid_t uid, uint64_t command_hash, uint64_t gpu_ns) {
  struct history_entry *entry = malloc(sizeof *entry);
  if (!entry)
    return;
  *entry = (struct history_entry){.uid = uid, .command_hash = command_hash, .expected_ns = gpu_ns};
  if (user_shares_add(&history->shares, uid, &entry->owned) < 0) {
    free(entry);
    return;
  }
  list_append(&history->used, &entry->used_link);
  list_append(bucket_of(history, uid, command_hash), &entry->bucket_link);
  if (++history->count > HISTORY_MAX)
    forget(history, list_entry(user_shares_surplus(&history->shares), struct history_entry, owned));
}

void history_init(struct history *history) {
  history->count = 0;
  user_shares_init(&history->shares, HISTORY_MAX + 1);
  list_init(&history->used);
  for (size_t i = 0; i < HISTORY_BUCKETS; i++)
    list_init(&history->buckets[i]);
}

void history_end(struct history *history) {
  while (history->count > 0)
    forget(history, list_entry(list_first(&history->used), struct history_entry, used_link));
  user_shares_end(&history->shares);
}

static void learn(struct history *history, uid_t uid, uint64_t command_hash, uint64_t ns, bool added) {
  struct history_entry *entry = find(history, uid, command_hash);
  if (!entry) {
    begin(history, uid, command_hash, ns);
    return;
  }
  entry->expected_ns = added ? entry->expected_ns / 2 + ns / 2 : ns;
  touch(history, entry);
}

void history_add(struct history *history, uid_t uid, uint64_t command_hash, uint64_t gpu_ns) {
  if (command_hash != 0 && gpu_ns > HISTORY_RUN_MIN_NS)
    learn(history, uid, command_hash, gpu_ns, true);
}

void history_put(struct history *history, uid_t uid, uint64_t command_hash, uint64_t expected_ns) {
  learn(history, uid, command_hash, expected_ns, false);
}

uint64_t history_expected_ns(struct history *history, uid_t uid, uint64_t command_hash) {
  struct history_entry *entry = command_hash ? find(history, uid, command_hash) : NULL;
  if (!entry)
    return 0;
  touch(history, entry);
  return entry->expected_ns;
}
