/* daemon.pml - the daemon's core. Each event is one step: its part of the state changes, then turns_update,
 * residency_update, and what must be told is sent, in the order of enum sched_action_type. */

mtype:job_state = { NONE, IDLE, WAITING, HOLDING, DROPPING, BYPASSED };

typedef job_state_of_slot {
  mtype:job_state state;
  byte epoch;
  byte place; /* in the queue, from 1 */
  bool runs, wanted_told;
  bool room_told, room, promised, resident;
  byte unread;  /* messages on their way that were sent before its room was lowered last */
  bool overdue; /* has not left the card within the grace */
  bool beside;  /* for the properties: it may still run beside the holder, since turns began or it came running */
};
job_state_of_slot job[SLOTS];

bool serialized = MODE_ON;
byte queued, jobs;
bool exceeds; /* the holder has page faults and gets all its room, whatever is claimed */
bool overbooked; /* for the properties: one came with memory that the others had been promised */

/* Of one event. */
hidden byte todo[SLOTS], lowered[SLOTS];
hidden byte want[SLOTS];
hidden byte k, n, holder, next, first, second;
hidden short before, planned;
byte kept; /* chosen before the event: which holder goes on when turns begin */

#define TELL_ATTACHED 1
#define TELL_LOCK_OK 2
#define TELL_LOCK_WANTED 4
#define TELL_DROP_LOCK 8
#define TELL_ROOM 16

#define IS(s, which) (job[s].state == which)
#define HOLDS(s) (IS(s, HOLDING) || IS(s, DROPPING))
#define MOST(s) (job[s].resident || job[s].promised)
#define OWES(s) (MOST(s) && !job[s].room)
#define GIVES_WAY(s) (MANAGED && (job[s].overdue || IS(s, BYPASSED)))
#ifdef BUG_ROOM_BEFORE_VICTIM_LEFT
#define CLAIM(s) (job[s].room)
#else
#define CLAIM(s) (MOST(s) && (job[s].room || !GIVES_WAY(s)))
#endif

/* ---- who is where ---- */

inline find_holder() {
  holder = NOWHERE;
  for (k : 0 .. SLOTS - 1) {
    if
    :: IS(k, HOLDING) && holder == NOWHERE -> holder = k
    :: else
    fi
  }
}

inline find_next() {
  next = NOWHERE;
  for (k : 0 .. SLOTS - 1) {
    if
    :: job[k].place == 1 -> next = k
    :: else
    fi
  }
}

inline leave_queue(s) {
  for (k : 0 .. SLOTS - 1) {
    if
    :: job[s].place != 0 && job[k].place > job[s].place -> job[k].place--
    :: else
    fi
  }
  if
  :: job[s].place != 0 -> queued--
  :: else
  fi;
  job[s].place = 0
}

inline set_state(s, now) {
  leave_queue(s);
  job[s].state = now;
  job[s].runs = false;
  if
  :: now == WAITING -> queued++; job[s].place = queued
  :: else
  fi
}

/* ---- turns.c ---- */

/* Nobody is granted before everybody who was told to stop has answered, died, or been bypassed. Here: nobody
 * has its gate open by what the daemon has ever heard of it, but for those bypassed. */
inline check_grant(s) {
  for (k : 0 .. N - 1) {
    assert(!client[k].gate || !serialized || client[k].slot == NOWHERE || client[k].slot == s ||
           IS(client[k].slot, NONE) || (MANAGED && IS(client[k].slot, BYPASSED)))
  }
}

inline grant(s) {
  set_state(s, HOLDING);
  job[s].epoch = (job[s].epoch == 1 && len(to_client[s]) > 0 -> 2 : 1);
  job[s].wanted_told = false;
  job[s].beside = false;
  exceeds = false;
  todo[s] = todo[s] | TELL_LOCK_OK;
  check_grant(s)
}

inline drop(s) {
  set_state(s, DROPPING);
  todo[s] = todo[s] | TELL_DROP_LOCK
}

/* What runs beside the holder from now on until it has answered. */
inline note_beside() {
  for (k : 0 .. SLOTS - 1) {
    job[k].beside = job[k].beside || IS(k, DROPPING)
  }
}

