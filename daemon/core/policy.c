/*
 * policy.c - who goes before whom.
 *
 * Each waiting job has a rank, or a place by the ranks of others (policy_place), which does not change while
 * it waits; the lowest goes first. A holder has, at any moment, the rank that it would have if it began to
 * wait now. When the quantum of a set of holders is over, those stay whose rank is better than that of the
 * jobs that would take their place.
 *
 *   rr        by the time of asking: who has held goes behind all who wait.
 *   fair      by GPU time had so far, over the weight (start-time fair queueing; the Linux CFS): who comes
 *             starts level with those that are there, which is where the one is that has had least; that
 *             never goes back; or with the one that has had least of those that have had a turn, a
 *             quantum further at most: so a stream of newcomers, each gone within its first turn, passes
 *             nobody for ever. Who gives up its turn, or has rested, is no further behind than a quantum of
 *             its own. Who asks again at once, as its turn was ended by another user's, is where it was. Who
 *             waits is no further ahead than three, however much room it has had that others could not use.
 *             So while one of weight v waits, each job of weight w has the GPU for 2 + 3 w/v quanta at most.
 *             First users share, by the weights of users, then each user's jobs what the user has: a user is
 *             charged, from a job's grant to the end of its answer, its part of the card's time, one of as
 *             many as hold or stop. Between users the same rules hold as between jobs: who comes starts
 *             level, who rests falls a quantum behind at most, who waits is three ahead at most, who is a
 *             quantum behind preempts.
 *             Who has had a turn does not make up with another one for less than half a quantum: it stays,
 *             or goes before one that waits, only if it is further behind. So equals keep their order.
 *   fifo      by arrival, to completion: who came earlier goes first whenever it wants to.
 *   srtf      by remaining GPU time: as declared or learnt; for a job about which nothing is known, or which
 *             has had more than was expected, as much again as it has had (Lindy's law). A second more of
 *             waiting weighs as much as 1/32 s less of remaining time, also in the first quantum of the
 *             turn that it leads to, so the longest job has its turn.
 *   priority  by level; a minute more of waiting weighs as much as one level, also in the first quantum of
 *             the turn that it leads to.
 *   pack      by arrival, to completion, as many beside each other as fit. Nobody is interrupted before it
 *             has held for a quantum and somebody has waited for 32, and 32 after the last time. Who has had
 *             to make way comes behind all others.
 *
 * Whatever the policy, opportunistic jobs come after all others: so they run only when no other job wants to,
 * and are interrupted as soon as one does.
 *
 * With fifo, srtf and priority, and with fair if it is behind by a quantum, a waiting job takes the place of
 * a holder even before the quantum is over: so who rests for a moment does not lose a turn by it. Such
 * hand-overs may take one part in 20 of the time, of which a second can be saved up (seats.c); but
 * production jobs interrupt opportunistic ones whatever that takes.
 */
#include "core/internal.h"

#define AGING_DIVISOR 32               /* srtf: what a second of waiting is worth */
#define LEVEL_NS UINT64_C(60000000000) /* priority: of waiting, for one level */
#define BEHIND_QUANTA 1                /* fair: who rests falls behind by no more */
#define AHEAD_QUANTA 3                 /* fair: who waits is ahead by no more */
#define BEGIN_LOOKAHEAD 2              /* fair: who comes looks past so many that are as new */
#define PATIENCE 32                    /* pack: quanta that somebody waits */
#define LATE (UINT64_C(1) << 63)       /* ranks of opportunistic jobs; others are below that */
struct policy {
  uint64_t (*rank)(const struct sched_job *job, uint64_t now_ns);
  uint64_t (*margin)(const struct sched_gpu *gpu); /* by which a waiter's rank must be better than a holder's
                                                      to preempt it; NULL: it never does */
};

static uint64_t by_asking(const struct sched_job *job, uint64_t now_ns) {
  (void)job;
  return now_ns;
}

static uint64_t by_arrival(const struct sched_job *job, uint64_t now_ns) {
  (void)now_ns;
  return job->arrival;
}

static uint64_t weighted_by(uint32_t weight, uint64_t gpu_ns) {
  return gpu_ns / weight * SCHED_WEIGHT + gpu_ns % weight * SCHED_WEIGHT / weight;
}

