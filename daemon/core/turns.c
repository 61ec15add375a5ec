/*
 * turns.c - the lock of one GPU: when turns are taken, who is granted, who is told to stop.
 *
 * While turns are taken (serialized), those hold whose memory fits together (holders.c). Nobody is granted
 * before those have answered, died, or been bypassed that were told to stop for it; what must leave the card
 * for it leaves after that, and it waits for that with its gate shut (memory_plan.c). So the quantum of a set
 * begins when its first job says that it runs, or the grace after its grant, or after somebody new was asked
 * to leave for it; and anew when it is over. Who is interrupted before that, or goes with its gang, does not
 * prolong it for those that run: those who interrupt each other would for ever. Who cannot run because others
 * stay on the card (memory_plan.c) is passed over while somebody else can. While turns are not taken, every
 * job holds, but for those that still owe an answer to DROP_LOCK: they are granted when it comes. A job that
 * holds is never granted again, so a client never gets two grants without a release between them.
 */
#include "core/internal.h"

/* ---- the quantum ---- */

/*
 * How long a turn is: as set, or, if that is `auto`, as short as it may be without losing more
 * than a given part of the time to hand-overs (drains and paid moves, as measured; before the first one as
 * guessed from what there is to move).
 *
 * What is lost of each turn and its hand-over is cost / (quantum + cost). A hand-over whose moves are hidden
 * behind turns costs next to nothing, until the turns become so short that the bus does not manage.
 */

#define AUTO_MIN_NS UINT64_C(50000000)
#define AUTO_MAX_NS UINT64_C(300000000000)

static uint64_t cost_ns(const struct sched_gpu *gpu) {
  if (gpu->handover.cost_ns)
    return gpu->handover.cost_ns;
  return handover_cost_ns(gpu, min_u64(gpu->used_bytes, sched_gpu_capacity_bytes(gpu)));
}

uint64_t sched_gpu_tq_ns(const struct sched_gpu *gpu) {
  if (gpu->settings.tq_ns != SCHED_TQ_AUTO)
    return gpu->settings.tq_ns;
  uint64_t most_cost_ns = min_u64(cost_ns(gpu), AUTO_MAX_NS);
  uint64_t tq_ns = most_cost_ns * (1000 - gpu->settings.loss_permille) / gpu->settings.loss_permille;
  return max_u64(min_u64(tq_ns, AUTO_MAX_NS), AUTO_MIN_NS);
}

/* ---- silent users ---- */

/*
 * What it costs a user that a job of his has kept the GPU from others without an answer.
 *
 * A job that holds, and neither runs nor stops when it is told to, keeps the GPU for some graces, whatever
 * the policy; then others go on, or the caller evicts it. Its user may have any number of such jobs, and may
 * bring them again. So afterwards his jobs wait: while jobs of other users want the GPU, for SILENCE_PRICE
 * times as long as they have had to wait. That leaves others their part of the time, whoever is silent how
 * often; and it costs nobody anything but that user. Once the others have rested for the length of the grace,
 * his jobs may go on.
 */

#define SILENCE_PRICE 2

static struct sched_share *share_of(struct list *node) {
  return list_entry(node, struct sched_share, shunned_link);
}

bool sched_share_is_shunned(const struct sched_share *share) { return !list_empty(&share->shunned_link); }

bool silence_bars(const struct sched_job *job) {
  return job->share && sched_share_is_shunned(job->share) && job->gpu->job_count > job->share->job_count;
}

/* The job has not answered yet, so it is in its state since it was told to stop. What it had until then it
 * had by right: it ran, or nobody had told it to stop. */
static uint64_t begun_ns(const struct sched_job *job) {
  return job->ran_ns ? job->since_ns : min_u64(job->granted_ns, job->since_ns);
}

/* The job, which was silent, has answered, or leaves, or others go on without it. */
static void silence_end(struct sched_job *job, uint64_t now_ns) {
  struct sched_share *share = job->share;
  struct sched_gpu *gpu = job->gpu;
  if (!share)
    return;
  uint64_t kept_ns = min_u64(now_ns - begun_ns(job), SCHED_NEVER / 4 / SILENCE_PRICE);
  share->shunned_until_ns = add_u64(max_u64(share->shunned_until_ns, now_ns), SILENCE_PRICE * kept_ns);
  share->shunned_look_ns = min_u64(share->shunned_until_ns, add_u64(now_ns, gpu->scheduler->grace_ns));
  list_remove(&share->shunned_link);
  list_append(&gpu->shunned, &share->shunned_link);
}

