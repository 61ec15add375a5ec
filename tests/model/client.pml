/* client.pml - one process with libunified: its connection thread, the worker of its GPU, and a thread of the
 * program. What is done with client.lock held is one step. */

inline client_clear(i) {
  client[i].slot = NOWHERE;
  client[i].attached = false;
  client[i].holding = false;
  client[i].requested = false;
  client[i].busy = false;
  client[i].releasing = false;
  client[i].void_drain = false;
  client[i].epoch = 0;
  client[i].grant_pending = false;
  client[i].drop_pending = false;
  client[i].wanted = false;
  client[i].room_bound = false;
  client[i].room = false;
  client[i].room_lowered = false;
  client[i].step_due = false;
  client[i].moved = false;
  client[i].resident = false;
  client[i].gate = false;
  client[i].waiting = false;
  client[i].idle = false;
  client[i].opening = false
}

inline send(i, message, number, there, knows) {
  if
  :: client[i].slot != NOWHERE && slot[client[i].slot] == OPEN ->
     to_daemon[client[i].slot]!message(number, there, knows)
  :: else
  fi
}

inline request_lock(i) {
  if
  :: client[i].attached && !client[i].holding && !client[i].requested && client[i].waiting ->
     client[i].requested = true;
     send(i, REQ_LOCK, 0, 0, 0)
  :: else
  fi
}

/* ---- room.c ---- */

#define REPORT_DUE(i) (client[i].attached && (client[i].room_lowered || client[i].moved))

inline report(i) {
  if
  :: REPORT_DUE(i) ->
     send(i, RESIDENT, 0, client[i].resident, lowered_unread[client[i].slot] == 0);
     client[i].room_lowered = false;
     client[i].moved = false
  :: else
  fi
}

inline room_take(i, now) {
  client[i].room_lowered = client[i].room_lowered || (client[i].room && !now);
  client[i].step_due = client[i].step_due || (client[i].room && !now) ||
                       !(client[i].holding && !client[i].grant_pending);
  client[i].room = now
}

#define GOAL(i) (!client[i].room_bound || client[i].room)
#define STEP_DUE(i)                                                                                          \
  (client[i].step_due && (client[i].holding -> client[i].grant_pending : client[i].room_bound))
#define CARD_HAS_SPACE (MANAGED || card_used < CARD)

/* ---- worker.c ---- */

inline worker_begin(i) {
  client[i].grant_pending = true;
  client[i].step_due = true
}

#ifdef BUG_RUNS_BEFORE_RESTORE
#define HAS_ENOUGH(i) true
#else
#define HAS_ENOUGH(i) (client[i].resident)
#endif

inline open_gate(i) {
  client[i].grant_pending = false;
  client[i].gate = true;
  report(i);
  if
  :: client[i].attached && client[i].epoch != 0 -> send(i, LOCK_ACTIVE, client[i].epoch, 0, 0)
  :: else
  fi
}

inline give_back(i) {
  client[i].gate = false;
  client[i].busy = false;
  client[i].releasing = false;
  if
  :: client[i].void_drain ->
     client[i].void_drain = false;
     worker_begin(i)
  :: else ->
     client[i].holding = false;
     client[i].drop_pending = false;
     client[i].wanted = false;
     send(i, LOCK_RELEASED, client[i].epoch, 0, 0);
     client[i].epoch = 0;
     request_lock(i);
     client[i].step_due = true
  fi
}

#define WORKS(i) (RUNS(i) && IS_READ(i))
#define MAY_STEP(i)                                                                                          \
  (WORKS(i) && !client[i].drop_pending && STEP_DUE(i) && !(client[i].grant_pending && HAS_ENOUGH(i)))

inline step_end(i) {
  client[i].busy = false;
  client[i].moved = true;
  client[i].step_due = client[i].step_due || client[i].resident != GOAL(i);
  report(i)
}

/* New orders come between two of these. */
proctype worker(byte i) {
end_worker:
  do
  :: atomic { WORKS(i) && client[i].drop_pending ->
       client[i].drop_pending = false;
       client[i].grant_pending = false;
       client[i].busy = true;
       client[i].releasing = true
     }
end_drains:
     atomic {
       if
       :: WORKS(i) -> give_back(i)
       :: client[i].dead -> skip
       fi
     }
  :: atomic { WORKS(i) && !client[i].drop_pending && client[i].grant_pending && HAS_ENOUGH(i) ->
       client[i].busy = true
     }
end_opens:
     atomic {
       if
       :: WORKS(i) ->
          client[i].busy = false;
          if
          :: !client[i].drop_pending -> open_gate(i)
          :: else
          fi
       :: client[i].dead -> skip
       fi
     }
  :: atomic { MAY_STEP(i) && client[i].resident == GOAL(i) -> client[i].step_due = false; report(i) }
  :: atomic { MAY_STEP(i) && client[i].resident && !GOAL(i) -> client[i].busy = true; client[i].step_due = false }
end_evicts:
     atomic {
       if
       :: WORKS(i) ->
          client[i].resident = false;
          card_used--;
          step_end(i)
       :: client[i].dead -> skip
       fi
     }
  :: atomic { MAY_STEP(i) && !client[i].resident && GOAL(i) && CARD_HAS_SPACE ->
       client[i].busy = true;
       client[i].step_due = false;
       client[i].resident = true;
       card_used++
     }
end_restores:
     atomic {
       if
       :: WORKS(i) -> step_end(i)
       :: client[i].dead -> skip
       fi
     }
  :: atomic { WORKS(i) && !client[i].drop_pending && !STEP_DUE(i) && REPORT_DUE(i) -> report(i) }
  :: atomic { WORKS(i) && client[i].wanted && client[i].holding && !client[i].grant_pending &&
              !client[i].drop_pending && client[i].idle ->
       client[i].drop_pending = true
     }
  :: client[i].dead -> break
  od
}

