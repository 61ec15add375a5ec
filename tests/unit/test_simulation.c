/*
 * test_simulation.c - random histories of jobs that live, wait, die, stall, grow and move their memory,
 * checked after every event.
 *
 * usage: test_simulation [SEED [RUNS]]; GPUSHARE_SEED and GPUSHARE_RUNS do the same. A failure prints the
 * seed of the run that failed: with it and RUNS 1 the same history happens again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors.h"
#include "played_clock.h"

#define STEPS 100
#define AGAIN 10 /* of so many histories, one is lived twice */
#define USERS 2
#define RESTING 2 /* jobs of production that mostly rest, where there are such */
#define CARD (16 * GIB)
#define DRAIN_NS (20 * NS_PER_MS)
#define BYTES_PER_S (UINT64_C(2000) * GIB) /* the whole card in 8 ms */
#define OVERHEAD_NS (20 * NS_PER_MS)
/* One that needs what a cramped one has may be tried first. */
#define CRAMPED_GRACES (2 * ACTORS)
#define MOVES_NS (40 * NS_PER_MS) /* at most, of one hand-over */

static struct actors them;
static struct sched_share users[USERS];

static struct run {
  uint64_t seed, digest;
  bool unified; /* all memory has page faults */
  bool fair;    /* no stalls, no changes of settings: nobody may wait for long */
  bool rests;   /* the first jobs are of production, and mostly rest; the others are opportunistic */
  bool excused; /* the event may put more on the card than it has */
  bool shrunk;  /* the card has become smaller, or others' pinned memory larger */
  uint64_t excess_bytes;
  unsigned giving_way;
  bool wanted[ACTORS]; /* it has been told that somebody waits */
  uint64_t wanted_epoch[ACTORS];
  uint64_t too_big_ns[ACTORS];      /* when it was so the last time */
  uint64_t had_bytes[ACTORS];       /* before its memory changed the last time */
  uint64_t most_bytes[ACTORS];      /* ever */
  uint64_t room_bytes[ACTORS];      /* as it was told the last time */
  uint64_t before_bytes[ACTORS];    /* its room, as of the last check */
  uint64_t look_ns, unpinned_bytes; /* what was on the card when it was looked, beside what was pinned */
  uint64_t needed_bytes;            /* turns are: of what the jobs have had since, the most */
} run;

static void fail_about(const char *what, int i) {
  fprintf(stderr, "seed %llu, at %llu ns: ", (unsigned long long)run.seed, (unsigned long long)them.now_ns);
  if (i >= 0)
    fprintf(stderr, "job %d ", i + 1);
  fprintf(stderr, "%s\nto replay: test_simulation %llu 1\n", what, (unsigned long long)run.seed);
  exit(EXIT_FAILURE);
}

static void fail_all(const char *what) { fail_about(what, -1); }

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t random_below(uint64_t bound) { return actors_random_below(&them, bound); }
static bool chance(unsigned percent) { return actors_chance(&them, percent); }

/* What jobs have, will have again, and need beside it as the driver has refused it to them (accounting.c):
 * for the latter, too, others leave. */
static bool all_fit(void) {
  const struct sched_gpu *gpu = &them.gpu;
  return gpu->used_bytes + gpu->ephemeral_bytes + gpu->extra_bytes <= sched_gpu_usable_bytes(gpu);
}

/* ---- decisions ---- */

static void digest(uint64_t value) { run.digest = (run.digest ^ value) * UINT64_C(0x100000001b3); }

static int active_jobs(void) {
  int active = 0;
  for (int i = 0; i < ACTORS; i++)
    if (them.actors[i].attached)
      active += them.jobs[i].state == GS_JOB_HOLDING || them.jobs[i].state == GS_JOB_DROPPING;
  return active;
}

/* One that came running when others had its place already: it is told to stop at once. */
static bool runs_unasked(const struct sched_job *job) {
  return job->state == GS_JOB_DROPPING && job->epoch == 0;
}

/* In mode on it is alone; otherwise it fits beside those that hold or have not answered. */
static void check_grant(int i) {
  uint64_t bytes = 0;
  for (int k = 0; k < ACTORS; k++) {
    const struct sched_job *job = &them.jobs[k];
    bool holds = job->state == GS_JOB_HOLDING || job->state == GS_JOB_DROPPING;
    if (them.actors[k].attached && holds && !runs_unasked(job))
      bytes += job->used_bytes;
  }
  if (active_jobs() < 2)
    return;
  if (them.gpu.settings.mode == GS_MODE_ON)
    fail_about("is granted while another holds or has not answered", i);
  if (them.jobs[i].used_bytes > 0 && bytes > sched_gpu_usable_bytes(&them.gpu))
    fail_about("is granted beside others, and does not fit", i);
}

