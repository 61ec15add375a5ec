/* actors.c - jobs that behave as libunified does, for simulations of one GPU. */
#include "actors.h"

#include <string.h>

#include "common/splitmix.h"

#define REPORT_BYTES (64 * MIB) /* moves of so much are told at once */

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

uint64_t actors_random_below(struct actors *actors, uint64_t bound) {
  return bound ? splitmix_next(&actors->random) % bound : 0;
}

bool actors_chance(struct actors *actors, unsigned percent) {
  return actors_random_below(actors, 100) < percent;
}

void actors_init(struct actors *actors, uint64_t seed, uint64_t card_bytes) {
  static const uint8_t uuid[GS_UUID_SIZE] = {1};
  memset(actors, 0, sizeof *actors);
  actors->random = seed;
  actors->now_ns = NS_PER_S;
  scheduler_init(&actors->scheduler);
  change_init(&actors->change);
  scheduler_add_gpu(&actors->scheduler, &actors->gpu, uuid, "card", card_bytes);
}

/* ---- decisions on their way to the actors ---- */

static void post(struct actors *actors, const struct sched_action *action) {
  int i = (int)action->job->id - 1;
  struct actor *actor = &actors->actors[i];
  if (actor->count == ACTOR_LETTERS)
    actors->fail("is told too much", i);
  uint64_t arrives_ns = actors->now_ns + actors_random_below(actors, actors->letter_ns);
  if (actor->count > 0) {
    const struct letter *last = &actor->letters[(actor->first + actor->count - 1) % ACTOR_LETTERS];
    arrives_ns = max_u64(arrives_ns, last->arrives_ns);
  }
  actor->letters[(actor->first + actor->count++) % ACTOR_LETTERS] =
      (struct letter){.what = action->type,
                      .arrives_ns = arrives_ns,
                      .epoch = action->epoch,
                      .room_bytes = action->room_bytes,
                      .room_seq = action->room_seq,
                      .target_bytes = action->target_bytes};
}

void actors_execute(struct actors *actors) {
  struct sched_action action;
  if (actors->scheduler.dirty && actors_chance(actors, 50))
    scheduler_plan(&actors->scheduler, &actors->change);
  while (change_next(&actors->change, &action)) {
    if (actors->on_action)
      actors->on_action(&action);
    if (action.type == SCHED_TELL_LOCK_OK || action.type == SCHED_TELL_LOCK_WANTED ||
        action.type == SCHED_TELL_DROP_LOCK || action.type == SCHED_TELL_ROOM)
      post(actors, &action);
  }
  if (actors->on_event && !actors->scheduler.dirty)
    actors->on_event();
}

/* ---- what actors tell ---- */

static void say_resident(struct actors *actors, int i) {
  struct actor *actor = &actors->actors[i];
  struct sched_residence residence = {.resident_bytes = actor->resident_bytes,
                                      .room_seq = actor->room_seq,
                                      .evicted_bytes = actor->evicted_bytes,
                                      .restored_bytes = actor->restored_bytes};
  actor->evicted_bytes = actor->restored_bytes = 0;
  actor->lowered = false;
  scheduler_resident(&actors->jobs[i], &residence, actors->now_ns, &actors->change);
  actors_execute(actors);
}

void actors_request(struct actors *actors, int i) {
  struct actor *actor = &actors->actors[i];
  actor->wants = true;
  if (!actor->attached || actor->holding || actor->requested)
    return;
  actor->requested = true;
  scheduler_request(&actors->jobs[i], actors->now_ns, &actors->change);
  actors_execute(actors);
}

static void begin_release(struct actors *actors, struct actor *actor) {
  if (actor->releasing)
    return;
  actor->releasing = true;
  actor->release_ns = actors->now_ns + actors_random_below(actors, actors->drain_ns);
}

static void end_release(struct actors *actors, int i) {
  struct actor *actor = &actors->actors[i];
  actor->holding = actor->open = actor->releasing = actor->requested = false;
  actor->wants = actors_chance(actors, actors->busy_percent);
  scheduler_release(&actors->jobs[i], &(struct sched_release){.epoch = actor->epoch}, actors->now_ns,
                    &actors->change);
  actors_execute(actors);
  if (actor->wants)
    actors_request(actors, i);
}