static uint64_t weighted_ns(const struct sched_job *job, uint64_t gpu_ns) {
  return weighted_by(job->terms.weight, gpu_ns);
}

/* While no turns are taken, all run, and the card itself shares out its time. */
static uint64_t charged_ns(const struct sched_job *job, uint64_t now_ns) {
  const struct sched_gpu *gpu = job->gpu;
  return job->ran_ns && gpu->serialized ? now_ns - max_u64(job->ran_ns, gpu->serialized_ns) : 0;
}

static uint64_t by_share(const struct sched_job *job, uint64_t now_ns) {
  return add_u64(job->virtual_ns, weighted_ns(job, charged_ns(job, now_ns)));
}

static uint64_t by_rest(const struct sched_job *job, uint64_t now_ns) {
  return add_u64(sched_job_remaining_ns(job, now_ns), (now_ns - job->credit_ns) / AGING_DIVISOR);
}

static uint64_t by_level(const struct sched_job *job, uint64_t now_ns) {
  return add_u64(now_ns - job->credit_ns, (uint64_t)(SCHED_PRIORITY_MAX - job->terms.priority) * LEVEL_NS);
}

/* Who is level with a holder does not preempt it, or equals would each other, at one instant, for ever. */
static uint64_t any_margin(const struct sched_gpu *gpu) {
  (void)gpu;
  return 1;
}

static uint64_t level_margin(const struct sched_gpu *gpu) {
  (void)gpu;
  return LEVEL_NS;
}

static const struct policy policies[] = {
    [GS_POLICY_RR] = {by_asking, NULL},
    [GS_POLICY_FAIR] = {by_share, sched_gpu_tq_ns},
    [GS_POLICY_FIFO] = {by_arrival, any_margin},
    [GS_POLICY_SRTF] = {by_rest, any_margin},
    [GS_POLICY_PRIORITY] = {by_level, level_margin},
    [GS_POLICY_PACK] = {by_arrival, NULL},
};

/* ---- the queue ---- */

bool queue_precedes(const struct sched_job *a, const struct sched_job *b) {
  const struct sched_account *of_a = a->account, *of_b = b->account;
  if (gang_claims(a) != gang_claims(b)) /* one gang at most claims a GPU, and has one member there */
    return gang_claims(a);
  if (of_a->queue_key != of_b->queue_key)
    return of_a->queue_key < of_b->queue_key;
  if (of_a->queue_number != of_b->queue_number)
    return of_a->queue_number < of_b->queue_number;
  if (a->queue_key != b->queue_key)
    return a->queue_key < b->queue_key;
  return a->queue_number < b->queue_number;
}

static bool node_precedes(const struct list *a, const struct list *b) {
  return queue_precedes(job_of_queue(a), job_of_queue(b));
}

static void number(struct sched_job *job, uint64_t key) {
  job->queue_key = key;
  job->queue_number = ++job->gpu->queued;
}

const struct list *queue_of(const struct sched_gpu *gpu) {
  struct sched_gpu *sorted =
      (struct sched_gpu *)(uintptr_t)gpu; /* the same queue, as those who look expect it */
  if (gpu->queue_unsorted)
    list_sort(&sorted->queue, node_precedes);
  sorted->queue_unsorted = false;
  return &gpu->queue;
}

void queue_insert(struct sched_job *job, uint64_t key) {
  struct list *queue = &job->gpu->queue, *before = queue->previous;
  number(job, key);
  while (!job->gpu->queue_unsorted && before != queue && node_precedes(&job->waiting, before))
    before = before->previous;
  list_append(before->next, &job->waiting); /* which puts it before that */
}

/* ---- what users have had ---- */

/* What each seat has had, of opportunistic jobs or others. */
static uint64_t card_ns(const struct sched_gpu *gpu, bool late, uint64_t now_ns) {
  uint64_t since_ns = gpu->serialized ? now_ns - max_u64(gpu->card_at_ns, gpu->serialized_ns) : 0;
  return gpu->card_ns[late] + (gpu->card_seats[late] ? since_ns / gpu->card_seats[late] : 0);
}

