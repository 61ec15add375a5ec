/* world.c - a scheduler with GPUs, jobs and a clock, for tests. */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "played_clock.h"

static void say(struct world *world, const char *format, ...) {
  size_t length = strlen(world->said);
  va_list args;
  if (length && length + 1 < sizeof world->said)
    world->said[length++] = ' ';
  va_start(args, format);
  vsnprintf(world->said + length, sizeof world->said - length, format, args);
  va_end(args);
}

static void say_turn(struct world *world, const char *what, const struct sched_action *action) {
  if (world->rooms_shown)
    say(world, "%u:%s(%lu,%g)", action->job->id, what, action->epoch, (double)action->room_bytes / GIB);
  else
    say(world, "%u:%s(%lu)", action->job->id, what, action->epoch);
}

static void say_wanted(struct world *world, const struct sched_action *action) {
  struct world_client *client = &world->clients[action->job->id];
  bool wanted = action->wanted;
  if (wanted && !(client->wanted && client->wanted_epoch == action->epoch))
    say(world, "%u:wanted(%lu)", action->job->id, (unsigned long)action->epoch);
  else if (!wanted)
    say(world, "%u:unwanted(%lu)", action->job->id, (unsigned long)action->epoch);
  client->wanted = wanted;
  client->wanted_epoch = action->epoch;
}

static void say_action(struct world *world, const struct sched_action *action) {
  unsigned id = action->job->id;
  switch (action->type) {
  case SCHED_TELL_ATTACHED:
    say(world, "%u:attached", id);
    break;
  case SCHED_TELL_CAPACITY:
    say(world, "%u:capacity", id);
    break;
  case SCHED_TELL_SCHED:
    say(world, action->job->gpu->serialized ? "%u:on" : "%u:off", id);
    break;
  case SCHED_TELL_LOCK_OK:
    say_turn(world, "ok", action);
    break;
  case SCHED_TELL_LOCK_WANTED:
    say_wanted(world, action);
    break;
  case SCHED_TELL_DROP_LOCK:
    say_turn(world, "drop", action);
    break;
  case SCHED_TELL_ROOM:
    if (world->rooms_shown)
      say(world, "%u:room(%g)", id, (double)action->room_bytes / GIB);
    break;
  case SCHED_TELL_MEMORY:
    if (action->granted_bytes)
      say(world, "%u:memory(%g)", id, (double)action->granted_bytes / GIB);
    else
      say(world, "%u:refused", id);
    break;
  case SCHED_NOTE_BYPASSED:
    say(world, "%u:bypassed", id);
    break;
  case SCHED_NOTE_OVERDUE:
    say(world, "%u:overdue", id);
    break;
  case SCHED_NOTE_STAYS:
    say(world, "%u:stays", id);
    break;
  case SCHED_NOTE_TOO_BIG:
    say(world, "%u:toobig", id);
    break;
  }
}

/* ---- the clients' memory ---- */

static void obey(struct world *world, const struct sched_action *action) {
  struct world_client *client = &world->clients[action->job->id];
  bool grant = action->type == SCHED_TELL_LOCK_OK;
  if (!grant && action->type != SCHED_TELL_DROP_LOCK && action->type != SCHED_TELL_ROOM)
    return;
  client->room_bytes = action->room_bytes;
  client->room_seq = action->room_seq;
  client->target_bytes = action->target_bytes;
  if (grant) {
    client->epoch = action->epoch;
    client->holds = true;
    client->active = false;
  }
}

static void hear(struct world *world) {
  struct sched_action action;
  while (change_next(&world->change, &action)) {
    say_action(world, &action);
    obey(world, &action);
  }
}

static void tell_resident(struct world *world, int id, uint64_t resident_bytes) {
  struct world_client *client = &world->clients[id];
  uint64_t before_bytes = client->resident_bytes;
  uint64_t left_bytes = resident_bytes < before_bytes ? before_bytes - resident_bytes : 0;
  uint64_t spared_bytes = client->clean && client->has_copies ? left_bytes : 0;
  struct sched_residence residence = {.resident_bytes = resident_bytes,
                                      .room_seq = client->room_seq,
                                      .evicted_bytes = left_bytes - spared_bytes,
                                      .restored_bytes =
                                          resident_bytes > before_bytes ? resident_bytes - before_bytes : 0,
                                      .spared_bytes = spared_bytes};
  client->has_copies |= left_bytes > 0;
  client->copied_bytes += residence.evicted_bytes + residence.restored_bytes;
  client->resident_bytes = resident_bytes;
  client->said_seq = client->room_seq;
  scheduler_resident(&world->jobs[id], &residence, world->now_ns, &world->change);
  hear(world);
}