/* ---- memory ---- */

/* What it could have there: all but what can't leave and has not come. */
static uint64_t there_bytes(const struct actor *actor) { return actor->used_bytes - actor->awaited_bytes; }
static uint64_t pinned_there_bytes(const struct actor *actor) {
  return actor->pinned_bytes - actor->awaited_bytes;
}

/* Who runs has what it allocates on the card, as far as its room goes. Whoever waits for memory that can't
 * leave takes it when there is room; unified memory of a job that runs makes way for it. */
static void fill_room(struct actor *actor) {
  actor->resident_bytes =
      max_u64(min_u64(actor->resident_bytes, there_bytes(actor)), pinned_there_bytes(actor));
  uint64_t beside_bytes = actor->room_bytes - min_u64(actor->room_bytes, actor->awaited_bytes);
  if (actor->open && actor->managed && actor->awaited_bytes && actor->pinned_bytes <= actor->room_bytes &&
      actor->resident_bytes > beside_bytes) {
    actor->resident_bytes = beside_bytes;
    actor->lowered = true;
  }
  if (actor->awaited_bytes && actor->resident_bytes + actor->awaited_bytes <= actor->room_bytes) {
    actor->resident_bytes += actor->awaited_bytes;
    actor->awaited_bytes = 0;
  }
  if (actor->open)
    actor->resident_bytes = max_u64(actor->resident_bytes, min_u64(there_bytes(actor), actor->room_bytes));
}

/* What can leave makes way for what can't. */
static uint64_t goal_bytes(const struct actor *actor) {
  uint64_t movable_bytes =
      min_u64(actor->used_bytes, max_u64(actor->room_bytes, actor->pinned_bytes)) - actor->pinned_bytes;
  return movable_bytes + pinned_there_bytes(actor);
}

static bool has_enough(const struct actor *actor) {
  uint64_t enough_bytes =
      actor->managed ? min_u64(actor->target_bytes, there_bytes(actor)) : there_bytes(actor);
  return actor->resident_bytes >= enough_bytes;
}

static void open_gate(struct actors *actors, int i) {
  struct actor *actor = &actors->actors[i];
  struct sched_active active = {.epoch = actor->epoch};
  if (actor->restored_bytes > 0 || actor->evicted_bytes > 0)
    say_resident(actors, i);
  actor->open = true;
  actor->opened++;
  fill_room(actor);
  scheduler_active(&actors->jobs[i], &active, actors->now_ns, &actors->change);
  actors_execute(actors);
}

static unsigned movers(const struct actors *actors, enum actor_step step) {
  unsigned count = 0;
  for (int i = 0; i < ACTORS; i++)
    count += actors->actors[i].attached && actors->actors[i].step == step;
  return count;
}

static void begin_step(struct actors *actors, int i) {
  struct actor *actor = &actors->actors[i];
  uint64_t goal = goal_bytes(actor);
  actor->step = actor->resident_bytes > goal ? STEP_OUT : STEP_IN;
  uint64_t away_bytes = actor->step == STEP_OUT ? actor->resident_bytes - goal : goal - actor->resident_bytes;
  actor->step_bytes = min_u64(actors->piece_bytes, away_bytes);
  if (actor->step == STEP_IN)
    actor->resident_bytes += actor->step_bytes;
  uint64_t bytes_per_us = actors->bytes_per_s / 1000000 / movers(actors, actor->step);
  actor->step_ends_ns = actors->now_ns + 1 + actor->step_bytes * 1000 / bytes_per_us;
  if (actors->on_step)
    actors->on_step(i);
}

static void end_step(struct actors *actors, int i) {
  struct actor *actor = &actors->actors[i];
  if (actor->step == STEP_OUT) {
    actor->resident_bytes -= min_u64(actor->step_bytes, actor->resident_bytes);
    actor->evicted_bytes += actor->step_bytes;
    actor->out_bytes += actor->step_bytes;
  } else {
    actor->restored_bytes += actor->step_bytes;
    actor->in_bytes += actor->step_bytes;
  }
  actor->step = STEP_NONE;
  fill_room(actor); /* memory may have been freed meanwhile */
  if (actor->evicted_bytes + actor->restored_bytes >= REPORT_BYTES ||
      actor->resident_bytes == goal_bytes(actor))
    say_resident(actors, i);
}