uint64_t silence_deadline_ns(const struct sched_gpu *gpu) {
  uint64_t deadline_ns = SCHED_NEVER;
  list_each(node, &gpu->shunned) { deadline_ns = min_u64(deadline_ns, share_of(node)->shunned_look_ns); }
  return deadline_ns;
}

/* When others' jobs will have rested for the grace; later, if one does not rest. */
static uint64_t rested_ns(const struct sched_share *share, uint64_t now_ns) {
  const struct sched_gpu *gpu = share->gpu;
  uint64_t since_ns = 0;
  list_each(node, &gpu->jobs) {
    const struct sched_job *job = list_entry(node, struct sched_job, link);
    bool rests = job->state == GS_JOB_IDLE || job->state == GS_JOB_BYPASSED;
    if (job->share != share)
      since_ns = max_u64(since_ns, rests ? job->since_ns : now_ns);
  }
  return add_u64(since_ns, gpu->scheduler->grace_ns);
}

void silence_expire(struct sched_gpu *gpu, uint64_t now_ns) {
  for (struct list *node = gpu->shunned.next, *next; node != &gpu->shunned; node = next) {
    struct sched_share *share = share_of(node);
    next = node->next;
    if (now_ns < share->shunned_look_ns)
      continue;
    share->shunned_look_ns = min_u64(rested_ns(share, now_ns), share->shunned_until_ns);
    if (now_ns >= share->shunned_look_ns)
      list_remove(node);
  }
}

struct sched_job *turns_holder(const struct sched_gpu *gpu) {
  return job_of_turn(list_first(&gpu->holders));
}

bool turns_runs(const struct sched_gpu *gpu, const struct sched_job *beside) {
  return gpu->active_count > (beside && beside->active);
}

/* ---- states ---- */

uint64_t sched_job_held_ns(const struct sched_job *job, uint64_t now_ns) {
  bool holds = job->state == GS_JOB_HOLDING || job->state == GS_JOB_DROPPING;
  return job->held_ns + (holds ? now_ns - job->since_ns : 0);
}

uint64_t sched_job_waited_ns(const struct sched_job *job, uint64_t now_ns) {
  return job->waited_ns + (job->state == GS_JOB_WAITING ? now_ns - job->since_ns : 0);
}

static void enter_list(struct sched_job *job, uint64_t now_ns) {
  struct sched_gpu *gpu = job->gpu;
  list_remove(&job->turn);
  list_remove(&job->waiting);
  list_remove(&job->ranked);
  if (job->state == GS_JOB_WAITING) {
    queue_insert(job, policy_place(job, now_ns));
  } else if (job->state == GS_JOB_HOLDING) {
    list_append(&gpu->holders, &job->turn);
    list_append(&gpu->ranked, &job->ranked);
    job->grant = ++gpu->grants;
  } else if (job->state == GS_JOB_DROPPING) {
    list_append(&gpu->dropping, &job->turn);
  } else {
    list_append(&gpu->idle, &job->turn);
  }
  holders_seat(job, job->state == GS_JOB_HOLDING    ? SCHED_SEAT_HOLDS
                    : job->state == GS_JOB_DROPPING ? SCHED_SEAT_STOPS
                                                    : SCHED_SEAT_NONE);
}

void turns_set_state(struct sched_job *job, enum gs_job_state state, uint64_t now_ns) {
  struct sched_gpu *gpu = job->gpu;
  job->held_ns = sched_job_held_ns(job, now_ns);
  job->waited_ns = sched_job_waited_ns(job, now_ns);
  job->credit_ns += job->state == GS_JOB_WAITING ? now_ns - job->since_ns : 0;
  if (job->seat == SCHED_SEAT_OVERDUE)
    gang_look(job->gang); /* nobody need step for it any more */
  if (job->seat == SCHED_SEAT_OVERDUE || (job->seat == SCHED_SEAT_STOPS && state == GS_JOB_BYPASSED))
    silence_end(job, now_ns);
  if (state == GS_JOB_HOLDING)
    job->granted_ns = now_ns;
  job->since_ns = now_ns;
  if (state != GS_JOB_HOLDING && state != GS_JOB_DROPPING)
    policy_charge(job, now_ns);
  if (state == GS_JOB_WAITING || state == GS_JOB_HOLDING)
    policy_level(job, now_ns);
  gpu->waiting_count += (state == GS_JOB_WAITING) - (job->state == GS_JOB_WAITING);
  gpu->holder_count += (state == GS_JOB_HOLDING) - (job->state == GS_JOB_HOLDING);
  turns_touch(gpu);
  enum gs_job_state before = job->state;
  gpu->active_count -= job->active;
  job->state = state;
  policy_note_state(job, before, now_ns);
  job->asked_anew = true;
  job->active = job->grows = job->displaced = job->must_stop = job->steps = false;
  enter_list(job, now_ns);
  books_claim(job);
  rooms_watch(job, now_ns);
}

