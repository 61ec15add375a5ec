/*
 * fleet.h - clients on several GPUs, some of them in gangs, on a clock of their own: for tests of gangs.
 *
 * Clients do what they are told after a random time: stop, whatever the others of their gang do, ask again,
 * move their memory, run. One that hangs does nothing. A gang computes only while all of its members run;
 * what one of them alone does is wait on its card.
 */
#ifndef GS_TEST_FLEET_H
#define GS_TEST_FLEET_H

#include "common/clock.h"
#include "core/scheduler.h"

#define GIB (UINT64_C(1) << 30)
#define FLEET_GPUS 3
#define FLEET_JOBS 12
#define FLEET_GANGS 3
#define FLEET_CARD (16 * GIB)
#define FLEET_TQ_NS (100 * NS_PER_MS)
#define FLEET_REPLY_NS (5 * NS_PER_MS) /* at most */

enum fleet_reply { FLEET_REPLY_NONE, FLEET_REPLY_STOP, FLEET_REPLY_RUN };

struct fleet_client {
  struct sched_job job;
  bool there, wants, runs, hangs;
  int gang; /* -1: none */
  uint64_t epoch;
  uint64_t ran_ns; /* its gang did, if it has one */
  enum fleet_reply reply;
  uint64_t reply_ns;
  uint64_t resident_bytes, room_bytes, room_seq, target_bytes;
  uint64_t said_seq; /* of the last room that it has told of */
  uint64_t move_ns;  /* when it next moves memory, if there is some to move */
};

struct fleet {
  struct scheduler scheduler;
  struct sched_gpu gpus[FLEET_GPUS];
  struct sched_gang gangs[FLEET_GANGS];
  struct fleet_client clients[FLEET_JOBS];
  uint64_t alone_ns[FLEET_JOBS]; /* it ran, whether its gang did or not */
  struct sched_change change;
  uint64_t now_ns, random;
  uint64_t seed, digest; /* of all decisions so far */
  bool late;             /* clients hear of others' events some time later, of several at once */
  bool bounded;  /* events leave GPUs for later: what must always hold does once there is nothing to do */
  uint32_t left; /* in a row, that did */
};

/* In mode on. */
void fleet_init(struct fleet *fleet, uint64_t seed);

uint64_t fleet_random_below(struct fleet *fleet, uint64_t bound);

/* Carry out what an event has led to, for events that are not below. */
void fleet_execute(struct fleet *fleet);

/* It attaches, joins the gang, if any (-1: none), and wants to run. */
void fleet_come(struct fleet *fleet, int i, int gpu, int gang, uint64_t used_bytes, uint32_t flags);
/* -1: it leaves its gang. */
void fleet_join(struct fleet *fleet, int i, int gang);
void fleet_set_hanging(struct fleet *fleet, int i, bool hangs);
void fleet_die(struct fleet *fleet, int i);
void fleet_request(struct fleet *fleet, int i);
/* It gives its turn back by itself, if it runs, and wants another one. */
void fleet_yield(struct fleet *fleet, int i);
/* It has so much memory from now on, if it may. */
void fleet_set_memory(struct fleet *fleet, int i, uint64_t used_bytes);

bool fleet_has_member(const struct fleet *fleet, int gang, int gpu);

void fleet_pass(struct fleet *fleet, uint64_t ns);

#endif
