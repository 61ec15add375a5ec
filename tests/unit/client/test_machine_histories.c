/*
 * test_machine_histories.c - random histories of programs that share one GPU: the daemon's core, and the
 * client's machine of each, with a wire between them that loses nothing and takes its time. The rest of the
 * library is played: a worker, which does what the machine says in steps between which anything may happen,
 * threads that come to the gate, and memory that moves by the piece. Connections end, jobs are evicted, and
 * daemons killed, for good in some histories.
 *
 * After each step: a gate is open only for who holds, as the daemon sees it, too, and while turns are taken
 * one by one only one is; what the daemon counts as taken is no less than what is on the card; what has moved
 * is told once. In the end: who wants to run has run, and both sides agree.
 *
 * GPUSHARE_SEED and GPUSHARE_RUNS choose others. A failure tells the seed of the history that failed.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "../suite.h"
#include "client/machine.h"
#include "common/clock.h"
#include "common/splitmix.h"
#include "common/wire.h"
#include "core/scheduler.h"

#define PROGRAMS 4
#define LETTERS 256
#define MIB (UINT64_C(1) << 20)
#define CARD (4096 * MIB)
#define PIECE (96 * MIB)
#define GRAIN (32 * MIB) /* of allocations */
#define STEPS_MOST 2000
#define USED_MOST (CARD * 5 / 8) /* of one; all together want more than there is */
#define PINNED_MOST (CARD / 16)
#define END_ROUNDS 6000 /* in which everybody must have run */
#define TQ_NS (50 * NS_PER_MS)

struct wire {
  struct gs_msg letters[LETTERS]; /* type 0: the end of the connection */
  unsigned first, count;
};

enum phase { RESTS, RELEASES, TAKES_UP, WITHDRAWS, MOVES, WATCHES };

struct program {
  struct machine machine;
  bool managed, required;
  bool connected, attach_due, evicted; /* what its connection's thread knows */
  bool tries;                          /* orders.try_open is to be carried out */
  bool memory_open;                    /* what is allocated comes to the card at once */
  bool gate_open, wants, waits;        /* waits: a thread does, at the gate */
  unsigned ran;                        /* how many times the gate has opened */

  enum phase phase; /* of its worker */
  bool awake, opened, lacking, idle;
  uint64_t watched_epoch, watched_generation;
  struct machine_move move;
  enum memory_progress progress;
  struct memory_moved moved;

  uint64_t used_bytes, resident_bytes;
  uint64_t coming_bytes;  /* of used_bytes: not there yet, and a thread waits for it */
  uint64_t pinned_bytes;  /* of used_bytes: what can't leave; */
  uint64_t awaited_bytes; /* and of that, what has yet to come: a thread waits for its room */
  uint64_t paging_bytes;  /* of used_bytes: what page faults would fetch */
  bool asks, makes_way, woken;
  uint64_t asked_bytes, asked_pinned_bytes;
  struct machine_question question;
  uint64_t out_bytes, in_bytes;           /* moved since ATTACH; */
  uint64_t told_out_bytes, told_in_bytes; /* and as told */

  struct wire to_daemon, to_client;
  bool ended;    /* the connection, for who writes */
  bool attached; /* in the daemon */
  struct sched_job job;
};

static struct program programs[PROGRAMS];
static struct scheduler scheduler;
static struct sched_gpu gpu;
static struct sched_change change;
static uint64_t seed, state, now_ns;
static bool calm;             /* no connection ends, and no setting changes */
static bool ending, deserted; /* the daemon has gone for good */

static uint64_t below(uint64_t bound) { return bound ? splitmix_next(&state) % bound : 0; }
static bool chance(unsigned percent) { return below(100) < percent; }
static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void show(const struct program *p) {
  const struct machine *m = &p->machine;
  const struct sched_job *job = &p->job;
  printf("%d: %s, wants %d, ran %u, phase %d, awake %d; of %lu MiB %lu there, %lu coming, asks %d\n",
         (int)(p - programs), p->gate_open ? "open" : "shut", p->wants, p->ran, p->phase, p->awake,
         p->used_bytes / MIB, p->resident_bytes / MIB, p->coming_bytes / MIB, p->asks);
  printf("  machine: attached %d, holding %d, pending %d, drop %d, wanted %d, requested %d, epoch %lu, "
         "room %lu (%lu) of %lu, move due %d, over %d, told %lu; letters %u, %u\n",
         m->attached, m->holding, m->grant_pending, m->drop_pending, m->wanted, m->requested, m->epoch,
         m->room_bytes / MIB, m->room_seq, m->target_bytes / MIB, m->move_due, m->moves_over,
         m->has.told_bytes / MIB, p->to_daemon.count, p->to_client.count);
  if (p->attached)
    printf("  daemon: state %d, epoch %lu, active %d, room %lu (%lu), used %lu, there %lu, claim %lu\n",
           (int)job->state, job->epoch, job->active, job->room_bytes / MIB, job->room_seq,
           job->used_bytes / MIB, job->resident_bytes / MIB, job->claim_bytes / MIB);
}

