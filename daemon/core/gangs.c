/*
 * gangs.c - jobs that hold together or not at all: the processes of one distributed program, each on a GPU.
 *
 * A member that computed alone would wait on its card for the others, and two such programs that hold one
 * card each would wait for each other for ever. So all members ask when one does, and are granted in one go.
 * To that end a gang claims: when each of its members could have a place on its GPU at the same time, by the
 * rules that hold there (seats.c), those places are its own; who is in them must stop, and nobody else is
 * granted there before. Only one gang can claim a GPU, and it claims all of its GPUs or none, so no two gangs
 * wait for each other. A claimant waits for nothing but for holders to stop, which is bounded.
 *
 * While a gang could have a place on one GPU but not yet on the others, those who hold there go on without a
 * new quantum (gpu->owed), and so does who is granted meanwhile: they make way as soon as the last of the
 * GPUs is to be had, though the latter for single jobs only after a quantum of its own. But only if nothing
 * is missing on the others than the end of a quantum: while a single job goes before a member somewhere, its
 * turn must come first, and so no GPU is kept for the gang. Once its ranks have come first on all its GPUs, a
 * gang waits for no more than one quantum.
 *
 * When one member must stop, all must: its work may wait for theirs. For the same reason, while one holds and
 * others wait, as when they come late, these go first: the gang claims their places without regard to ranks
 * and quanta, and whoever claims keeps the places that it has, until it holds together. Opportunistic ones do
 * not. A member that dies leaves the gang. One that has not stopped within the grace is not waited for: it
 * may be waiting for them itself. While others wait for it, they step: each call that they submit may be the
 * one that it waits for, and what they submit beyond that they would have to drain for. A GPU on which no
 * turns are taken is always to be had. A gang has one member on each GPU: two on one might never fit beside
 * each other.
 */
#include "core/internal.h"

static bool takes_turns(const struct sched_job *job) { return job->gpu->serialized; }

/* ---- membership ---- */

/* Those that wait go first in their queues, or not any more. */
static void set_claims(struct sched_gang *gang, bool claims) {
  if (gang->claims == claims)
    return;
  gang->claims = claims;
  list_each(node, &gang->members) {
    policy_rerank(member_of(node));
    gpu_make_dirty(member_of(node)->gpu);
  }
}

void gang_disclaim(struct sched_gang *gang) {
  if (gang)
    set_claims(gang, false);
}

void gang_leave(struct sched_job *job) {
  struct sched_gang *gang = job->gang;
  if (!gang)
    return;
  list_remove(&job->gang_link);
  if (gang->held_up_by == job)
    gang->held_up_by = NULL;
  job->gang = NULL;
  job->gpu->gang_count--;
  policy_rerank(job);
  if (!gang_waits(gang) || gang_has_one(gang))
    set_claims(gang, false);
  gang_look(gang);
}

bool gang_join(struct sched_gang *gang, struct sched_job *job) {
  list_each(node, &gang->members) {
    if (member_of(node)->gpu == job->gpu)
      return false;
  }
  set_claims(gang, false);
  job->gang = gang;
  job->gpu->gang_count++;
  list_append(&gang->members, &job->gang_link);
  gang_look(gang); /* one that was alone is not any more */
  return true;
}

/* ---- asking and stopping ---- */

/* What has been claimed are places for those that waited then. */
static void ask_all(struct sched_gang *gang, uint64_t now_ns) {
  list_each(node, &gang->members) {
    struct sched_job *job = member_of(node);
    if (takes_turns(job) && job->state == GS_JOB_IDLE && !job->terms.paused) {
      set_claims(gang, false);
      turns_set_state(job, GS_JOB_WAITING, now_ns);
      gpu_make_dirty(job->gpu);
    }
  }
}

void gang_ask(struct sched_gang *gang, uint64_t now_ns) {
  if (!gang)
    return;
  if (!gang_waits(gang))
    set_claims(gang, false);
  else
    ask_all(gang, now_ns);
}

