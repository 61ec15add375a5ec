/*
 * books.c - how many bytes there are and may be: what jobs have, hold of the card and may grow to.
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
 * or that the card has. What is beyond is in gpu->excess_bytes. It counts everywhere else: it may be there.
 */
#include <errno.h>

#include "core/internal.h"

/* ---- what there is ---- */

uint64_t sched_gpu_capacity_bytes(const struct sched_gpu *gpu) {
  uint64_t set_bytes = gpu->settings.capacity_bytes;
  if (set_bytes == 0)
    return gpu->total_bytes;
  return gpu->total_bytes ? min_u64(set_bytes, gpu->total_bytes) : set_bytes;
}

uint64_t sched_gpu_usable_bytes(const struct sched_gpu *gpu) {
  return less_u64(sched_gpu_capacity_bytes(gpu), add_u64(gpu->overhead_bytes, gpu->away_bytes));
}

uint64_t sched_job_usable_bytes(const struct sched_job *job) {
  return less_u64(sched_gpu_usable_bytes(job->gpu), job->extra_bytes);
}

bool books_fit(const struct sched_gpu *gpu) {
  return gpu->used_bytes + gpu->ephemeral_bytes + gpu->extra_bytes <= sched_gpu_usable_bytes(gpu);
}

/* The most that the job could ever have on the card: nobody else's pinned bytes leave for it. */
static uint64_t fitting_bytes(const struct sched_job *job) {
  uint64_t others_bytes = job->gpu->pinned_bytes - job->pinned_bytes;
  return max_u64(less_u64(sched_job_usable_bytes(job), others_bytes), job->pinned_bytes);
}

/* What must be on the card for the job to run: of the rest page faults fetch what is needed. */
static uint64_t fixed_bytes(const struct sched_job *job) {
  return job->managed ? 0 : less_u64(job->used_bytes, job->paging_bytes);
}

bool sched_job_too_big(const struct sched_job *job) { return fixed_bytes(job) > fitting_bytes(job); }

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
  holders_count_need(job);
  if (job->claim_bytes > 0 || job->room_bytes > 0 || job->used_bytes > 0)
    present_enter(job);
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

/* ---- what jobs have ---- */

/* Of what the user's jobs allege. */
static uint64_t excess_bytes(const struct sched_share *share) {
  if (!share)
    return 0;
  uint64_t most_bytes = share->max_bytes ? share->max_bytes : sched_gpu_capacity_bytes(share->gpu);
  return less_u64(share->alleged_bytes, most_bytes);
}

static uint64_t overflow_bytes(const struct sched_gpu *gpu) {
  return less_u64(gpu->used_bytes - gpu->excess_bytes, sched_gpu_capacity_bytes(gpu));
}

static uint64_t faultless_bytes(const struct sched_job *job) {
  return less_u64(fixed_bytes(job), job->pinned_bytes);
}

static void enter_used(struct sched_job *job, uint64_t used_bytes, uint64_t pinned_bytes) {
  struct sched_gpu *gpu = job->gpu;
  struct scheduler *scheduler = gpu->scheduler;
  uint64_t alleged_bytes = min_u64(job->alleged_bytes, used_bytes);
  scheduler->overflow_bytes -= overflow_bytes(gpu);
  scheduler->movable_bytes -= job->used_bytes - job->pinned_bytes;
  gpu->faultless_bytes -= faultless_bytes(job);
  gpu->used_bytes = gpu->used_bytes - job->used_bytes + used_bytes;
  gpu->pinned_bytes = gpu->pinned_bytes - job->pinned_bytes + pinned_bytes;
  if (job->share) {
    gpu->excess_bytes -= excess_bytes(job->share);
    job->share->used_bytes = job->share->used_bytes - job->used_bytes + used_bytes;
    job->share->alleged_bytes = job->share->alleged_bytes - job->alleged_bytes + alleged_bytes;
    gpu->excess_bytes += excess_bytes(job->share);
  }
  job->alleged_bytes = alleged_bytes;
  job->used_bytes = used_bytes;
  job->pinned_bytes = pinned_bytes;
  scheduler->movable_bytes += used_bytes - pinned_bytes;
  gpu->faultless_bytes += faultless_bytes(job);
  scheduler->overflow_bytes += overflow_bytes(gpu);
}

