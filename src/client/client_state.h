/*
 * client_state.h - what the client's parts share: connection.c (one thread per process, which speaks with the
 * daemon), and worker.c, share.c and room.c (one thread per GPU, which does what takes time: stops, drains
 * and moves).
 * Internal to src/client.
 */
#ifndef GS_CLIENT_STATE_H
#define GS_CLIENT_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/patience.h"
#include "common/condition.h"
#include "common/wire.h"
#include "driver/cuda_abi.h"

/* How a process brings back its memory without a daemon (room.c). */
struct filling {
  uint64_t short_since_ns; /* since when the driver has refused each step; 0: it has not */
  uint64_t away_until_ns;  /* it has made room for others: until then, at least */
  uint64_t again_by_ns;    /* and until then unless there is room for all of it */
  bool said;               /* in the log */
};

struct gpu {
  CUdevice device;
  bool used;     /* known to the daemon, or to be made so; it has a worker */
  bool unshared; /* there could be no worker: the gate stays open */
  bool attach_sent;
  bool told_running;         /* ATTACH has said that it holds */
  bool attached;             /* ATTACHED has come on this connection */
  uint64_t refused_until_ns; /* the daemon does not know this GPU, and is asked again then; 0: it has not said
                                so */
  bool refusal_said;         /* in the log */
  bool holding; /* may submit, by a grant or (no daemon) by default; the gate is open or about to be */
  bool requested;
  bool busy; /* the worker is in the middle of something, the lock not held */
  uint64_t epoch;

  _Atomic bool stopped;      /* what it has submitted stands still; the worker's */
  unsigned stops;            /* in a row, of work that did not end at once */
  bool let_on;               /* it goes on, and the gate is still shut; likewise */
  bool has_context, try_due; /* the former: of the program's; the latter: it is a new one */
  unsigned trials;           /* whether work can be stopped has been tried */
  uint32_t told_abilities;   /* what the daemon knows of that: GS_STATE_*, on this connection */

  uint32_t slice_us;  /* of its work's time slices beside others, as told; 0: the driver's */
  uint32_t sliced_us; /* as they are; the worker's */

  /* orders to the worker */
  bool grant_pending; /* open memory and gate, once what is needed is on the card */
  bool drop_pending;
  bool steps;             /* while it holds, the gate stays shut, and calls pass one by one */
  bool steps_over;        /* nobody will tell it to stop: it goes on as one that holds */
  uint64_t stepped_ns;    /* when one could pass last; 0: none could, or the work has been stopped since */
  bool wanted;            /* somebody waits: release when idle */
  uint64_t quiet_calls;   /* the calls that there had been when it began to look idle, */
  unsigned quiet_looks;   /* and how often it has looked so since, as far as can be asked */
  uint64_t idle_calls;    /* the calls that there had been, */
  uint64_t idle_since_ns; /* and since when there have been no more; 0: nobody has looked */

  bool releasing;            /* the worker is giving the lock back */
  uint64_t release_since_ns; /* the worker drains since; 0: it does not */
  uint64_t pulse_at_ns;      /* when to let waiting threads pass, if it still drains then */
  uint64_t handover_ns;      /* what the last one cost this process: drain and restore */
  struct patience patience;  /* with pauses while somebody waits */
  uint64_t gave_way_ns;      /* when it gave the lock back for a pause; 0: it has wanted it again since */
  uint64_t granted_ns;       /* when it got the lock last */

  /* in which part of the time it runs beside others: share.c; the worker's, but for the first two */
  uint32_t rest_ppm;    /* the part in which it does not, as told */
  uint64_t share_at_ns; /* what could not be done at once is tried again then */
  int rest;             /* 0: it runs */
  uint64_t turned_ns;   /* when that changed */
  uint64_t ran_ns;      /* how long it ran the last time */
  uint64_t shut_ns;     /* when its gate was shut for that */

  /* what it may have on the card: room.c */
  bool room_bound;     /* by a daemon */
  uint64_t room_bytes; /* as told; before that, what was there when it attached */
  uint64_t room_seq;   /* 0: none has been told */
  uint64_t target_bytes;
  bool room_lowered;            /* and the daemon does not know yet that we know */
  bool step_due;                /* memory may have to move */
  bool step_over;               /* nothing more moves for this room */
  uint64_t step_again_ns;       /* when to try what has failed once more; UINT64_MAX: never */
  uint64_t short_seq;           /* the room for which MEM_SHORT was sent */
  uint64_t failed_since_ns;     /* likewise: all moves have failed; 0: the last one did not */
  uint64_t short_since_ns;      /* since when the driver has refused each step; 0: it has not */
  struct filling filling;       /* without a daemon */
  uint64_t told_resident_bytes; /* in the last RESIDENT, or when it attached */
  uint64_t evicted_bytes;       /* since the last RESIDENT */
  uint64_t restored_bytes;      /* likewise */
  uint64_t returned_bytes;      /* restored since the grant */

  uint64_t capacity_bytes;
  bool limited;               /* that is the process' memory limit */
  int memory_mode;            /* as told: enum gs_memory */
  uint64_t granted_bytes;     /* memory: may grow to this without asking */
  uint64_t total_bytes;       /* what is used */
  uint64_t pinned_bytes;      /* of it, what can't leave the card */
  uint64_t told_bytes;        /* what the daemon believes is used */
  uint64_t told_paging_bytes; /* of it, what need not be on the card */
  uint64_t report_at_ns;      /* when to tell it; 0: no need */
  uint64_t reported_ns;       /* when it was told last */
  bool memory_asking;         /* what is told meanwhile would be out of order */
  uint64_t memory_question;   /* of those who asked, told or found no need to: the latest is the truth */
  bool memory_answered;
  bool memory_awaited; /* it is answered once others have ended */
  int32_t memory_status;
  enum gs_refusal memory_why; /* it is -ENOMEM */

