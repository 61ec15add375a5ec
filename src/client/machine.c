/* machine.c - see machine.h. */
#include "client/machine.h"

#include <errno.h>
#include <string.h>

#include "common/clock.h"
#include "common/wire.h"

#define MIB (UINT64_C(1) << 20)

#define MOVED_BYTES (64 * MIB) /* moved: others wait for the room */
/* Until what has failed to move is tried once more. Why a period: neither host nor driver tells of room. */
#define AGAIN_NS (100 * NS_PER_MS)
#define CHANGED_BYTES MIB           /* a change by less of what is allocated is not worth a message */
#define CHANGED_NS (20 * NS_PER_MS) /* between two reports of that */
#define SLACK_BYTES (16 * MIB)      /* what is kept of a grant when memory is given back */

/* The memory of a process that has died is free some time after its connection is closed: that is no reason
 * to believe that the card has less than it says. */
#define SHORT_NS (2 * NS_PER_S)

/* A driver that has refused every move for so long is not believed to make one any more. */
#define GIVE_UP_NS (2 * NS_PER_S)

/* An idle holder keeps the lock for what a hand-over costs, within these bounds; for less, but for the least,
 * where its pauses are long. */
#define IDLE_LEAST_NS (NS_PER_MS / 2)
#define IDLE_MIN_NS (2 * NS_PER_MS)
#define IDLE_MAX_NS (500 * NS_PER_MS)

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The next one to send. */
static struct gs_msg *add(struct orders *orders, enum gs_msg_type type) {
  struct gs_msg *msg = &orders->messages[orders->count++];
  *msg = wire_msg(type, 0);
  return msg;
}

/* ---- what it has allocated ---- */

static void send_memory(struct machine *machine, enum gs_msg_type type, uint32_t flags,
                        const struct sight *sight, struct orders *orders) {
  struct gs_msg *msg = add(orders, type);
  msg->mem.total_bytes = machine->has.told_bytes = machine->has.total_bytes;
  msg->mem.pinned_bytes = machine->has.pinned_bytes;
  msg->mem.paging_bytes = machine->has.told_paging_bytes = sight->memory.paging_bytes;
  msg->mem.flags = flags | (sight->memory.fixed ? GS_MEM_FIXED : 0);
  memcpy(msg->mem.kind_bytes, sight->memory.kind_bytes, sizeof msg->mem.kind_bytes);
  machine->has.report_at_ns = 0;
  machine->reported_ns = sight->now_ns;
}

/* Programs may allocate and free thousands of times a second: the daemon is told of it now and then. */
static uint64_t check_memory(struct machine *machine, uint64_t now_ns, const struct sight *sight,
                             struct orders *orders) {
  if (!machine->has.report_at_ns || !machine->attached || machine->memory_asking)
    return UINT64_MAX;
  if (now_ns < machine->has.report_at_ns)
    return machine->has.report_at_ns;
  send_memory(machine, GS_MEM_REPORT, 0, sight, orders);
  machine->granted_bytes = least(machine->granted_bytes, machine->has.total_bytes + SLACK_BYTES);
  uint64_t pinned_bytes = least(machine->has.pinned_bytes + SLACK_BYTES, machine->granted_bytes);
  machine->granted_pinned_bytes = least(machine->granted_pinned_bytes, pinned_bytes);
  return UINT64_MAX;
}

uint64_t machine_check_memory(struct machine *machine, const struct sight *sight, struct orders *orders) {
  return check_memory(machine, sight->now_ns, sight, orders);
}

/* What must be on the card for the program to run has grown beyond what the daemon knows, though all of its
 * memory has not. */
static bool pages_less(const struct machine *machine, const struct sight *sight) {
  return sight->memory.paging_bytes + CHANGED_BYTES <= machine->has.told_paging_bytes;
}

/* What can't leave must be known to the byte. What is told soon is not news. */
static bool is_news(const struct machine *machine, uint64_t total_bytes, uint64_t pinned_bytes) {
  uint64_t told_bytes = machine->has.told_bytes;
  uint64_t change = total_bytes > told_bytes ? total_bytes - told_bytes : told_bytes - total_bytes;
  bool differs = pinned_bytes != machine->has.pinned_bytes || change >= CHANGED_BYTES ||
                 (total_bytes == 0 && change > 0);
  return differs && !machine->has.report_at_ns;
}

