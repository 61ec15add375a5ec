/* rate_growth.c - from counters that somebody else writes to what has happened in a tick. */
#include "core/rate_internal.h"

/* More than a machine can do: calls of a thousand threads, kernels of 128 streams at once; more threads than
 * a program has. */
#define SUBMISSIONS_PER_NS 1.0
#define STREAMS 128.0
#define THREADS 1e5
#define LATE_NS 1e9 /* a job may bring its counters up to date by so much later than it should */

static double grown(uint64_t now, uint64_t last, double most, bool *sane) {
  double grown = (double)(now - last);
  if (now < last || grown > most)
    *sane = false;
  return *sane ? grown : 0;
}

void growth_take(struct rate_job *job, uint64_t elapsed_ns) {
  const struct rate_counters *now = &job->now, *last = &job->last;
  double elapsed = (double)elapsed_ns, most = STREAMS * elapsed;
  bool sane = job->told;
  struct rate_growth growth = {
      .elapsed_ns = elapsed,
      .idle = now->idle,
      .told_ns = grown(now->at_ns, last->at_ns, elapsed + LATE_NS, &sane),
      .submissions = grown(now->submissions, last->submissions, SUBMISSIONS_PER_NS * elapsed, &sane),
      .sampled_ns = grown(now->sampled_ns, last->sampled_ns, most, &sane),
      .expected_ns = grown(now->expected_ns, last->expected_ns, most, &sane),
      .busy_ns = grown(now->busy_ns, last->busy_ns, most, &sane),
      .service_ns = grown(now->service_ns, last->service_ns, elapsed + LATE_NS, &sane),
      .served = grown(now->served, last->served, SUBMISSIONS_PER_NS * (elapsed + LATE_NS), &sane),
      .waited_ns = grown(now->waited_ns, last->waited_ns, elapsed + LATE_NS, &sane),
      .throttled_ns = grown(now->throttled_ns, last->throttled_ns, THREADS * elapsed, &sane),
  };
  job->growth = sane ? growth : (struct rate_growth){.elapsed_ns = elapsed, .idle = now->idle};
  job->growth.sane = sane;
  job->last = job->now;
  job->told = true;
}
