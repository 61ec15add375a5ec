/*
 * core.c - the daemon's own core (daemon/core) as the policy, with clients that cost what hand-overs cost.
 *
 * A client does as libunified: it asks for the GPU when its job arrives, drains when told to stop, moves its
 * memory towards its room whenever it does not run, piece by piece, and runs when it holds and has everything
 * on the card. Its memory is in host memory when it arrives, so the first turn pays for bringing it in.
 * Copies share the bus, each direction by itself. Messages take no time: they take 10 us, hand-overs 100 ms.
 *
 * Speeds: RESULTS.md, measured on an H200.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "core/scheduler.h"
#include "trace/trace.h"

#define HANDOVER_BYTES_PER_US 42000 /* each way, while both ways are busy and nobody runs */
#define HIDDEN_BYTES_PER_US 50000   /* behind somebody's turn */
#define DRAIN_NS (20 * NS_PER_MS)   /* what a turn's end may take at p99 */
#define PIECE_BYTES (UINT64_C(256) << 20)
#define TQ_NS (20 * NS_PER_S)

/* The core takes the time 0 for none. */
#define ORIGIN_NS NS_PER_S

enum move { MOVE_NONE, MOVE_OUT, MOVE_IN };

struct client {
  struct sched_job job;
  struct machine_job *machine_job;
  bool present, holding, draining;
  uint64_t epoch;
  uint64_t drained_ns;
  uint64_t resident_bytes; /* a piece that comes in counts from the start */
  uint64_t room_bytes, room_seq;
  bool lowered; /* its room is less than the one before, which nobody has been told it knows */
  uint64_t evicted_bytes, restored_bytes; /* since it last said so */
  enum move move;
  uint64_t piece_bytes, moved_ns;
};

struct core {
  struct scheduler scheduler;
  struct sched_gpu gpu;
  struct sched_change change;
  struct client clients[TRACE_JOBS];
  unsigned count;
  uint64_t now_ns;
};

struct rules {
  enum gs_mode mode;
  enum gs_policy policy;
};

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

static bool runs(const struct client *client) { return client->machine_job->runs; }

/* ---- what the core tells clients ---- */

static void take_room(struct client *client, const struct sched_action *action) {
  client->lowered |= client->room_seq > 0 && action->room_bytes < client->room_bytes;
  client->room_bytes = action->room_bytes;
  client->room_seq = action->room_seq;
}

static void obey(struct core *core, const struct sched_action *action) {
  struct client *client = action->job->owner;
  switch (action->type) {
  case SCHED_TELL_LOCK_OK:
    take_room(client, action);
    client->holding = true;
    client->epoch = action->epoch;
    break;
  case SCHED_TELL_DROP_LOCK:
    take_room(client, action);
    client->draining = true;
    client->drained_ns = core->now_ns + (runs(client) ? DRAIN_NS : 0);
    break;
  case SCHED_TELL_ROOM:
    take_room(client, action);
    break;
  default:
    break;
  }
}

static void execute(struct core *core) {
  struct sched_action action;
  while (change_next(&core->change, &action))
    obey(core, &action);
}

/* ---- what clients tell the core ---- */

static void say_resident(struct core *core, struct client *client) {
  struct sched_residence residence = {.resident_bytes = client->resident_bytes,
                                      .room_seq = client->room_seq,
                                      .evicted_bytes = client->evicted_bytes,
                                      .restored_bytes = client->restored_bytes};
  client->evicted_bytes = client->restored_bytes = 0;
  client->lowered = false;
  scheduler_resident(&client->job, &residence, core->now_ns, &core->change);
  execute(core);
}

static void open_gate(struct core *core, struct client *client) {
  struct sched_active active = {.epoch = client->epoch};
  client->machine_job->runs = true;
  scheduler_active(&client->job, &active, core->now_ns, &core->change);
  execute(core);
}

static void request(struct core *core, struct client *client) {
  scheduler_request(&client->job, core->now_ns, &core->change);
  execute(core);
}

static void release(struct core *core, struct client *client) {
  struct sched_release done = {.epoch = client->epoch, .drain_ns = DRAIN_NS};
  client->holding = client->draining = client->machine_job->runs = false;
  scheduler_release(&client->job, &done, core->now_ns, &core->change);
  execute(core);
  request(core, client);
}

/* ---- moves ---- */

static uint64_t goal_bytes(const struct client *client) {
  return min_u64(client->room_bytes, client->machine_job->job->peak_bytes);
}

static bool is_complete(const struct client *client) {
  return client->resident_bytes == client->machine_job->job->peak_bytes;
}

static uint64_t bytes_per_us(const struct core *core, enum move move) {
  unsigned movers = 0;
  bool busy = false;
  for (unsigned i = 0; i < core->count; i++) {
    const struct client *client = &core->clients[i];
    movers += client->present && client->move == move;
    busy |= client->present && runs(client);
  }
  return (busy ? HIDDEN_BYTES_PER_US : HANDOVER_BYTES_PER_US) / movers;
}

static void begin_move(struct core *core, struct client *client) {
  uint64_t goal = goal_bytes(client), here = client->resident_bytes;
  client->move = here > goal ? MOVE_OUT : MOVE_IN;
  client->piece_bytes = min_u64(PIECE_BYTES, here > goal ? here - goal : goal - here);
  if (client->move == MOVE_IN)
    client->resident_bytes += client->piece_bytes;
  client->moved_ns = core->now_ns + 1 + client->piece_bytes * 1000 / bytes_per_us(core, client->move);
}

static void end_move(struct core *core, struct client *client) {
  if (client->move == MOVE_OUT) {
    client->resident_bytes -= client->piece_bytes;
    client->evicted_bytes += client->piece_bytes;
  } else {
    client->restored_bytes += client->piece_bytes;
  }
  client->move = MOVE_NONE;
  say_resident(core, client);
}