static void note_memory(struct machine *machine, uint64_t total_bytes, uint64_t pinned_bytes,
                        const struct sight *sight, struct orders *orders) {
  bool tells = is_news(machine, total_bytes, pinned_bytes) ||
               (pages_less(machine, sight) && !machine->has.report_at_ns);
  machine->has.total_bytes = total_bytes;
  machine->has.pinned_bytes = pinned_bytes;
  if (!tells)
    return;
  machine->has.report_at_ns = machine->reported_ns + CHANGED_NS;
  orders->wake_timers |= machine_check_memory(machine, sight, orders) != UINT64_MAX;
}

/* Whoever has asked before has left by a jump, or has ended; or has not: it starts over. */
static void forget_question(struct machine *machine, struct orders *orders) {
  machine->memory_question++;
  orders->wake_waiting |= machine->memory_asking;
  machine->memory_asking = false;
}

void machine_note_memory(struct machine *machine, uint64_t total_bytes, uint64_t pinned_bytes,
                         const struct sight *sight, struct orders *orders) {
  forget_question(machine, orders);
  note_memory(machine, total_bytes, pinned_bytes, sight, orders);
}

/* What can't leave has a grant of its own, so that it keeps nobody from running. It is asked for even within
 * that where it has to wait for room: others may have pinned all of the card, and two programs would wait for
 * each other for ever. */
static bool must_ask(const struct machine *machine, uint64_t total_bytes, uint64_t pinned_bytes) {
  bool may_pin = pinned_bytes <= machine->granted_pinned_bytes && total_bytes <= machine_room_bytes(machine);
  return total_bytes > machine->granted_bytes || (pinned_bytes > machine->has.pinned_bytes && !may_pin);
}

bool machine_looks(const struct machine *machine, uint64_t total_bytes, uint64_t pinned_bytes) {
  return machine->has.told_paging_bytes >= CHANGED_BYTES ||
         (machine->attached &&
          (must_ask(machine, total_bytes, pinned_bytes) || is_news(machine, total_bytes, pinned_bytes)));
}

int machine_ask(struct machine *machine, uint64_t total_bytes, uint64_t pinned_bytes, bool anew,
                const struct sight *sight, struct orders *orders, struct machine_question *question) {
  forget_question(machine, orders);
  bool wants = must_ask(machine, total_bytes, pinned_bytes) || pages_less(machine, sight);
  if (machine->attached && !wants && !anew) {
    note_memory(machine, total_bytes, pinned_bytes, sight, orders);
    return 0;
  }
  *question = (struct machine_question){machine->memory_question, machine->generation};
  check_memory(machine, UINT64_MAX, sight, orders); /* should it be refused, that is what the daemon knows */
  machine->before = machine->has;
  machine->has.total_bytes = total_bytes;
  machine->has.pinned_bytes = pinned_bytes;
  if (!machine->attached)
    return -ENOTCONN;
  machine->memory_asking = true;
  machine->memory_answered = machine->memory_awaited = false;
  send_memory(machine, GS_MEM_REQUEST, wants ? 0 : GS_MEM_ASKS, sight, orders);
  return -EINPROGRESS;
}

/* An answer that came before the connection was lost counts: what was refused is in no books. */
int machine_answer(struct machine *machine, const struct machine_question *question, bool given_up) {
  if (machine->memory_question != question->number)
    return -EINTR;
  bool lost = machine->generation != question->generation;
  if (!machine->memory_answered && !lost && !given_up)
    return -EINPROGRESS;
  machine->memory_asking = false;
  return machine->memory_answered ? machine->memory_status : -ENOTCONN;
}

/* Of what is refused the daemon knows nothing. */
static void hear_reply(struct machine *machine, const struct gs_msg *msg) {
  machine->memory_awaited = msg->status == -EAGAIN;
  machine->memory_answered = !machine->memory_awaited;
  machine->memory_status = msg->status;
  machine->memory_why = (enum gs_refusal)msg->mem_reply.why;
  if (msg->mem_reply.knows_most)
    machine->most = (struct machine_most){.known = true,
                                          .total_bytes = msg->mem_reply.most_bytes,
                                          .pinned_bytes = msg->mem_reply.most_pinned_bytes,
                                          .making_way_bytes = msg->mem_reply.making_way_bytes};
  if (msg->status == 0) {
    machine->granted_bytes = msg->mem_reply.granted_bytes;
    machine->granted_pinned_bytes = msg->mem_reply.pinned_bytes;
  } else if (msg->status == -ENOMEM && machine->memory_asking) {
    machine->has = machine->before;
  }
  machine->memory_asking &= machine->memory_awaited;
}

