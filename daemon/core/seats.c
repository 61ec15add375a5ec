/*
 * seats.c - a job's states, and who makes way for whom.
 *
 * In mode `on` one job holds at a time. Otherwise whoever waits and fits beside the holders joins them, the
 * best rank first, until the quantum of the set ends; who fits nowhere is passed over meanwhile. At the end
 * of the quantum, or when a policy preempts, each waiting job in turn may put holders in whose place it comes
 * before out of theirs, the worst rank first, until it fits. A small one may go so before a large one without
 * which it would not do: once all have been asked, the holders that fit beside those that come keep their
 * places, the best rank first. What a job with leave to come needs is kept for it until those that must stop
 * have done so (turns.c).
 *
 * Counted is what each needs on the card, with what it is expected to allocate again, beside what never
 * leaves it: pinned memory, and what stays for want of host memory (memory_plan.c).
 */
#include "core/internal.h"

#define PREEMPT_PART 20                         /* one part in so many of the time may go into preemptions */
#define SINGLES_LOOKAHEAD (4 * SCHED_LOOKAHEAD) /* in a queue that is full of gangs */
#define LOOKS_MOST 4096u                        /* at holders in one choice: 64 that wait, and 64 that hold */

void seats_displace(struct sched_job *holder, bool displaced) {
  if (holder->displaced != displaced)
    books_seat(holder, displaced ? SCHED_SEAT_DISPLACED : SCHED_SEAT_HOLDS);
  holder->displaced = displaced;
}

/* ---- states ---- */

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
  books_seat(job, job->state == GS_JOB_HOLDING    ? SCHED_SEAT_HOLDS
                  : job->state == GS_JOB_DROPPING ? SCHED_SEAT_STOPS
                                                  : SCHED_SEAT_NONE);
}

/* Whose turn was ended by another job's asks again at once. */
static bool has_rested(const struct sched_job *job, uint64_t now_ns) {
  return job->state == GS_JOB_BYPASSED ||
         (job->state == GS_JOB_IDLE && now_ns - job->since_ns >= SCHED_IDLE_NS);
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
  bool rested = has_rested(job, now_ns);
  job->since_ns = now_ns;
  if (state != GS_JOB_HOLDING && state != GS_JOB_DROPPING)
    policy_charge(job, now_ns);
  if (state == GS_JOB_WAITING || state == GS_JOB_HOLDING)
    policy_level(job, rested, now_ns);
  gpu->waiting_count += (state == GS_JOB_WAITING) - (job->state == GS_JOB_WAITING);
  gpu->holder_count += (state == GS_JOB_HOLDING) - (job->state == GS_JOB_HOLDING);
  turns_touch(gpu);
  enum gs_job_state before = job->state;
  gpu->active_count -= job->active;
  job->state = state;
  books_settle_fixed(job);
  policy_note_state(job, before, now_ns);
  job->asked_anew = true;
  job->active = job->grows = job->displaced = job->must_stop = job->steps = false;
  enter_list(job, now_ns);
  if (before == GS_JOB_HOLDING && state == GS_JOB_IDLE) /* it gives up its turn, and may ask again at once */
    policy_level(job, true, now_ns);
  books_claim(job);
  rooms_watch(job, now_ns);
}

