/* daemon.h - the daemon's state beside its sockets, and what can happen to it. */
#ifndef GS_DAEMON_H
#define GS_DAEMON_H

#include <limits.h>
#include <malloc.h>

#include "common/clock.h"
#include "core/scheduler.h"
#include "server/cards.h"
#include "server/clients.h"
#include "server/hook.h"
#include "server/kept.h"
#include "server/mps.h"
#include "server/overrides.h"
#include "server/peer.h"
#include "server/rates.h"
#include "server/record.h"
#include "server/state.h"
#include "server/terms.h"

/* More GPUs than a host has, MIG instances included: what a client claims must have a bound. */
#define DAEMON_GPUS_MAX 256u

/* How much is kept of what has happened: 8 MiB; and of runs that have ended. */
#define DAEMON_EVENTS (UINT64_C(1) << 16)
#define DAEMON_RUNS KEPT_RUNS
#define DAEMON_USAGE KEPT_USAGE

/* A walk over all GPUs and their jobs, which may come and go before it is over. */
struct walk {
  const struct list *gpus;
  struct list *gpu_node; /* where it goes on: in the list of GPUs, */
  struct list *job_node; /* and in the list of its jobs; NULL: with the GPU itself */
};

static inline void walk_begin(struct walk *walk, const struct list *gpus) {
  *walk = (struct walk){.gpus = gpus, .gpu_node = gpus->next};
}

/* What is next: a GPU, then each of its jobs. False: that was all. */
static inline bool walk_next(struct walk *walk, struct sched_gpu **gpu, struct sched_job **job) {
  while (walk->gpu_node != walk->gpus) {
    *gpu = list_entry(walk->gpu_node, struct sched_gpu, link);
    *job = NULL;
    if (!walk->job_node) {
      walk->job_node = (*gpu)->jobs.next;
      return true;
    }
    if (walk->job_node != &(*gpu)->jobs) {
      *job = list_entry(walk->job_node, struct sched_job, link);
      walk->job_node = walk->job_node->next;
      return true;
    }
    walk->gpu_node = walk->gpu_node->next;
    walk->job_node = NULL;
  }
  return false;
}

/* On to the next GPU. Caller must: have been given this one just now. */
static inline void walk_skip_jobs(struct walk *walk, struct sched_gpu *gpu) { walk->job_node = &gpu->jobs; }

/* The job, or the GPU, is about to leave. */
static inline void walk_on_detach(struct walk *walk, const struct sched_job *job) {
  if (walk->job_node == &job->link)
    walk->job_node = job->link.next;
}

static inline void walk_on_forget(struct walk *walk, const struct sched_gpu *gpu) {
  if (walk->gpu_node != &gpu->link)
    return;
  walk->gpu_node = gpu->link.next;
  walk->job_node = NULL;
}

/* A picture of the state, as far as it has been made (status.c). */
struct status {
  bool looking;        /* at processes, before anything is described */
  unsigned looks;      /* left */
  uint64_t number;     /* of this one */
  struct gs_msg *msgs; /* NULL: there was no memory */
  size_t count, room;
  struct walk walk;
};

/* Clients by job. */
#define DAEMON_CLIENT_BUCKETS 1024

struct daemon {
  struct scheduler scheduler; /* first: a GPU's scheduler is the daemon's */
  struct overrides overrides; /* of single GPUs, also those yet to come */
  struct sched_settings configured_general;
  struct overrides configured_overrides;
  struct kept kept; /* decisions, and processes that may come back (keep.h) */
  struct state *state, *ending;
  struct list held;   /* keep.c: answers that wait for the disk, the first one first */
  bool disk_is_slow;  /* as the log says */
  struct cards cards; /* of this host */
  struct card_query card_query;
  struct card_watch card_watch;
  struct history history;
  struct record events, runs, usage;
  const struct peer *acting;   /* whose message is being handled; NULL: nobody's */
  struct sched_change actions; /* what clients are to be told */
  unsigned actions_per_event;  /* how many jobs, beside its own, are told at once */
  uid_t actions_uid; /* whose message has left some of these over the last time; LOG_NOBODY: nobody's */
  struct gang_table gangs;
  struct list clients[DAEMON_CLIENT_BUCKETS];   /* peers; */
  struct list processes[DAEMON_CLIENT_BUCKETS]; /* the same by pid */
  struct list unapplied;                        /* peers: clients_apply_terms_soon */
  struct list spoken;    /* peers that have said something since the last plan: they hear first of the next */
  struct list returning; /* peers: keep.c */
  struct status status;
  struct walk metrics_walk; /* metrics/metrics.c */
  struct walk bounds_walk;  /* to jobs that are yet to be given what the bounds leave them */
  bool bounding;
  struct walk usage_walk; /* usage.c: to jobs of which a span may end; from then on */
  uint64_t usage_next_ns;
  enum gs_host_copies host_copies; /* as programs are told */
  struct spatial spatial;
  struct mps mps;
  struct hook hook;
  bool learns; /* from the history */
  uint64_t started_ns, started_realtime_ns;
  uint64_t evict_after; /* graces that a job may be silent for while others wait for it; 0: any number */
  struct list silent;   /* evict.c: attachments, by silent_ns; */
  struct list stayed;   /* and memory of processes that are no jobs any more, */
  uint32_t stayed_count;
  uint64_t stayed_ns;     /* which is looked at then */
  struct list allotments; /* shares.c */
  unsigned allotment_count;
  struct terms_bounds bounds;
  struct user_limits users;
  const struct users *accounts; /* the server's; NULL: none are known */
  uint32_t gpu_count;
  uint32_t client_count;
  uint32_t last_job_id;
  uint64_t registered_count; /* so far */
  uint64_t rejected_counts[GS_REJECT_DEVICE + 1];
  enum gs_presence presence; /* presence.c */
};

