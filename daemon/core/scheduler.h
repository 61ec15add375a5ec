/*
 * scheduler.h - who holds which GPU, for how long, and who must leave: the daemon's decisions.
 *
 * Pure: no sockets, no clock, no threads, no globals, no allocation, no logging. An event goes in together
 * with the time; the state changes; what must be told to whom is left in a change record, which the caller
 * executes (change_next): for a job, before the next event that is the job's own word; for others, soon. The
 * same events, and words told, at the same times give the same decisions.
 *
 * The caller owns the memory of GPUs and jobs. A job here is one client on one GPU. All events cost the same
 * however many jobs are attached and idle, but for those that concern every job (serialization begins or
 * ends, capacity or mode changes) and while the card is short of memory (memory_plan.c).
 *
 * Times: now_ns of one monotonic clock, never decreasing from call to call.
 */
#ifndef GS_SCHEDULER_H
#define GS_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "gpushare/protocol.h"

/* Instead of a quantum: as short as hand-overs allow (facts.c). */
#define SCHED_TQ_AUTO 0
#define SCHED_LOSS_PERMILLE 50
#define SCHED_TQ_MIN_NS GS_TQ_MIN_NS
#define SCHED_NEVER UINT64_MAX
/* No job uses more on one GPU; larger figures from clients are cut, so that sums cannot overflow. */
#define SCHED_BYTES_MAX (UINT64_C(1) << 43)
/* What a memory grant is rounded up to, so that small allocations need no question; and the smallest amount
 * by which a room grows that is not complete yet. */
#define SCHED_SLACK_BYTES (UINT64_C(16) << 20)
/* Who has not wanted to run for so long may not do so soon. */
#define SCHED_IDLE_NS UINT64_C(100000000)
/* For how long memory that was freed, and allocated again before, is expected back (accounting.c). */
#define SCHED_EPHEMERAL_NS UINT64_C(4000000000)
/* fair: the weight of a job that has none of its own. */
#define SCHED_WEIGHT GS_WEIGHT_DEFAULT
#define SCHED_WEIGHT_MAX GS_WEIGHT_MAX
/* priority: levels from -20 to 20, 20 the most urgent. */
#define SCHED_PRIORITY_MAX GS_PRIORITY_MAX
/* How often the caller looks what is on a card that sched_gpu_is_watched(). */
#define SCHED_LOOK_NS UINT64_C(1000000000)
/* For so long what it has seen counts. Why so much longer: if the host is busy, looks come late. */
#define SCHED_SEEN_NS (5 * SCHED_LOOK_NS)
/* How fast memory moves, until it has been measured. */
#define SCHED_BYTES_PER_S UINT64_C(25000000000)

struct sched_settings {
  uint64_t tq_ns;          /* or SCHED_TQ_AUTO */
  uint32_t loss_permille;  /* auto: of the time, that hand-overs may take; 1 to 999 */
  uint64_t capacity_bytes; /* 0: the whole card */
  enum gs_mode mode;
  enum gs_policy policy;
  enum gs_memory memory;   /* for programs that do not choose themselves */
  enum gs_spatial spatial; /* as when the daemon was started */
  uint64_t card_bytes;     /* what the card has, where nobody else tells; 0: unknown */
};

/* Jobs that hold together or not at all (gangs.c). The caller owns its memory. */
struct sched_gang {
  struct list members;                /* jobs; one may be alone */
  bool claims;                        /* the places that all of them need */
  const struct sched_job *held_up_by; /* a member that cannot run, as of the last look; NULL: none is known */
};

struct scheduler {
  struct list gpus; /* in the caller's order; a new one is the last */
  struct sched_settings defaults;
  uint64_t grace_ns;          /* for an answer to DROP_LOCK */
  uint64_t settle_ns;         /* turns that memory has begun go on at least so long (against flapping) */
  uint64_t overhead_ns;       /* what the driver refuses is tried again after so long, at first */
  uint64_t host_memory_bytes; /* how far all jobs together may exceed their cards */
  bool host_tight;            /* what could have to be kept there is more than that */
  bool counts_touched;        /* mode auto: what is on the card decides, where that is known (accounting.c) */
  uint32_t entrant_count;     /* of all GPUs */
  bool deferred;              /* the caller's: events wait for scheduler_plan() */
  bool dirty;                 /* some GPU is; the last event was then: */
  uint64_t event_ns;
  struct sched_gpu *behind; /* the first of those that the last plan has left dirty; NULL: none */
  uint32_t event_jobs;      /* on the GPUs that the present plan has looked at; */
  uint32_t event_jobs_most; /* at most, but for a single GPU */
  uint32_t gang_looks;      /* of the present plan, at members of gangs: */
  uint32_t gang_looks_most; /* once it has taken more, it looks at no further GPU: the next one does */
  uint64_t decisions;       /* plans so far */
};

