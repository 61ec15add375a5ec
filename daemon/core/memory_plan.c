/*
 * memory_plan.c - the plan: who may have how many bytes on the card now, decided anew after each event.
 *
 * While everything that jobs may allocate unasked (their reach) fits the card together, everybody's room is
 * his reach, nothing moves, and an event costs the same however many jobs there are. Otherwise:
 *
 *   1. The first job is the one that holds, or the next one while a holder stops. It gets what it uses; and
 *      its reach once it has allocated something in this turn, so that further small allocations need not
 *      wait: of those that do not, nobody has to leave for it. What is lacking leaves victims: of those that
 *      do not hold, the one that runs furthest in the future first (Belady, 1966): who waits but is too big
 *      or blocked; idle jobs, the longest idle first, since they may never run again, but those later whose
 *      memory must be copied to leave (weighed_ns); then who is stopping, since it runs last; then the queue
 *      from its tail. Only as many bytes as are lacking, and never pinned ones. Who is no victim keeps what
 *      it has on the card: it is not asked to bring back more until its turn is near.
 *   2. The second job, the head of the queue while the first one runs, gets room behind that turn: from what
 *      is free, and from jobs that are idle for SCHED_IDLE_NS, since who has just released may be about to
 *      ask again. From waiting jobs only if their bytes and its own would otherwise keep
 *      the GPU idle for more than a twentieth of the quantum. For taking from waiting jobs early moves more:
 *      with three jobs of 8 GiB on 16 GiB in round robin, the job that is to leave for the second one is the
 *      one that runs furthest in the future. During the first job's turn that is the third, which has just
 *      run: each turn moves 8 GiB out and in, as with LRU. At the end of the turn it is the first job itself:
 *      then 8 GiB move at every other hand-over only. But while copy engines work, others compute at no cost:
 *      so what is short beside the quantum is paid with an idle GPU, half as often; what is not is hidden.
 *      The second job waits with its moves until the first one runs: those are paid, and share the bus.
 *
 * Before any of that, what jobs of a class have beyond their soft limits leaves, in the same order: for the
 * first job, and for the second one, from waiting jobs too, however short the moves are beside the quantum:
 * who has more than its soft limit has agreed to bring it back. Who holds keeps all that it has, and nobody
 * is asked for more than is lacking.
 *
 * And classes come before that: the memory of opportunistic jobs leaves before any other job's, with or
 * without a soft limit, and production jobs' after all others'. For the second job that is so in each of
 * three steps: what is beyond soft limits; what idle jobs have; what waiting jobs have. What a production job
 * has does not leave for an opportunistic one before its turn.
 *
 * Rooms are lowered at once. They are raised only by what is not claimed (accounting.c), the first job's
 * before the second's, so that the sum of all claims stays within what the card has. While it does not, no
 * room rises beyond what of the job is there. A room that is not complete yet grows in steps of
 * SCHED_SLACK_BYTES or more, as its victims report.
 *
 * What a job has been told to leave it leaves, even if less is lacking by then. It is asked anew only when it
 * stops or asks for the lock, since others may then be the ones that run later: so while it is neither first
 * nor second its room rises twice at most before its next grant, and never because something has moved. Those
 * rooms come down, then, to what fits, and what leaves them goes to those that have a role. If victims might
 * keep what is still there when less is lacking, each would bring back what another has left meanwhile, and a
 * holder would wait for both for ever.
 *
 * A victim that gives nothing back for the length of the grace is not counted on any more: others
 * are asked. If it has page faults, its memory counts as gone, since the driver makes it so when others touch
 * theirs. For the same reason a holder with page faults gets all its room after the grace, whatever is
 * claimed, and so do all jobs with page faults when jobs run at the same time though they do not fit.
 */
#include "core/internal.h"

/* Moves that would cost more than this part of a quantum are hidden. */
#define HIDE_DIVISOR 20

/* ---- rooms: how many bytes a job may have on the card, as it has been told ---- */