void turns_set_active(struct sched_job *job, uint64_t now_ns) {
  job->active = true;
  job->ran_ns = now_ns;
  job->gpu->active_count++;
}

void turns_rank(struct sched_job *job) {
  if (job->state != GS_JOB_WAITING)
    return;
  list_remove(&job->waiting);
  queue_insert(job, policy_rank(job, job->since_ns));
  job->gpu->changes++;
}

void turns_set_policy(struct sched_gpu *gpu, enum gs_policy policy, uint64_t now_ns) {
  bool other = (policy == GS_POLICY_FAIR) != (gpu->settings.policy == GS_POLICY_FAIR);
  gpu->settings.policy = policy;
  list_each(node, &gpu->jobs) {
    struct sched_job *job = list_entry(node, struct sched_job, link);
    if (other) {
      policy_leave(job, now_ns);
      policy_enter(job, now_ns);
    }
    if (job->state == GS_JOB_WAITING)
      queue_number(job, policy_rank(job, job->since_ns));
  }
  queue_unsort(gpu);
}

uint64_t turns_quantum_end_ns(const struct sched_gpu *gpu) {
  return add_u64(gpu->turn_ns, sched_gpu_tq_ns(gpu));
}

/* A quantum begins once its holder runs. */
uint64_t turns_quantum_left_ns(const struct sched_gpu *gpu, uint64_t now_ns) {
  return min_u64(less_u64(turns_quantum_end_ns(gpu), now_ns), sched_gpu_tq_ns(gpu));
}

/* Who joins a set has what is left of its quantum. */
static uint64_t granted_ns(const struct sched_gpu *gpu, uint64_t now_ns) {
  return gpu->holder_count == 1 ? sched_gpu_tq_ns(gpu)
                                : max_u64(turns_quantum_left_ns(gpu, now_ns), SCHED_TQ_MIN_NS);
}

void turns_grant(struct sched_gpu *gpu, struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  turns_set_state(job, GS_JOB_HOLDING, now_ns);
  job->asks = false;
  job->credit_ns = gpu->serialized ? job->credit_ns : 0;
  job->epoch = ++gpu->epoch;
  job->turns++;
  job->wanted_told = job->goes = job->hidden = job->too_big_noted = false;
  job->flags = 0;
  job->target_bytes = books_target_bytes(job);
  job->steps = gpu->serialized && gang_is_awaited(job->gang);
  if (gpu->holder_count == 1)
    gpu->turn_ns = gpu->owed && gang_is_alone(job) ? 0 : add_u64(now_ns, gpu->scheduler->grace_ns);
  job->owes = gpu->owed && turns_quantum_over(gpu, now_ns);
  if (gpu->serialized && !turns_runs(gpu, job))
    handover_begin(gpu, now_ns);
  job->took_over = gpu->serialized && gpu->last_job != 0 && gpu->last_job != job->id;
  gpu->handovers += job->took_over;
  gpu->last_job = job->id;
  job->quantum_ns = gpu->serialized ? granted_ns(gpu, now_ns) : 0;
  change_add(change, job, SCHED_TELL_LOCK_OK);
}

static void drop(struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  turns_set_state(job, GS_JOB_DROPPING, now_ns);
  change_add(change, job, SCHED_TELL_DROP_LOCK);
}

void turns_admit_running(struct sched_gpu *gpu, struct sched_job *job, uint64_t now_ns,
                         struct sched_change *change) {
  bool fits = holders_fit(job);
  turns_set_state(job, GS_JOB_HOLDING, now_ns); /* epoch 0: nobody has granted it */
  job->turns++;
  turns_set_active(job, now_ns);
  if (!fits) {
    drop(job, now_ns, change);
  } else if (gpu->holder_count == 1) {
    gpu->turn_ns = now_ns;
    gpu->last_job = job->id;
  }
}