/* True: the client has begun or said something. */
static bool work(struct core *core, struct client *client) {
  if (!client->present || client->move != MOVE_NONE || client->draining || runs(client))
    return false;
  if (client->holding && is_complete(client))
    open_gate(core, client);
  else if (client->resident_bytes != goal_bytes(client))
    begin_move(core, client);
  else if (client->lowered)
    say_resident(core, client);
  else
    return false;
  return true;
}

/* The card has no more than it has, whatever the core says. */
static void check_card(const struct core *core) {
  uint64_t sum_bytes = 0;
  for (unsigned i = 0; i < core->count; i++)
    sum_bytes += core->clients[i].present ? core->clients[i].resident_bytes : 0;
  if (sum_bytes > GPU_BYTES) {
    fprintf(stderr, "bench_trace: %llu bytes on a card of %llu\n", (unsigned long long)sum_bytes,
            (unsigned long long)GPU_BYTES);
    abort();
  }
}

/* Until everybody waits for something. */
static void settle(struct core *core) {
  bool again;
  execute(core);
  do {
    again = false;
    for (unsigned i = 0; i < core->count; i++)
      again |= work(core, &core->clients[i]);
  } while (again);
  check_card(core);
}

/* ---- events ---- */

static void *begin(const void *rules) {
  static const uint8_t uuid[GS_UUID_SIZE] = {1};
  const struct rules *set = rules;
  struct core *core = calloc(1, sizeof *core);
  if (!core)
    abort();
  scheduler_init(&core->scheduler);
  core->scheduler.defaults.mode = set->mode;
  core->scheduler.defaults.tq_ns = TQ_NS;
  core->scheduler.defaults.policy = set->policy;
  change_init(&core->change);
  scheduler_add_gpu(&core->scheduler, &core->gpu, uuid, "card", GPU_BYTES);
  return core;
}

static void end(void *state) { free(state); }

/* Places in the order of arrival; once they are used up, that of a client that has gone. */
static struct client *place(struct core *core) {
  struct client *client = core->clients;
  if (core->count < TRACE_JOBS)
    return &core->clients[core->count++];
  while (client->present)
    client++;
  return client;
}

static void arrive(void *state, struct machine_job *job, uint64_t now_ns) {
  struct core *core = state;
  struct client *client = place(core);
  struct sched_attach attach = {.id = job->index + 1, .owner = client, .used_bytes = job->job->peak_bytes};
  core->now_ns = now_ns + ORIGIN_NS;
  *client = (struct client){.machine_job = job, .present = true};
  scheduler_attach(&core->gpu, &client->job, &attach, core->now_ns, &core->change);
  struct sched_terms terms = {.weight = SCHED_WEIGHT, .expected_ns = job->job->alone_ns};
  scheduler_set_terms(&client->job, &terms, core->now_ns, &core->change);
  execute(core);
  request(core, client);
  settle(core);
}

static void finish(void *state, struct machine_job *job, uint64_t now_ns) {
  struct core *core = state;
  struct client *client = core->clients;
  core->now_ns = now_ns + ORIGIN_NS;
  while (!client->present || client->machine_job != job)
    client++;
  client->present = false;
  scheduler_detach(&client->job, core->now_ns, &core->change);
  settle(core);
}

static uint64_t next_of(const struct client *client) {
  if (!client->present)
    return POLICY_NEVER;
  if (client->move != MOVE_NONE)
    return client->moved_ns;
  return client->draining ? client->drained_ns : POLICY_NEVER;
}

static uint64_t deadline_ns(const void *state) {
  const struct core *core = state;
  uint64_t deadline_ns = scheduler_deadline_ns(&core->scheduler);
  for (unsigned i = 0; i < core->count; i++)
    deadline_ns = min_u64(deadline_ns, next_of(&core->clients[i]));
  return deadline_ns == POLICY_NEVER ? POLICY_NEVER : deadline_ns - ORIGIN_NS;
}

static void expire(void *state, uint64_t now_ns) {
  struct core *core = state;
  core->now_ns = now_ns + ORIGIN_NS;
  if (scheduler_deadline_ns(&core->scheduler) <= core->now_ns)
    scheduler_expire(&core->scheduler, core->now_ns, &core->change);
  execute(core);
  for (unsigned i = 0; i < core->count; i++) {
    struct client *client = &core->clients[i];
    if (next_of(client) > core->now_ns)
      continue;
    if (client->move != MOVE_NONE)
      end_move(core, client);
    else
      release(core, client);
  }
  settle(core);
}

static const struct policy_engine engine = {.begin = begin,
                                            .end = end,
                                            .arrive = arrive,
                                            .finish = finish,
                                            .deadline_ns = deadline_ns,
                                            .expire = expire};

/* Salus runs one job at a time in all but PACK. Everybody declares how long it needs, as there. */
const struct policy_under_test core_policies[] = {
    {"fifo", &engine, &(const struct rules){.mode = GS_MODE_ON, .policy = GS_POLICY_FIFO}},
    {"srtf", &engine, &(const struct rules){.mode = GS_MODE_ON, .policy = GS_POLICY_SRTF}},
    {"pack", &engine, &(const struct rules){.mode = GS_MODE_AUTO, .policy = GS_POLICY_PACK}},
    {"fair", &engine, &(const struct rules){.mode = GS_MODE_ON, .policy = GS_POLICY_FAIR}},
    {"auto", &engine,
     &(const struct rules){.mode = GS_MODE_AUTO, .policy = GS_POLICY_FAIR}}, /* bench_cluster's */
    {0},
};