/*
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

static void rooms_set(struct sched_job *job, uint64_t room_bytes, uint64_t now_ns,
                      struct sched_change *change) {
  if (!must_hear(job, room_bytes))
    return;
  job->room_seq++;
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
  if (residence->room_seq >= job->lowered_seq && residence->room_seq <= job->room_seq) {
    job->told_bytes = job->last_told_bytes; /* since the last lower one it has heard of larger ones only */
    job->promised_bytes = max_u64(job->told_bytes, job->room_bytes);
  }
  books_set_resident(job, min_u64(residence->resident_bytes, most_bytes));
  if (job->resident_bytes < before_bytes || !owes(job)) { /* it moves */
    job->overdue = false;
    books_claim(job);
    list_remove(&job->leaving_link);
  }
  rooms_watch(job, now_ns);
}

/* Until the job has heard of its lower room it tries again, and the driver may have more by then. */
void rooms_refuse(struct sched_job *job, uint64_t short_bytes, uint64_t now_ns, struct sched_change *change) {
  uint64_t room_bytes = job->room_bytes - short_bytes;
  books_note_refused(job, room_bytes);
  job->gpu->roomy = false; /* its room is to be looked at again */
  rooms_set(job, room_bytes, now_ns, change);
}

/* ---- who does not leave ---- */

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

/* ---- the plan's data ---- */

struct plan {
  struct sched_gpu *gpu;
  uint64_t now_ns;
  struct sched_change *change;
  bool fits;        /* all that jobs have; only what they may allocate unasked does not */
  bool excess_only; /* what is within a soft limit, or has none, is not taken yet */
  bool spares_production;
  uint64_t idle_ns;       /* idle jobs give what they have after so long */
  uint64_t planned_bytes; /* sum of what jobs are to have */
  uint64_t extra_bytes;   /* what those need beside that who hold, or do next (accounting.c) */
  struct list victims[GS_CLASS_OPPORTUNISTIC + 1]; /* by class */
};

/* ---- what jobs keep, and what is taken from them ---- */

static bool runs_unfitting(const struct plan *plan, const struct sched_job *job) {
  return !plan->fits && !plan->gpu->serialized && job->state == GS_JOB_HOLDING;
}

/* What it has already, but for what it has been told to leave, and large promises that it has made no use of.
 */
static uint64_t kept_bytes(const struct plan *plan, const struct sched_job *job) {
  uint64_t room_bytes = min_u64(job->room_bytes, job->reach_bytes);
  if (plan->gpu->roomy || runs_unfitting(plan, job))
    return job->reach_bytes;
  if (plan->fits)
    return max_u64(job->used_bytes, room_bytes);
  if (job->overdue || books_gives_way(job))
    return room_bytes;
  if (room_bytes > job->resident_bytes + SCHED_SLACK_BYTES)
    return max_u64(job->resident_bytes, job->pinned_bytes);
  return max_u64(room_bytes, max_u64(job->pinned_bytes, job->asked_anew ? job->resident_bytes : 0));
}

/* What the card must have for it: also what it should have given back, or stopped to use, long ago. */
static uint64_t planned_bytes(const struct sched_job *job) {
  bool silent = job->state == GS_JOB_DROPPING && job->flags & GS_STATE_OVERDUE;
  return job->overdue || silent ? max_u64(job->want_bytes, job->claim_bytes) : job->want_bytes;
}

static void plan_kept(struct plan *plan) {
  plan->planned_bytes = 0;
  list_each(node, &plan->gpu->jobs) {
    struct sched_job *job = job_of(node);
    job->role = SCHED_ROLE_NONE;
    job->want_bytes = kept_bytes(plan, job);
    job->asked_anew = false;
    plan->planned_bytes += planned_bytes(job);
  }
}

/* What the victim keeps. */
static uint64_t floor_bytes(const struct plan *plan, const struct sched_job *victim) {
  uint64_t soft_limit_bytes =
      victim->terms.soft_limit_bytes ? victim->terms.soft_limit_bytes : SCHED_BYTES_MAX;
  if (plan->fits)
    return victim->used_bytes;
  return plan->excess_only ? max_u64(soft_limit_bytes, victim->pinned_bytes) : victim->pinned_bytes;
}

