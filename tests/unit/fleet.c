/* fleet.c - clients on several GPUs, some of them in gangs, on a clock of their own. */
#include "fleet.h"

#include <string.h>

#include "common/splitmix.h"
#include "played_clock.h"
#include "suite.h"

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

uint64_t fleet_random_below(struct fleet *fleet, uint64_t bound) {
  return splitmix_next(&fleet->random) % bound;
}

void fleet_init(struct fleet *fleet, uint64_t seed) {
  memset(fleet, 0, sizeof *fleet);
  fleet->seed = fleet->random = seed;
  fleet->now_ns = NS_PER_S;
  scheduler_init(&fleet->scheduler);
  fleet->scheduler.defaults.mode = GS_MODE_ON;
  fleet->scheduler.defaults.tq_ns = FLEET_TQ_NS;
  change_init(&fleet->change);
  for (int g = 0; g < FLEET_GPUS; g++) {
    uint8_t uuid[GS_UUID_SIZE] = {1, (uint8_t)g};
    scheduler_add_gpu(&fleet->scheduler, &fleet->gpus[g], uuid, "card", FLEET_CARD);
  }
  for (int gang = 0; gang < FLEET_GANGS; gang++)
    gang_init(&fleet->gangs[gang]);
}

/* ---- decisions ---- */

static void digest(struct fleet *fleet, uint64_t value) {
  fleet->digest = (fleet->digest ^ value) * UINT64_C(0x100000001b3);
}

static void digest_action(struct fleet *fleet, const struct sched_action *action) {
  digest(fleet, action->type);
  digest(fleet, action->job->id);
  digest(fleet, action->epoch);
  digest(fleet, action->room_bytes);
  digest(fleet, action->room_seq);
}

static uint64_t soon_ns(struct fleet *fleet) {
  return fleet->now_ns + 1 + fleet_random_below(fleet, FLEET_REPLY_NS);
}

static void plan_reply(struct fleet *fleet, struct fleet_client *client, enum fleet_reply reply) {
  client->reply = reply;
  client->reply_ns = soon_ns(fleet);
}

static void take_room(struct fleet *fleet, struct fleet_client *client, const struct sched_action *action) {
  client->room_bytes = action->room_bytes;
  client->room_seq = action->room_seq;
  client->target_bytes = action->target_bytes;
  client->move_ns = soon_ns(fleet);
  if (client->runs) /* what it allocates is there at once */
    client->resident_bytes =
        max_u64(client->resident_bytes, min_u64(client->room_bytes, client->job.used_bytes));
}

/* Who runs has all that its room allows, and nothing leaves. */
static uint64_t goal_bytes(const struct fleet_client *client) {
  uint64_t bytes = min_u64(client->room_bytes, client->job.used_bytes);
  return client->runs ? max_u64(bytes, client->resident_bytes) : bytes;
}

/* It has another amount of memory. */
static void have_memory(struct fleet *fleet, struct fleet_client *client) {
  client->resident_bytes = min_u64(client->resident_bytes, client->job.used_bytes);
  if (client->runs)
    client->resident_bytes = goal_bytes(client);
  client->move_ns = soon_ns(fleet);
}

static void require(const struct fleet *fleet, bool right, const char *what) {
  if (!right) /* an assertion that holds takes longer than an event */
    ck_abort_msg("seed %lu, at %lu ns: %s", fleet->seed, fleet->now_ns, what);
}

/* However late it is told. */
static void check_turn(const struct fleet *fleet, const struct sched_action *action) {
  enum gs_job_state state = action->job->state;
  const struct fleet_client *client = action->job->owner;
  bool stops = state == GS_JOB_DROPPING || state == GS_JOB_BYPASSED;
  if (action->type == SCHED_TELL_LOCK_OK)
    require(fleet, action->epoch > client->epoch && (stops || state == GS_JOB_HOLDING),
            "a turn that is over");
  if (action->type == SCHED_TELL_DROP_LOCK)
    require(fleet, action->epoch == client->epoch && stops, "an end of another turn");
}

static void obey(struct fleet *fleet, const struct sched_action *action) {
  struct fleet_client *client = action->job->owner;
  digest_action(fleet, action);
  check_turn(fleet, action);
  if (action->type == SCHED_TELL_LOCK_OK || action->type == SCHED_TELL_DROP_LOCK ||
      action->type == SCHED_TELL_ROOM)
    take_room(fleet, client, action);
  if (action->type == SCHED_TELL_MEMORY)
    have_memory(fleet, client);
  if (action->type == SCHED_TELL_LOCK_OK) {
    client->epoch = action->epoch;
    plan_reply(fleet, client, FLEET_REPLY_RUN);
  } else if (action->type == SCHED_TELL_DROP_LOCK) {
    plan_reply(fleet, client, FLEET_REPLY_STOP);
  }
}