static bool can_move(const struct actor *actor) {
  uint64_t goal = goal_bytes(actor);
  return actor->resident_bytes < goal || (actor->resident_bytes > goal && !actor->cramped);
}

/* The worker's loop. False: there is nothing to do. */
static bool work(struct actors *actors, int i) {
  struct actor *actor = &actors->actors[i];
  if (actor->releasing)
    return false;
  if (actor->holding && !actor->open && has_enough(actor))
    open_gate(actors, i);
  else if (!actor->open && can_move(actor))
    begin_step(actors, i);
  else if (actor->lowered)
    say_resident(actors, i);
  else
    return false;
  return true;
}

/* ---- letters ---- */

static void take_room(struct actor *actor, const struct letter *letter) {
  actor->lowered |= letter->room_bytes < actor->room_bytes;
  actor->room_bytes = letter->room_bytes;
  actor->room_seq = letter->room_seq;
  actor->target_bytes = letter->target_bytes;
  fill_room(actor);
}

static void receive(struct actors *actors, int i) {
  struct actor *actor = &actors->actors[i];
  struct letter letter = actor->letters[actor->first];
  bool mine = actor->holding && actor->epoch == letter.epoch;
  actor->first = (actor->first + 1) % ACTOR_LETTERS;
  actor->count--;
  if (letter.what != SCHED_TELL_LOCK_WANTED)
    take_room(actor, &letter);
  if (letter.what == SCHED_TELL_LOCK_OK) {
    if (actor->holding)
      actors->fail("is granted twice without a release between", i);
    actor->holding = true;
    actor->open = actor->requested = false;
    actor->epoch = letter.epoch;
  } else if (letter.what == SCHED_TELL_DROP_LOCK && mine) {
    begin_release(actors, actor);
  } else if (letter.what == SCHED_TELL_LOCK_WANTED && mine && actor->open &&
             actors_chance(actors, actors->idle_percent)) {
    begin_release(actors, actor);
  }
}

/* ---- a life ---- */

void actors_attach(struct actors *actors, int i, uint64_t used_bytes, uint64_t resident_bytes,
                   uint32_t flags) {
  struct actor *actor = &actors->actors[i];
  bool running = flags & GS_ATTACH_RUNNING;
  *actor = (struct actor){.attached = true,
                          .managed = flags & GS_ATTACH_MANAGED,
                          .used_bytes = used_bytes,
                          .granted_bytes = used_bytes,
                          .resident_bytes = resident_bytes,
                          .room_bytes = resident_bytes};
  struct sched_attach attach = {.id = (uint32_t)i + 1,
                                .used_bytes = used_bytes,
                                .resident_bytes = resident_bytes,
                                .flags = flags,
                                .share = actors->users[i]};
  scheduler_attach(&actors->gpu, &actors->jobs[i], &attach, actors->now_ns, &actors->change);
  /* A grant that answers a running job's ATTACH replaces its epoch. */
  actor->holding = actor->open = running && actors->jobs[i].epoch == 0;
  actors_execute(actors);
}

void actors_detach(struct actors *actors, int i) {
  scheduler_detach(&actors->jobs[i], actors->now_ns, &actors->change);
  actors->actors[i].attached = false;
  memset(&actors->jobs[i], 0xa5, sizeof actors->jobs[i]);
  actors_execute(actors);
}

static void have_memory(struct actors *actors, int i, uint64_t used_bytes, uint64_t pinned_bytes) {
  struct actor *actor = &actors->actors[i];
  if (pinned_bytes > actor->pinned_bytes)
    actor->awaited_bytes += pinned_bytes - actor->pinned_bytes;
  else
    actor->awaited_bytes = min_u64(actor->awaited_bytes, pinned_bytes);
  actor->used_bytes = used_bytes;
  actor->pinned_bytes = pinned_bytes;
  fill_room(actor);
}

