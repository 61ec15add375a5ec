/*
 * machine.h - what a process does on one GPU with the daemon's messages: when it asks for the lock, opens and
 * shuts its gate, moves memory, and what it tells.
 *
 * Pure: no lock, no clock, no thread, no I/O, no allocation. A message or a report of the worker goes in with
 * what the caller sees; the state changes; what is to be done is added to struct orders, which the caller
 * carries out before it calls again. What takes time has two calls, one before and one after, and messages
 * may come between them.
 *
 * Threading: none; the caller serializes (client.lock).
 */
#ifndef GS_MACHINE_H
#define GS_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/patience.h"
#include "gpushare/protocol.h"
#include "memory/memory.h"

struct sight {
  uint64_t now_ns;
  bool needed; /* a thread waits for the lock, or work stands still */
  struct memory_usage memory;
};

#define ORDERS_MESSAGES 4

/* In this order. All zero: nothing is to be done. */
struct orders {
  bool try_open;     /* if no time is lost: open memory, and call machine_tried; that is not waited for */
  bool expect;       /* memory may be passed to the process (memory_expect_passed) */
  bool open;         /* the gate; with machine.steps, it stays shut, and calls pass one by one */
  unsigned count;    /* of messages to send */
  bool wake_worker;  /* there is something new for it */
  bool wake_waiting; /* a room, or who holds, has changed, or a question is answered */
  bool wake_timers;  /* machine_check_memory has something to do soon */
  struct gs_msg messages[ORDERS_MESSAGES]; /* whatever their field gpu says, of this one */
};

/* What a program has allocated, and what the daemon believes. */
struct machine_memory {
  uint64_t total_bytes;
  uint64_t pinned_bytes;      /* of it, what can't leave the card */
  uint64_t told_bytes;        /* what the daemon believes is used */
  uint64_t told_paging_bytes; /* of it, what need not be on the card */
  uint64_t report_at_ns;      /* when to tell it; 0: no need */
};

/* What the process could have if it asked. */
struct machine_most {
  bool known;
  uint64_t total_bytes, pinned_bytes;
  uint64_t making_way_bytes; /* of others: on the card, and able to leave it */
};

/* All zero, but move_again_ns UINT64_MAX: nothing has been heard of a daemon. */
struct machine {
  /* the connection */
  uint64_t generation; /* counts attachments and their ends: what was begun under another one is void */
  bool attached;       /* ATTACHED has come on this connection */
  bool told_running;   /* ATTACH has said that it holds */

  /* the lock */
  bool holding; /* may submit, by a grant or (no daemon) by default; the gate is open or about to be */
  bool requested;
  bool open;          /* calls pass, all or one by one */
  bool grant_pending; /* open memory and gate, once what is needed is on the card */
  bool trying;        /* that is done by who has heard of the grant: the worker lets it be */
  bool drop_pending;
  bool steps;               /* while it holds, the gate stays shut, and calls pass one by one */
  bool steps_over;          /* nobody will tell it to stop: it goes on as one that holds */
  bool wanted;              /* somebody waits: release when idle */
  bool busy;                /* the worker is in the middle of something, the lock not held */
  bool releasing;           /* the worker is giving the lock back */
  uint64_t begun;           /* generation, as that began */
  uint64_t epoch;           /* of the grant */
  uint64_t granted_ns;      /* when it got the lock last */
  uint64_t quantum_ns;      /* as that said; 0: no turns */
  uint64_t ends_ns;         /* when the quantum will be over, since the gate is open; 0: nobody has said */
  uint64_t handover_ns;     /* what one costs this process: the last, or half of what it was before */
  uint64_t gave_way_ns;     /* when it gave the lock back for a pause; 0: it has wanted it again since */
  struct patience patience; /* with pauses while somebody waits */

