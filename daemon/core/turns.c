/*
 * turns.c - the plan of who runs: when turns are taken, who is granted, who is told to stop; and why.
 *
 * While turns are taken (serialized), those hold whose memory fits together (seats.c). Nobody is granted
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

/* Turns are taken while the memory of all jobs does not fit together; in mode auto, what of it is on the card
 * may decide (accounting.c). In mode off, too, if some of it has no
 * page faults: without turns nobody would ever leave for it. */
static bool follow_memory(const struct sched_gpu *gpu) {
  return gpu->settings.mode == GS_MODE_AUTO ||
         (gpu->settings.mode == GS_MODE_OFF && gpu->faultless_bytes > 0);
}

bool turns_are_needed(const struct sched_gpu *gpu) {
  return gpu->settings.mode == GS_MODE_ON ||
         (follow_memory(gpu) && !books_fit(gpu) && !books_fit_by_touch(gpu));
}

static uint64_t settled_ns(const struct sched_gpu *gpu) {
  return follow_memory(gpu) ? add_u64(gpu->serialized_ns, gpu->scheduler->settle_ns) : 0;
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
  change_add_all(gpu, SCHED_TELL_SCHED, change);
}

static void end_turns(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  list_each(node, &gpu->jobs) { policy_charge_so_far(job_of(node), now_ns); }
  policy_charge_seats(gpu, now_ns);
  gpu->serialized = false;
  change_add_all(gpu, SCHED_TELL_SCHED, change);
}

void turns_begin_if_needed(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  occupancy_judge(gpu);
  if (turns_are_needed(gpu) && !gpu->serialized)
    begin_turns(gpu, now_ns, change);
}

static void switch_turns(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  turns_begin_if_needed(gpu, now_ns, change);
  if (gpu->serialized && !turns_are_needed(gpu) && now_ns >= settled_ns(gpu))
    end_turns(gpu, now_ns, change);
}

/* ---- who comes ---- */

/* Whether a gang will get its seats, nobody knows; who would have to stop for it is prepared for that. */
static void foresee_gang(const struct choice *choice, const struct sched_job *job) {
  struct choice trial = *choice;
  trial.trial = true;
  choice_seat(&trial, job);
  list_each(node, &choice->gpu->holders) { job_of_turn(node)->goes |= job_of_turn(node)->on_trial; }
  choice_end_trial(choice->gpu);
}

/* A member gets its seat only with all the others. While that cannot be yet, nobody else takes a holder's
 * place; nor does a quantum begin, also of who has just been granted. */
static bool find_seat_in_gang(struct choice *choice, const struct sched_job *job) {
  struct sched_gang *gang = job->gang;
  if (choice->foreseen) {
    foresee_gang(choice, job);
    return false;
  }
  if (gang->claims || gang_claim(gang, choice->now_ns))
    return choice_seat(choice, job);
  if (choice->gpu->owed && !choice->some_may_go)
    return false; /* for an earlier one's sake it is so already */
  bool over = turns_quantum_over(choice->gpu, choice->now_ns);
  if (holders_would_make_way(job, over, choice->now_ns) && gang_is_near(gang, choice->now_ns)) {
    choice->gpu->owed = true;
    choice->some_may_go = false;
  }
  return false;
}

/* As if nobody held any more. */
static struct seats seats_without_holders(const struct choice *choice) {
  struct seats seats = choice->seats;
  seats.taken_bytes -= choice->gpu->seats[SCHED_SEAT_HOLDS].bytes;
  seats.taken -= choice->gpu->seats[SCHED_SEAT_HOLDS].count;
  return seats;
}

/* While nobody makes way, those are passed over that do not fit: that others are contending is known already.
 * And in what is foreseen, those that would not if everybody made way, where only ranks count for that: if
 * nobody does for them, nobody does for those behind them. (Of now, it has to be noted when somebody will.)
 * But gangs may claim even so, and one that is blocked may have to try if nobody else holds. */