/* ---- connection.c ---- */

inline go_alone(i) {
  if
  :: !client[i].holding ->
     client[i].holding = true;
     client[i].epoch = 0;
     client[i].drop_pending = false;
     client[i].wanted = false;
     worker_begin(i)
  :: else
  fi
}

inline forget_daemon(i) {
  client[i].void_drain = client[i].releasing;
  client[i].attached = false;
  client[i].requested = false;
  client[i].wanted = false;
  client[i].drop_pending = false;
  client[i].epoch = 0;
  client[i].room_bound = false;
  client[i].room_lowered = false;
  client[i].step_due = true
}

inline disconnect(i) {
  d_step {
    close_by_client(client[i].slot);
    client[i].slot = NOWHERE;
    forget_daemon(i);
    go_alone(i)
  }
}

#if SPARE
#define A_SLOT_IS_FREE(i) (slot[i] == FREE || slot[N] == FREE)
#else
#define A_SLOT_IS_FREE(i) (slot[i] == FREE)
#endif

inline connect(i, s) {
  client[i].slot = s;
  client[i].void_drain = client[i].releasing;
  owner[s] = i;
  slot[s] = OPEN;
  client[i].room_bound = true;
  client[i].room = client[i].resident;
  client[i].room_lowered = false;
  client[i].moved = false;
#ifdef BUG_RUNNING_IS_NOT_TOLD
  send(i, ATTACH, false, client[i].resident, 0)
#else
  send(i, ATTACH, client[i].holding, client[i].resident, 0)
#endif
}

inline on_granted(i, number, roomy) {
  assert(!client[i].holding || client[i].epoch == 0); /* never two grants without a release between them */
  client[i].epoch = number;
  client[i].requested = false;
  client[i].holding = true;
  client[i].wanted = false;
  client[i].drop_pending = false;
  room_take(i, roomy);
  if
  :: !client[i].busy && (client[i].gate || HAS_ENOUGH(i)) -> client[i].opening = true
  :: else -> worker_begin(i)
  fi
}

#ifdef BUG_EPOCH
#define IS_ABOUT_THIS_GRANT(i, told) true
#else
#define IS_ABOUT_THIS_GRANT(i, told) (client[i].holding && client[i].epoch == told)
#endif

inline on_wanted(i, number) {
  if
  :: IS_ABOUT_THIS_GRANT(i, number) -> assert(number != OLD); client[i].wanted = true
  :: else
  fi
}

inline on_drop(i, number, roomy) {
  if
  :: IS_ABOUT_THIS_GRANT(i, number) ->
     assert(number != OLD);
     client[i].wanted = true;
     client[i].drop_pending = true
  :: else
  fi;
  room_take(i, roomy)
}

proctype connection(byte i) {
  mtype:message message;
  byte epoch, room, low;
end_connection:
  do
  :: d_step { RUNS(i) && client[i].slot == NOWHERE && daemon_up && A_SLOT_IS_FREE(i) ->
       k = (slot[i] == FREE -> i : N);
       connect(i, k)
     }
  :: d_step { RUNS(i) && client[i].slot == NOWHERE && !daemon_up && !client[i].holding -> go_alone(i) }
  :: d_step { RUNS(i) && !client[i].opening && client[i].slot != NOWHERE && nempty(to_client[client[i].slot]) ->
       to_client[client[i].slot]?message(epoch, room, low);
       lowered_unread[client[i].slot] = lowered_unread[client[i].slot] - low;
       if
       :: message == ATTACHED -> client[i].attached = true; request_lock(i)
       :: message == LOCK_OK -> on_granted(i, epoch, room)
       :: message == LOCK_WANTED -> on_wanted(i, epoch)
       :: message == DROP_LOCK -> on_drop(i, epoch, room)
       :: message == ROOM -> room_take(i, room)
       fi;
       message = 0;
       epoch = 0;
       room = 0;
       low = 0
     }
  :: d_step { RUNS(i) && client[i].opening -> client[i].opening = false; open_gate(i) }
  :: atomic { RUNS(i) && !client[i].opening && client[i].slot != NOWHERE &&
              slot[client[i].slot] == DAEMON_GONE && empty(to_client[client[i].slot]) ->
       disconnect(i)
     }
  :: client[i].dead -> break
  od
}

/* ---- the program: a thread that submits now and then ---- */

proctype program(byte i) {
end_rests:
  do
  :: IS_LOST(i) -> goto end_dead
#ifdef LIVENESS
  :: RUNS(i) -> skip
#endif
  :: atomic { RUNS(i) && client[i].gate -> client[i].idle = false; goto end_submits }
  :: atomic { RUNS(i) && !client[i].gate -> client[i].idle = false; goto waits }
  od;
waits:
  atomic { RUNS(i) && IS_READ(i) || IS_LOST(i);
    if
    :: IS_LOST(i) -> goto end_dead
    :: else -> client[i].waiting = true; request_lock(i)
    fi
  }
  if
  :: IS_LOST(i) -> goto end_dead
  :: atomic { RUNS(i) && client[i].gate -> client[i].waiting = false; goto end_submits }
  fi;
end_submits:
  do
  :: IS_LOST(i) -> goto end_dead
#ifdef LIVENESS
  :: RUNS(i) -> skip
#endif
  :: atomic { RUNS(i) && client[i].gate -> client[i].idle = true; goto end_rests }
  :: atomic { RUNS(i) && !client[i].gate -> goto waits }
  od;
end_dead:
  skip
}
