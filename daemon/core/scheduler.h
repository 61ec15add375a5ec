/*
 * scheduler.h - who holds which GPU, for how long, and who must leave: the daemon's decisions.
 *
 * Pure: no sockets, no clock, no threads, no globals, no allocation, no logging. An event goes in together
 * with the time; the state changes; what must be told to whom is left in a change record, which the caller
 * executes (change_next) before the next event. The same events at the same times give the same decisions.
 *
 * The caller owns the memory of GPUs and jobs. A job here is one client on one GPU. All events cost the same
 * however many jobs are attached and idle, but for those that concern every job (serialization begins or
 * ends, capacity or mode changes).
 *
 * Times: now_ns of one monotonic clock, never decreasing from call to call.
 */
#ifndef GS_SCHEDULER_H
#define GS_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/list.h"
#include "gpushare/protocol.h"

#define SCHED_TQ_MIN_NS UINT64_C(1000000)
#define SCHED_NEVER UINT64_MAX
/* No job uses more on one GPU; larger figures from clients are cut, so that sums cannot overflow. */
#define SCHED_BYTES_MAX (UINT64_C(1) << 43)
/* What a memory grant is rounded up to, so that small allocations need no question. */
#define SCHED_SLACK_BYTES (UINT64_C(16) << 20)

struct sched_settings {
  uint64_t tq_ns;
  uint64_t capacity_bytes; /* 0: the whole card */
  enum gs_mode mode;
};

struct scheduler {
  struct list gpus; /* in order of appearance */
  struct sched_settings defaults;
  uint64_t grace_ns;          /* for an answer to DROP_LOCK */
  uint64_t settle_ns;         /* auto: turns, once begun, go on at least so long (against flapping) */
  uint64_t host_memory_bytes; /* how far all jobs together may exceed their cards */
  uint64_t overflow_bytes;    /* how far they do */
};

struct sched_gpu {
  struct list link;
  uint8_t uuid[GS_UUID_SIZE];
  char name[GS_NAME_SIZE];
  struct sched_settings settings;
  uint64_t total_bytes;
  bool serialized;        /* turns are being taken */
  uint64_t serialized_ns; /* since when */
  uint64_t turn_ns;       /* when the present holder's quantum began */
  uint64_t epoch;         /* of the last grant */
  uint32_t last_job;      /* id of who got the last turn; 0: nobody yet */
  struct list jobs;       /* all */
  struct list queue;      /* WAITING, the next one first */
  struct list holders;    /* HOLDING; at most one while serialized */
  struct list dropping;   /* DROPPING, within the grace, the oldest order first */
  struct list overdue;    /* DROPPING, past the grace, and their memory forbids to go on without them */
  uint32_t job_count, waiting_count, holder_count;
  uint64_t used_bytes, pinned_bytes, resident_bytes; /* sums over the jobs */
  uint64_t handovers, moved_bytes;
};

struct sched_job {
  struct sched_gpu *gpu;
  void *owner;      /* the caller's */
  uint32_t id;      /* the caller's, not 0; survives on no other job of the GPU */
  struct list link; /* gpu->jobs */
  struct list turn; /* queue, holders, dropping or overdue */
  struct list todo_link;
  uint32_t todo; /* actions to take, by bit */
  enum gs_job_state state;
  bool managed;     /* memory that survives a grant to somebody else */
  bool wanted_told; /* LOCK_WANTED was sent for this epoch */
  uint32_t flags;   /* GS_STATE_*, as the client says, and OVERDUE */
  uint32_t place;   /* in the queue, from 1, after scheduler_number_queue */
  uint64_t epoch;
  uint64_t since_ns;    /* in this state */
  uint64_t evict_bytes; /* asked for with DROP_LOCK or LOCK_WANTED */
  uint64_t used_bytes, pinned_bytes;
  uint64_t resident_bytes;                                       /* believed to be on the card */
  uint64_t held_ns, waited_ns, turns, moved_bytes, drain_max_ns; /* up to since_ns */
};

/* ---- what the caller must do ---- */

enum sched_action_type { /* in the order in which one job gets them */
                         SCHED_TELL_ATTACHED,
                         SCHED_TELL_CAPACITY,
                         SCHED_TELL_SCHED, /* SCHED_ON or SCHED_OFF: gpu->serialized */
                         SCHED_TELL_LOCK_OK,
                         SCHED_TELL_LOCK_WANTED,
                         SCHED_TELL_DROP_LOCK,
                         SCHED_NOTE_BYPASSED, /* for the log: others go on without this job */
                         SCHED_NOTE_OVERDUE,  /* for the log: does not answer, and others cannot go on */
};

