/*
 * turns.c - the lock of one GPU: when turns are taken, who holds, who is told to stop.
 *
 * While turns are taken (serialized), at most one job holds. Nobody is granted before everybody who was told
 * to stop has answered, died, or been bypassed; what must leave the card for the next one leaves after that,
 * and the next one waits for it with its gate shut (residency.c). So the quantum begins when it says that it
 * runs, or the grace after its grant, or after somebody new was asked to leave for it. Who cannot run because
 * others stay on the card (residency.c) is passed over while somebody else can. While turns are not taken,
 * every job holds, but for those that still owe an answer to DROP_LOCK: they are granted when it comes. A job
 * that holds is never granted again, so a client never gets two grants without a release between them.
 */
#include "core/internal.h"
#include "core/policy.h"

#define PREEMPT_FACTOR 20 /* who is interrupted has run for so many times what the hand-over costs */

static struct sched_job *job_of_turn(struct list *node) {
  return node ? list_entry(node, struct sched_job, turn) : NULL;
}

struct sched_job *turns_holder(const struct sched_gpu *gpu) {
  return job_of_turn(list_first(&gpu->holders));
}

struct sched_job *turns_next(const struct sched_gpu *gpu) {
  struct sched_job *blocked = NULL;
  order_each(node, &gpu->queue) {
    struct sched_job *job = sched_job_of(node);
    if (sched_job_too_big(job))
      continue;
    if (!books_blocked(job))
      return job;
    if (!blocked)
      blocked = job;
  }
  return turns_holder(gpu) ? NULL : blocked;
}

/* ---- states ---- */

uint64_t sched_job_held_ns(const struct sched_job *job, uint64_t now_ns) {
  bool holds = job->state == GS_JOB_HOLDING || job->state == GS_JOB_DROPPING;
  return job->held_ns + (holds ? now_ns - job->since_ns : 0);
}

uint64_t sched_job_waited_ns(const struct sched_job *job, uint64_t now_ns) {
  return job->waited_ns + (job->state == GS_JOB_WAITING ? now_ns - job->since_ns : 0);
}

static void enter_list(struct sched_job *job, uint64_t now_ns) {
  struct sched_gpu *gpu = job->gpu;
  struct list *lists[] = {[GS_JOB_IDLE] = &gpu->idle,
                          [GS_JOB_HOLDING] = &gpu->holders,
                          [GS_JOB_DROPPING] = &gpu->dropping,
                          [GS_JOB_BYPASSED] = &gpu->idle};
  list_remove(&job->turn);
  order_remove(&gpu->queue, &job->waiting);
  if (job->state == GS_JOB_WAITING)
    order_insert(&gpu->queue, &job->waiting, policy_rank(job, now_ns));
  else
    list_append(lists[job->state], &job->turn);
}

void turns_set_state(struct sched_job *job, enum gs_job_state state, uint64_t now_ns) {
  struct sched_gpu *gpu = job->gpu;
  job->held_ns = sched_job_held_ns(job, now_ns);
  job->waited_ns = sched_job_waited_ns(job, now_ns);
  job->since_ns = now_ns;
  if (state != GS_JOB_HOLDING && state != GS_JOB_DROPPING)
    policy_charge(job, now_ns);
  job->credit_ns = 0;
  if (state == GS_JOB_WAITING)
    policy_come(job, now_ns);
  gpu->waiting_count += (state == GS_JOB_WAITING) - (job->state == GS_JOB_WAITING);
  gpu->holder_count += (state == GS_JOB_HOLDING) - (job->state == GS_JOB_HOLDING);
  job->state = state;
  job->active = job->grows = false;
  enter_list(job, now_ns);
  books_claim(job);
  residency_watch(job, now_ns);
}

void turns_rank(struct sched_job *job) {
  if (job->state != GS_JOB_WAITING)
    return;
  order_remove(&job->gpu->queue, &job->waiting);
  order_insert(&job->gpu->queue, &job->waiting, policy_rank(job, job->since_ns));
}

void turns_set_policy(struct sched_gpu *gpu, enum gs_policy policy) {
  gpu->settings.policy = policy;
  list_each(node, &gpu->jobs) { turns_rank(list_entry(node, struct sched_job, link)); }
}

void turns_grant(struct sched_gpu *gpu, struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  uint64_t waited_ns = job->state == GS_JOB_WAITING ? now_ns - job->since_ns : 0;
  turns_set_state(job, GS_JOB_HOLDING, now_ns);
  job->credit_ns = waited_ns;
  job->epoch = ++gpu->epoch;
  job->turns++;
  job->wanted_told = job->hidden = job->too_big_noted = false;
  job->flags = 0;
  job->target_bytes = books_target_bytes(job);
  gpu->turn_ns = add_u64(now_ns, gpu->scheduler->grace_ns);
  if (gpu->serialized)
    handover_begin(gpu, now_ns);
  gpu->handovers += gpu->serialized && gpu->last_job != 0 && gpu->last_job != job->id;
  gpu->last_job = job->id;
  policy_serve(job);
  change_add(change, job, SCHED_TELL_LOCK_OK);
}

