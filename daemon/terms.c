/* terms.c - what a client's jobs are given. */
#include "terms.h"

#include "common/parse.h"

static void set_field(struct sched_terms *terms, enum gs_term term, uint64_t value) {
  switch (term) {
  case GS_TERM_WEIGHT:
    terms->weight = (uint32_t)value;
    break;
  case GS_TERM_PRIORITY:
    terms->priority = (int32_t)(int64_t)value;
    break;
  case GS_TERM_EXPECTED:
    terms->expected_ns = value;
    break;
  case GS_TERM_LIMIT:
    terms->limit_bytes = value;
    break;
  }
}

static bool is_set(const struct terms *terms, enum gs_term term) { return terms->set_fields >> term & 1; }

struct sched_terms terms_of(const struct terms *terms) {
  struct sched_terms given = terms->declared;
  if (given.weight == 0)
    given.weight = SCHED_WEIGHT;
  if (given.expected_ns == 0)
    given.expected_ns = terms->learnt_ns;
  if (is_set(terms, GS_TERM_WEIGHT))
    given.weight = terms->set.weight;
  if (is_set(terms, GS_TERM_PRIORITY))
    given.priority = terms->set.priority;
  if (is_set(terms, GS_TERM_EXPECTED))
    given.expected_ns = terms->set.expected_ns;
  if (is_set(terms, GS_TERM_LIMIT))
    given.limit_bytes = terms->set.limit_bytes;
  return given;
}

static int32_t cut_priority(int32_t priority) {
  if (priority > SCHED_PRIORITY_MAX)
    return SCHED_PRIORITY_MAX;
  return priority < -SCHED_PRIORITY_MAX ? -SCHED_PRIORITY_MAX : priority;
}

void terms_declare(struct terms *terms, const struct gs_msg *msg) {
  uint32_t weight = msg->declare.weight;
  terms->declared = (struct sched_terms){.weight = weight < SCHED_WEIGHT_MAX ? weight : SCHED_WEIGHT_MAX,
                                         .priority = cut_priority(msg->declare.priority),
                                         .expected_ns = msg->declare.expected_ns,
                                         .limit_bytes = msg->declare.limit_bytes};
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
  case GS_TERM_EXPECTED:
  case GS_TERM_LIMIT:
    return NULL;
  default:
    return "there is no such term of a job";
  }
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
    return !terms->limit_stands || given.limit_bytes == 0 || (value > 0 && value <= given.limit_bytes);
  default:
    return true;
  }
}

void terms_set(struct terms *terms, const struct gs_msg *msg, bool by_owner) {
  enum gs_term term = (enum gs_term)msg->set_terms.term;
  set_field(&terms->set, term, msg->set_terms.value);
  terms->set_fields |= 1u << term;
  if (term == GS_TERM_LIMIT && !by_owner)
    terms->limit_stands = true;
}
