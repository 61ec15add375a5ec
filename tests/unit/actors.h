/*
 * actors.h - jobs that behave as libunified does, on a clock of their own, for simulations of one GPU.
 *
 * Messages to an actor take time, so orders and answers cross. An actor that waits or restores moves its
 * memory towards its room, a piece at a time, at the speed of a bus that all share, one direction each; it
 * tells what has moved. It runs when it holds and has enough on the card, and stops when told to, after a
 * drain. Memory that can't leave the card is asked for, and comes in one piece once there is room beside what
 * is there; what could leave makes way for it. What is on the card is the truth that the scheduler's figures
 * can be checked against.
 */
#ifndef GS_TEST_ACTORS_H
#define GS_TEST_ACTORS_H

#include <stdbool.h>

#include "common/clock.h"
#include "core/scheduler.h"

#define ACTORS 6
#define ACTOR_LETTERS 512 /* on their way to one actor */
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

struct letter {
  enum sched_action_type what;
  uint64_t arrives_ns;
  uint64_t epoch, room_bytes, room_seq, target_bytes;
};

enum actor_step { STEP_NONE, STEP_OUT, STEP_IN };

/* What the job's process has, does and knows; it lags behind what the scheduler knows. */
struct actor {
  bool attached, managed, stalled;
  bool cramped; /* its host has no memory left to leave to */
  bool wants, requested, holding, open, releasing;
  uint64_t epoch;
  uint64_t release_ns; /* when its drain ends */
  uint64_t used_bytes, pinned_bytes, granted_bytes;
  uint64_t granted_pinned_bytes; /* how far pinned_bytes may grow unasked */
  uint64_t awaited_bytes;        /* pinned, and not there yet: there is no room beside what it has */
  uint64_t resident_bytes;       /* a piece that comes in counts from the start */
  uint64_t room_bytes, room_seq, target_bytes;
  bool lowered; /* its room is less than the one before, which nobody has been told it knows */
  uint64_t evicted_bytes, restored_bytes; /* since it last said so */
  enum actor_step step;
  uint64_t step_bytes, step_ends_ns;
  uint64_t out_bytes, in_bytes; /* all that it has moved */
  uint64_t opened;              /* how many times it ran */
  struct letter letters[ACTOR_LETTERS];
  unsigned first, count;
};

struct actors {
  struct scheduler scheduler;
  struct sched_gpu gpu;
  struct sched_job jobs[ACTORS]; /* ids from 1 */
  struct actor actors[ACTORS];
  struct sched_share *users[ACTORS]; /* NULL: none */
  struct sched_change change;
  uint64_t now_ns, random;
  uint64_t letter_ns, drain_ns; /* at most */
  uint64_t bytes_per_s;         /* each way */
  uint64_t piece_bytes;
  unsigned idle_percent, busy_percent; /* stop when somebody waits; want to go on after a turn */
  void (*on_action)(const struct sched_action *action);
  void (*on_step)(int i); /* a piece begins to move */
  void (*on_event)(void); /* after each */
  void (*fail)(const char *what, int i);
};

/* The rest of the settings are the caller's. */
void actors_init(struct actors *actors, uint64_t seed, uint64_t card_bytes);

uint64_t actors_random_below(struct actors *actors, uint64_t bound);
bool actors_chance(struct actors *actors, unsigned percent);

/* Carry out what an event has led to, for events that are not below. */
void actors_execute(struct actors *actors);

void actors_attach(struct actors *actors, int i, uint64_t used_bytes, uint64_t resident_bytes,
                   uint32_t flags);
void actors_detach(struct actors *actors, int i);
/* It wants to run. */
void actors_request(struct actors *actors, int i);
/* It has so much memory from now on; it asks if it must. */
void actors_set_memory(struct actors *actors, int i, uint64_t used_bytes, uint64_t pinned_bytes);
/* The driver refuses it so much. */
void actors_short(struct actors *actors, int i, uint64_t bytes);

void actors_pass(struct actors *actors, uint64_t ns);

uint64_t actors_resident_bytes(const struct actors *actors);

#endif
