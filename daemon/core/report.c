/*
 * report.c - what is told of the decisions: what a job waits for, what hand-overs cost, what jobs have had,
 * and the record of those that must be told something. Nothing here decides anything.
 */
#include <math.h>

#include "core/internal.h"

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

static struct sched_reason of_waiter(const struct sched_job *job, uint64_t now_ns) {
  const struct sched_gpu *gpu = job->gpu;
  if (gang_paused(job->gang))
    return because(GS_REASON_PAUSED, gang_paused(job->gang), SCHED_NEVER);
  const struct sched_job *silent = job_of_turn(list_first(&gpu->overdue));
  const struct sched_job *stopping = job_of_turn(list_first(&gpu->dropping));
  if (!stopping)
    stopping = silent;
  if (sched_job_too_big(job))
    return because(GS_REASON_TOO_BIG, NULL, SCHED_NEVER);
  if (books_blocked(job))
    return because(GS_REASON_STAYING, NULL, SCHED_NEVER);
  if (silence_bars(job))
    return because(GS_REASON_TURN, turns_holder(gpu), less_u64(job->share->shunned_until_ns, now_ns));
  if (!list_empty(&job->turn) && stopping && !list_empty(&gpu->next))
    return because(GS_REASON_STOP, stopping, stopping == silent ? SCHED_NEVER : restore_ns(job));
  if (waits_for_idleness(job))
    return because(GS_REASON_TURN, turns_holder(gpu), SCHED_NEVER);
  if (silent && !turns_holder(gpu)) /* nobody knows when it will answer */
    return because(GS_REASON_TURN, silent, SCHED_NEVER);
  return because(GS_REASON_TURN, turns_holder(gpu), add_u64(others_ns(job, now_ns), restore_ns(job)));
}

enum gs_rule sched_job_rule(const struct sched_job *job) {
  if (sched_job_enters(job))
    return GS_RULE_ENTERS;
  if (job->state == GS_JOB_HOLDING)
    return job->gpu->serialized && job->gpu->contended && job->goes ? GS_RULE_MAKES_WAY : GS_RULE_SEATED;
  if (job->state == GS_JOB_WAITING)
    return gang_paused(job->gang) ? GS_RULE_GANG_HELD_UP : job->rule;
  if (job->state == GS_JOB_DROPPING || job->state == GS_JOB_BYPASSED)
    return GS_RULE_STOPS;
  return job->terms.paused ? GS_RULE_PAUSED : GS_RULE_IDLE;
}

struct sched_reason sched_job_reason(const struct sched_job *job, uint64_t now_ns) {
  if (sched_job_enters(job))
    return because(GS_REASON_MEMORY, NULL, SCHED_NEVER);
  if (job->state == GS_JOB_HOLDING)
    return of_holder(job);
  if (job->state == GS_JOB_WAITING)
    return of_waiter(job, now_ns);
  if (job->state == GS_JOB_DROPPING)
    return because(GS_REASON_STOPS, NULL, 0);
  if (job->terms.paused)
    return because(GS_REASON_PAUSED, NULL, SCHED_NEVER);
  return because(job->state == GS_JOB_BYPASSED ? GS_REASON_SILENT : GS_REASON_IDLE, NULL, 0);
}

/* ---- hand-overs ---- */

/*
 * What hand-overs cost: how long the GPU stood idle for them, what moved meanwhile, and what
 * moved for nothing, behind somebody's turn.
 */

/* Restores of less say nothing about how fast memory moves. */
#define MEASURED_BYTES (UINT64_C(64) << 20)
#define MEASUREMENTS 8 /* the last one weighs as much as one of so many */
#define SLOWER_MOST 4  /* than what is expected */
#define BYTES_PER_S_MIN UINT64_C(1000000)
#define BYTES_PER_S_MAX 1e15

const uint64_t sched_cost_bounds_ns[SCHED_COST_BOUNDS] = {
    1000000,   2500000,   5000000,    10000000,   25000000,   50000000,    100000000,
    250000000, 500000000, 1000000000, 2500000000, 5000000000, 10000000000, 30000000000};

static void count_cost(struct sched_handover *handover, uint64_t cost_ns) {
  size_t i = 0;
  while (i < SCHED_COST_BOUNDS && cost_ns > sched_cost_bounds_ns[i])
    i++;
  handover->costs[i]++;
}