static void blame(const struct program *p, const char *what) {
  for (int i = 0; i < PROGRAMS; i++)
    show(&programs[i]);
  fflush(stdout);
  ck_abort_msg("seed %lu: program %d: %s", seed, (int)(p - programs), what);
}

static void require(bool right, const struct program *p, const char *what) {
  if (!right)
    blame(p, what);
}

/* ---- the wire ---- */

static void write_letter(struct program *p, struct wire *wire, const struct gs_msg *msg) {
  if (p->ended)
    return;
  require(wire->count < LETTERS, p, "is told too much, or tells it");
  wire->letters[(wire->first + wire->count++) % LETTERS] = *msg;
}

static bool read_letter(struct wire *wire, struct gs_msg *msg) {
  if (wire->count == 0)
    return false;
  *msg = wire->letters[wire->first];
  wire->first = (wire->first + 1) % LETTERS;
  wire->count--;
  return true;
}

/* Each side reads what has come before. */
static void end_connection(struct program *p) {
  struct gs_msg end = {.type = 0};
  write_letter(p, &p->to_daemon, &end);
  write_letter(p, &p->to_client, &end);
  p->ended = true;
}

/* ---- the daemon ---- */

static void start_daemon(void) {
  static const uint8_t uuid[GS_UUID_SIZE] = {1};
  memset(&gpu, 0, sizeof gpu);
  scheduler_init(&scheduler);
  scheduler.deferred = seed % 16 >= 12; /* one plan for some messages, as the daemon makes it */
  change_init(&change);
  scheduler.grace_ns = 1000 * NS_PER_S;
  scheduler.defaults.tq_ns = TQ_NS;
  scheduler.defaults.mode = seed % 4 < 2 ? GS_MODE_ON : GS_MODE_AUTO;
  scheduler_add_gpu(&scheduler, &gpu, uuid, "card", CARD);
}

/* It is killed, and started anew. */
static void restart_daemon(void) {
  for (struct program *p = programs; p < programs + PROGRAMS; p++) {
    end_connection(p);
    p->to_daemon.count = 0;
    p->attached = false;
    memset(&p->job, 0, sizeof p->job);
  }
  start_daemon();
}

static void tell(const struct sched_action *action) {
  static const enum gs_msg_type types[] = {
      [SCHED_TELL_ATTACHED] = GS_ATTACHED,
      [SCHED_TELL_CAPACITY] = GS_CAPACITY,
      [SCHED_TELL_SCHED] = GS_SCHED_ON,
      [SCHED_TELL_LOCK_OK] = GS_LOCK_OK,
      [SCHED_TELL_LOCK_WANTED] = GS_LOCK_WANTED,
      [SCHED_TELL_DROP_LOCK] = GS_DROP_LOCK,
      [SCHED_TELL_ROOM] = GS_ROOM,
  };
  if (action->type > SCHED_TELL_ROOM)
    return;
  struct program *p = action->job->owner;
  struct gs_msg msg = wire_msg(types[action->type], 0);
  msg.epoch = action->type == SCHED_TELL_ROOM ? 0 : action->epoch;
  if (action->type == SCHED_TELL_LOCK_WANTED) {
    msg.wanted.left_ns = action->wanted ? GS_LEFT_UNKNOWN : GS_LEFT_NOBODY;
  } else if (action->type >= SCHED_TELL_LOCK_OK) {
    msg.room.room_bytes = action->room_bytes;
    msg.room.room_seq = action->room_seq;
    msg.room.target_bytes = action->target_bytes;
  }
  write_letter(p, &p->to_client, &msg);
}

static void tell_one(struct program *p) {
  struct sched_action action;
  while (p->attached && change_next_of(&p->job, &action))
    tell(&action);
}

static void tell_all(void) {
  struct sched_action action;
  if (scheduler.dirty && chance(50))
    scheduler_plan(&scheduler, &change);
  while (change_next(&change, &action))
    tell(&action);
}

static void plan_at_once(void) {
  if (scheduler.dirty)
    scheduler_plan(&scheduler, &change);
}

static void daemon_on_attach(struct program *p, const struct gs_msg *msg) {
  if (!calm && !ending && chance(10)) {
    struct gs_msg rejected = wire_msg(GS_REJECTED, 0);
    write_letter(p, &p->to_client, &rejected);
    return;
  }
  struct sched_attach attach = {.id = (uint32_t)(p - programs) + 1,
                                .owner = p,
                                .used_bytes = msg->attach.used_bytes,
                                .resident_bytes = msg->attach.resident_bytes,
                                .flags = msg->attach.flags};
  p->attached = true;
  scheduler_attach(&gpu, &p->job, &attach, now_ns, &change);
  plan_at_once();
}

static void daemon_on_memory_request(struct program *p, const struct gs_msg *msg) {
  struct gs_msg reply = wire_msg(GS_MEM_REPLY, 0);
  uint64_t granted_bytes = 0;
  scheduler_memory_paging(&p->job, msg->mem.paging_bytes);
  reply.status = scheduler_memory_request(&p->job, msg->mem.total_bytes, msg->mem.pinned_bytes, now_ns,
                                          &change, &granted_bytes);
  reply.mem_reply.granted_bytes = granted_bytes;
  reply.mem_reply.pinned_bytes = p->job.pinned_reach_bytes;
  plan_at_once();
  tell_one(p);
  write_letter(p, &p->to_client, &reply);
}

