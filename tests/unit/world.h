/*
 * world.h - a scheduler with GPUs, jobs and a clock, for tests: events by name, decisions as text.
 *
 * A decision is JOB:WHAT, WHAT one of attached, capacity, on, off (turns), ok(EPOCH), wanted(EPOCH),
 * drop(EPOCH,GIB to evict), bypassed, overdue.
 */
#ifndef GS_TEST_WORLD_H
#define GS_TEST_WORLD_H

#include "common/clock.h"
#include "core/scheduler.h"

#define GIB (UINT64_C(1) << 30)
#define WORLD_JOBS 16
#define WORLD_GPUS 2
#define WORLD_CARD_GIB 16

struct world {
  struct scheduler scheduler;
  struct sched_gpu gpus[WORLD_GPUS];
  struct sched_job jobs[WORLD_JOBS + 1]; /* by id, from 1 */
  struct sched_change change;
  uint64_t now_ns;
  char said[4096]; /* decisions since the last look */
};

/* Two cards of 16 GiB, TQ 20 s, grace 30 s, no settling time. */
void world_init(struct world *world, enum gs_mode mode);

void world_attach_at(struct world *world, int gpu, int job, double used_gib, uint32_t flags);
void world_attach(struct world *world, int job, double used_gib, uint32_t flags);
void world_detach(struct world *world, int job);
void world_request(struct world *world, int job);
/* Answers the job's present epoch. */
void world_release(struct world *world, int job);
void world_release_with(struct world *world, int job, uint64_t epoch, double evicted_gib);
void world_memory(struct world *world, int job, double total_gib);
void world_set_mode(struct world *world, enum gs_mode mode);
void world_set_tq(struct world *world, uint64_t tq_ns);
void world_set_capacity(struct world *world, double gib);

/* Let time pass; everything happens at its time. */
void world_pass(struct world *world, uint64_t ns);

/* What has been decided since the last look. */
const char *world_said(struct world *world);

#endif