void handover_begin(struct sched_gpu *gpu, uint64_t now_ns) {
  struct sched_handover *handover = &gpu->handover;
  if (!handover->open)
    handover->now = (struct sched_cost){0};
  handover->open = true;
  handover->since_ns = now_ns;
}

void handover_drained(struct sched_gpu *gpu, uint64_t drain_ns, uint64_t now_ns) {
  handover_begin(gpu, now_ns);
  gpu->handover.now.drain_ns = add_u64(gpu->handover.now.drain_ns, drain_ns);
}

void handover_moved(struct sched_gpu *gpu, uint64_t evicted_bytes, uint64_t restored_bytes) {
  struct sched_handover *handover = &gpu->handover;
  gpu->moved_bytes = add_u64(gpu->moved_bytes, evicted_bytes + restored_bytes);
  gpu->evicted_bytes = add_u64(gpu->evicted_bytes, evicted_bytes);
  gpu->restored_bytes = add_u64(gpu->restored_bytes, restored_bytes);
  if (handover->open) {
    handover->now.evicted_bytes = add_u64(handover->now.evicted_bytes, evicted_bytes);
    handover->now.restored_bytes = add_u64(handover->now.restored_bytes, restored_bytes);
  } else {
    handover->hidden_bytes = add_u64(handover->hidden_bytes, evicted_bytes + restored_bytes);
  }
}

/* The time that a byte takes is averaged, not how many come in a second: of two reports that are read late,
 * and so at once, one seems to have taken no time, and the other all the more. One that takes far too long
 * has waited for something else. */
void handover_measure(struct sched_gpu *gpu, uint64_t restore_ns, uint64_t restore_bytes) {
  struct sched_handover *handover = &gpu->handover;
  if (restore_bytes < MEASURED_BYTES)
    return;
  double expected_ns = (double)restore_bytes / (double)handover->bytes_per_s * 1e9;
  double took_ns = fmin((double)restore_ns, SLOWER_MOST * expected_ns);
  double bytes_per_ns = MEASUREMENTS * (double)restore_bytes / ((MEASUREMENTS - 1) * expected_ns + took_ns);
  if (bytes_per_ns * 1e9 < BYTES_PER_S_MAX)
    handover->bytes_per_s = max_u64((uint64_t)(bytes_per_ns * 1e9), BYTES_PER_S_MIN);
}

void handover_end(struct sched_gpu *gpu, const struct sched_active *active, uint64_t now_ns) {
  struct sched_handover *handover = &gpu->handover;
  handover_measure(gpu, active->restore_ns, active->restore_bytes);
  if (!handover->open)
    return;
  struct sched_cost *last = &handover->last, *sum = &handover->sum;
  *last = handover->now;
  last->move_ns = now_ns - handover->since_ns;
  sum->drain_ns = add_u64(sum->drain_ns, last->drain_ns);
  sum->move_ns = add_u64(sum->move_ns, last->move_ns);
  sum->evicted_bytes = add_u64(sum->evicted_bytes, last->evicted_bytes);
  sum->restored_bytes = add_u64(sum->restored_bytes, last->restored_bytes);
  uint64_t cost_ns = max_u64(add_u64(last->drain_ns, last->move_ns), 1);
  count_cost(handover, cost_ns);
  handover->cost_ns = handover->cost_ns ? handover->cost_ns - handover->cost_ns / 4 + cost_ns / 4 : cost_ns;
  handover->open = false;
}

uint64_t handover_cost_ns(const struct sched_gpu *gpu, uint64_t bytes) {
  return min_u64(bytes, SCHED_BYTES_MAX) * 1000 / (gpu->handover.bytes_per_s / 1000) * 1000;
}

/* ---- sums ---- */

/*
 * What the jobs of each class have had of a GPU. Jobs come and go, and may change their class; what
 * they have had stays in the sums.
 */

static struct sched_tally tally_of(const struct sched_job *job, uint64_t now_ns) {
  return (struct sched_tally){.run_ns = sched_job_gpu_ns(job, now_ns),
                              .held_ns = sched_job_held_ns(job, now_ns),
                              .waited_ns = sched_job_waited_ns(job, now_ns),
                              .turns = job->turns};
}

