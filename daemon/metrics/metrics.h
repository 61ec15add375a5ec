/* metrics.h - the daemon's figures for monitoring: what docs/METRICS.md lists. */
#ifndef GS_METRICS_H
#define GS_METRICS_H

#include "daemon.h"
#include "metrics/exposition.h"

/* Of so many jobs on GPUs there are samples of their own, those that came first; all are in their GPU's. */
#define METRICS_JOBS_MAX 512

/* All of them, at this moment. From malloc; NULL: no memory. */
char *metrics_text(const struct daemon *daemon, enum dialect dialect, uint64_t now_ns, size_t *size);

#endif
