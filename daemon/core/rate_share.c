/*
 * rate_share.c - one limit becomes many: max-min fairness. Who wants less than an equal share gets what it
 * wants and a little room to grow; the others share what that leaves, equally.
 */
#include "core/rate_internal.h"

#define THROTTLED_PART 0.05 /* of a tick, in which a thread waited: it wants more */
#define SMOOTHING 0.3
#define ROOM_TO_GROW 1.5
#define FLOOR_PART 0.125 /* of an equal share: what a job that does nothing may begin with */

void share_take(struct rate_job *job) {
  const struct rate_growth *growth = &job->growth;
  double used = growth->busy_ns / growth->elapsed_ns * RATE_WHOLE_GPU;
  job->used += SMOOTHING * (used - job->used);
  if (growth->throttled_ns > THROTTLED_PART * growth->elapsed_ns)
    job->hungry = RATE_HUNGRY_TICKS;
  else if (job->hungry > 0)
    job->hungry--;
}

bool share_is_wanted(const struct rate_gpu *gpu) {
  rate_each_job(job, &gpu->opportunistic) {
    if (job->hungry > 0)
      return true;
  }
  return false;
}

static double demand(const struct rate_job *job, double equal) {
  if (job->hungry > 0)
    return RATE_WHOLE_GPU;
  double wanted = ROOM_TO_GROW * job->used, least = FLOOR_PART * equal;
  return wanted > least ? wanted : least;
}

/* Those that want no more than an equal part of what is left have their share. True: one more has.
 * Why not so often that it costs: of n jobs that were open, m are settled whose demands lie between the last
 * part and this one, so the next part is larger by less than m / n of that difference. A double has 53 bits
 * for it: with 2,048 jobs that is over after some 30 rounds whatever they say. */
static bool settle_modest(struct rate_gpu *gpu, double equal, double *left, unsigned *open) {
  double part = *open > 0 ? *left / *open : 0;
  bool settled = false;
  rate_each_job(job, &gpu->opportunistic) {
    if (job->settled || demand(job, equal) > part)
      continue;
    job->share = demand(job, equal);
    job->settled = settled = true;
    *left -= job->share;
    --*open;
  }
  return settled;
}

/* One job can't use more than the whole GPU. */
static uint64_t as_limit(double part) { return (uint64_t)(part < RATE_WHOLE_GPU ? part : RATE_WHOLE_GPU); }

void share_split(struct rate_gpu *gpu) {
  unsigned open = gpu->opportunistic_count;
  double left = gpu->limit, equal = open > 0 ? left / open : 0;
  rate_each_job(job, &gpu->opportunistic) { job->settled = false; }
  while (settle_modest(gpu, equal, &left, &open))
    ;
  double part = open > 0 ? left / open : 0;
  double more = open > 0 ? 0 : left / (gpu->opportunistic_count > 0 ? gpu->opportunistic_count : 1);
  rate_each_job(job, &gpu->opportunistic) { job->limit = as_limit(job->settled ? job->share + more : part); }
}

void share_equal(struct rate_gpu *gpu, uint64_t limit) {
  rate_each_job(job, &gpu->opportunistic) { job->limit = limit; }
}