static void set_alleged(struct sched_job *job, uint64_t alleged_bytes) {
  struct sched_share *share = job->share;
  struct sched_gpu *gpu = job->gpu;
  if (!share)
    return;
  gpu->scheduler->overflow_bytes -= overflow_bytes(gpu);
  gpu->excess_bytes -= excess_bytes(share);
  share->alleged_bytes = share->alleged_bytes - job->alleged_bytes + alleged_bytes;
  job->alleged_bytes = alleged_bytes;
  gpu->excess_bytes += excess_bytes(share);
  gpu->scheduler->overflow_bytes += overflow_bytes(gpu);
}

void books_set_paging(struct sched_job *job, uint64_t paging_bytes) {
  job->gpu->faultless_bytes -= faultless_bytes(job);
  job->paging_bytes = min_u64(paging_bytes, SCHED_BYTES_MAX);
  job->gpu->faultless_bytes += faultless_bytes(job);
}

void books_set_used(struct sched_job *job, uint64_t used_bytes, uint64_t pinned_bytes, uint64_t reach_bytes,
                    uint64_t now_ns) {
  struct sched_gpu *gpu = job->gpu;
  uint64_t before_bytes = job->used_bytes;
  used_bytes = min_u64(used_bytes, SCHED_BYTES_MAX);
  job->grows |= used_bytes > job->used_bytes && job->state == GS_JOB_HOLDING;
  enter_used(job, used_bytes, min_u64(pinned_bytes, used_bytes));
  ephemeral_note(job, before_bytes, now_ns);
  /* What was promised beyond the old reach is void: before the new one gets to the job, all rooms do. */
  job->told_bytes = min_u64(job->told_bytes, job->reach_bytes);
  job->promised_bytes = min_u64(job->promised_bytes, job->reach_bytes);
  gpu->reach_bytes -= job->reach_bytes;
  job->reach_bytes = max_u64(min_u64(reach_bytes, SCHED_BYTES_MAX), used_bytes);
  gpu->reach_bytes += job->reach_bytes;
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

/* Again, as the capacity is another. */
static void count_excess(struct sched_gpu *gpu) {
  gpu->excess_bytes = 0;
  list_each(node, &gpu->shares) {
    gpu->excess_bytes += excess_bytes(list_entry(node, struct sched_share, link));
  }
}

void books_set_capacity(struct sched_gpu *gpu, uint64_t capacity_bytes) {
  struct scheduler *scheduler = gpu->scheduler;
  scheduler->overflow_bytes -= overflow_bytes(gpu);
  gpu->settings.capacity_bytes = capacity_bytes;
  count_excess(gpu);
  scheduler->overflow_bytes += overflow_bytes(gpu);
}

void books_set_size(struct sched_gpu *gpu, uint64_t total_bytes) {
  struct scheduler *scheduler = gpu->scheduler;
  scheduler->overflow_bytes -= overflow_bytes(gpu);
  gpu->total_bytes = total_bytes;
  count_excess(gpu);
  scheduler->overflow_bytes += overflow_bytes(gpu);
}

void books_set_max(struct sched_share *share, uint64_t max_bytes) {
  struct sched_gpu *gpu = share->gpu;
  struct scheduler *scheduler = gpu->scheduler;
  scheduler->overflow_bytes -= overflow_bytes(gpu);
  gpu->excess_bytes -= excess_bytes(share);
  share->max_bytes = max_bytes;
  gpu->excess_bytes += excess_bytes(share);
  scheduler->overflow_bytes += overflow_bytes(gpu);
}

/* ---- what they may have ---- */

/* How much the jobs of this GPU may use together: its card, and the host memory that other GPUs leave. */
static uint64_t bound_bytes(const struct sched_gpu *gpu) {
  const struct scheduler *scheduler = gpu->scheduler;
  uint64_t others_bytes = scheduler->overflow_bytes - overflow_bytes(gpu);
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
  return min_u64(pinned_bytes, max_u64(job->pinned_bytes, most_bytes));
}

/* Of other users' jobs. */
static uint64_t others_excess_bytes(const struct sched_job *job) {
  return job->gpu->excess_bytes - excess_bytes(job->share);
}

/* How far one may grow: a job without page faults could never run with more than fits. */
static uint64_t furthest_bytes(const struct sched_job *job) {
  uint64_t others_bytes = job->gpu->used_bytes - job->used_bytes - others_excess_bytes(job);
  uint64_t bytes = cut_to_limit(job, less_u64(bound_bytes(job->gpu), others_bytes));
  bytes = min_u64(bytes, left_to_user_bytes(job));
  return job->managed ? bytes : min_u64(bytes, add_u64(fitting_bytes(job), job->paging_bytes));
}

/* What jobs have, and will have. */
static uint64_t spoken_for_bytes(const struct sched_gpu *gpu) {
  return gpu->used_bytes + gpu->ephemeral_bytes;
}

/* Of that, what is beyond the cards of all GPUs but this one. */
static uint64_t others_overflow_bytes(const struct sched_gpu *gpu) {
  uint64_t bytes = 0;
  list_each(node, &gpu->scheduler->gpus) {
    const struct sched_gpu *other = list_entry(node, struct sched_gpu, link);
    if (other != gpu)
      bytes = add_u64(
          bytes, less_u64(spoken_for_bytes(other) - other->excess_bytes, sched_gpu_capacity_bytes(other)));
  }
  return bytes;
}

/* The most that it could have if nobody else had anything. */
static uint64_t alone_bytes(const struct sched_job *job) {
  uint64_t card_bytes = sched_gpu_capacity_bytes(job->gpu);
  uint64_t both_bytes = add_u64(card_bytes, job->gpu->scheduler->host_memory_bytes);
  uint64_t fitting_bytes = add_u64(sched_job_usable_bytes(job), job->paging_bytes);
  return cut_to_limit(job, job->managed ? both_bytes : min_u64(both_bytes, fitting_bytes));
}

bool books_could_admit(const struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes) {
  return total_bytes <= alone_bytes(job) && pinned_bytes <= sched_gpu_capacity_bytes(job->gpu);
}

uint64_t books_wish_bytes(const struct sched_job *job, uint64_t total_bytes) {
  return min_u64(max_u64(total_bytes, job->terms.expected_bytes), alone_bytes(job));
}

bool books_has_room(const struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes) {
  const struct sched_gpu *gpu = job->gpu;
  uint64_t uncounted_bytes = job->used_bytes + job->ephemeral.counted_bytes + others_excess_bytes(job);
  uint64_t host_bytes = less_u64(gpu->scheduler->host_memory_bytes, others_overflow_bytes(gpu));
  uint64_t bound_bytes = add_u64(sched_gpu_capacity_bytes(gpu), host_bytes);
  uint64_t room_bytes = less_u64(bound_bytes, spoken_for_bytes(gpu) - uncounted_bytes);
  if (!job->managed)
    room_bytes = min_u64(room_bytes, add_u64(fitting_bytes(job), job->paging_bytes));
  return books_wish_bytes(job, total_bytes) <= room_bytes && pinned_bytes <= pinned_room_bytes(job);
}

int books_admit(const struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes,
                uint64_t *granted_bytes) {
  uint64_t reach_bytes = furthest_bytes(job);
  if (total_bytes > job->used_bytes && total_bytes > reach_bytes)
    return -ENOMEM;
  if (pinned_bytes > job->pinned_bytes && pinned_bytes > pinned_room_bytes(job))
    return -ENOMEM;
  uint64_t rounded_bytes = (total_bytes + SCHED_SLACK_BYTES - 1) / SCHED_SLACK_BYTES * SCHED_SLACK_BYTES;
  *granted_bytes = rounded_bytes <= reach_bytes ? rounded_bytes
                   : total_bytes > reach_bytes  ? total_bytes
                                                : reach_bytes;
  return 0;
}

enum gs_refusal sched_job_why_refused(const struct sched_job *job, uint64_t total_bytes,
                                      uint64_t pinned_bytes) {
  if ((job->terms.limit_bytes && total_bytes > job->terms.limit_bytes) ||
      total_bytes > left_to_user_bytes(job))
    return GS_REFUSAL_LIMIT;
  if (pinned_bytes > job->pinned_bytes && pinned_bytes > pinned_room_bytes(job))
    return GS_REFUSAL_PINNED;
  bool exceeds = !job->managed && total_bytes > add_u64(fitting_bytes(job), job->paging_bytes);
  return exceeds ? GS_REFUSAL_CAPACITY : GS_REFUSAL_SPENT;
}

bool books_update_tight(struct scheduler *scheduler) {
  uint64_t bound_bytes = scheduler->host_memory_bytes;
  bool tight = scheduler->movable_bytes > bound_bytes;
  /* Once tight, it must have become clearly less, or every small allocation would be told to everybody. */
  if (scheduler->host_tight && scheduler->movable_bytes > bound_bytes - bound_bytes / 16)
    tight = true;
  bool changed = tight != scheduler->host_tight;
  scheduler->host_tight = tight;
  return changed;
}
