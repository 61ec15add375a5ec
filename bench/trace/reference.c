/*
 * reference.c - the paper's four policies as they would be without any cost: what is attainable, and
 * something to judge the daemon's core by. Not ours, and in no daemon: a hand-over takes no time here, and
 * turns are as short as one likes.
 */
#include <stdlib.h>

#include "common/clock.h"
#include "trace/trace.h"

#define TURN_NS NS_PER_S

struct reference {
  const struct rules *rules;
  struct machine_job *jobs[TRACE_JOBS]; /* present, as they arrived */
  unsigned count;
  uint64_t turn_ends_ns;
};

struct rules {
  /* Set `runs` of all present jobs; there is at least one. */
  void (*choose)(struct reference *reference);
  bool takes_turns;
};

/* ---- the policies ---- */

static void run_one(struct reference *reference, struct machine_job *chosen) {
  for (unsigned i = 0; i < reference->count; i++)
    reference->jobs[i]->runs = reference->jobs[i] == chosen;
}

/* One after the other: each to its end, or for a turn, after which it is the last (expire). */
static void choose_first(struct reference *reference) { run_one(reference, reference->jobs[0]); }

/* Shortest remaining time first. */
static void choose_shortest(struct reference *reference) {
  struct machine_job *shortest = reference->jobs[0];
  for (unsigned i = 1; i < reference->count; i++)
    if (reference->jobs[i]->left_ns < shortest->left_ns)
      shortest = reference->jobs[i];
  run_one(reference, shortest);
}

/* As many at once as fit, in the order of arrival; who runs stays. */
static void choose_fitting(struct reference *reference) {
  uint64_t free_bytes = GPU_BYTES;
  for (unsigned i = 0; i < reference->count; i++)
    free_bytes -= reference->jobs[i]->runs ? reference->jobs[i]->job->peak_bytes : 0;
  for (unsigned i = 0; i < reference->count; i++) {
    struct machine_job *job = reference->jobs[i];
    if (job->runs || job->job->peak_bytes > free_bytes)
      continue;
    job->runs = true;
    free_bytes -= job->job->peak_bytes;
  }
}

/* ---- events ---- */

static void choose(struct reference *reference) {
  if (reference->count > 0)
    reference->rules->choose(reference);
}

static void *begin(const void *rules) {
  struct reference *reference = calloc(1, sizeof *reference);
  if (!reference)
    abort();
  reference->rules = rules;
  return reference;
}

static void end(void *state) { free(state); }

static void arrive(void *state, struct machine_job *job, uint64_t now_ns) {
  struct reference *reference = state;
  reference->jobs[reference->count++] = job;
  if (reference->count == 1)
    reference->turn_ends_ns = now_ns + TURN_NS;
  choose(reference);
}

static void take_out(struct reference *reference, const struct machine_job *job) {
  unsigned place = 0;
  while (reference->jobs[place] != job)
    place++;
  reference->count--;
  for (unsigned i = place; i < reference->count; i++)
    reference->jobs[i] = reference->jobs[i + 1];
}

static void finish(void *state, struct machine_job *job, uint64_t now_ns) {
  struct reference *reference = state;
  take_out(reference, job);
  reference->turn_ends_ns = now_ns + TURN_NS;
  choose(reference);
}

static uint64_t deadline_ns(const void *state) {
  const struct reference *reference = state;
  return reference->rules->takes_turns && reference->count > 1 ? reference->turn_ends_ns : POLICY_NEVER;
}

/* The first one's turn is over. */
static void expire(void *state, uint64_t now_ns) {
  struct reference *reference = state;
  struct machine_job *job = reference->jobs[0];
  take_out(reference, job);
  reference->jobs[reference->count++] = job;
  reference->turn_ends_ns = now_ns + TURN_NS;
  choose(reference);
}

static const struct policy_engine engine = {.prefix = "reference_",
                                            .begin = begin,
                                            .end = end,
                                            .arrive = arrive,
                                            .finish = finish,
                                            .deadline_ns = deadline_ns,
                                            .expire = expire};

const struct policy_under_test reference_policies[] = {
    {"fifo", &engine, &(const struct rules){.choose = choose_first}},
    {"srtf", &engine, &(const struct rules){.choose = choose_shortest}},
    {"pack", &engine, &(const struct rules){.choose = choose_fitting}},
    {"fair", &engine, &(const struct rules){.choose = choose_first, .takes_turns = true}},
    {0},
};
