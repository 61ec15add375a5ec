/*
 * log_for.h - lines of the log that others cause. Each user has a bucket per kind of line: so many at once,
 * then one from time to time. What is beyond that is counted, and the number is a line of its own. So nobody
 * fills the log, nor the ring in which others' lines wait (log_ring.h).
 *
 * The kind of a line is its format, by its address: one call is one kind. Number and age of the buckets are
 * bounded: where all are in use, the lines of the remaining users share one.
 *
 * Threading: the event loop's.
 */
#ifndef GS_LOG_FOR_H
#define GS_LOG_FOR_H

#include <stdint.h>
#include <sys/types.h>

#include "common/clock.h"
#include "common/log.h"

#define LOG_FOR_BURST 20                /* at once */
#define LOG_FOR_INTERVAL_NS NS_PER_S    /* then one per */
#define LOG_FOR_TELL_NS (10 * NS_PER_S) /* of what is left out, how much */
#define LOG_FOR_BUCKETS 256u
#define LOG_NOBODY ((uid_t)-1) /* a peer has caused it, and it is not known whose */

void log_for(uid_t uid, enum log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* When what is left out is to be told next; UINT64_MAX: nothing is left out. */
uint64_t log_for_deadline_ns(void);
void log_for_on_time(uint64_t now_ns);

/* Tell it now. */
void log_for_end(void);

#endif