  struct condition changed; /* wakes the worker */
};

struct client {
  struct lock lock; /* protects everything here; never held over a call of the driver or of the gate's
                           waiting functions */
  bool started;
  bool connected;                  /* there is a connection: post.h */
  uint64_t generation;             /* counts connections: what was begun under another one is void */
  bool registered;                 /* REGISTERED has come */
  uint32_t job;                    /* the process' number, as that says */
  bool alone;                      /* there is no daemon: gates are open (unless one is required) */
  struct condition memory_changed; /* also: an attachment is settled; a room or who holds has changed */
  struct gpu gpus[GS_GPUS_PER_CLIENT];
};

extern struct client client __attribute__((visibility("hidden")));

/* Send on the present connection, if any; returns at once. A failure ends the connection. Lock held. */
void client_send(const struct gs_msg *msg);

/* Ask for the lock if a thread waits for it, or work stands still, and nothing else is under way. Lock held.
 */
void client_request_lock(struct gpu *gpu);

/* This is a child of a process that has a connection, made in a way that we were not told of. It is let
 * alone: it has no entries of devices, and says nothing. */
bool client_is_stray(void);

/* The device's entry, or NULL. */
struct gpu *client_gpu(CUdevice device);

/* Attached on the present connection. Lock held. */
bool client_connected(const struct gpu *gpu);

/* The device becomes known to the daemon. Lock held. */
void client_attach_device(struct gpu *gpu, CUdevice device);

/* Tell the daemon about the GPU's memory if that is due. Returns when it will be (UINT64_MAX: no need). Lock
 * held. */
uint64_t memory_check(struct gpu *gpu, uint64_t now_ns);

/* Make the connection thread look again. */
void client_wake(void);

/* ---- worker.c ---- */

/* The worker of a GPU; argument: its struct gpu. */
void *worker_run(void *gpu);

/* The process holds the lock: have the worker bring back what it needs, and then open the gate. Lock held. */
void worker_begin(struct gpu *gpu);

/* The same, but if nothing is lacking, and the worker rests, the gate opens here, unless that would have to
 * wait. Lets go of the lock meanwhile. */
void worker_begin_at_once(struct gpu *gpu);

/* The worker shall give the lock back. Lock held. */
void worker_order_drop(struct gpu *gpu);

/* It wants the lock again, which it may have given back because it was idle. Lock held. */
void worker_pause_ends(struct gpu *gpu);

/* ATTACHED has come: what the worker has given back meanwhile is told now. Lock held. */
void worker_on_attached(struct gpu *gpu);

/* If the worker has drained for too long, let waiting threads pass once and tell the daemon. Returns when to
 * look again (UINT64_MAX: no need). Lock held. */
uint64_t worker_check(struct gpu *gpu, uint64_t now_ns);

void worker_fork_child(void);

/* ---- share.c; with the lock held ---- */

/* SHARE has come, or there is no daemon any more. */
void share_take(struct gpu *gpu, uint32_t share_ppm);

/* The work stops or goes on, if that is due; when it is (UINT64_MAX: there is no need). Lets go of the lock
 * meanwhile. */
bool share_step_due(const struct gpu *gpu, uint64_t now_ns);
void share_step(struct gpu *gpu);
uint64_t share_next_ns(const struct gpu *gpu);

/* It rests, or is about to: of streams it can't be told whether they have finished. */
bool share_stands_still(const struct gpu *gpu);

/* In the child of a fork. */
void share_fork_child(void);

/* It goes on now, for what needs that. Lets go of the lock meanwhile. */
void share_go_on(struct gpu *gpu);

/* ---- room.c; with the lock held, but where it says otherwise ---- */

/* What the process may have on the card now. */
uint64_t room_bytes(const struct gpu *gpu);

/* LOCK_OK, DROP_LOCK and ROOM tell a room. */
void room_take(struct gpu *gpu, const struct gs_msg *msg);

/* It attaches, with so much on the card; and nobody says what it may have any more. */
void room_begin(struct gpu *gpu, uint64_t resident_bytes);
void room_forget(struct gpu *gpu);

/* There may be something to move: the worker shall look. */
void room_order_step(struct gpu *gpu);

/* Is there, for the worker? */
bool room_step_due(const struct gpu *gpu);

/* Some of what is on the card is to leave, and could. */
bool room_is_exceeded(const struct gpu *gpu);

/* Nothing can move now. */
void room_try_again(struct gpu *gpu);

/* One step towards the room. Lets go of the lock meanwhile. */
void room_step(struct gpu *gpu);

/* Bring all memory to the card, in this thread, however long that takes: there is no worker. Lock not held.
 */
void room_fill(CUdevice device);

/* How much must be on the card before the gate opens; page faults fetch the rest. */
uint64_t room_enough_bytes(const struct gpu *gpu);

/* Tell the daemon what has moved, and which room we know, if it waits for that. Not while the worker is busy
 * with moves. */
void room_report(struct gpu *gpu);
bool room_report_due(const struct gpu *gpu);

#endif