/* Moves what there is to move. True if it has said something. */
static bool move(struct world *world, int id) {
  struct world_client *client = &world->clients[id];
  const struct sched_job *job = &world->jobs[id];
  uint64_t bytes = client->room_bytes < job->used_bytes ? client->room_bytes : job->used_bytes;
  if (client->room_bytes >= job->pinned_bytes || client->pinned_bytes > job->pinned_bytes)
    client->pinned_bytes = job->pinned_bytes;
  bytes = bytes > client->pinned_bytes ? bytes : client->pinned_bytes;
  if (client->active || client->cramped) /* what it allocates is there, and nothing leaves */
    bytes = bytes > client->resident_bytes ? bytes : client->resident_bytes;
  if (bytes == client->resident_bytes && client->said_seq == client->room_seq)
    return false;
  tell_resident(world, id, bytes);
  return true;
}

static void make_active(struct world *world, int id) {
  struct world_client *client = &world->clients[id];
  client->active = true;
  scheduler_active(&world->jobs[id], &(struct sched_active){.epoch = client->epoch}, world->now_ns,
                   &world->change);
  hear(world);
}

static bool begin(struct world *world, int id) {
  struct world_client *client = &world->clients[id];
  const struct sched_job *job = &world->jobs[id];
  if (!client->holds || client->active ||
      client->resident_bytes < (job->managed ? client->target_bytes : job->used_bytes))
    return false;
  make_active(world, id);
  return true;
}

static void settle(struct world *world) {
  hear(world);
  for (int id = 1; id <= WORLD_JOBS; id++) {
    const struct world_client *client = &world->clients[id];
    if (client->there && !client->stuck && (move(world, id) || begin(world, id)))
      id = 0; /* from the beginning: it may concern anybody */
  }
}

/* ---- events ---- */

void world_init(struct world *world, enum gs_mode mode) {
  memset(world, 0, sizeof *world);
  scheduler_init(&world->scheduler);
  change_init(&world->change);
  world->now_ns = 1000 * NS_PER_S;
  world->scheduler.defaults.mode = mode;
  world->scheduler.settle_ns = 0;
  for (int i = 0; i < WORLD_GPUS; i++) {
    uint8_t uuid[GS_UUID_SIZE] = {(uint8_t)(i + 1)};
    scheduler_add_gpu(&world->scheduler, &world->gpus[i], uuid, "card", WORLD_CARD_GIB * GIB);
  }
}

static uint64_t bytes(double gib) { return (uint64_t)(gib * GIB); }

void world_attach_with(struct world *world, int gpu, int job, double used_gib, uint32_t flags,
                       const struct sched_terms *terms) {
  bool running = flags & GS_ATTACH_RUNNING;
  struct sched_attach attach = {
      .id = (uint32_t)job, .used_bytes = bytes(used_gib), .flags = flags, .terms = terms};
  attach.resident_bytes = running ? attach.used_bytes : 0;
  world->clients[job] = (struct world_client){.there = true,
                                              .stuck = world->clients[job].stuck,
                                              .cramped = world->clients[job].cramped,
                                              .holds = running,
                                              .active = running,
                                              .resident_bytes = attach.resident_bytes};
  scheduler_attach(&world->gpus[gpu], &world->jobs[job], &attach, world->now_ns, &world->change);
  settle(world);
}

void world_attach_at(struct world *world, int gpu, int job, double used_gib, uint32_t flags) {
  world_attach_with(world, gpu, job, used_gib, flags, NULL);
}

void world_attach(struct world *world, int job, double used_gib, uint32_t flags) {
  world_attach_at(world, 0, job, used_gib, flags);
}