static uint64_t user_ns(const struct sched_account *account, uint64_t now_ns) {
  uint64_t each_ns = card_ns(account->share->gpu, account->late, now_ns) - account->card_ns;
  return add_u64(account->user_ns,
                 account->seats ? weighted_by(account->share->weight, account->seats * each_ns) : 0);
}

static uint64_t user_quantum_ns(const struct sched_account *account) {
  return weighted_by(account->share->weight, sched_gpu_tq_ns(account->share->gpu));
}

static bool is_common(const struct sched_account *account) {
  return account->share == &account->share->gpu->common;
}

static void charge_user(struct sched_account *account, uint64_t now_ns) {
  account->user_ns = user_ns(account, now_ns);
  account->card_ns = card_ns(account->share->gpu, account->late, now_ns);
}

static void advance_card(struct sched_gpu *gpu, uint64_t now_ns) {
  for (int late = 0; late < 2; late++)
    gpu->card_ns[late] = card_ns(gpu, late, now_ns);
  gpu->card_at_ns = now_ns;
}

void policy_charge_seats(struct sched_gpu *gpu, uint64_t now_ns) {
  advance_card(gpu, now_ns);
  list_each(node, &gpu->seated) { charge_user(list_entry(node, struct sched_account, seated), now_ns); }
}

/* Where its jobs are in the queue: by what the user has had. Users that are level keep their order, but that
 * is looked at only when one of them is charged. */
static void sort_user(struct sched_account *account, uint64_t now_ns) {
  if (is_common(account))
    return;
  struct sched_gpu *gpu = account->share->gpu;
  uint64_t rank = min_u64(max_u64(user_ns(account, now_ns), 1), LATE - 1) | (account->late ? LATE : 0);
  gpu->changes++;
  if (rank == account->queue_key)
    return;
  account->queue_key = rank;
  account->queue_number = ++gpu->queued;
  gpu->queue_unsorted = true;
}

void policy_sort_users(struct sched_gpu *gpu, uint64_t now_ns) {
  list_each(node, &gpu->seated) { sort_user(list_entry(node, struct sched_account, seated), now_ns); }
}

static bool has_seat(enum gs_job_state state) { return state == GS_JOB_HOLDING || state == GS_JOB_DROPPING; }

static void add_seats(struct sched_account *account, int more, uint64_t now_ns) {
  struct sched_gpu *gpu = account->share->gpu;
  advance_card(gpu, now_ns);
  charge_user(account, now_ns);
  account->seats += (uint32_t)more;
  gpu->card_seats[account->late] += (uint32_t)more;
  if (more < 0 && gpu->serialized) {
    account->begun = true;
    gpu->user_ended_ns[account->late] = max_u64(gpu->user_ended_ns[account->late], account->user_ns);
  }
  if (account->seats == 0)
    list_remove(&account->seated);
  else if (list_empty(&account->seated))
    list_append(&gpu->seated, &account->seated);
  sort_user(account, now_ns);
}

static void forget_level(struct sched_job *job) { job->account->level.at_ns = 0; }

void policy_enter(struct sched_job *job, uint64_t now_ns) {
  struct sched_gpu *gpu = job->gpu;
  bool late = job->terms.class == GS_CLASS_OPPORTUNISTIC;
  bool fair = gpu->settings.policy == GS_POLICY_FAIR;
  job->account = &(fair && job->share ? job->share : &gpu->common)->accounts[late];
  if (has_seat(job->state))
    add_seats(job->account, 1, now_ns);
  if (job->state == GS_JOB_HOLDING)
    list_append(&job->account->holders, &job->account_link);
  forget_level(job);
}

void policy_leave(struct sched_job *job, uint64_t now_ns) {
  if (has_seat(job->state))
    add_seats(job->account, -1, now_ns);
  list_remove(&job->account_link);
  forget_level(job);
}

void account_init(struct sched_share *share, struct sched_gpu *gpu) {
  share->gpu = gpu;
  list_init(&share->link);
  list_init(&share->shunned_link);
  for (int late = 0; late < 2; late++) {
    struct sched_account *account = &share->accounts[late];
    *account = (struct sched_account){.share = share, .late = late};
    account->queue_key = late ? LATE : 1;
    account->queue_number = ++gpu->queued;
    list_init(&account->holders);
    list_init(&account->seated);
  }
}