/* ---- what it may have on the card ---- */

void machine_order_move(struct machine *machine, struct orders *orders) {
  machine->move_due = true;
  machine->moves_over = false;
  orders->wake_worker = true;
}

static void take_room(struct machine *machine, const struct gs_msg *msg, struct orders *orders) {
  bool lowered = msg->room.room_bytes < machine->room_bytes;
  bool changed = msg->room.room_bytes != machine->room_bytes;
  machine->room_bytes = msg->room.room_bytes;
  machine->room_seq = msg->room.room_seq;
  machine->target_bytes = msg->room.target_bytes;
  machine->room_lowered |= lowered;
  machine->moves_over &= !changed;
  if (lowered || !machine_runs(machine)) /* also unchanged: what was missing may have been freed */
    machine_order_move(machine, orders);
  orders->wake_waiting = true;
}

void machine_unbind(struct machine *machine, struct orders *orders) {
  machine->room_bound = machine->room_lowered = false;
  machine_order_move(machine, orders);
}

/* All that the daemon means to be there. */
static uint64_t target_bytes_of(const struct machine *machine) {
  uint64_t target_bytes = machine->room_bound && machine->room_seq ? machine->target_bytes : UINT64_MAX;
  uint64_t there_bytes = least(machine->has.total_bytes, machine_room_bytes(machine));
  return target_bytes < there_bytes ? there_bytes : target_bytes; /* allocated before the daemon knew */
}

uint64_t machine_enough_bytes(const struct machine *machine) {
  uint64_t target_bytes = target_bytes_of(machine);
  return machine->moves_over && machine_room_bytes(machine) >= target_bytes ? 0 : target_bytes;
}

bool machine_is_exceeded(const struct machine *machine, const struct memory_usage *usage) {
  uint64_t awaited_bytes = usage->pinned_bytes - usage->pinned_there_bytes;
  return usage->resident_bytes + awaited_bytes > machine_room_bytes(machine) &&
         usage->resident_bytes > usage->pinned_there_bytes;
}

static uint64_t moved_bytes(const struct machine *machine) {
  return machine->evicted_bytes + machine->restored_bytes + machine->spared_bytes;
}

/* Or what the daemon was told of, and waits for, has gone without a move: the program has freed it. What it
 * has allocated since then hides that from reports of all that it has. */
static bool is_report_due(const struct machine *machine, const struct sight *sight) {
  bool gone = machine->told_resident_bytes > machine_room_bytes(machine) &&
              sight->memory.resident_bytes < machine->told_resident_bytes;
  return machine->attached && (machine->room_lowered || moved_bytes(machine) || gone);
}

/* Of what is there, nothing may be unknown to the daemon. */
void machine_report(struct machine *machine, const struct sight *sight, struct orders *orders) {
  if (!is_report_due(machine, sight))
    return;
  check_memory(machine, UINT64_MAX, sight, orders);
  struct gs_msg *msg = add(orders, GS_RESIDENT);
  msg->resident.resident_bytes = machine->told_resident_bytes = sight->memory.resident_bytes;
  msg->resident.room_seq = machine->room_seq;
  msg->resident.evicted_bytes = machine->evicted_bytes;
  msg->resident.restored_bytes = machine->restored_bytes;
  msg->resident.spared_bytes = machine->clean_bytes;
  msg->resident.copies_bytes = sight->memory.copies_bytes;
  machine->room_lowered = false;
  machine->evicted_bytes = machine->restored_bytes = machine->spared_bytes = machine->clean_bytes = 0;
}

void machine_tell_short(struct machine *machine, uint64_t bytes, struct orders *orders) {
  machine->short_seq = machine->room_seq;
  if (machine->attached)
    add(orders, GS_MEM_SHORT)->mem_short.short_bytes = bytes;
}

static bool is_move_due(const struct machine *machine) {
  return machine->move_due && (machine->holding ? machine->grant_pending : machine->room_bound);
}

struct machine_move machine_begin_move(struct machine *machine, uint64_t now_ns) {
  uint64_t failed_ns = machine->failed_since_ns ? now_ns - machine->failed_since_ns : 0;
  machine->move_due = false;
  machine->move_again_ns = UINT64_MAX;
  machine->busy = true;
  return (struct machine_move){.room_bytes = machine_room_bytes(machine),
                               .granted = machine->grant_pending,
                               .is_last = machine->grant_pending &&
                                          machine_room_bytes(machine) >= target_bytes_of(machine),
                               .long_failed = machine->grant_pending && failed_ns >= GIVE_UP_NS};
}