inline begin_turns() {
  serialized = true;
  find_holder();
  if
  :: holder != NOWHERE && kept < SLOTS && IS(kept, HOLDING) -> holder = kept
  :: else
  fi;
  for (n : 0 .. SLOTS - 1) {
    if
    :: n != holder && IS(n, HOLDING) -> drop(n)
    :: else
    fi
  }
  note_beside()
}

inline switch_turns() {
  if
  :: !serialized && jobs > CARD -> begin_turns()
  :: else
  fi
}

inline dropping() { /* n */
  n = 0;
  for (k : 0 .. SLOTS - 1) {
    n = n + IS(k, DROPPING)
  }
}

inline take_turns() {
  find_holder();
  find_next();
  dropping();
#ifdef BUG_GRANT_BEFORE_RELEASE
  n = 0;
#endif
  if
  :: next != NOWHERE && holder == NOWHERE && n == 0 ->
     grant(next);
     holder = next;
     find_next()
  :: else
  fi;
  if
  :: next != NOWHERE && holder != NOWHERE && !job[holder].wanted_told ->
     job[holder].wanted_told = true;
     todo[holder] = todo[holder] | TELL_LOCK_WANTED
  :: else
  fi
}

inline turns_update() {
  switch_turns();
  if
  :: serialized -> take_turns()
  :: else
  fi
}

inline admit_running(s) {
  find_holder();
  set_state(s, HOLDING);
  job[s].runs = true;
  if
  :: holder != NOWHERE -> drop(s)
  :: else
  fi;
  note_beside()
}

/* ---- rooms: memory_plan.c, accounting.c ---- */

inline assume_resident(s) { job[s].resident = job[s].resident || (job[s].runs && job[s].room) }

inline set_room(s, now) {
  if
  :: !job[s].room_told || job[s].room != now ->
     if
     :: job[s].room && !now -> job[s].unread = len(to_daemon[s]); lowered[s] = 1
     :: else
     fi;
     job[s].room_told = true;
     job[s].room = now;
     job[s].promised = job[s].promised || now;
     job[s].overdue = job[s].overdue && OWES(s);
     assume_resident(s);
     todo[s] = todo[s] | TELL_ROOM
  :: else
  fi
}

/* ---- memory_plan.c ---- */

inline plan_sum() { /* planned */
  planned = 0;
  for (k : 0 .. SLOTS - 1) {
    planned = planned + (!IS(k, NONE) && (want[k] || (job[k].overdue && CLAIM(k))))
  }
}

inline take(s) {
  if
  :: planned > CARD && want[s] && s != first && s != second && !job[s].overdue ->
     want[s] = false;
     planned--
  :: else
  fi
}

inline take_from_idle() {
  for (k : 0 .. SLOTS - 1) {
    if
    :: IS(k, IDLE) || IS(k, BYPASSED) -> take(k)
    :: else
    fi
  }
}

inline take_from_dropping() {
  for (k : 0 .. SLOTS - 1) {
    if
    :: IS(k, DROPPING) -> take(k)
    :: else
    fi
  }
}

inline take_from_queue() {
  for (n : 0 .. SLOTS - 1) {
    for (k : 0 .. SLOTS - 1) {
      if
      :: IS(k, WAITING) && job[k].place == queued - n -> take(k)
      :: else
      fi
    }
  }
}

inline plan_kept() {
  for (k : 0 .. SLOTS - 1) {
    want[k] = !IS(k, NONE) && (jobs <= CARD || (job[k].overdue || GIVES_WAY(k) -> job[k].room : job[k].resident))
  }
}

inline plan_first() {
  find_holder();
  find_next();
  first = (holder != NOWHERE -> holder : next);
  if
  :: first != NOWHERE -> want[first] = true
  :: else
  fi;
  plan_sum();
  take_from_idle();
  take_from_dropping();
  take_from_queue()
}

inline plan_second() {
  if
  :: holder != NOWHERE && job[holder].runs && next != NOWHERE ->
     second = next;
     before = want[second];
     want[second] = true;
     plan_sum();
     take_from_idle();
     take_from_queue();
     want[second] = before || planned <= CARD
  :: else
  fi
}

inline claims() { /* planned */
  planned = 0;
  for (k : 0 .. SLOTS - 1) {
    planned = planned + (!IS(k, NONE) && CLAIM(k))
  }
}

inline raise(s) {
  claims();
  if
  :: want[s] && (CLAIM(s) || planned < CARD || (MANAGED && exceeds && IS(s, HOLDING))) -> set_room(s, true)
  :: else -> set_room(s, job[s].room)
  fi
}