static void check_room(int i, uint64_t room_bytes) {
  const struct actor *actor = &them.actors[i];
  const struct sched_job *job = &them.jobs[i];
  if (room_bytes > job->reach_bytes)
    fail_about("gets more room than it may use", i);
  if (!actor->managed && actor->open && job->active && !run.shrunk && room_bytes < actor->resident_bytes)
    fail_about("gets less room than it has while it runs", i);
  if (!run.excused && room_bytes < least(run.room_bytes[i], job->pinned_bytes))
    fail_about("is to give what can't leave", i);
  /* Who neither stops nor asks is not told to come back after it was told to leave: it would for ever. */
  const struct sched_gpu *gpu = &them.gpu;
  bool short_of = gpu->serialized && !gpu->roomy && !all_fit();
  if (short_of && job->role == SCHED_ROLE_NONE && job->since_ns < them.now_ns &&
      room_bytes > most(run.room_bytes[i], job->pinned_bytes))
    fail_about("gets room though its turn is not near", i);
}

static void on_action(const struct sched_action *action) {
  int i = (int)action->job->id - 1;
  digest(action->type);
  digest(action->job->id);
  digest(action->epoch);
  digest(action->room_bytes);
  digest(action->room_seq);
  if (action->type == SCHED_TELL_LOCK_OK && them.gpu.serialized)
    check_grant(i);
  if (action->type == SCHED_TELL_LOCK_WANTED) {
    run.wanted[i] = action->wanted;
    run.wanted_epoch[i] = action->epoch;
  }
  if (action->type == SCHED_TELL_ROOM || action->type == SCHED_TELL_LOCK_OK)
    check_room(i, action->room_bytes);
  if (action->type == SCHED_TELL_ROOM || action->type == SCHED_TELL_LOCK_OK ||
      action->type == SCHED_TELL_DROP_LOCK)
    run.room_bytes[i] = action->room_bytes;
}

/* ---- what must always hold ---- */

/* What it does not give to others, for now. */
static uint64_t kept_by(const struct sched_job *job) {
  bool stays = !job->managed && (job->overdue || job->stays_ns);
  return stays && job->claim_bytes > job->pinned_bytes ? job->claim_bytes : job->pinned_bytes;
}

static void check_sums(void) {
  const struct sched_gpu *gpu = &them.gpu;
  uint64_t used = 0, resident = 0, pinned = 0, claims = 0, reach = 0, staying = 0, ephemeral = 0;
  unsigned waiting = 0, holding = 0, jobs = 0;
  for (int i = 0; i < ACTORS; i++) {
    if (!them.actors[i].attached)
      continue;
    const struct sched_job *job = &them.jobs[i];
    jobs++;
    used += job->used_bytes;
    resident += job->resident_bytes;
    pinned += job->pinned_bytes;
    claims += job->claim_bytes;
    reach += job->reach_bytes;
    staying += kept_by(job) - job->pinned_bytes;
    ephemeral += job->ephemeral.counted_bytes;
    waiting += job->state == GS_JOB_WAITING;
    holding += job->state == GS_JOB_HOLDING;
    if (job->used_bytes + job->ephemeral.counted_bytes > most(run.most_bytes[i], job->used_bytes))
      fail_about("is expected to have more than it ever had", i);
    if (job->resident_bytes > job->used_bytes)
      fail_about("is believed to have more on the card than it has", i);
  }
  if (used != gpu->used_bytes || resident != gpu->resident_bytes || pinned != gpu->pinned_bytes ||
      claims != gpu->claim_bytes || reach != gpu->reach_bytes || staying != gpu->staying_bytes ||
      ephemeral != gpu->ephemeral_bytes || waiting != gpu->waiting_count || holding != gpu->holder_count ||
      jobs != gpu->job_count)
    fail_all("a sum is wrong");
}

static uint64_t kept_from(const struct sched_job *job) {
  uint64_t bytes = 0;
  for (int i = 0; i < ACTORS; i++) {
    const struct sched_job *other = &them.jobs[i];
    if (!them.actors[i].attached || other == job)
      continue;
    bytes += kept_by(other);
  }
  return bytes;
}

static bool is_blocked(const struct sched_job *job) {
  return !job->managed && job->used_bytes + kept_from(job) > sched_job_usable_bytes(job);
}

/* It is too big, or its user was silent and others are there. */
static bool is_barred(const struct sched_job *job) {
  const struct sched_share *user = job->share;
  return sched_job_too_big(job) ||
         (user && sched_share_is_shunned(user) && them.gpu.job_count > user->job_count);
}

/* Those that wait and can run, or could but for those that stay on the card. */
static unsigned waiters(bool blocked_too) {
  unsigned count = 0;
  list_each(node, &them.gpu.queue) {
    const struct sched_job *job = list_entry(node, struct sched_job, waiting);
    count += !is_barred(job) && (blocked_too || !is_blocked(job));
  }
  return count;
}

/* Of these, those that nobody has been told to make way for. */
static unsigned passed_over(void) {
  unsigned count = 0;
  list_each(node, &them.gpu.queue) {
    const struct sched_job *job = list_entry(node, struct sched_job, waiting);
    count += !is_barred(job) && !is_blocked(job) && list_empty(&job->turn);
  }
  return count;
}