/* Also from one that has not left the last time. Returns how many bytes are still lacking. */
static uint64_t take_anyway(struct plan *plan, struct sched_job *victim, uint64_t lacking_bytes) {
  if (victim->role != SCHED_ROLE_NONE || victim->overdue)
    return lacking_bytes;
  uint64_t taken_bytes = min_u64(lacking_bytes, less_u64(victim->want_bytes, floor_bytes(plan, victim)));
  victim->want_bytes -= taken_bytes;
  plan->planned_bytes -= taken_bytes;
  return lacking_bytes - taken_bytes;
}

static uint64_t take(struct plan *plan, struct sched_job *victim, uint64_t lacking_bytes) {
  return victim->stays_ns ? lacking_bytes : take_anyway(plan, victim, lacking_bytes);
}

/* ---- whose memory leaves first ---- */

void residency_note_leaving(struct sched_job *job, uint64_t copied_bytes, uint64_t spared_bytes) {
  struct sched_leaving *left = &job->left;
  if (copied_bytes + spared_bytes == 0)
    return;
  if (left->turn != job->turns)
    *left = (struct sched_leaving){.turn = job->turns};
  left->copied_bytes = add_u64(left->copied_bytes, copied_bytes);
  left->spared_bytes = add_u64(left->spared_bytes, spared_bytes);
}

/* Of so much, the part that was spared when the job left the last time. */
static uint64_t spared_part(const struct sched_job *job, uint64_t amount) {
  unsigned __int128 all_bytes = (unsigned __int128)job->left.copied_bytes + job->left.spared_bytes;
  return all_bytes ? (uint64_t)((unsigned __int128)amount * job->left.spared_bytes / all_bytes) : 0;
}

uint64_t sched_job_clean_bytes(const struct sched_job *job) {
  return spared_part(job, less_u64(job->resident_bytes, job->pinned_bytes));
}

/* Nobody knows when an idle job runs again: the longer it has been idle, the later. What has changed is
 * copied twice by then, out and in; what has not, once. So the less of its memory must be copied out, the
 * longer a job counts as idle: up to twice as long. */
static uint64_t weighed_ns(const struct plan *plan, const struct sched_job *job) {
  uint64_t idle_ns = less_u64(plan->now_ns, job->since_ns);
  return add_u64(idle_ns, spared_part(job, idle_ns));
}

static bool leaves_before(const struct list *a, const struct list *b) {
  const struct sched_job *job = list_entry(a, const struct sched_job, victim_link);
  const struct sched_job *other = list_entry(b, const struct sched_job, victim_link);
  return job->victim == other->victim ? job->victim_ns > other->victim_ns : job->victim < other->victim;
}

/* In this order: who can't run even if it is its turn; who is idle, the longest first, by what is to be
 * copied; who stops, and who waits, the last first. Looked through many times: others have nothing to give.
 */
static void gather(struct plan *plan, struct sched_job *job, enum sched_victim victim) {
  if (job->role != SCHED_ROLE_NONE || job->overdue || job->want_bytes <= job->pinned_bytes)
    return;
  job->victim = victim;
  job->victim_ns = victim == SCHED_VICTIM_IDLE ? weighed_ns(plan, job) : 0;
  list_append(&plan->victims[job->terms.class], &job->victim_link);
}

static bool is_passed_over(const struct sched_job *job) {
  return sched_job_too_big(job) || books_blocked(job);
}

