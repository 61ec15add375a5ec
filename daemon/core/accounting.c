/*
 * accounting.c - how many bytes there are and may be: what jobs have, hold of the card and may grow to.
 *
 * All jobs of a GPU may use its capacity; what goes beyond lives in host memory, of which all GPUs together
 * may use host_memory_bytes. Sums are kept up to date, never recomputed.
 *
 * A job's claim is what must be counted as taken on the card: what is there, and what may get there at any
 * moment because it has been told so. A room that was lowered counts only when the job has acknowledged it
 * (RESIDENT with its number, or a later one); until then the largest one that it may still believe in does.
 * Nothing beyond its reach gets there either way, since for that it must ask. What can't leave the card again
 * gets there only once there is room for it, too: until then it is no part of the claim, though nobody else
 * may count on it. Of a job with page faults that does not answer, only its room counts: what it has beyond
 * that makes way by itself, page by page, when others need the memory.
 *
 * What a job has is granted first, and a report never tells of more. Only what it has as it comes is its word
 * alone (alleged_bytes), and may be more than anybody would have been granted. So of what a user's jobs
 * allege no more counts in what other users may have than the user could have been granted by its max_bytes,
 * or that the card has (excess_bytes). What is beyond counts everywhere else: it may be there.
 */
#include <errno.h>

#include "core/internal.h"

/* ---- what there is ---- */

uint64_t sched_job_usable_bytes(const struct sched_job *job) {
  return less_u64(sched_gpu_usable_bytes(job->gpu), job->extra_bytes);
}

bool books_fit(const struct sched_gpu *gpu) {
  return gpu->used_bytes + gpu->ephemeral_bytes + gpu->extra_bytes <= sched_gpu_usable_bytes(gpu);
}

static uint64_t fitting_beside(const struct sched_job *job, uint64_t others_bytes) {
  return max_u64(less_u64(sched_job_usable_bytes(job), others_bytes), job->pinned_bytes);
}

/* The most that the job could ever have on the card: nobody else's pinned bytes leave for it. */
static uint64_t fitting_bytes(const struct sched_job *job) {
  return fitting_beside(job, job->gpu->pinned_bytes - job->pinned_bytes);
}

/* What must be on the card for the job to run: of the rest page faults fetch what is needed. */
static uint64_t fixed_bytes(const struct sched_job *job) {
  return job->managed ? 0 : less_u64(job->used_bytes, job->paging_bytes);
}

bool sched_job_too_big(const struct sched_job *job) { return fixed_bytes(job) > fitting_bytes(job); }

/* Looked for once for all that ask, until what is pinned changes. */
static void find_pinners(struct sched_gpu *gpu) {
  const struct sched_job *first = NULL, *second = NULL;
  list_each(node, &gpu->jobs) {
    const struct sched_job *job = job_of(node);
    if (job->pinned_bytes > (first ? first->pinned_bytes : 0)) {
      second = first;
      first = job;
    } else if (job->pinned_bytes > (second ? second->pinned_bytes : 0)) {
      second = job;
    }
  }
  gpu->pinners[0] = first;
  gpu->pinners[1] = second;
  gpu->pinners_known = true;
}

const struct sched_job *sched_job_kept_by(const struct sched_job *job) {
  struct sched_gpu *gpu = job->gpu;
  if (!sched_job_too_big(job) || fixed_bytes(job) > sched_job_usable_bytes(job))
    return NULL;
  if (!gpu->pinners_known)
    find_pinners(gpu);
  return gpu->pinners[gpu->pinners[0] == job];
}

/* Even if the card had all that it says. */
bool books_exceeds_capacity(const struct sched_job *job) {
  uint64_t others_bytes = job->gpu->pinned_bytes - job->pinned_bytes;
  return fixed_bytes(job) > less_u64(sched_gpu_capacity_bytes(job->gpu), others_bytes);
}

uint64_t books_need_bytes(const struct sched_job *job) {
  return min_u64(job->grows ? job->reach_bytes : job->used_bytes, fitting_bytes(job));
}

uint64_t books_target_bytes(const struct sched_job *job) {
  return min_u64(job->used_bytes, fitting_bytes(job));
}

/* ---- claims ---- */

bool books_gives_way(const struct sched_job *job) {
  return job->managed && (job->overdue || job->state == GS_JOB_BYPASSED);
}

static uint64_t claim_bytes(const struct sched_job *job) {
  uint64_t bytes = max_u64(job->resident_bytes, min_u64(job->promised_bytes, job->reach_bytes));
  return books_gives_way(job) ? min_u64(bytes, job->room_bytes) : bytes;
}

static uint64_t staying_bytes(const struct sched_job *job) {
  bool stays = !job->managed && (job->overdue || job->stays_ns);
  return stays ? less_u64(job->claim_bytes, job->pinned_bytes) : 0;
}

void books_claim(struct sched_job *job) {
  struct sched_gpu *gpu = job->gpu;
  gpu->claim_bytes -= job->claim_bytes;
  gpu->staying_bytes -= job->staying_bytes;
  job->claim_bytes = claim_bytes(job);
  job->staying_bytes = staying_bytes(job);
  gpu->claim_bytes += job->claim_bytes;
  gpu->staying_bytes += job->staying_bytes;
  books_count_need(job);
}