  /* what it may have on the card */
  bool room_bound;     /* by a daemon */
  uint64_t room_bytes; /* as told; before that, what was there when it attached */
  uint64_t room_seq;   /* 0: none has been told */
  uint64_t target_bytes;
  bool room_lowered;            /* and the daemon does not know yet that we know */
  bool move_due;                /* memory may have to move */
  bool moves_over;              /* nothing more moves for this room */
  uint64_t move_again_ns;       /* when to try what has failed once more; UINT64_MAX: never */
  uint64_t short_seq;           /* the room for which MEM_SHORT was sent */
  uint64_t failed_since_ns;     /* all moves have failed; 0: the last one did not */
  uint64_t short_since_ns;      /* since when the driver has refused each step; 0: it has not */
  uint64_t told_resident_bytes; /* in the last RESIDENT, or when it attached */
  uint64_t evicted_bytes;       /* since the last RESIDENT */
  uint64_t restored_bytes;      /* likewise */
  uint64_t spared_bytes;        /* likewise: off the card or onto it without a copy */
  uint64_t clean_bytes;         /* of these: off the card */
  uint64_t returned_bytes;      /* restored since the grant */

  /* what it has allocated */
  uint64_t granted_bytes;        /* memory: may grow to this without asking; */
  uint64_t granted_pinned_bytes; /* and what can't leave the card, to this */
  struct machine_memory has;
  uint64_t reported_ns;         /* when it was told last */
  bool memory_asking;           /* what is told meanwhile would be out of order */
  struct machine_memory before; /* what was so, as that was asked */
  uint64_t memory_question;     /* of those who asked, told or found no need to: the latest is the truth */
  bool memory_answered;
  bool memory_awaited; /* it is answered once others have ended */
  int32_t memory_status;
  enum gs_refusal memory_why; /* it is -ENOMEM */
  struct machine_most most;   /* as the daemon said last */
};

/* ---- the daemon ---- */

/* ATTACH is about to be sent: what it says of the process. */
void machine_attach(struct machine *machine, const struct sight *sight, struct gs_msg *msg);

/* ATTACHED, LOCK_OK, LOCK_WANTED, DROP_LOCK, ROOM or MEM_REPLY; others are passed over. */
void machine_hear(struct machine *machine, const struct gs_msg *msg, const struct sight *sight,
                  struct orders *orders);

/* After orders.try_open. */
void machine_tried(struct machine *machine, bool open, const struct sight *sight, struct orders *orders);

/* The connection has ended: what the daemon has said is void. Who held the lock holds on. */
void machine_lose(struct machine *machine, struct orders *orders);

/* Nobody says what it may have on the card any more. */
void machine_unbind(struct machine *machine, struct orders *orders);

/* There is no daemon: the process holds the lock, unless it does already. */
void machine_hold(struct machine *machine, const struct sight *sight, struct orders *orders);

/* ---- the program ---- */

/* Something may need the lock. */
void machine_want(struct machine *machine, const struct sight *sight, struct orders *orders);

/* There may be something to move. */
void machine_order_move(struct machine *machine, struct orders *orders);

/* The driver has refused so many bytes that are within the room. */
void machine_tell_short(struct machine *machine, uint64_t bytes, struct orders *orders);

/* It is to have so much memory. 0: it may; -ENOTCONN: there is nobody to ask; -EINPROGRESS: that is asked,
 * and machine_answer tells. anew: it is asked even if it may, so that machine.most is true. */
struct machine_question {
  uint64_t number, generation;
};
int machine_ask(struct machine *machine, uint64_t total_bytes, uint64_t pinned_bytes, bool anew,
                const struct sight *sight, struct orders *orders, struct machine_question *question);

/* Whether it matters to machine_ask and machine_note_memory what the caller sees: most allocations and frees
 * are only noted. */
bool machine_looks(const struct machine *machine, uint64_t total_bytes, uint64_t pinned_bytes);

/* -EINPROGRESS: none yet; -EINTR: somebody else has asked since; -ENOTCONN; or the daemon's. given_up: it is
 * not waited for any more. */