/* What one hand-over, or all of them, cost. */
struct sched_cost {
  uint64_t drain_ns; /* from the order to stop, or an idle job's last work, until the release */
  uint64_t move_ns;  /* from then until the next job runs */
  uint64_t evicted_bytes, restored_bytes;
};

/* Of hand-overs it is counted how many cost no more than each of these. */
#define SCHED_COST_BOUNDS 14
extern const uint64_t sched_cost_bounds_ns[SCHED_COST_BOUNDS];

/* A hand-over is under way from the order to stop (or an unasked release) until the next job runs. What moves
 * then is paid for with an idle GPU; what moves at other times is hidden behind somebody's turn. */
struct sched_handover {
  bool open;
  uint64_t since_ns; /* of its present part: the drain, then the moves */
  struct sched_cost now, last, sum;
  uint64_t hidden_bytes;
  uint64_t costs[SCHED_COST_BOUNDS + 1]; /* how many took more time than the bound before, and no more than
                                            this one; the last: more than all of them */
  uint64_t bytes_per_s;                  /* moving average of what restores reach */
  uint64_t cost_ns;                      /* and of what hand-overs cost; 0: there was none */
};

/* What jobs have had of a GPU. */
struct sched_tally {
  uint64_t run_ns; /* GPU time */
  uint64_t held_ns, waited_ns, turns;
};

/* Who takes part of what a GPU has for those that hold together (seats.c). */
enum sched_seat {
  SCHED_SEAT_NONE,
  SCHED_SEAT_HOLDS,
  SCHED_SEAT_DISPLACED,
  SCHED_SEAT_STOPS,
  SCHED_SEAT_OVERDUE
};
struct sched_seats {
  uint64_t bytes; /* of need_bytes */
  uint32_t count;
};

/* What of a job has last left the card, since its last grant: copied, and clean or zero. */
struct sched_leaving {
  uint64_t turn; /* it was the job's turn of this number */
  uint64_t copied_bytes, spared_bytes;
};

/* Jobs whose memory may leave for others, in the order in which it does (memory_plan.c): those that are
 * passed over, idle ones, those that stop, those that wait. */
enum sched_victim { SCHED_VICTIM_BLOCKED, SCHED_VICTIM_IDLE, SCHED_VICTIM_STOPS, SCHED_VICTIM_WAITS };

/* What is known of an account's holders as of one moment (policy.c). */
struct sched_level {
  uint64_t at_ns;    /* 0: nothing is */
  uint64_t least_ns; /* what the one has had that has had least */
  uint32_t weight;   /* the largest */
};

/* What a user's jobs are and have on a GPU, opportunistic ones or the others (policy.c). Unless the policy is
 * `fair`, all jobs are in one. */
struct sched_account {
  struct sched_share *share;
  bool late;                        /* of opportunistic jobs */
  uint64_t queue_key, queue_number; /* where its jobs stand in gpu->queue: the lower first */
  struct list holders;              /* of its jobs, HOLDING */
  struct sched_level level;         /* of those */
  uint64_t virtual_ns;              /* the least that one of its jobs there has had; never goes back */
  uint64_t ended_ns;                /* the most that one had had after a turn */
  uint32_t seats;                   /* of its jobs, those that hold or stop */
  struct list seated;               /* gpu->seated, if there are any */
  uint64_t card_ns;                 /* gpu->card_ns when they were charged last */
  uint64_t user_ns;                 /* what the user has had, over the weight; 0: nothing, it has just come */
  bool begun;                       /* it has had a turn */
};

/* A user's, on one GPU. The caller owns its memory. */
struct sched_share {
  struct sched_gpu *gpu;
  struct list link; /* gpu->shares */
  uint64_t user;    /* the caller's */
  uint32_t weight;
  uint32_t job_count;
  uint64_t short_bytes;             /* what one of its jobs was refused, at most (accounting.c) */
  uint64_t used_bytes, max_bytes;   /* of its jobs together; most: 0: as much as there is */
  uint64_t alleged_bytes;           /* of its jobs together */
  struct list shunned_link;         /* gpu->shunned, if its jobs have no turns while others want them: */
  uint64_t shunned_until_ns;        /* at most, */
  uint64_t shunned_look_ns;         /* and when it is looked whether others want them still */
  struct sched_account accounts[2]; /* opportunistic second */
};

/* How many of those that wait are looked at for a place: of all while somebody may have to make way or gangs
 * may claim, else of those that fit. */
#define SCHED_LOOKAHEAD 64

/* Jobs without a gang that wait on a GPU, as seats.c has found them last: those that could hold, the first
 * in the queue first. */