static void note_since(uint64_t *since_ns, bool holds, uint64_t now_ns) {
  if (!holds)
    *since_ns = 0;
  else if (!*since_ns)
    *since_ns = now_ns;
}

/* No more moves, and nobody has said anything new meanwhile. */
static void end_moves(struct machine *machine, enum memory_progress progress, uint64_t short_bytes,
                      const struct sight *sight, struct orders *orders) {
  machine->moves_over = progress != MEMORY_SHORT;
  if (progress != MEMORY_SETTLED || machine_is_exceeded(machine, &sight->memory)) /* no host memory for it? */
    machine->move_again_ns = sight->now_ns + AGAIN_NS;
  uint64_t since_ns = machine->short_since_ns;
  if (since_ns && sight->now_ns - since_ns >= SHORT_NS && machine->short_seq != machine->room_seq)
    machine_tell_short(machine, short_bytes, orders);
}

void machine_end_move(struct machine *machine, enum memory_progress progress,
                      const struct memory_moved *moved, const struct sight *sight, struct orders *orders) {
  bool moving = progress == MEMORY_MOVED;
  machine->busy = false;
  machine->evicted_bytes += moved->out_bytes;
  machine->restored_bytes += moved->in_bytes;
  machine->spared_bytes += moved->spared_bytes;
  machine->clean_bytes += moved->clean_bytes;
  machine->returned_bytes += moved->in_bytes;
  note_since(&machine->failed_since_ns, progress == MEMORY_FAILED && machine->grant_pending, sight->now_ns);
  note_since(&machine->short_since_ns, progress == MEMORY_SHORT, sight->now_ns);
  if (!moving || moved_bytes(machine) >= MOVED_BYTES)
    machine_report(machine, sight, orders);
  if (!moving && !machine->move_due)
    end_moves(machine, progress, moved->short_bytes, sight, orders);
  machine->move_due |= moving;
}

void machine_put_off_move(struct machine *machine, uint64_t now_ns) {
  machine->move_due = false;
  machine->move_again_ns = now_ns + AGAIN_NS;
}

void machine_try_again(struct machine *machine) {
  machine->move_again_ns = UINT64_MAX;
  machine->move_due = true;
}

/* ---- the lock ---- */

static uint64_t handover_cost_ns(const struct machine *machine) {
  uint64_t cost_ns = least(machine->handover_ns, IDLE_MAX_NS);
  return cost_ns < IDLE_MIN_NS ? IDLE_MIN_NS : cost_ns;
}

uint64_t machine_patience_ns(const struct machine *machine) {
  return patience_ns(&machine->patience, IDLE_LEAST_NS, handover_cost_ns(machine));
}

static void end_pause(struct machine *machine, uint64_t now_ns) {
  if (machine->gave_way_ns)
    patience_end(&machine->patience, now_ns - machine->gave_way_ns, IDLE_LEAST_NS, handover_cost_ns(machine));
  machine->gave_way_ns = 0;
}

void machine_want(struct machine *machine, const struct sight *sight, struct orders *orders) {
  if (!machine->attached || machine->holding || machine->requested || !sight->needed)
    return;
  end_pause(machine, sight->now_ns);
  machine->requested = true;
  add(orders, GS_REQ_LOCK);
}

static void note_grant(struct machine *machine, uint64_t now_ns) {
  machine->granted_ns = now_ns;
  machine->returned_bytes = 0;
  machine->moves_over = false;
}

static void leave_to_worker(struct machine *machine, struct orders *orders) {
  machine->grant_pending = orders->expect = true;
  machine_order_move(machine, orders);
}

static void begin(struct machine *machine, uint64_t now_ns, struct orders *orders) {
  machine->steps = false;
  note_grant(machine, now_ns);
  leave_to_worker(machine, orders);
}

void machine_hold(struct machine *machine, const struct sight *sight, struct orders *orders) {
  if (machine->holding)
    return;
  machine->holding = true;
  machine->epoch = 0;
  machine->drop_pending = machine->wanted = false;
  begin(machine, sight->now_ns, orders);
}