/* ---- ranks ---- */

static const struct policy *policy_of(const struct sched_job *job) {
  return &policies[job->gpu->settings.policy];
}

static bool is_late(const struct sched_job *job) { return job->terms.class == GS_CLASS_OPPORTUNISTIC; }

uint64_t policy_rank(const struct sched_job *job, uint64_t now_ns) {
  return max_u64(policy_of(job)->rank(job, now_ns), 1);
}

/* By so much a rank may be better and not go first: fair hands out whole quanta, so after another one the job
 * would be further ahead than it is behind now. */
static uint64_t leap(const struct sched_job *job) {
  const struct sched_gpu *gpu = job->gpu;
  return gpu->settings.policy == GS_POLICY_FAIR ? weighted_ns(job, sched_gpu_tq_ns(gpu) / 2) : 0;
}

static bool of_two_users(const struct sched_job *a, const struct sched_job *b) {
  return a->account->share != b->account->share;
}

bool policy_precedes(const struct sched_job *waiter, const struct sched_job *holder, uint64_t now_ns) {
  const struct sched_gpu *gpu = waiter->gpu;
  if (is_late(waiter) != is_late(holder))
    return is_late(holder);
  if (gpu->settings.policy == GS_POLICY_PACK)
    return (now_ns - max_u64(waiter->since_ns, gpu->made_way_ns)) / PATIENCE >= sched_gpu_tq_ns(gpu);
  if (of_two_users(waiter, holder))
    return user_ns(waiter->account, now_ns) <=
           add_u64(user_ns(holder->account, now_ns), user_quantum_ns(holder->account) / 2);
  return waiter->queue_key <= add_u64(policy_rank(holder, now_ns), leap(holder));
}

bool policy_goes_by_rank(const struct sched_gpu *gpu) { return gpu->settings.policy != GS_POLICY_PACK; }

/* When what the holder's user has had will be more than what the waiter's has, by the margin. */
static uint64_t user_worse_ns(const struct sched_job *holder, const struct sched_job *waiter, uint64_t margin,
                              uint64_t now_ns) {
  const struct sched_account *ahead = holder->account, *behind = waiter->account;
  uint64_t lacks = less_u64(add_u64(user_ns(behind, now_ns), margin), user_ns(ahead, now_ns));
  double growth = (double)ahead->seats / ahead->share->weight - (double)behind->seats / behind->share->weight;
  if (lacks == 0)
    return now_ns;
  if (growth <= 0)
    return SCHED_NEVER;
  double takes_ns = (double)lacks / SCHED_WEIGHT / growth * max_u64(holder->gpu->card_seats[ahead->late], 1);
  return takes_ns < 1e18 ? add_u64(now_ns, (uint64_t)takes_ns + 1) : SCHED_NEVER;
}

/* How long the holder, which runs, takes for its rank to grow by so much. */
static uint64_t growth_ns(const struct sched_job *holder, uint64_t rank) {
  switch (holder->gpu->settings.policy) {
  case GS_POLICY_FAIR:
    return min_u64(rank, SCHED_NEVER / SCHED_WEIGHT_MAX / 2) * holder->terms.weight / SCHED_WEIGHT + 1;
  case GS_POLICY_PRIORITY:
    return rank;
  default:
    return SCHED_NEVER;
  }
}

/* When the rank of the holder, which runs, will be worse than the waiter's by the margin. */
static uint64_t worse_ns(const struct sched_job *holder, const struct sched_job *waiter, uint64_t margin,
                         uint64_t now_ns) {
  if (is_late(waiter) != is_late(holder))
    return is_late(holder) ? now_ns : SCHED_NEVER;
  if (of_two_users(waiter, holder))
    return user_worse_ns(holder, waiter, margin, now_ns);
  uint64_t lacks = less_u64(add_u64(waiter->queue_key, margin), policy_rank(holder, now_ns));
  return lacks ? add_u64(now_ns, growth_ns(holder, lacks)) : now_ns;
}