static void add_difference(struct sched_tally *sum, const struct sched_tally *now,
                           const struct sched_tally *past) {
  sum->run_ns = add_u64(sum->run_ns, now->run_ns - past->run_ns);
  sum->held_ns = add_u64(sum->held_ns, now->held_ns - past->held_ns);
  sum->waited_ns = add_u64(sum->waited_ns, now->waited_ns - past->waited_ns);
  sum->turns = add_u64(sum->turns, now->turns - past->turns);
}

/* A class that it has had for no time at all, as one that comes has the default's, was none. */
void tally_change_class(struct sched_job *job, uint64_t now_ns) {
  struct sched_tally now = tally_of(job, now_ns);
  if (now.held_ns > job->past.held_ns || now.waited_ns > job->past.waited_ns)
    tally_close(job, now_ns);
}

void tally_close(struct sched_job *job, uint64_t now_ns) {
  struct sched_tally now = tally_of(job, now_ns);
  add_difference(&job->gpu->past[job->terms.class], &now, &job->past);
  job->past = now;
}

struct sched_tally sched_gpu_tally(const struct sched_gpu *gpu, enum gs_class class, uint64_t now_ns) {
  struct sched_tally sum = gpu->past[class];
  list_each(node, &gpu->jobs) {
    const struct sched_job *job = list_entry(node, struct sched_job, link);
    if (job->terms.class != class)
      continue;
    struct sched_tally now = tally_of(job, now_ns);
    add_difference(&sum, &now, &job->past);
  }
  return sum;
}

/* ---- the change record: which jobs must be told what, in which order ---- */

/* A job may be told late. Of what it has not been told yet, each word is said once, with what is true by
 * then; one that has been overtaken is not said at all. A job whose own events wait until it has been told
 * all changes its state meanwhile by a grant, then an order to stop, then the end of the grace, and in no
 * other way: so the order of its words is always that of enum sched_action_type.
 */

/* These carry the room, and this one the capacity. */
#define WITH_ROOM (1u << SCHED_TELL_LOCK_OK | 1u << SCHED_TELL_DROP_LOCK)
#define WITH_CAPACITY (1u << SCHED_TELL_ATTACHED)

void change_init(struct sched_change *change) { list_init(&change->jobs); }

void change_add(struct sched_change *change, struct sched_job *job, enum sched_action_type type) {
  if (job->todo == 0)
    list_append(&change->jobs, &job->todo_link);
  job->todo |= 1u << type;
  if (job->todo & WITH_ROOM)
    job->todo &= ~(1u << SCHED_TELL_ROOM);
  if (job->todo & WITH_CAPACITY)
    job->todo &= ~(1u << SCHED_TELL_CAPACITY);
}

void change_forget(struct sched_job *job) {
  list_remove(&job->todo_link);
  job->todo = 0;
}

static bool tells_room(enum sched_action_type type) {
  return type == SCHED_TELL_LOCK_OK || type == SCHED_TELL_DROP_LOCK || type == SCHED_TELL_ROOM;
}

bool change_next_of(struct sched_job *job, struct sched_action *action) {
  if (job->todo == 0)
    return false;
  *action = (struct sched_action){
      .type = (enum sched_action_type)__builtin_ctz(job->todo),
      .job = job,
      .epoch = job->epoch,
      .quantum_ns = job->quantum_ns,
      .wanted = job->wanted_told,
      .took_over = job->took_over,
      .steps = job->steps,
      .room_bytes = job->room_bytes,
      .room_seq = job->room_seq,
      .target_bytes = job->target_bytes,
      .granted_bytes = job->entry.granted_bytes,
  };
  if (tells_room(action->type)) {
    if (job->room_bytes < job->last_told_bytes) /* else it sees no lower one, and has nothing to say */
      job->lowered_seq = job->room_seq;
    job->last_told_bytes = job->room_bytes;
    job->told_bytes = max_u64(job->told_bytes, job->room_bytes);
  }
  job->todo &= job->todo - 1;
  if (job->todo == 0)
    list_remove(&job->todo_link);
  return true;
}

void scheduler_tell_room(struct sched_job *job, struct sched_change *change) {
  change_add(change, job, SCHED_TELL_ROOM);
}

struct sched_job *change_first(const struct sched_change *change) {
  struct list *node = list_first(&change->jobs);
  return node ? list_entry(node, struct sched_job, todo_link) : NULL;
}

bool change_next(struct sched_change *change, struct sched_action *action) {
  struct sched_job *job = change_first(change);
  return job && change_next_of(job, action);
}