struct sched_singles {
  struct sched_job *jobs[SCHED_LOOKAHEAD];
  uint32_t places[SCHED_LOOKAHEAD]; /* in the queue, from 0 */
  uint32_t count;
  uint64_t changes, decisions; /* of the GPU and the scheduler, as of which that is so */
};

/* What is on a card, whoever has put it there (accounting.c). */
struct sched_occupancy {
  bool known;              /* and not too old */
  uint64_t at_ns;          /* when it was so */
  uint64_t unpinned_bytes; /* beside what jobs had pinned then */
  uint64_t needed_bytes; /* of what jobs have had since turns were needed for it, the most; 0: they are not */
};

struct sched_gpu {
  struct scheduler *scheduler;
  struct list link;
  uint8_t uuid[GS_UUID_SIZE];
  char name[GS_NAME_SIZE];
  struct sched_settings settings;
  uint64_t total_bytes;
  bool serialized;          /* turns are being taken */
  uint64_t serialized_ns;   /* since when */
  uint64_t turn_ns;         /* when the present holder's quantum began, or will if it does not run before */
  bool contended;           /* somebody waits who has no place beside the holders */
  bool owed;                /* a gang could have a place here, but not yet on its other GPUs */
  uint64_t recheck_ns;      /* owed: when to look whether it still is */
  bool dirty;               /* something has happened: a plan is due */
  uint64_t preempt_ns;      /* when a holder may be interrupted that may not be yet */
  int64_t preempt_saved_ns; /* what preemptions may cost (seats.c), at preempt_saved_at_ns */
  uint64_t preempt_saved_at_ns;
  bool wanted_told;          /* some holder believes that others wait */
  uint64_t epoch;            /* of the last grant */
  struct sched_share common; /* of those without a user; of all, unless the policy is `fair` */
  struct list shares;        /* of users */
  struct list shunned;       /* of these, those with silent jobs (facts.c) */
  struct list seated;        /* accounts with seats */
  uint32_t card_seats[2];    /* of all accounts; opportunistic second */
  uint64_t card_ns[2];       /* the time that each of those seats has had, as of card_at_ns */
  uint64_t card_at_ns;
  uint64_t user_ns[2];       /* fair: what the user has had, at least, that has had least; never goes back */
  uint64_t user_ended_ns[2]; /* the most that one had had after a turn */
  uint64_t arrivals;         /* of jobs so far */
  uint64_t made_way_ns;      /* pack: when somebody was put out of its place the last time */
  uint32_t last_job;         /* id of who got the last turn; 0: nobody yet */
  struct list jobs;          /* all */
  struct list idle;          /* IDLE and BYPASSED, the longest first */
  struct list queue;         /* WAITING (policy.c) */
  bool queue_unsorted;       /* until somebody looks at it (queue_of) */
  uint64_t queued;           /* jobs and accounts, so far: what numbers them */
  struct list holders; /* HOLDING, in the order of their grants; while serialized, those that fit (seats.c) */
  struct list ranked;  /* the same, as sorted last: nearly by rank, the worst first */
  struct sched_seats seats[SCHED_SEAT_OVERDUE + 1];
  uint64_t grants;      /* so far: what numbers holders */
  struct list next;     /* WAITING: to be granted as soon as those that must stop have */
  struct list later;    /* WAITING: likely to be granted when the quantum is over */
  struct list dropping; /* DROPPING, within the grace, the oldest order first */
  struct list overdue;  /* DROPPING, past the grace, and their memory forbids to go on without them */
  uint32_t job_count, waiting_count, holder_count;
  uint32_t active_count;                             /* of the holders, those that run */
  uint32_t gang_count;                               /* of the jobs: those with a gang */
  uint64_t looked_at;                                /* how many waiters were, for a place (seats.c) */
  uint32_t class_counts[GS_CLASS_OPPORTUNISTIC + 1]; /* of the jobs */
  struct list leaving; /* that have yet to give room back, the longest without progress first */
  struct list staying; /* with stays_ns, the first to be asked again first */
  uint64_t used_bytes, pinned_bytes, resident_bytes, reach_bytes, claim_bytes; /* sums over the jobs */
  uint64_t pinned_reach_bytes;                                                 /* likewise */
  const struct sched_job
      *pinners[2]; /* `pinners_known`: that have pinned most, and second most; NULL: none */
  bool pinners_known;
  uint64_t faultless_bytes; /* of used_bytes: those that can leave, and have no page faults */
  struct list entrants[2];  /* jobs that wait for memory to begin with, the first first; opportunistic ones */
  struct list ephemeral;    /* jobs whose memory has fallen, the first to be forgotten first */
  uint64_t ephemeral_bytes; /* that are expected back, beside used_bytes */
  uint64_t staying_bytes;   /* that could leave, and don't: a sum over the jobs */
  uint64_t overhead_bytes;  /* what the driver has refused: the card has that much less than it says */
  uint64_t noted_bytes;     /* of that, what the caller has told of; and */
  uint64_t short_bytes;     /* what the jobs have, together: as far as it counts for all (accounting.c) */
  uint64_t extra_bytes;     /* what they need for the rest: a sum over the jobs */
  uint64_t overhead_end_ns; /* when that is tried again */
  uint32_t overhead_tries;  /* how often it was */
  uint64_t away_bytes;      /* taken by processes that are no jobs (any more): likewise, until they end */
  struct sched_occupancy occupancy;
  bool roomy;           /* the last plan: everybody has all the room that he may ask for */
  uint64_t deadline_ns; /* when there is something to do; if it is not known, it is looked for */
  bool deadline_known;
  uint64_t changes; /* of what decides who holds, so far */
  struct sched_singles singles;
  uint64_t events;                    /* so far */
  uint64_t ahead_events, ahead_at_ns; /* as of when `ahead` of those that wait is known (turns.c) */
  uint64_t replan_ns; /* when somebody will have been idle for long enough to leave for the next one */
  uint64_t handovers, moved_bytes;
  uint64_t evicted_bytes, restored_bytes; /* these are moved_bytes */
  struct sched_handover handover;
  struct sched_tally past[GS_CLASS_OPPORTUNISTIC + 1]; /* by class: of what jobs had that have left it */
};