bool books_blocked(const struct sched_job *job) {
  uint64_t staying_bytes = job->gpu->staying_bytes - job->staying_bytes;
  return fixed_bytes(job) > less_u64(fitting_bytes(job), staying_bytes);
}

static void enter_resident(struct sched_job *job, uint64_t resident_bytes) {
  job->gpu->resident_bytes = job->gpu->resident_bytes - job->resident_bytes + resident_bytes;
  job->resident_bytes = resident_bytes;
  books_claim(job);
}

/* What can't leave is there as far as the room goes. Beyond that it is only asked for: the job waits until
 * others have left, and what they still have must not be promised to it. */
void books_set_resident(struct sched_job *job, uint64_t resident_bytes) {
  uint64_t taken_bytes = min_u64(job->pinned_bytes, job->room_bytes);
  enter_resident(job, max_u64(min_u64(resident_bytes, job->used_bytes), taken_bytes));
}

void books_note_refused(struct sched_job *job, uint64_t room_bytes) {
  enter_resident(job, min_u64(job->resident_bytes, room_bytes));
}

void books_assume_resident(struct sched_job *job) {
  if (job->active && job->resident_bytes < job->room_bytes)
    books_set_resident(job, job->room_bytes);
}

/* ---- memory that comes and goes ---- */

/*
 * Memory that a program frees and allocates again, with each of its iterations say: Salus calls
 * it ephemeral, and what is there all the time persistent.
 *
 * A job whose memory falls and rises again counts with the most that it has had, not with what it has at the
 * moment: or it would seem to fit beside others whenever it is low, and somebody would have to make way each
 * time that it rises. It does so once it has come back to where it fell from, and until it has not been there
 * for SCHED_EPHEMERAL_NS, or twice that. What is freed for good is free at once. A job that says how much it
 * will have counts with that from its first memory on. Neither counts beyond its limit: it can't get that.
 */

#define NEAR(bytes) ((bytes) - (bytes) / 8) /* it was about there */

static struct sched_job *job_of_link(struct list *node) {
  return list_entry(node, struct sched_job, ephemeral.link);
}

/* What the job is expected to allocate again soon. */
static uint64_t ephemeral_bytes(const struct sched_job *job) {
  uint64_t learnt_bytes = job->ephemeral.recurs ? job->ephemeral.high_bytes : 0;
  uint64_t told_bytes = job->used_bytes ? min_u64(job->terms.expected_bytes, SCHED_BYTES_MAX) : 0;
  uint64_t limit_bytes = job->terms.limit_bytes ? job->terms.limit_bytes : SCHED_BYTES_MAX;
  return less_u64(min_u64(max_u64(learnt_bytes, told_bytes), limit_bytes), job->used_bytes);
}

void ephemeral_count(struct sched_job *job) {
  job->gpu->ephemeral_bytes -= job->ephemeral.counted_bytes;
  job->ephemeral.counted_bytes = ephemeral_bytes(job);
  job->gpu->ephemeral_bytes += job->ephemeral.counted_bytes;
  books_count_need(job);
}

static void watch(struct sched_job *job, uint64_t high_bytes, uint64_t now_ns) {
  struct sched_ephemeral *it = &job->ephemeral;
  it->high_bytes = high_bytes;
  it->low_bytes = it->since_bytes = job->used_bytes;
  it->until_ns = add_u64(now_ns, SCHED_EPHEMERAL_NS);
  list_remove(&it->link);
  list_append(&job->gpu->ephemeral, &it->link);
}

void ephemeral_forget(struct sched_job *job) {
  list_remove(&job->ephemeral.link);
  job->ephemeral.high_bytes = 0;
  job->ephemeral.recurs = false;
  ephemeral_count(job);
}

static void note_fall(struct sched_job *job, uint64_t before_bytes, uint64_t now_ns) {
  struct sched_ephemeral *it = &job->ephemeral;
  if (before_bytes > it->high_bytes)
    watch(job, before_bytes, now_ns);
  it->low_bytes = min_u64(it->low_bytes, job->used_bytes);
}

static void note_rise(struct sched_job *job) {
  struct sched_ephemeral *it = &job->ephemeral;
  it->since_bytes = max_u64(it->since_bytes, job->used_bytes);
  it->recurs |= it->low_bytes < NEAR(it->high_bytes) && job->used_bytes >= NEAR(it->high_bytes);
}

/* Its used_bytes have changed. */
static void ephemeral_note(struct sched_job *job, uint64_t before_bytes, uint64_t now_ns) {
  if (job->used_bytes < before_bytes)
    note_fall(job, before_bytes, now_ns);
  else if (job->ephemeral.high_bytes)
    note_rise(job);
  ephemeral_count(job);
}

/* The most that it has had since is what counts from now on. */
static void lapse(struct sched_job *job, uint64_t now_ns) {
  if (job->ephemeral.since_bytes > job->used_bytes)
    watch(job, job->ephemeral.since_bytes, now_ns);
  else
    ephemeral_forget(job);
  ephemeral_count(job);
}

uint64_t ephemeral_deadline_ns(const struct sched_gpu *gpu) {
  struct list *first = list_first(&gpu->ephemeral);
  return first ? job_of_link(first)->ephemeral.until_ns : SCHED_NEVER;
}