static inline struct daemon *daemon_of(const struct scheduler *scheduler) {
  return (struct daemon *)(uintptr_t)scheduler;
}

/* As large as the last kind's number, and one. */
union event_kinds {
#define X(name, value, word) char name[(value) + 1];
  GS_EVENT_KINDS(X)
#undef X
};

/* What a GPU has used, as NVML has told last; and how much of that falls to its jobs (usage.h). */
struct energy {
  uint64_t at_ns, used_mj; /* 0: it has not told */
  uint64_t held_ns;        /* by then, all jobs together */
  uint64_t job_mw; /* mJ for a second in which one job holds the GPU, since the time before; 0: unknown */
};

struct gpu {
  struct sched_gpu sched; /* first: a scheduler's GPU */
  struct energy energy;
  struct rates rates;
  uint32_t number;                                  /* for people: GS_GPU_NUMBER */
  bool known;                                       /* the host's cards have it */
  uid_t brought_by;                                 /* otherwise: whose program has named it first */
  struct claims claims;                             /* what programs say that it is */
  bool turns_told;                                  /* events.h: that turns are taken */
  uint64_t event_counts[sizeof(union event_kinds)]; /* of its jobs, by kind */
};

static inline struct gpu *gpu_of(const struct sched_gpu *gpu) { return (struct gpu *)(void *)gpu; }

/* What has moved since then, and has not been written down (events.h). */
struct moves {
  uint64_t since_ns, until_ns;
  uint64_t evicted_bytes, restored_bytes;
};

/* What the last event has told. */
struct told {
  uint64_t used_bytes;
  enum gs_limited limited;
  uint64_t limit;
};

/* What a job has had of the GPU until then (usage.h). */
struct usage {
  uint64_t until_ns;
  uint64_t held_ns, gpu_ns, waited_ns, moved_bytes;
  uint64_t energy_mj; /* of the GPU while the job held it, about */
};

/* A client on a GPU. */
struct attachment {
  struct sched_job job; /* owner: this attachment */
  struct moves moves;
  struct told told;
  uint64_t began_ns;          /* it has been there since then */
  struct usage kept, counted; /* as its last span has ended; as its user has been told of it */
  struct rates_job rates;
  struct peer *peer;
  uint32_t index;                       /* the client's own, of the GPU */
  struct gs_pass pass;                  /* how memory is passed to it */
  uint64_t passes_to;                   /* pass.name of the job that it was told to pass memory to; 0: none */
  struct gang *gang;                    /* NULL: none */
  bool apart;                           /* its gang has another job on this GPU */
  uint32_t abilities;                   /* GS_STATE_PREEMPTS and OWN_CONTEXT, as it says */
  uint64_t kind_bytes[GS_PINNED_COUNT]; /* of what it has pinned, as it says */
  uint64_t copies_bytes;                /* in host memory, of what it has on the card, as it says */
  /* evict.c */
  struct list silent_link;
  uint64_t silent_epoch, silent_ns;
};

static inline struct attachment *attachment_of(const struct sched_job *job) { return job->owner; }