/* What a job asks for, or is given. */
struct sched_terms {
  uint32_t weight;           /* 1 to SCHED_WEIGHT_MAX */
  int32_t priority;          /* -SCHED_PRIORITY_MAX to SCHED_PRIORITY_MAX */
  uint64_t expected_ns;      /* GPU time from its first turn to its last; 0: unknown */
  uint64_t limit_bytes;      /* beyond which its memory may not grow; 0: none */
  uint64_t soft_limit_bytes; /* what it has beyond that leaves the card before others' memory; 0: none */
  enum gs_class class;       /* policy.c, memory_plan.c */
  uint64_t expected_bytes;   /* of memory, at once and at most (accounting.c); 0: unknown */
  uint32_t rate_percent;     /* of an opportunistic job (rates.h); 0: found by itself */
  bool paused;               /* it gets no GPU */
};
#define SCHED_TERMS_NONE ((struct sched_terms){.weight = SCHED_WEIGHT})

enum sched_role { SCHED_ROLE_NONE, SCHED_ROLE_FIRST, SCHED_ROLE_SECOND };

/* Memory that comes and goes (accounting.c). */
struct sched_ephemeral {
  struct list link;       /* gpu->ephemeral: in the order of until_ns */
  uint64_t high_bytes;    /* what it has had; 0: nothing is known */
  uint64_t low_bytes;     /* the least, and */
  uint64_t since_bytes;   /* the most that it has had since then */
  uint64_t until_ns;      /* when high_bytes is forgotten */
  uint64_t counted_bytes; /* in gpu->ephemeral_bytes */
  bool recurs;            /* it has come back to about high_bytes */
};

/* What it waits for to begin (memory_plan.c). */
struct sched_entry {
  struct list link; /* gpu->entrants; empty: it does not wait */
  uint64_t total_bytes, pinned_bytes;
  uint64_t granted_bytes; /* afterwards: what it may reach; 0: it is refused */
};

