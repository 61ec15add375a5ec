/* metrics.h - the daemon's figures for monitoring: what docs/METRICS.md lists. */
#ifndef GS_METRICS_H
#define GS_METRICS_H

#include <stdio.h>

#include "server/daemon.h"

/* Prometheus' text format (0.0.4), and OpenMetrics' (1.0.0), which differs in few places:
 * https://prometheus.io/docs/instrumenting/exposition_formats/ and https://github.com/prometheus/OpenMetrics
 */
enum dialect { DIALECT_PROMETHEUS, DIALECT_OPENMETRICS, DIALECTS };

struct measure;

/* Of so many jobs on GPUs there are samples of their own, those that came first; all are in their GPU's. */
#define METRICS_JOBS_MAX 512
#define METRICS_USERS_MAX 512

/* A text in the making; of a daemon one at a time. It stays where it is. */
struct metrics {
  struct daemon *daemon;
  enum dialect dialect;
  FILE *out;
  char *text;
  size_t size, room;
  unsigned table; /* where it goes on, beside the daemon's metrics_walk: */
  const struct measure *measure;
  unsigned jobs; /* with samples of this measure */
};

/* 0 or -ENOMEM. */
int metrics_begin(struct metrics *metrics, struct daemon *daemon, enum dialect dialect);

/* In slices, each true when it was made. Until the clock shows until_ns, or it is complete: true. */
bool metrics_go_on(struct metrics *metrics, uint64_t now_ns, uint64_t until_ns);

/* What has been made, and the end of it. From malloc; NULL: no memory. */
char *metrics_take(struct metrics *metrics, size_t *size);

/* All at once. */
char *metrics_text(struct daemon *daemon, enum dialect dialect, uint64_t now_ns, size_t *size);

#endif