static void gather_victims(struct plan *plan) {
  const struct sched_gpu *gpu = plan->gpu;
  const struct list *queue = queue_of(gpu);
  for (int class = 0; class <= GS_CLASS_OPPORTUNISTIC; class ++)
    list_init(&plan->victims[class]);
  list_each(node, queue) {
    if (job_of_queue(node)->want_bytes && is_passed_over(job_of_queue(node)))
      gather(plan, job_of_queue(node), SCHED_VICTIM_BLOCKED);
  }
  list_each(node, &gpu->idle) { gather(plan, job_of_turn(node), SCHED_VICTIM_IDLE); }
  for (int class = 0; class <= GS_CLASS_OPPORTUNISTIC; class ++)
    list_sort(&plan->victims[class], leaves_before); /* as they are, unless some job's memory is clean */
  list_each_back(node, &gpu->dropping) { gather(plan, job_of_turn(node), SCHED_VICTIM_STOPS); }
  list_each_back(node, queue) {
    if (list_empty(&job_of_queue(node)->victim_link))
      gather(plan, job_of_queue(node), SCHED_VICTIM_WAITS);
  }
}

static void forget_victims(struct plan *plan) {
  for (int class = 0; class <= GS_CLASS_OPPORTUNISTIC; class ++)
    while (!list_empty(&plan->victims[class]))
      list_remove(list_first(&plan->victims[class]));
}

#define FROM(victim) (1u << (victim))
#define FROM_IDLE (FROM(SCHED_VICTIM_BLOCKED) | FROM(SCHED_VICTIM_IDLE))
#define FROM_WAITING FROM(SCHED_VICTIM_WAITS)
#define FROM_ALL (FROM_IDLE | FROM(SCHED_VICTIM_STOPS) | FROM_WAITING)

/* From those of the class that are so; of idle ones, that are for so long. Returns what is still lacking. */
static uint64_t take_of_class(struct plan *plan, enum gs_class class, unsigned from, uint64_t lacking_bytes) {
  list_each(node, &plan->victims[class]) {
    struct sched_job *job = list_entry(node, struct sched_job, victim_link);
    if (lacking_bytes == 0)
      break;
    if (!(from & FROM(job->victim)))
      continue;
    uint64_t idle_ns = job->victim == SCHED_VICTIM_IDLE ? plan->idle_ns : 0;
    if (plan->now_ns - job->since_ns >= idle_ns)
      lacking_bytes = take(plan, job, lacking_bytes);
    else if (job->want_bytes > job->pinned_bytes)
      plan->gpu->replan_ns = min_u64(plan->gpu->replan_ns, job->since_ns + idle_ns);
  }
  return lacking_bytes;
}

/* Whose memory leaves first. */
static const enum gs_class class_order[] = {GS_CLASS_OPPORTUNISTIC, GS_CLASS_STANDARD, GS_CLASS_PRODUCTION};

#define CLASSES (sizeof class_order / sizeof *class_order)

/* What these have beyond their soft limits, then all that these have: from one class after the other. */
static uint64_t take_from(struct plan *plan, unsigned excess_from, unsigned from, uint64_t lacking_bytes) {
  for (size_t i = 0; i < CLASSES && lacking_bytes > 0; i++) {
    if (plan->spares_production && class_order[i] == GS_CLASS_PRODUCTION)
      continue;
    plan->excess_only = true;
    lacking_bytes = take_of_class(plan, class_order[i], excess_from, lacking_bytes);
    plan->excess_only = false;
    lacking_bytes = take_of_class(plan, class_order[i], from, lacking_bytes);
  }
  return lacking_bytes;
}

/* Those that were granted last, first, of opportunistic ones before the others. */
static uint64_t take_from_holders(struct plan *plan, uint64_t lacking_bytes) {
  for (size_t i = 0; i < CLASSES && lacking_bytes > 0; i++)
    list_each_back(node, &plan->gpu->holders) {
      if (job_of_turn(node)->terms.class == class_order[i])
        lacking_bytes = take(plan, job_of_turn(node), lacking_bytes);
    }
  return lacking_bytes;
}

static void take_from_staying(struct plan *plan, uint64_t lacking_bytes) {
  for (size_t i = 0; i < CLASSES && lacking_bytes > 0; i++)
    list_each(node, &plan->gpu->staying) {
      struct sched_job *job = list_entry(node, struct sched_job, staying_link);
      if (job->terms.class == class_order[i])
        lacking_bytes = take_anyway(plan, job, lacking_bytes);
    }
}

/* ---- the plan ---- */