inline tell_rooms() {
  for (k : 0 .. SLOTS - 1) {
    if
    :: !IS(k, NONE) && job[k].room && !want[k] -> set_room(k, false)
    :: else
    fi
  }
  if
  :: first != NOWHERE -> raise(first)
  :: else
  fi;
  if
  :: second != NOWHERE -> raise(second)
  :: else
  fi;
  for (n : 0 .. SLOTS - 1) {
    if
    :: !IS(n, NONE) -> raise(n)
    :: else
    fi
  }
}

inline residency_update() {
  first = NOWHERE;
  second = NOWHERE;
  plan_kept();
  if
  :: jobs > CARD -> plan_first(); plan_second()
  :: else
  fi;
  tell_rooms();
  claims();
  overbooked = overbooked && planned > CARD
}

/* ---- what is told ---- */

inline tell(s, message, number, roomy, low) {
  if
  :: slot[s] == OPEN -> to_client[s]!message(number, roomy, low); lowered_unread[s] = lowered_unread[s] + low
  :: else
  fi
}

inline execute() {
  for (k : 0 .. SLOTS - 1) {
    if
    :: todo[k] & TELL_ATTACHED -> tell(k, ATTACHED, 0, 0, 0)
    :: else
    fi;
    if
    :: todo[k] & TELL_LOCK_OK -> tell(k, LOCK_OK, job[k].epoch, job[k].room, lowered[k]); lowered[k] = 0
    :: else
    fi;
    if
    :: todo[k] & TELL_LOCK_WANTED -> tell(k, LOCK_WANTED, job[k].epoch, 0, 0)
    :: else
    fi;
    if
    :: todo[k] & TELL_DROP_LOCK -> tell(k, DROP_LOCK, job[k].epoch, job[k].room, lowered[k]); lowered[k] = 0
    :: else
    fi;
    if
    :: (todo[k] & TELL_ROOM) && !(todo[k] & (TELL_LOCK_OK | TELL_DROP_LOCK)) ->
       tell(k, ROOM, 0, job[k].room, lowered[k])
    :: else
    fi;
    todo[k] = 0;
    lowered[k] = 0
  }
  kept = 0
}

/* The last part of every event. */
inline conclude() {
  d_step { turns_update(); skip }
  d_step { residency_update(); skip }
  d_step { execute(); skip }
}

/* ---- scheduler.c: the events ---- */

inline job_clear(s) {
  job[s].state = NONE;
  job[s].epoch = 0;
  job[s].place = 0;
  job[s].runs = false;
  job[s].wanted_told = false;
  job[s].room_told = false;
  job[s].room = false;
  job[s].promised = false;
  job[s].resident = false;
  job[s].unread = 0;
  job[s].overdue = false;
  job[s].beside = false
}

inline daemon_clear() {
  for (n : 0 .. SLOTS - 1) {
    job_clear(n);
    todo[n] = 0;
    lowered[n] = 0
  }
  serialized = MODE_ON;
  queued = 0;
  jobs = 0;
  exceeds = false;
  overbooked = false
}

inline on_attach(s, running, resident_now) {
  jobs++;
  set_state(s, IDLE);
  job[s].resident = resident_now;
  claims();
  overbooked = overbooked || (resident_now && planned > CARD);
  todo[s] = todo[s] | TELL_ATTACHED;
  if
  :: jobs <= CARD -> set_room(s, true)
  :: else
  fi;
  turns_update();
  if
  :: !serialized && IS(s, IDLE) -> grant(s)
  :: serialized && running -> admit_running(s)
  :: else
  fi
}

inline on_detach(s) {
  leave_queue(s);
  job_clear(s);
  jobs--
}

inline on_request(s) {
  if
  :: IS(s, IDLE) ->
     if
     :: serialized -> set_state(s, WAITING)
     :: else -> grant(s)
     fi
  :: else
  fi
}

#ifdef BUG_EPOCH
#define SAME_EPOCH(mine, told) true
#else
#define SAME_EPOCH(mine, told) (mine == told)
#endif

inline on_release(s, number) {
  if
  :: (HOLDS(s) || IS(s, BYPASSED)) && SAME_EPOCH(job[s].epoch, number) ->
     assert(number != OLD);
     set_state(s, IDLE);
     if
     :: !serialized -> grant(s)
     :: else
     fi
  :: else
  fi
}

