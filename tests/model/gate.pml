/*
 * gate.pml - the gate of one GPU between threads that call and the worker that shuts it, for spin: once
 * gate_close has returned no call is in flight and none comes, and nobody sleeps for ever. Run by
 * tests/model/check.
 *
 * What stands for what:
 *
 *   caller    a thread of the program: gate_enter, gate_enter_slow, gate_leave (gate.h, gate.c), slots_mine
 *   worker    gate_close, gate_pulse, gate_revoke_pulse, gate_watch, gate_open; slots_barrier, slots_wait_empty
 *   memory    the variables below are what every thread sees. A store waits in its thread's buffer until that is
 *             emptied, in order, at any moment. Before a sequentially consistent store of a caller is done, and
 *             before a read-modify-write, the thread's buffer is empty. Stores of the worker are weaker than the
 *             code's: they wait until its fence
 *   barrier   membarrier(2) empties the other threads' buffers, one after the other
 *   futex     a wait ends once the word has changed; a thread that has ended is found by looking again
 *   time      none: nobody gives up
 *
 * Not in here: several GPUs, captures, calls within calls, waits for memory, forks (one thread is left then). The
 * compiler keeps the order of the lines, by gate_order.
 *
 * The sizes of a run, -D each:
 */
#ifndef N
#define N 2 /* callers; each begins at any moment */
#endif
#ifndef CALLS
#define CALLS 2 /* of each */
#endif
#ifndef ROUNDS
#define ROUNDS 1 /* times that the gate is shut */
#endif
#ifndef PULSES
#define PULSES 0 /* in each of these times */
#endif
#ifndef WATCH
#define WATCH 0 /* the gate is watched before it is shut */
#endif
#ifndef DEATHS
#define DEATHS 0 /* threads that end within a call */
#endif
#ifndef JUMPS
#define JUMPS 0 /* calls that a signal handler leaves by a jump */
#endif
#ifndef FENCES
#define FENCES 0 /* 1: there is no membarrier; 2: it may become forbidden */
#endif

#define WORKER N
#define NO_SLOT 255
#define ENDED 254 /* the number of a thread that is no more */

#define OWN 1     /* in_flight: the frame of a call of this thread's */
#define FOREIGN 2 /* of the last thread's with this slot, further up the stack */

mtype:all = { SHUT, FREE, LOOK };
mtype:word = { IN_FLIGHT, COUNT, OPEN, ALL_OPEN, PERMIT, WATCHED };

/* ---- memory ---- */

typedef slot_state {
  byte in_flight, count, thread;
};
slot_state slot[N + 1];
byte listed; /* the slots below this one are in the list; the last one is its head */
mtype:all all_open = FREE;
bool open = true, watched, has_membarrier = (FENCES != 1);
byte permit, pulses, change, departures;

chan buffer[N + 1] = [4] of { mtype:word, byte /* slot */, byte /* value */ };

inline arrive(who) {
  buffer[who]?kind, at, value;
  if
  :: kind == IN_FLIGHT -> slot[at].in_flight = value
  :: kind == COUNT -> slot[at].count = value
  :: kind == OPEN -> open = value
  :: kind == ALL_OPEN -> all_open = value
  :: kind == PERMIT -> permit = value
  :: kind == WATCHED -> watched = value
  fi;
  kind = 0;
  at = 0;
  value = 0
}

inline drain(who) {
  do
  :: len(buffer[who]) > 0 -> arrive(who)
  :: else -> break
  od
}

/* A store is seen by others at last. */
active proctype bus() {
  mtype:word kind;
  byte at, value;
end_bus:
  do
  :: d_step { nempty(buffer[0]) -> arrive(0) }
#if N > 1
  :: d_step { nempty(buffer[1]) -> arrive(1) }
#endif
#if N > 2
  :: d_step { nempty(buffer[2]) -> arrive(2) }
#endif
  :: d_step { nempty(buffer[WORKER]) -> arrive(WORKER) }
  od
}

/* ---- what must hold ---- */

