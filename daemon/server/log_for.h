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
#include "server/daemon.h"

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

/*
 * ---- names ----
 *
 * How GPUs, jobs and people are called in the log. What is returned is a value: f(label_job(peer).text).
 */

struct log_text {
  char text[144];
};

/* "alice (uid 1000, pid 4711, gpusharectl)": the process at the other end. */
struct log_text label_peer(const struct peer *peer);

/* Likewise, of one that is not connected, and is called so; "": that is not known. */
struct log_text label_process(uid_t uid, pid_t pid, const char *process);

/* "job 12 (pid 345, train.py, of bob)" */
struct log_text label_job(const struct peer *client);

/* "GPU 2 (NVIDIA H200, 0000:65:00.0)", or "GPU 2 (NVIDIA H200, GPU-1a2b3c4d)" where its place is not known;
 * NULL: "all GPUs". */
struct log_text label_gpu(const struct sched_gpu *gpu);

/*
 * ---- names of users ----
 *
 * What the users of this machine are called, for the log: by /etc/passwd, read at the start and with the
 * configuration. Why not getpwuid: it may ask a network service, and the event loop would wait. Users of
 * such a service have a number.
 */

#define USER_NAMES_PATH "/etc/passwd"

/* Those of this file replace those that were known; if it can't be read, there are none. */
void user_names_read(const char *path);

/* NULL: not known. */
const char *user_names_find(uid_t uid);

#endif