static void hear_grant(struct machine *machine, const struct gs_msg *msg, const struct sight *sight,
                       struct orders *orders) {
  machine->epoch = msg->epoch;
  machine->holding = true;
  machine->requested = machine->wanted = machine->drop_pending = machine->steps_over = false;
  machine->steps = msg->room.steps;
  machine->quantum_ns = msg->room.quantum_ns;
  machine->ends_ns = 0;
  take_room(machine, msg, orders);
  note_grant(machine, sight->now_ns);
  if (machine->busy)
    leave_to_worker(machine, orders);
  else
    machine->grant_pending = machine->trying = orders->try_open = true;
}

static void tell_released(const struct machine *machine, uint64_t drain_ns, struct orders *orders) {
  struct gs_msg *msg = add(orders, GS_LOCK_RELEASED);
  msg->epoch = machine->epoch;
  msg->released.drain_ns = drain_ns;
}

void machine_order_drop(struct machine *machine, struct orders *orders) {
  machine->drop_pending = orders->wake_worker = orders->wake_waiting = true;
}

/* DROP_LOCK and LOCK_WANTED. One that speaks of another grant crossed our release on its way. */
static void hear_order(struct machine *machine, const struct gs_msg *msg, struct orders *orders) {
  bool drop = msg->type == GS_DROP_LOCK;
  if (machine->holding && machine->epoch == msg->epoch) {
    machine->wanted = drop || msg->wanted.left_ns != GS_LEFT_NOBODY;
    if (drop)
      machine_order_drop(machine, orders);
    orders->wake_worker = true;
  }
  if (drop)
    take_room(machine, msg, orders);
}

/* What was given back since ATTACH is told now. */
static void hear_attached(struct machine *machine, const struct sight *sight, struct orders *orders) {
  machine->attached = orders->wake_waiting = true;
  if (machine->told_running && !machine->holding)
    tell_released(machine, 0, orders);
  machine_want(machine, sight, orders);
}

void machine_hear(struct machine *machine, const struct gs_msg *msg, const struct sight *sight,
                  struct orders *orders) {
  switch (msg->type) {
  case GS_ATTACHED:
    hear_attached(machine, sight, orders);
    break;
  case GS_LOCK_OK:
    hear_grant(machine, msg, sight, orders);
    break;
  case GS_LOCK_WANTED:
  case GS_DROP_LOCK:
    hear_order(machine, msg, orders);
    break;
  case GS_ROOM:
    take_room(machine, msg, orders);
    break;
  case GS_MEM_REPLY:
    hear_reply(machine, msg);
    orders->wake_waiting = true;
    break;
  case GS_CAPACITY:
    orders->wake_waiting = true;
    break;
  }
}

static void open_gate(struct machine *machine, const struct sight *sight, struct orders *orders) {
  uint64_t restore_ns = sight->now_ns - machine->granted_ns;
  machine->grant_pending = false;
  machine->handover_ns = restore_ns > machine->handover_ns / 2 ? restore_ns : machine->handover_ns / 2;
  machine->open = orders->open = true;
  machine->ends_ns = machine->quantum_ns ? sight->now_ns + machine->quantum_ns : 0;
  machine_report(machine, sight, orders);
  if (machine->attached && machine->epoch) {
    struct gs_msg *msg = add(orders, GS_LOCK_ACTIVE);
    msg->epoch = machine->epoch;
    msg->active.restore_ns = restore_ns;
    msg->active.restore_bytes = machine->returned_bytes;
  }
  orders->wake_waiting = true; /* from now on unified memory makes way by itself */
  orders->wake_worker = true;  /* it may have been told a share meanwhile */
}

void machine_tried(struct machine *machine, bool open, const struct sight *sight, struct orders *orders) {
  machine->trying = false;
  if (open)
    open_gate(machine, sight, orders);
  else
    leave_to_worker(machine, orders);
}

/* ---- the connection ---- */

/* Without a daemon it was to run, but its memory did not fit on the card: it waits for its turn like
 * everybody. */
static void stop_filling(struct machine *machine) {
  if (machine->grant_pending && !machine->open)
    machine->holding = machine->grant_pending = false;
}