static void daemon_on_message(struct program *p, const struct gs_msg *msg) {
  struct sched_job *job = &p->job;
  if (msg->type == 0) {
    if (p->attached)
      scheduler_detach(job, now_ns, &change);
    p->attached = false;
    memset(job, 0, sizeof *job);
  } else if (msg->type == GS_ATTACH) {
    daemon_on_attach(p, msg);
  } else if (!p->attached) {
    blame(p, "speaks of a GPU that is not attached");
  } else if (msg->type == GS_REQ_LOCK) {
    scheduler_request(job, now_ns, &change);
  } else if (msg->type == GS_LOCK_RELEASED) {
    scheduler_release(job, &(struct sched_release){.epoch = msg->epoch}, now_ns, &change);
  } else if (msg->type == GS_LOCK_ACTIVE) {
    scheduler_active(job, &(struct sched_active){.epoch = msg->epoch}, now_ns, &change);
  } else if (msg->type == GS_RESIDENT) {
    struct sched_residence residence = {.resident_bytes = msg->resident.resident_bytes,
                                        .room_seq = msg->resident.room_seq,
                                        .evicted_bytes = msg->resident.evicted_bytes,
                                        .restored_bytes = msg->resident.restored_bytes};
    scheduler_resident(job, &residence, now_ns, &change);
  } else if (msg->type == GS_MEM_SHORT) {
    require(!calm, p, "finds the card full");
    scheduler_short(job, msg->mem_short.short_bytes, now_ns, &change);
  } else if (msg->type == GS_MEM_REPORT) {
    scheduler_memory_paging(job, msg->mem.paging_bytes);
    scheduler_memory_report(job, msg->mem.total_bytes, msg->mem.pinned_bytes, now_ns, &change);
  } else if (msg->type == GS_MEM_REQUEST) {
    daemon_on_memory_request(p, msg);
  }
}

/* What a job has not been told yet came before what it says; others are told soon. */
static bool daemon_step(struct program *p) {
  struct gs_msg msg;
  if (!read_letter(&p->to_daemon, &msg))
    return false;
  tell_one(p);
  daemon_on_message(p, &msg);
  if (!scheduler.dirty)
    tell_one(p);
  if (chance(70))
    tell_all();
  return true;
}

static bool daemon_expire(void) {
  bool due = scheduler_deadline_ns(&scheduler) <= now_ns;
  if (due)
    scheduler_expire(&scheduler, now_ns, &change);
  tell_all();
  return due;
}

/* ---- a program: what the machine sees, and what it orders ---- */

static struct sight see(const struct program *p) {
  return (struct sight){
      .now_ns = now_ns,
      .needed = p->waits || p->awaited_bytes,
      .memory = {.total_bytes = p->asks ? p->asked_bytes : p->used_bytes,
                 .pinned_bytes = p->asks ? p->asked_pinned_bytes : p->pinned_bytes,
                 .pinned_there_bytes = p->pinned_bytes - p->awaited_bytes,
                 .resident_bytes = p->resident_bytes,
                 .paging_bytes = p->paging_bytes},
  };
}

/* The driver lets managed memory leave for other memory, whoever has it. */
static bool card_has(uint64_t bytes) {
  for (int i = 0; i < PROGRAMS; i++)
    bytes += programs[i].managed ? 0 : programs[i].resident_bytes;
  return bytes <= CARD;
}

static bool is_all_there(const struct program *p) {
  uint64_t needed_bytes = p->used_bytes - p->coming_bytes - p->awaited_bytes;
  if (p->managed)
    needed_bytes = least(needed_bytes, machine_enough_bytes(&p->machine));
  return p->resident_bytes >= needed_bytes;
}

static void hang_on(struct program *p, const struct gs_msg *msg) {
  if (!p->connected)
    return;
  if (msg->type == GS_RESIDENT) {
    p->told_out_bytes += msg->resident.evicted_bytes;
    p->told_in_bytes += msg->resident.restored_bytes;
  }
  write_letter(p, &p->to_daemon, msg);
}

/* As memory_open does. */
static bool open_memory(struct program *p) {
  p->memory_open |= is_all_there(p);
  return p->gate_open || is_all_there(p);
}

static void obey(struct program *p, const struct orders *orders) {
  require(orders->count <= ORDERS_MESSAGES, p, "has more to send than there is room for");
  if (orders->open) {
    require(p->managed || is_all_there(p), p, "opens its gate, and memory is away");
    p->gate_open = !p->machine.steps;
    p->waits = false;
    p->ran++;
  }
  for (unsigned i = 0; i < orders->count; i++)
    hang_on(p, &orders->messages[i]);
  p->tries |= orders->try_open;
  p->awake |= orders->wake_worker;
  p->woken |= orders->wake_waiting;
}