uint64_t policy_preempts_ns(const struct sched_job *waiter, const struct sched_job *holder, uint64_t now_ns) {
  const struct policy *policy = policy_of(waiter);
  if (!policy->margin && is_late(waiter) == is_late(holder))
    return SCHED_NEVER;
  return worse_ns(holder, waiter, policy->margin ? policy->margin(waiter->gpu) : 0, now_ns);
}

uint64_t policy_outranks_ns(const struct sched_job *waiter, const struct sched_job *holder, uint64_t now_ns) {
  return worse_ns(holder, waiter, 0, now_ns);
}

bool policy_is_preemptive(const struct sched_gpu *gpu) {
  return policies[gpu->settings.policy].margin || gpu->class_counts[GS_CLASS_OPPORTUNISTIC] > 0;
}

void policy_charge(struct sched_job *job, uint64_t now_ns) {
  uint64_t *ended_ns = &job->account->ended_ns, had_ns = charged_ns(job, now_ns);
  job->virtual_ns = add_u64(job->virtual_ns, weighted_ns(job, had_ns));
  if (had_ns > 0)
    *ended_ns = max_u64(*ended_ns, job->virtual_ns);
  job->gpu_ns = sched_job_gpu_ns(job, now_ns);
  job->ran_ns = 0;
}

void policy_charge_so_far(struct sched_job *job, uint64_t now_ns) {
  if (job->ran_ns == 0)
    return;
  policy_charge(job, now_ns);
  forget_level(job);
  job->ran_ns = now_ns;
}

void policy_make_way(struct sched_job *holder, uint64_t now_ns) {
  struct sched_gpu *gpu = holder->gpu;
  if (gpu->settings.policy != GS_POLICY_PACK)
    return;
  holder->arrival = ++gpu->arrivals;
  gpu->made_way_ns = now_ns;
}

/* It has its turn when it is the first. Who has not must not keep the others' level where it is. */
static bool counts(const struct sched_job *waiter) {
  const struct sched_gpu *gpu = waiter->gpu;
  bool yields = is_late(waiter) && gpu->class_counts[GS_CLASS_OPPORTUNISTIC] < gpu->job_count;
  return !yields && gang_is_alone(waiter) && books_may_hold(waiter);
}

static void add_to_level(struct sched_level *level, const struct sched_job *holder, uint64_t now_ns) {
  level->least_ns = min_u64(level->least_ns, by_share(holder, now_ns));
  level->weight = holder->terms.weight > level->weight ? holder->terms.weight : level->weight;
}

/* Looked for once, however many are granted at a time. */
static const struct sched_level *holders_level(struct sched_account *account, uint64_t now_ns) {
  if (account->level.at_ns != now_ns) {
    account->level = (struct sched_level){.at_ns = now_ns, .least_ns = UINT64_MAX};
    list_each(node, &account->holders) {
      add_to_level(&account->level, list_entry(node, struct sched_job, account_link), now_ns);
    }
  }
  return &account->level;
}

void policy_note_state(struct sched_job *job, enum gs_job_state before, uint64_t now_ns) {
  if (has_seat(job->state) != has_seat(before))
    add_seats(job->account, has_seat(job->state) ? 1 : -1, now_ns);
  if (before == GS_JOB_HOLDING) {
    list_remove(&job->account_link);
    forget_level(job);
  }
  if (job->state != GS_JOB_HOLDING)
    return;
  list_append(&job->account->holders, &job->account_link);
  if (job->account->level.at_ns == now_ns)
    add_to_level(&job->account->level, job, now_ns);
}

/* From the first job of the account on; NULL: nobody of it waits. */
static const struct list *first_of(const struct sched_account *account) {
  const struct list *queue = queue_of(account->share->gpu);
  list_each(node, queue) {
    if (job_of_queue(node)->account == account && !gang_claims(job_of_queue(node)))
      return node;
  }
  return queue;
}

/* From the first of those on that may count with the jobs of the account. */
static const struct list *first_beside(const struct sched_account *account) {
  return is_common(account) ? queue_of(account->share->gpu)->next : first_of(account);
}