/* The calls as they really are. */
bool inside[N], told[N];
byte let_through[N];

bool kept_out; /* gate_close has returned, and no pulse is in force */
bool is_told;  /* gate_watch has returned: calls that begin now are told of */

inline all_are_outside() {
  for (k : 0 .. N - 1) {
    assert(!inside[k])
  }
}

/* By gate_calls and gate_in_flight. */
inline all_are_known() {
  for (k : 0 .. listed - 1) {
    assert(slot[k].thread >= N || let_through[slot[k].thread] <= slot[k].count + (slot[k].in_flight == OWN))
  }
}

/* ---- a thread of the program ---- */

byte deaths = DEATHS, jumps = JUMPS;

inline store(what, number) { buffer[me]!what(mine, number) }

inline order() {
  if
  :: has_membarrier
#ifdef BUG_FENCES_NOWHERE
  :: !has_membarrier
#else
  :: d_step { !has_membarrier -> drain(me); skip }
#endif
  fi
}

inline notify() {
  d_step { drain(me); departures++ }
}

inline set_in_flight(number) {
  d_step { drain(me); slot[mine].in_flight = number; flying = number }
}

/* From this step on the call may reach the driver. */
inline enter() {
  assert(!kept_out);
  assert(!is_told || !fast);
  inside[me] = true;
  let_through[me]++
}

#define MAY_PASS (open || permit > before)

/* Also with what its last thread has left behind. */
inline take_slot() {
  mine = 0;
  do
  :: mine < listed && slot[mine].thread != ENDED -> mine++
  :: else -> break
  od;
  slot[mine].thread = me;
  count = slot[mine].count;
  if
  :: mine == listed -> listed++
  :: else ->
#ifdef BUG_TAKES_A_CALL_OVER
     flying = (slot[mine].in_flight -> FOREIGN : 0)
#else
     store(IN_FLIGHT, 0)
#endif
  fi
}

proctype caller(byte me) {
  mtype:word kind;
  byte at, value, calls, count, flying, before, seen, mine = NO_SLOT;
  bool fast, passes;
  do
  :: calls == CALLS && flying == 0 -> goto end_rests
  :: calls == CALLS -> break
  :: calls < CALLS ->
     calls++;
     if
     :: mine != NO_SLOT && !flying ->
        fast = true;
#ifdef BUG_FAST_WAY_LOOKS_FIRST
        passes = (all_open == FREE);
#endif
        atomic { store(IN_FLIGHT, OWN); flying = OWN };
        order();
        atomic {
#ifndef BUG_FAST_WAY_LOOKS_FIRST
          passes = (all_open == FREE);
#endif
          if
          :: passes -> enter(); goto in
          :: else -> fast = false
          fi
        }
     :: mine == NO_SLOT -> atomic { take_slot() }
     :: else
     fi;
     if
     :: atomic { flying == FOREIGN -> enter(); goto in }
     :: flying == OWN -> set_in_flight(0); notify()
     :: flying == 0
     fi;
     before = pulses;
try:
#ifdef BUG_SLOW_WAY_LOOKS_FIRST
     passes = MAY_PASS;
#endif
     set_in_flight(OWN);
     atomic {
#ifndef BUG_SLOW_WAY_LOOKS_FIRST
       passes = MAY_PASS;
#endif
       if
       :: passes -> enter(); goto slow_in
       :: else
       fi
     };
     set_in_flight(0);
     notify();
#ifdef BUG_SLEEPS_ON_A_LATER_CHANGE
     passes = MAY_PASS;
#endif
     seen = change;
#ifndef BUG_SLEEPS_ON_A_LATER_CHANGE
     passes = MAY_PASS;
#endif
     if
     :: passes
     :: !passes -> change != seen
     fi;
     goto try;
slow_in:
     told[me] = watched;
in:
     if
     :: atomic { deaths > 0 -> deaths--; inside[me] = false; break }
     :: atomic { jumps > 0 -> jumps--; inside[me] = false }
     :: atomic {
          inside[me] = false;
          count++;
          store(COUNT, count);
          store(IN_FLIGHT, 0);
          flying = 0
        };
        order();
#ifndef BUG_LEAVES_IN_SILENCE
        if
        :: all_open == SHUT -> notify()
        :: else
        fi
#endif
     fi;
     fast = false;
     passes = false;
     before = 0;
     seen = 0
  od;
  skip;
  d_step {
    drain(me);
    if
    :: mine != NO_SLOT -> slot[mine].thread = ENDED
    :: else
    fi
  };
end_rests:
  false
}