void machine_attach(struct machine *machine, const struct sight *sight, struct gs_msg *msg) {
  const struct memory_usage *usage = &sight->memory;
  stop_filling(machine);
  msg->attach.used_bytes = machine->granted_bytes = machine->has.told_bytes = usage->total_bytes;
  msg->attach.resident_bytes = machine->room_bytes = machine->told_resident_bytes = usage->resident_bytes;
  msg->attach.flags |= machine->holding ? GS_ATTACH_RUNNING : 0;
  machine->generation++;
  machine->told_running = machine->holding;
  machine->has.pinned_bytes = machine->granted_pinned_bytes = usage->pinned_bytes;
  machine->has.told_paging_bytes = 0;
  bool is_told =
      machine->has.total_bytes == machine->has.told_bytes && !usage->pinned_bytes && !usage->paging_bytes;
  machine->has.report_at_ns = is_told ? 0 : 1;
  machine->room_bound = true;
  machine->room_seq = machine->short_seq = 0;
  machine->short_since_ns = 0; /* others' memory was in the way, unasked */
  machine->room_lowered = false;
  machine->evicted_bytes = machine->restored_bytes = machine->spared_bytes = machine->clean_bytes = 0;
}

void machine_lose(struct machine *machine, struct orders *orders) {
  machine->generation++;
  machine->attached = machine->requested = machine->wanted = machine->drop_pending = false;
  machine->steps_over = machine->steps = machine->steps && !machine->grant_pending;
  machine->granted_bytes = machine->granted_pinned_bytes = machine->epoch = 0;
  machine->most = (struct machine_most){.known = false};
  machine_unbind(machine, orders);
  orders->wake_waiting = true;
}

/* ---- the worker ---- */

bool machine_needs_gpu(const struct machine *machine) {
  return !machine->trying && (machine->drop_pending || machine->grant_pending || is_move_due(machine));
}

enum machine_work machine_work(const struct machine *machine, const struct sight *sight,
                               const struct chores *chores) {
  if (machine->trying)
    return WORK_REST;
  if (machine->drop_pending)
    return WORK_RELEASE;
  if (machine->grant_pending && !chores->lacking)
    return WORK_TAKE_UP;
  if (machine->holding && chores->try)
    return WORK_TRY;
  if (chores->slice)
    return WORK_SLICE;
  if (chores->tell)
    return WORK_TELL;
  if (is_move_due(machine))
    return WORK_MOVE;
  if (is_report_due(machine, sight))
    return WORK_REPORT;
  if (chores->share)
    return WORK_SHARE;
  if (!machine_runs(machine) || !(machine->steps || machine->wanted))
    return WORK_REST;
  return machine->steps ? WORK_STEP : WORK_WATCH;
}

void machine_begin_release(struct machine *machine) {
  machine->drop_pending = machine->grant_pending = false;
  machine->busy = machine->releasing = true;
  machine->begun = machine->generation;
}

void machine_end_release(struct machine *machine, uint64_t drain_ns, const struct sight *sight,
                         struct orders *orders) {
  machine->busy = machine->releasing = machine->open = false;
  if (machine->generation != machine->begun) { /* the daemon went away meanwhile */
    if (machine->holding)
      begin(machine, sight->now_ns, orders);
    return;
  }
  machine->holding = machine->drop_pending = machine->wanted = false;
  machine->grant_pending = false; /* a grant that came meanwhile goes back, too */
  if (machine->attached)          /* else the daemon hears of it with ATTACH, or after ATTACHED */
    tell_released(machine, drain_ns, orders);
  orders->wake_waiting = true;
  machine_want(machine, sight, orders);
  machine_order_move(machine, orders);
}

void machine_begin_take_up(struct machine *machine) { machine->busy = true; }

bool machine_is_granted(const struct machine *machine) {
  return machine->grant_pending && !machine->drop_pending;
}

bool machine_end_take_up(struct machine *machine, bool open, const struct sight *sight,
                         struct orders *orders) {
  machine->busy = false;
  machine->open &= open;
  machine_want(machine, sight, orders); /* a daemon may have come: it does not hold any more */
  if (open && machine_is_granted(machine))
    open_gate(machine, sight, orders);
  else if (machine->grant_pending && !machine->move_due) /* what is lacking may just have been allocated */
    machine->move_again_ns = least(machine->move_again_ns, sight->now_ns + AGAIN_NS);
  return open || machine->drop_pending;
}

bool machine_end_turn(struct machine *machine, uint64_t epoch, uint64_t generation, struct orders *orders) {
  if (!machine->wanted || machine->epoch != epoch || machine->generation != generation)
    return false;
  machine_order_drop(machine, orders);
  return true;
}

void machine_idle(struct machine *machine, uint64_t epoch, uint64_t generation, uint64_t now_ns,
                  struct orders *orders) {
  if (machine_end_turn(machine, epoch, generation, orders))
    machine->gave_way_ns = now_ns;
}

bool machine_end_steps(struct machine *machine) {
  bool over = machine->steps_over;
  machine->steps &= !over;
  return over;
}