static void plan_job(struct plan *plan, struct sched_job *job, uint64_t want_bytes) {
  plan->planned_bytes -= planned_bytes(job);
  job->want_bytes = want_bytes;
  plan->planned_bytes += planned_bytes(job);
}

static uint64_t lacking_bytes(const struct plan *plan) {
  return less_u64(plan->planned_bytes, sched_gpu_usable_bytes(plan->gpu));
}

static void plan_first(struct plan *plan) {
  struct sched_gpu *gpu = plan->gpu;
  list_each(node, &gpu->jobs) {
    struct sched_job *job = job_of(node);
    if (job->role != SCHED_ROLE_FIRST)
      continue;
    plan_job(plan, job, books_need_bytes(job));
    plan->planned_bytes += less_u64(sched_job_expected_bytes(job), job->want_bytes) + job->extra_bytes;
  }
  uint64_t lacking = take_from(plan, FROM_ALL, FROM_ALL, lacking_bytes(plan));
  if (plan->fits)
    lacking = take_from_holders(plan, lacking);
  take_from_staying(plan, lacking);
}

/* Once moves are worth hiding they stay so for that turn: what is left to move gets less. */
static bool worth_hiding(struct sched_gpu *gpu, struct sched_job *job, uint64_t bytes) {
  job->hidden |= handover_cost_ns(gpu, bytes) > sched_gpu_tq_ns(gpu) / HIDE_DIVISOR;
  return job->hidden;
}

static void plan_second(struct plan *plan, struct sched_job *second) {
  uint64_t before_bytes = second->want_bytes;
  plan_job(plan, second, max_u64(before_bytes, books_need_bytes(second)));
  plan->planned_bytes += second->extra_bytes;
  plan->spares_production = second->terms.class == GS_CLASS_OPPORTUNISTIC;
  plan->idle_ns = SCHED_IDLE_NS;
  uint64_t lacking = take_from(plan, FROM_IDLE | FROM_WAITING, 0, lacking_bytes(plan));
  lacking = take_from(plan, 0, FROM_IDLE, lacking);
  if (lacking > 0 && worth_hiding(plan->gpu, second, lacking))
    lacking = take_from(plan, 0, FROM_WAITING, lacking);
  plan_job(plan, second, max_u64(before_bytes, less_u64(second->want_bytes, lacking)));
}

/* Everything fits but for what jobs may allocate unasked: who gets to do so? */
static void plan_slack(struct plan *plan) {
  uint64_t free_bytes = less_u64(sched_gpu_usable_bytes(plan->gpu), plan->planned_bytes);
  list_each(node, &plan->gpu->jobs) {
    struct sched_job *job = job_of(node);
    uint64_t more_bytes = min_u64(less_u64(job->reach_bytes, job->want_bytes), free_bytes);
    job->want_bytes += more_bytes;
    free_bytes -= more_bytes;
  }
}

static void set_roles(const struct list *jobs, enum sched_role role) {
  list_each(node, jobs) { job_of_turn(node)->role = role; }
}

static void make_plan(struct plan *plan) {
  struct sched_gpu *gpu = plan->gpu;
  plan_kept(plan);
  if (gpu->roomy || (!plan->fits && !gpu->serialized))
    return;
  if (gpu->serialized)
    set_roles(&gpu->holders, SCHED_ROLE_FIRST);
  set_roles(&gpu->next, SCHED_ROLE_FIRST);
  gather_victims(plan);
  plan_first(plan);
  if (plan->fits) {
    plan_slack(plan);
  } else {
    set_roles(&gpu->later, SCHED_ROLE_SECOND);
    list_each(node, &gpu->later) { plan_second(plan, job_of_turn(node)); }
  }
  forget_victims(plan);
}

/* ---- from the plan to the rooms ---- */

/* When a holder with page faults gets its room whatever is claimed. */
static uint64_t exceeding_ns(const struct sched_job *job) {
  return add_u64(job->since_ns, job->gpu->scheduler->grace_ns);
}