static bool is_passed_over(const struct choice *choice, const struct list *coming,
                           const struct sched_job *job) {
  const struct sched_gpu *gpu = choice->gpu;
  bool somebody = !list_empty(&gpu->holders) || !list_empty(coming);
  if (!somebody || !gpu->contended || gpu->gang_count > 0)
    return false;
  if (choice->some_may_go && !(choice->foreseen && policy_goes_by_rank(gpu)))
    return false;
  struct seats seats = choice->some_may_go ? seats_without_holders(choice) : choice->seats;
  return !seats_fit(&seats, job);
}

/* It has no seat, as there is none beside those that have one. */
static enum gs_rule no_seat(const struct choice *choice, const struct sched_job *job) {
  return !gang_is_alone(job)                        ? GS_RULE_GANG
         : choice->gpu->settings.mode == GS_MODE_ON ? GS_RULE_ONE_AT_A_TIME
                                                    : GS_RULE_DOES_NOT_FIT;
}

/* GS_RULE_SEATED: the job may have a seat, if there is one. */
static enum gs_rule why_not(const struct sched_job *job) {
  if (sched_job_too_big(job))
    return GS_RULE_TOO_BIG;
  if (silence_bars(job))
    return GS_RULE_SILENT_USER;
  if (books_blocked(job))
    return GS_RULE_STAYING;
  return !gang_is_alone(job) && gang_is_held_up(job->gang) ? GS_RULE_GANG_HELD_UP : GS_RULE_SEATED;
}

/* The next in the queue: whether it has a seat now, or will when the displaced have gone; and by which rule.
 */
static enum gs_rule seat(struct choice *choice, const struct list *coming, struct sched_job *job,
                         unsigned *looked_at) {
  struct sched_gpu *gpu = choice->gpu;
  if (is_passed_over(choice, coming, job))
    return no_seat(choice, job);
  gpu->looked_at++;
  if (gang_claims(job))
    gang_keeps_claim(job->gang);
  enum gs_rule rule = why_not(job);
  gpu->contended |= rule == GS_RULE_GANG_HELD_UP;
  if (rule != GS_RULE_SEATED)
    return rule;
  if ((*looked_at)++ >= SCHED_LOOKAHEAD)
    return GS_RULE_FAR_BEHIND;
  if (gang_is_alone(job) ? choice_seat(choice, job) : find_seat_in_gang(choice, job))
    return choice->foreseen ? GS_RULE_LATER : GS_RULE_NEXT;
  gpu->contended = true;
  return no_seat(choice, job);
}

/* Into `coming`, those that have a seat. */
static void choose(struct choice *choice, struct list *coming) {
  struct sched_gpu *gpu = choice->gpu;
  struct sched_job *blocked = NULL;
  unsigned looked_at = 0;
  const struct list *queue = queue_of(gpu);
  list_each(node, queue) {
    struct sched_job *job = job_of_queue(node);
    if (!list_empty(&job->turn)) /* it is next already */
      continue;
    enum gs_rule rule =
        looked_at > SCHED_LOOKAHEAD ? GS_RULE_FAR_BEHIND : seat(choice, coming, job, &looked_at);
    if (rule == GS_RULE_NEXT || rule == GS_RULE_LATER)
      list_append(coming, &job->turn);
    if (!choice->foreseen || rule == GS_RULE_LATER)
      job->rule = rule;
    if (rule == GS_RULE_STAYING && !blocked && gang_is_alone(job))
      blocked = job;
  }
  if (blocked && list_empty(coming) && list_empty(&gpu->holders))
    list_append(coming, &blocked->turn);
  choice_end(choice);
}

static void forget(struct list *jobs) {
  while (!list_empty(jobs))
    list_remove(list_first(jobs));
}

static void keep_all(const struct sched_gpu *gpu) {
  list_each(node, &gpu->holders) {
    seats_displace(job_of_turn(node), false);
    job_of_turn(node)->preempt_cost_ns = 0;
  }
}