/* What the job has pinned, by enum gs_pinned. The sum is pinned_bytes, whatever the job has told. */
static inline void attachment_pinned(const struct attachment *attachment,
                                     uint64_t kind_bytes[GS_PINNED_COUNT]) {
  uint64_t left_bytes = attachment->job.pinned_bytes;
  for (int kind = GS_PINNED_OTHER + 1; kind < GS_PINNED_COUNT; kind++) {
    uint64_t told_bytes = attachment->kind_bytes[kind];
    kind_bytes[kind] = told_bytes < left_bytes ? told_bytes : left_bytes;
    left_bytes -= kind_bytes[kind];
  }
  kind_bytes[GS_PINNED_OTHER] = left_bytes;
}

static inline struct daemon *daemon_with(const struct attachment *attachment) {
  return daemon_of(attachment->job.gpu->scheduler);
}

static inline struct rates *rates_of(const struct attachment *attachment) {
  return &gpu_of(attachment->job.gpu)->rates;
}

/*
 * ---- actions.c: what the scheduler wants clients to be told ----
 *
 * Events leave it in daemon->actions. A client hears of its own messages at once, and of all that came before
 * them first; others in turn, so many at most per event: what concerns all jobs of a GPU is told in slices,
 * and each job is told what is true by then.
 */

/* The client is told all that it has not been told yet. */
void actions_tell(struct daemon *daemon, struct peer *client, uint64_t now_ns);

/* So many jobs are, those first that have not been told for longest. */
#define ACTIONS_PER_EVENT 16 /* daemon->actions_per_event */
void actions_tell_some(struct daemon *daemon, unsigned jobs, uint64_t now_ns);

/* What follows from what has happened so far is decided now: for an answer that has to come after it. */
void actions_plan(struct daemon *daemon);

/* All are. */
static inline bool actions_are_told(const struct daemon *daemon) { return list_empty(&daemon->actions.jobs); }

/* ATTACHED or CAPACITY. */
struct gs_msg actions_attached(enum gs_msg_type type, const struct attachment *attachment);

/* What the MEM_REPLY to it says: how far it may grow unasked. */
struct gs_msg actions_granted(const struct attachment *attachment, uint64_t granted_bytes);

/* SHARE, for rates.h. */
rates_tell_f actions_tell_share;

/* ---- messages.c: messages of clients ---- */

void daemon_init(struct daemon *daemon, uint64_t now_ns);

/* Of the process: what has been freed is not given back to the kernel. Why: that takes milliseconds at the
 * end of the last of many jobs, and what users have is bounded by their accounts (users.h). */
static inline void daemon_keep_heap(void) {
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_MMAP_THRESHOLD, 32 << 20); /* setting one ends glibc's own choice of the other: its most */
}

/* All peers are gone. */
void daemon_end(struct daemon *daemon);

/* A message, checked by wire_check, from a peer that is not closed. */
void daemon_on_message(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns);

/* What follows from messages is decided, once for all since the last time: where the scheduler's plans are
 * deferred. At the cost of this user, whose messages they are. */
void daemon_plan(struct daemon *daemon, uid_t by);

/* What peer_check_presence has left open: it may attach so, or not. */
void daemon_on_presence(struct daemon *daemon, struct peer *peer, const struct gs_msg *attach,
                        enum presence_verdict verdict, uint64_t now_ns);

/* A packet that wire_check refused with this error. */
void daemon_on_bad_message(struct daemon *daemon, struct peer *peer, int error);

/* The peer is closed; its jobs leave, one at a time: each is an event that others may have to be told of.
 * False: once more. */
bool daemon_on_gone(struct daemon *daemon, struct peer *peer, uint64_t now_ns);

uint64_t daemon_deadline_ns(const struct daemon *daemon);
void daemon_on_time(struct daemon *daemon, uint64_t now_ns);

/* Clients by process. */
static inline struct list *daemon_process_bucket(struct daemon *daemon, pid_t pid) {
  return &daemon->processes[(unsigned)pid % DAEMON_CLIENT_BUCKETS];
}

/* The next client of the same process as this one, which is among them; after NULL the first one. */
static inline struct peer *daemon_next_of_process(struct daemon *daemon, const struct peer *peer,
                                                  const struct peer *after) {
  struct list *bucket = daemon_process_bucket(daemon, peer->pid);
  const struct list *node = after ? &after->process_link : bucket;
  while ((node = node->next) != bucket) {
    struct peer *other = list_entry(node, struct peer, process_link);
    if (other->pid == peer->pid && other->uid == peer->uid && other->start_ticks == peer->start_ticks &&
        (peer->start_ticks || peer == other))
      return other;
  }
  return NULL;
}

/* ---- gpus.c ---- */

/* A GPU that is refused may be asked for again after so long. */
#define GPUS_REFUSED_NS (30 * NS_PER_S)

/* The host's cards are these from now on. Those that nobody uses are there, too; what is no card of the host
 * goes with its last job. */