void ephemeral_expire(struct sched_gpu *gpu, uint64_t now_ns) {
  while (now_ns >= ephemeral_deadline_ns(gpu))
    lapse(job_of_link(list_first(&gpu->ephemeral)), now_ns);
}

/* ---- what jobs have ---- */

/* Of what the user's jobs allege. */
static uint64_t excess_bytes(const struct sched_share *share) {
  if (!share)
    return 0;
  uint64_t most_bytes = share->max_bytes ? share->max_bytes : sched_gpu_capacity_bytes(share->gpu);
  return less_u64(share->alleged_bytes, most_bytes);
}

/* Of all users. */
static uint64_t all_excess_bytes(const struct sched_gpu *gpu) {
  uint64_t bytes = 0;
  list_each(node, &gpu->shares) { bytes += excess_bytes(list_entry(node, struct sched_share, link)); }
  return bytes;
}

/* What jobs have, and will have. */
static uint64_t spoken_for_bytes(const struct sched_gpu *gpu) {
  return gpu->used_bytes + gpu->ephemeral_bytes;
}

/* How far that of all GPUs but this one is beyond their cards. */
static uint64_t others_overflow_bytes(const struct scheduler *scheduler, const struct sched_gpu *gpu,
                                      uint64_t (*has_bytes)(const struct sched_gpu *gpu)) {
  uint64_t bytes = 0;
  list_each(node, &scheduler->gpus) {
    const struct sched_gpu *other = list_entry(node, struct sched_gpu, link);
    uint64_t counted_bytes = has_bytes(other) - all_excess_bytes(other);
    if (other != gpu)
      bytes = add_u64(bytes, less_u64(counted_bytes, sched_gpu_capacity_bytes(other)));
  }
  return bytes;
}

static uint64_t used_bytes_of(const struct sched_gpu *gpu) { return gpu->used_bytes; }

uint64_t scheduler_overflow_bytes(const struct scheduler *scheduler) {
  return others_overflow_bytes(scheduler, NULL, used_bytes_of);
}

static uint64_t faultless_bytes(const struct sched_job *job) {
  return less_u64(fixed_bytes(job), job->pinned_bytes);
}

static void set_alleged(struct sched_job *job, uint64_t alleged_bytes) {
  if (!job->share)
    return;
  job->share->alleged_bytes = job->share->alleged_bytes - job->alleged_bytes + alleged_bytes;
  job->alleged_bytes = alleged_bytes;
}

static void enter_used(struct sched_job *job, uint64_t used_bytes, uint64_t pinned_bytes) {
  struct sched_gpu *gpu = job->gpu;
  set_alleged(job, min_u64(job->alleged_bytes, used_bytes));
  gpu->faultless_bytes -= faultless_bytes(job);
  gpu->used_bytes = gpu->used_bytes - job->used_bytes + used_bytes;
  gpu->pinned_bytes = gpu->pinned_bytes - job->pinned_bytes + pinned_bytes;
  gpu->pinners_known &= pinned_bytes == job->pinned_bytes;
  if (job->share)
    job->share->used_bytes = job->share->used_bytes - job->used_bytes + used_bytes;
  job->used_bytes = used_bytes;
  job->pinned_bytes = pinned_bytes;
  gpu->faultless_bytes += faultless_bytes(job);
}

void books_move_to_share(struct sched_job *job, struct sched_share *share) {
  uint64_t alleged_bytes = job->alleged_bytes;
  set_alleged(job, 0);
  job->share->used_bytes -= job->used_bytes;
  job->share = share;
  share->used_bytes += job->used_bytes;
  set_alleged(job, alleged_bytes);
}

static void set_pinned_reach(struct sched_job *job, uint64_t bytes) {
  struct sched_gpu *gpu = job->gpu;
  gpu->pinned_reach_bytes = gpu->pinned_reach_bytes - job->pinned_reach_bytes + bytes;
  job->pinned_reach_bytes = bytes;
}

void books_set_paging(struct sched_job *job, uint64_t paging_bytes) {
  job->gpu->faultless_bytes -= faultless_bytes(job);
  job->paging_bytes = min_u64(paging_bytes, SCHED_BYTES_MAX);
  job->gpu->faultless_bytes += faultless_bytes(job);
}

void books_set_managed(struct sched_job *job, bool managed) {
  job->gpu->faultless_bytes -= faultless_bytes(job);
  job->managed = managed;
  job->gpu->faultless_bytes += faultless_bytes(job);
}

void books_settle_fixed(struct sched_job *job) {
  if (!job->fixed_due || job->overdue || job->state == GS_JOB_BYPASSED)
    return;
  job->fixed_due = false;
  books_set_managed(job, false);
}