/* ---- the worker ---- */

inline worker_store(what, number) { buffer[WORKER]!what(0, number) }

inline worker_drain() {
  d_step { drain(WORKER); skip }
}

inline membarrier() {
  i = 0;
  do
  :: i < N -> d_step { drain(i); i++ }
  :: i == N -> break
  od;
  i = 0
}

inline slots_barrier() {
  worker_drain();
  if
  :: has_membarrier -> membarrier()
#if FENCES == 2
  :: has_membarrier -> has_membarrier = false; membarrier() /* another one, or time */
#endif
  :: !has_membarrier
  fi
}

#ifdef BUG_AWAITS_THE_DEAD
#define IS_GONE(i) false
#else
#define IS_GONE(i) (slot[i].thread == ENDED)
#endif

inline slots_wait_empty() {
  i = listed;
  do
  :: i == 0 -> break
  :: i > 0 ->
     i--;
#ifndef BUG_COUNTS_BEFORE_THE_BARRIER
     counted = slot[i].count;
#endif
     do
     :: true ->
#ifndef BUG_SLEEPS_ON_A_LATER_DEPARTURE
        seen = departures;
#endif
        if
        :: slot[i].in_flight == 0 -> break
        :: else
        fi;
        if
        :: slot[i].count != counted -> break
        :: else
        fi;
        if
        :: IS_GONE(i) -> break
        :: else
        fi;
#ifdef BUG_SLEEPS_ON_A_LATER_DEPARTURE
        seen = departures;
#endif
        departures != seen || IS_GONE(i)
     od
  od;
  counted = 0;
  seen = 0
}

/* Of gate_close and gate_revoke_pulse. */
inline keep_out() {
  d_step {
    all_are_outside();
    k = 0;
    kept_out = true
  }
}

inline wake() {
  d_step { drain(WORKER); change++ }
}

proctype worker() {
  mtype:word kind;
  byte at, value, i, k, seen, counted, round, pulse;
#if WATCH
  worker_store(WATCHED, true);
  worker_store(ALL_OPEN, LOOK);
#ifndef BUG_WATCHES_WITHOUT_BARRIER
  slots_barrier();
#endif
  d_step {
    all_are_known();
    k = 0;
    is_told = true
  };
#endif
  do
  :: round == ROUNDS -> break
  :: round < ROUNDS ->
     round++;
     worker_store(OPEN, false);
     worker_store(ALL_OPEN, SHUT);
#ifdef BUG_COUNTS_BEFORE_THE_BARRIER
     counted = slot[0].count;
#endif
#ifndef BUG_CLOSES_WITHOUT_BARRIER
     slots_barrier();
#endif
     slots_wait_empty();
     keep_out();
#if PULSES
     pulse = 0;
     do
     :: pulse == PULSES -> break
     :: pulse < PULSES ->
        pulse++;
        kept_out = false;
        pulses++;
        worker_store(PERMIT, pulses);
        wake();
        worker_store(PERMIT, 0);
#ifndef BUG_REVOKES_WITHOUT_BARRIER
        slots_barrier();
#endif
        slots_wait_empty();
        keep_out()
     od;
#endif
     kept_out = false;
#ifdef BUG_OPENS_AFTER_WAKING
     wake();
#endif
     worker_store(OPEN, true);
     worker_store(ALL_OPEN, (watched -> LOOK : FREE));
#ifndef BUG_OPENS_AFTER_WAKING
     wake()
#endif
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. N - 1) {
      run caller(i)
    }
    run worker();
    i = 0
  }
}