/* With what it is expected to allocate again. */
static uint64_t need_bytes(const struct sched_job *job) {
  return most(job->reach_bytes, job->used_bytes + job->ephemeral.counted_bytes) + job->extra_bytes;
}

/* What the card must have for those that hold or have not stopped, and what nobody gives. */
static uint64_t taken_bytes(void) {
  uint64_t bytes = 0;
  for (int i = 0; i < ACTORS; i++) {
    const struct sched_job *job = &them.jobs[i];
    bool holds = job->state == GS_JOB_HOLDING || job->state == GS_JOB_DROPPING;
    if (them.actors[i].attached)
      bytes += holds ? need_bytes(job) : job->pinned_bytes + kept_by(job);
  }
  return bytes;
}

/* Nobody waits who would fit beside the others. */
static void check_conserving(void) {
  if (!them.gpu.serialized || them.gpu.settings.mode == GS_MODE_ON || !list_empty(&them.gpu.next))
    return;
  uint64_t free_bytes = sched_gpu_usable_bytes(&them.gpu) - taken_bytes();
  list_each(node, &them.gpu.queue) {
    const struct sched_job *job = list_entry(node, struct sched_job, waiting);
    if (taken_bytes() <= sched_gpu_usable_bytes(&them.gpu) && !is_barred(job) && !is_blocked(job) &&
        need_bytes(job) <= free_bytes)
      fail_about("waits and would fit beside those that hold", (int)job->id - 1);
  }
}

static uint64_t faultless_bytes(void) {
  uint64_t bytes = 0;
  for (int i = 0; i < ACTORS; i++)
    if (them.actors[i].attached && !them.actors[i].managed)
      bytes += them.jobs[i].used_bytes - them.jobs[i].pinned_bytes;
  return bytes;
}

static void check_turns(void) {
  const struct sched_gpu *gpu = &them.gpu;
  bool owed = !list_empty(&gpu->dropping) || !list_empty(&gpu->overdue);
  if (gpu->settings.mode == GS_MODE_ON && gpu->holder_count > 1)
    fail_all("several hold while turns are being taken");
  if (gpu->serialized && gpu->holder_count == 0 && waiters(true) > 0 && !owed)
    fail_all("the GPU is free and somebody waits");
  if (!gpu->serialized && faultless_bytes() > 0 && gpu->used_bytes > sched_gpu_usable_bytes(gpu))
    fail_all("no turns are being taken, and memory without page faults waits for room");
  if (!gpu->serialized && gpu->waiting_count > 0)
    fail_all("somebody waits though no turns are being taken");
  if (scheduler_deadline_ns(&them.scheduler) < them.now_ns)
    fail_all("a deadline has been missed");
  if (!clock_is_right(&them.scheduler))
    fail_all("a change of a deadline is missed");
}

static bool is_full(void) {
  uint64_t missing_bytes = them.gpu.overhead_bytes + them.gpu.away_bytes;
  uint64_t bytes = run.unpinned_bytes + them.gpu.pinned_bytes;
  return (bytes > missing_bytes ? bytes - missing_bytes : 0) >= sched_gpu_usable_bytes(&them.gpu) / 100 * 90;
}

static bool is_known(void) { return run.look_ns && them.now_ns < run.look_ns + SCHED_SEEN_NS; }

/* All run though they don't fit: little is on the card, and has not been more since they have had as much. */
static void check_together(void) {
  const struct sched_gpu *gpu = &them.gpu;
  uint64_t bytes = gpu->used_bytes + gpu->ephemeral_bytes;
  bool fits = all_fit(), production = false;
  if (bytes < run.needed_bytes - run.needed_bytes / 8)
    run.needed_bytes = 0;
  if (run.needed_bytes || (is_known() && is_full() && !fits))
    run.needed_bytes = most(run.needed_bytes, bytes);
  if (gpu->serialized || fits || gpu->settings.mode != GS_MODE_AUTO)
    return;
  for (int i = 0; i < ACTORS; i++)
    production |= them.actors[i].attached && them.jobs[i].terms.class == GS_CLASS_PRODUCTION;
  if (!is_known() || is_full())
    fail_all("jobs run together, and the card may be full");
  if (run.needed_bytes && !them.scheduler.deferred)
    fail_all("jobs run together again for which turns were needed");
  if (faultless_bytes() > 0 || production)
    fail_all("jobs run together beside one for which all counts");
}