/* ---- its memory ---- */

/* Once there is room; what is allocated while memory is closed stays away. */
static void bring(struct program *p) {
  uint64_t room_bytes = machine_room_bytes(&p->machine), there_bytes = p->resident_bytes + p->coming_bytes;
  if (p->memory_open && (room_bytes < there_bytes || !card_has(p->coming_bytes)))
    return;
  p->resident_bytes += p->memory_open ? p->coming_bytes : 0;
  p->coming_bytes = 0;
}

static void have(struct program *p, uint64_t bytes, uint64_t pinned_bytes) {
  if (pinned_bytes > p->pinned_bytes)
    p->awaited_bytes += pinned_bytes - p->pinned_bytes;
  else if (p->memory_open && bytes > p->used_bytes)
    p->coming_bytes += bytes - p->used_bytes;
  p->used_bytes = bytes;
  p->pinned_bytes = pinned_bytes;
  p->paging_bytes = p->managed ? (bytes - pinned_bytes) / 4 * below(4) : 0;
  p->coming_bytes = least(p->coming_bytes, bytes - pinned_bytes);
  p->resident_bytes = least(p->resident_bytes, bytes - p->coming_bytes - p->awaited_bytes);
  bring(p);
}

/* Where the machine does not look, it does the same whatever there is to see. */
static void check_sightless(const struct program *p, uint64_t total_bytes, uint64_t pinned_bytes) {
  if (machine_looks(&p->machine, total_bytes, pinned_bytes))
    return;
  struct sight seen = see(p), unseen = {0};
  for (int asks = 0; asks < 2; asks++) {
    struct machine one = p->machine, other = p->machine;
    struct orders its = {0}, others = {0};
    struct machine_question question;
    int err = 0, other_err = 0;
    if (asks) {
      err = machine_ask(&one, total_bytes, pinned_bytes, false, &seen, &its, &question);
      other_err = machine_ask(&other, total_bytes, pinned_bytes, false, &unseen, &others, &question);
    } else {
      machine_note_memory(&one, total_bytes, pinned_bytes, &seen, &its);
      machine_note_memory(&other, total_bytes, pinned_bytes, &unseen, &others);
    }
    ck_assert_int_eq(err, other_err);
    ck_assert_int_eq(memcmp(&one, &other, sizeof one), 0);
    ck_assert_int_eq(memcmp(&its, &others, sizeof its), 0);
  }
}

static void report(struct program *p) {
  check_sightless(p, p->used_bytes, p->pinned_bytes);
  struct sight sight = see(p);
  struct orders orders = {0};
  machine_note_memory(&p->machine, p->used_bytes, p->pinned_bytes, &sight, &orders);
  obey(p, &orders);
}

static void release(struct program *p, uint64_t bytes, bool pinned) {
  uint64_t most_bytes = pinned ? p->pinned_bytes - p->awaited_bytes : p->used_bytes - p->pinned_bytes;
  if (p->asks || bytes > most_bytes)
    return;
  p->resident_bytes -= pinned ? bytes : 0;
  have(p, p->used_bytes - bytes, p->pinned_bytes - (pinned ? bytes : 0));
  report(p);
}

/* The library itself refuses what can't be. What came of it is told in any case. */
static void end_question(struct program *p, int err) {
  p->asks = err == -EINPROGRESS;
  if (p->asks)
    return;
  if ((err == 0 || err == -ENOTCONN) && p->asked_bytes <= USED_MOST)
    have(p, p->asked_bytes, p->asked_pinned_bytes);
  report(p);
}

/* Who has been woken looks for the answer. One that waits no longer ends the connection. */
static bool answer_step(struct program *p) {
  bool given_up = p->asks && !calm && !ending && chance(1);
  if (given_up)
    end_connection(p);
  if (!p->asks || (!p->woken && !given_up))
    return false;
  p->woken = false;
  end_question(p, machine_answer(&p->machine, &p->question, given_up));
  return true;
}

static void allocate(struct program *p, uint64_t bytes, bool pinned) {
  bool settled = !p->connected || p->attach_due || p->machine.attached; /* else it is waited for */
  if (p->asks || !settled || (bytes < CARD && p->used_bytes + bytes > USED_MOST))
    return;
  if (pinned && p->pinned_bytes + bytes > PINNED_MOST)
    return;
  p->asked_bytes = p->used_bytes + bytes;
  p->asked_pinned_bytes = p->pinned_bytes + (pinned ? bytes : 0);
  p->asks = true;
  check_sightless(p, p->asked_bytes, p->asked_pinned_bytes);
  struct sight sight = see(p);
  struct orders orders = {0};
  int err = machine_ask(&p->machine, p->asked_bytes, p->asked_pinned_bytes, below(8) == 0, &sight, &orders,
                        &p->question);
  obey(p, &orders);
  end_question(p, err);
}

