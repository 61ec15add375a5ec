/*
 * holders.c - who holds together while turns are taken: those whose memory fits beside each other, in the
 * order of their ranks.
 *
 * In mode `on` that is one job. Otherwise whoever waits and fits beside the holders joins them, the best rank
 * first, until the quantum of the set ends; who fits nowhere is passed over meanwhile. At the end of the
 * quantum, or when a policy preempts, each waiting job in turn may put holders in whose place it comes before
 * out of theirs, the worst rank first, no more of them than it must. What a job with leave to come needs is
 * kept for it until those that must stop have done so.
 *
 * Counted is what each needs on the card, with what it is expected to allocate again, beside what never
 * leaves it: pinned memory, and what stays for want of host memory (memory_plan.c).
 */
#include "core/internal.h"

#define PREEMPT_PART 20                         /* one part in so many of the time may go into preemptions */
#define SINGLES_LOOKAHEAD (4 * SCHED_LOOKAHEAD) /* in a queue that is full of gangs */
#define LOOKS_MOST 4096u                        /* at holders in one choice: 64 that wait, and 64 that hold */

/* ---- seats ---- */

/* What a set of holders may have, and has. Who is alone in it may hold in any case. */
struct seats {
  uint64_t bytes, taken_bytes;
  uint32_t places, taken;
};

static struct seats all_seats(const struct sched_gpu *gpu) {
  uint64_t stuck_bytes = gpu->pinned_bytes + gpu->staying_bytes;
  return (struct seats){.places = gpu->settings.mode == GS_MODE_ON ? 1 : UINT32_MAX,
                        .bytes = less_u64(sched_gpu_usable_bytes(gpu), stuck_bytes)};
}

void holders_count_need(struct sched_job *job) {
  uint64_t bytes = max_u64(sched_job_expected_bytes(job), job->grows ? job->reach_bytes : 0);
  struct sched_seats *seats = &job->gpu->seats[job->seat];
  seats->bytes -= job->need_bytes;
  job->need_bytes = less_u64(bytes, job->pinned_bytes + job->staying_bytes) + job->extra_bytes;
  seats->bytes += job->need_bytes;
}

static bool fits(const struct seats *seats, const struct sched_job *job) {
  return seats->taken == 0 ||
         (seats->taken < seats->places && seats->taken_bytes + job->need_bytes <= seats->bytes);
}

static void take(struct seats *seats, const struct sched_job *job) {
  seats->taken_bytes += job->need_bytes;
  seats->taken++;
}

static void give(struct seats *seats, const struct sched_job *job) {
  seats->taken_bytes -= job->need_bytes;
  seats->taken--;
}

static void take_all(struct seats *seats, const struct sched_gpu *gpu, enum sched_seat which) {
  seats->taken_bytes += gpu->seats[which].bytes;
  seats->taken += gpu->seats[which].count;
}

void holders_seat(struct sched_job *job, enum sched_seat seat) {
  struct sched_seats *left = &job->gpu->seats[job->seat], *taken = &job->gpu->seats[seat];
  left->bytes -= job->need_bytes;
  left->count--;
  job->seat = seat;
  taken->bytes += job->need_bytes;
  taken->count++;
}

static void set_displaced(struct sched_job *holder, bool displaced) {
  if (holder->displaced != displaced)
    holders_seat(holder, displaced ? SCHED_SEAT_DISPLACED : SCHED_SEAT_HOLDS);
  holder->displaced = displaced;
}

bool holders_fit(const struct sched_job *job) {
  const struct sched_gpu *gpu = job->gpu;
  struct seats seats = all_seats(gpu);
  take_all(&seats, gpu, SCHED_SEAT_HOLDS);
  take_all(&seats, gpu, SCHED_SEAT_STOPS);
  take_all(&seats, gpu, SCHED_SEAT_OVERDUE);
  return fits(&seats, job);
}

bool holders_may_have(const struct sched_job *job) {
  struct seats seats = all_seats(job->gpu);
  take_all(&seats, job->gpu, SCHED_SEAT_OVERDUE);
  return !sched_job_too_big(job) && !books_blocked(job) && !silence_bars(job) && fits(&seats, job);
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
  struct seats seats = all_seats(gpu);
  take_all(&seats, gpu, SCHED_SEAT_HOLDS);
  return seats.taken > 1 && (seats.taken > seats.places || seats.taken_bytes > seats.bytes);
}