static void check_job(int i) {
  const struct sched_job *job = &them.jobs[i];
  bool holds = job->state == GS_JOB_HOLDING;
  /* While somebody waits, the holder that runs knows; and afterwards, that nobody does. */
  bool told = run.wanted[i] && run.wanted_epoch[i] == job->epoch;
  if (holds && job->active && them.gpu.serialized && passed_over() > 0 && !told)
    fail_about("does not know that somebody waits", i);
  if (holds && told && !(them.gpu.serialized && them.gpu.contended))
    fail_about("believes that somebody waits", i);
  if (sched_job_too_big(job)) {
    run.too_big_ns[i] = them.now_ns;
    /* Of what the driver refuses, its program is told. */
    bool has_all = sched_job_usable_bytes(job) == sched_gpu_capacity_bytes(&them.gpu);
    if (holds && them.gpu.serialized && has_all)
      fail_about("holds though it needs more than there is", i);
  }
  if (job->terms.paused && (holds || job->state == GS_JOB_WAITING))
    fail_about("holds or waits though it is paused", i);
  if (!job->terms.paused && !them.gpu.serialized && job->state == GS_JOB_IDLE)
    fail_about("does not hold though no turns are being taken", i);
  /* Nobody waits for longer than all the others' turns take. */
  uint64_t since_ns = job->since_ns > run.too_big_ns[i] ? job->since_ns : run.too_big_ns[i];
  if (run.fair && job->state == GS_JOB_WAITING &&
      them.now_ns - since_ns > (ACTORS + 1) * (them.gpu.settings.tq_ns + DRAIN_NS + MOVES_NS))
    fail_about("waits too long", i);
}

/* It does not answer, but has page faults. */
static bool gives_way(int i) {
  const struct sched_job *job = &them.jobs[i];
  return them.actors[i].attached && job->managed && (job->overdue || job->state == GS_JOB_BYPASSED);
}

/* Somebody whose page faults make it right may have more than there is. */
static bool may_exceed(void) {
  for (int i = 0; i < ACTORS; i++) {
    const struct sched_job *job = &them.jobs[i];
    if (them.actors[i].attached && job->managed && job->state == GS_JOB_HOLDING &&
        (!them.gpu.serialized || (!job->active && them.now_ns >= job->since_ns + them.scheduler.grace_ns)))
      return true;
  }
  return false;
}

/* What is on the card is claimed, but for what makes way by itself. */
static void check_claims(void) {
  for (int i = 0; i < ACTORS; i++)
    if (them.actors[i].attached && !gives_way(i) && them.actors[i].resident_bytes > them.jobs[i].claim_bytes)
      fail_about("has more on the card than it claims", i);
}

/* No more is claimed than the card has, but for what was claimed already when the card became smaller; and
 * that gets only less. */
static void check_excess(void) {
  uint64_t usable_bytes = sched_gpu_usable_bytes(&them.gpu), claim_bytes = them.gpu.claim_bytes;
  uint64_t excess_bytes = claim_bytes > usable_bytes ? claim_bytes - usable_bytes : 0;
  unsigned giving_way = 0;
  for (int i = 0; i < ACTORS; i++)
    giving_way += gives_way(i);
  if (excess_bytes > run.excess_bytes && !run.excused && !may_exceed() && giving_way >= run.giving_way)
    fail_all("more is claimed than there is");
  run.excess_bytes = excess_bytes;
  run.giving_way = giving_way;
  run.excused &= !them.scheduler.deferred;
}

/* ---- whose memory leaves: what memory_plan.c promises ---- */

static int standing(const struct sched_job *job) {
  static const int standings[] = {
      [GS_CLASS_OPPORTUNISTIC] = 0, [GS_CLASS_STANDARD] = 1, [GS_CLASS_PRODUCTION] = 2};
  return standings[job->terms.class];
}

static bool is_silent(const struct sched_job *job) {
  return job->state == GS_JOB_DROPPING && job->flags & GS_STATE_OVERDUE;
}

/* Its memory may leave for others: it neither runs nor is to run, and has not kept its memory when asked. */
static bool is_victim(const struct sched_job *job) {
  return job->role == SCHED_ROLE_NONE && job->state != GS_JOB_HOLDING && !job->overdue && !job->stays_ns &&
         !is_silent(job);
}

static bool can_wait(const struct sched_job *job) {
  return job->state == GS_JOB_WAITING && !sched_job_too_big(job) && !is_blocked(job);
}

/* For so long that its memory leaves for a job that runs later; or it waits, and can't run. */
static bool is_idle(const struct sched_job *job) {
  if (job->state == GS_JOB_IDLE || job->state == GS_JOB_BYPASSED)
    return them.scheduler.event_ns >= job->since_ns + SCHED_IDLE_NS;
  return job->state == GS_JOB_WAITING && !can_wait(job);
}

/* What the others need, if jobs that run later get nothing beside what they had. */
static uint64_t needed_beside(const struct sched_job *job) {
  uint64_t bytes = 0;
  for (int i = 0; i < ACTORS; i++) {
    const struct sched_job *other = &them.jobs[i];
    uint64_t had_bytes = most(most(run.before_bytes[i], other->resident_bytes), other->pinned_bytes);
    if (!them.actors[i].attached || other == job)
      continue;
    if (other->role == SCHED_ROLE_FIRST)
      bytes += need_bytes(other);
    else if (other->overdue || is_silent(other))
      bytes += most(other->want_bytes, other->claim_bytes);
    else
      bytes += least(other->want_bytes, had_bytes);
  }
  return bytes;
}