/* Where those of the account are that hold or wait: the one that has had least. */
static uint64_t level_ns(struct sched_account *account, uint64_t now_ns) {
  uint64_t least_ns = holders_level(account, now_ns)->least_ns;
  unsigned looked_at = 0;
  const struct list *end = &account->share->gpu->queue;
  for (const struct list *node = first_beside(account); node != end; node = node->next) {
    const struct sched_job *waiter = job_of_queue(node);
    if (looked_at++ == SCHED_LOOKAHEAD)
      break;
    if (!counts(waiter))
      continue;
    if (waiter->account == account)
      least_ns = min_u64(least_ns, waiter->virtual_ns);
    break; /* of those that count the first has had least, or those that have had less are level with it */
  }
  if (least_ns != UINT64_MAX)
    account->virtual_ns = max_u64(account->virtual_ns, least_ns);
  return account->virtual_ns;
}

static uint64_t quantum_ns(const struct sched_job *job) {
  return weighted_ns(job, sched_gpu_tq_ns(job->gpu));
}

static uint64_t most_ns(const struct sched_job *job) {
  return add_u64(job->account->virtual_ns, AHEAD_QUANTA * quantum_ns(job));
}

/* By what it is sorted, as far as that is `fair`'s. */
static uint64_t placed_ns(const struct sched_job *waiter) {
  return max_u64(waiter->virtual_ns, min_u64(waiter->queue_key, add_u64(waiter->virtual_ns, leap(waiter))));
}

/* Its own, or of a holder of its user's. */
static uint64_t shortest_quantum_ns(const struct sched_job *job, uint64_t now_ns) {
  uint32_t weight = job->terms.weight;
  for (int late = 0; late < 2; late++) {
    const struct sched_level *level = holders_level(&job->account->share->accounts[late], now_ns);
    weight = level->weight > weight ? level->weight : weight;
  }
  return weighted_by(weight, sched_gpu_tq_ns(job->gpu));
}

/* Where newcomers begin: where the first one is that waits and has had a turn; or, if the first ones are new,
 * where a turn has ended (self-clocked fair queueing: Golestani, 1994). No further than a quantum: its own,
 * or a holder's. */
static uint64_t begin_ns(const struct sched_job *job, uint64_t here_ns, uint64_t now_ns) {
  const struct sched_account *account = job->account;
  uint64_t begin_ns = here_ns;
  unsigned looked_at = 0;
  const struct list *node = account->late ? first_of(account) : first_beside(account);
  for (; node != &account->share->gpu->queue; node = node->next) {
    const struct sched_job *waiter = job_of_queue(node);
    bool begun = waiter->turns && waiter->account == account && books_may_hold(waiter);
    if (!begun && looked_at++ < BEGIN_LOOKAHEAD)
      continue;
    begin_ns = begun ? placed_ns(waiter) : account->ended_ns;
    break;
  }
  return max_u64(min_u64(begin_ns, add_u64(here_ns, shortest_quantum_ns(job, now_ns))), here_ns);
}

/* ---- the same of users ---- */

/* Where those users are that hold or wait: the one that has had least. */
static uint64_t users_level_ns(struct sched_gpu *gpu, bool late, uint64_t now_ns) {
  uint64_t least_ns = UINT64_MAX;
  unsigned looked_at = 0;
  list_each(node, &gpu->seated) {
    const struct sched_account *account = list_entry(node, struct sched_account, seated);
    if (account->late == late && !is_common(account))
      least_ns = min_u64(least_ns, user_ns(account, now_ns));
  }
  const struct list *queue = queue_of(gpu);
  list_each(node, queue) {
    const struct sched_job *waiter = job_of_queue(node);
    if (looked_at++ == SCHED_LOOKAHEAD)
      break;
    if (!counts(waiter))
      continue;
    if (waiter->account->late == late && !is_common(waiter->account))
      least_ns = min_u64(least_ns, user_ns(waiter->account, now_ns));
    break;
  }
  if (least_ns != UINT64_MAX)
    gpu->user_ns[late] = max_u64(gpu->user_ns[late], least_ns);
  return gpu->user_ns[late];
}