/* One that holds while turns are taken is told to stop by what follows from that (stop_holders). */
void turns_pause(struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  gang_disclaim(job->gang);
  if (job->state == GS_JOB_WAITING) {
    turns_set_state(job, GS_JOB_IDLE, now_ns);
    job->asks = true;
  } else if (job->state == GS_JOB_HOLDING && !job->gpu->serialized) {
    drop(job, now_ns, change);
  }
}

void turns_resume(struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  if (job->state != GS_JOB_IDLE)
    return;
  if (!job->gpu->serialized)
    turns_grant(job->gpu, job, now_ns, change);
  else if (job->asks)
    turns_set_state(job, GS_JOB_WAITING, now_ns);
  job->asks = false;
  gang_ask(job->gang, now_ns);
}

/* ---- what holders know of those that wait ---- */

uint64_t sched_gpu_left_ns(const struct sched_gpu *gpu, uint64_t now_ns) {
  list_each(node, &gpu->holders) {
    const struct sched_job *job = job_of_turn(node);
    if (gpu->contended && job->goes)
      return turns_quantum_left_ns(gpu, now_ns);
  }
  return SCHED_NEVER;
}

static void tell_wanted(struct sched_job *job, bool wanted, struct sched_change *change) {
  if (job->wanted_told == wanted)
    return;
  job->wanted_told = wanted;
  change_add(change, job, SCHED_TELL_LOCK_WANTED);
}

void turns_tell_wanted(struct sched_gpu *gpu, struct sched_change *change) {
  bool wanted = gpu->serialized && gpu->contended;
  if (!wanted && !gpu->wanted_told)
    return;
  gpu->wanted_told = wanted;
  list_each(node, &gpu->holders) {
    struct sched_job *job = job_of_turn(node);
    if (job->active) /* one of a gang that rests is still needed by the others */
      tell_wanted(job, wanted && gang_is_alone(job), change);
  }
}

/* ---- turns begin and end ---- */

/* Turns are taken while the memory of all jobs does not fit together. In mode off, too, if some of it has no
 * page faults: without turns nobody would ever leave for it. */
static bool follow_memory(const struct sched_gpu *gpu) {
  return gpu->settings.mode == GS_MODE_AUTO ||
         (gpu->settings.mode == GS_MODE_OFF && gpu->faultless_bytes > 0);
}

static bool wants_turns(const struct sched_gpu *gpu) {
  return gpu->settings.mode == GS_MODE_ON || (follow_memory(gpu) && !books_fit(gpu));
}

static uint64_t settled_ns(const struct sched_gpu *gpu) {
  return follow_memory(gpu) ? add_u64(gpu->serialized_ns, gpu->scheduler->settle_ns) : 0;
}

void turns_tell_all(struct sched_gpu *gpu, enum sched_action_type type, struct sched_change *change) {
  list_each(node, &gpu->jobs) { change_add(change, list_entry(node, struct sched_job, link), type); }
}

/* For those that hold. */
static void begin_quantum(struct sched_gpu *gpu, uint64_t now_ns) {
  bool runs = turns_runs(gpu, NULL);
  gpu->turn_ns = runs ? now_ns : add_u64(now_ns, gpu->scheduler->grace_ns);
}

static void begin_turns(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  policy_charge_seats(gpu, now_ns);
  gpu->serialized = true;
  gpu->serialized_ns = now_ns;
  begin_quantum(gpu, now_ns);
  turns_tell_all(gpu, SCHED_TELL_SCHED, change);
}

static void end_turns(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  list_each(node, &gpu->jobs) { policy_charge_so_far(list_entry(node, struct sched_job, link), now_ns); }
  policy_charge_seats(gpu, now_ns);
  gpu->serialized = false;
  turns_tell_all(gpu, SCHED_TELL_SCHED, change);
}

void turns_begin_if_needed(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  if (wants_turns(gpu) && !gpu->serialized)
    begin_turns(gpu, now_ns, change);
}

static void switch_turns(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  turns_begin_if_needed(gpu, now_ns, change);
  if (gpu->serialized && !wants_turns(gpu) && now_ns >= settled_ns(gpu))
    end_turns(gpu, now_ns, change);
}

