/* scheduler.c - the events of the scheduler; each changes its part of the state, then lets turns.c decide. */
#include "core/scheduler.h"

#include <string.h>

#include "core/internal.h"

static struct sched_gpu *gpu_of(struct list *node) { return list_entry(node, struct sched_gpu, link); }

void scheduler_init(struct scheduler *scheduler) {
  *scheduler = (struct scheduler){
      .defaults = {.tq_ns = UINT64_C(20000000000), .mode = GS_MODE_AUTO},
      .grace_ns = UINT64_C(30000000000),
      .settle_ns = UINT64_C(100000000),
      .host_memory_bytes = UINT64_MAX / 2,
  };
  list_init(&scheduler->gpus);
}

struct sched_gpu *scheduler_find_gpu(const struct scheduler *scheduler, const uint8_t uuid[GS_UUID_SIZE]) {
  list_each(node, &scheduler->gpus) {
    if (memcmp(gpu_of(node)->uuid, uuid, GS_UUID_SIZE) == 0)
      return gpu_of(node);
  }
  return NULL;
}

void scheduler_add_gpu(struct scheduler *scheduler, struct sched_gpu *gpu, const uint8_t uuid[GS_UUID_SIZE],
                       const char *name, uint64_t total_bytes) {
  *gpu = (struct sched_gpu){.settings = scheduler->defaults,
                            .total_bytes = min_u64(total_bytes, SCHED_BYTES_MAX)};
  memcpy(gpu->uuid, uuid, GS_UUID_SIZE);
  strncpy(gpu->name, name, sizeof gpu->name - 1);
  list_init(&gpu->jobs);
  list_init(&gpu->queue);
  list_init(&gpu->holders);
  list_init(&gpu->dropping);
  list_init(&gpu->overdue);
  gpu->serialized = gpu->settings.mode == GS_MODE_ON;
  list_append(&scheduler->gpus, &gpu->link);
}

void scheduler_remove_gpu(struct scheduler *scheduler, struct sched_gpu *gpu) {
  (void)scheduler; /* without jobs it is part of no sum */
  list_remove(&gpu->link);
}

/* ---- jobs come and go ---- */

static void admit_job(struct scheduler *scheduler, struct sched_gpu *gpu, struct sched_job *job,
                      const struct sched_attach *attach, uint64_t now_ns) {
  *job = (struct sched_job){.gpu = gpu,
                            .owner = attach->owner,
                            .id = attach->id,
                            .since_ns = now_ns,
                            .managed = attach->flags & GS_ATTACH_MANAGED};
  list_init(&job->turn);
  list_init(&job->todo_link);
  list_append(&gpu->jobs, &job->link);
  gpu->job_count++;
  residency_set_used(scheduler, job, attach->used_bytes, 0);
  residency_set_resident(job, job->used_bytes);
}

void scheduler_attach(struct scheduler *scheduler, struct sched_gpu *gpu, struct sched_job *job,
                      const struct sched_attach *attach, uint64_t now_ns, struct sched_change *change) {
  admit_job(scheduler, gpu, job, attach, now_ns);
  change_add(change, job, SCHED_TELL_ATTACHED);
  change_add(change, job, SCHED_TELL_SCHED);
  turns_update(scheduler, gpu, now_ns, change); /* its memory may be what makes turns begin */
  if (!gpu->serialized && job->state == GS_JOB_IDLE)
    turns_grant(gpu, job, now_ns, change);
  else if (gpu->serialized && (attach->flags & GS_ATTACH_RUNNING))
    turns_admit_running(gpu, job, now_ns, change);
  turns_update(scheduler, gpu, now_ns, change);
}

void scheduler_detach(struct scheduler *scheduler, struct sched_job *job, uint64_t now_ns,
                      struct sched_change *change) {
  struct sched_gpu *gpu = job->gpu;
  turns_set_state(job, GS_JOB_IDLE, now_ns);
  change_forget(job);
  list_remove(&job->link);
  gpu->job_count--;
  residency_set_used(scheduler, job, 0, 0);
  turns_update(scheduler, gpu, now_ns, change);
}

/* ---- the lock ---- */

void scheduler_request(struct scheduler *scheduler, struct sched_job *job, uint64_t now_ns,
                       struct sched_change *change) {
  if (job->state != GS_JOB_IDLE)
    return; /* it crossed a grant, or is a repetition; who is being dropped asks again after its release */
  if (job->gpu->serialized)
    turns_set_state(job, GS_JOB_WAITING, now_ns);
  else
    turns_grant(job->gpu, job, now_ns, change);
  turns_update(scheduler, job->gpu, now_ns, change);
}

static void account_release(struct sched_job *job, const struct sched_release *release) {
  uint64_t moved_bytes = min_u64(release->evict_bytes, SCHED_BYTES_MAX);
  job->moved_bytes = add_u64(job->moved_bytes, moved_bytes);
  job->gpu->moved_bytes = add_u64(job->gpu->moved_bytes, moved_bytes);
  if (release->drain_ns > job->drain_max_ns)
    job->drain_max_ns = release->drain_ns;
  residency_set_resident(job, less_u64(job->resident_bytes, moved_bytes));
}

void scheduler_release(struct scheduler *scheduler, struct sched_job *job,
                       const struct sched_release *release, uint64_t now_ns, struct sched_change *change) {
  if (job->state == GS_JOB_IDLE || job->state == GS_JOB_WAITING || release->epoch != job->epoch)
    return;
  account_release(job, release);
  job->flags = 0;
  turns_set_state(job, GS_JOB_IDLE, now_ns);
  if (!job->gpu->serialized)
    turns_grant(job->gpu, job, now_ns, change);
  turns_update(scheduler, job->gpu, now_ns, change);
}