void actors_set_memory(struct actors *actors, int i, uint64_t used_bytes, uint64_t pinned_bytes) {
  struct actor *actor = &actors->actors[i];
  bool may_pin = pinned_bytes <= max_u64(actor->pinned_bytes, actor->granted_pinned_bytes);
  if (used_bytes <= actor->granted_bytes && may_pin) {
    have_memory(actors, i, used_bytes, pinned_bytes);
    actor->granted_bytes = min_u64(actor->granted_bytes, used_bytes + SCHED_SLACK_BYTES);
    actor->granted_pinned_bytes = min_u64(actor->granted_pinned_bytes, pinned_bytes + SCHED_SLACK_BYTES);
    scheduler_memory_report(&actors->jobs[i], used_bytes, pinned_bytes, actors->now_ns, &actors->change);
  } else if (scheduler_memory_request(&actors->jobs[i], used_bytes, pinned_bytes, actors->now_ns,
                                      &actors->change, &actor->granted_bytes) == 0) {
    if (actor->granted_bytes < used_bytes)
      actors->fail("is granted less than it asked for", i);
    actor->granted_pinned_bytes = actors->jobs[i].pinned_reach_bytes;
    if (actor->granted_pinned_bytes < pinned_bytes || actor->granted_pinned_bytes > actor->granted_bytes)
      actors->fail("may pin less than it asked for, or more than it may have", i);
    while (actor->count > 0) /* what was told before the answer is known when it comes */
      receive(actors, i);
    have_memory(actors, i, used_bytes, pinned_bytes);
  }
  actors_execute(actors);
}

void actors_short(struct actors *actors, int i, uint64_t bytes) {
  struct actor *actor = &actors->actors[i];
  if (bytes > actor->room_bytes - min_u64(actor->room_bytes, actor->resident_bytes))
    return;
  scheduler_short(&actors->jobs[i], bytes, actors->now_ns, &actors->change);
  actors_execute(actors);
}

/* ---- time ---- */

static uint64_t next_of(const struct actors *actors, const struct actor *actor) {
  uint64_t next_ns = SCHED_NEVER;
  if (!actor->attached || actor->stalled)
    return next_ns;
  if (actor->count > 0)
    next_ns = max_u64(actor->letters[actor->first].arrives_ns, actors->now_ns);
  if (actor->step != STEP_NONE)
    return min_u64(next_ns, actor->step_ends_ns);
  if (actor->releasing)
    return min_u64(next_ns, actor->release_ns);
  return next_ns;
}

static uint64_t next_event_ns(const struct actors *actors) {
  uint64_t next_ns = scheduler_deadline_ns(&actors->scheduler);
  for (int i = 0; i < ACTORS; i++)
    next_ns = min_u64(next_ns, next_of(actors, &actors->actors[i]));
  return next_ns;
}

static void act(struct actors *actors, int i) {
  struct actor *actor = &actors->actors[i];
  if (!actor->attached || actor->stalled)
    return;
  while (actor->count > 0 && actor->letters[actor->first].arrives_ns <= actors->now_ns)
    receive(actors, i);
  if (actor->step != STEP_NONE && actor->step_ends_ns <= actors->now_ns)
    end_step(actors, i);
  if (actor->step == STEP_NONE && actor->releasing && actor->release_ns <= actors->now_ns)
    end_release(actors, i);
  while (actor->step == STEP_NONE && work(actors, i))
    continue;
}

static void run_events(struct actors *actors) {
  if (scheduler_deadline_ns(&actors->scheduler) <= actors->now_ns) {
    scheduler_expire(&actors->scheduler, actors->now_ns, &actors->change);
    actors_execute(actors);
  }
  for (int i = 0; i < ACTORS; i++)
    act(actors, i);
}

void actors_pass(struct actors *actors, uint64_t ns) {
  uint64_t end_ns = actors->now_ns + ns, next_ns;
  run_events(actors);
  while ((next_ns = next_event_ns(actors)) <= end_ns) {
    actors->now_ns = max_u64(next_ns, actors->now_ns);
    run_events(actors);
  }
  actors->now_ns = end_ns;
}

uint64_t actors_resident_bytes(const struct actors *actors) {
  uint64_t bytes = 0;
  for (int i = 0; i < ACTORS; i++)
    bytes += actors->actors[i].attached ? actors->actors[i].resident_bytes : 0;
  return bytes;
}