/* The job may have to leave for one that runs later. Production memory does not leave for an opportunistic
 * job then. */
static bool leaves_for_later(const struct sched_job *job) {
  bool production = job->terms.class == GS_CLASS_PRODUCTION, leaves = false;
  list_each(node, &them.gpu.later) {
    const struct sched_job *later = list_entry(node, struct sched_job, turn);
    leaves |= !production || later->terms.class != GS_CLASS_OPPORTUNISTIC;
  }
  return leaves;
}

/* The other job has memory that leaves before the job's. For the next job, any. For a later one memory leaves
 * in three rounds: what is beyond soft limits, idle jobs' memory, waiting jobs' memory. */
static bool leaves_before(const struct sched_job *other, const struct sched_job *job) {
  uint64_t limit_bytes = other->terms.soft_limit_bytes, kept_bytes = other->want_bytes;
  bool idle = is_idle(other), waits = can_wait(other);
  if (!leaves_for_later(job))
    return kept_bytes > other->pinned_bytes;
  if (job->terms.soft_limit_bytes && job->room_bytes >= job->terms.soft_limit_bytes)
    return limit_bytes && kept_bytes > most(limit_bytes, other->pinned_bytes) && (idle || waits);
  return kept_bytes > other->pinned_bytes && (idle || (waits && can_wait(job)));
}

/* The job has been told to leave. Memory of opportunistic jobs leaves before, production's after all others'.
 * Of the latter only as much leaves as is lacking. */
static void check_leaves(int i) {
  const struct sched_job *job = &them.jobs[i];
  uint64_t needed_bytes = needed_beside(job) + job->room_bytes + SCHED_SLACK_BYTES;
  for (int k = 0; k < ACTORS; k++) {
    const struct sched_job *other = &them.jobs[k];
    if (them.actors[k].attached && standing(other) < standing(job) && is_victim(other) &&
        leaves_before(other, job))
      fail_about("is to leave, and one of a lower class has memory that is not", i);
  }
  if (job->terms.class == GS_CLASS_PRODUCTION && !leaves_for_later(job) &&
      needed_bytes < sched_gpu_usable_bytes(&them.gpu))
    fail_about("is of production, and is to leave for no job that runs next", i);
}

static void check_leaving(void) {
  for (int i = 0; i < ACTORS; i++) {
    const struct sched_job *job = &them.jobs[i];
    bool leaves =
        them.actors[i].attached && job->room_bytes < least(run.before_bytes[i], job->resident_bytes);
    if (leaves && !run.excused && is_victim(job))
      check_leaves(i);
  }
  for (int i = 0; i < ACTORS; i++)
    run.before_bytes[i] = them.actors[i].attached ? them.jobs[i].room_bytes : 0;
}

static void on_event(void) {
  check_sums();
  check_turns();
  check_together();
  check_conserving();
  check_claims();
  check_leaving();
  check_excess();
  for (int i = 0; i < ACTORS; i++)
    if (them.actors[i].attached)
      check_job(i);
}

/* The plan has room for what can't leave and is still to come, as soon as others have acknowledged lower
 * rooms. The job does not know that: so much of what can leave makes way. */
static bool makes_way(int i) {
  const struct actor *actor = &them.actors[i];
  const struct sched_job *job = &them.jobs[i];
  bool unheard = false;
  for (int k = 0; k < ACTORS; k++)
    unheard |= k != i && them.actors[k].attached && them.jobs[k].promised_bytes > them.jobs[k].room_bytes;
  return unheard && actor->awaited_bytes > 0 && job->want_bytes >= job->used_bytes &&
         job->room_bytes + actor->step_bytes <= job->want_bytes;
}

static void on_step(int i) {
  const struct actor *actor = &them.actors[i];
  bool knows = actor->room_seq == them.jobs[i].room_seq;
  check_claims();
  if (actor->step == STEP_OUT && knows && all_fit() && !makes_way(i))
    fail_about("leaves though all fits", i);
}

/* ---- what happens ---- */

/* Something after which more may be on the card than it has. */
static void excuse(bool excused) {
  run.excused = excused || (run.excused && them.scheduler.dirty); /* or it has not been checked yet */
  run.shrunk |= excused;
}

static bool is_resting(int i) { return run.rests && i < RESTING; }

static enum gs_class some_class(int i) {
  if (run.fair)
    return GS_CLASS_STANDARD;
  if (run.rests)
    return is_resting(i) ? GS_CLASS_PRODUCTION : GS_CLASS_OPPORTUNISTIC;
  return (enum gs_class)random_below(GS_CLASS_OPPORTUNISTIC + 1);
}

