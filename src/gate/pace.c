/* pace.c - marks in streams, and the waiting for them. See pace.h. */
#include "gate/pace.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/lock.h"
#include "gate/capture.h"
#include "gate/gate.h"
#include "gate/lane.h"
#include "gate/limit.h"
#include "gate/streams.h"
#include "interpose/driver.h"

#define STREAMS_MAX 64

/* Then the thread passes with one call. */
#define PATIENCE_NS (100 * NS_PER_MS)

/* A stream that work is submitted to while its device is paced. */
struct track {
  /* Under table_lock. */
  CUcontext context; /* NULL: free */
  CUstream stream;
  const struct gate_slot *thread; /* whose per-thread stream it is; NULL: any other stream */
  bool claimed;                   /* and not looked at since */
  uint64_t used_round;

  /* Held over calls of the driver that wait at most for what the thread's own submission would wait for. */
  pthread_mutex_t lock;
  uint64_t round; /* of pacing, for which the lane has begun */
  bool refused;   /* the driver does not want our events here */
  bool behind;    /* what was queued before has not been seen to finish */
  CUevent events[LANE_MARKS];
  struct lane lane;
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct track tracks[STREAMS_MAX] = {[0 ... STREAMS_MAX - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static struct {
  _Atomic uint64_t round, began_ns, caught_up_ns;
  _Atomic uint32_t behind; /* streams of this round */
  _Atomic bool held_back;  /* somebody, in this round */
} rounds[GS_GPUS_PER_CLIENT];

void pace_begin(CUdevice device, uint64_t now_ns) {
  atomic_store(&rounds[device].began_ns, now_ns);
  atomic_store(&rounds[device].caught_up_ns, 0);
  atomic_store(&rounds[device].behind, 0);
  atomic_store(&rounds[device].held_back, false);
  atomic_fetch_add(&rounds[device].round, 1);
}

uint64_t pace_caught_up_ns(CUdevice device) { return atomic_load(&rounds[device].caught_up_ns); }
bool pace_held_back(CUdevice device) { return atomic_load(&rounds[device].held_back); }
bool pace_is_behind(CUdevice device) { return atomic_load(&rounds[device].behind) > 0; }

/* ---- the table ---- */

static bool is_for(const struct track *track, CUcontext context, CUstream stream) {
  return track->context == context && track->stream == stream &&
         (stream != CU_STREAM_PER_THREAD || track->thread == gate_slot);
}

/* Its own; else one that is free; else one of this context that this round has not used: its events will do.
 */
static struct track *find(CUcontext context, CUstream stream, uint64_t round) {
  struct track *unused = NULL;
  for (struct track *t = tracks; t < tracks + STREAMS_MAX; t++) {
    if (is_for(t, context, stream))
      return t;
    if (!t->context || (!unused && t->context == context && t->used_round != round))
      unused = t;
  }
  return unused;
}

static void claim(struct track *track, CUcontext context, CUstream stream) {
  track->claimed |= track->context != context;
  track->context = context;
  track->stream = stream;
  track->thread = stream == CU_STREAM_PER_THREAD ? gate_slot : NULL;
}

/* Locked; NULL: more streams than there is place for, which run ahead as they like. */
static struct track *track_of(CUcontext context, CUstream stream, uint64_t round) {
  bool claimed = false;
  lock_take(&table_lock);
  struct track *track = find(context, stream, round);
  if (track) {
    claim(track, context, stream);
    claimed = track->claimed;
    track->claimed = false;
    track->used_round = round;
  }
  lock_release(&table_lock);
  if (!track)
    return NULL;
  lock_take(&track->lock);
  if (claimed) {
    memset(track->events, 0, sizeof track->events); /* they were those of a context that is gone */
    track->refused = false;
    track->round = UINT64_MAX;
  }
  return track;
}

void pace_context_gone(CUcontext context) {
  lock_take(&table_lock);
  for (struct track *t = tracks; t < tracks + STREAMS_MAX; t++)
    if (t->context == context) {
      t->context = NULL;
      t->claimed = true;
    }
  lock_release(&table_lock);
}

/* ---- marks ---- */

static bool make_event(CUcontext context, CUevent *event) {
  if (driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
    return false;
  CUresult result = driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
  driver.cuCtxPopCurrent_v2(&(CUcontext){NULL});
  return result == CUDA_SUCCESS;
}

static void make_mark(struct track *track, CUcontext context, CUstream stream) {
  CUevent *event = &track->events[lane_next(&track->lane)];
  if ((*event || make_event(context, event)) && driver.cuEventRecord(*event, stream) == CUDA_SUCCESS)
    lane_mark(&track->lane, clock_now_ns());
  else
    track->refused = true;
}

static unsigned count_passed(struct track *track) {
  const struct lane *lane = &track->lane;
  CUresult result = CUDA_SUCCESS;
  unsigned passed = 0;
  while (passed < lane->count && result == CUDA_SUCCESS) {
    result = driver.cuEventQuery(track->events[(lane->first + passed) % LANE_MARKS]);
    passed += result == CUDA_SUCCESS;
  }
  track->refused |= result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
  return passed;
}

static void begin_round(struct track *track, CUdevice device) {
  uint64_t round = atomic_load(&rounds[device].round);
  if (track->round == round)
    return;
  track->round = round;
  track->behind = true;
  atomic_fetch_add(&rounds[device].behind, 1);
  lane_begin(&track->lane);
}

static void note_caught_up(struct track *track, CUdevice device, uint64_t now_ns) {
  if (!track->behind)
    return;
  track->behind = false;
  atomic_fetch_sub(&rounds[device].behind, 1);
  atomic_store(&rounds[device].caught_up_ns, now_ns - atomic_load(&rounds[device].began_ns));
}

/* With the track locked: true if the submission may be made, and is counted. waited: this is not the first
 * look. */
static bool try_submit(struct track *track, CUdevice device, CUcontext context, CUstream stream,
                       bool waited) {
  bool tight = gate_is_limited(device) && !limit_is_wide(device);
  uint64_t ahead_ns = tight ? LANE_LIMITED_NS : LANE_AHEAD_NS;
  begin_round(track, device);
  unsigned passed = count_passed(track);
  uint64_t now_ns = clock_now_ns();
  if (passed > 0) {
    lane_pass(&track->lane, passed, now_ns, waited);
    note_caught_up(track, device, now_ns);
  }
  if (!track->refused && lane_mark_is_due(&track->lane, now_ns))
    make_mark(track, context, stream);
  if (!track->refused && lane_is_ahead(&track->lane, ahead_ns, now_ns))
    return false;
  lane_submit(&track->lane, now_ns);
  return true;
}

/* ---- waiting ---- */

static bool look(CUdevice device, CUstream stream, bool waited) {
  CUcontext context = streams_context(stream);
  struct track *track = context ? track_of(context, stream, atomic_load(&rounds[device].round)) : NULL;
  if (!track)
    return true;
  bool may = try_submit(track, device, context, stream, waited);
  if (!may)
    atomic_store(&rounds[device].held_back, true);
  lock_release(&track->lock);
  return may;
}

static bool may_submit(CUdevice device, CUstream stream, bool waited) {
  if (capture_count() > 0 || !gate_is_open(device))
    return true;
  switch (gate_pace(device)) {
  case GATE_FREE:
    return !gate_is_limited(device) || look(device, stream, waited);
  case GATE_PACED:
    return look(device, stream, waited);
  case GATE_HALTED:
    return false;
  }
  return true;
}

/* Should a capture begin just now, in another thread, our questions must not break it. */
static bool may_submit_relaxed(CUdevice device, CUstream stream, bool waited) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  bool may = may_submit(device, stream, waited);
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  return may;
}

void pace_submission(CUdevice device, CUstream stream) {
  uint64_t until_ns = clock_now_ns() + PATIENCE_NS;
  bool waited = false;
  stream = stream == CU_STREAM_LEGACY ? NULL : stream;
  /* Looking, because cuEventSynchronize would neither have an end nor hear that the turn is over. */
  while (!may_submit_relaxed(device, stream, waited) && clock_now_ns() < until_ns) {
    waited = true;
    clock_sleep(LANE_LOOK_NS);
  }
}

void pace_fork_child(void) {
  pthread_mutex_init(&table_lock, NULL);
  for (struct track *t = tracks; t < tracks + STREAMS_MAX; t++)
    *t = (struct track){.lock = PTHREAD_MUTEX_INITIALIZER};
}