/* ---- what follows from the state ---- */

static uint64_t grace_end_ns(const struct sched_job *job) {
  return add_u64(job->since_ns, job->gpu->scheduler->grace_ns);
}

void turns_wait_anew(struct sched_gpu *gpu, uint64_t now_ns) {
  const struct sched_job *holder = gpu->serialized ? turns_holder(gpu) : NULL;
  if (holder && !holder->active && !holder->managed && !turns_runs(gpu, NULL))
    gpu->turn_ns = max_u64(gpu->turn_ns, add_u64(now_ns, gpu->scheduler->grace_ns));
}

static void note_too_big(struct sched_job *job, struct sched_change *change) {
  if (!job->too_big_noted)
    change_add(change, job, SCHED_NOTE_TOO_BIG);
  job->too_big_noted = true;
}

/* Those that would have their turn if they were not too big. */
static void note_passed_over(const struct sched_gpu *gpu, struct sched_change *change) {
  unsigned count = 0;
  const struct list *queue = queue_of(gpu);
  list_each(node, queue) {
    if (!sched_job_too_big(job_of_queue(node)) || count++ == SCHED_LOOKAHEAD)
      break;
    note_too_big(job_of_queue(node), change);
  }
}

static void stop_holder(struct sched_job *holder, uint64_t now_ns, struct sched_change *change) {
  if (!turns_runs(holder->gpu, holder))
    handover_begin(holder->gpu, now_ns);
  drop(holder, now_ns, change);
}

/* One that holds and has come to need more than the capacity cannot go on. (Where the driver has refused some
 * of that, the program gets to hear it: it may be about to do with less.) */
static bool is_too_big(struct sched_job *holder, struct sched_change *change) {
  if (!books_exceeds_capacity(holder))
    return false;
  note_too_big(holder, change);
  return true;
}

/* It holds and does not run, because others stay on the card; and somebody else could. */
static bool waits_in_vain(const struct sched_job *holder) {
  const struct sched_gpu *gpu = holder->gpu;
  return !holder->active && books_blocked(holder) && (gpu->contended || !list_empty(&gpu->next));
}

/* What it was granted for has finished. It has to stop before it runs ahead itself. */
static bool has_stepped(const struct sched_job *holder) {
  return holder->steps && !gang_is_awaited(holder->gang);
}

/* Returns how many have been told to stop. */
static unsigned stop_holders(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  unsigned count = 0;
  for (struct list *node = gpu->holders.next, *next; node != &gpu->holders; node = next) {
    struct sched_job *job = job_of_turn(node);
    next = node->next;
    if (is_too_big(job, change) || job->displaced || job->must_stop || job->terms.paused ||
        has_stepped(job) || (waits_in_vain(job) && now_ns >= grace_end_ns(job))) {
      if (job->displaced) {
        holders_charge_preemption(job, now_ns);
        policy_make_way(job, now_ns);
      }
      stop_holder(job, now_ns, change);
      gang_stop(job->gang);
      count++;
    }
  }
  return count;
}

/* Returns how many have been granted. */
static unsigned grant_next(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  unsigned count = 0;
  for (struct list *node = gpu->next.next, *next; node != &gpu->next; node = next) {
    struct sched_job *job = job_of_turn(node);
    next = node->next; /* a gang has one member here */
    if (gang_is_alone(job) && holders_fit(job)) {
      turns_grant(gpu, job, now_ns, change);
      count++;
    } else if (!gang_is_alone(job) && gang_is_ready(job->gang)) {
      gang_grant(job->gang, now_ns, change);
      count++;
    }
  }
  return count;
}

/* Who has had a quantum has had what it waited for. */
static void forget_credit(const struct sched_gpu *gpu) {
  list_each(node, &gpu->holders) { job_of_turn(node)->credit_ns = 0; }
}

static bool all_run(const struct sched_gpu *gpu) {
  return gpu->active_count == gpu->holder_count && gpu->holder_count > 0 && list_empty(&gpu->next);
}

bool turns_quantum_over(const struct sched_gpu *gpu, uint64_t now_ns) {
  return now_ns >= turns_quantum_end_ns(gpu);
}

/* While a place is owed: when the quantum is over others may come first; after that, it may not be owed any
 * more for what has happened elsewhere. */