static void choose_now(struct sched_gpu *gpu, bool over, uint64_t now_ns) {
  forget(&gpu->next);
  forget(&gpu->later);
  keep_all(gpu);
  gpu->contended = gpu->owed = false;
  gpu->preempt_ns = SCHED_NEVER;
  policy_sort_users(gpu, now_ns);
  seats_displace_surplus(gpu, now_ns);
  struct choice choice = choice_begin(gpu, over, now_ns);
  choose(&choice, &gpu->next);
}

static void foresee(struct sched_gpu *gpu, bool next, uint64_t now_ns) {
  uint64_t end_ns = max_u64(turns_quantum_end_ns(gpu), now_ns); /* while a place is owed it has passed */
  struct choice choice = choice_begin(gpu, true, end_ns);
  policy_sort_users(gpu, end_ns);
  choice.foreseen = true;
  list_each(node, &gpu->holders) { job_of_turn(node)->goes = false; }
  choose(&choice, &gpu->later);
  list_each(node, &gpu->holders) { job_of_turn(node)->goes |= job_of_turn(node)->displaced; }
  keep_all(gpu);
  policy_sort_users(gpu, now_ns); /* nobody has had that yet */
  if (!next)
    forget(&gpu->later);
}

/* ---- what follows from the state ---- */

