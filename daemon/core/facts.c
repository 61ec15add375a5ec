/*
 * facts.c - what is known besides memory: of time, hand-overs, users that keep the GPU, members of gangs; and
 * what has yet to be told.
 */
#include <math.h>

#include "core/internal.h"

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

void change_add_all(struct sched_gpu *gpu, enum sched_action_type type, struct sched_change *change) {
  list_each(node, &gpu->jobs) { change_add(change, job_of(node), type); }
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

/* ---- what the card has ---- */

uint64_t sched_gpu_capacity_bytes(const struct sched_gpu *gpu) {
  uint64_t set_bytes = gpu->settings.capacity_bytes;
  if (set_bytes == 0)
    return gpu->total_bytes;
  return gpu->total_bytes ? min_u64(set_bytes, gpu->total_bytes) : set_bytes;
}

uint64_t sched_gpu_usable_bytes(const struct sched_gpu *gpu) {
  return less_u64(sched_gpu_capacity_bytes(gpu), add_u64(gpu->overhead_bytes, gpu->away_bytes));
}

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

uint64_t turns_quantum_end_ns(const struct sched_gpu *gpu) {
  return add_u64(gpu->turn_ns, sched_gpu_tq_ns(gpu));
}

/* A quantum begins once its holder runs. */
uint64_t turns_quantum_left_ns(const struct sched_gpu *gpu, uint64_t now_ns) {
  return min_u64(less_u64(turns_quantum_end_ns(gpu), now_ns), sched_gpu_tq_ns(gpu));
}

bool turns_quantum_over(const struct sched_gpu *gpu, uint64_t now_ns) {
  return now_ns >= turns_quantum_end_ns(gpu);
}

struct sched_job *turns_holder(const struct sched_gpu *gpu) {
  return job_of_turn(list_first(&gpu->holders));
}

bool turns_runs(const struct sched_gpu *gpu, const struct sched_job *beside) {
  return gpu->active_count > (beside && beside->active);
}

void turns_wait_anew(struct sched_gpu *gpu, uint64_t now_ns) {
  const struct sched_job *holder = gpu->serialized ? turns_holder(gpu) : NULL;
  if (holder && !holder->active && !holder->managed && !turns_runs(gpu, NULL))
    gpu->turn_ns = max_u64(gpu->turn_ns, add_u64(now_ns, gpu->scheduler->grace_ns));
}

/* ---- times ---- */

#define BEGUN_NS UINT64_C(100000000) /* what is expected at least of a job of unknown length */

uint64_t sched_job_held_ns(const struct sched_job *job, uint64_t now_ns) {
  bool holds = job->state == GS_JOB_HOLDING || job->state == GS_JOB_DROPPING;
  return job->held_ns + (holds ? now_ns - job->since_ns : 0);
}

uint64_t sched_job_waited_ns(const struct sched_job *job, uint64_t now_ns) {
  return job->waited_ns + (job->state == GS_JOB_WAITING ? now_ns - job->since_ns : 0);
}

uint64_t sched_job_remaining_ns(const struct sched_job *job, uint64_t now_ns) {
  uint64_t had_ns = sched_job_gpu_ns(job, now_ns);
  return job->terms.expected_ns > had_ns ? job->terms.expected_ns - had_ns : max_u64(had_ns, BEGUN_NS);
}

static uint64_t running_ns(const struct sched_job *job, uint64_t now_ns) {
  return job->ran_ns ? now_ns - job->ran_ns : 0;
}

uint64_t sched_job_gpu_ns(const struct sched_job *job, uint64_t now_ns) {
  return add_u64(job->gpu_ns, running_ns(job, now_ns));
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
    const struct sched_job *job = job_of(node);
    if (job->terms.class != class)
      continue;
    struct sched_tally now = tally_of(job, now_ns);
    add_difference(&sum, &now, &job->past);
  }
  return sum;
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
void silence_end(struct sched_job *job, uint64_t now_ns) {
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
    const struct sched_job *job = job_of(node);
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

/* ---- members of gangs ---- */

void gang_init(struct sched_gang *gang) {
  *gang = (struct sched_gang){.claims = false};
  list_init(&gang->members);
}

bool gang_is_alone(const struct sched_job *job) { return !job->gang || gang_has_one(job->gang); }

/* The first member that does; NULL: none, or no gang. */
static const struct sched_job *find(const struct sched_gang *gang, bool (*does)(const struct sched_job *)) {
  if (!gang)
    return NULL;
  list_each(node, &gang->members) {
    if (does(member_of(node)))
      return member_of(node);
  }
  return NULL;
}

static bool waits(const struct sched_job *job) { return job->state == GS_JOB_WAITING; }

static bool has_begun(const struct sched_job *job) {
  return job->state == GS_JOB_HOLDING && job->gpu->serialized;
}

static bool is_paused(const struct sched_job *job) { return job->terms.paused; }

static bool is_awaited(const struct sched_job *job) { return job->seat == SCHED_SEAT_OVERDUE; }

bool gang_waits(const struct sched_gang *gang) { return find(gang, waits); }

bool gang_claims(const struct sched_job *job) { return job->gang && job->gang->claims; }

bool gang_goes_first(const struct sched_job *job) {
  return gang_claims(job) || (job->terms.class != GS_CLASS_OPPORTUNISTIC && find(job->gang, has_begun));
}

const struct sched_job *gang_paused(const struct sched_gang *gang) { return find(gang, is_paused); }

bool gang_is_awaited(const struct sched_gang *gang) { return find(gang, is_awaited); }

void gang_look(const struct sched_gang *gang) {
  if (!gang)
    return;
  list_each(node, &gang->members) { gpu_make_dirty(member_of(node)->gpu); }
}