/* A piece that comes counts from the start, one that leaves until the end. */
static void begin_piece(struct program *p) {
  uint64_t there_bytes = p->pinned_bytes - p->awaited_bytes, movable_bytes = p->used_bytes - p->pinned_bytes;
  uint64_t room_bytes = p->move.room_bytes < p->pinned_bytes ? 0 : p->move.room_bytes - p->pinned_bytes;
  uint64_t goal_bytes = there_bytes + least(room_bytes, movable_bytes - p->coming_bytes);
  bool alone = !p->machine.room_bound && chance(20); /* it makes room for others */
  p->moved = (struct memory_moved){0};
  p->progress = MEMORY_MOVED;
  if (!calm && !ending && chance(5)) {
    p->progress = MEMORY_FAILED;
  } else if (p->resident_bytes > goal_bytes || (alone && p->resident_bytes > there_bytes)) {
    p->moved.out_bytes = least(PIECE, p->resident_bytes - (alone ? there_bytes : goal_bytes));
  } else if (p->resident_bytes < goal_bytes) {
    uint64_t bytes = least(PIECE, goal_bytes - p->resident_bytes);
    if (!card_has(bytes)) {
      p->progress = MEMORY_SHORT;
      p->moved.short_bytes = bytes;
    } else {
      p->resident_bytes += p->moved.in_bytes = bytes;
    }
  } else {
    p->progress = MEMORY_SETTLED;
  }
}

static void end_piece(struct program *p) {
  struct orders orders = {0};
  uint64_t there_bytes = p->pinned_bytes - p->awaited_bytes;
  p->resident_bytes -= least(p->moved.out_bytes, p->resident_bytes - there_bytes);
  p->out_bytes += p->moved.out_bytes;
  p->in_bytes += p->moved.in_bytes;
  struct sight sight = see(p);
  machine_end_move(&p->machine, p->progress, &p->moved, &sight, &orders);
  obey(p, &orders);
}

/* ---- its worker ---- */

static void end_release(struct program *p) {
  struct orders orders = {0};
  p->gate_open = p->memory_open = false;
  bring(p);
  struct sight sight = see(p);
  machine_end_release(&p->machine, NS_PER_MS, &sight, &orders);
  obey(p, &orders);
}

static void end_take_up(struct program *p) {
  struct sight sight = see(p);
  struct orders orders = {0};
  p->lacking = !machine_end_take_up(&p->machine, p->opened, &sight, &orders);
  obey(p, &orders);
}

static void end_watch(struct program *p) {
  struct orders orders = {0};
  if (p->idle)
    machine_idle(&p->machine, p->watched_epoch, p->watched_generation, now_ns, &orders);
  obey(p, &orders);
}

/* The end of what it is about. */
static void end_phase(struct program *p) {
  enum phase phase = p->phase;
  p->phase = RESTS;
  if (phase == RELEASES) {
    end_release(p);
  } else if (phase == MOVES) {
    end_piece(p);
  } else if (phase == WATCHES) {
    end_watch(p);
  } else if (phase == TAKES_UP && p->opened && !p->machine.grant_pending) {
    p->opened = p->gate_open = p->memory_open = false; /* what had been let on is stopped again */
    bring(p);
    p->phase = WITHDRAWS;
  } else {
    end_take_up(p);
  }
}

static void begin_work(struct program *p) {
  struct machine *m = &p->machine;
  struct sight sight = see(p);
  struct orders orders = {0};
  struct chores chores = {.lacking = p->lacking};
  enum machine_work work = machine_work(m, &sight, &chores);
  p->lacking = false;
  require(machine_needs_gpu(m) || (work != WORK_RELEASE && work != WORK_TAKE_UP && work != WORK_MOVE), p,
          "is to let work rest that it needs");
  switch (work) {
  case WORK_RELEASE:
    machine_begin_release(m);
    p->phase = RELEASES;
    break;
  case WORK_TAKE_UP:
    machine_begin_take_up(m);
    p->opened = open_memory(p);
    p->phase = TAKES_UP;
    break;
  case WORK_MOVE:
    p->move = machine_begin_move(m, now_ns);
    begin_piece(p);
    p->phase = MOVES;
    break;
  case WORK_REPORT:
    machine_report(m, &sight, &orders);
    break;
  case WORK_WATCH:
    p->idle = !p->wants && !p->coming_bytes && !p->awaited_bytes;
    p->watched_epoch = m->epoch;
    p->watched_generation = m->generation;
    p->phase = WATCHES;
    break;
  default:
    p->awake = false;
    break;
  }
  obey(p, &orders);
}

static bool worker_step(struct program *p) {
  if (p->phase == RESTS && !p->awake && p->machine.move_again_ns <= now_ns) {
    machine_try_again(&p->machine);
    p->awake = true;
  }
  if (p->phase != RESTS)
    end_phase(p);
  else if (p->awake)
    begin_work(p);
  else
    return false;
  return true;
}

/* ---- its connection ---- */

static void attach(struct program *p) {
  struct gs_msg msg = wire_msg(GS_ATTACH, 0);
  struct sight sight = see(p);
  msg.attach.flags = p->managed ? GS_ATTACH_MANAGED : 0;
  machine_attach(&p->machine, &sight, &msg);
  p->connected = true;
  p->attach_due = false;
  p->out_bytes = p->in_bytes = p->told_out_bytes = p->told_in_bytes = 0;
  hang_on(p, &msg);
}