void books_set_used(struct sched_job *job, uint64_t used_bytes, uint64_t pinned_bytes, uint64_t reach_bytes,
                    uint64_t now_ns) {
  struct sched_gpu *gpu = job->gpu;
  uint64_t before_bytes = job->used_bytes;
  used_bytes = min_u64(used_bytes, SCHED_BYTES_MAX);
  job->grows |= used_bytes > job->used_bytes && job->state == GS_JOB_HOLDING;
  enter_used(job, used_bytes, min_u64(pinned_bytes, used_bytes));
  ephemeral_note(job, before_bytes, now_ns);
  /* What was promised beyond the old reach is void: before the new one gets to the job, all rooms do. But for
   * the last room, which the next plan may leave as it is. */
  job->told_bytes = min_u64(job->told_bytes, job->reach_bytes);
  job->promised_bytes = max_u64(min_u64(job->promised_bytes, job->reach_bytes), job->room_bytes);
  gpu->reach_bytes -= job->reach_bytes;
  job->reach_bytes = max_u64(min_u64(reach_bytes, SCHED_BYTES_MAX), used_bytes);
  gpu->reach_bytes += job->reach_bytes;
  uint64_t unasked_bytes = min_u64(add_u64(job->pinned_bytes, SCHED_SLACK_BYTES), job->reach_bytes);
  set_pinned_reach(job, max_u64(min_u64(job->pinned_reach_bytes, unasked_bytes), job->pinned_bytes));
  books_set_resident(job, job->resident_bytes);
  books_assume_resident(job);
}

/* What the job alleges is no more than card and host have. */
void books_allege(struct sched_job *job, uint64_t used_bytes, uint64_t now_ns) {
  const struct sched_gpu *gpu = job->gpu;
  if (gpu->total_bytes)
    used_bytes = min_u64(used_bytes, add_u64(gpu->total_bytes, gpu->scheduler->host_memory_bytes));
  books_set_used(job, used_bytes, 0, used_bytes, now_ns);
  set_alleged(job, job->used_bytes);
}

void books_vouch(struct sched_job *job) { set_alleged(job, 0); }

/* ---- what they may have ---- */

/* How much the jobs of this GPU may use together: its card, and the host memory that other GPUs leave. */
static uint64_t bound_bytes(const struct sched_gpu *gpu) {
  const struct scheduler *scheduler = gpu->scheduler;
  uint64_t others_bytes = others_overflow_bytes(scheduler, gpu, used_bytes_of);
  return add_u64(sched_gpu_capacity_bytes(gpu), less_u64(scheduler->host_memory_bytes, others_bytes));
}

/* What the user's jobs may have together, but for what the others have. */
static uint64_t left_to_user_bytes(const struct sched_job *job) {
  const struct sched_share *share = job->share;
  return share && share->max_bytes ? less_u64(share->max_bytes, share->used_bytes - job->used_bytes)
                                   : SCHED_BYTES_MAX;
}

static uint64_t cut_to_limit(const struct sched_job *job, uint64_t bytes) {
  uint64_t limit_bytes = job->terms.limit_bytes ? job->terms.limit_bytes : SCHED_BYTES_MAX;
  return min_u64(min_u64(bytes, SCHED_BYTES_MAX), limit_bytes);
}

static uint64_t pinned_room_bytes(const struct sched_job *job) {
  const struct sched_gpu *gpu = job->gpu;
  return less_u64(sched_gpu_capacity_bytes(gpu), gpu->pinned_bytes - job->pinned_bytes);
}

uint64_t books_cut_pinned(const struct sched_job *job, uint64_t pinned_bytes) {
  uint64_t most_bytes = min_u64(cut_to_limit(job, pinned_room_bytes(job)), left_to_user_bytes(job));
  return min_u64(pinned_bytes, max_u64(job->pinned_reach_bytes, most_bytes));
}

/* ---- what can't leave ---- */

/*
 * Nobody can take pinned memory back. A job without page faults that no longer fits beside it would stand
 * still until it ends. So memory is pinned only if each job that has memory already, and could run, still
 * can: with all that it may have without asking, beside all that others may pin without asking. Only jobs of
 * a lower class are not asked for: a production job may pin what an opportunistic one needs, and never the
 * other way round. If a job's superiors keep it from running already, or from all that it may have without
 * asking, those of its own class and below still leave it that beside them alone. If a job that runs would
 * not fit beside what others may pin without asking, nobody may pin more than that.
 *
 * A job that can't run for other reasons, even with the whole capacity, keeps nothing from others. Jobs with
 * page faults run beside whatever is pinned, and so do those that have nothing that could leave.
 */

static unsigned standing(const struct sched_job *job) {
  static const unsigned standings[] = {
      [GS_CLASS_OPPORTUNISTIC] = 0, [GS_CLASS_STANDARD] = 1, [GS_CLASS_PRODUCTION] = 2};
  return standings[job->terms.class];
}

/* It runs, perhaps only until others pin what they may without asking. */
static bool runs_for_now(const struct sched_job *job) {
  return !job->alleged_bytes && !sched_job_too_big(job);
}

/* How much the job may pin if the other one, which needs so much beside what others have pinned, is to run.
 * UINT64_MAX: that one can't run as it is. */
static uint64_t left_beside(const struct sched_job *job, const struct sched_job *other,
                            uint64_t others_bytes) {
  uint64_t excess = min_u64(excess_bytes(other->share), other->alleged_bytes);
  uint64_t spared_bytes = add_u64(other->paging_bytes, excess);
  uint64_t taken_bytes = others_bytes + job->pinned_reach_bytes;
  uint64_t need_bytes = less_u64(other->used_bytes, spared_bytes);
  uint64_t bound_bytes = sched_job_usable_bytes(other);
  if (need_bytes + taken_bytes > bound_bytes && !runs_for_now(other))
    bound_bytes = sched_gpu_capacity_bytes(job->gpu); /* what was refused is tried again */
  if (need_bytes + taken_bytes > bound_bytes)
    return UINT64_MAX;
  uint64_t unasked_bytes = less_u64(other->reach_bytes, spared_bytes);
  if (unasked_bytes + taken_bytes <= bound_bytes)
    need_bytes = unasked_bytes;
  return bound_bytes - need_bytes - others_bytes;
}

