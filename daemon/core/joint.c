/*
 * joint.c - the members of a gang stop together, where none of them waits for another.
 *
 * What a member has submitted may end only once another one has submitted its part: a collective does not end
 * on one GPU before it has begun on the others. Gates shut at any moment; so one member may drain for ever
 * for the sake of a call that another one holds back behind its gate. Therefore nobody is released before all
 * have finished what they have submitted, and have said so (DRAINED). Those that have, while others don't
 * come to an end, are behind: they let calls through (LET_PASS), finish those, and say so again.
 *
 * How many? Members of a distributed program submit much the same calls: as many as the one that has
 * submitted most has submitted more, since they last stopped together, a few at a time. If nobody is behind
 * by that count, or it does not help, after some time one, and twice as many each time; and if another member
 * turns out to be behind, those were too many: it lets half of that through, and half of that again, as one
 * searches a list, and is given more time. If nobody has finished, each lacks something that another one
 * holds back: all let some through, up to where the one that has submitted most is and the same number
 * beyond. None of this is lost: what is let through has to be done anyway.
 */
#include "core/internal.h"

#define BEHIND_NS UINT64_C(500000)  /* after the last news: others may be about to finish */
#define STUCK_NS UINT64_C(20000000) /* the same, if nobody seems to be behind */
#define STUCK_MAX_NS UINT64_C(320000000)
#define CALLS_MAX 64

static bool is_stopping(const struct sched_job *job) {
  return job->together && job->state == GS_JOB_DROPPING;
}

void joint_begin(struct sched_job *job, uint64_t now_ns) {
  struct sched_gang *gang = job->gang;
  job->stopped = job->drained = job->lets_pass = false;
  job->pass_round = 0;
  job->pass_calls = 0;
  job->together = !gang_is_alone(job);
  if (!job->together)
    return;
  gang->pass_calls = 1;
  gang->passed_calls = 0;
  gang->narrows = false;
  gang->behind_ns = BEHIND_NS;
  gang->stuck_ns = STUCK_NS;
  gang->pass_ns = add_u64(now_ns, STUCK_NS);
  gang_touch(gang);
}

void joint_release(struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  if (!job->together)
    return;
  job->together = false;
  turns_await_stop(job, now_ns); /* it may have waited for others all the time */
  job->calls_before = job->calls;
  job->counted = job->stopped;
  change_add(change, job, SCHED_TELL_DROP_LOCK);
}

void joint_look(struct sched_gang *gang, uint64_t now_ns, struct sched_change *change) {
  if (!gang)
    return;
  list_each(node, &gang->members) {
    if (is_stopping(member_of(node)) && !member_of(node)->drained)
      return;
  }
  list_each(node, &gang->members) { joint_release(member_of(node), now_ns, change); }
}

/* ---- who is behind ---- */

/* Since they last stopped together. */
static uint64_t progress(const struct sched_job *job) { return less_u64(job->calls, job->calls_before); }

/* Of those that have said. 0 if they have not all stopped together before. */
static uint64_t most_progress(const struct sched_gang *gang) {
  uint64_t most = 0;
  list_each(node, &gang->members) {
    const struct sched_job *job = member_of(node);
    if (is_stopping(job) && !job->counted)
      return 0;
    if (is_stopping(job) && job->stopped)
      most = max_u64(most, progress(job));
  }
  return most;
}

/* most: most_progress(), looked for once for all members. */
static uint64_t lacks(const struct sched_job *job, uint64_t most) {
  return is_stopping(job) && job->drained ? less_u64(most, progress(job)) : 0;
}

static bool somebody_is_behind(const struct sched_gang *gang) {
  uint64_t most = most_progress(gang);
  list_each(node, &gang->members) {
    if (lacks(member_of(node), most) > 0)
      return true;
  }
  return false;
}

static bool somebody_has_drained(const struct sched_gang *gang) {
  list_each(node, &gang->members) {
    if (is_stopping(member_of(node)) && member_of(node)->drained)
      return true;
  }
  return false;
}

/* ---- what they say ---- */

static void await_news(struct sched_gang *gang, uint64_t now_ns) {
  gang_touch(gang);
  gang->pass_ns = add_u64(now_ns, somebody_is_behind(gang) ? gang->behind_ns : gang->stuck_ns);
}

static void note_drained(struct sched_job *job) {
  struct sched_gang *gang = job->gang;
  if (!job->lets_pass && gang->passed_calls > 0) { /* another one than those that have let some pass */
    gang->pass_calls = max_u64(gang->passed_calls / 2, 1);
    gang->narrows = true;
    gang->stuck_ns = min_u64(2 * gang->stuck_ns, STUCK_MAX_NS);
  }
  job->drained = true;
  job->lets_pass = false;
}