static void go_alone(struct program *p) {
  struct sight sight = see(p);
  struct orders orders = {0};
  if (!p->required)
    machine_hold(&p->machine, &sight, &orders);
  obey(p, &orders);
}

static void lose(struct program *p) {
  struct orders orders = {0};
  p->connected = false;
  machine_lose(&p->machine, &orders);
  obey(p, &orders);
  if (!p->evicted) {
    go_alone(p);
  } else if (p->machine.holding || p->machine.releasing) {
    orders = (struct orders){0};
    machine_order_drop(&p->machine, &orders);
    obey(p, &orders);
  }
  p->evicted = false;
}

static void hear(struct program *p, const struct gs_msg *msg) {
  struct sight sight = see(p);
  struct orders orders = {0};
  if (msg->type == 0) {
    lose(p);
  } else if (msg->type == GS_REJECTED) {
    machine_unbind(&p->machine, &orders);
    obey(p, &orders);
    go_alone(p);
    p->attach_due = true;
  } else if (msg->type == GS_EVICTED) {
    p->evicted = true;
  } else {
    if (msg->type == GS_LOCK_OK)
      require(!p->gate_open || !p->machine.epoch, p, "is granted what it holds");
    machine_hear(&p->machine, msg, &sight, &orders);
    obey(p, &orders);
  }
}

/* Nothing else is heard before the try is over. */
static bool connection_step(struct program *p) {
  struct gs_msg msg;
  struct orders orders = {0};
  struct sight sight = see(p);
  if (p->tries) {
    p->tries = false;
    machine_tried(&p->machine, chance(p->gate_open ? 90 : 50) && open_memory(p), &sight, &orders);
    obey(p, &orders);
  } else if (p->attach_due) {
    attach(p);
  } else if (!p->connected && (deserted || chance(20))) {
    go_alone(p); /* there is no daemon just now */
    return false;
  } else if (!p->connected && p->to_daemon.count == 0) {
    p->ended = false;
    attach(p);
  } else if (read_letter(&p->to_client, &msg)) {
    hear(p, &msg);
  } else {
    uint64_t due_ns = machine_check_memory(&p->machine, &sight, &orders);
    obey(p, &orders);
    return due_ns == UINT64_MAX && orders.count;
  }
  return true;
}

/* What can't leave comes once there is room beside what is there, which makes way for it. */
static bool pin_step(struct program *p) {
  uint64_t room_bytes = machine_room_bytes(&p->machine), there_bytes = p->pinned_bytes - p->awaited_bytes;
  bool yields = p->managed && machine_runs(&p->machine);
  uint64_t stays_bytes = yields ? there_bytes : p->resident_bytes;
  struct sight sight = see(p);
  struct orders orders = {0};
  if (!p->awaited_bytes)
    return false;
  if (room_bytes >= p->awaited_bytes && room_bytes - p->awaited_bytes >= stays_bytes &&
      card_has(p->awaited_bytes)) {
    p->resident_bytes = least(p->resident_bytes, room_bytes - p->awaited_bytes) + p->awaited_bytes;
    p->awaited_bytes = 0;
    return true;
  }
  if (!machine_runs(&p->machine) && !p->makes_way)
    machine_order_move(&p->machine, &orders);
  p->makes_way = !machine_runs(&p->machine);
  machine_want(&p->machine, &sight, &orders);
  obey(p, &orders);
  return orders.count;
}

/* A thread finds the gate shut. */
static bool thread_step(struct program *p) {
  bring(p);
  if (answer_step(p) || pin_step(p))
    return true;
  if (!p->wants || p->gate_open || p->waits)
    return false;
  p->waits = true;
  struct sight sight = see(p);
  struct orders orders = {0};
  machine_want(&p->machine, &sight, &orders);
  obey(p, &orders);
  return true;
}

/* ---- what always holds ---- */

static bool is_granted(const struct program *p) {
  return p->job.epoch == p->machine.epoch &&
         (p->job.state == GS_JOB_HOLDING || p->job.state == GS_JOB_DROPPING);
}

static void check_program(const struct program *p) {
  const struct machine *m = &p->machine;
  bool both = m->attached && p->attached && !p->ended;
  require(!p->gate_open || m->holding || m->releasing || p->phase == WITHDRAWS || p->phase == TAKES_UP, p,
          "has an open gate, and does not hold");
  require(!p->gate_open || !both || !m->epoch || is_granted(p), p, "runs, and the daemon has not granted it");
  require(m->evicted_bytes + p->told_out_bytes == p->out_bytes, p,
          "counts bytes twice, or not, that have left");
  require(m->restored_bytes + p->told_in_bytes == p->in_bytes, p,
          "counts bytes twice, or not, that have come");
  require(!p->attached || p->job.promised_bytes >= p->job.room_bytes, p,
          "has a budget that is promised to it no more");
  if (both && p->job.used_bytes >= p->used_bytes)
    require(p->job.claim_bytes >= p->resident_bytes, p, "has more on the card than the daemon counts");
}