/* Before it says something, and after that. */
static void hear(struct fleet *fleet, struct fleet_client *client) {
  struct sched_action action;
  while (fleet->late && client->there && change_next_of(&client->job, &action))
    obey(fleet, &action);
}

void fleet_execute(struct fleet *fleet) {
  struct sched_action action;
  if (fleet->scheduler.deferred && fleet->scheduler.dirty && fleet_random_below(fleet, 2))
    scheduler_plan(&fleet->scheduler, &fleet->change);
  for (uint64_t jobs = fleet->late ? fleet_random_below(fleet, 3) : 0; jobs > 0; jobs--)
    if (change_first(&fleet->change))
      hear(fleet, change_first(&fleet->change)->owner);
  while (!fleet->late && change_next(&fleet->change, &action))
    obey(fleet, &action);
}

static void execute_for(struct fleet *fleet, struct fleet_client *client) {
  hear(fleet, client);
  fleet_execute(fleet);
}

/* ---- clients ---- */

void fleet_request(struct fleet *fleet, int i) {
  hear(fleet, &fleet->clients[i]);
  scheduler_request(&fleet->clients[i].job, fleet->now_ns, &fleet->change);
  execute_for(fleet, &fleet->clients[i]);
}

static bool has_enough(const struct fleet_client *client) {
  const struct sched_job *job = &client->job;
  return client->resident_bytes >= (job->managed ? client->target_bytes : job->used_bytes);
}

static bool can_reply(const struct fleet_client *client) {
  if (!client->there || client->hangs || client->reply == FLEET_REPLY_NONE)
    return false;
  return client->reply != FLEET_REPLY_RUN || has_enough(client);
}

static void reply(struct fleet *fleet, int i) {
  struct fleet_client *client = &fleet->clients[i];
  hear(fleet, client);
  enum fleet_reply what = client->reply;
  if (fleet->late && !can_reply(client)) /* of what it has heard it is something else now */
    return;
  client->reply = FLEET_REPLY_NONE;
  client->runs = what == FLEET_REPLY_RUN;
  client->move_ns = soon_ns(fleet);
  if (client->runs)
    scheduler_active(&client->job, &(struct sched_active){.epoch = client->epoch}, fleet->now_ns,
                     &fleet->change);
  else
    scheduler_release(&client->job, &(struct sched_release){.epoch = client->epoch}, fleet->now_ns,
                      &fleet->change);
  execute_for(fleet, client);
  if (what == FLEET_REPLY_STOP && client->wants)
    fleet_request(fleet, i);
}

void fleet_yield(struct fleet *fleet, int i) {
  struct fleet_client *client = &fleet->clients[i];
  hear(fleet, client);
  if (!client->runs || client->job.state != GS_JOB_HOLDING)
    return;
  client->reply = FLEET_REPLY_STOP;
  reply(fleet, i);
}

/* ---- memory ---- */

static bool can_move(const struct fleet_client *client) {
  return client->there && !client->hangs &&
         (client->resident_bytes != goal_bytes(client) || client->said_seq != client->room_seq);
}

static void move(struct fleet *fleet, struct fleet_client *client) {
  hear(fleet, client);
  struct sched_residence residence = {.resident_bytes = goal_bytes(client), .room_seq = client->room_seq};
  client->resident_bytes = residence.resident_bytes;
  client->said_seq = client->room_seq;
  scheduler_resident(&client->job, &residence, fleet->now_ns, &fleet->change);
  execute_for(fleet, client);
}

void fleet_set_memory(struct fleet *fleet, int i, uint64_t used_bytes) {
  struct fleet_client *client = &fleet->clients[i];
  uint64_t granted_bytes;
  hear(fleet, client);
  if (used_bytes <= client->job.used_bytes)
    scheduler_memory_report(&client->job, used_bytes, 0, fleet->now_ns, &fleet->change);
  else if (scheduler_memory_await(&client->job, used_bytes, 0, fleet->now_ns, &fleet->change) ||
           scheduler_memory_request(&client->job, used_bytes, 0, fleet->now_ns, &fleet->change,
                                    &granted_bytes) != 0) {
    execute_for(fleet, client);
    return;
  }
  have_memory(fleet, client);
  execute_for(fleet, client);
}

