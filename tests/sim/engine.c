/* engine.c - fair turns on a card's engines, safe against the death or stop of whoever has the turn. */
#include "engine.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "process.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

enum { SHORTEST_SLEEP_NS = 50 * 1000, STOPPED_CHECK_MS = 20 };

void engine_wait_until(uint64_t due_ns) {
  if (due_ns <= clock_now_ns() + SHORTEST_SLEEP_NS)
    return;
  struct timespec due = {.tv_sec = (time_t)(due_ns / NS_PER_S), .tv_nsec = (long)(due_ns % NS_PER_S)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
    ;
}

static struct timespec wall_deadline(void) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at); /* the only clock that pthread_mutex_timedlock knows */
  at.tv_nsec += STOPPED_CHECK_MS * 1000000L;
  at.tv_sec += at.tv_nsec / 1000000000L;
  at.tv_nsec %= 1000000000L;
  return at;
}

/* The thread sanitizer does not know that a timed lock which reports its owner's death has been taken. */
static void turn_taken_over(pthread_mutex_t *mutex) {
#ifdef __SANITIZE_THREAD__
  __tsan_mutex_pre_lock(mutex, __tsan_mutex_try_lock);
  __tsan_mutex_post_lock(mutex, __tsan_mutex_try_lock, 0);
#endif
  pthread_mutex_consistent(mutex);
}

/*
 * False if the owner is a stopped process: a real GPU goes on with its work then, and lets others in, so the
 * caller goes ahead without the turn.
 */
static bool turn_lock(pthread_mutex_t *mutex, _Atomic pid_t *owner) {
  for (;;) {
    struct timespec deadline = wall_deadline();
    int result = pthread_mutex_timedlock(mutex, &deadline);
    if (result == EOWNERDEAD)
      turn_taken_over(mutex);
    if (result != ETIMEDOUT) {
      atomic_store(owner, getpid());
      return true;
    }
    if (process_stopped(atomic_load(owner)))
      return false;
  }
}

static bool turn_wait(struct turnstile *engine) {
  bool next = turn_lock(&engine->next, &engine->waiter),
       held = next && turn_lock(&engine->turn, &engine->owner);
  if (next)
    pthread_mutex_unlock(&engine->next);
  return held;
}

void engine_pause_begin(struct engine_pause *pause) {
  pause->count = 0;
  for (unsigned gpu = 0; gpu < STATE_GPUS; gpu++)
    for (unsigned kind = 0; kind < ENGINE_COUNT; kind++) {
      struct turnstile *engine = &sim.state->gpu[gpu].engines[kind];
      if (turn_wait(engine))
        pause->held[pause->count++] = engine;
    }
}

void engine_pause_end(const struct engine_pause *pause) {
  for (unsigned i = 0; i < pause->count; i++)
    pthread_mutex_unlock(&pause->held[i]->turn);
}

static void turn_take(struct engine_session *session) {
  session->held = turn_wait(session->engine);
  session->started_ns = clock_now_ns();
  session->slice_ns = rm_slice_ns(session->channel);
  if (session->slice_ns == 0)
    session->slice_ns = sim.card.slice_ns;
  session->slice_end_ns = session->started_ns + session->slice_ns;
  if (session->due_ns < session->started_ns)
    session->due_ns = session->started_ns;
}

static void turn_give(struct engine_session *session) {
  uint64_t busy_ns = clock_now_ns() - session->started_ns;
  process_count(session->gpu, GS_SIM_gpu_busy_ns, busy_ns);
  if (session->held)
    pthread_mutex_unlock(&session->engine->turn);
  session->held = false;
}

void engine_begin(struct engine_session *session, unsigned gpu, enum engine_kind kind,
                  struct rm_channel channel, uint64_t due_ns) {
  *session = (struct engine_session){
      .engine = &sim.state->gpu[gpu].engines[kind], .gpu = gpu, .channel = channel, .due_ns = due_ns};
  rm_enter(channel);
  process_note_start(gpu);
  turn_take(session);
}

/* Others have the engine meanwhile. What was owed is owed afterwards. */
static void stand_still(struct engine_session *session) {
  uint64_t now_ns = clock_now_ns(), rest_ns = session->due_ns > now_ns ? session->due_ns - now_ns : 0;
  turn_give(session);
  rm_leave(session->channel);
  rm_enter(session->channel);
  session->due_ns = 0;
  turn_take(session);
  session->due_ns += rest_ns;
}

/* True: the channel has been stopped first. */
static bool session_wait(struct engine_session *session, uint64_t due_ns) {
  if (session->channel.number == 0)
    engine_wait_until(due_ns);
  return session->channel.number &&
         rm_sleep(session->channel, due_ns > clock_now_ns() + SHORTEST_SLEEP_NS ? due_ns : 0);
}

void engine_spend(struct engine_session *session, uint64_t cost_ns) {
  session->due_ns += cost_ns;
  if (session_wait(session, 0))
    stand_still(session);
  while (session->due_ns > session->slice_end_ns || clock_now_ns() > session->slice_end_ns) {
    uint64_t rest_ns = session->due_ns > session->slice_end_ns ? session->due_ns - session->slice_end_ns : 0;
    if (session_wait(session, rest_ns ? session->slice_end_ns : session->due_ns)) {
      stand_still(session);
      continue;
    }
    turn_give(session);
    session->due_ns = 0;
    turn_take(session);
    session->due_ns += rest_ns;
  }
}

uint64_t engine_end(struct engine_session *session) {
  while (session_wait(session, session->due_ns))
    stand_still(session);
  turn_give(session);
  rm_leave(session->channel);
  return session->due_ns;
}