static void drop(struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  turns_set_state(job, GS_JOB_DROPPING, now_ns);
  change_add(change, job, SCHED_TELL_DROP_LOCK);
}

void turns_admit_running(struct sched_gpu *gpu, struct sched_job *job, uint64_t now_ns,
                         struct sched_change *change) {
  struct sched_job *holder = turns_holder(gpu);
  turns_set_state(job, GS_JOB_HOLDING, now_ns); /* epoch 0: nobody has granted it */
  job->turns++;
  job->active = true;
  job->ran_ns = now_ns;
  if (holder) {
    drop(job, now_ns, change);
  } else {
    gpu->turn_ns = now_ns;
    gpu->last_job = job->id;
  }
}

/* ---- turns begin and end ---- */

/* Turns are taken while the memory of all jobs does not fit together. In mode off, too, if some of it has no
 * page faults: without turns nobody would ever leave for it. */
static bool follow_memory(const struct sched_gpu *gpu) {
  return gpu->settings.mode == GS_MODE_AUTO ||
         (gpu->settings.mode == GS_MODE_OFF && gpu->faultless_bytes > 0);
}

static bool wants_turns(const struct sched_gpu *gpu) {
  return gpu->settings.mode == GS_MODE_ON || (follow_memory(gpu) && !books_fit(gpu));
}

static uint64_t settled_ns(const struct sched_gpu *gpu) {
  return follow_memory(gpu) ? add_u64(gpu->serialized_ns, gpu->scheduler->settle_ns) : 0;
}

void turns_tell_all(struct sched_gpu *gpu, enum sched_action_type type, struct sched_change *change) {
  list_each(node, &gpu->jobs) { change_add(change, list_entry(node, struct sched_job, link), type); }
}

/* The holder that has held for the shortest time so far, so that switching to and fro favours nobody. */
static struct sched_job *least_served(const struct sched_gpu *gpu, uint64_t now_ns) {
  struct sched_job *least = NULL;
  list_each(node, &gpu->holders) {
    struct sched_job *job = job_of_turn(node);
    if (!least || sched_job_held_ns(job, now_ns) < sched_job_held_ns(least, now_ns))
      least = job;
  }
  return least;
}

/* Everybody but one holder stops. */
static void keep_one_holder(struct sched_gpu *gpu, struct sched_job *kept, uint64_t now_ns,
                            struct sched_change *change) {
  struct sched_job *job;
  list_remove(&kept->turn);
  while ((job = turns_holder(gpu)))
    drop(job, now_ns, change);
  list_append(&gpu->holders, &kept->turn);
  gpu->last_job = kept->id;
  gpu->turn_ns = kept->active ? now_ns : add_u64(now_ns, gpu->scheduler->grace_ns);
}

static void begin_turns(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  gpu->serialized = true;
  gpu->serialized_ns = now_ns;
  turns_tell_all(gpu, SCHED_TELL_SCHED, change);
  struct sched_job *kept = least_served(gpu, now_ns);
  if (kept)
    keep_one_holder(gpu, kept, now_ns, change);
}

static void end_turns(struct sched_gpu *gpu, struct sched_change *change) {
  gpu->serialized = false;
  turns_tell_all(gpu, SCHED_TELL_SCHED, change);
}

static void switch_turns(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  bool wants = wants_turns(gpu);
  if (wants && !gpu->serialized)
    begin_turns(gpu, now_ns, change);
  else if (!wants && gpu->serialized && now_ns >= settled_ns(gpu))
    end_turns(gpu, change);
}

/* ---- what follows from the state ---- */

static uint64_t grace_end_ns(const struct sched_job *job) {
  return add_u64(job->since_ns, job->gpu->scheduler->grace_ns);
}

static uint64_t quantum_end_ns(const struct sched_gpu *gpu) {
  return add_u64(gpu->turn_ns, gpu->settings.tq_ns);
}

/* When the holder has had enough to be interrupted. */
static uint64_t preemptible_ns(const struct sched_job *holder, const struct sched_job *next) {
  uint64_t bytes = max_u64(holder->used_bytes, next->used_bytes);
  uint64_t cost_ns = handover_cost_ns(holder->gpu, bytes);
  return cost_ns < SCHED_NEVER / PREEMPT_FACTOR ? add_u64(holder->ran_ns, cost_ns * PREEMPT_FACTOR)
                                                : SCHED_NEVER;
}

/* When to decide whether the holder makes way for the next one. */
static uint64_t turn_end_ns(const struct sched_gpu *gpu, const struct sched_job *next) {
  const struct sched_job *holder = turns_holder(gpu);
  if (!holder->active && books_blocked(holder))
    return grace_end_ns(holder);
  if (holder->active && gpu->preempts)
    return min_u64(preemptible_ns(holder, next), quantum_end_ns(gpu));
  return quantum_end_ns(gpu);
}

