/* world.c - a scheduler with GPUs, jobs and a clock, for tests. */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void say(struct world *world, const char *format, ...) {
  size_t length = strlen(world->said);
  va_list args;
  if (length && length + 1 < sizeof world->said)
    world->said[length++] = ' ';
  va_start(args, format);
  vsnprintf(world->said + length, sizeof world->said - length, format, args);
  va_end(args);
}

static void say_action(struct world *world, const struct sched_action *action) {
  unsigned id = action->job->id;
  unsigned long epoch = action->epoch;
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
    say(world, "%u:ok(%lu)", id, epoch);
    break;
  case SCHED_TELL_LOCK_WANTED:
    say(world, "%u:wanted(%lu)", id, epoch);
    break;
  case SCHED_TELL_DROP_LOCK:
    say(world, "%u:drop(%lu,%g)", id, epoch, (double)action->evict_bytes / GIB);
    break;
  case SCHED_NOTE_BYPASSED:
    say(world, "%u:bypassed", id);
    break;
  case SCHED_NOTE_OVERDUE:
    say(world, "%u:overdue", id);
    break;
  }
}

static void hear(struct world *world) {
  struct sched_action action;
  while (change_next(&world->change, &action))
    say_action(world, &action);
}

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

void world_attach_at(struct world *world, int gpu, int job, double used_gib, uint32_t flags) {
  struct sched_attach attach = {.id = (uint32_t)job, .used_bytes = bytes(used_gib), .flags = flags};
  scheduler_attach(&world->scheduler, &world->gpus[gpu], &world->jobs[job], &attach, world->now_ns,
                   &world->change);
  hear(world);
}

void world_attach(struct world *world, int job, double used_gib, uint32_t flags) {
  world_attach_at(world, 0, job, used_gib, flags);
}

void world_detach(struct world *world, int job) {
  scheduler_detach(&world->scheduler, &world->jobs[job], world->now_ns, &world->change);
  memset(&world->jobs[job], 0xa5, sizeof world->jobs[job]); /* it is not the scheduler's any more */
  hear(world);
}

void world_request(struct world *world, int job) {
  scheduler_request(&world->scheduler, &world->jobs[job], world->now_ns, &world->change);
  hear(world);
}

void world_release_with(struct world *world, int job, uint64_t epoch, double evicted_gib) {
  struct sched_release release = {.epoch = epoch, .drain_ns = NS_PER_MS, .evict_bytes = bytes(evicted_gib)};
  scheduler_release(&world->scheduler, &world->jobs[job], &release, world->now_ns, &world->change);
  hear(world);
}

void world_release(struct world *world, int job) {
  world_release_with(world, job, world->jobs[job].epoch, 0);
}

void world_memory(struct world *world, int job, double total_gib) {
  scheduler_memory_report(&world->scheduler, &world->jobs[job], bytes(total_gib), 0, world->now_ns,
                          &world->change);
  hear(world);
}

void world_set_mode(struct world *world, enum gs_mode mode) {
  scheduler_set_mode(&world->scheduler, NULL, mode, world->now_ns, &world->change);
  hear(world);
}

void world_set_tq(struct world *world, uint64_t tq_ns) {
  scheduler_set_tq(&world->scheduler, NULL, tq_ns, world->now_ns, &world->change);
  hear(world);
}

void world_set_capacity(struct world *world, double gib) {
  scheduler_set_capacity(&world->scheduler, NULL, bytes(gib), world->now_ns, &world->change);
  hear(world);
}

void world_pass(struct world *world, uint64_t ns) {
  uint64_t end_ns = world->now_ns + ns;
  uint64_t due_ns;
  while ((due_ns = scheduler_deadline_ns(&world->scheduler)) <= end_ns) {
    world->now_ns = due_ns > world->now_ns ? due_ns : world->now_ns;
    scheduler_expire(&world->scheduler, world->now_ns, &world->change);
    hear(world);
  }
  world->now_ns = end_ns;
}

const char *world_said(struct world *world) {
  static char said[sizeof world->said];
  memcpy(said, world->said, sizeof said);
  world->said[0] = '\0';
  return said;
}
