/* policy.c - ranks. */
#include "core/policy.h"

#include "core/internal.h"

#define AGING_DIVISOR 32               /* srtf: what a second of waiting is worth */
#define LEVEL_NS UINT64_C(60000000000) /* priority: of waiting, for one level */
#define BEHIND_QUANTA 1                /* fair: who rests falls behind by no more */
#define PATIENCE 32                    /* pack: quanta that somebody waits */
#define LATE (UINT64_C(1) << 63)       /* ranks of opportunistic jobs; others are below that */
#define BEGUN_NS UINT64_C(100000000)   /* srtf: what is expected at least of a job of unknown length */

struct policy {
  uint64_t (*rank)(const struct sched_job *job, uint64_t now_ns);
  uint64_t (*margin)(const struct sched_gpu *gpu); /* by which a waiter's rank must be better than a holder's
                                                      to preempt it; NULL: it never does */
};

static uint64_t by_asking(const struct sched_job *job, uint64_t now_ns) {
  (void)job;
  return now_ns;
}

static uint64_t by_arrival(const struct sched_job *job, uint64_t now_ns) {
  (void)now_ns;
  return job->arrival;
}

static uint64_t weighted_ns(const struct sched_job *job, uint64_t gpu_ns) {
  return gpu_ns / job->terms.weight * SCHED_WEIGHT +
         gpu_ns % job->terms.weight * SCHED_WEIGHT / job->terms.weight;
}

/* While no turns are taken, all run, and the card itself shares out its time. */
static uint64_t charged_ns(const struct sched_job *job, uint64_t now_ns) {
  const struct sched_gpu *gpu = job->gpu;
  return job->ran_ns && gpu->serialized ? now_ns - max_u64(job->ran_ns, gpu->serialized_ns) : 0;
}

static uint64_t by_share(const struct sched_job *job, uint64_t now_ns) {
  return add_u64(job->virtual_ns, weighted_ns(job, charged_ns(job, now_ns)));
}

static uint64_t by_rest(const struct sched_job *job, uint64_t now_ns) {
  return add_u64(sched_job_remaining_ns(job, now_ns), (now_ns - job->credit_ns) / AGING_DIVISOR);
}

static uint64_t by_level(const struct sched_job *job, uint64_t now_ns) {
  return add_u64(now_ns - job->credit_ns, (uint64_t)(SCHED_PRIORITY_MAX - job->terms.priority) * LEVEL_NS);
}

static uint64_t any_margin(const struct sched_gpu *gpu) {
  (void)gpu;
  return 0;
}

static uint64_t level_margin(const struct sched_gpu *gpu) {
  (void)gpu;
  return LEVEL_NS;
}

static const struct policy policies[] = {
    [GS_POLICY_RR] = {by_asking, NULL},
    [GS_POLICY_FAIR] = {by_share, sched_gpu_tq_ns},
    [GS_POLICY_FIFO] = {by_arrival, any_margin},
    [GS_POLICY_SRTF] = {by_rest, any_margin},
    [GS_POLICY_PRIORITY] = {by_level, level_margin},
    [GS_POLICY_PACK] = {by_arrival, NULL},
};

static const struct policy *policy_of(const struct sched_job *job) {
  return &policies[job->gpu->settings.policy];
}

static bool is_late(const struct sched_job *job) { return job->terms.class == GS_CLASS_OPPORTUNISTIC; }

uint64_t policy_rank(const struct sched_job *job, uint64_t now_ns) {
  if (job->state == GS_JOB_WAITING && job->gang && job->gang->claims)
    return 0; /* it comes first */
  uint64_t rank = min_u64(max_u64(policy_of(job)->rank(job, now_ns), 1), LATE - 1);
  return is_late(job) ? rank | LATE : rank;
}

/* By so much a rank may be better and not stay: fair hands out whole quanta, so after another one the holder
 * would be further ahead than it is behind now. */
static uint64_t leap(const struct sched_job *holder) {
  const struct sched_gpu *gpu = holder->gpu;
  return gpu->settings.policy == GS_POLICY_FAIR ? weighted_ns(holder, sched_gpu_tq_ns(gpu) / 2) : 0;
}

bool policy_precedes(const struct sched_job *waiter, const struct sched_job *holder, uint64_t now_ns) {
  const struct sched_gpu *gpu = waiter->gpu;
  if (is_late(waiter) != is_late(holder))
    return is_late(holder);
  if (gpu->settings.policy == GS_POLICY_PACK)
    return (now_ns - max_u64(waiter->since_ns, gpu->made_way_ns)) / PATIENCE >= sched_gpu_tq_ns(gpu);
  return waiter->waiting.key <= add_u64(policy_rank(holder, now_ns), leap(holder));
}