/* How much the job may pin. */
static uint64_t pinnable_bytes(const struct sched_job *job) {
  const struct sched_gpu *gpu = job->gpu;
  struct {
    uint64_t pinned_bytes, reach_bytes;
  } upto[GS_CLASS_OPPORTUNISTIC + 1] = {0}; /* of jobs that stand no higher */
  list_each(node, &gpu->jobs) {
    const struct sched_job *other = job_of(node);
    for (unsigned i = standing(other); i <= GS_CLASS_OPPORTUNISTIC; i++) {
      upto[i].pinned_bytes += other->pinned_bytes;
      upto[i].reach_bytes += other->pinned_reach_bytes;
    }
  }
  uint64_t most_bytes =
      less_u64(sched_gpu_capacity_bytes(gpu), gpu->pinned_reach_bytes - job->pinned_reach_bytes);
  list_each(node, &gpu->jobs) {
    const struct sched_job *other = job_of(node);
    unsigned i = standing(other);
    bool may_leave = other->reach_bytes > add_u64(other->pinned_reach_bytes, other->paging_bytes);
    if (other == job || other->managed || !may_leave || i < standing(job))
      continue;
    uint64_t others_bytes = upto[i].reach_bytes - other->pinned_reach_bytes - job->pinned_reach_bytes;
    uint64_t superiors_bytes = gpu->pinned_bytes - upto[i].pinned_bytes;
    uint64_t left_bytes = left_beside(job, other, others_bytes + superiors_bytes);
    if (left_bytes == UINT64_MAX && runs_for_now(other))
      left_bytes = 0;
    most_bytes = min_u64(most_bytes, min_u64(left_bytes, left_beside(job, other, others_bytes)));
  }
  return max_u64(most_bytes, job->pinned_reach_bytes);
}

static uint64_t round_up(uint64_t bytes) {
  return (bytes + SCHED_SLACK_BYTES - 1) / SCHED_SLACK_BYTES * SCHED_SLACK_BYTES;
}

void books_grant_pinned(struct sched_job *job) {
  uint64_t rounded_bytes = min_u64(round_up(job->pinned_bytes), job->reach_bytes);
  if (rounded_bytes > job->pinned_reach_bytes)
    set_pinned_reach(job, max_u64(min_u64(rounded_bytes, pinnable_bytes(job)), job->pinned_bytes));
}

/* Of other users' jobs. */
static uint64_t others_excess_bytes(const struct sched_job *job) {
  return all_excess_bytes(job->gpu) - excess_bytes(job->share);
}

/* The most of a job without page faults that fits beside what others may pin without asking. */
static uint64_t growable_bytes(const struct sched_job *job) {
  uint64_t pinned_bytes = job->gpu->pinned_reach_bytes - job->pinned_reach_bytes;
  return add_u64(fitting_beside(job, pinned_bytes), job->paging_bytes);
}

/* How far one may grow: a job without page faults could never run with more than fits. */
static uint64_t furthest_bytes(const struct sched_job *job) {
  uint64_t others_bytes = job->gpu->used_bytes - job->used_bytes - others_excess_bytes(job);
  uint64_t bytes = cut_to_limit(job, less_u64(bound_bytes(job->gpu), others_bytes));
  bytes = min_u64(bytes, left_to_user_bytes(job));
  return job->managed ? bytes : min_u64(bytes, growable_bytes(job));
}

/* The most that it could have if nobody else had anything. */
static uint64_t alone_bytes(const struct sched_job *job) {
  uint64_t card_bytes = sched_gpu_capacity_bytes(job->gpu);
  uint64_t both_bytes = add_u64(card_bytes, job->gpu->scheduler->host_memory_bytes);
  uint64_t fitting_bytes = add_u64(sched_job_usable_bytes(job), job->paging_bytes);
  return cut_to_limit(job, job->managed ? both_bytes : min_u64(both_bytes, fitting_bytes));
}

/* If nobody else had anything, it could have that. */
bool books_could_admit(const struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes) {
  return total_bytes <= alone_bytes(job) && pinned_bytes <= sched_gpu_capacity_bytes(job->gpu);
}

/* What it will have at once, if it asks for that now. */
static uint64_t books_wish_bytes(const struct sched_job *job, uint64_t total_bytes) {
  return min_u64(max_u64(total_bytes, job->terms.expected_bytes), alone_bytes(job));
}

/* Card and host have that left, beside what others have and will have. */
bool books_has_room(const struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes) {
  const struct sched_gpu *gpu = job->gpu;
  uint64_t uncounted_bytes = job->used_bytes + job->ephemeral.counted_bytes + others_excess_bytes(job);
  uint64_t host_bytes = less_u64(gpu->scheduler->host_memory_bytes,
                                 others_overflow_bytes(gpu->scheduler, gpu, spoken_for_bytes));
  uint64_t bound_bytes = add_u64(sched_gpu_capacity_bytes(gpu), host_bytes);
  uint64_t room_bytes = less_u64(bound_bytes, spoken_for_bytes(gpu) - uncounted_bytes);
  if (!job->managed)
    room_bytes = min_u64(room_bytes, growable_bytes(job));
  return books_wish_bytes(job, total_bytes) <= room_bytes && pinned_bytes <= pinnable_bytes(job);
}