struct sched_job {
  struct sched_gpu *gpu;
  void *owner;        /* the caller's */
  uint32_t id;        /* the caller's, not 0; survives on no other job of the GPU */
  struct list link;   /* gpu->jobs */
  struct list turn;   /* idle, holders, dropping or overdue; of those that wait: next, later or none */
  struct list ranked; /* gpu->ranked, of a holder; as of the last sorting: */
  uint64_t rank_user, rank, rank_held_ns, rank_tie, grant;
  bool rank_stays;
  enum sched_seat seat;
  struct sched_share *share;     /* its user's; NULL: none */
  struct sched_account *account; /* where it counts now */
  struct list account_link;      /* its holders */
  struct list waiting;           /* gpu->queue */
  struct list victim_link;       /* the memory plan's, while it is made: */
  enum sched_victim victim;      /* what it is to that */
  uint64_t victim_ns;            /* for so long it counts as idle, for SCHED_VICTIM_IDLE */
  uint64_t queue_key, queue_number;
  struct list leaving_link;
  struct list staying_link;
  struct list todo_link;
  uint32_t todo; /* actions to take, by bit */
  enum gs_job_state state;
  struct sched_terms terms;
  uint64_t arrival;    /* number of its arrival at this GPU */
  uint64_t quantum_ns; /* told with its last grant: how long its turn lasts at least, if nobody preempts it;
                          0: no turns */
  uint64_t ran_ns;     /* since when it runs in this turn; 0: it does not */
  uint64_t credit_ns;  /* what it has waited, up to since_ns, since it last had a whole quantum */
  uint64_t gpu_ns;     /* GPU time had in turns that are over */
  uint64_t virtual_ns; /* of it while turns were taken, over the weight; or the level at which it came */
  bool managed;        /* memory that survives a grant to somebody else */
  bool fixed_due;      /* it is managed until it has come through its grace */
  bool wanted_told;    /* LOCK_WANTED was sent for this epoch, and not taken back */
  bool goes;           /* foreseen: it must stop when the quantum is over */
  enum gs_rule rule;   /* of a job that waits: what has given it a seat, or denied it one */
  int64_t preempt_cost_ns; /* displaced by preemption: what that costs */
  uint32_t flags;          /* GS_STATE_*, as the client says, and OVERDUE */
  uint32_t place;          /* in the queue, from 1, after scheduler_number_queue */
  uint32_t ahead; /* of those before it in the queue, who may run; and what they have left (turns.c) */
  uint64_t ahead_ns;
  uint64_t epoch;
  uint64_t since_ns; /* in this state */
  bool asks;         /* paused: it wants to run all the same */
  bool active;       /* it holds, and has said that it runs */
  bool took_over;    /* its last grant was a hand-over: another job had the turn before */
  bool owes;         /* it was granted after its set's quantum, while a gang was owed a place */
  bool displaced;    /* a holder that must stop; `undecided` until that is clear */
  bool undecided;
  bool on_trial;           /* displaced only to see what would happen */
  bool must_stop;          /* because another member of its gang must */
  bool steps;              /* granted for what another member drains: one call at a time, until that ends */
  uint64_t granted_ns;     /* when it was granted, the last time */
  struct sched_gang *gang; /* NULL: none */
  struct list gang_link;
  enum sched_role role; /* in the plan */
  bool grows;           /* it has allocated memory in this turn */
  uint64_t used_bytes, pinned_bytes;
  uint64_t pinned_reach_bytes; /* how far pinned_bytes may grow unasked */
  uint64_t alleged_bytes;      /* of used_bytes, what it had when it came: nobody has granted that */
  uint64_t paging_bytes;       /* of used_bytes, what page faults fetch: for a job that is not managed */
  uint64_t short_bytes;        /* what the driver has refused it, as it says */
  uint64_t extra_bytes;        /* of that, what it needs more than it has, as others have not told of it */
  struct sched_ephemeral ephemeral;
  struct sched_entry entry;
  uint64_t need_bytes;      /* to hold, of what others could have (seats.c) */
  uint64_t reach_bytes;     /* how far used_bytes may grow unasked */
  uint64_t resident_bytes;  /* believed to be on the card */
  uint64_t restoring_ns;    /* when it last told of a restore that goes on; 0: none does */
  uint64_t room_bytes;      /* told: what it may have there */
  uint64_t room_seq;        /* of that; 0: nothing told yet */
  uint64_t target_bytes;    /* told: what its room will become */
  uint64_t lowered_seq;     /* of the last room told that was less than the one told before */
  uint64_t last_told_bytes; /* the last room that it has been told */
  uint64_t told_bytes; /* the largest room that it has been told, since the last that it has acknowledged */
  uint64_t promised_bytes; /* the largest room that it may still believe in */
  bool asked_anew;         /* its state has changed: others may have to leave in its place */
  uint64_t claim_bytes;    /* what must be counted as taken by it */
  uint64_t want_bytes;     /* the plan's: the room that it is to have */
  uint64_t leaving_ns;     /* since when it has made no progress with giving back room */
  bool overdue;            /* for longer than the grace */
  uint64_t stays_ns;       /* it was, and runs with what it has: until when it is not asked again; or 0 */
  uint64_t staying_bytes;  /* what it does not give to others, besides pinned bytes */
  struct sched_leaving left;
  bool hidden; /* its moves are worth hiding behind the turn before its own */
  bool too_big_noted;
  uint64_t held_ns, waited_ns, turns, moved_bytes, drain_max_ns; /* up to since_ns */
  struct sched_tally past; /* what it had of that before it was of its present class */
};

/* ---- what the caller must do ---- */

