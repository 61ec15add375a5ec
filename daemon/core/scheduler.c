/* scheduler.c - the events of the scheduler; each changes its part of the state, then lets turns.c decide on
 * the lock and memory_plan.c on the memory. */
#include <string.h>

#include "core/internal.h"
#include "core/scheduler.h"

#define SETTLE_ROUNDS 4

static struct sched_gpu *gpu_of(struct list *node) { return list_entry(node, struct sched_gpu, link); }

void scheduler_init(struct scheduler *scheduler) {
  *scheduler = (struct scheduler){
      .defaults = {.tq_ns = UINT64_C(20000000000),
                   .loss_permille = SCHED_LOSS_PERMILLE,
                   .mode = GS_MODE_AUTO},
      .grace_ns = UINT64_C(30000000000),
      .settle_ns = UINT64_C(100000000),
      .overhead_ns = UINT64_C(10000000000),
      .host_memory_bytes = UINT64_MAX / 2,
      .counts_touched = true,
      .event_jobs_most = 128,
      .gang_looks_most = 2048,
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
  *gpu = (struct sched_gpu){.scheduler = scheduler,
                            .settings = scheduler->defaults,
                            .total_bytes = min_u64(total_bytes, SCHED_BYTES_MAX),
                            .roomy = true,
                            .replan_ns = SCHED_NEVER,
                            .preempt_saved_ns = SCHED_PREEMPT_SAVED_NS,
                            .handover.bytes_per_s = SCHED_BYTES_PER_S};
  memcpy(gpu->uuid, uuid, GS_UUID_SIZE);
  strncpy(gpu->name, name, sizeof gpu->name - 1);
  list_init(&gpu->jobs);
  list_init(&gpu->idle);
  list_init(&gpu->holders);
  list_init(&gpu->ranked);
  list_init(&gpu->shares);
  list_init(&gpu->shunned);
  list_init(&gpu->seated);
  list_init(&gpu->queue);
  gpu->common.weight = SCHED_WEIGHT;
  account_init(&gpu->common, gpu);
  list_init(&gpu->next);
  list_init(&gpu->later);
  list_init(&gpu->dropping);
  list_init(&gpu->overdue);
  list_init(&gpu->leaving);
  list_init(&gpu->staying);
  list_init(&gpu->entrants[false]);
  list_init(&gpu->entrants[true]);
  list_init(&gpu->ephemeral);
  gpu->serialized = gpu->settings.mode == GS_MODE_ON;
  list_append(&scheduler->gpus, &gpu->link);
}

void scheduler_remove_gpu(struct scheduler *scheduler, struct sched_gpu *gpu) {
  if (scheduler->behind == gpu) /* without jobs it is part of nothing else */
    scheduler->behind = NULL;
  list_remove(&gpu->link);
}

struct sched_share *scheduler_find_share(const struct sched_gpu *gpu, uint64_t user) {
  list_each(node, &gpu->shares) {
    struct sched_share *share = list_entry(node, struct sched_share, link);
    if (share->user == user)
      return share;
  }
  return NULL;
}

void scheduler_add_share(struct sched_gpu *gpu, struct sched_share *share, uint64_t user, uint32_t weight,
                         uint64_t max_bytes) {
  *share = (struct sched_share){.user = user, .weight = weight, .max_bytes = max_bytes};
  account_init(share, gpu);
  list_append(&gpu->shares, &share->link);
}

void scheduler_remove_share(struct sched_share *share) {
  list_remove(&share->shunned_link);
  list_remove(&share->link);
}

/* ---- what follows from an event ---- */

/* What follows on this GPU. Who stays on the card decides who can run, and the other way round: of the last
 * promise to a job that stays may come that it is not made. Then the next event, or the end of the stay, goes
 * on from here. */
static void settle(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  uint64_t staying_bytes;
  int round = 0;
  gpu->scheduler->event_jobs += gpu->job_count;
  gpu->events++;
  turns_touch(gpu);
  do {
    staying_bytes = gpu->staying_bytes;
    turns_update(gpu, now_ns, change);
    residency_update(gpu, now_ns, change);
  } while (gpu->staying_bytes != staying_bytes && ++round < SETTLE_ROUNDS);
}

/* Where many jobs are on many GPUs, each plan looks at some of those that have something to do. The others
 * are due at once: clients have their say between them. */
static bool may_settle(const struct sched_gpu *gpu) {
  uint32_t jobs = gpu->scheduler->event_jobs;
  bool spent = gpu->scheduler->gang_looks > gpu->scheduler->gang_looks_most;
  return jobs == 0 || (jobs + gpu->job_count <= gpu->scheduler->event_jobs_most && !spent);
}

/* Those that are dirty, in order; but first those that an earlier plan had to leave, so that none is left for
 * ever. False: this one has to leave some. */
static bool settle_dirty(struct scheduler *scheduler, uint64_t now_ns, struct sched_change *change) {
  struct sched_gpu *behind = scheduler->behind;
  struct list *node = behind ? &behind->link : scheduler->gpus.next;
  scheduler->dirty = behind != NULL; /* there may be some before it */
  scheduler->behind = NULL;
  for (; node != &scheduler->gpus; node = node->next) {
    struct sched_gpu *gpu = gpu_of(node);
    if (!gpu->dirty)
      continue;
    if (!may_settle(gpu)) {
      scheduler->dirty = true;
      scheduler->behind = gpu;
      return false;
    }
    gpu->dirty = false;
    settle(gpu, now_ns, change);
  }
  return true;
}

void scheduler_plan(struct scheduler *scheduler, struct sched_change *change) {
  uint64_t now_ns = scheduler->event_ns;
  scheduler->event_jobs = scheduler->gang_looks = 0;
  scheduler->decisions++;
  admission_look(scheduler, now_ns, change);
  while (scheduler->dirty && settle_dirty(scheduler, now_ns, change))
    ;
  list_each(node, &scheduler->gpus) { turns_tell_wanted(gpu_of(node), change); }
  if (books_update_tight(scheduler))
    list_each(node, &scheduler->gpus) { change_add_all(gpu_of(node), SCHED_TELL_CAPACITY, change); }
}

/* The last step of every event. */
static void conclude(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  struct scheduler *scheduler = gpu->scheduler;
  gpu_make_dirty(gpu);
  scheduler->event_ns = now_ns;
  turns_touch(gpu);
  if (!scheduler->deferred)
    scheduler_plan(scheduler, change);
}

/* ---- jobs come and go ---- */

static bool is_managed(const struct sched_gpu *gpu, uint32_t flags) {
  return flags & GS_ATTACH_DEFAULT ? gpu->settings.memory == GS_MEMORY_MANAGED : flags & GS_ATTACH_MANAGED;
}

static void admit_job(struct sched_gpu *gpu, struct sched_job *job, const struct sched_attach *attach,
                      uint64_t now_ns, struct sched_change *change) {
  *job = (struct sched_job){.gpu = gpu,
                            .owner = attach->owner,
                            .id = attach->id,
                            .since_ns = now_ns,
                            .arrival = ++gpu->arrivals,
                            .terms = attach->terms ? *attach->terms : SCHED_TERMS_NONE,
                            .share = attach->share,
                            .managed = is_managed(gpu, attach->flags)};
  list_init(&job->turn);
  list_init(&job->waiting);
  list_init(&job->victim_link);
  list_init(&job->ranked);
  list_init(&job->gang_link);
  list_init(&job->leaving_link);
  list_init(&job->staying_link);
  list_init(&job->ephemeral.link);
  list_init(&job->entry.link);
  list_init(&job->todo_link);
  list_init(&job->account_link);
  list_append(&gpu->jobs, &job->link);
  if (job->share)
    job->share->job_count++;
  policy_enter(job, now_ns);
  gpu->seats[job->seat].count++;
  gpu->job_count++;
  gpu->class_counts[job->terms.class]++;
  turns_set_state(job, GS_JOB_IDLE, now_ns);
  books_allege(job, attach->used_bytes, now_ns);
  books_set_resident(job, attach->resident_bytes);
  /* Until it hears of its first room it believes in that: memory that it frees and allocates again is there.
   */
  job->last_told_bytes = job->told_bytes = job->promised_bytes = job->resident_bytes;
  change_add(change, job, SCHED_TELL_ATTACHED);
  change_add(change, job, SCHED_TELL_SCHED);
  residency_update_job(job, now_ns, change);
}

/* The job is to have no GPU. One that holds while turns are taken is told to stop by the plan. */
static void pause_job(struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  gang_disclaim(job->gang);
  if (job->state == GS_JOB_WAITING) {
    turns_set_state(job, GS_JOB_IDLE, now_ns);
    job->asks = true;
  } else if (job->state == GS_JOB_HOLDING && !job->gpu->serialized) {
    turns_drop(job, now_ns, change);
  }
}

static void resume_job(struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  if (job->state != GS_JOB_IDLE)
    return;
  if (!job->gpu->serialized)
    turns_grant(job->gpu, job, now_ns, change);
  else if (job->asks)
    turns_set_state(job, GS_JOB_WAITING, now_ns);
  job->asks = false;
  gang_ask(job->gang, now_ns);
}

void scheduler_attach(struct sched_gpu *gpu, struct sched_job *job, const struct sched_attach *attach,
                      uint64_t now_ns, struct sched_change *change) {
  overhead_explain(gpu, attach->resident_bytes, change); /* first: it decides whether there is room for all */
  admit_job(gpu, job, attach, now_ns, change);
  overhead_on_arrival(gpu, change);
  turns_begin_if_needed(gpu, now_ns, change); /* for its memory */
  if (!gpu->serialized && job->state == GS_JOB_IDLE)
    turns_grant(gpu, job, now_ns, change);
  else if (gpu->serialized && (attach->flags & GS_ATTACH_RUNNING))
    turns_admit_running(gpu, job, now_ns, change);
  if (job->terms.paused) /* it may run already: so it is told to stop */
    pause_job(job, now_ns, change);
  conclude(gpu, now_ns, change);
}

void scheduler_detach(struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  struct sched_gpu *gpu = job->gpu;
  turns_set_state(job, GS_JOB_IDLE, now_ns);
  tally_close(job, now_ns);
  books_set_used(job, 0, 0, 0, now_ns);
  ephemeral_forget(job);
  admission_forget(job);
  change_forget(job);
  gang_leave(job);
  policy_leave(job, now_ns);
  if (job->share)
    job->share->job_count--;
  list_remove(&job->turn);
  gpu->seats[job->seat].bytes -= job->need_bytes;
  gpu->seats[job->seat].count--;
  list_remove(&job->leaving_link);
  list_remove(&job->staying_link);
  list_remove(&job->link);
  gpu->job_count--;
  gpu->class_counts[job->terms.class]--;
  overhead_begin_anew(gpu, change);
  conclude(gpu, now_ns, change);
}

void scheduler_note_taken(struct sched_gpu *gpu, uint64_t bytes, uint64_t now_ns,
                          struct sched_change *change) {
  if (bytes == 0)
    return;
  overhead_add(gpu, bytes, now_ns);
  change_add_all(gpu, SCHED_TELL_CAPACITY, change);
  conclude(gpu, now_ns, change);
}

void scheduler_set_away(struct sched_gpu *gpu, uint64_t bytes, uint64_t now_ns, struct sched_change *change) {
  if (bytes == gpu->away_bytes)
    return;
  gpu->away_bytes = bytes;
  change_add_all(gpu, SCHED_TELL_CAPACITY, change);
  conclude(gpu, now_ns, change);
}

/* A figure that changes nothing needs no plan. */
void scheduler_set_occupied(struct sched_gpu *gpu, uint64_t bytes, uint64_t at_ns, uint64_t now_ns,
                            struct sched_change *change) {
  if (now_ns - at_ns >= SCHED_SEEN_NS)
    return;
  occupancy_note(gpu, bytes, at_ns);
  turns_touch(gpu);
  if (turns_are_needed(gpu) != gpu->serialized)
    conclude(gpu, now_ns, change);
}

/* ---- the lock ---- */

void scheduler_request(struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  if (job->state != GS_JOB_IDLE)
    return; /* it crossed a grant, or is a repetition; who is being dropped asks again after its release */
  if (job->terms.paused)
    job->asks = true;
  else if (job->gpu->serialized)
    turns_set_state(job, GS_JOB_WAITING, now_ns);
  else
    turns_grant(job->gpu, job, now_ns, change);
  gang_ask(job->gang, now_ns);
  conclude(job->gpu, now_ns, change);
}

static void account_release(struct sched_job *job, uint64_t drain_ns, uint64_t now_ns) {
  struct sched_gpu *gpu = job->gpu;
  job->drain_max_ns = max_u64(job->drain_max_ns, drain_ns);
  if (turns_runs(gpu, job))
    return;
  if (gpu->serialized && job->state == GS_JOB_HOLDING)
    handover_drained(gpu, min_u64(drain_ns, now_ns - job->since_ns), now_ns);
  else if (gpu->handover.open && job->state == GS_JOB_DROPPING)
    handover_drained(gpu, now_ns - job->since_ns, now_ns);
}

bool scheduler_release(struct sched_job *job, const struct sched_release *release, uint64_t now_ns,
                       struct sched_change *change) {
  if (job->state == GS_JOB_IDLE || job->state == GS_JOB_WAITING || release->epoch != job->epoch)
    return false;
  account_release(job, release->drain_ns, now_ns);
  job->flags = 0;
  turns_set_state(job, GS_JOB_IDLE, now_ns);
  turns_begin_if_needed(job->gpu, now_ns, change); /* for what has happened since the last plan */
  if (!job->gpu->serialized && !job->terms.paused)
    turns_grant(job->gpu, job, now_ns, change);
  gang_ask(job->gang, now_ns);
  conclude(job->gpu, now_ns, change);
  return true;
}

bool scheduler_active(struct sched_job *job, const struct sched_active *active, uint64_t now_ns,
                      struct sched_change *change) {
  struct sched_gpu *gpu = job->gpu;
  if (active->epoch != job->epoch || job->state != GS_JOB_HOLDING || job->active)
    return false;
  turns_set_active(job, now_ns);
  gpu->turn_ns = min_u64(gpu->turn_ns, now_ns);
  books_assume_resident(job);
  handover_end(gpu, active, now_ns);
  conclude(gpu, now_ns, change);
  return true;
}

void scheduler_set_flags(struct sched_job *job, uint32_t flags) {
  job->flags = (flags & (GS_STATE_CAPTURING | GS_STATE_DRAINING)) | (job->flags & GS_STATE_OVERDUE);
}

uint32_t sched_job_flags(const struct sched_job *job) {
  return job->flags | (job->overdue ? GS_STATE_OVERDUE : 0) | (sched_job_too_big(job) ? GS_STATE_TOO_BIG : 0);
}

/* ---- memory ---- */

static void set_memory(struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes,
                       uint64_t reach_bytes, uint64_t now_ns, struct sched_change *change) {
  books_set_used(job, total_bytes, pinned_bytes, reach_bytes, now_ns);
  residency_update_job(job, now_ns, change);
  conclude(job->gpu, now_ns, change);
}

void scheduler_memory_paging(struct sched_job *job, uint64_t paging_bytes) {
  books_set_paging(job, paging_bytes);
}

void scheduler_memory_fixed(struct sched_job *job) {
  job->fixed_due = job->managed;
  books_settle_fixed(job);
}

void scheduler_memory_managed(struct sched_job *job, bool managed) {
  job->fixed_due = false;
  if (managed != job->managed)
    books_set_managed(job, managed);
}

/* If it has waited already, others may have waited behind it. */
bool scheduler_memory_await(struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes,
                            uint64_t now_ns, struct sched_change *change) {
  bool waited = sched_job_enters(job), waits = admission_await(job, total_bytes, pinned_bytes);
  if (waited && waits)
    conclude(job->gpu, now_ns, change);
  return waits;
}

int scheduler_memory_request(struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes,
                             uint64_t now_ns, struct sched_change *change, uint64_t *granted_bytes) {
  admission_forget(job);
  int err = books_admit(job, total_bytes, pinned_bytes, granted_bytes);
  if (err < 0) {
    conclude(job->gpu, now_ns, change); /* it may have waited, and others behind it */
    return err;
  }
  if (total_bytes > job->used_bytes)
    books_vouch(job);
  set_memory(job, total_bytes, pinned_bytes, *granted_bytes, now_ns, change);
  books_grant_pinned(job);
  return 0;
}

void scheduler_memory_report(struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes,
                             uint64_t now_ns, struct sched_change *change) {
  total_bytes = min_u64(total_bytes, job->reach_bytes);
  pinned_bytes = books_cut_pinned(job, pinned_bytes);
  uint64_t reach_bytes = min_u64(job->reach_bytes, add_u64(total_bytes, SCHED_SLACK_BYTES));
  set_memory(job, total_bytes, pinned_bytes, reach_bytes, now_ns, change);
}

/* From one report to the next, if there was more to bring back and room for it. */
static void measure_restore(struct sched_job *job, uint64_t restored_bytes, uint64_t now_ns) {
  if (job->restoring_ns && restored_bytes)
    handover_measure(job->gpu, now_ns - job->restoring_ns, restored_bytes);
  bool more = job->resident_bytes < min_u64(job->room_bytes, job->used_bytes);
  job->restoring_ns = restored_bytes && more ? now_ns : 0;
}

static void account_moves(struct sched_job *job, const struct sched_residence *residence) {
  uint64_t evicted_bytes = min_u64(residence->evicted_bytes, SCHED_BYTES_MAX);
  uint64_t restored_bytes = min_u64(residence->restored_bytes, SCHED_BYTES_MAX);
  job->moved_bytes = add_u64(job->moved_bytes, evicted_bytes + restored_bytes);
  handover_moved(job->gpu, evicted_bytes, restored_bytes);
  residency_note_leaving(job, evicted_bytes, min_u64(residence->spared_bytes, SCHED_BYTES_MAX));
}

void scheduler_resident(struct sched_job *job, const struct sched_residence *residence, uint64_t now_ns,
                        struct sched_change *change) {
  account_moves(job, residence);
  rooms_acknowledge(job, residence, now_ns);
  measure_restore(job, residence->restored_bytes, now_ns);
  conclude(job->gpu, now_ns, change);
}

/* Of what the job was refused, what is not taken by memory of jobs that has yet to leave. After a restart of
 * the daemon they have more on the card than their rooms. */
static uint64_t unexplained_bytes(const struct sched_job *job, uint64_t short_bytes) {
  const struct sched_gpu *gpu = job->gpu;
  uint64_t own_bytes = min_u64(job->resident_bytes, job->room_bytes - short_bytes);
  uint64_t there_bytes = gpu->resident_bytes - job->resident_bytes + own_bytes;
  return min_u64(short_bytes, less_u64(sched_job_usable_bytes(job), there_bytes));
}

void scheduler_short(struct sched_job *job, uint64_t short_bytes, uint64_t now_ns,
                     struct sched_change *change) {
  struct sched_gpu *gpu = job->gpu;
  short_bytes = min_u64(short_bytes, job->room_bytes);
  if (short_bytes == 0)
    return;
  overhead_add_short(job, unexplained_bytes(job, short_bytes), now_ns);
  rooms_refuse(job, short_bytes, now_ns, change);
  change_add(change, job, SCHED_TELL_CAPACITY);
  conclude(gpu, now_ns, change);
}

/* ---- settings ---- */

enum setting { SETTING_TQ, SETTING_MODE, SETTING_CAPACITY, SETTING_POLICY };

void scheduler_set_size(struct sched_gpu *gpu, uint64_t total_bytes, uint64_t now_ns,
                        struct sched_change *change) {
  gpu->total_bytes = min_u64(total_bytes, SCHED_BYTES_MAX);
  admission_count_needs(gpu);
  change_add_all(gpu, SCHED_TELL_CAPACITY, change);
  conclude(gpu, now_ns, change);
}

static void set_one(struct sched_gpu *gpu, enum setting setting, uint64_t value, uint64_t now_ns,
                    struct sched_change *change) {
  if (setting == SETTING_TQ)
    gpu->settings.tq_ns = value;
  else if (setting == SETTING_MODE)
    gpu->settings.mode = (enum gs_mode)value;
  else if (setting == SETTING_POLICY)
    policy_set(gpu, (enum gs_policy)value, now_ns);
  else
    gpu->settings.capacity_bytes = value;
  if (setting == SETTING_CAPACITY)
    admission_count_needs(gpu);
  if (setting == SETTING_MODE || setting == SETTING_CAPACITY)
    change_add_all(gpu, SCHED_TELL_CAPACITY, change);
  conclude(gpu, now_ns, change);
}

static void set(struct scheduler *scheduler, struct sched_gpu *gpu, enum setting setting, uint64_t value,
                uint64_t now_ns, struct sched_change *change) {
  if (gpu) {
    set_one(gpu, setting, value, now_ns, change);
    return;
  }
  if (setting == SETTING_TQ)
    scheduler->defaults.tq_ns = value;
  else if (setting == SETTING_MODE)
    scheduler->defaults.mode = (enum gs_mode)value;
  else if (setting == SETTING_POLICY)
    scheduler->defaults.policy = (enum gs_policy)value;
  else
    scheduler->defaults.capacity_bytes = value;
  list_each(node, &scheduler->gpus) { set_one(gpu_of(node), setting, value, now_ns, change); }
}

void scheduler_set_tq(struct scheduler *scheduler, struct sched_gpu *gpu, uint64_t tq_ns, uint64_t now_ns,
                      struct sched_change *change) {
  if (tq_ns != SCHED_TQ_AUTO)
    tq_ns = max_u64(tq_ns, SCHED_TQ_MIN_NS);
  set(scheduler, gpu, SETTING_TQ, tq_ns, now_ns, change);
}

void scheduler_set_mode(struct scheduler *scheduler, struct sched_gpu *gpu, enum gs_mode mode,
                        uint64_t now_ns, struct sched_change *change) {
  set(scheduler, gpu, SETTING_MODE, mode, now_ns, change);
}

void scheduler_set_capacity(struct scheduler *scheduler, struct sched_gpu *gpu, uint64_t bytes,
                            uint64_t now_ns, struct sched_change *change) {
  set(scheduler, gpu, SETTING_CAPACITY, min_u64(bytes, SCHED_BYTES_MAX), now_ns, change);
}

void scheduler_set_policy(struct scheduler *scheduler, struct sched_gpu *gpu, enum gs_policy policy,
                          uint64_t now_ns, struct sched_change *change) {
  set(scheduler, gpu, SETTING_POLICY, policy, now_ns, change);
}

bool scheduler_join(struct sched_job *job, struct sched_gang *gang, uint64_t now_ns,
                    struct sched_change *change) {
  bool leaves = job->gang;
  gang_leave(job);
  bool joins = gang && gang_join(gang, job);
  gang_ask(job->gang, now_ns);
  if (leaves || joins)
    conclude(job->gpu, now_ns, change);
  return joins || !gang;
}

void scheduler_replace(struct sched_job *other, struct sched_job *job, uint64_t now_ns,
                       struct sched_change *change) {
  struct sched_gang *gang = other->gang;
  gang_leave(other);
  gang_join(gang, job);
  gang_ask(gang, now_ns);
  conclude(job->gpu, now_ns, change);
}

void scheduler_set_terms(struct sched_job *job, const struct sched_terms *terms, uint64_t now_ns,
                         struct sched_change *change) {
  policy_charge_so_far(job, now_ns); /* by its old weight */
  bool was_paused = job->terms.paused;
  if (terms->class != job->terms.class)
    tally_change_class(job, now_ns);
  job->gpu->class_counts[job->terms.class]--;
  policy_leave(job, now_ns);
  job->terms = *terms;
  policy_enter(job, now_ns);
  job->gpu->class_counts[job->terms.class]++;
  ephemeral_count(job);
  if (job->state != GS_JOB_IDLE) /* or when it asks */
    policy_level(job, true, now_ns);
  policy_rerank(job);
  turns_begin_if_needed(job->gpu, now_ns, change); /* for its class, or since the last plan */
  if (job->terms.paused && !was_paused)
    pause_job(job, now_ns, change);
  else if (was_paused && !job->terms.paused)
    resume_job(job, now_ns, change);
  conclude(job->gpu, now_ns, change);
}

void scheduler_set_share(struct sched_share *share, uint32_t weight, uint64_t max_bytes, uint64_t now_ns,
                         struct sched_change *change) {
  policy_charge_seats(share->gpu, now_ns); /* by its old weight */
  share->weight = weight;
  share->max_bytes = max_bytes;
  conclude(share->gpu, now_ns, change);
}

void scheduler_move_to_share(struct sched_job *job, struct sched_share *share, uint64_t now_ns,
                             struct sched_change *change) {
  if (job->share == share)
    return;
  policy_charge_so_far(job, now_ns); /* to its old share */
  policy_leave(job, now_ns);
  job->share->job_count--;
  books_move_to_share(job, share);
  share->job_count++;
  policy_enter(job, now_ns);
  if (job->state != GS_JOB_IDLE) /* or when it asks */
    policy_level(job, true, now_ns);
  policy_rerank(job);
  conclude(job->gpu, now_ns, change);
}

void scheduler_set_count(struct scheduler *scheduler, bool touched, uint64_t now_ns,
                         struct sched_change *change) {
  if (touched == scheduler->counts_touched)
    return;
  scheduler->counts_touched = touched;
  list_each(node, &scheduler->gpus) { conclude(gpu_of(node), now_ns, change); }
}

void scheduler_set_memory(struct scheduler *scheduler, struct sched_gpu *gpu, enum gs_memory memory) {
  if (gpu) {
    gpu->settings.memory = memory;
    return;
  }
  scheduler->defaults.memory = memory;
  list_each(node, &scheduler->gpus) { gpu_of(node)->settings.memory = memory; }
}

/* ---- time and figures ---- */

static uint64_t gpu_deadline_ns(struct sched_gpu *gpu) {
  if (gpu->deadline_known)
    return gpu->deadline_ns;
  uint64_t deadline_ns = min_u64(turns_deadline_ns(gpu), residency_deadline_ns(gpu));
  deadline_ns = min_u64(deadline_ns, rooms_deadline_ns(gpu));
  deadline_ns = min_u64(deadline_ns, ephemeral_deadline_ns(gpu));
  deadline_ns = min_u64(deadline_ns, silence_deadline_ns(gpu));
  deadline_ns = min_u64(deadline_ns, occupancy_deadline_ns(gpu));
  gpu->deadline_ns = min_u64(deadline_ns, overhead_deadline_ns(gpu));
  gpu->deadline_known = true;
  return gpu->deadline_ns;
}

uint64_t scheduler_deadline_ns(const struct scheduler *scheduler) {
  uint64_t deadline_ns = scheduler->dirty ? 0 : SCHED_NEVER;
  list_each(node, &scheduler->gpus) { deadline_ns = min_u64(deadline_ns, gpu_deadline_ns(gpu_of(node))); }
  return deadline_ns;
}

void scheduler_expire(struct scheduler *scheduler, uint64_t now_ns, struct sched_change *change) {
  list_each(node, &scheduler->gpus) {
    struct sched_gpu *gpu = gpu_of(node);
    if (now_ns < gpu_deadline_ns(gpu))
      continue;
    turns_expire_grace(gpu, now_ns, change);
    rooms_expire_grace(gpu, now_ns, change);
    rooms_expire_stays(gpu, now_ns);
    ephemeral_expire(gpu, now_ns);
    overhead_expire(gpu, now_ns, change);
    silence_expire(gpu, now_ns);
    occupancy_expire(gpu, now_ns);
    gpu_make_dirty(gpu);
  }
  scheduler->event_ns = now_ns;
  scheduler_plan(scheduler, change);
}

void scheduler_number_queue(struct sched_gpu *gpu) {
  uint32_t place = 0;
  list_each(node, &gpu->jobs) { job_of(node)->place = 0; }
  const struct list *queue = queue_of(gpu);
  list_each(node, queue) { job_of_queue(node)->place = ++place; }
}