static void check_all(void) {
  unsigned open = 0;
  bool managed = false; /* then some may run beyond what fits */
  uint64_t there_bytes = 0;
  for (int i = 0; i < PROGRAMS; i++) {
    check_program(&programs[i]);
    open += programs[i].gate_open;
    managed |= programs[i].managed;
    there_bytes += programs[i].resident_bytes;
  }
  require(!calm || gpu.settings.mode != GS_MODE_ON || open <= 1, programs, "or another one runs beside one");
  require(!calm || managed || there_bytes <= CARD, programs, "or another one has more than fits");
}

/* Nothing is under way: both know the same. */
static void check_agreement(const struct program *p) {
  require(p->attached && p->machine.attached, p, "is not attached");
  require(p->job.used_bytes == p->used_bytes, p, "has other memory than the daemon knows");
  require(p->job.pinned_bytes == p->pinned_bytes, p, "has pinned something else than the daemon knows");
  require(!p->awaited_bytes, p, "waits for what can't leave, and for ever");
  require(p->job.claim_bytes >= p->resident_bytes, p, "has more on the card than the daemon counts");
  require(p->machine.holding == (p->job.state == GS_JOB_HOLDING), p, "and the daemon disagree on who holds");
}

/* ---- a history ---- */

static void set_something(void) {
  static const enum gs_mode modes[] = {GS_MODE_ON, GS_MODE_AUTO, GS_MODE_OFF};
  static const enum gs_policy policies[] = {GS_POLICY_FAIR, GS_POLICY_RR, GS_POLICY_FIFO};
  switch (below(3)) {
  case 0:
    scheduler_set_mode(&scheduler, NULL, modes[below(3)], now_ns, &change);
    break;
  case 1:
    scheduler_set_policy(&scheduler, NULL, policies[below(3)], now_ns, &change);
    break;
  case 2:
    scheduler_set_capacity(&scheduler, NULL, CARD / 2 + below(CARD / 2), now_ns, &change);
    break;
  }
}

/* Some of it is refused. */
static uint64_t some_bytes(const struct program *p) {
  return chance(5) && !p->managed ? CARD + GRAIN : GRAIN * (1 + below(24));
}

/* Little is told of, too. */
static uint64_t some_pinned_bytes(void) { return chance(50) ? MIB / 4 : GRAIN * (1 + below(4)); }

static void live(struct program *p) {
  struct gs_msg evicted = wire_msg(GS_EVICTED, 0);
  unsigned what = (unsigned)below(100);
  if (what < 46)
    p->wants = true;
  else if (what < 48)
    allocate(p, some_pinned_bytes(), true);
  else if (what < 50)
    release(p, some_pinned_bytes(), true);
  else if (what < 65)
    p->wants = false;
  else if (what < 83)
    allocate(p, some_bytes(p), false);
  else if (what < 96)
    release(p, GRAIN * (1 + below(24)), false);
  else if (calm)
    return;
  else if (what < 97)
    set_something();
  else if (what < 99)
    end_connection(p);
  else if (chance(20))
    restart_daemon();
  else {
    write_letter(p, &p->to_client, &evicted);
    end_connection(p);
  }
}

static void step(void) {
  struct program *p = &programs[below(PROGRAMS)];
  unsigned what = (unsigned)below(100);
  if (what < 25)
    daemon_step(p);
  else if (what < 50)
    connection_step(p);
  else if (what < 80)
    worker_step(p);
  else if (what < 90)
    thread_step(p);
  else
    live(p);
  now_ns += below(chance(5) ? TQ_NS : NS_PER_MS);
  if (chance(50))
    daemon_expire();
  check_all();
}

static void set_up(void) {
  state = seed;
  now_ns = NS_PER_S;
  calm = seed % 2;
  ending = deserted = false;
  memset(programs, 0, sizeof programs);
  start_daemon();
  for (struct program *p = programs; p < programs + PROGRAMS; p++) {
    p->machine.move_again_ns = UINT64_MAX;
    p->managed = seed % 8 < 4 && chance(60);
    p->required = chance(20);
    p->machine.has.total_bytes = p->used_bytes = GRAIN * below(CARD / PROGRAMS / GRAIN);
    p->resident_bytes = calm ? 0 : p->used_bytes; /* the daemon hears late of who has been there before */
    attach(p);
  }
}

/* Everything that can go on does; true: something did. */
static bool settle_step(void) {
  bool went_on = false;
  for (struct program *p = programs; p < programs + PROGRAMS; p++) {
    went_on |= daemon_step(p);
    went_on |= connection_step(p);
    went_on |= worker_step(p) && (p->awake || p->phase != RESTS);
    went_on |= thread_step(p);
    if (p->gate_open && p->wants && chance(30)) { /* it has computed what it wanted to */
      p->wants = false;
      p->awake = went_on = true;
    }
  }
  went_on |= daemon_expire();
  check_all();
  return went_on;
}

static unsigned before[PROGRAMS]; /* how many times it had run */