enum sched_action_type { /* in the order in which one job gets them */
                         SCHED_TELL_ATTACHED,
                         SCHED_TELL_CAPACITY,
                         SCHED_TELL_SCHED, /* SCHED_ON or SCHED_OFF: gpu->serialized */
                         SCHED_TELL_LOCK_OK,
                         SCHED_TELL_LOCK_WANTED,
                         SCHED_TELL_DROP_LOCK,
                         SCHED_TELL_ROOM,     /* not when LOCK_OK or DROP_LOCK carries it */
                         SCHED_TELL_MEMORY,   /* the answer to who had to wait for it */
                         SCHED_NOTE_BYPASSED, /* for the log: others go on without this job */
                         SCHED_NOTE_OVERDUE,  /* for the log: does not answer, and others cannot go on */
                         SCHED_NOTE_STAYS,    /* for the log: does not leave the card; others are asked */
                         SCHED_NOTE_TOO_BIG,  /* for the log: needs more than the card has for it */
};

struct sched_action {
  enum sched_action_type type;
  struct sched_job *job;
  uint64_t epoch;                              /* LOCK_OK, LOCK_WANTED, DROP_LOCK */
  bool took_over;                              /* LOCK_OK: one of the GPU's hand-overs */
  bool steps;                                  /* LOCK_OK: one call at a time */
  uint64_t quantum_ns;                         /* LOCK_OK; 0: until told otherwise */
  bool wanted;                                 /* LOCK_WANTED: somebody waits */
  uint64_t room_bytes, room_seq, target_bytes; /* LOCK_OK, DROP_LOCK, ROOM */
  uint64_t granted_bytes;                      /* MEMORY: what it may reach; 0: it is refused */
};

struct sched_change {
  struct list jobs; /* with something to do, the longest first */
};

void change_init(struct sched_change *change);

/* Take the next action out, as of now. False: nothing is left. */
bool change_next(struct sched_change *change, struct sched_action *action);

/* The next one to this job. The job whose actions come first; NULL: nothing is left. */
bool change_next_of(struct sched_job *job, struct sched_action *action);
struct sched_job *change_first(const struct sched_change *change);

/* The job is told its room once more. */
void scheduler_tell_room(struct sched_job *job, struct sched_change *change);

/* ---- set-up ---- */

void scheduler_init(struct scheduler *scheduler);

/* The GPU, or NULL. */
struct sched_gpu *scheduler_find_gpu(const struct scheduler *scheduler, const uint8_t uuid[GS_UUID_SIZE]);

void scheduler_add_gpu(struct scheduler *scheduler, struct sched_gpu *gpu, const uint8_t uuid[GS_UUID_SIZE],
                       const char *name, uint64_t total_bytes);

/* It has no jobs. */
void scheduler_remove_gpu(struct scheduler *scheduler, struct sched_gpu *gpu);

/* The card turns out to have another size. */
void scheduler_set_size(struct sched_gpu *gpu, uint64_t total_bytes, uint64_t now_ns,
                        struct sched_change *change);

/* ---- events ---- */

struct sched_attach {
  uint32_t id;
  void *owner;
  uint64_t used_bytes, resident_bytes;
  uint32_t flags;                  /* GS_ATTACH_* */
  struct sched_share *share;       /* the user's on this GPU; NULL: none */
  const struct sched_terms *terms; /* NULL: SCHED_TERMS_NONE */
};

/* The user's share of the GPU, or NULL. */
struct sched_share *scheduler_find_share(const struct sched_gpu *gpu, uint64_t user);

/* It has kept the GPU from others, which is not forgotten yet. */
bool sched_share_is_shunned(const struct sched_share *share);

/* The user has none there. Once it has no jobs any more it may be removed; if it is shunned, it had better
 * stay until that is over. */
void scheduler_add_share(struct sched_gpu *gpu, struct sched_share *share, uint64_t user, uint32_t weight,
                         uint64_t max_bytes);
void scheduler_remove_share(struct sched_share *share);
void scheduler_set_share(struct sched_share *share, uint32_t weight, uint64_t max_bytes, uint64_t now_ns,
                         struct sched_change *change);

/* The job, which has a share, counts with this one of the same GPU from now on. */
void scheduler_move_to_share(struct sched_job *job, struct sched_share *share, uint64_t now_ns,
                             struct sched_change *change);

void scheduler_attach(struct sched_gpu *gpu, struct sched_job *job, const struct sched_attach *attach,
                      uint64_t now_ns, struct sched_change *change);

/* The job leaves: it detached, or its process died. Its memory is the caller's again. */
void scheduler_detach(struct sched_job *job, uint64_t now_ns, struct sched_change *change);

/* So much of the card is taken by who is no job (any more). As overhead, it is tried after a while whether
 * that is still so. */
void scheduler_note_taken(struct sched_gpu *gpu, uint64_t bytes, uint64_t now_ns,
                          struct sched_change *change);

/* Likewise, until this is called with another sum. */
void scheduler_set_away(struct sched_gpu *gpu, uint64_t bytes, uint64_t now_ns, struct sched_change *change);