/* Who had none to let pass is asked less and less often: it may not submit as many calls as others. */
static void note_calls(struct sched_job *job, const struct sched_stop *stop) {
  struct sched_gang *gang = job->gang;
  if (is_stopping(job) && job->calls != stop->calls)
    gang->behind_ns = BEHIND_NS;
  else if (is_stopping(job) && job->lets_pass && stop->drained)
    gang->behind_ns = min_u64(2 * gang->behind_ns, STUCK_NS);
  job->calls = stop->calls;
}

void scheduler_stopped(struct sched_job *job, const struct sched_stop *stop, uint64_t now_ns,
                       struct sched_change *change) {
  bool stops = job->state == GS_JOB_DROPPING || job->state == GS_JOB_BYPASSED;
  if (stop->epoch != job->epoch || !stops)
    return;
  job->stopped = true;
  note_calls(job, stop);
  if (!is_stopping(job)) {
    if (stop->drained)
      change_add(change, job, SCHED_TELL_DROP_LOCK); /* there is nobody any more to wait for */
    return;
  }
  if (stop->drained && stop->round == job->pass_round) /* not said before it was told to let calls pass */
    note_drained(job);
  await_news(job->gang, now_ns);
  joint_look(job->gang, now_ns, change);
}

/* ---- who lets calls through ---- */

/* Up to where it was told last. */
static void tell_to_let_pass(struct sched_job *job, struct sched_change *change) {
  job->drained = false;
  job->lets_pass = true;
  job->pass_round++;
  change_add(change, job, SCHED_TELL_LET_PASS);
}

/* So many more than it has submitted, as far as it has said. */
static void let_pass(struct sched_job *job, uint64_t calls, struct sched_change *change) {
  job->pass_calls = add_u64(job->calls, min_u64(calls, CALLS_MAX)); /* the others may be done in a moment */
  tell_to_let_pass(job, change);
}

/* How many next time. Once more is not possible, later. */
static void note_passed(struct sched_gang *gang) {
  gang->passed_calls = gang->pass_calls;
  if (gang->pass_calls >= CALLS_MAX)
    gang->stuck_ns = min_u64(2 * gang->stuck_ns, STUCK_MAX_NS);
  gang->narrows = gang->narrows && gang->pass_calls > 1;
  gang->pass_calls = gang->narrows ? gang->pass_calls / 2 : min_u64(2 * gang->pass_calls, CALLS_MAX);
}

static void let_those_behind_pass(struct sched_gang *gang, struct sched_change *change) {
  uint64_t most = most_progress(gang);
  list_each(node, &gang->members) {
    uint64_t calls = lacks(member_of(node), most);
    if (calls > 0)
      let_pass(member_of(node), calls, change);
  }
}

/* Those that have not come so far as they may are asked how far they are: they wait for the GPU, not at their
 * gates. */
static void let_all_pass(struct sched_gang *gang, struct sched_change *change) {
  uint64_t most = most_progress(gang);
  bool more = false;
  list_each(node, &gang->members) {
    struct sched_job *job = member_of(node);
    if (!is_stopping(job))
      continue;
    if (job->calls < job->pass_calls) {
      tell_to_let_pass(job, change);
    } else {
      let_pass(job, add_u64(less_u64(most, progress(job)), gang->pass_calls), change);
      more = true;
    }
  }
  if (more)
    note_passed(gang);
}

static void let_drained_pass(struct sched_gang *gang, struct sched_change *change) {
  list_each(node, &gang->members) {
    struct sched_job *job = member_of(node);
    bool asked = is_stopping(job) && job->drained;
    job->lets_pass = false;
    if (asked)
      let_pass(job, gang->pass_calls, change);
  }
  note_passed(gang);
}

/* Nobody knows who is behind. */
static void let_some_pass(struct sched_gang *gang, struct sched_change *change) {
  if (somebody_has_drained(gang))
    let_drained_pass(gang, change);
  else
    let_all_pass(gang, change);
}

static void expire(struct sched_gang *gang, uint64_t now_ns, struct sched_change *change) {
  bool helps = gang->behind_ns < STUCK_NS;
  if (helps && somebody_is_behind(gang))
    let_those_behind_pass(gang, change);
  else
    let_some_pass(gang, change);
  gang->pass_ns = add_u64(now_ns, gang->stuck_ns);
  gang_touch(gang);
}

uint64_t joint_deadline_ns(const struct sched_gpu *gpu) {
  uint64_t deadline_ns = SCHED_NEVER;
  list_each(node, &gpu->dropping) {
    if (is_stopping(job_of_turn(node)))
      deadline_ns = min_u64(deadline_ns, job_of_turn(node)->gang->pass_ns);
  }
  return deadline_ns;
}

void joint_expire(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  list_each(node, &gpu->dropping) {
    if (is_stopping(job_of_turn(node)) && now_ns >= job_of_turn(node)->gang->pass_ns)
      expire(job_of_turn(node)->gang, now_ns, change);
  }
}
