/*
 * client_state.h - the one state of the client, and what its threads do with it: connection.c (one per
 * process, which speaks with the daemon), and worker.c, share.c and room.c (one per GPU, which does what
 * takes time: stops, drains and moves). Internal to src/client.
 */
#ifndef GS_CLIENT_STATE_H
#define GS_CLIENT_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/machine.h"
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
  struct machine machine;
  bool used;     /* known to the daemon, or to be made so; it has a worker */
  bool unshared; /* there could be no worker: the gate stays open */
  bool attach_sent;
  uint64_t refused_until_ns; /* the daemon does not know this GPU, and is asked again then; 0: it has not said
                                so */
  bool refusal_said;         /* in the log */
  uint64_t capacity_bytes;
  bool limited;    /* that is the process' memory limit */
  int memory_mode; /* as told: enum gs_memory */

  _Atomic bool stopped;      /* what it has submitted stands still; the worker's */
  unsigned stops;            /* in a row, of work that did not end at once */
  bool let_on;               /* it goes on, and the gate is still shut; likewise */
  bool has_context, try_due; /* the former: of the program's; the latter: it is a new one */
  unsigned trials;           /* whether work can be stopped has been tried */
  uint32_t told_abilities;   /* what the daemon knows of that: GS_STATE_*, on this connection */

  uint32_t slice_us;  /* of its work's time slices beside others, as told; 0: the driver's */
  uint32_t sliced_us; /* as they are; the worker's */

  uint64_t stepped_ns;    /* when a call could pass last; 0: none could, or the work has been stopped since */
  uint64_t quiet_calls;   /* the calls that there had been when it began to look idle, */
  unsigned quiet_looks;   /* and how often it has looked so since, as far as can be asked */
  uint64_t idle_calls;    /* the calls that there had been, */
  uint64_t idle_since_ns; /* and since when there have been no more; 0: nobody has looked */
  uint64_t release_since_ns; /* the worker drains since; 0: it does not */
  uint64_t pulse_at_ns;      /* when to let waiting threads pass, if it still drains then */
  struct filling filling;    /* without a daemon */

  /* in which part of the time it runs beside others: share.c; the worker's, but for the first two */
  uint32_t rest_ppm;    /* the part in which it does not, as told */
  uint64_t share_at_ns; /* what could not be done at once is tried again then */
  int rest;             /* 0: it runs */
  uint64_t turned_ns;   /* when that changed */
  uint64_t ran_ns;      /* how long it ran the last time */
  uint64_t shut_ns;     /* when its gate was shut for that */

  struct condition changed; /* wakes the worker */
};

struct client {
  struct lock lock; /* protects everything here; never held over a call of the driver or of the gate's
                           waiting functions */
  bool started;
  bool connected;                  /* there is a connection: post.h */
  bool registered;                 /* REGISTERED has come */
  uint32_t job;                    /* the process' number, as that says */
  bool alone;                      /* there is no daemon: gates are open (unless one is required) */
  struct condition memory_changed; /* also: an attachment is settled; a room or who holds has changed */

  /* The connection thread's own, with or without the lock. */
  bool evicted;             /* until the next connection it waits, and does not run unshared */
  uint64_t retry_at_ns;     /* to connect */
  uint64_t away_since_ns;   /* the daemon; 0: not looked for yet */
  uint64_t full_since_ns;   /* wire_connect_again_ns */
  uint64_t handshake_by_ns; /* 0: nothing outstanding */

  _Atomic uint32_t events; /* futex: changes when that thread is to look again; without the lock */
  struct gpu gpus[GS_GPUS_PER_CLIENT];
};

extern struct client client __attribute__((visibility("hidden")));

/* Send on the present connection, if any; returns at once. A failure ends the connection. Lock held. */
void client_send(const struct gs_msg *msg);

/* What the machine sees, and what it orders, carried out; try_open is the caller's. Lock held. */
struct sight client_see(const struct gpu *gpu);
void client_obey(struct gpu *gpu, struct orders *orders);

/* An event that is no more than that. Lock held. */
void client_tell(struct gpu *gpu,
                 void (*event)(struct machine *machine, const struct sight *sight, struct orders *orders));
void client_order(struct gpu *gpu, void (*event)(struct machine *machine, struct orders *orders));

/* This is a child of a process that has a connection, made in a way that we were not told of. It is let
 * alone: it has no entries of devices, and says nothing. */
bool client_is_stray(void);
void client_mark_process(void); /* which is no such child from now on */

/* The device's entry, or NULL. */
struct gpu *client_gpu(CUdevice device);

/* Attached on the present connection. Lock held. */
bool client_connected(const struct gpu *gpu);

/* Make the connection thread look again. */
void client_wake(void);

/* Nobody passes the shut gate any more. */
void client_end_steps(struct gpu *gpu);

/* ---- connection.c ---- */

/* A message for the GPU, from the daemon. Lets go of the lock, which is held, meanwhile. */
void client_hear(struct gpu *gpu, const struct gs_msg *msg);

/* The device becomes known to the daemon. Lock held. */
void client_attach_device(struct gpu *gpu, CUdevice device);

/* ---- worker.c ---- */

/* The worker of a GPU; argument: its struct gpu. */
void *worker_run(void *gpu);

/* LOCK_OK has been heard: the gate opens here if nothing is lacking and the worker rests, unless that would
 * have to wait. Lets go of the lock meanwhile. */
void worker_try_open(struct gpu *gpu);

/* What can be done with the process' work, if that is something else than told. Lock held. */
void worker_tell_abilities(struct gpu *gpu);

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

/* ---- room.c ---- */

/* One step towards the room. Lets go of the lock, which is held, meanwhile. */
void room_step(struct gpu *gpu);

/* Bring all memory to the card, in this thread, however long that takes: there is no worker. Lock not held.
 */
void room_fill(CUdevice device);

#endif