void gpus_on_cards(struct daemon *daemon, const struct cards *cards, uint64_t now_ns);

/* When to ask again for a GPU that is refused. If the host does not tell of it, it is asked again. */
uint64_t gpus_retry_ns(struct daemon *daemon, const uint8_t uuid[GS_UUID_SIZE], uint64_t now_ns);

/* The GPU that a peer's ATTACH names, or NULL. retry_ns then: when to ask for it again; 0: no memory. */
struct sched_gpu *gpus_provide(struct daemon *daemon, const struct peer *peer, const struct gs_msg *msg,
                               uint64_t now_ns, uint64_t *retry_ns);

/* Before the job that names it is attached, and when it has been detached: what the ATTACH says of the GPU
 * counts in between. */
void gpus_enter(struct daemon *daemon, struct sched_gpu *gpu, const struct peer *peer,
                const struct gs_msg *msg, uint64_t now_ns);
void gpus_leave(struct daemon *daemon, struct sched_gpu *gpu, const struct peer *peer, uint64_t now_ns);

/* For card_query.is_job: a program of this number is connected. `of`: the daemon. */
bool gpus_have_job(void *of, pid_t pid);

/* Overrides for numbers become those of the cards that have them. True: there are some. */
bool gpus_find_numbered(struct overrides *overrides, const struct cards *cards);

/* Give all of them the sizes that follow from the overrides. */
void gpus_settle(struct daemon *daemon, uint64_t now_ns);

/* What rates.h has to do for any of them. */
uint64_t gpus_deadline_ns(const struct daemon *daemon);
void gpus_on_time(struct daemon *daemon, uint64_t now_ns);

/* What is in use on those that sched_gpu_is_watched(). */
uint64_t gpus_watch_deadline_ns(const struct daemon *daemon);
void gpus_watch_on_time(struct daemon *daemon, uint64_t now_ns);

/* They have no jobs any more. */
void gpus_end(struct daemon *daemon);

/* ---- control.c: messages of gpusharectl, and of programs that ask whether they are to use MPS ---- */

void control_on_message(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns);

void daemon_on_ask_spatial(struct daemon *daemon, struct peer *peer, const struct gs_msg *ask);

/* ---- evict.c: jobs that lose their place: a person says so, or they have been silent for too long ---- */

/* The client's connection ends, and its jobs leave their GPUs. Its program may come again as any other. by:
 * who has said so; NULL: nobody. */
void evict_client(struct daemon *daemon, struct peer *client, const struct peer *by, uint64_t now_ns);

/* The job has not stopped within the grace, and others wait for it: it has some more graces for that. */
void evict_watch(struct attachment *attachment, uint64_t now_ns);

/* The job of an evicted client has been detached: so much of its memory is on the card still, until its
 * process ends, or comes back there. */
void evict_leave_bytes(struct daemon *daemon, struct sched_gpu *gpu, const struct peer *peer, uint64_t bytes,
                       uint64_t now_ns);

/* Before the peer's job is attached to the GPU: what is known of its memory is what it tells. */
void evict_return(struct daemon *daemon, struct sched_gpu *gpu, const struct peer *peer, uint64_t now_ns);

/* Nobody comes back any more. */
void evict_end(struct daemon *daemon);

uint64_t evict_deadline_ns(const struct daemon *daemon);
void evict_on_time(struct daemon *daemon, uint64_t now_ns);

/* ---- status.c ---- */

/* STATUS_DAEMON; a STATUS_GPU, its STATUS_HANDOVER and STATUS_CARD, and a STATUS_JOB, STATUS_TERMS,
 * STATUS_WAIT, STATUS_ORIGIN and STATUS_MEMORY of each of its jobs, for each GPU; STATUS_END. In slices: each
 * is true when it was made. */
void status_begin(struct daemon *daemon, uint64_t now_ns);

/* Until the clock shows until_ns, or it is complete: true. */
bool status_go_on(struct daemon *daemon, uint64_t now_ns, uint64_t until_ns);

/* What has been made, from malloc; NULL: no memory, or nothing was begun. */
struct gs_msg *status_take(struct daemon *daemon, size_t *count);

/* All of these at once. */
struct gs_msg *status_collect(struct daemon *daemon, uint64_t now_ns, size_t *count);

/* The job, or the GPU, is about to leave. */
void status_on_detach(struct daemon *daemon, const struct sched_job *job);
void status_on_forget(struct daemon *daemon, const struct sched_gpu *gpu);

/* The GPUs are in another order: a picture that is being made is begun anew. */
void status_on_order(struct daemon *daemon, uint64_t now_ns);

#endif
