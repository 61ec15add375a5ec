/* metrics.c - the figures of a run. */
#include "trace/metrics.h"

#include "common/clock.h"
#include "quantile.h"

static double minutes(uint64_t ns) { return (double)ns / (double)(60 * NS_PER_S); }

struct row row_of(const struct trace *trace, const struct outcome *outcome) {
  double jcts[TRACE_JOBS_MAX];
  struct row row = {0};
  for (unsigned i = 0; i < trace->count; i++) {
    uint64_t arrives_ns = trace->jobs[i].arrives_ns, ended_ns = outcome->ended_ns[i];
    jcts[i] = minutes(ended_ns - arrives_ns);
    row.jct += jcts[i] / trace->count;
    row.queuing += minutes(outcome->began_ns[i] - arrives_ns) / trace->count;
    if (row.makespan < minutes(ended_ns))
      row.makespan = minutes(ended_ns);
  }
  row.jct_95 = quantile(jcts, trace->count, 0.95);
  return row;
}
