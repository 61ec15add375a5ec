/*
 * world.h - a scheduler with GPUs, jobs and a clock, for tests: events by name, decisions as text.
 *
 * A decision is JOB:WHAT, WHAT one of attached, capacity, on, off (turns), ok(EPOCH), wanted(EPOCH) (once;
 * that the end is another is not shown), unwanted(EPOCH), drop(EPOCH), memory(GIB) or refused (of who had to
 * wait for memory), bypassed, overdue, stays, toobig. With rooms shown also room(GIB), and ok(EPOCH,GIB) and
 * drop(EPOCH,GIB).
 *
 * The memory of jobs moves as libunified moves it, but at once: who has stopped evicts down to its room, who
 * waits or holds brings back what its room allows, who holds and has enough says that it is active. What
 * can't leave comes once there is room for all of it, and stays. Tests
 * that want a job to be slower set `stuck`, and say by themselves what it does.
 */
#ifndef GS_TEST_WORLD_H
#define GS_TEST_WORLD_H

#include "common/clock.h"
#include "core/scheduler.h"

#define GIB (UINT64_C(1) << 30)
#define WORLD_JOBS 16
#define WORLD_GPUS 2
#define WORLD_CARD_GIB 16

/* What the job's process knows and has. */
struct world_client {
  bool there, stuck;
  bool cramped; /* its host has no memory left to leave to */
  bool holds, active;
  uint64_t epoch;
  bool wanted;
  uint64_t wanted_epoch; /* of LOCK_WANTED */
  uint64_t resident_bytes, room_bytes, room_seq, target_bytes;
  uint64_t said_seq;     /* of the last RESIDENT */
  uint64_t pinned_bytes; /* of what can't leave: what is on the card, since there was room for all of it */
  bool clean;            /* what leaves has not changed: it is copied the first time only */
  bool has_copies;       /* it has left */
  uint64_t copied_bytes; /* so far, out and in */
};

struct world {
  struct scheduler scheduler;
  struct sched_gpu gpus[WORLD_GPUS];
  struct sched_job jobs[WORLD_JOBS + 1]; /* by id, from 1 */
  struct world_client clients[WORLD_JOBS + 1];
  struct sched_change change;
  bool rooms_shown;
  uint64_t now_ns;
  char said[4096]; /* decisions since the last look */
};

/* Two cards of 16 GiB, TQ 20 s, grace 30 s, no settling time. */
void world_init(struct world *world, enum gs_mode mode);

/* NULL: none. */
void world_attach_with(struct world *world, int gpu, int job, double used_gib, uint32_t flags,
                       const struct sched_terms *terms);
void world_attach_at(struct world *world, int gpu, int job, double used_gib, uint32_t flags);
void world_attach(struct world *world, int job, double used_gib, uint32_t flags);
void world_detach(struct world *world, int job);
void world_request(struct world *world, int job);
/* Answers the job's present epoch. */
void world_release(struct world *world, int job);
/* It asks again at once. */
void world_yield(struct world *world, int job);
void world_release_with(struct world *world, int job, uint64_t epoch);
/* What the job has is that much, and has been reported; pinned_gib of it. */
void world_memory_pinned(struct world *world, int job, double total_gib, double pinned_gib);
void world_memory(struct world *world, int job, double total_gib);
/* It asks first: 0 or -ENOMEM. */
int world_ask(struct world *world, int job, double total_gib, double pinned_gib, uint64_t *granted_bytes);
/* It has to wait for its first memory. */
bool world_await(struct world *world, int job, double total_gib, double pinned_gib);
/* RESIDENT of a stuck job, which has seen its last room. */
void world_resident(struct world *world, int job, double gib);
/* LOCK_ACTIVE of a stuck job. */
void world_active(struct world *world, int job);
void world_short(struct world *world, int job, double gib);
/* So much of the first card is in use now, by whomever. */
void world_occupied(struct world *world, double gib);
void world_set_terms(struct world *world, int job, const struct sched_terms *terms);
void world_set_mode(struct world *world, enum gs_mode mode);
void world_set_tq(struct world *world, uint64_t tq_ns);
void world_set_policy(struct world *world, enum gs_policy policy);
void world_set_capacity(struct world *world, double gib);

/* Let time pass; everything happens at its time. */
void world_pass(struct world *world, uint64_t ns);

/* What has been decided since the last look. */
const char *world_said(struct world *world);

#endif