struct sched_action {
  enum sched_action_type type;
  struct sched_job *job;
  uint64_t epoch;       /* LOCK_OK, LOCK_WANTED, DROP_LOCK */
  uint64_t quantum_ns;  /* LOCK_OK; 0: until told otherwise */
  uint64_t evict_bytes; /* LOCK_WANTED, DROP_LOCK */
};

struct sched_change {
  struct list jobs; /* with something to do */
};

void change_init(struct sched_change *change);

/* Take the next action out. False: nothing is left. */
bool change_next(struct sched_change *change, struct sched_action *action);

/* ---- set-up ---- */

void scheduler_init(struct scheduler *scheduler);

/* The GPU, or NULL. */
struct sched_gpu *scheduler_find_gpu(const struct scheduler *scheduler, const uint8_t uuid[GS_UUID_SIZE]);

void scheduler_add_gpu(struct scheduler *scheduler, struct sched_gpu *gpu, const uint8_t uuid[GS_UUID_SIZE],
                       const char *name, uint64_t total_bytes);

/* It has no jobs. */
void scheduler_remove_gpu(struct scheduler *scheduler, struct sched_gpu *gpu);

/* ---- events ---- */

struct sched_attach {
  uint32_t id;
  void *owner;
  uint64_t used_bytes;
  uint32_t flags; /* GS_ATTACH_* */
};

void scheduler_attach(struct scheduler *scheduler, struct sched_gpu *gpu, struct sched_job *job,
                      const struct sched_attach *attach, uint64_t now_ns, struct sched_change *change);

/* The job leaves: it detached, or its process died. Its memory is the caller's again. */
void scheduler_detach(struct scheduler *scheduler, struct sched_job *job, uint64_t now_ns,
                      struct sched_change *change);

void scheduler_request(struct scheduler *scheduler, struct sched_job *job, uint64_t now_ns,
                       struct sched_change *change);

struct sched_release {
  uint64_t epoch;
  uint64_t drain_ns;
  uint64_t evict_bytes;
};

/* A release of another epoch than the job's is ignored. */
void scheduler_release(struct scheduler *scheduler, struct sched_job *job,
                       const struct sched_release *release, uint64_t now_ns, struct sched_change *change);

/* The holder has restored so many bytes. */
void scheduler_active(struct sched_job *job, uint64_t epoch, uint64_t restore_bytes);

/* Why the job does not answer, as it says: GS_STATE_*. */
void scheduler_set_flags(struct sched_job *job, uint32_t flags);

/* The job wants to grow. 0, and what it may reach without asking again; or -ENOMEM. */
int scheduler_memory_request(struct scheduler *scheduler, struct sched_job *job, uint64_t total_bytes,
                             uint64_t pinned_bytes, uint64_t now_ns, struct sched_change *change,
                             uint64_t *granted_bytes);

/* The job has shrunk. (One that says it has grown is believed: the memory is taken already.) */
void scheduler_memory_report(struct scheduler *scheduler, struct sched_job *job, uint64_t total_bytes,
                             uint64_t pinned_bytes, uint64_t now_ns, struct sched_change *change);

/* Settings. gpu NULL: of every GPU, and the default for new ones. */
void scheduler_set_tq(struct scheduler *scheduler, struct sched_gpu *gpu, uint64_t tq_ns, uint64_t now_ns,
                      struct sched_change *change);
void scheduler_set_mode(struct scheduler *scheduler, struct sched_gpu *gpu, enum gs_mode mode,
                        uint64_t now_ns, struct sched_change *change);
void scheduler_set_capacity(struct scheduler *scheduler, struct sched_gpu *gpu, uint64_t bytes,
                            uint64_t now_ns, struct sched_change *change);

/* When scheduler_expire has something to do; SCHED_NEVER. */
uint64_t scheduler_deadline_ns(const struct scheduler *scheduler);

/* Time has passed. */
void scheduler_expire(struct scheduler *scheduler, uint64_t now_ns, struct sched_change *change);

/* ---- figures ---- */

uint64_t sched_gpu_capacity_bytes(const struct sched_gpu *gpu);
uint64_t sched_job_held_ns(const struct sched_job *job, uint64_t now_ns);
uint64_t sched_job_waited_ns(const struct sched_job *job, uint64_t now_ns);

/* Fill in `place` of the waiting jobs; 0 in the others'. */
void scheduler_number_queue(struct sched_gpu *gpu);

#endif