void scheduler_active(struct sched_job *job, uint64_t epoch, uint64_t restore_bytes) {
  if (epoch != job->epoch)
    return;
  restore_bytes = min_u64(restore_bytes, SCHED_BYTES_MAX);
  job->moved_bytes = add_u64(job->moved_bytes, restore_bytes);
  job->gpu->moved_bytes = add_u64(job->gpu->moved_bytes, restore_bytes);
}

void scheduler_set_flags(struct sched_job *job, uint32_t flags) {
  job->flags = (flags & (GS_STATE_CAPTURING | GS_STATE_DRAINING)) | (job->flags & GS_STATE_OVERDUE);
}

/* ---- memory ---- */

static void set_memory(struct scheduler *scheduler, struct sched_job *job, uint64_t total_bytes,
                       uint64_t pinned_bytes, uint64_t now_ns, struct sched_change *change) {
  uint64_t grown_bytes = less_u64(min_u64(total_bytes, SCHED_BYTES_MAX), job->used_bytes);
  bool holds = job->state == GS_JOB_HOLDING || job->state == GS_JOB_DROPPING;
  residency_set_used(scheduler, job, total_bytes, pinned_bytes);
  if (holds) /* what others allocate is touched first, and gets to the card, in their turn */
    residency_set_resident(job, job->resident_bytes + grown_bytes);
  turns_update(scheduler, job->gpu, now_ns, change);
}

int scheduler_memory_request(struct scheduler *scheduler, struct sched_job *job, uint64_t total_bytes,
                             uint64_t pinned_bytes, uint64_t now_ns, struct sched_change *change,
                             uint64_t *granted_bytes) {
  int err = residency_admit(scheduler, job, total_bytes, pinned_bytes, granted_bytes);
  if (err == 0)
    set_memory(scheduler, job, total_bytes, pinned_bytes, now_ns, change);
  return err;
}

void scheduler_memory_report(struct scheduler *scheduler, struct sched_job *job, uint64_t total_bytes,
                             uint64_t pinned_bytes, uint64_t now_ns, struct sched_change *change) {
  set_memory(scheduler, job, total_bytes, pinned_bytes, now_ns, change);
}

/* ---- settings ---- */

enum setting { SETTING_TQ, SETTING_MODE, SETTING_CAPACITY };

static void set_one(struct scheduler *scheduler, struct sched_gpu *gpu, enum setting setting, uint64_t value,
                    uint64_t now_ns, struct sched_change *change) {
  if (setting == SETTING_TQ)
    gpu->settings.tq_ns = value;
  else if (setting == SETTING_MODE)
    gpu->settings.mode = (enum gs_mode)value;
  else
    residency_set_capacity(scheduler, gpu, value);
  if (setting != SETTING_TQ)
    turns_tell_all(gpu, SCHED_TELL_CAPACITY, change);
  turns_update(scheduler, gpu, now_ns, change);
}

static void set(struct scheduler *scheduler, struct sched_gpu *gpu, enum setting setting, uint64_t value,
                uint64_t now_ns, struct sched_change *change) {
  if (gpu) {
    set_one(scheduler, gpu, setting, value, now_ns, change);
    return;
  }
  if (setting == SETTING_TQ)
    scheduler->defaults.tq_ns = value;
  else if (setting == SETTING_MODE)
    scheduler->defaults.mode = (enum gs_mode)value;
  else
    scheduler->defaults.capacity_bytes = value;
  list_each(node, &scheduler->gpus) { set_one(scheduler, gpu_of(node), setting, value, now_ns, change); }
}

void scheduler_set_tq(struct scheduler *scheduler, struct sched_gpu *gpu, uint64_t tq_ns, uint64_t now_ns,
                      struct sched_change *change) {
  set(scheduler, gpu, SETTING_TQ, tq_ns < SCHED_TQ_MIN_NS ? SCHED_TQ_MIN_NS : tq_ns, now_ns, change);
}

void scheduler_set_mode(struct scheduler *scheduler, struct sched_gpu *gpu, enum gs_mode mode,
                        uint64_t now_ns, struct sched_change *change) {
  set(scheduler, gpu, SETTING_MODE, mode, now_ns, change);
}

void scheduler_set_capacity(struct scheduler *scheduler, struct sched_gpu *gpu, uint64_t bytes,
                            uint64_t now_ns, struct sched_change *change) {
  set(scheduler, gpu, SETTING_CAPACITY, min_u64(bytes, SCHED_BYTES_MAX), now_ns, change);
}

/* ---- time and figures ---- */

uint64_t scheduler_deadline_ns(const struct scheduler *scheduler) {
  uint64_t deadline_ns = SCHED_NEVER;
  list_each(node, &scheduler->gpus) {
    deadline_ns = min_u64(deadline_ns, turns_deadline_ns(scheduler, gpu_of(node)));
  }
  return deadline_ns;
}

void scheduler_expire(struct scheduler *scheduler, uint64_t now_ns, struct sched_change *change) {
  list_each(node, &scheduler->gpus) {
    turns_expire_grace(scheduler, gpu_of(node), now_ns, change);
    turns_update(scheduler, gpu_of(node), now_ns, change);
  }
}

void scheduler_number_queue(struct sched_gpu *gpu) {
  uint32_t place = 0;
  list_each(node, &gpu->jobs) { list_entry(node, struct sched_job, link)->place = 0; }
  list_each(node, &gpu->queue) { list_entry(node, struct sched_job, turn)->place = ++place; }
}