/* Those keep their seats who cannot stop, and the best ranks. */
static void displace_surplus(struct sched_gpu *gpu, uint64_t now_ns) {
  struct seats seats = all_seats(gpu);
  if (!is_surplus(gpu))
    return;
  rank_holders(gpu, true, now_ns);
  list_each_back(node, &gpu->ranked) {
    struct sched_job *job = job_of_rank(node);
    set_displaced(job, !fits(&seats, job));
    if (!job->displaced)
      take(&seats, job);
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

/* A choice under way. */
struct choice {
  struct sched_gpu *gpu;
  struct seats seats;
  bool over;
  bool some_may_go; /* holders may be displaced for those that come next */
  bool foreseen;    /* of what may happen later */
  bool trial;       /* nobody is really displaced */
  bool ranked;      /* the holders are */
  uint32_t looks;   /* at holders, so far */
  uint64_t now_ns;
};

static struct choice begin_choice(struct sched_gpu *gpu, bool over, uint64_t now_ns) {
  struct choice choice = {.gpu = gpu,
                          .seats = all_seats(gpu),
                          .over = over,
                          .some_may_go = over || policy_is_preemptive(gpu),
                          .now_ns = now_ns};
  take_all(&choice.seats, gpu, SCHED_SEAT_HOLDS);
  /* Nobody knows when these will answer: who fits beside them can hold. */
  if (gpu->settings.mode != GS_MODE_ON)
    take_all(&choice.seats, gpu, SCHED_SEAT_OVERDUE);
  return choice;
}

/* Displace as many holders as the waiter needs, of those that would make way for it the worst first; nobody
 * if that would not be enough. If nobody makes way for it at all, nobody does for those that come after it,
 * where only ranks count. And if many hold, those that come after it are not all asked for: it goes before
 * them. */
static bool make_room(struct choice *choice, const struct sched_job *waiter) {
  struct sched_gpu *gpu = choice->gpu;
  struct seats trial = choice->seats;
  bool some = false, paid = false;
  if (fits(&trial, waiter))
    return true;
  if (!choice->ranked)
    rank_holders(gpu, false, choice->now_ns);
  choice->ranked = true;
  choice->looks += gpu->holder_count;
  list_each(node, &gpu->ranked) {
    struct sched_job *holder = job_of_rank(node);
    if (holder->displaced || !makes_way(holder, waiter, choice->over, choice->now_ns) || fits(&trial, waiter))
      continue;
    set_displaced(holder, true);
    holder->undecided = some = true;
    holder->preempt_cost_ns = paid ? 0 : holder->preempt_cost_ns; /* the waiter comes to the card once */
    paid |= holder->preempt_cost_ns > 0;
    holder->on_trial = choice->trial;
    give(&trial, holder);
  }
  bool enough = fits(&trial, waiter);
  for (struct list *node = some ? gpu->ranked.next : &gpu->ranked; node != &gpu->ranked; node = node->next) {
    struct sched_job *holder = job_of_rank(node);
    set_displaced(holder, holder->displaced && (enough || !holder->undecided));
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

static bool find_seat(struct choice *choice, const struct sched_job *job) {
  bool some_may_go = choice->some_may_go || gang_goes_first(job);
  if (fits(&choice->seats, job) || (some_may_go && make_room(choice, job))) {
    take(&choice->seats, job);
    return true;
  }
  return false;
}

static void end_trial(const struct sched_gpu *gpu) {
  list_each(node, &gpu->holders) {
    struct sched_job *job = job_of_turn(node);
    set_displaced(job, job->displaced && !job->on_trial);
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
  struct choice choice = begin_choice(gpu, over, now_ns);
  const struct sched_singles *singles = holders_singles(gpu);
  uint32_t count = gang_goes_first(job) ? 0 : singles->count;
  choice.trial = true;
  for (uint32_t i = 0; i < count && queue_precedes(singles->jobs[i], job); i++)
    find_seat(&choice, singles->jobs[i]);
  bool would = find_seat(&choice, job);
  end_trial(gpu);
  return would;
}

/* Whether a gang will get its seats, nobody knows; who would have to stop for it is prepared for that. */
static void foresee_gang(const struct choice *choice, const struct sched_job *job) {
  struct choice trial = *choice;
  trial.trial = true;
  find_seat(&trial, job);
  list_each(node, &choice->gpu->holders) { job_of_turn(node)->goes |= job_of_turn(node)->on_trial; }
  end_trial(choice->gpu);
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
    return find_seat(choice, job);
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
  return !fits(&seats, job);
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
  if (gang_is_alone(job) ? find_seat(choice, job) : find_seat_in_gang(choice, job))
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
}

static void forget(struct list *jobs) {
  while (!list_empty(jobs))
    list_remove(list_first(jobs));
}

static void keep_all(const struct sched_gpu *gpu) {
  list_each(node, &gpu->holders) {
    set_displaced(job_of_turn(node), false);
    job_of_turn(node)->preempt_cost_ns = 0;
  }
}

void holders_choose(struct sched_gpu *gpu, bool over, uint64_t now_ns) {
  forget(&gpu->next);
  forget(&gpu->later);
  keep_all(gpu);
  gpu->contended = gpu->owed = false;
  gpu->preempt_ns = SCHED_NEVER;
  policy_sort_users(gpu, now_ns);
  displace_surplus(gpu, now_ns);
  struct choice choice = begin_choice(gpu, over, now_ns);
  choose(&choice, &gpu->next);
}

void holders_foresee(struct sched_gpu *gpu, bool next, uint64_t now_ns) {
  uint64_t end_ns = max_u64(turns_quantum_end_ns(gpu), now_ns); /* while a place is owed it has passed */
  uint64_t preempt_ns = gpu->preempt_ns;
  struct choice choice = begin_choice(gpu, true, end_ns);
  policy_sort_users(gpu, end_ns);
  choice.foreseen = true;
  list_each(node, &gpu->holders) { job_of_turn(node)->goes = false; }
  choose(&choice, &gpu->later);
  list_each(node, &gpu->holders) { job_of_turn(node)->goes |= job_of_turn(node)->displaced; }
  gpu->preempt_ns = preempt_ns;
  keep_all(gpu);
  policy_sort_users(gpu, now_ns); /* nobody has had that yet */
  if (!next)
    forget(&gpu->later);
}