/* Page faults make it right. */
static bool may_exceed(const struct plan *plan, const struct sched_job *job) {
  return job->managed && job->state == GS_JOB_HOLDING &&
         (!plan->gpu->serialized || (!job->active && plan->now_ns >= exceeding_ns(job)));
}

/* What is refused to the job while it runs is nobody's then. */
static bool needs_extra(const struct sched_job *job) {
  return job->state == GS_JOB_HOLDING || job->state == GS_JOB_DROPPING || job->role == SCHED_ROLE_FIRST;
}

static void sum_extra(struct plan *plan) {
  if (plan->gpu->extra_bytes == 0)
    return;
  list_each(node, &plan->gpu->jobs) {
    plan->extra_bytes += needs_extra(job_of(node)) ? job_of(node)->extra_bytes : 0;
  }
}

static void raise(const struct plan *plan, struct sched_job *job) {
  uint64_t extra_bytes = plan->extra_bytes + (needs_extra(job) ? 0 : job->extra_bytes);
  uint64_t others_bytes = add_u64(plan->gpu->claim_bytes - job->claim_bytes, extra_bytes);
  uint64_t left_bytes = less_u64(sched_gpu_usable_bytes(plan->gpu), others_bytes);
  uint64_t there_bytes = min_u64(job->resident_bytes, job->claim_bytes);
  uint64_t most_bytes = may_exceed(plan, job) ? UINT64_MAX : max_u64(left_bytes, there_bytes);
  uint64_t room_bytes = max_u64(min_u64(job->want_bytes, most_bytes), job->room_bytes);
  uint64_t target_bytes = books_target_bytes(job);
  bool complete = room_bytes == job->want_bytes;
  bool enough = room_bytes >= target_bytes && job->room_bytes < target_bytes; /* to begin */
  if (complete || enough || job->room_seq == 0 || room_bytes - job->room_bytes >= SCHED_SLACK_BYTES)
    rooms_set(job, room_bytes, plan->now_ns, plan->change);
}

static void tell_rooms(const struct plan *plan) {
  list_each(node, &plan->gpu->jobs) {
    struct sched_job *job = job_of(node);
    if (job->want_bytes < job->room_bytes)
      rooms_set(job, job->want_bytes, plan->now_ns, plan->change);
  }
  list_each(node, &plan->gpu->holders) { raise(plan, job_of_turn(node)); }
  list_each(node, &plan->gpu->next) { raise(plan, job_of_turn(node)); }
  list_each(node, &plan->gpu->later) { raise(plan, job_of_turn(node)); }
  list_each(node, &plan->gpu->jobs) {
    struct sched_job *job = job_of(node);
    if (job->want_bytes > job->room_bytes || job->room_seq == 0)
      raise(plan, job);
  }
}

static bool is_roomy(const struct sched_gpu *gpu) {
  return gpu->reach_bytes + gpu->ephemeral_bytes + gpu->extra_bytes <= sched_gpu_usable_bytes(gpu);
}

void residency_update(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  bool was_roomy = gpu->roomy;
  gpu->replan_ns = SCHED_NEVER;
  gpu->roomy = is_roomy(gpu);
  if (gpu->roomy && was_roomy)
    return;
  struct plan plan = {.gpu = gpu, .now_ns = now_ns, .change = change, .fits = books_fit(gpu)};
  make_plan(&plan);
  sum_extra(&plan);
  tell_rooms(&plan);
}

void residency_update_job(struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  job->gpu->roomy &= is_roomy(job->gpu); /* else its room follows with the plan */
  if (job->gpu->roomy)
    rooms_set(job, job->reach_bytes, now_ns, change);
  else
    rooms_watch(job, now_ns);
}

/* ---- time ---- */

static uint64_t earliest_exceeding_ns(const struct sched_gpu *gpu) {
  uint64_t earliest_ns = SCHED_NEVER;
  list_each(node, &gpu->holders) {
    const struct sched_job *job = job_of_turn(node);
    if (gpu->serialized && job->managed && !job->active && job->room_bytes < job->target_bytes)
      earliest_ns = min_u64(earliest_ns, exceeding_ns(job));
  }
  return earliest_ns;
}

