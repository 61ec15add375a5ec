/* internal.h - what the parts of the scheduler share: change.c, turns.c, residency.c, scheduler.c. */
#ifndef GS_SCHEDULER_INTERNAL_H
#define GS_SCHEDULER_INTERNAL_H

#include "core/scheduler.h"

/* ---- change.c ---- */

void change_add(struct sched_change *change, struct sched_job *job, enum sched_action_type type);
void change_forget(struct sched_job *job);

/* ---- turns.c ---- */

/* Move the job to another state, its clocks and the GPU's lists with it. */
void turns_set_state(struct sched_job *job, enum gs_job_state state, uint64_t now_ns);

/* The job, which neither holds nor owes an answer, holds now. */
void turns_grant(struct sched_gpu *gpu, struct sched_job *job, uint64_t now_ns, struct sched_change *change);

/* Turns are being taken, and the newcomer runs already: it is the holder, or must stop if there is one. */
void turns_admit_running(struct sched_gpu *gpu, struct sched_job *job, uint64_t now_ns,
                         struct sched_change *change);

/* Decide what follows from the present state of the GPU. The last step of every event. */
void turns_update(const struct scheduler *scheduler, struct sched_gpu *gpu, uint64_t now_ns,
                  struct sched_change *change);

void turns_tell_all(struct sched_gpu *gpu, enum sched_action_type type, struct sched_change *change);

uint64_t turns_deadline_ns(const struct scheduler *scheduler, const struct sched_gpu *gpu);

/* Judge those that have not answered within the grace. */
void turns_expire_grace(const struct scheduler *scheduler, struct sched_gpu *gpu, uint64_t now_ns,
                        struct sched_change *change);

/* ---- residency.c ---- */

/* Whether the memory of all jobs fits the GPU together. */
bool residency_fits(const struct sched_gpu *gpu);

/* How many bytes others must evict so that next fits. */
uint64_t residency_lacking_bytes(const struct sched_gpu *gpu, const struct sched_job *next);

/* How many of these the holder can give. */
uint64_t residency_plan(const struct sched_gpu *gpu, const struct sched_job *holder,
                        const struct sched_job *next);

void residency_set_used(struct scheduler *scheduler, struct sched_job *job, uint64_t used_bytes,
                        uint64_t pinned_bytes);
void residency_set_resident(struct sched_job *job, uint64_t resident_bytes);
void residency_set_capacity(struct scheduler *scheduler, struct sched_gpu *gpu, uint64_t capacity_bytes);

/* 0, and how far the job may grow; or -ENOMEM. */
int residency_admit(const struct scheduler *scheduler, const struct sched_job *job, uint64_t total_bytes,
                    uint64_t pinned_bytes, uint64_t *granted_bytes);

static inline uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t less_u64(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
static inline uint64_t add_u64(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

#endif