inline on_active(s, number) {
  if
  :: IS(s, HOLDING) && !job[s].runs && SAME_EPOCH(job[s].epoch, number) ->
     assert(number != OLD);
     job[s].runs = true;
     assume_resident(s)
  :: else
  fi
}

inline on_resident(s, resident_now, knows_room) {
  before = job[s].resident;
  if
  :: knows_room -> job[s].promised = job[s].room
  :: else
  fi;
  job[s].resident = resident_now;
  job[s].overdue = job[s].overdue && OWES(s) && !(before && !resident_now)
}

/* A connection is read by itself, so that each gets its turn; what one event does is one step all the same. */
proctype reader(byte s) {
  mtype:message message;
  byte epoch, resident, knows;
end_reader:
  do
  :: atomic { daemon_up && len(to_daemon[s]) > 0 && ALL_READ ->
       if
       :: to_daemon[s]?[ATTACH, _, _, _] -> select(kept : 0 .. SLOTS - 1)
       :: else
       fi;
       skip;
       d_step {
         to_daemon[s]?message(epoch, resident, knows);
         knows = knows && job[s].unread == 0;
         job[s].unread = (job[s].unread > 0 -> job[s].unread - 1 : 0);
         if
         :: message == ATTACH -> on_attach(s, epoch, resident)
         :: message == REQ_LOCK -> on_request(s)
         :: message == LOCK_RELEASED -> on_release(s, epoch)
         :: message == LOCK_ACTIVE -> on_active(s, epoch)
         :: message == RESIDENT -> on_resident(s, resident, knows)
         fi;
         skip
       }
       conclude();
       d_step {
         message = 0;
         epoch = 0;
         resident = 0;
         knows = 0
       }
     }
  :: atomic { daemon_up && slot[s] == CLIENT_GONE && len(to_daemon[s]) == 0 ->
       d_step {
         if
         :: !IS(s, NONE) -> on_detach(s)
         :: else
         fi;
         slot[s] = FREE
       }
#ifndef BUG_DEATH_WAKES_NOBODY
       conclude()
#endif
     }
  od
}

/* ---- time ---- */

/* Does the process behind the slot still read it? */
#define ANSWERS(s) (client[owner[s]].slot == s && !client[owner[s]].stalled)
#define MAY_END(s) (slow > 0 || !ANSWERS(s))

inline end_early(s) {
  if
  :: ANSWERS(s) -> slow--
  :: else
  fi
}

#ifdef BUG_PASSES_OVER_SWAP_MEMORY
#define CAN_BE_PASSED_OVER true
#else
#define CAN_BE_PASSED_OVER MANAGED
#endif
#ifdef BUG_NO_QUANTUM
#define QUANTA_END false
#else
#define QUANTA_END true
#endif

/* What ends for one job: its quantum, or a grace. */
proctype clock(byte s) {
end_clock:
  do
  :: atomic {
       if
       :: d_step { QUANTA_END && serialized && queued > 0 && IS(s, HOLDING) && job[s].runs -> drop(s) }
       :: d_step { serialized && queued > 0 && IS(s, HOLDING) && !job[s].runs && MAY_END(s) ->
            end_early(s);
            drop(s)
          }
       :: d_step { CAN_BE_PASSED_OVER && IS(s, DROPPING) && MAY_END(s) -> end_early(s); set_state(s, BYPASSED) }
       :: d_step { OWES(s) && !job[s].overdue && !HOLDS(s) && !IS(s, BYPASSED) && MAY_END(s) ->
            end_early(s);
            job[s].overdue = true
          }
       :: d_step { MANAGED && serialized && IS(s, HOLDING) && !job[s].runs && !job[s].room && !exceeds ->
            exceeds = true
          }
       fi;
       conclude()
     }
  od
}

/* Turns that memory has begun go on for a while when it fits again. */
proctype settle() {
end_settle:
  do
  :: atomic { serialized && !MODE_ON && daemon_up && jobs <= CARD ->
       d_step {
         serialized = false;
         for (n : 0 .. SLOTS - 1) {
           if
           :: IS(n, IDLE) || IS(n, WAITING) -> grant(n)
           :: else
           fi
         }
       }
       conclude()
     }
  od
}