void turns_set_active(struct sched_job *job, uint64_t now_ns) {
  job->active = true;
  job->ran_ns = now_ns;
  job->gpu->active_count++;
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

void turns_drop(struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  turns_set_state(job, GS_JOB_DROPPING, now_ns);
  change_add(change, job, SCHED_TELL_DROP_LOCK);
}

void turns_admit_running(struct sched_gpu *gpu, struct sched_job *job, uint64_t now_ns,
                         struct sched_change *change) {
  bool fits = books_may_join(job);
  turns_set_state(job, GS_JOB_HOLDING, now_ns); /* epoch 0: nobody has granted it */
  job->turns++;
  turns_set_active(job, now_ns);
  if (!fits) {
    turns_drop(job, now_ns, change);
  } else if (gpu->holder_count == 1) {
    gpu->turn_ns = now_ns;
    gpu->last_job = job->id;
  }
}

/* ---- the order of those that hold ---- */

/* Another member of its gang waits: this place is half of what the gang needs, and what has been submitted
 * here may be of use only once that one has submitted its part. */
static bool is_needed(const struct sched_job *holder) { return holder->gang && gang_waits(holder->gang); }

/* The worse rank; of equals, who has held for longer. But who is needed is better than all others that are
 * opportunistic, or not, like it. */
static bool is_worse(const struct sched_job *a, const struct sched_job *b) {
  bool late_a = a->terms.class == GS_CLASS_OPPORTUNISTIC, late_b = b->terms.class == GS_CLASS_OPPORTUNISTIC;
  if (a->rank_stays != b->rank_stays && late_a == late_b)
    return b->rank_stays;
  if (a->rank_user != b->rank_user)
    return a->rank_user > b->rank_user;
  if (a->rank != b->rank)
    return a->rank > b->rank;
  if (a->rank_held_ns != b->rank_held_ns)
    return a->rank_held_ns > b->rank_held_ns;
  return a->rank_tie < b->rank_tie;
}

static struct sched_job *job_of_rank(struct list *node) { return list_entry(node, struct sched_job, ranked); }

static bool node_is_worse(const struct list *a, const struct list *b) {
  return is_worse(list_entry(a, struct sched_job, ranked), list_entry(b, struct sched_job, ranked));
}

/* Sort gpu->ranked, the worst first. surplus: who is needed is the better for it, and of equals who was
 * granted first, who else is the worse. From one event to the next
 * little changes there, and a list that is sorted already costs no more than a look at each. */
static void rank_holders(struct sched_gpu *gpu, bool surplus, uint64_t now_ns) {
  list_each(node, &gpu->ranked) {
    struct sched_job *job = job_of_rank(node);
    job->rank_user = policy_user_rank(job, now_ns);
    job->rank = policy_rank(job, now_ns);
    job->rank_held_ns = sched_job_held_ns(job, now_ns);
    job->rank_stays = surplus && gpu->gang_count > 0 && is_needed(job);
    job->rank_tie = surplus ? UINT64_MAX - job->grant : job->grant;
  }
  list_sort(&gpu->ranked, node_is_worse);
}

/* ---- who must go because there is less for all ---- */

/* Those do not all fit. (The first one does in any case.) */
static bool is_surplus(const struct sched_gpu *gpu) {
  struct seats seats = seats_all(gpu);
  seats_take_all(&seats, gpu, SCHED_SEAT_HOLDS);
  return seats.taken > 1 && (seats.taken > seats.places || seats.taken_bytes > seats.bytes);
}

/* Those keep their seats who cannot stop, and the best ranks. */
void seats_displace_surplus(struct sched_gpu *gpu, uint64_t now_ns) {
  struct seats seats = seats_all(gpu);
  if (!is_surplus(gpu))
    return;
  rank_holders(gpu, true, now_ns);
  list_each_back(node, &gpu->ranked) {
    struct sched_job *job = job_of_rank(node);
    seats_displace(job, !seats_fit(&seats, job));
    if (!job->displaced)
      seats_take(&seats, job);
  }
}

/* ---- who makes way for whom ---- */

/* A hand-over that would not have to be: the drain, and the way to the card of what the waiter lacks there.
 */
static int64_t preemption_cost_ns(const struct sched_job *waiter) {
  const struct sched_gpu *gpu = waiter->gpu;
  uint64_t cost_ns = handover_cost_ns(gpu, less_u64(books_target_bytes(waiter), waiter->resident_bytes));
  return (int64_t)min_u64(add_u64(cost_ns, gpu->handover.last.drain_ns), SCHED_NEVER / 4 / PREEMPT_PART);
}

static int64_t saved_ns(const struct sched_gpu *gpu, uint64_t now_ns) {
  int64_t since_ns = (int64_t)(now_ns - gpu->preempt_saved_at_ns);
  int64_t saved_ns = gpu->preempt_saved_ns + since_ns / PREEMPT_PART;
  return saved_ns < SCHED_PREEMPT_SAVED_NS ? saved_ns : SCHED_PREEMPT_SAVED_NS;
}

void holders_charge_preemption(struct sched_job *holder, uint64_t now_ns) {
  struct sched_gpu *gpu = holder->gpu;
  gpu->preempt_saved_ns = saved_ns(gpu, now_ns) - holder->preempt_cost_ns;
  gpu->preempt_saved_at_ns = now_ns;
}

/* Also from one whose memory still comes to the card, and whatever it costs. */
static bool is_surrendered(const struct sched_job *holder, const struct sched_job *waiter) {
  return waiter->terms.class == GS_CLASS_PRODUCTION && holder->terms.class == GS_CLASS_OPPORTUNISTIC;
}

/* The event may be another GPU's: a gang's places are looked for on all of its GPUs. */
static void look_again_at(struct sched_gpu *gpu, uint64_t at_ns) {
  if (at_ns >= gpu->preempt_ns)
    return;
  gpu->preempt_ns = at_ns;
  turns_touch(gpu);
}

/* If not now, then maybe soon: gpu->preempt_ns. */
static bool is_preempted(struct sched_job *holder, const struct sched_job *waiter, uint64_t now_ns) {
  struct sched_gpu *gpu = holder->gpu;
  if (is_surrendered(holder, waiter)) {
    holder->preempt_cost_ns = 0;
    return true;
  }
  uint64_t from_ns = holder->active ? policy_preempts_ns(waiter, holder, now_ns) : SCHED_NEVER;
  if (from_ns > now_ns) {
    look_again_at(gpu, from_ns);
    return false;
  }
  int64_t cost_ns = preemption_cost_ns(waiter);
  int64_t lacks_ns =
      (cost_ns < SCHED_PREEMPT_SAVED_NS ? cost_ns : SCHED_PREEMPT_SAVED_NS) - saved_ns(gpu, now_ns);
  if (lacks_ns > 0)
    look_again_at(gpu, add_u64(now_ns, (uint64_t)lacks_ns * PREEMPT_PART));
  holder->preempt_cost_ns = cost_ns;
  return lacks_ns <= 0;
}

/* It was granted when its set's quantum was over, since a gang was owed a place: others than gangs leave it a
 * quantum of its own, or those who wait before the gang would interrupt each other at once, for ever. */
static bool has_own_quantum(const struct sched_job *holder, const struct sched_job *waiter, uint64_t now_ns) {
  return holder->owes && gang_is_alone(waiter) && now_ns - holder->since_ns < sched_gpu_tq_ns(holder->gpu);
}

/* It has made nothing of its grant for a quantum and the grace: its process may be stopped. Its rank stays
 * what it is as long as it does not run, so it would keep the GPU for ever. */
static bool never_ran(const struct sched_job *holder, uint64_t now_ns) {
  const struct sched_gpu *gpu = holder->gpu;
  uint64_t since_ns = max_u64(holder->since_ns, holder->restoring_ns);
  return !holder->active && now_ns - since_ns >= add_u64(gpu->scheduler->grace_ns, sched_gpu_tq_ns(gpu));
}

/* One whose gang is about to hold together stays for that. */
static bool makes_way(struct sched_job *holder, const struct sched_job *waiter, bool over, uint64_t now_ns) {
  if (gang_claims(holder))
    return false;
  if (gang_goes_first(waiter))
    return true;
  over = over && !has_own_quantum(holder, waiter, now_ns);
  return (over && (never_ran(holder, now_ns) || policy_precedes(waiter, holder, now_ns))) ||
         is_preempted(holder, waiter, now_ns);
}

/* ---- who comes ---- */

struct choice choice_begin(struct sched_gpu *gpu, bool over, uint64_t now_ns) {
  struct choice choice = {.gpu = gpu,
                          .seats = seats_all(gpu),
                          .over = over,
                          .some_may_go = over || policy_is_preemptive(gpu),
                          .now_ns = now_ns};
  seats_take_all(&choice.seats, gpu, SCHED_SEAT_HOLDS);
  /* Nobody knows when these will answer: who fits beside them can hold. */
  if (gpu->settings.mode != GS_MODE_ON)
    seats_take_all(&choice.seats, gpu, SCHED_SEAT_OVERDUE);
  return choice;
}

/* Displace holders until the waiter fits, of those that would make way for it the worst first; nobody if that
 * would not be enough. The last of them it needs in any case (choice_end): that one's stop is charged. If
 * nobody makes way for it at all, nobody does for those that come after it, where only ranks count. And if
 * many hold, those that come after it are not all asked for: it goes before them. */
static bool make_room(struct choice *choice, const struct sched_job *waiter) {
  struct sched_gpu *gpu = choice->gpu;
  struct seats trial = choice->seats;
  struct sched_job *charged = NULL;
  bool some = false;
  if (seats_fit(&trial, waiter))
    return true;
  if (!choice->ranked)
    rank_holders(gpu, false, choice->now_ns);
  choice->ranked = true;
  choice->looks += gpu->holder_count;
  list_each(node, &gpu->ranked) {
    struct sched_job *holder = job_of_rank(node);
    if (holder->displaced || !makes_way(holder, waiter, choice->over, choice->now_ns) ||
        seats_fit(&trial, waiter))
      continue;
    seats_displace(holder, true);
    holder->undecided = some = true;
    if (holder->preempt_cost_ns > 0) {
      if (charged)
        charged->preempt_cost_ns = 0; /* the waiter comes to the card once */
      charged = holder;
    }
    holder->on_trial = choice->trial;
    seats_give(&trial, holder);
  }
  bool enough = seats_fit(&trial, waiter);
  for (struct list *node = some ? gpu->ranked.next : &gpu->ranked; node != &gpu->ranked; node = node->next) {
    struct sched_job *holder = job_of_rank(node);
    seats_displace(holder, holder->displaced && (enough || !holder->undecided));
    holder->undecided = false;
  }
  if (enough)
    choice->seats = trial;
  else if (policy_goes_by_rank(gpu))
    choice->some_may_go = some;
  if (choice->looks > LOOKS_MOST)
    choice->some_may_go = false;
  return enough;
}

bool choice_seat(struct choice *choice, const struct sched_job *job) {
  bool some_may_go = choice->some_may_go || gang_goes_first(job);
  if (seats_fit(&choice->seats, job) || (some_may_go && make_room(choice, job))) {
    seats_take(&choice->seats, job);
    return true;
  }
  return false;
}

/* Why not for each waiter at once: those behind it would be looked at for the same seats again. */
void choice_end(struct choice *choice) {
  if (!choice->ranked) /* nobody has been asked */
    return;
  list_each_back(node, &choice->gpu->ranked) {
    struct sched_job *holder = job_of_rank(node);
    if (!holder->displaced || !seats_fit(&choice->seats, holder))
      continue;
    seats_displace(holder, false);
    seats_take(&choice->seats, holder);
  }
}

void choice_end_trial(const struct sched_gpu *gpu) {
  list_each(node, &gpu->holders) {
    struct sched_job *job = job_of_turn(node);
    seats_displace(job, job->displaced && !job->on_trial);
    job->on_trial = false;
  }
}

/* Found once for all gangs that ask for them. */
const struct sched_singles *holders_singles(struct sched_gpu *gpu) {
  struct sched_singles *singles = &gpu->singles;
  uint32_t place = 0;
  if (singles->changes == gpu->changes && singles->decisions == gpu->scheduler->decisions)
    return singles;
  singles->changes = gpu->changes;
  singles->decisions = gpu->scheduler->decisions;
  singles->count = 0;
  const struct list *queue = queue_of(gpu);
  list_each(node, queue) {
    struct sched_job *job = job_of_queue(node);
    if (place == SINGLES_LOOKAHEAD || singles->count == SCHED_LOOKAHEAD)
      break;
    if (gang_is_alone(job) && !sched_job_too_big(job) && !books_blocked(job) && !silence_bars(job)) {
      singles->jobs[singles->count] = job;
      singles->places[singles->count++] = place;
    }
    place++;
  }
  return singles;
}

/* After those of better rank, if it does not go first; other gangs could not be granted yet, or they would
 * have been. */
bool holders_would_make_way(const struct sched_job *job, bool over, uint64_t now_ns) {
  struct sched_gpu *gpu = job->gpu;
  struct choice choice = choice_begin(gpu, over, now_ns);
  const struct sched_singles *singles = holders_singles(gpu);
  uint32_t count = gang_goes_first(job) ? 0 : singles->count;
  choice.trial = true;
  for (uint32_t i = 0; i < count && queue_precedes(singles->jobs[i], job); i++)
    choice_seat(&choice, singles->jobs[i]);
  bool would = choice_seat(&choice, job);
  choice_end_trial(gpu);
  return would;
}
