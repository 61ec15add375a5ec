/* job_measures.c - what is measured of each job on a GPU, while it is there. */
#include <inttypes.h>
#include <stdio.h>

#include "metrics/measures.h"

static void put_info(const struct scene *scene) {
  const struct attachment *attachment = attachment_of(scene->job);
  char pid[16], uid[16];
  snprintf(pid, sizeof pid, "%" PRId32, (int32_t)attachment->peer->pid);
  snprintf(uid, sizeof uid, "%" PRIu32, (uint32_t)attachment->peer->uid);
  exposition_put_info(
      scene->exposition,
      (struct label[]){{"pid", pid}, {"uid", uid}, {"gang", attachment->gang ? attachment->gang->shown : ""}},
      3);
}

static void put_memory(const struct scene *scene) {
  const struct sched_job *job = scene->job;
  exposition_put_with(scene->exposition, "place", "card", job->resident_bytes);
  exposition_put_with(scene->exposition, "place", "away", job->used_bytes - job->resident_bytes);
}

static void put_memory_limit(const struct scene *scene) {
  if (scene->job->terms.limit_bytes)
    exposition_put(scene->exposition, scene->job->terms.limit_bytes);
}

static uint64_t holds(const struct scene *scene) { return scene->job->state == GS_JOB_HOLDING; }
static uint64_t waits(const struct scene *scene) { return scene->job->state == GS_JOB_WAITING; }

static uint64_t overdue(const struct scene *scene) {
  return (sched_job_flags(scene->job) & GS_STATE_OVERDUE) != 0;
}

static uint64_t run(const struct scene *scene) { return sched_job_gpu_ns(scene->job, scene->now_ns); }
static uint64_t held(const struct scene *scene) { return sched_job_held_ns(scene->job, scene->now_ns); }
static uint64_t waited(const struct scene *scene) { return sched_job_waited_ns(scene->job, scene->now_ns); }
static uint64_t turns(const struct scene *scene) { return scene->job->turns; }
static uint64_t moved(const struct scene *scene) { return scene->job->moved_bytes; }

static void put_limit(const struct scene *scene) {
  const struct sched_job *job = scene->job;
  if (job->terms.class != GS_CLASS_OPPORTUNISTIC)
    return;
  struct rates_limit limit = rates_limit(&gpu_of(job->gpu)->rates, &attachment_of(job)->rates);
  exposition_put(scene->exposition, limit.limit);
}

const struct measure measures_of_job[] = {
    {{"gpushare_job", FAMILY_INFO, UNIT_NONE,
      "A job on a GPU: its process, user and gang, as the daemon sees them."},
     .put = put_info},
    {{"gpushare_job_memory_bytes", FAMILY_GAUGE, UNIT_BYTES,
      "Memory that the job has allocated, on the card and away in host memory."},
     .put = put_memory},
    {{"gpushare_job_memory_limit_bytes", FAMILY_GAUGE, UNIT_BYTES,
      "How much it may allocate; only of jobs with a limit."},
     .put = put_memory_limit},
    {{"gpushare_job_holds", FAMILY_GAUGE, UNIT_NONE, "Whether it may use the GPU now."}, .value = holds},
    {{"gpushare_job_waits", FAMILY_GAUGE, UNIT_NONE, "Whether it waits for its turn."}, .value = waits},
    {{"gpushare_job_overdue", FAMILY_GAUGE, UNIT_NONE,
      "Whether it has been told to stop, or to leave the card, and does not within the grace."},
     .value = overdue},
    {{"gpushare_job_run_seconds", FAMILY_COUNTER, UNIT_SECONDS,
      "GPU time: that it held the GPU with all that it needs on the card."},
     .value = run},
    {{"gpushare_job_held_seconds", FAMILY_COUNTER, UNIT_SECONDS,
      "Time for which it held the GPU, also while its memory was on its way."},
     .value = held},
    {{"gpushare_job_wait_seconds", FAMILY_COUNTER, UNIT_SECONDS, "Time for which it waited for its turn."},
     .value = waited},
    {{"gpushare_job_turns", FAMILY_COUNTER, UNIT_NONE, "Turns that it was given."}, .value = turns},
    {{"gpushare_job_moved_bytes", FAMILY_COUNTER, UNIT_BYTES,
      "Its memory that was moved in bulk, off the card and back."},
     .value = moved},
    {{"gpushare_job_limit_ratio", FAMILY_GAUGE, UNIT_RATIO,
      "Of an opportunistic job: how much of the GPU's time it may use beside production jobs."},
     .put = put_limit},
    {.family.name = NULL},
};