static void change_terms(int i) {
  struct sched_terms terms = {.weight = 1 + (uint32_t)random_below(SCHED_WEIGHT_MAX),
                              .priority =
                                  (int32_t)random_below(2 * SCHED_PRIORITY_MAX + 1) - SCHED_PRIORITY_MAX,
                              .expected_ns = chance(50) ? random_below(200 * NS_PER_MS) : 0,
                              .soft_limit_bytes = chance(50) ? random_below(CARD) : 0,
                              .class = some_class(i),
                              .paused = !run.fair && chance(30)};
  scheduler_set_terms(&them.jobs[i], &terms, them.now_ns, &them.change);
  actors_execute(&them);
}

static void attach(int i) {
  bool running = chance(10);
  bool managed = chance(50) || run.unified;
  uint64_t used_bytes = random_below(running ? CARD / 2 : CARD * 9 / 8);
  uint64_t resident_bytes = running ? used_bytes : chance(20) ? random_below(used_bytes) : 0;
  run.wanted[i] = false;
  run.too_big_ns[i] = run.room_bytes[i] = run.before_bytes[i] = 0;
  run.had_bytes[i] = run.most_bytes[i] = used_bytes;
  uint64_t user = random_below(USERS + 1);
  them.users[i] = user < USERS ? &users[user] : NULL;
  excuse(resident_bytes > 0);
  actors_attach(&them, i, used_bytes, resident_bytes,
                (running ? GS_ATTACH_RUNNING : 0) | (managed ? GS_ATTACH_MANAGED : 0));
  excuse(false);
  if (run.rests || (!run.fair && chance(30)))
    change_terms(i);
  if (chance(70))
    actors_request(&them, i);
}

/* It can run, and no other one of its class, or of a lower one, can take that from it without asking; nor can
 * it itself. What it came with counts as far as its user could have had it. */
static bool has_its_place(int i) {
  const struct sched_job *job = &them.jobs[i];
  uint64_t bytes = job->reach_bytes;
  for (int k = 0; k < ACTORS; k++)
    if (k != i && them.actors[k].attached && standing(&them.jobs[k]) <= standing(job))
      bytes += them.jobs[k].pinned_reach_bytes;
  bool may_leave = job->reach_bytes > job->pinned_reach_bytes;
  return job->managed || !may_leave || job->alleged_bytes || bytes <= sched_job_usable_bytes(job);
}

static struct place { bool runs, kept; } places[ACTORS];

static void note_places(void) {
  for (int i = 0; i < ACTORS; i++) {
    if (!them.actors[i].attached)
      continue;
    bool can_run = !sched_job_too_big(&them.jobs[i]), alleges = them.jobs[i].alleged_bytes;
    places[i] = (struct place){can_run && !alleges, (can_run || !alleges) && has_its_place(i)};
  }
}

/* The one that has changed its memory has taken it from nobody that stands as high. What it had been granted
 * to pin before the card became smaller it may pin all the same. */
static void check_places(int changed, uint64_t granted_bytes) {
  bool granted = them.actors[changed].pinned_bytes <= granted_bytes;
  for (int i = 0; i < ACTORS; i++) {
    if (!them.actors[i].attached)
      continue;
    if (places[i].kept && !has_its_place(i))
      fail_about("could be kept from running by pinned memory", i);
    if (i != changed && standing(&them.jobs[i]) >= standing(&them.jobs[changed]) && places[i].runs &&
        !granted && sched_job_too_big(&them.jobs[i]))
      fail_about("is kept from running by what another has pinned", i);
  }
}

/* All jobs have about what the card has: what they may have without asking does not fit. */
static uint64_t just_fitting_bytes(int i) {
  uint64_t others_bytes = them.gpu.used_bytes - them.jobs[i].used_bytes;
  uint64_t usable_bytes = sched_gpu_usable_bytes(&them.gpu), spare_bytes = random_below(64 * MIB);
  return usable_bytes > others_bytes + spare_bytes ? usable_bytes - others_bytes - spare_bytes : 0;
}

static void change_memory(int i) {
  const struct actor *actor = &them.actors[i];
  uint64_t used_bytes = actor->used_bytes, pinned_bytes = actor->pinned_bytes;
  if (chance(40)) /* memory that comes and goes */
    used_bytes = run.had_bytes[i];
  else if (chance(15))
    used_bytes = just_fitting_bytes(i);
  else if (chance(70))
    used_bytes = random_below(CARD * 9 / 8);
  else
    used_bytes += random_below(8 * MIB);
  if (chance(10) || pinned_bytes > used_bytes)
    pinned_bytes = random_below(chance(20) ? used_bytes + 1 : used_bytes / 8 + 1);
  else if (chance(20))
    pinned_bytes += random_below(1 + (used_bytes - pinned_bytes) / 256);
  run.shrunk |= pinned_bytes > actor->pinned_bytes;
  run.had_bytes[i] = actor->used_bytes;
  note_places();
  uint64_t granted_bytes = actor->granted_pinned_bytes;
  actors_set_memory(&them, i, used_bytes, pinned_bytes);
  check_places(i, granted_bytes);
  run.most_bytes[i] = most(run.most_bytes[i], actor->used_bytes);
}

