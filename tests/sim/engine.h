/*
 * engine.h - the engines of a card (compute, copy in, copy out), each used by one stream of one process at a
 * time, in slices; and the passing of simulated time.
 *
 * A session is one piece of work on one engine: begin, then real work and engine_spend(its cost) in turns,
 * then end. Time spent really working counts; only what is missing to the cost is slept. The turn is given up
 * after each slice, so that the work of several processes interleaves.
 */
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include "rm.h"
#include "state.h"

struct engine_session {
  struct turnstile *engine;
  unsigned gpu;
  struct rm_channel channel; /* that the work runs in: while that is stopped, the work stands still */
  bool held;
  uint64_t slice_ns, slice_end_ns;
  uint64_t due_ns; /* when what was spent so far is over */
  uint64_t started_ns;
};

/* channel: none for work that nothing stops. due_ns: what the stream still owes from costs too small to sleep
 * for; 0 for none. */
void engine_begin(struct engine_session *session, unsigned gpu, enum engine_kind kind,
                  struct rm_channel channel, uint64_t due_ns);
void engine_spend(struct engine_session *session, uint64_t cost_ns);
/* Returns what is still owed, for the stream's next engine_begin. */
uint64_t engine_end(struct engine_session *session);

/* Between these no work goes on, of any process: memory can be exchanged under it. */
struct engine_pause {
  struct turnstile *held[STATE_GPUS * ENGINE_COUNT];
  unsigned count;
};
void engine_pause_begin(struct engine_pause *pause);
void engine_pause_end(const struct engine_pause *pause);

/* Sleep until the clock shows due_ns, if that is long enough from now to be worth a sleep. */
void engine_wait_until(uint64_t due_ns);

#endif