uint64_t residency_deadline_ns(const struct sched_gpu *gpu) {
  return min_u64(earliest_exceeding_ns(gpu), gpu->replan_ns);
}

/* ---- who begins ---- */

/*
 * A job that has said how much memory it will have, and has none yet, waits for its first memory until card
 * and host have all of that left, beside what the others have and will have. Who waits has nothing that
 * others could wait for; so only jobs without a gang do, whose process has no memory on other GPUs. Who has
 * begun, and who has said nothing, never waits here: it is given what there is, or refused.
 *
 * Those who wait begin in the order in which they came, opportunistic jobs after all others: so none of them
 * is passed for ever by smaller ones. Who could not begin if it were alone, since it asks for too much or its
 * limit has been lowered, is refused.
 */

static struct list *entrants_of(const struct sched_job *job) {
  return &job->gpu->entrants[job->terms.class == GS_CLASS_OPPORTUNISTIC];
}

static struct sched_job *first_entrant(const struct sched_gpu *gpu) {
  struct list *first = list_first(&gpu->entrants[false]);
  if (!first)
    first = list_first(&gpu->entrants[true]);
  return first ? list_entry(first, struct sched_job, entry.link) : NULL;
}

void admission_forget(struct sched_job *job) {
  if (!sched_job_enters(job))
    return;
  list_remove(&job->entry.link);
  job->gpu->scheduler->entrant_count--;
  books_count_need(job);
}

static bool has_others_before(const struct sched_job *job) {
  const struct sched_gpu *gpu = job->gpu;
  return !list_empty(&gpu->entrants[false]) || !list_empty(entrants_of(job));
}

bool admission_await(struct sched_job *job, uint64_t total_bytes, uint64_t pinned_bytes) {
  admission_forget(job);
  if (job->used_bytes || job->gang || !total_bytes || !job->terms.expected_bytes ||
      !books_could_admit(job, total_bytes, pinned_bytes))
    return false;
  if (!has_others_before(job) && books_has_room(job, total_bytes, pinned_bytes))
    return false;
  job->entry.total_bytes = total_bytes;
  job->entry.pinned_bytes = pinned_bytes;
  list_append(entrants_of(job), &job->entry.link);
  job->gpu->scheduler->entrant_count++;
  books_count_need(job);
  return true;
}

void admission_count_needs(const struct sched_gpu *gpu) {
  for (int late = 0; late < 2; late++)
    list_each(node, &gpu->entrants[late]) {
      books_count_need(list_entry(node, struct sched_job, entry.link));
    }
}

static void answer(struct sched_job *job, uint64_t granted_bytes, struct sched_change *change) {
  admission_forget(job);
  job->entry.granted_bytes = granted_bytes;
  change_add(change, job, SCHED_TELL_MEMORY);
}

/* False: it goes on waiting. */
static bool judge(struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  uint64_t total_bytes = job->entry.total_bytes, pinned_bytes = job->entry.pinned_bytes, granted_bytes = 0;
  if (!books_could_admit(job, total_bytes, pinned_bytes)) {
    answer(job, 0, change);
    return true;
  }
  if (!books_has_room(job, total_bytes, pinned_bytes) ||
      books_admit(job, total_bytes, pinned_bytes, &granted_bytes) < 0)
    return false;
  answer(job, granted_bytes, change);
  books_set_used(job, total_bytes, pinned_bytes, granted_bytes, now_ns);
  books_grant_pinned(job);
  residency_update_job(job, now_ns, change);
  gpu_make_dirty(job->gpu);
  return true;
}

void admission_look(struct scheduler *scheduler, uint64_t now_ns, struct sched_change *change) {
  if (scheduler->entrant_count == 0)
    return;
  list_each(node, &scheduler->gpus) {
    struct sched_gpu *gpu = list_entry(node, struct sched_gpu, link);
    struct sched_job *job = first_entrant(gpu);
    while (job && judge(job, now_ns, change))
      job = first_entrant(gpu);
  }
}