/* Some may wait until others have ended, and look again and again. */
static void check_alone(const struct program *p) {
  require(p->required || p->machine.holding, p, "waits for a daemon that has gone");
  require(p->gate_open == (p->machine.holding && !p->machine.grant_pending), p,
          "has its gate shut for nobody");
  bool idle = !p->awake && p->phase == RESTS && p->machine.move_again_ns == UINT64_MAX;
  require(p->gate_open || !idle || !p->machine.holding, p, "has stopped to look for room");
}

static void check_together(const struct program *p) {
  require(p->ran > before[p - programs] && !p->wants, p, "wants to run, and never does");
  check_agreement(p);
}

static void run_history(void) {
  set_up();
  for (uint64_t steps = below(STEPS_MOST); steps > 0; steps--)
    step();
  ending = true;
  deserted = !calm && chance(20);
  scheduler_set_capacity(&scheduler, NULL, 0, now_ns, &change);
  for (int i = 0; i < PROGRAMS; i++) {
    before[i] = programs[i].ran - programs[i].gate_open;
    programs[i].wants = true;
    if (deserted)
      end_connection(&programs[i]);
  }
  unsigned quiet = 0;
  for (int round = 0; round < (deserted ? END_ROUNDS / 12 : END_ROUNDS) && quiet < 200; round++) {
    now_ns += NS_PER_MS;
    quiet = settle_step() ? 0 : quiet + 1;
  }
  for (int i = 0; i < PROGRAMS; i++)
    if (deserted)
      check_alone(&programs[i]);
    else
      check_together(&programs[i]);
  require(quiet >= 200 || deserted, programs, "or another one finds no rest");
}

START_TEST(both_sides_agree_after_any_history) {
  uint64_t first = suite_number("GPUSHARE_SEED", 1), runs = suite_number("GPUSHARE_RUNS", 20000);
  printf("GPUSHARE_SEED=%lu, %lu runs\n", first, runs);
  fflush(stdout);
  for (seed = first; seed < first + runs; seed++)
    run_history();
}
END_TEST

/* Which one in some thousands meets: a room that is lowered and raised again before the program hears of
 * either, which owes no answer to that. */
START_TEST(a_fall_that_is_never_told_is_not_waited_for) {
  seed = 101783;
  run_history();
}
END_TEST

/* Which the histories rarely meet: the last move has found all of it, and the look whether all is there not.
 */
START_TEST(what_is_allocated_as_the_last_move_ends_is_looked_for) {
  struct machine m = {.attached = true, .room_bound = true, .move_again_ns = UINT64_MAX};
  struct sight sight = {.now_ns = NS_PER_S};
  struct orders orders = {0};
  struct gs_msg msg = wire_msg(GS_LOCK_OK, 0);
  struct memory_moved moved = {0};
  msg.room.room_bytes = msg.room.target_bytes = MIB;
  machine_begin_move(&m, now_ns);
  machine_hear(&m, &msg, &sight, &orders);
  machine_end_move(&m, MEMORY_SETTLED, &moved, &sight, &orders);
  machine_begin_move(&m, now_ns);
  machine_end_move(&m, MEMORY_SETTLED, &moved, &sight, &orders);
  ck_assert(m.grant_pending && !m.move_due && m.move_again_ns == UINT64_MAX);
  machine_begin_take_up(&m);
  ck_assert(!machine_end_take_up(&m, false, &sight, &orders));
  ck_assert_uint_ne(m.move_again_ns, UINT64_MAX);
}
END_TEST

/* Others wait for what has left without a copy as they do for the rest. */
START_TEST(what_leaves_without_a_copy_is_told_on_the_way) {
  struct machine m = {.attached = true, .room_bound = true, .move_again_ns = UINT64_MAX};
  struct sight sight = {.now_ns = NS_PER_S, .memory.copies_bytes = 9};
  struct orders orders = {0};
  struct memory_moved moved = {.spared_bytes = UINT64_C(1) << 30, .clean_bytes = 7};
  machine_begin_move(&m, now_ns);
  machine_end_move(&m, MEMORY_MOVED, &moved, &sight, &orders);
  ck_assert_uint_eq(orders.count, 1);
  ck_assert_uint_eq(orders.messages[0].type, GS_RESIDENT);
  ck_assert_uint_eq(orders.messages[0].resident.evicted_bytes, 0);
  ck_assert_uint_eq(orders.messages[0].resident.spared_bytes, 7);
  ck_assert_uint_eq(orders.messages[0].resident.copies_bytes, 9);
  machine_begin_move(&m, now_ns);
  machine_end_move(&m, MEMORY_MOVED, &(struct memory_moved){0}, &sight, &orders);
  ck_assert_uint_eq(orders.count, 1); /* once */
}
END_TEST

int main(void) {
  const TTest *const tests[] = {both_sides_agree_after_any_history,
                                a_fall_that_is_never_told_is_not_waited_for,
                                what_is_allocated_as_the_last_move_ends_is_looked_for,
                                what_leaves_without_a_copy_is_told_on_the_way, NULL};
  return suite_main("machine_histories", tests, NULL, NULL);
}
