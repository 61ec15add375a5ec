/*
 * exporter.h - the daemon's metrics over HTTP, from within its event loop: a text is made when it is asked
 * for, at most every so often.
 */
#ifndef GS_EXPORTER_H
#define GS_EXPORTER_H

#include "server/daemon.h"

#define EXPORTER_NEVER UINT64_MAX

struct exporter;

/* At this address (config.h). NULL, after a line in the log: the daemon does without. */
struct exporter *exporter_open(struct daemon *daemon, const char *address);
void exporter_close(struct exporter *exporter);

/* The address that it was opened with. */
const char *exporter_address(const struct exporter *exporter);

/* A descriptor that becomes readable when there is something to do; it stays the exporter's. */
int exporter_fd(const struct exporter *exporter);

/* When there is something to do in any case; EXPORTER_NEVER. */
uint64_t exporter_deadline_ns(const struct exporter *exporter);

/* Do what there is to do. */
void exporter_run(struct exporter *exporter, uint64_t now_ns);

#endif