/* So many bytes of the card were in use at that time, by whomever. Ignored if they are too old. */
void scheduler_set_occupied(struct sched_gpu *gpu, uint64_t bytes, uint64_t at_ns, uint64_t now_ns,
                            struct sched_change *change);

/* Such figures are of use: the caller looks every SCHED_LOOK_NS. */
bool sched_gpu_is_watched(const struct sched_gpu *gpu);

void scheduler_request(struct sched_job *job, uint64_t now_ns, struct sched_change *change);

struct sched_release {
  uint64_t epoch;
  uint64_t drain_ns;
};

/* The job has stopped; what it must evict leaves from now on. A release of another epoch than the job's is
 * ignored: false. */
bool scheduler_release(struct sched_job *job, const struct sched_release *release, uint64_t now_ns,
                       struct sched_change *change);

struct sched_active {
  uint64_t epoch;
  uint64_t restore_ns, restore_bytes; /* since its LOCK_OK */
};

/* The holder has all that it needs, and runs. False: ignored, as it is about another grant. */
bool scheduler_active(struct sched_job *job, const struct sched_active *active, uint64_t now_ns,
                      struct sched_change *change);

struct sched_residence {
  uint64_t resident_bytes;                /* pinned bytes included */
  uint64_t room_seq;                      /* of the last room that the job knows of */
  uint64_t evicted_bytes, restored_bytes; /* since it said so the last time */
  uint64_t spared_bytes;                  /* likewise, that have left without a copy */
};

/* The job has moved memory, or has seen a room that it had to say so for. */
void scheduler_resident(struct sched_job *job, const struct sched_residence *residence, uint64_t now_ns,
                        struct sched_change *change);

/* The driver has refused the job so many bytes that are within its room. */
void scheduler_short(struct sched_job *job, uint64_t short_bytes, uint64_t now_ns,
                     struct sched_change *change);

/* Why the job does not answer, as it says: GS_STATE_*. */
void scheduler_set_flags(struct sched_job *job, uint32_t flags);

/* The job, whose process has no memory on any GPU, wants to have some. True: it has to wait for that, and is
 * told when it has come (SCHED_TELL_MEMORY). */
bool scheduler_memory_await(struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes,
                            uint64_t now_ns, struct sched_change *change);

/* It does. */
bool sched_job_enters(const struct sched_job *job);

/* Of what it has, and of what it asks for next, page faults fetch so many bytes: they need not be on the
 * card. Said before each of these calls; a job that is managed need not say it. */
void scheduler_memory_paging(struct sched_job *job, uint64_t paging_bytes);

/* The job is managed, and has memory that page faults don't fetch by now: it is not managed from here on.
 * Said with each of these calls. */
void scheduler_memory_fixed(struct sched_job *job);

/* As it was before: a request that said so has been refused. */
void scheduler_memory_managed(struct sched_job *job, bool managed);

/* The job wants to grow. 0, and what it may reach without asking again; or -ENOMEM. */
int scheduler_memory_request(struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes,
                             uint64_t now_ns, struct sched_change *change, uint64_t *granted_bytes);

/* What the job could have if it asked: in all, and of that, what can't leave the card; and what others have
 * there that can leave. */
struct sched_most {
  uint64_t total_bytes, pinned_bytes, making_way_bytes;
};
struct sched_most sched_job_most(const struct sched_job *job);

/* That was refused: why. */
enum gs_refusal sched_job_why_refused(const struct sched_job *job, uint64_t total_bytes,
                                      uint64_t pinned_bytes);

/* The job has shrunk, or has grown within what it was granted: beyond that it is not believed. */
void scheduler_memory_report(struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes,
                             uint64_t now_ns, struct sched_change *change);

/* The job is part of the gang from now on, and of no other; NULL: of none. Who detaches leaves it. False: the
 * gang has another member on this GPU; the job is in none. */
bool scheduler_join(struct sched_job *job, struct sched_gang *gang, uint64_t now_ns,
                    struct sched_change *change);

/* The job, which is in no gang, takes the place in its gang of another one on the same GPU. */
void scheduler_replace(struct sched_job *other, struct sched_job *job, uint64_t now_ns,
                       struct sched_change *change);
void gang_init(struct sched_gang *gang);

/* The terms are valid. */
void scheduler_set_terms(struct sched_job *job, const struct sched_terms *terms, uint64_t now_ns,
                         struct sched_change *change);

/* Settings. A mode or a capacity is told to all jobs, also if it is the same. gpu NULL: of every GPU, and the
 * default for new ones. A quantum of SCHED_TQ_AUTO finds itself. */
void scheduler_set_tq(struct scheduler *scheduler, struct sched_gpu *gpu, uint64_t tq_ns, uint64_t now_ns,
                      struct sched_change *change);