static void be_short(int i) {
  if (!them.actors[i].holding || them.actors[i].open)
    return;
  excuse(true);
  actors_short(&them, i, 1 + random_below(64 * MIB));
  excuse(false);
}

/* How much of it there is. */
static void change_card(void) {
  if (chance(30))
    scheduler_note_taken(&them.gpu, random_below(CARD / 8), them.now_ns, &them.change);
  else if (chance(30))
    scheduler_set_away(&them.gpu, chance(50) ? random_below(CARD / 8) : 0, them.now_ns, &them.change);
  else
    scheduler_set_capacity(&them.scheduler, NULL, random_below(CARD * 5 / 4), them.now_ns, &them.change);
}

static void change_settings(void) {
  if (chance(25)) {
    scheduler_set_policy(&them.scheduler, NULL, (enum gs_policy)random_below(GS_POLICY_PACK + 1), them.now_ns,
                         &them.change);
  } else if (chance(40)) {
    scheduler_set_mode(&them.scheduler, NULL, (enum gs_mode)random_below(3), them.now_ns, &them.change);
  } else if (chance(50)) {
    uint64_t tq_ns = chance(20) ? SCHED_TQ_AUTO : NS_PER_MS + random_below(50 * NS_PER_MS);
    scheduler_set_tq(&them.scheduler, NULL, tq_ns, them.now_ns, &them.change);
  } else if (chance(40)) {
    scheduler_set_share(&users[random_below(USERS)], 1 + (uint32_t)random_below(SCHED_WEIGHT_MAX),
                        chance(50) ? random_below(CARD) : 0, them.now_ns, &them.change);
  } else {
    excuse(true);
    change_card();
  }
  actors_execute(&them);
  excuse(false);
}

/* By a look that may have been made some time ago. */
static void look(void) {
  uint64_t bytes = random_below(CARD), ago_ns = random_below(SCHED_SEEN_NS * 9 / 8);
  if (ago_ns < SCHED_SEEN_NS) {
    run.look_ns = them.now_ns - ago_ns;
    run.unpinned_bytes = bytes > them.gpu.pinned_bytes ? bytes - them.gpu.pinned_bytes : 0;
  }
  scheduler_set_occupied(&them.gpu, bytes, them.now_ns - ago_ns, them.now_ns, &them.change);
  actors_execute(&them);
}

static void act(int i) {
  struct actor *actor = &them.actors[i];
  if (!actor->attached)
    attach(i);
  else if (chance(10))
    actors_detach(&them, i); /* death, at any moment */
  else if (chance(20))
    change_memory(i);
  else if (chance(15) && !run.fair)
    be_short(i);
  else if (chance(10))
    change_terms(i);
  else if (chance(10) && !run.fair)
    actor->stalled = !actor->stalled;
  else if (chance(10) && !run.fair)
    actor->cramped = !actor->cramped;
  else if (!is_resting(i) || chance(20))
    actors_request(&them, i);
}

/* What the driver has refused is tried again after a time, which has limits. */
static void pass_overhead(void) {
  for (int i = 0; i < 32 && them.gpu.overhead_bytes; i++)
    actors_pass(&them, OVERHEAD_NS);
  if (them.gpu.overhead_bytes)
    fail_all("what was refused is never tried again");
}

/* A user whose jobs were silent is served again after a time, which has limits. */
static void pass_silence(void) {
  bool silent = true;
  for (int i = 0; i < 256 && silent; i++) {
    actors_pass(&them, them.scheduler.grace_ns);
    silent = !list_empty(&them.gpu.shunned);
  }
  if (silent)
    fail_all("a user is shunned for ever");
}

/* Everybody wants to run, and nobody is disturbed. */
static void expect_runs(uint64_t ns, bool (*must_run)(int i)) {
  uint64_t opened[ACTORS];
  for (int i = 0; i < ACTORS; i++) {
    opened[i] = them.actors[i].opened;
    actors_request(&them, i);
  }
  actors_pass(&them, ns);
  for (int i = 0; i < ACTORS; i++)
    if (them.actors[i].attached && them.actors[i].opened == opened[i] && !them.actors[i].open && must_run(i))
      fail_about("never ran", i);
}

/* Whoever can run can have all that it has asked for, too. */
static void check_has_pinned(bool (*must_have)(int i)) {
  for (int i = 0; i < ACTORS; i++)
    if (them.actors[i].attached && them.actors[i].awaited_bytes && must_have(i))
      fail_about("never got its memory that can't leave", i);
}

static bool fits(int i) { return !sched_job_too_big(&them.jobs[i]); }

/* Even if the cramped ones keep all that they have. */
static bool fits_beside_cramped(int i) {
  uint64_t bytes = them.actors[i].used_bytes;
  for (int other = 0; other < ACTORS; other++) {
    const struct actor *actor = &them.actors[other];
    if (actor->attached && other != i)
      bytes += actor->cramped ? actor->used_bytes : actor->pinned_bytes;
  }
  return bytes <= sched_gpu_usable_bytes(&them.gpu);
}