static uint64_t recheck_ns(const struct sched_gpu *gpu, uint64_t now_ns) {
  bool over = turns_quantum_over(gpu, now_ns);
  return over ? add_u64(now_ns, sched_gpu_tq_ns(gpu)) : turns_quantum_end_ns(gpu);
}

static void take_turns(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  bool over = turns_quantum_over(gpu, now_ns);
  if (over)
    forget_credit(gpu);
  note_passed_over(gpu, change);
  holders_choose(gpu, over, now_ns);
  unsigned stopped = stop_holders(gpu, now_ns, change);
  if (stopped && (over || !turns_runs(gpu, NULL)) && !gpu->owed)
    begin_quantum(gpu, now_ns);
  if (grant_next(gpu, now_ns, change) || stopped)
    holders_choose(gpu, false, now_ns); /* who waits still? */
  if (gpu->contended && !gpu->owed && turns_quantum_over(gpu, now_ns))
    begin_quantum(gpu, now_ns);
  if (gpu->owed)
    gpu->recheck_ns = recheck_ns(gpu, now_ns);
  if (gpu->contended)
    holders_foresee(gpu, all_run(gpu), now_ns);
}

/* Turns have ended: who neither holds nor owes an answer, and is not paused, holds now, and no gang waits for
 * this GPU. */
static void grant_all(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  list_each(node, &gpu->jobs) {
    struct sched_job *job = list_entry(node, struct sched_job, link);
    if ((job->state == GS_JOB_IDLE || job->state == GS_JOB_WAITING) && !job->terms.paused)
      turns_grant(gpu, job, now_ns, change);
    else if (job->state == GS_JOB_HOLDING && job->steps)
      drop(job, now_ns, change); /* and granted anew */
    gang_ask(job->gang, now_ns); /* it claims no more if nobody of it waits */
    gang_look(job->gang);
  }
}

void turns_update(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  bool serialized = gpu->serialized;
  gpu->changes++;
  switch_turns(gpu, now_ns, change);
  if (gpu->serialized)
    take_turns(gpu, now_ns, change);
  else if (serialized)
    grant_all(gpu, now_ns, change);
}

/* ---- time ---- */

/* When to decide again who holds. */
static uint64_t decision_ns(const struct sched_gpu *gpu) {
  uint64_t decision_ns = SCHED_NEVER;
  if (gpu->contended && !list_empty(&gpu->holders))
    decision_ns = min_u64(gpu->owed ? gpu->recheck_ns : turns_quantum_end_ns(gpu), gpu->preempt_ns);
  list_each(node, &gpu->holders) {
    if (waits_in_vain(job_of_turn(node)))
      decision_ns = min_u64(decision_ns, grace_end_ns(job_of_turn(node)));
  }
  return decision_ns;
}

uint64_t turns_deadline_ns(const struct sched_gpu *gpu) {
  uint64_t deadline_ns = SCHED_NEVER;
  if (gpu->serialized)
    deadline_ns = decision_ns(gpu);
  if (!list_empty(&gpu->dropping))
    deadline_ns = min_u64(deadline_ns, grace_end_ns(job_of_turn(list_first(&gpu->dropping))));
  if (gpu->serialized && !wants_turns(gpu))
    deadline_ns = min_u64(deadline_ns, settled_ns(gpu));
  return deadline_ns;
}

static void judge(struct sched_gpu *gpu, struct sched_job *job, uint64_t now_ns,
                  struct sched_change *change) {
  struct sched_handover *handover = &gpu->handover;
  job->flags |= GS_STATE_OVERDUE;
  if (job->managed) {
    if (handover->open)
      handover_drained(gpu, now_ns - job->since_ns, now_ns);
    turns_set_state(job, GS_JOB_BYPASSED, now_ns);
    change_add(change, job, SCHED_NOTE_BYPASSED);
  } else {
    list_remove(&job->turn);
    list_append(&gpu->overdue, &job->turn);
    holders_seat(job, SCHED_SEAT_OVERDUE);
    change_add(change, job, SCHED_NOTE_OVERDUE);
  }
  gang_look(job->gang);
}

void turns_expire_grace(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  struct sched_job *job;
  while ((job = job_of_turn(list_first(&gpu->dropping))) && now_ns >= grace_end_ns(job))
    judge(gpu, job, now_ns, change);
}