void scheduler_set_mode(struct scheduler *scheduler, struct sched_gpu *gpu, enum gs_mode mode,
                        uint64_t now_ns, struct sched_change *change);
void scheduler_set_capacity(struct scheduler *scheduler, struct sched_gpu *gpu, uint64_t bytes,
                            uint64_t now_ns, struct sched_change *change);
void scheduler_set_policy(struct scheduler *scheduler, struct sched_gpu *gpu, enum gs_policy policy,
                          uint64_t now_ns, struct sched_change *change);
/* In mode auto, what is on a card decides, where that is known; or what is allocated. */
void scheduler_set_count(struct scheduler *scheduler, bool touched, uint64_t now_ns,
                         struct sched_change *change);
/* Only what attaches later hears of it: a program cannot change its mind. */
void scheduler_set_memory(struct scheduler *scheduler, struct sched_gpu *gpu, enum gs_memory memory);

/* When scheduler_expire has something to do; SCHED_NEVER. */
uint64_t scheduler_deadline_ns(const struct scheduler *scheduler);

/* What follows from all events since the last plan is decided, as of the last one. Events call it themselves,
 * each at its end, unless scheduler->deferred is set: then the caller does, once for many events, and soon
 * (until then scheduler_deadline_ns is 0). */
void scheduler_plan(struct scheduler *scheduler, struct sched_change *change);

/* Time has passed. Makes a plan in any case. */
void scheduler_expire(struct scheduler *scheduler, uint64_t now_ns, struct sched_change *change);

/* ---- figures ---- */

/* How far all jobs together exceed their cards. */
uint64_t scheduler_overflow_bytes(const struct scheduler *scheduler);
/* The quantum, as set or as found. */
uint64_t sched_gpu_tq_ns(const struct sched_gpu *gpu);
/* Until holders must stop because others wait; SCHED_NEVER: nobody need. */
uint64_t sched_gpu_left_ns(const struct sched_gpu *gpu, uint64_t now_ns);
/* As set, or the card's. */
uint64_t sched_gpu_capacity_bytes(const struct sched_gpu *gpu);
/* What of it there really is. */
uint64_t sched_gpu_usable_bytes(const struct sched_gpu *gpu);
/* What is on the card beside what is no job's, as far as that is known; 0: it is not known, or nothing. */
uint64_t sched_gpu_occupied_bytes(const struct sched_gpu *gpu);
/* All jobs run, though together they have more than fits: little of it is on the card. */
bool sched_gpu_runs_together(const struct sched_gpu *gpu);
/* What of that the job has, if it is alone. */
uint64_t sched_job_usable_bytes(const struct sched_job *job);
/* It cannot run: it has no page faults, and more memory than fits. */
bool sched_job_too_big(const struct sched_job *job);
/* It is so because of what others have pinned: the one that has pinned most; else NULL. */
const struct sched_job *sched_job_kept_by(const struct sched_job *job);
/* GS_STATE_*, those of the client and ours. */
uint32_t sched_job_flags(const struct sched_job *job);
/* Of what it needs on the card to run. */
uint64_t sched_job_lacking_bytes(const struct sched_job *job);

/* Of what it has on the card: what need not be copied if it leaves, as far as its last leaving has shown. */
uint64_t sched_job_clean_bytes(const struct sched_job *job);

struct sched_reason {
  enum gs_reason why;
  const struct sched_job *who; /* it is waited for; NULL: nobody in particular */
  uint64_t expected_ns; /* until it runs, as far as one can tell; SCHED_NEVER: not unless something changes */
};

/* What the last plan has for the job. sched_job_reason goes by the same rule. */
enum gs_rule sched_job_rule(const struct sched_job *job);

struct sched_reason sched_job_reason(const struct sched_job *job, uint64_t now_ns);

/* GPU time: the time that it ran, from the moment when all that it needs was on the card. So far; and still,
 * as far as is known (facts.c). */
uint64_t sched_job_gpu_ns(const struct sched_job *job, uint64_t now_ns);
uint64_t sched_job_remaining_ns(const struct sched_job *job, uint64_t now_ns);
uint64_t sched_job_held_ns(const struct sched_job *job, uint64_t now_ns);
/* The memory that it counts with beside others: what it has, or is expected to have. */
uint64_t sched_job_expected_bytes(const struct sched_job *job);

uint64_t sched_job_waited_ns(const struct sched_job *job, uint64_t now_ns);

/* What jobs have had while they were of this class, those that have left included: it never goes back. */
struct sched_tally sched_gpu_tally(const struct sched_gpu *gpu, enum gs_class class, uint64_t now_ns);

/* Fill in `place` of the waiting jobs; 0 in the others'. */
void scheduler_number_queue(struct sched_gpu *gpu);

#endif
