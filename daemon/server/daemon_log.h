/*
 * daemon_log.h - lines of the log that others cause. Each user has a bucket per kind of line: so many at
 * once, then one from time to time. What is beyond that is counted, and the number is a line of its own. So
 * nobody fills the log, nor the ring in which others' lines wait (below).
 *
 * The kind of a line is its format, by its address: one call is one kind. Number and age of the buckets are
 * bounded: where all are in use, the lines of the remaining users share one.
 *
 * Threading: the event loop's.
 */
#ifndef GS_DAEMON_LOG_H
#define GS_DAEMON_LOG_H

#include <stdbool.h>
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
 * configuration. Why not getpwuid: it may ask a network service, for each line of the log. Users of such a
 * service have a number.
 */

#define USER_NAMES_PATH "/etc/passwd"

struct user_names {
  struct user_name *entries; /* from malloc */
  size_t count;
};

/* Those of this file; if it can't be read, there are none. One thread at a time, any. */
struct user_names user_names_read(const char *path);

void user_names_free(struct user_names *names);

/* They replace those that were known. */
void user_names_use(const struct user_names *names);

/* NULL: not known. */
const char *user_names_find(uid_t uid);

/*
 * ---- the ring ----
 *
 * The log never holds the event loop up: lines wait in a ring of bounded size for a thread that alone writes
 * to stderr, and alone waits for it.
 *
 * Why a thread: whoever holds the other end of a pipe or a terminal may stop reading, a file may be on a
 * network, and stderr's O_NONBLOCK is shared with the shell and others. Nothing but another thread makes each
 * of these harmless.
 *
 * Threading: all but the thread itself is for the event loop's thread.
 */

#define LOG_RING_LINES 1024u

/* Lines go through the ring from now on. One that finds it full is lost, and the next one says how many were.
 * Where no thread can be started, lines are written as before, after one that says so. */
void log_ring_start(void);

/* Waits until all lines are written, but not beyond that time (clock.h). False: they are not. */
bool log_ring_flush(uint64_t end_ns);

/* Likewise; then lines are written as before, if all were. */
void log_ring_end(uint64_t end_ns);

#endif