static uint64_t grace_end_ns(const struct sched_job *job) {
  return add_u64(job->since_ns, job->gpu->scheduler->grace_ns);
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
  turns_drop(holder, now_ns, change);
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
    if (gang_is_alone(job) && books_may_join(job)) {
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
  choose_now(gpu, over, now_ns);
  unsigned stopped = stop_holders(gpu, now_ns, change);
  if (stopped && (over || !turns_runs(gpu, NULL)) && !gpu->owed)
    begin_quantum(gpu, now_ns);
  if (grant_next(gpu, now_ns, change) || stopped)
    choose_now(gpu, false, now_ns); /* who waits still? */
  if (gpu->contended && !gpu->owed && turns_quantum_over(gpu, now_ns))
    begin_quantum(gpu, now_ns);
  if (gpu->owed)
    gpu->recheck_ns = recheck_ns(gpu, now_ns);
  if (gpu->contended)
    foresee(gpu, all_run(gpu), now_ns);
}

/* Turns have ended: who neither holds nor owes an answer, and is not paused, holds now, and no gang waits for
 * this GPU. */
static void grant_all(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  list_each(node, &gpu->jobs) {
    struct sched_job *job = job_of(node);
    if ((job->state == GS_JOB_IDLE || job->state == GS_JOB_WAITING) && !job->terms.paused)
      turns_grant(gpu, job, now_ns, change);
    else if (job->state == GS_JOB_HOLDING && (job->steps || job->terms.paused))
      turns_drop(job, now_ns, change); /* and granted anew, unless it is paused */
    gang_ask(job->gang, now_ns);       /* it claims no more if nobody of it waits */
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
  if (gpu->serialized && !turns_are_needed(gpu))
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
    books_seat(job, SCHED_SEAT_OVERDUE);
    change_add(change, job, SCHED_NOTE_OVERDUE);
  }
  gang_look(job->gang);
}

void turns_expire_grace(struct sched_gpu *gpu, uint64_t now_ns, struct sched_change *change) {
  struct sched_job *job;
  while ((job = job_of_turn(list_first(&gpu->dropping))) && now_ns >= grace_end_ns(job))
    judge(gpu, job, now_ns, change);
}

/* ---- reasons ---- */

uint64_t sched_job_lacking_bytes(const struct sched_job *job) {
  return less_u64(books_target_bytes(job), job->resident_bytes);
}

/* For what it lacks to come to the card. */
static uint64_t restore_ns(const struct sched_job *job) {
  return handover_cost_ns(job->gpu, sched_job_lacking_bytes(job));
}

/* For all that wait, since status asks for each of them: who is ahead of it, and what those have left, and
 * those that hold. */
static void look_ahead(struct sched_gpu *gpu, uint64_t now_ns) {
  uint32_t count = 0;
  uint64_t sum_ns = 0;
  if (gpu->ahead_events == gpu->events && gpu->ahead_at_ns == now_ns)
    return;
  gpu->ahead_events = gpu->events;
  gpu->ahead_at_ns = now_ns;
  list_each(node, &gpu->holders) {
    sum_ns = add_u64(sum_ns, sched_job_remaining_ns(job_of_turn(node), now_ns));
  }
  const struct list *queue = queue_of(gpu);
  list_each(node, queue) {
    struct sched_job *job = job_of_queue(node);
    job->ahead = count;
    job->ahead_ns = sum_ns;
    if (sched_job_too_big(job))
      continue;
    count++;
    sum_ns = add_u64(sum_ns, sched_job_remaining_ns(job, now_ns));
  }
}

/* What those have left who hold, and those before it in the queue. */
static uint64_t runs_ns(const struct sched_job *job, uint64_t now_ns) {
  look_ahead(job->gpu, now_ns);
  return job->ahead_ns / (job->gpu->holder_count ? job->gpu->holder_count : 1);
}

/* The quanta of those before it in the queue. Those of a set have theirs at the same time. */
static uint64_t quanta_ns(const struct sched_job *job, uint64_t now_ns) {
  const struct sched_gpu *gpu = job->gpu;
  look_ahead(job->gpu, now_ns);
  return job->ahead / (gpu->holder_count ? gpu->holder_count : 1) * sched_gpu_tq_ns(gpu);
}

/* Until it comes before one of those that hold, as far as so many of them tell. */
static uint64_t outranked_ns(const struct sched_job *job, uint64_t now_ns) {
  uint64_t soonest_ns = SCHED_NEVER;
  unsigned looked_at = 0;
  list_each(node, &job->gpu->holders) {
    if (looked_at++ == SCHED_LOOKAHEAD)
      break;
    soonest_ns = min_u64(soonest_ns, policy_outranks_ns(job, job_of_turn(node), now_ns));
  }
  return soonest_ns == SCHED_NEVER ? 0 : soonest_ns - now_ns;
}

/* Who is foreseen has a place when the quantum is over. Else those before it will have held first: turns are
 * taken by the quantum, or one runs after the other; and those that hold go on as long as they come first. */
static uint64_t others_ns(const struct sched_job *job, uint64_t now_ns) {
  const struct sched_gpu *gpu = job->gpu;
  bool in_a_row = gpu->settings.policy == GS_POLICY_FIFO || gpu->settings.policy == GS_POLICY_SRTF ||
                  gpu->settings.policy == GS_POLICY_PACK;
  bool foreseen = !list_empty(&job->turn);
  if (in_a_row && !foreseen)
    return runs_ns(job, now_ns);
  uint64_t left_ns = turns_quantum_left_ns(gpu, now_ns);
  return foreseen ? left_ns : max_u64(add_u64(left_ns, quanta_ns(job, now_ns)), outranked_ns(job, now_ns));
}

static struct sched_reason because(enum gs_reason why, const struct sched_job *who, uint64_t expected_ns) {
  return (struct sched_reason){.why = why, .who = who, .expected_ns = expected_ns};
}

static struct sched_reason of_holder(const struct sched_job *job) {
  const struct list *leaving = &job->gpu->leaving;
  if (job->active || !job->gpu->serialized)
    return because(GS_REASON_RUNS, NULL, 0);
  if (job->room_bytes < books_target_bytes(job) && !list_empty(leaving))
    return because(GS_REASON_ROOM, list_entry(list_first(leaving), struct sched_job, leaving_link),
                   restore_ns(job));
  return because(GS_REASON_RESTORE, NULL, restore_ns(job));
}

/* Nobody knows when a job of another class will be idle. */
static bool waits_for_idleness(const struct sched_job *job) {
  const struct sched_job *holder = turns_holder(job->gpu);
  return job->terms.class == GS_CLASS_OPPORTUNISTIC && holder &&
         holder->terms.class != GS_CLASS_OPPORTUNISTIC;
}

static struct sched_reason of_turn(const struct sched_job *job, uint64_t now_ns) {
  const struct sched_gpu *gpu = job->gpu;
  const struct sched_job *silent = job_of_turn(list_first(&gpu->overdue));
  const struct sched_job *stopping = job_of_turn(list_first(&gpu->dropping));
  if (!stopping)
    stopping = silent;
  if (!list_empty(&job->turn) && stopping && !list_empty(&gpu->next))
    return because(GS_REASON_STOP, stopping, stopping == silent ? SCHED_NEVER : restore_ns(job));
  if (waits_for_idleness(job))
    return because(GS_REASON_TURN, turns_holder(gpu), SCHED_NEVER);
  if (silent && !turns_holder(gpu)) /* nobody knows when it will answer */
    return because(GS_REASON_TURN, silent, SCHED_NEVER);
  return because(GS_REASON_TURN, turns_holder(gpu), add_u64(others_ns(job, now_ns), restore_ns(job)));
}

/* What bars the job from a seat is looked at anew: the plan passes over many jobs without a look. */
static enum gs_rule of_waiter(const struct sched_job *job) {
  enum gs_rule barred = gang_paused(job->gang) ? GS_RULE_GANG_HELD_UP : why_not(job);
  return barred == GS_RULE_SEATED ? job->rule : barred;
}

enum gs_rule sched_job_rule(const struct sched_job *job) {
  if (sched_job_enters(job))
    return GS_RULE_ENTERS;
  if (job->state == GS_JOB_HOLDING)
    return job->gpu->serialized && job->gpu->contended && job->goes ? GS_RULE_MAKES_WAY : GS_RULE_SEATED;
  if (job->state == GS_JOB_WAITING)
    return of_waiter(job);
  if (job->state == GS_JOB_DROPPING || job->state == GS_JOB_BYPASSED)
    return GS_RULE_STOPS;
  return job->terms.paused ? GS_RULE_PAUSED : GS_RULE_IDLE;
}

/* The rule says what it is about; the rest is whom it waits for, and how long. */
struct sched_reason sched_job_reason(const struct sched_job *job, uint64_t now_ns) {
  switch (sched_job_rule(job)) {
  case GS_RULE_ENTERS:
    return because(GS_REASON_MEMORY, NULL, SCHED_NEVER);
  case GS_RULE_SEATED:
  case GS_RULE_MAKES_WAY:
    return of_holder(job);
  case GS_RULE_STOPS:
    return because(job->state == GS_JOB_BYPASSED ? GS_REASON_SILENT : GS_REASON_STOPS, NULL, 0);
  case GS_RULE_PAUSED:
    return because(GS_REASON_PAUSED, NULL, SCHED_NEVER);
  case GS_RULE_TOO_BIG:
    return because(GS_REASON_TOO_BIG, sched_job_kept_by(job), SCHED_NEVER);
  case GS_RULE_STAYING:
    return because(GS_REASON_STAYING, NULL, SCHED_NEVER);
  case GS_RULE_SILENT_USER:
    return because(GS_REASON_TURN, turns_holder(job->gpu), less_u64(job->share->shunned_until_ns, now_ns));
  case GS_RULE_GANG_HELD_UP:
    if (gang_paused(job->gang))
      return because(GS_REASON_PAUSED, gang_paused(job->gang), SCHED_NEVER);
    break;
  default:
    break;
  }
  return job->state == GS_JOB_WAITING ? of_turn(job, now_ns) : because(GS_REASON_IDLE, NULL, 0);
}
