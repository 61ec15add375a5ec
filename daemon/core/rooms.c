/*
 * rooms.c - how many bytes a job may have on the card, as it has been told; and who does not give back what
 * it owes.
 *
 * A job that gives nothing back for the length of the grace is `overdue` from then on, until it moves.
 *
 * One without page faults that is overdue stays on the card: its host may have no memory left for it to
 * leave to. A holder waits for its victims one after the other, each for the grace. If what then stays makes
 * it impossible to run (books_blocked), its turn ends as soon as another one can run; without such a one it
 * goes on waiting. Blocked jobs are passed over in the queue, so those run that fit beside what stays, and
 * who stays itself; until it gives something back, ends, or runs. For when it runs it owes nothing, and
 * nobody knows whether it could leave now. So after the grace (stays_ns) it is asked again as any other, and
 * before that only if nobody else has anything to give. No job is tried in vain more often than the grace
 * passes, and each is tried again and again.
 */
#include "core/internal.h"

static bool holds(const struct sched_job *job) {
  return job->state == GS_JOB_HOLDING || job->state == GS_JOB_DROPPING;
}

/* It has, or may yet get, more on the card than its room. */
static bool owes(const struct sched_job *job) {
  return max_u64(job->resident_bytes, min_u64(job->promised_bytes, job->reach_bytes)) > job->room_bytes;
}

void rooms_watch(struct sched_job *job, uint64_t now_ns) {
  bool leaves = owes(job) && !job->overdue && !holds(job) && job->state != GS_JOB_BYPASSED;
  bool watched = !list_empty(&job->leaving_link);
  if (leaves && !watched) {
    job->leaving_ns = now_ns;
    list_append(&job->gpu->leaving, &job->leaving_link);
  } else if (!leaves) {
    list_remove(&job->leaving_link);
  }
}

/* It has not left, and may keep what it has after all: it is to run. */
static void be_left_alone(struct sched_job *job, uint64_t now_ns) {
  job->overdue = false;
  if (job->managed)
    return;
  job->stays_ns = add_u64(now_ns, job->gpu->scheduler->grace_ns);
  list_remove(&job->staying_link);
  list_append(&job->gpu->staying, &job->staying_link);
}

/* It waits for a room that will never come, or knows of none. */
static bool must_hear(const struct sched_job *job, uint64_t room_bytes) {
  bool waits = job->state == GS_JOB_HOLDING && !job->active;
  return job->room_seq == 0 || room_bytes != job->room_bytes ||
         (waits && job->target_bytes != books_target_bytes(job));
}

void rooms_set(struct sched_job *job, uint64_t room_bytes, uint64_t now_ns, struct sched_change *change) {
  if (!must_hear(job, room_bytes))
    return;
  job->room_seq++;
  if (room_bytes < job->last_told_bytes) /* else it sees no lower one, and has nothing to say */
    job->lowered_seq = job->room_seq;
  job->room_bytes = room_bytes;
  job->promised_bytes = max_u64(job->told_bytes, room_bytes); /* what was never told, it cannot believe in */
  job->target_bytes = books_target_bytes(job);
  if (job->overdue && !owes(job))
    be_left_alone(job, now_ns);
  books_claim(job);
  books_assume_resident(job);
  rooms_watch(job, now_ns);
  change_add(change, job, SCHED_TELL_ROOM);
}

void rooms_acknowledge(struct sched_job *job, const struct sched_residence *residence, uint64_t now_ns) {
  uint64_t before_bytes = job->resident_bytes;
  /* Without room it brings nothing to the card, whatever it says: others' room must not shrink by that. */
  uint64_t most_bytes = max_u64(before_bytes, job->promised_bytes);
  if (residence->room_seq >= job->lowered_seq && residence->room_seq <= job->room_seq)
    job->told_bytes = job->promised_bytes = job->room_bytes;
  books_set_resident(job, min_u64(residence->resident_bytes, most_bytes));
  if (job->resident_bytes < before_bytes || !owes(job)) { /* it moves */
    job->overdue = false;
    books_claim(job);
    list_remove(&job->leaving_link);
  }
  rooms_watch(job, now_ns);
}

void rooms_refuse(struct sched_job *job, uint64_t short_bytes, uint64_t now_ns, struct sched_change *change) {
  uint64_t room_bytes = job->room_bytes - short_bytes;
  books_note_refused(job, room_bytes);
  job->told_bytes = job->promised_bytes = room_bytes; /* the driver sees to that */
  job->gpu->roomy = false;                            /* its room is to be looked at again */
  rooms_set(job, room_bytes, now_ns, change);
}

/* ---- time ---- */

static struct sched_job *first_staying(const struct sched_gpu *gpu) {
  return list_entry(list_first(&gpu->staying), struct sched_job, staying_link);
}

uint64_t rooms_deadline_ns(const struct sched_gpu *gpu) {
  struct list *node = list_first(&gpu->leaving);
  uint64_t deadline_ns = list_empty(&gpu->staying) ? SCHED_NEVER : first_staying(gpu)->stays_ns;
  if (!node)
    return deadline_ns;
  uint64_t since_ns = list_entry(node, struct sched_job, leaving_link)->leaving_ns;
  return min_u64(deadline_ns, add_u64(since_ns, gpu->scheduler->grace_ns));
}

void rooms_expire_grace(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  struct list *node;
  while ((node = list_first(&gpu->leaving))) {
    struct sched_job *job = list_entry(node, struct sched_job, leaving_link);
    if (now_ns < add_u64(job->leaving_ns, gpu->scheduler->grace_ns))
      break;
    job->overdue = true;
    list_remove(node);
    books_claim(job);
    change_add(change, job, SCHED_NOTE_STAYS);
    turns_wait_anew(gpu, now_ns);
  }
}

void rooms_expire_stays(struct sched_gpu *gpu, uint64_t now_ns) {
  while (!list_empty(&gpu->staying) && now_ns >= first_staying(gpu)->stays_ns) {
    struct sched_job *job = first_staying(gpu);
    job->stays_ns = 0;
    list_remove(&job->staying_link);
    books_claim(job);
    turns_wait_anew(gpu, now_ns);
  }
}
