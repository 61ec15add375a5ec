/* metrics.h - what the paper's table 2 says of a run. */
#ifndef GS_TRACE_METRICS_H
#define GS_TRACE_METRICS_H

#include "trace/machine.h"

/* A row of table 2, in minutes. */
struct row {
  double makespan;
  double queuing; /* from arrival to the first turn, on average */
  double jct;     /* from arrival to the end, on average */
  double jct_95;  /* of 95 % of the jobs at most, interpolated */
};

struct row row_of(const struct trace *trace, const struct outcome *outcome);

#endif
