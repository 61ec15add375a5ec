/* reason.c - what a job waits for, and how long that should take. Nothing here decides anything. */
#include "core/internal.h"
#include "core/policy.h"

uint64_t sched_job_lacking_bytes(const struct sched_job *job) {
  return less_u64(books_target_bytes(job), job->resident_bytes);
}

/* For what it lacks to come to the card. */
static uint64_t restore_ns(const struct sched_job *job) {
  return handover_cost_ns(job->gpu, sched_job_lacking_bytes(job));
}

/* For all that wait, since status asks for each of them: who is ahead of it, and what those have left, and
 * those that hold. */
static void look_ahead(struct sched_gpu *gpu, uint64_t now_ns) {
  uint32_t count = 0;
  uint64_t sum_ns = 0;
  if (gpu->ahead_events == gpu->events && gpu->ahead_at_ns == now_ns)
    return;
  gpu->ahead_events = gpu->events;
  gpu->ahead_at_ns = now_ns;
  list_each(node, &gpu->holders) {
    sum_ns = add_u64(sum_ns, sched_job_remaining_ns(job_of_turn(node), now_ns));
  }
  const struct list *queue = queue_of(gpu);
  list_each(node, queue) {
    struct sched_job *job = job_of_queue(node);
    job->ahead = count;
    job->ahead_ns = sum_ns;
    if (sched_job_too_big(job))
      continue;
    count++;
    sum_ns = add_u64(sum_ns, sched_job_remaining_ns(job, now_ns));
  }
}

/* What those have left who hold, and those before it in the queue. */
static uint64_t runs_ns(const struct sched_job *job, uint64_t now_ns) {
  look_ahead(job->gpu, now_ns);
  return job->ahead_ns / (job->gpu->holder_count ? job->gpu->holder_count : 1);
}

/* The quanta of those before it in the queue. Those of a set have theirs at the same time. */
static uint64_t quanta_ns(const struct sched_job *job, uint64_t now_ns) {
  const struct sched_gpu *gpu = job->gpu;
  look_ahead(job->gpu, now_ns);
  return job->ahead / (gpu->holder_count ? gpu->holder_count : 1) * sched_gpu_tq_ns(gpu);
}

/* Until it comes before one of those that hold, as far as so many of them tell. */
static uint64_t outranked_ns(const struct sched_job *job, uint64_t now_ns) {
  uint64_t soonest_ns = SCHED_NEVER;
  unsigned looked_at = 0;
  list_each(node, &job->gpu->holders) {
    if (looked_at++ == SCHED_LOOKAHEAD)
      break;
    soonest_ns = min_u64(soonest_ns, policy_outranks_ns(job, job_of_turn(node), now_ns));
  }
  return soonest_ns == SCHED_NEVER ? 0 : soonest_ns - now_ns;
}

/* Who is foreseen has a place when the quantum is over. Else those before it will have held first: turns are
 * taken by the quantum, or one runs after the other; and those that hold go on as long as they come first. */
static uint64_t others_ns(const struct sched_job *job, uint64_t now_ns) {
  const struct sched_gpu *gpu = job->gpu;
  bool in_a_row = gpu->settings.policy == GS_POLICY_FIFO || gpu->settings.policy == GS_POLICY_SRTF ||
                  gpu->settings.policy == GS_POLICY_PACK;
  bool foreseen = !list_empty(&job->turn);
  if (in_a_row && !foreseen)
    return runs_ns(job, now_ns);
  uint64_t left_ns = turns_quantum_left_ns(gpu, now_ns);
  return foreseen ? left_ns : max_u64(add_u64(left_ns, quanta_ns(job, now_ns)), outranked_ns(job, now_ns));
}

static struct sched_reason because(enum gs_reason why, const struct sched_job *who, uint64_t expected_ns) {
  return (struct sched_reason){.why = why, .who = who, .expected_ns = expected_ns};
}

static struct sched_reason of_holder(const struct sched_job *job) {
  const struct list *leaving = &job->gpu->leaving;
  if (job->active || !job->gpu->serialized)
    return because(GS_REASON_RUNS, NULL, 0);
  if (job->room_bytes < books_target_bytes(job) && !list_empty(leaving))
    return because(GS_REASON_ROOM, list_entry(list_first(leaving), struct sched_job, leaving_link),
                   restore_ns(job));
  return because(GS_REASON_RESTORE, NULL, restore_ns(job));
}

/* Nobody knows when a job of another class will be idle. */
static bool waits_for_idleness(const struct sched_job *job) {
  const struct sched_job *holder = turns_holder(job->gpu);
  return job->terms.class == GS_CLASS_OPPORTUNISTIC && holder &&
         holder->terms.class != GS_CLASS_OPPORTUNISTIC;
}

static struct sched_reason of_waiter(const struct sched_job *job, uint64_t now_ns) {
  const struct sched_gpu *gpu = job->gpu;
  if (gang_paused(job->gang))
    return because(GS_REASON_PAUSED, gang_paused(job->gang), SCHED_NEVER);
  const struct sched_job *silent = job_of_turn(list_first(&gpu->overdue));
  const struct sched_job *stopping = job_of_turn(list_first(&gpu->dropping));
  if (!stopping)
    stopping = silent;
  if (sched_job_too_big(job))
    return because(GS_REASON_TOO_BIG, NULL, SCHED_NEVER);
  if (books_blocked(job))
    return because(GS_REASON_STAYING, NULL, SCHED_NEVER);
  if (silence_bars(job))
    return because(GS_REASON_TURN, turns_holder(gpu), less_u64(job->share->shunned_until_ns, now_ns));
  if (!list_empty(&job->turn) && stopping && !list_empty(&gpu->next))
    return because(GS_REASON_STOP, stopping, stopping == silent ? SCHED_NEVER : restore_ns(job));
  if (waits_for_idleness(job))
    return because(GS_REASON_TURN, turns_holder(gpu), SCHED_NEVER);
  if (silent && !turns_holder(gpu)) /* nobody knows when it will answer */
    return because(GS_REASON_TURN, silent, SCHED_NEVER);
  return because(GS_REASON_TURN, turns_holder(gpu), add_u64(others_ns(job, now_ns), restore_ns(job)));
}

struct sched_reason sched_job_reason(const struct sched_job *job, uint64_t now_ns) {
  if (sched_job_enters(job))
    return because(GS_REASON_MEMORY, NULL, SCHED_NEVER);
  if (job->state == GS_JOB_HOLDING)
    return of_holder(job);
  if (job->state == GS_JOB_WAITING)
    return of_waiter(job, now_ns);
  if (job->state == GS_JOB_DROPPING)
    return because(GS_REASON_STOPS, NULL, 0);
  if (job->terms.paused)
    return because(GS_REASON_PAUSED, NULL, SCHED_NEVER);
  return because(job->state == GS_JOB_BYPASSED ? GS_REASON_SILENT : GS_REASON_IDLE, NULL, 0);
}