bool policy_goes_by_rank(const struct sched_gpu *gpu) { return gpu->settings.policy != GS_POLICY_PACK; }

/* How long the holder, which runs, takes for its rank to grow by so much. */
static uint64_t growth_ns(const struct sched_job *holder, uint64_t rank) {
  switch (holder->gpu->settings.policy) {
  case GS_POLICY_FAIR:
    return min_u64(rank, SCHED_NEVER / SCHED_WEIGHT_MAX / 2) * holder->terms.weight / SCHED_WEIGHT + 1;
  case GS_POLICY_PRIORITY:
    return rank;
  default:
    return SCHED_NEVER;
  }
}

/* When the rank of the holder, which runs, will be worse than the waiter's by the margin. */
static uint64_t worse_ns(const struct sched_job *holder, const struct sched_job *waiter, uint64_t margin,
                         uint64_t now_ns) {
  uint64_t lacks = less_u64(add_u64(waiter->waiting.key, margin), policy_rank(holder, now_ns));
  return lacks ? add_u64(now_ns, growth_ns(holder, lacks)) : now_ns;
}

uint64_t policy_preempts_ns(const struct sched_job *waiter, const struct sched_job *holder, uint64_t now_ns) {
  const struct policy *policy = policy_of(waiter);
  if (is_late(waiter) != is_late(holder))
    return is_late(holder) ? now_ns : SCHED_NEVER;
  return policy->margin ? worse_ns(holder, waiter, policy->margin(waiter->gpu), now_ns) : SCHED_NEVER;
}

uint64_t policy_outranks_ns(const struct sched_job *waiter, const struct sched_job *holder, uint64_t now_ns) {
  return worse_ns(holder, waiter, 0, now_ns);
}

bool policy_is_preemptive(const struct sched_gpu *gpu) {
  return policies[gpu->settings.policy].margin || gpu->class_counts[GS_CLASS_OPPORTUNISTIC] > 0;
}

uint64_t sched_job_remaining_ns(const struct sched_job *job, uint64_t now_ns) {
  uint64_t had_ns = sched_job_gpu_ns(job, now_ns);
  return job->terms.expected_ns > had_ns ? job->terms.expected_ns - had_ns : max_u64(had_ns, BEGUN_NS);
}

uint64_t sched_job_running_ns(const struct sched_job *job, uint64_t now_ns) {
  return job->ran_ns ? now_ns - job->ran_ns : 0;
}

uint64_t sched_job_gpu_ns(const struct sched_job *job, uint64_t now_ns) {
  return add_u64(job->gpu_ns, sched_job_running_ns(job, now_ns));
}

void policy_charge(struct sched_job *job, uint64_t now_ns) {
  job->virtual_ns = add_u64(job->virtual_ns, weighted_ns(job, charged_ns(job, now_ns)));
  job->gpu_ns = sched_job_gpu_ns(job, now_ns);
  job->ran_ns = 0;
}

void policy_make_way(struct sched_job *holder, uint64_t now_ns) {
  struct sched_gpu *gpu = holder->gpu;
  if (gpu->settings.policy != GS_POLICY_PACK)
    return;
  holder->arrival = ++gpu->arrivals;
  gpu->made_way_ns = now_ns;
}

/* Where those are that run: the one that has had least. */
static uint64_t level_ns(const struct sched_gpu *gpu, uint64_t now_ns) {
  uint64_t least_ns = UINT64_MAX;
  list_each(node, &gpu->holders) {
    least_ns = min_u64(least_ns, by_share(list_entry(node, struct sched_job, turn), now_ns));
  }
  return max_u64(gpu->virtual_ns, least_ns == UINT64_MAX ? 0 : least_ns);
}

void policy_come(struct sched_job *job, uint64_t now_ns) {
  uint64_t kept_ns = job->turns ? weighted_ns(job, BEHIND_QUANTA * sched_gpu_tq_ns(job->gpu)) : 0;
  job->virtual_ns = max_u64(job->virtual_ns, less_u64(level_ns(job->gpu, now_ns), kept_ns));
}

void policy_serve(const struct sched_job *job) {
  job->gpu->virtual_ns = max_u64(job->gpu->virtual_ns, job->virtual_ns);
}
