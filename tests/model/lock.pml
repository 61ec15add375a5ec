/*
 * lock.pml - the lock of one GPU between the daemon and its clients, for spin: who holds, hand-over, what
 * must leave the card for it, death, and the daemon's death and return. Run by tests/model/check.
 *
 * What stands for what:
 *
 *   daemon.pml   daemon/core: one event, decided and answered in one step. turns.c (turns_*), memory_plan.c
 *                (the plan, rooms), accounting.c (claims), scheduler.c (events)
 *   client.pml   src/client: connection.c (connection), worker.c and room.c (worker). The gate is open or
 *                shut; what src/gate does to make that true is not in here
 *   a slot       one connection of SOCK_SEQPACKET: two queues that keep their order; who reads gets what was
 *                sent before the other end closed, and then the end
 *   memory       each job has one unit; the card has CARD of them. A room is 0 or 1
 *   time         none. A quantum, a grace or an idle time may end whenever it has begun; where a program that
 *                answers is to be given the time to do so, it ends early SLOW times at most
 *   room_seq     the model counts lowered rooms that have yet to be acknowledged (`unseen`), which is what the
 *                daemon makes of the numbers
 *   epoch        of a job's grants: 1 and 2 in turn, which is enough, since the orders on their way to it are
 *                of two grants at most; 0: runs without a grant; OLD: of one long ago
 *
 * Not in here: growing memory, pinned memory, what the driver or the host refuses (MEM_SHORT, jobs that stay on
 * the card), modes other than auto and on, more than one GPU, the times in the plan.
 *
 * That who waits runs at last is checked for two clients: with three there are too many states. So are CARD=2 of
 * N=3, and SPARE=1. A reader that is far behind holds the others up (LAG): how far queues can grow is no subject
 * of the model.
 *
 * The sizes of a run, -D each:
 */
#ifndef N
#define N 2 /* clients */
#endif
#ifndef CARD
#define CARD 1 /* units of memory */
#endif
#ifndef SPARE
#define SPARE 0 /* connections more than clients: one may be there twice, the old one not yet buried */
#endif
#ifndef DEATHS
#define DEATHS 0 /* of clients */
#endif
#ifndef RESTARTS
#define RESTARTS 0 /* of the daemon */
#endif
#ifndef CUTS
#define CUTS 0 /* connections that a client gives up though the daemon lives */
#endif
#ifndef STALLS
#define STALLS 0 /* clients that stop answering */
#endif
#ifndef RESUMES
#define RESUMES 0 /* times that such a one may go on; then it never will */
#endif
#ifndef LATE
#define LATE 0 /* messages that speak of an old grant */
#endif
#ifndef SLOW
#define SLOW 0 /* times that a grace ends though the client answers */
#endif
#ifndef MANAGED
#define MANAGED 0 /* the memory has page faults */
#endif
#ifndef MODE_ON
#define MODE_ON 0 /* always turns; otherwise while the memory does not fit: GS_MODE_AUTO */
#endif

#ifndef LAG
#define LAG 2 /* letters that somebody has yet to read when others go on */
#endif

#define SLOTS (N + SPARE)
#define NOWHERE 255 /* no slot, no job */
#define LETTERS (LAG + 5) /* that fit in a queue; more would be an error */
#define OLD 3

mtype:message = {
  ATTACH, REQ_LOCK, LOCK_RELEASED, LOCK_ACTIVE, RESIDENT,    /* to the daemon */
  ATTACHED, LOCK_OK, LOCK_WANTED, DROP_LOCK, ROOM            /* to the client */
};

/* ---- the connections ---- */

mtype:slot_state = { FREE, OPEN, CLIENT_GONE, DAEMON_GONE };
mtype:slot_state slot[SLOTS];
byte owner[SLOTS];
chan to_daemon[SLOTS] = [LETTERS] of { mtype:message, byte /* epoch; ATTACH: is running */,
                                       byte /* ATTACH, RESIDENT: resident */, byte /* RESIDENT: knows its room */ };
chan to_client[SLOTS] = [LETTERS] of { mtype:message, byte /* epoch */, byte /* room */,
                                       byte /* the room has been lowered */ };
byte lowered_unread[SLOTS]; /* how many in to_client have lowered the room */
bool daemon_up = true;

inline discard(queue) {
  do
  :: len(queue) > 0 -> queue?_,_,_,_
  :: else -> break
  od
}

inline close_by_client(at) {
  discard(to_client[at]);
  lowered_unread[at] = 0;
  if
  :: slot[at] == DAEMON_GONE -> slot[at] = FREE
  :: else -> slot[at] = CLIENT_GONE
  fi
}

/* ---- what everybody may look at: struct gpu of src/client/client_state.h, and the process around it ---- */

typedef client_state {
  bool dead, stalled;
  byte slot;
  bool attached, holding, requested, busy, releasing;
  bool void_drain; /* its generation is not that of the connection any more */
  byte epoch;
  bool grant_pending, drop_pending, wanted;
  bool room_bound, room, room_lowered, step_due, moved; /* moved: in either direction, and not yet told */
  bool resident; /* on the card, from the start of a restore to the end of an eviction */
  bool gate, waiting, idle, opening;
};
client_state client[N];

byte stalls = STALLS, resumes = RESUMES;
#define IS_LOST(i) (client[i].dead || (client[i].stalled && resumes == 0))
#define RUNS(i) (!client[i].dead && !client[i].stalled)