/* ---- lives ---- */

void fleet_come(struct fleet *fleet, int i, int gpu, int gang, uint64_t used_bytes, uint32_t flags) {
  struct fleet_client *client = &fleet->clients[i];
  struct sched_attach attach = {
      .id = (uint32_t)i + 1, .owner = client, .used_bytes = used_bytes, .flags = flags};
  *client = (struct fleet_client){.there = true, .wants = true, .gang = gang};
  fleet->alone_ns[i] = 0;
  scheduler_attach(&fleet->gpus[gpu], &client->job, &attach, fleet->now_ns, &fleet->change);
  execute_for(fleet, client);
  if (gang >= 0)
    fleet_join(fleet, i, gang);
  fleet_request(fleet, i);
}

void fleet_set_hanging(struct fleet *fleet, int i, bool hangs) { fleet->clients[i].hangs = hangs; }

void fleet_join(struct fleet *fleet, int i, int gang) {
  struct fleet_client *client = &fleet->clients[i];
  hear(fleet, client);
  client->gang = gang;
  struct sched_gang *joined = gang < 0 ? NULL : &fleet->gangs[gang];
  ck_assert(scheduler_join(&client->job, joined, fleet->now_ns, &fleet->change));
  execute_for(fleet, client);
}

void fleet_die(struct fleet *fleet, int i) {
  fleet->clients[i].there = false;
  scheduler_detach(&fleet->clients[i].job, fleet->now_ns, &fleet->change);
  memset(&fleet->clients[i].job, 0xa5, sizeof fleet->clients[i].job); /* it is not the scheduler's any more */
  fleet_execute(fleet);
}

bool fleet_has_member(const struct fleet *fleet, int gang, int gpu) {
  for (int i = 0; i < FLEET_JOBS; i++) {
    const struct fleet_client *client = &fleet->clients[i];
    if (client->there && client->gang == gang && client->job.gpu == &fleet->gpus[gpu])
      return true;
  }
  return false;
}

/* ---- what must always hold ---- */

/* In mode on one is alone; otherwise those that hold fit beside each other. */
static void check_holders(const struct fleet *fleet, const struct sched_gpu *gpu) {
  uint64_t bytes = 0;
  int count = 0;
  for (int i = 0; i < FLEET_JOBS; i++) {
    const struct fleet_client *client = &fleet->clients[i];
    const struct sched_job *job = &client->job;
    if (!client->there || job->gpu != gpu || job->state != GS_JOB_HOLDING)
      continue;
    count++;
    bytes += job->used_bytes;
  }
  require(fleet, gpu->settings.mode != GS_MODE_ON || count <= 1, "several hold a GPU in mode on");
  require(fleet, !gpu->serialized || count <= 1 || bytes <= sched_gpu_usable_bytes(gpu),
          "several hold a GPU, and their memory does not fit together");
}

/* Of the gangs that wait for the GPU one has claimed it, at most. */
static void check_claims(const struct fleet *fleet, const struct sched_gpu *gpu) {
  const struct sched_gang *claimant = NULL;
  list_each(node, &gpu->queue) {
    const struct sched_gang *gang = list_entry(node, struct sched_job, waiting)->gang;
    if (!gang || !gang->claims)
      continue;
    require(fleet, !claimant || claimant == gang, "two gangs claim one GPU");
    claimant = gang;
  }
}

static bool is_owed(const struct sched_gpu *gpu) {
  return !list_empty(&gpu->dropping) || !list_empty(&gpu->overdue);
}

/* For a gang, which waits for somebody to stop there or on another GPU. */
static bool is_kept(const struct fleet *fleet, const struct sched_gpu *gpu) {
  bool claimed = false, owed = false;
  list_each(node, &gpu->queue) {
    const struct sched_gang *gang = list_entry(node, struct sched_job, waiting)->gang;
    claimed |= gang && gang->claims;
  }
  for (int g = 0; g < FLEET_GPUS; g++)
    owed |= is_owed(&fleet->gpus[g]);
  return claimed && owed;
}

