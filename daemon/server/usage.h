/*
 * usage.h - accounts of GPUs: what each job has had of a GPU, in spans of time, which are kept (keep.h).
 *
 * A span ends when its job leaves the GPU, and from time to time while it is there: so a daemon that is
 * killed loses little, and sums over a week need no more than adding up. Who reads accounts is told of spans
 * that go on as well. What a user's jobs have had is counted every minute (users.h), for the metrics.
 */
#ifndef GS_USAGE_H
#define GS_USAGE_H

#include "server/daemon.h"

/* A span is an eighth as long as what was before it, within these bounds: so much is lost at most. */
#define USAGE_PART 8
#define USAGE_SHORT_NS (60 * NS_PER_S)
#define USAGE_LONG_NS (60 * USAGE_SHORT_NS)

/* The job has just been attached. */
void usage_begin(struct attachment *attachment, uint64_t now_ns);

/* Its span ends here, and the next one begins. One in which it has had nothing, and has not waited, is not
 * kept. */
void usage_end_span(struct attachment *attachment, uint64_t now_ns);

/* The daemon ends: all spans do. */
void usage_end(struct daemon *daemon, uint64_t now_ns);

/* For a reader of accounts, who has had all spans of the record so far. What the job after the place has had
 * since its last span ended becomes a span, until now, numbered 0: its account is not touched, and the span
 * goes on. 1; 0: there was none to tell at this place; -ENODATA: all have been told. The place moves on, and
 * is 0 at first. */
int usage_tell_next(struct daemon *daemon, struct usage_place *place, uint64_t now_ns, struct gs_msg *span);

/* The span of a record is of a job before the place: what the reader has not had of it is later than what it
 * was told. */
bool usage_is_told(const struct usage_place *place, const struct gs_msg *span);

/* What cards do has been read. The energy that a GPU has used since the time before falls to the jobs that
 * held it: all of it to one that held it all the time. Until the next reading jobs are counted by that. */
void usage_on_readings(struct daemon *daemon, uint64_t now_ns);

uint64_t usage_deadline_ns(const struct daemon *daemon);
void usage_on_time(struct daemon *daemon, uint64_t now_ns);

#endif