int books_admit(const struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes,
                uint64_t *granted_bytes) {
  uint64_t reach_bytes = furthest_bytes(job);
  if (total_bytes > job->used_bytes && total_bytes > reach_bytes)
    return -ENOMEM;
  if (pinned_bytes > job->pinned_reach_bytes && pinned_bytes > pinnable_bytes(job))
    return -ENOMEM;
  uint64_t rounded_bytes = round_up(total_bytes);
  *granted_bytes = rounded_bytes <= reach_bytes ? rounded_bytes
                   : total_bytes > reach_bytes  ? total_bytes
                                                : reach_bytes;
  return 0;
}

struct sched_most sched_job_most(const struct sched_job *job) {
  uint64_t total_bytes = max_u64(furthest_bytes(job), job->used_bytes);
  uint64_t pinned_bytes = add_u64(job->pinned_bytes, total_bytes - job->used_bytes);
  const struct sched_gpu *gpu = job->gpu;
  uint64_t others_pinned_bytes = gpu->pinned_bytes - job->pinned_bytes;
  return (struct sched_most){.total_bytes = total_bytes,
                             .pinned_bytes = min_u64(pinned_bytes, pinnable_bytes(job)),
                             .making_way_bytes =
                                 less_u64(gpu->resident_bytes - job->resident_bytes, others_pinned_bytes)};
}

enum gs_refusal sched_job_why_refused(const struct sched_job *job, uint64_t total_bytes,
                                      uint64_t pinned_bytes) {
  if ((job->terms.limit_bytes && total_bytes > job->terms.limit_bytes) ||
      total_bytes > left_to_user_bytes(job))
    return GS_REFUSAL_LIMIT;
  uint64_t others_bytes = job->gpu->pinned_reach_bytes - job->pinned_reach_bytes;
  if (pinned_bytes > job->pinned_reach_bytes &&
      pinned_bytes > less_u64(sched_gpu_capacity_bytes(job->gpu), others_bytes))
    return GS_REFUSAL_PINNED;
  if (pinned_bytes > pinnable_bytes(job))
    return GS_REFUSAL_OTHERS;
  bool exceeds = !job->managed && total_bytes > growable_bytes(job);
  return exceeds ? GS_REFUSAL_CAPACITY : GS_REFUSAL_SPENT;
}

bool books_update_tight(struct scheduler *scheduler) {
  uint64_t bound_bytes = scheduler->host_memory_bytes, movable_bytes = 0;
  list_each(node, &scheduler->gpus) {
    const struct sched_gpu *gpu = list_entry(node, struct sched_gpu, link);
    movable_bytes += gpu->used_bytes - gpu->pinned_bytes;
  }
  /* Once tight, it must have become clearly less, or every small allocation would be told to everybody. */
  bool tight = movable_bytes > bound_bytes - (scheduler->host_tight ? bound_bytes / 16 : 0);
  bool changed = tight != scheduler->host_tight;
  scheduler->host_tight = tight;
  return changed;
}

/* ---- what the driver refuses ---- */

/*
 * The card has less than it says: what the driver has refused though it should be there.
 *
 * Some of it is taken for good, by contexts, or programs that we do not see. Some is not: a dying process
 * frees its memory late, another program ends. Nobody tells which, so what was refused is tried again after a
 * while, and if that is refused, too, after twice as long the next time. Who leaves takes its context along:
 * everything begins anew.
 *
 * That it was refused is the job's word alone, and must not make the card smaller for other users. So where
 * jobs of several users are, only what two users have told of counts for all: of each user the job that has
 * told of most, and of these the second. What a job has told of beyond that it is believed for itself: it
 * counts as needing so much more (extra_bytes). So others make way for that in its turns, as for memory that
 * it has, and have the whole card in theirs. Users without others count in full.
 */

#define OVERHEAD_DOUBLINGS 5 /* 10 s at first: some 5 minutes in the end */

static bool is_any(const struct sched_gpu *gpu) { return gpu->noted_bytes || gpu->short_bytes; }

static struct sched_share *share_of(const struct sched_job *job) {
  return job->share ? job->share : &job->gpu->common;
}

/* What users have told of, as far as it counts for all. */
static uint64_t agreed_bytes(struct sched_gpu *gpu) {
  uint64_t most_bytes = 0, second_bytes = 0;
  const struct sched_share *only = NULL;
  bool several = false;
  gpu->common.short_bytes = 0;
  list_each(node, &gpu->shares) { list_entry(node, struct sched_share, link)->short_bytes = 0; }
  list_each(node, &gpu->jobs) {
    struct sched_share *share = share_of(job_of(node));
    share->short_bytes = max_u64(share->short_bytes, job_of(node)->short_bytes);
    several |= only && only != share;
    only = share;
  }
  if (!several)
    return gpu->short_bytes;
  most_bytes = gpu->common.short_bytes;
  list_each(node, &gpu->shares) {
    uint64_t bytes = list_entry(node, struct sched_share, link)->short_bytes;
    second_bytes = max_u64(second_bytes, min_u64(bytes, most_bytes));
    most_bytes = max_u64(most_bytes, bytes);
  }
  return second_bytes;
}