/* Who is of another class than those that always want to run may wait for ever, and who is paused does. */
static void make_equal(enum gs_class class) {
  for (int i = 0; i < ACTORS; i++) {
    if (!them.actors[i].attached)
      continue;
    struct sched_terms terms = them.jobs[i].terms;
    terms.class = class;
    terms.paused = false;
    scheduler_set_terms(&them.jobs[i], &terms, them.now_ns, &them.change);
    actors_execute(&them);
  }
}

/* Everybody answers again: whoever wants to run and can must do so. */
static void settle(void) {
  uint64_t turns_ns = 2 * ACTORS * (sched_gpu_tq_ns(&them.gpu) + DRAIN_NS + MOVES_NS);
  scheduler_set_mode(&them.scheduler, NULL, GS_MODE_ON, them.now_ns, &them.change);
  actors_execute(&them);
  scheduler_set_policy(&them.scheduler, NULL, GS_POLICY_RR, them.now_ns, &them.change);
  actors_execute(&them);
  if (them.gpu.settings.tq_ns == SCHED_TQ_AUTO)
    scheduler_set_tq(&them.scheduler, NULL, 10 * NS_PER_MS, them.now_ns, &them.change);
  actors_execute(&them);
  make_equal((enum gs_class)random_below(3));
  them.busy_percent = 100;
  for (int i = 0; i < ACTORS; i++)
    them.actors[i].stalled = false;
  scheduler_set_away(&them.gpu, 0, them.now_ns, &them.change);
  actors_execute(&them);
  pass_silence();
  pass_overhead();
  if (chance(20)) /* it takes long */
    expect_runs(CRAMPED_GRACES * them.scheduler.grace_ns + turns_ns, fits_beside_cramped);
  for (int i = 0; i < ACTORS; i++)
    them.actors[i].cramped = false;
  expect_runs(2 * them.scheduler.grace_ns + turns_ns, fits);
  check_has_pinned(fits);
}

/* ---- a history ---- */

static void begin(uint64_t seed) {
  memset(&run, 0, sizeof run);
  run.seed = seed;
  run.fair = seed % 2;
  run.unified = seed % 4 == 2;
  run.rests = seed % 8 == 4;
  actors_init(&them, seed, CARD);
  them.now_ns = 10 * NS_PER_S; /* looks may be some seconds old */
  them.letter_ns = 2 * NS_PER_MS;
  them.drain_ns = DRAIN_NS;
  them.bytes_per_s = BYTES_PER_S;
  them.piece_bytes = (1 + random_below(4)) * 256 * MIB;
  them.idle_percent = 30;
  them.busy_percent = run.rests ? 50 : 80;
  them.on_action = on_action;
  them.on_event = on_event;
  them.on_step = on_step;
  them.fail = fail_about;
  them.scheduler.grace_ns = 100 * NS_PER_MS;
  them.scheduler.settle_ns = random_below(2) * 5 * NS_PER_MS;
  them.scheduler.overhead_ns = OVERHEAD_NS;
  them.scheduler.host_memory_bytes = 3 * CARD;
  them.scheduler.deferred = seed % 8 >= 6; /* some plans are made for several events */
  for (uint32_t i = 0; i < USERS; i++)
    scheduler_add_share(&them.gpu, &users[i], i, SCHED_WEIGHT, 0);
  them.gpu.settings.tq_ns = 10 * NS_PER_MS;
  them.gpu.settings.mode = run.fair ? (enum gs_mode)random_below(2) : (enum gs_mode)random_below(3);
}

static uint64_t run_history(uint64_t seed) {
  begin(seed);
  for (int step = 0; step < STEPS; step++) {
    if (chance(5) && !run.fair)
      change_settings();
    else if (chance(10))
      look();
    else
      act((int)random_below(ACTORS));
    actors_pass(&them, random_below(chance(run.rests ? 20 : 3) ? 2 * SCHED_IDLE_NS : 8 * NS_PER_MS));
  }
  settle();
  return run.digest;
}

static uint64_t number(int argc, char **argv, int place, const char *variable, uint64_t otherwise) {
  const char *text = argc > place ? argv[place] : getenv(variable);
  return text ? strtoull(text, NULL, 0) : otherwise;
}

int main(int argc, char **argv) {
  uint64_t seed = number(argc, argv, 1, "GPUSHARE_SEED", clock_now_ns());
  uint64_t runs = number(argc, argv, 2, "GPUSHARE_RUNS", 1000);
  printf("seed %llu, %llu runs\n", (unsigned long long)seed, (unsigned long long)runs);
  fflush(stdout);
  for (uint64_t i = 0; i < runs; i++) {
    uint64_t decisions = run_history(seed + i);
    if (i % AGAIN == 0 && run_history(seed + i) != decisions)
      fail_all("the same history has led to other decisions");
  }
  return EXIT_SUCCESS;
}