int machine_answer(struct machine *machine, const struct machine_question *question, bool given_up);

/* It has so much memory. */
void machine_note_memory(struct machine *machine, uint64_t total_bytes, uint64_t pinned_bytes,
                         const struct sight *sight, struct orders *orders);

/* Tell of that if it is due. Returns when it will be (UINT64_MAX: no need). */
uint64_t machine_check_memory(struct machine *machine, const struct sight *sight, struct orders *orders);

/* ---- the worker ---- */

enum machine_work {
  WORK_REST,
  WORK_RELEASE,
  WORK_TAKE_UP,
  WORK_TRY,
  WORK_SLICE,
  WORK_TELL,
  WORK_MOVE,
  WORK_REPORT,
  WORK_SHARE,
  WORK_STEP,
  WORK_WATCH
};

/* What there is to do beside the lock and memory; and whether taking up has just been tried in vain. */
struct chores {
  bool try, slice, tell, share;
  bool lacking;
};

/* Of orders and moves, what comes first. Moves and hand-overs need the GPU. */
enum machine_work machine_work(const struct machine *machine, const struct sight *sight,
                               const struct chores *chores);
bool machine_needs_gpu(const struct machine *machine);

/* The lock goes back: stop, or drain; what must leave the card leaves afterwards. */
void machine_order_drop(struct machine *machine, struct orders *orders);
void machine_begin_release(struct machine *machine);
void machine_end_release(struct machine *machine, uint64_t drain_ns, const struct sight *sight,
                         struct orders *orders);

/* The lock is taken up: if all is there (`open`), work goes on, unless machine_is_granted is false by then;
 * then the gate opens, as the orders say. False: not yet, and nobody has said anything new. */
bool machine_is_granted(const struct machine *machine);
void machine_begin_take_up(struct machine *machine);
bool machine_end_take_up(struct machine *machine, bool open, const struct sight *sight,
                         struct orders *orders);

/* One step towards the room. */
struct machine_move {
  uint64_t room_bytes;
  bool granted;     /* the process waits for it */
  bool is_last;     /* it runs once this has settled */
  bool long_failed; /* and the driver has refused for long */
};
struct machine_move machine_begin_move(struct machine *machine, uint64_t now_ns);
void machine_end_move(struct machine *machine, enum memory_progress progress,
                      const struct memory_moved *moved, const struct sight *sight, struct orders *orders);

/* Nothing can move now; and: move_again_ns has come. */
void machine_put_off_move(struct machine *machine, uint64_t now_ns);
void machine_try_again(struct machine *machine);

/* Tell the daemon what has moved, and which room we know, if it waits for that. */
void machine_report(struct machine *machine, const struct sight *sight, struct orders *orders);

/* The program ends its turn, of this grant, for those that wait. False: nobody does, or the grant is over. */
bool machine_end_turn(struct machine *machine, uint64_t epoch, uint64_t generation, struct orders *orders);

/* Nothing has been submitted for long, as of a grant; how long that is. */
void machine_idle(struct machine *machine, uint64_t epoch, uint64_t generation, uint64_t now_ns,
                  struct orders *orders);
uint64_t machine_patience_ns(const struct machine *machine);

/* Steps are over: the gate is to open. */
bool machine_end_steps(struct machine *machine);

/* ---- what holds ---- */

/* It holds the lock, and its gate is open or about to be: nothing moves. */
static inline bool machine_runs(const struct machine *machine) {
  return machine->holding && !machine->grant_pending;
}

/* What the process may have on the card now. */
static inline uint64_t machine_room_bytes(const struct machine *machine) {
  return machine->room_bound ? machine->room_bytes : UINT64_MAX;
}

/* How much must be on the card before the gate opens; page faults fetch the rest. */
uint64_t machine_enough_bytes(const struct machine *machine);

/* Some of what is on the card is to leave, and could; also for what can't leave and is still to come. */
bool machine_is_exceeded(const struct machine *machine, const struct memory_usage *usage);

#endif