void gang_stop(const struct sched_gang *gang) {
  if (!gang)
    return;
  list_each(node, &gang->members) {
    struct sched_job *job = member_of(node);
    if (takes_turns(job) && job->state == GS_JOB_HOLDING) {
      job->must_stop = true;
      gpu_make_dirty(job->gpu);
    }
  }
}

/* ---- claims ---- */

/* Another gang has claimed the GPU, on which a member waits: its own is the first in the queue. */
static bool is_shut_out(const struct sched_gang *gang, const struct sched_gpu *gpu) {
  const struct sched_job *first = job_of_queue(queue_of(gpu)->next);
  return gang_claims(first) && first->gang != gang;
}

#define PATIENCE 8 /* quanta */

/* A single job that comes before it has waited for long. Gangs end their turns when any of their GPUs asks
 * for it, and fill what is free beside each other: where they do so by turns, no quantum may ever be over on
 * a GPU, and only then could one come to hold that fits beside none of them. */
static bool passes_over(const struct sched_job *job, uint64_t now_ns) {
  const struct sched_singles *singles = holders_singles(job->gpu);
  for (uint32_t i = 0; i < singles->count && singles->places[i] < SCHED_LOOKAHEAD; i++) {
    const struct sched_job *other = singles->jobs[i];
    if (!queue_precedes(other, job))
      break;
    bool long_since = (now_ns - other->since_ns) / PATIENCE >= sched_gpu_tq_ns(job->gpu);
    if (long_since && books_may_hold(other))
      return true;
  }
  return false;
}

static bool has_place(const struct sched_job *job, bool over, uint64_t now_ns) {
  return job->state == GS_JOB_WAITING && books_may_hold(job) && !is_shut_out(job->gang, job->gpu) &&
         (gang_goes_first(job) || !passes_over(job, now_ns)) && holders_would_make_way(job, over, now_ns);
}

/* It has not stopped in time: nobody is to wait for it. What it has submitted may wait for the others'. */
static bool is_silent(const struct sched_job *job) { return job->flags & GS_STATE_OVERDUE; }

/* Turns are not taken there, or it holds already. */
static bool needs_none(const struct sched_job *job) {
  return !takes_turns(job) || is_silent(job) ||
         (job->state == GS_JOB_HOLDING && !job->displaced && !job->must_stop);
}

/* Now; or it would, if all quanta were over. */
static bool lacks_place(const struct sched_job *job, bool all_over, uint64_t now_ns) {
  bool over = all_over || turns_quantum_over(job->gpu, now_ns);
  job->gpu->scheduler->gang_looks += 4; /* takes about as much longer than whether it may have one at all */
  return !needs_none(job) && !has_place(job, over, now_ns);
}

/* All members; or they would, if all quanta were over. */
static bool have_places(const struct sched_gang *gang, bool all_over, uint64_t now_ns) {
  if (gang_paused(gang))
    return false;
  list_each(node, &gang->members) {
    if (lacks_place(member_of(node), all_over, now_ns))
      return false;
  }
  return true;
}

bool gang_is_near(const struct sched_gang *gang, uint64_t now_ns) { return have_places(gang, true, now_ns); }

/* Since when it waits. */
static uint64_t since_ns(const struct sched_gang *gang) {
  uint64_t since_ns = SCHED_NEVER;
  list_each(node, &gang->members) {
    if (member_of(node)->state == GS_JOB_WAITING)
      since_ns = min_u64(since_ns, member_of(node)->since_ns);
  }
  return since_ns;
}

/* For longer than any quantum of its GPUs takes: others have had turns meanwhile. */
static bool waits_for_long(const struct sched_gang *gang, uint64_t now_ns) {
  uint64_t longest_ns = 0;
  list_each(node, &gang->members) { longest_ns = max_u64(longest_ns, sched_gpu_tq_ns(member_of(node)->gpu)); }
  return now_ns - since_ns(gang) > longest_ns;
}

static bool held_by_gang(const struct sched_gpu *gpu) {
  list_each(node, &gpu->holders) {
    if (!gang_is_alone(job_of_turn(node)))
      return true;
  }
  return false;
}