/* Nobody is so far ahead of another that queues grow without end. */
#define HAS_READ(s) (len(to_client[s]) <= LAG || slot[s] != OPEN || client[owner[s]].stalled)
#if SLOTS > 2
#define ALL_READ (HAS_READ(0) && HAS_READ(1) && HAS_READ(2))
#else
#define ALL_READ (HAS_READ(0) && HAS_READ(1))
#endif
#define IS_READ(i) (client[i].slot == NOWHERE || len(to_daemon[client[i].slot]) <= LAG)

byte card_used; /* units on the card */

byte slow = SLOW;
bool restarted, cut; /* at least once */

#include "daemon.pml"
#include "client.pml"

/* ---- what may happen ---- */

byte deaths = DEATHS, restarts = RESTARTS, cuts = CUTS, late = LATE;

inline die(i) {
  d_step {
    if
    :: client[i].slot != NOWHERE -> close_by_client(client[i].slot)
    :: else
    fi;
    card_used = card_used - client[i].resident;
    client_clear(i);
    client[i].dead = true;
    client[i].stalled = false
  }
}

inline daemon_dies() {
  d_step {
    daemon_up = false;
    restarted = true;
    daemon_clear();
    k = 0;
    do
    :: k < SLOTS ->
       discard(to_daemon[k]);
       if
       :: slot[k] == OPEN -> slot[k] = DAEMON_GONE
       :: slot[k] == CLIENT_GONE -> slot[k] = FREE
       :: else
       fi;
       k++
    :: else -> break
    od;
    k = 0
  }
}

proctype fate() {
  byte i;
end_fate:
  do
  :: atomic { deaths > 0 -> deaths--; select(i : 0 .. N - 1);
       if
       :: !client[i].dead -> die(i)
       :: else
       fi; i = 0 }
  :: deaths > 0 -> deaths--
  :: atomic { restarts > 0 && daemon_up -> restarts--; daemon_dies() }
  :: restarts > 0 && daemon_up -> restarts--
  :: !daemon_up -> daemon_up = true
#if CUTS > 0
  :: atomic { cuts > 0 -> cuts--; select(i : 0 .. N - 1);
       if
       :: RUNS(i) && client[i].slot != NOWHERE && !client[i].opening -> cut = true; disconnect(i)
       :: else
       fi; i = 0 }
#endif
#if STALLS > 0
  :: atomic { stalls > 0 -> stalls--; select(i : 0 .. N - 1);
       if
       :: !client[i].dead -> client[i].stalled = true
       :: else
       fi; i = 0 }
  :: stalls > 0 -> stalls--
  :: atomic { resumes > 0 -> resumes--; select(i : 0 .. N - 1); client[i].stalled = false; i = 0 }
  :: resumes > 0 -> resumes--
#endif
#if LATE > 0
  :: atomic { late > 0 -> late--; select(i : 0 .. SLOTS - 1);
       if
       :: slot[i] == OPEN && job[i].state != NONE ->
          if
          :: nfull(to_daemon[i]) -> to_daemon[i]!LOCK_RELEASED(OLD, 0, 0)
          :: nfull(to_daemon[i]) -> to_daemon[i]!LOCK_ACTIVE(OLD, 0, 0)
          :: nfull(to_client[i]) -> to_client[i]!LOCK_WANTED(OLD, 0, 0)
          :: nfull(to_client[i]) -> to_client[i]!DROP_LOCK(OLD, job[i].room, 0)
          fi
       :: else
       fi; i = 0 }
#endif
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. SLOTS - 1) {
      slot[i] = FREE;
      job_clear(i);
      owner[i] = (i < N -> i : 0);
      run reader(i);
      run clock(i)
    }
    for (i : 0 .. N - 1) {
      client_clear(i);
      run connection(i);
      run worker(i);
      run program(i)
    }
    run fate();
    run settle();
    i = 0
  }
}

/* ---- what must hold ---- */

#define GATE(i) (client[i].gate)
#define KNOWN(i) (client[i].slot != NOWHERE && job[client[i].slot].state != NONE)
#define MAY_RUN_BESIDE(i) (job[client[i].slot].beside || (MANAGED && IS(client[i].slot, BYPASSED)))
#define TWO_RUN(a, b)                                                                                        \
  (serialized && GATE(a) && GATE(b) && KNOWN(a) && KNOWN(b) && !MAY_RUN_BESIDE(a) && !MAY_RUN_BESIDE(b))

#define UNFIT(i) (!MANAGED && GATE(i) && !client[i].resident)
#define REFUSED(i)                                                                                           \
  (!MANAGED && client[i].room_bound && client[i].room && !client[i].resident && card_used == CARD &&         \
   !restarted && !cut)

#ifdef SAFETY
active proctype properties() {
end_properties:
  do
  /* While turns are taken one runs; or those too that ran already when turns began, or when the daemon came
   * back, until they have answered; or one with page faults that does not answer. */
  :: d_step { TWO_RUN(0, 1) -> assert(false) }
#if N > 2
  :: d_step { TWO_RUN(0, 2) -> assert(false) }
  :: d_step { TWO_RUN(1, 2) -> assert(false) }
#endif
  /* Nothing runs on memory that is away. */
  :: d_step { UNFIT(0) || UNFIT(1) -> assert(false) }
#if N > 2
  :: d_step { UNFIT(2) -> assert(false) }
#endif
  /* Who has been told a room has it: others have left before. */
  :: d_step { REFUSED(0) || REFUSED(1) -> assert(false) }
#if N > 2
  :: d_step { REFUSED(2) -> assert(false) }
#endif
  od
}
#endif

#ifdef LIVENESS
/* Who waits runs at last, if it lives and answers. */
#define WAITS (client[0].waiting && !GATE(0))
#define RAN_OR_GONE (GATE(0) || client[0].dead || client[0].stalled)
ltl granted { [] (WAITS -> <> RAN_OR_GONE) }
#endif