void world_detach(struct world *world, int job) {
  scheduler_detach(&world->jobs[job], world->now_ns, &world->change);
  memset(&world->jobs[job], 0xa5, sizeof world->jobs[job]); /* it is not the scheduler's any more */
  world->clients[job].there = false;
  settle(world);
}

void world_request(struct world *world, int job) {
  scheduler_request(&world->jobs[job], world->now_ns, &world->change);
  settle(world);
}

static void release(struct world *world, int job, uint64_t epoch) {
  struct sched_release what = {.epoch = epoch, .drain_ns = NS_PER_MS};
  if (epoch == world->clients[job].epoch)
    world->clients[job].holds = world->clients[job].active = false;
  scheduler_release(&world->jobs[job], &what, world->now_ns, &world->change);
  hear(world);
}

void world_release_with(struct world *world, int job, uint64_t epoch) {
  release(world, job, epoch);
  settle(world);
}

void world_yield(struct world *world, int job) {
  release(world, job, world->jobs[job].epoch);
  world_request(world, job);
}

void world_release(struct world *world, int job) { world_release_with(world, job, world->jobs[job].epoch); }

void world_memory_pinned(struct world *world, int job, double total_gib, double pinned_gib) {
  struct sched_job *it = &world->jobs[job];
  uint64_t granted_bytes;
  if (bytes(total_gib) > it->reach_bytes)
    scheduler_memory_request(it, bytes(total_gib), bytes(pinned_gib), world->now_ns, &world->change,
                             &granted_bytes);
  else
    scheduler_memory_report(it, bytes(total_gib), bytes(pinned_gib), world->now_ns, &world->change);
  settle(world);
}

void world_memory(struct world *world, int job, double total_gib) {
  world_memory_pinned(world, job, total_gib, 0);
}

int world_ask(struct world *world, int job, double total_gib, double pinned_gib, uint64_t *granted_bytes) {
  int err = scheduler_memory_request(&world->jobs[job], bytes(total_gib), bytes(pinned_gib), world->now_ns,
                                     &world->change, granted_bytes);
  settle(world);
  return err;
}

bool world_await(struct world *world, int job, double total_gib, double pinned_gib) {
  bool waits = scheduler_memory_await(&world->jobs[job], bytes(total_gib), bytes(pinned_gib), world->now_ns,
                                      &world->change);
  settle(world);
  return waits;
}

void world_resident(struct world *world, int job, double gib) {
  tell_resident(world, job, bytes(gib));
  settle(world);
}

void world_active(struct world *world, int job) {
  make_active(world, job);
  settle(world);
}

void world_short(struct world *world, int job, double gib) {
  scheduler_short(&world->jobs[job], bytes(gib), world->now_ns, &world->change);
  settle(world);
}

void world_occupied(struct world *world, double gib) {
  scheduler_set_occupied(&world->gpus[0], bytes(gib), world->now_ns, world->now_ns, &world->change);
  settle(world);
}

void world_set_terms(struct world *world, int job, const struct sched_terms *terms) {
  scheduler_set_terms(&world->jobs[job], terms, world->now_ns, &world->change);
  settle(world);
}

void world_set_mode(struct world *world, enum gs_mode mode) {
  scheduler_set_mode(&world->scheduler, NULL, mode, world->now_ns, &world->change);
  settle(world);
}

void world_set_tq(struct world *world, uint64_t tq_ns) {
  scheduler_set_tq(&world->scheduler, NULL, tq_ns, world->now_ns, &world->change);
  settle(world);
}

void world_set_policy(struct world *world, enum gs_policy policy) {
  scheduler_set_policy(&world->scheduler, NULL, policy, world->now_ns, &world->change);
  settle(world);
}

void world_set_capacity(struct world *world, double gib) {
  scheduler_set_capacity(&world->scheduler, NULL, bytes(gib), world->now_ns, &world->change);
  settle(world);
}

void world_pass(struct world *world, uint64_t ns) {
  for (uint64_t end_ns = world->now_ns + ns;
       clock_goes_on(&world->scheduler, &world->now_ns, end_ns, &world->change);)
    settle(world);
}

const char *world_said(struct world *world) {
  static char said[sizeof world->said];
  memcpy(said, world->said, sizeof said);
  world->said[0] = '\0';
  return said;
}