/* It lacks but the end of quanta, one of which is a gang's, which may end its turn before, for another GPU's
 * sake. (Those of single jobs stay over once they are.) */
static bool waits_for_gang(const struct sched_gang *gang, uint64_t now_ns) {
  if (!have_places(gang, true, now_ns))
    return false;
  list_each(node, &gang->members) {
    if (held_by_gang(member_of(node)->gpu) && lacks_place(member_of(node), false, now_ns))
      return true;
  }
  return false;
}

/* It could claim, or is kept from that by gangs that hold by turns: those that have a GPU in common could end
 * their turns before the quanta that it waits for elsewhere, for ever. */
static bool comes_first(const struct sched_gang *gang, bool urgent, uint64_t now_ns) {
  return have_places(gang, false, now_ns) ||
         (!urgent && waits_for_long(gang, now_ns) && waits_for_gang(gang, now_ns));
}

/* One that waits for longer, is before this one in a queue, and comes first: GPUs are looked at one after the
 * other, and it would always be too late if this one is seen first. Who is begun waits for no quantum. */
static struct sched_gang *elder(const struct sched_gang *gang, uint64_t now_ns) {
  list_each(node, &gang->members) {
    const struct sched_job *job = member_of(node);
    unsigned looked_at = 0;
    const struct list *queue = queue_of(job->gpu);
    list_each(before, queue) {
      struct sched_gang *other = job_of_queue(before)->gang;
      if (other == gang || looked_at++ == SCHED_LOOKAHEAD)
        break;
      job->gpu->scheduler->gang_looks++;
      if (!other || gang_has_one(other) || since_ns(other) >= since_ns(gang))
        continue;
      if (comes_first(other, gang_goes_first(job), now_ns))
        return other;
    }
  }
  return NULL;
}

bool gang_claim(struct sched_gang *gang, uint64_t now_ns) {
  struct sched_gang *first = gang, *other;
  if (!have_places(gang, false, now_ns))
    return false;
  while ((other = elder(first, now_ns)))
    first = other;
  if (first != gang && !have_places(first, false, now_ns))
    return false;
  set_claims(first, true);
  return first == gang;
}

/* Not if a member cannot run any more: then nobody is to wait for it. */
bool gang_keeps_claim(struct sched_gang *gang) {
  list_each(node, &gang->members) {
    const struct sched_job *job = member_of(node);
    if (job->state == GS_JOB_WAITING && !books_may_hold(job)) {
      set_claims(gang, false);
      return false;
    }
  }
  return true;
}

static bool holds_up(const struct sched_job *job) {
  job->gpu->scheduler->gang_looks++;
  return job->terms.paused || (job->state == GS_JOB_WAITING && !books_may_hold(job));
}

/* Who did the last time is likely to do so still. */
bool gang_is_held_up(struct sched_gang *gang) {
  if (gang->claims)
    return false;
  if (gang->held_up_by && holds_up(gang->held_up_by))
    return true;
  gang->held_up_by = NULL;
  list_each(node, &gang->members) {
    if (holds_up(member_of(node))) {
      gang->held_up_by = member_of(node);
      return true;
    }
  }
  return false;
}

/* ---- grants ---- */

bool gang_is_ready(const struct sched_gang *gang) {
  list_each(node, &gang->members) {
    const struct sched_job *job = member_of(node);
    if (!takes_turns(job) || is_silent(job) || job->state == GS_JOB_HOLDING)
      continue;
    if (job->state != GS_JOB_WAITING || list_empty(&job->turn) || !books_may_join(job))
      return false;
  }
  return true;
}

void gang_grant(struct sched_gang *gang, uint64_t now_ns, struct sched_change *change) {
  list_each(node, &gang->members) {
    struct sched_job *job = member_of(node);
    if (job->state != GS_JOB_WAITING)
      continue;
    turns_grant(job->gpu, job, now_ns, change);
    gpu_make_dirty(job->gpu);
  }
  set_claims(gang, false);
}