static void count(struct sched_gpu *gpu) {
  uint64_t bytes = agreed_bytes(gpu);
  gpu->overhead_bytes = min_u64(add_u64(gpu->noted_bytes, bytes), sched_gpu_capacity_bytes(gpu));
  gpu->extra_bytes = 0;
  list_each(node, &gpu->jobs) {
    struct sched_job *job = job_of(node);
    uint64_t extra_bytes = less_u64(job->short_bytes, bytes);
    gpu->extra_bytes += extra_bytes;
    if (extra_bytes == job->extra_bytes)
      continue;
    job->extra_bytes = extra_bytes;
    books_count_need(job);
  }
}

static void begin(struct sched_gpu *gpu, uint64_t now_ns) {
  if (!is_any(gpu))
    gpu->overhead_end_ns = add_u64(now_ns, gpu->scheduler->overhead_ns << gpu->overhead_tries);
}

void overhead_add(struct sched_gpu *gpu, uint64_t bytes, uint64_t now_ns) {
  begin(gpu, now_ns);
  gpu->noted_bytes = min_u64(gpu->noted_bytes + bytes, sched_gpu_capacity_bytes(gpu));
  count(gpu);
}

void overhead_add_short(struct sched_job *job, uint64_t bytes, uint64_t now_ns) {
  struct sched_gpu *gpu = job->gpu;
  uint64_t short_bytes = min_u64(job->short_bytes + bytes, sched_gpu_capacity_bytes(gpu));
  if (short_bytes == job->short_bytes)
    return;
  begin(gpu, now_ns);
  gpu->short_bytes += short_bytes - job->short_bytes;
  job->short_bytes = short_bytes;
  count(gpu);
}

/* Of all that was refused so much is explained. */
static void take_back(struct sched_gpu *gpu, uint64_t bytes, struct sched_change *change) {
  gpu->noted_bytes = less_u64(gpu->noted_bytes, bytes);
  gpu->short_bytes = 0;
  list_each(node, &gpu->jobs) {
    job_of(node)->short_bytes = less_u64(job_of(node)->short_bytes, bytes);
    gpu->short_bytes += job_of(node)->short_bytes;
  }
  count(gpu);
  change_add_all(gpu, SCHED_TELL_CAPACITY, change);
}

/* A daemon that is started anew gets to know the jobs one by one, while the memory of all is on the card. */
void overhead_explain(struct sched_gpu *gpu, uint64_t resident_bytes, struct sched_change *change) {
  if (is_any(gpu) && resident_bytes > 0)
    take_back(gpu, resident_bytes, change);
}

void overhead_on_arrival(struct sched_gpu *gpu, struct sched_change *change) {
  uint64_t before_bytes = gpu->overhead_bytes;
  if (!is_any(gpu))
    return;
  count(gpu);
  if (gpu->overhead_bytes != before_bytes)
    change_add_all(gpu, SCHED_TELL_CAPACITY, change);
}

static void forget(struct sched_gpu *gpu, struct sched_change *change) {
  if (is_any(gpu))
    take_back(gpu, UINT64_MAX, change);
}

void overhead_begin_anew(struct sched_gpu *gpu, struct sched_change *change) {
  gpu->overhead_tries = 0;
  forget(gpu, change);
}

uint64_t overhead_deadline_ns(const struct sched_gpu *gpu) {
  return is_any(gpu) ? gpu->overhead_end_ns : SCHED_NEVER;
}

void overhead_expire(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  if (now_ns < overhead_deadline_ns(gpu))
    return;
  gpu->overhead_tries += gpu->overhead_tries < OVERHEAD_DOUBLINGS;
  forget(gpu, change);
}

/* ---- what is on the card ---- */

/*
 * Unified memory occupies nothing until it is touched. So in mode auto, jobs that have more than fits run
 * together while less than OCCUPIED_PERCENT of what there is for them is in use.
 *
 * The driver tells of single processes without their unified memory. So the card's memory in use counts,
 * whoever has it, without what processes take that are no jobs, as far as that is known. If the capacity is
 * less than the card, other processes' memory counts as that of jobs: turns begin too early, not too late.
 * What jobs pin counts at once, and not only from the next look on.
 *
 * Page faults evict memory once the card is full, and not before. So nothing thrashes yet when turns begin.
 * The tenth that is left is for contexts, and for what is touched between two looks.
 *
 * Turns that were needed once stay until the jobs have an eighth less than the most that they have had since.
 * So turns never come and go with the looks. If figures that let jobs run together are missing for two looks,
 * turns are needed likewise. Before the first figure, allocations count.
 *
 * Allocations count, too, beside memory without page faults: what is evicted of that comes back in a turn
 * only. They count beside a production job: others' untouched memory is no reason to share the card with
 * them.
 */

#define OCCUPIED_PERCENT 90

uint64_t sched_gpu_occupied_bytes(const struct sched_gpu *gpu) {
  uint64_t bytes = add_u64(gpu->occupancy.unpinned_bytes, gpu->pinned_bytes);
  return gpu->occupancy.known ? less_u64(bytes, add_u64(gpu->overhead_bytes, gpu->away_bytes)) : 0;
}