void turns_wait_anew(struct sched_gpu *gpu, uint64_t now_ns) {
  const struct sched_job *holder = gpu->serialized ? turns_holder(gpu) : NULL;
  if (holder && !holder->active && !holder->managed)
    gpu->turn_ns = max_u64(gpu->turn_ns, add_u64(now_ns, gpu->scheduler->grace_ns));
}

static void note_too_big(struct sched_job *job, struct sched_change *change) {
  if (!job->too_big_noted)
    change_add(change, job, SCHED_NOTE_TOO_BIG);
  job->too_big_noted = true;
}

/* The next one that can run; those before it are noted. */
static struct sched_job *pass_over(const struct sched_gpu *gpu, struct sched_change *change) {
  struct sched_job *next = turns_next(gpu);
  order_each(node, &gpu->queue) {
    struct sched_job *job = sched_job_of(node);
    if (job == next)
      break;
    if (sched_job_too_big(job))
      note_too_big(job, change);
  }
  return next;
}

static void stop_holder(struct sched_job *holder, uint64_t now_ns, struct sched_change *change) {
  handover_begin(holder->gpu, now_ns);
  drop(holder, now_ns, change);
}

/* One that holds and has come to need more than the capacity cannot go on. (Where the driver has refused some
 * of that, the program gets to hear it: it may be about to do with less.) */
static void stop_too_big(const struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  struct sched_job *holder = turns_holder(gpu);
  if (!holder || !books_exceeds_capacity(holder))
    return;
  note_too_big(holder, change);
  stop_holder(holder, now_ns, change);
}

/* Its turn is over, or may be. */
static bool makes_way(const struct sched_job *holder, const struct sched_job *next, uint64_t now_ns) {
  bool waits_in_vain = !holder->active && books_blocked(holder);
  return waits_in_vain || holder->gpu->preempts || policy_precedes(next, holder, now_ns);
}

static void take_turns(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  stop_too_big(gpu, now_ns, change);
  struct sched_job *next = pass_over(gpu, change);
  if (next && !turns_holder(gpu) && list_empty(&gpu->dropping) && list_empty(&gpu->overdue)) {
    turns_grant(gpu, next, now_ns, change);
    next = pass_over(gpu, change);
  }
  struct sched_job *holder = turns_holder(gpu);
  if (!next || !holder)
    return;
  if (now_ns >= quantum_end_ns(gpu))
    holder->credit_ns = 0;
  gpu->preempts = policy_preempts(next, holder, now_ns);
  if (now_ns >= turn_end_ns(gpu, next)) {
    if (makes_way(holder, next, now_ns)) {
      stop_holder(holder, now_ns, change);
      return;
    }
    gpu->turn_ns = now_ns; /* for another quantum */
  }
  if (!holder->wanted_told)
    change_add(change, holder, SCHED_TELL_LOCK_WANTED);
  holder->wanted_told = true;
}

/* Turns have ended: who neither holds nor owes an answer holds now. */
static void grant_all(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  list_each(node, &gpu->jobs) {
    struct sched_job *job = list_entry(node, struct sched_job, link);
    if (job->state == GS_JOB_IDLE || job->state == GS_JOB_WAITING)
      turns_grant(gpu, job, now_ns, change);
  }
}

void turns_update(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  bool serialized = gpu->serialized;
  switch_turns(gpu, now_ns, change);
  if (gpu->serialized)
    take_turns(gpu, now_ns, change);
  else if (serialized)
    grant_all(gpu, now_ns, change);
}

/* ---- time ---- */

uint64_t turns_deadline_ns(const struct sched_gpu *gpu) {
  uint64_t deadline_ns = SCHED_NEVER;
  const struct sched_job *next = gpu->serialized && turns_holder(gpu) ? turns_next(gpu) : NULL;
  if (next)
    deadline_ns = turn_end_ns(gpu, next);
  if (!list_empty(&gpu->dropping))
    deadline_ns = min_u64(deadline_ns, grace_end_ns(job_of_turn(list_first(&gpu->dropping))));
  if (gpu->serialized && !wants_turns(gpu))
    deadline_ns = min_u64(deadline_ns, settled_ns(gpu));
  return deadline_ns;
}

static void judge(struct sched_gpu *gpu, struct sched_job *job, uint64_t now_ns,
                  struct sched_change *change) {
  struct sched_handover *handover = &gpu->handover;
  job->flags |= GS_STATE_OVERDUE;
  if (job->managed) {
    if (handover->open)
      handover_drained(gpu, now_ns - job->since_ns, now_ns);
    turns_set_state(job, GS_JOB_BYPASSED, now_ns);
    change_add(change, job, SCHED_NOTE_BYPASSED);
  } else {
    list_remove(&job->turn);
    list_append(&gpu->overdue, &job->turn);
    change_add(change, job, SCHED_NOTE_OVERDUE);
  }
}

void turns_expire_grace(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  struct sched_job *job;
  while ((job = job_of_turn(list_first(&gpu->dropping))) && now_ns >= grace_end_ns(job))
    judge(gpu, job, now_ns, change);
}