/* Nobody who needs no other GPU waits for one that is free. */
static void check_conserving(const struct fleet *fleet, const struct sched_gpu *gpu) {
  if (!gpu->serialized || gpu->holder_count > 0 || is_owed(gpu) || is_kept(fleet, gpu))
    return;
  list_each(node, &gpu->queue) {
    const struct sched_job *job = list_entry(node, struct sched_job, waiting);
    require(fleet, job->gang || sched_job_too_big(job), "a GPU is free, and a single job waits for it");
  }
}

/* Who waits for memory has none, and others have some. */
static void check_entrants(const struct fleet *fleet) {
  uint64_t bytes = 0;
  int entrants = 0;
  for (int i = 0; i < FLEET_JOBS; i++) {
    const struct sched_job *job = &fleet->clients[i].job;
    if (!fleet->clients[i].there)
      continue;
    bool enters = sched_job_enters(job);
    require(fleet, !enters || job->used_bytes == 0, "one that has memory waits for its first");
    entrants += enters;
    bytes += enters ? 0 : sched_job_expected_bytes(job);
  }
  require(fleet, entrants == (int)fleet->scheduler.entrant_count,
          "those that wait for memory are miscounted");
  require(fleet, entrants == 0 || bytes > 0, "jobs wait for memory that nobody has");
}

static void check(const struct fleet *fleet) {
  check_entrants(fleet);
  require(fleet, scheduler_deadline_ns(&fleet->scheduler) > fleet->now_ns, "a deadline that is never over");
  require(fleet, clock_is_right(&fleet->scheduler), "a change of a deadline is missed");
  for (int g = 0; g < FLEET_GPUS; g++) {
    check_holders(fleet, &fleet->gpus[g]);
    check_claims(fleet, &fleet->gpus[g]);
    check_conserving(fleet, &fleet->gpus[g]);
  }
}

/* ---- time ---- */

#define TOLD_NS (NS_PER_MS / 5) /* from one client that hears to the next */
#define LEFT_MAX 1000

static bool gang_runs(const struct fleet *fleet, int gang) {
  for (int i = 0; i < FLEET_JOBS; i++)
    if (fleet->clients[i].there && fleet->clients[i].gang == gang && !fleet->clients[i].runs)
      return false;
  return true;
}

static void account(struct fleet *fleet, uint64_t ns) {
  for (int i = 0; i < FLEET_JOBS; i++) {
    struct fleet_client *client = &fleet->clients[i];
    if (!client->there || !client->runs)
      continue;
    fleet->alone_ns[i] += ns;
    if (client->gang < 0 || gang_runs(fleet, client->gang))
      client->ran_ns += ns;
  }
}

static uint64_t next_ns(const struct fleet *fleet) {
  uint64_t next = scheduler_deadline_ns(&fleet->scheduler);
  if (change_first(&fleet->change))
    next = min_u64(next, fleet->now_ns + TOLD_NS);
  for (int i = 0; i < FLEET_JOBS; i++) {
    const struct fleet_client *client = &fleet->clients[i];
    if (can_reply(client))
      next = min_u64(next, client->reply_ns);
    if (can_move(client))
      next = min_u64(next, client->move_ns);
  }
  return max_u64(next, fleet->now_ns);
}

static void act(struct fleet *fleet, int i) {
  struct fleet_client *client = &fleet->clients[i];
  if (can_reply(client) && client->reply_ns <= fleet->now_ns)
    reply(fleet, i);
  if (can_move(client) && client->move_ns <= fleet->now_ns)
    move(fleet, client);
}

void fleet_pass(struct fleet *fleet, uint64_t ns) {
  uint64_t end_ns = fleet->now_ns + ns;
  for (uint64_t next; (next = next_ns(fleet)) <= end_ns;) {
    account(fleet, next - fleet->now_ns);
    fleet->now_ns = next;
    if (scheduler_deadline_ns(&fleet->scheduler) <= fleet->now_ns) {
      scheduler_expire(&fleet->scheduler, fleet->now_ns, &fleet->change);
      fleet_execute(fleet);
    }
    if (change_first(&fleet->change))
      hear(fleet, change_first(&fleet->change)->owner);
    for (int i = 0; i < FLEET_JOBS; i++)
      act(fleet, i);
    fleet->left =
        fleet->bounded && scheduler_deadline_ns(&fleet->scheduler) <= fleet->now_ns ? fleet->left + 1 : 0;
    require(fleet, fleet->left < LEFT_MAX, "what was left for later is never done");
    if (!fleet->left)
      check(fleet);
  }
  account(fleet, end_ns - fleet->now_ns);
  fleet->now_ns = end_ns;
}