static bool is_full(const struct sched_gpu *gpu) {
  return sched_gpu_occupied_bytes(gpu) >= sched_gpu_usable_bytes(gpu) / 100 * OCCUPIED_PERCENT;
}

/* Figures would decide. */
static bool counts_touched(const struct sched_gpu *gpu) {
  return gpu->scheduler->counts_touched && gpu->settings.mode == GS_MODE_AUTO && gpu->faultless_bytes == 0 &&
         gpu->class_counts[GS_CLASS_PRODUCTION] == 0;
}

bool books_fit_by_touch(const struct sched_gpu *gpu) {
  return counts_touched(gpu) && gpu->occupancy.known && gpu->occupancy.needed_bytes == 0;
}

bool sched_gpu_runs_together(const struct sched_gpu *gpu) {
  return !gpu->serialized && !books_fit(gpu) && books_fit_by_touch(gpu);
}

bool sched_gpu_is_watched(const struct sched_gpu *gpu) { return gpu->job_count > 0 && counts_touched(gpu); }

void occupancy_judge(struct sched_gpu *gpu) {
  struct sched_occupancy *it = &gpu->occupancy;
  uint64_t bytes = spoken_for_bytes(gpu);
  if (bytes < NEAR(it->needed_bytes))
    it->needed_bytes = 0;
  if (it->needed_bytes || (it->known && is_full(gpu) && !books_fit(gpu)))
    it->needed_bytes = max_u64(it->needed_bytes, bytes);
}

void occupancy_note(struct sched_gpu *gpu, uint64_t bytes, uint64_t at_ns) {
  gpu->occupancy.known = true;
  gpu->occupancy.at_ns = at_ns;
  gpu->occupancy.unpinned_bytes = less_u64(bytes, gpu->pinned_bytes);
  occupancy_judge(gpu);
}

uint64_t occupancy_deadline_ns(const struct sched_gpu *gpu) {
  return gpu->occupancy.known ? add_u64(gpu->occupancy.at_ns, SCHED_SEEN_NS) : SCHED_NEVER;
}

void occupancy_expire(struct sched_gpu *gpu, uint64_t now_ns) {
  if (now_ns < occupancy_deadline_ns(gpu))
    return;
  if (books_fit_by_touch(gpu) && !books_fit(gpu))
    gpu->occupancy.needed_bytes = spoken_for_bytes(gpu);
  gpu->occupancy.known = false;
}

/* ---- what there is for those that hold ---- */

bool sched_job_enters(const struct sched_job *job) { return !list_empty(&job->entry.link); }

uint64_t sched_job_expected_bytes(const struct sched_job *job) {
  return sched_job_enters(job) ? books_wish_bytes(job, job->entry.total_bytes)
                               : job->used_bytes + ephemeral_bytes(job);
}

struct seats seats_all(const struct sched_gpu *gpu) {
  uint64_t stuck_bytes = gpu->pinned_bytes + gpu->staying_bytes;
  return (struct seats){.places = gpu->settings.mode == GS_MODE_ON ? 1 : UINT32_MAX,
                        .bytes = less_u64(sched_gpu_usable_bytes(gpu), stuck_bytes)};
}

void books_count_need(struct sched_job *job) {
  uint64_t bytes = max_u64(sched_job_expected_bytes(job), job->grows ? job->reach_bytes : 0);
  struct sched_seats *seats = &job->gpu->seats[job->seat];
  seats->bytes -= job->need_bytes;
  job->need_bytes = less_u64(bytes, job->pinned_bytes + job->staying_bytes) + job->extra_bytes;
  seats->bytes += job->need_bytes;
}

bool seats_fit(const struct seats *seats, const struct sched_job *job) {
  return seats->taken == 0 ||
         (seats->taken < seats->places && seats->taken_bytes + job->need_bytes <= seats->bytes);
}

void seats_take(struct seats *seats, const struct sched_job *job) {
  seats->taken_bytes += job->need_bytes;
  seats->taken++;
}

void seats_give(struct seats *seats, const struct sched_job *job) {
  seats->taken_bytes -= job->need_bytes;
  seats->taken--;
}

void seats_take_all(struct seats *seats, const struct sched_gpu *gpu, enum sched_seat which) {
  seats->taken_bytes += gpu->seats[which].bytes;
  seats->taken += gpu->seats[which].count;
}

void books_seat(struct sched_job *job, enum sched_seat seat) {
  struct sched_seats *left = &job->gpu->seats[job->seat], *taken = &job->gpu->seats[seat];
  left->bytes -= job->need_bytes;
  left->count--;
  job->seat = seat;
  taken->bytes += job->need_bytes;
  taken->count++;
}

bool books_may_join(const struct sched_job *job) {
  const struct sched_gpu *gpu = job->gpu;
  struct seats seats = seats_all(gpu);
  seats_take_all(&seats, gpu, SCHED_SEAT_HOLDS);
  seats_take_all(&seats, gpu, SCHED_SEAT_STOPS);
  seats_take_all(&seats, gpu, SCHED_SEAT_OVERDUE);
  return seats_fit(&seats, job);
}

bool books_may_hold(const struct sched_job *job) {
  struct seats seats = seats_all(job->gpu);
  seats_take_all(&seats, job->gpu, SCHED_SEAT_OVERDUE);
  return !sched_job_too_big(job) && !books_blocked(job) && !silence_bars(job) && seats_fit(&seats, job);
}
