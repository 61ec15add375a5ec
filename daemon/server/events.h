/*
 * events.h - what is written in the daemon's records: what happens to programs, to jobs on GPUs, and to
 * GPUs.
 *
 * Called where it happens: messages.c for what clients do, actions.c for what they are told, control.c and
 * daemon_main.c for what persons change. Nothing is decided by what is written here.
 */
#ifndef GS_EVENTS_H
#define GS_EVENTS_H

#include "server/daemon.h"

/* STARTED, COMMAND; and, when its jobs have left, ENDED, which also goes to the list of runs if it has
 * been on a GPU. */
void events_on_start(struct daemon *daemon, const struct peer *peer, uint64_t now_ns);
void events_on_command(struct daemon *daemon, const struct peer *peer, uint64_t now_ns);
void events_on_end(struct daemon *daemon, const struct peer *peer, uint64_t now_ns);

/* An event with struct turn, about a job on a GPU. */
struct job_event {
  enum gs_event_kind kind;
  uint16_t detail;
  uint64_t epoch, bytes, ns, until_ns;
};
void events_on_job(struct attachment *attachment, const struct job_event *event, uint64_t now_ns);

/* MEMORY, if its memory has changed much since its last event. */
void events_on_memory(struct attachment *attachment, uint64_t now_ns);

/* Memory may move from now on, if it does not already; and has moved, since then or the last time. EVICTED
 * and RESTORED are written once per move, or per second of it. */
void events_expect_moves(struct attachment *attachment, uint64_t now_ns);
void events_on_moves(struct attachment *attachment, uint64_t evicted_bytes, uint64_t restored_bytes,
                     uint64_t now_ns);

/* What has moved so far is written at once: something else happens to the job. */
void events_end_moves(struct attachment *attachment, uint64_t now_ns);

/* The job runs: a hand-over has ended with that. */
void events_on_handover(const struct attachment *attachment, uint64_t now_ns);

/* TURNS, if they have begun or ended. */
void events_on_turns(struct sched_gpu *gpu, uint64_t now_ns);

/* LIMIT, if its limit has another reason now, or has changed by more than a quarter. */
void events_on_limit(struct attachment *attachment, uint64_t now_ns);

/* TERM, for each in which they differ: set by the peer whose message is being handled. */
void events_on_terms(const struct attachment *attachment, const struct sched_terms *before, uint64_t now_ns);

/* EXPELLED. by NULL: nobody, it was silent. */
void events_on_expulsion(const struct attachment *attachment, const struct peer *by, uint64_t now_ns);

/* SETTING. gpu NULL: of all. by NULL: the configuration, or a signal. */
void events_on_setting(struct daemon *daemon, struct sched_gpu *gpu, unsigned type, uint64_t value,
                       const struct peer *by, uint64_t now_ns);
void events_on_reload(struct daemon *daemon, uint64_t now_ns);

#endif