/* As jobs do (begin_ns). */
static uint64_t users_begin_ns(const struct sched_account *account, uint64_t here_ns, uint64_t now_ns) {
  const struct sched_gpu *gpu = account->share->gpu;
  uint64_t begin_ns = here_ns;
  unsigned looked_at = 0;
  const struct list *queue = queue_of(gpu);
  list_each(node, queue) {
    const struct sched_account *other = job_of_queue(node)->account;
    bool begun = other->begun && other->late == account->late && books_may_hold(job_of_queue(node));
    if (!begun && looked_at++ < BEGIN_LOOKAHEAD)
      continue;
    begin_ns = begun ? user_ns(other, now_ns) : gpu->user_ended_ns[account->late];
    break;
  }
  return max_u64(min_u64(begin_ns, add_u64(here_ns, user_quantum_ns(account))), here_ns);
}

static void level_user(struct sched_account *account, uint64_t now_ns) {
  if (is_common(account))
    return;
  uint64_t here_ns = users_level_ns(account->share->gpu, account->late, now_ns);
  uint64_t quantum_ns = user_quantum_ns(account);
  uint64_t least_ns = less_u64(here_ns, account->begun ? BEHIND_QUANTA * quantum_ns : 0);
  uint64_t most_ns = add_u64(here_ns, AHEAD_QUANTA * quantum_ns);
  advance_card(account->share->gpu, now_ns);
  charge_user(account, now_ns);
  if (account->user_ns == 0) /* it has just come: who is there already is not to make way for that */
    account->user_ns = users_begin_ns(account, here_ns, now_ns) + 1;
  else
    account->user_ns = min_u64(max_u64(account->user_ns, least_ns), most_ns);
  sort_user(account, now_ns);
}

/* ---- jobs and their users ---- */

void policy_level(struct sched_job *job, bool rested, uint64_t now_ns) {
  level_user(job->account, now_ns);
  uint64_t here_ns = level_ns(job->account, now_ns);
  uint64_t behind_ns = rested ? BEHIND_QUANTA * quantum_ns(job) : UINT64_MAX;
  uint64_t least_ns = less_u64(here_ns, job->turns ? behind_ns : 0);
  if (job->virtual_ns == 0) /* it has just come */
    job->virtual_ns = max_u64(begin_ns(job, here_ns, now_ns), 1);
  else
    job->virtual_ns = min_u64(max_u64(job->virtual_ns, least_ns), most_ns(job));
}

uint64_t policy_user_rank(const struct sched_job *job, uint64_t now_ns) {
  const struct sched_account *account = job->account;
  uint64_t rank = is_common(account) ? 1 : min_u64(max_u64(user_ns(account, now_ns), 1), LATE - 1);
  return account->late ? rank | LATE : rank;
}

uint64_t policy_place(const struct sched_job *job, uint64_t now_ns) {
  uint64_t rank = policy_rank(job, now_ns);
  uint64_t span = min_u64(leap(job), less_u64(most_ns(job), job->virtual_ns));
  if (span == 0 || job->turns == 0)
    return rank;
  uint64_t place = rank;
  for (const struct list *node = first_of(job->account); node != &job->gpu->queue; node = node->next) {
    const struct sched_job *other = job_of_queue(node);
    if (other->account != job->account || other->queue_key > add_u64(rank, span))
      break;
    place = max_u64(place, other->queue_key);
  }
  return place;
}

void policy_rerank(struct sched_job *job) {
  if (job->state != GS_JOB_WAITING)
    return;
  list_remove(&job->waiting);
  queue_insert(job, policy_rank(job, job->since_ns));
  job->gpu->changes++;
}

void policy_set(struct sched_gpu *gpu, enum gs_policy policy, uint64_t now_ns) {
  bool other = (policy == GS_POLICY_FAIR) != (gpu->settings.policy == GS_POLICY_FAIR);
  gpu->settings.policy = policy;
  list_each(node, &gpu->jobs) {
    struct sched_job *job = job_of(node);
    if (other) {
      policy_leave(job, now_ns);
      policy_enter(job, now_ns);
    }
    if (job->state == GS_JOB_WAITING)
      number(job, policy_rank(job, job->since_ns));
  }
  gpu->queue_unsorted = true;
}
