/*
 * progress.c - see progress.h. One thread looks at all GPUs of the process that are watched and active.
 *
 * A job is active from its first submission on, which the gate tells of (gate_watch), until the GPU has
 * finished all that was submitted and nothing more has come for as long as the job's own history says
 * (patience.h). So a
 * server's gaps between two requests are given to others at once, and those within a training's iterations
 * are not.
 *
 * Why looks, and not the calls by which the program waits: it may find out in any way that its work is done.
 * While it submits, the GPU is not asked at all.
 */
#include "client/progress.h"

#include "client/client.h"
#include "client/marks.h"
#include "client/patience.h"
#include "common/clock.h"
#include "common/lock.h"
#include "common/thread.h"
#include "driver/driver.h"
#include "gate/gate.h"
#include "gate/streams.h"

#define LOOK_NS (150 * NS_PER_MS / 1000) /* between two looks, at least; */
#define LOOK_MOST_NS (NS_PER_MS / 2)
#define LOOK_PART 8                  /* beyond that, such a part of the time without a submission */
#define LOOK_WORK_NS (2 * NS_PER_MS) /* where nobody waits to hear of it */
#define TELL_NS (20 * NS_PER_MS)     /* between two messages while it is active */

/* How long a pause must last to be believed, within these bounds; and one is short that then ends so soon. */
#define PATIENCE_LEAST_NS (NS_PER_MS / 10)
#define PATIENCE_MOST_NS (40 * NS_PER_MS) /* others have the GPU within 50 ms of the last work */
#define SHORT_NS (5 * NS_PER_MS)

static struct progress {
  enum gs_watch watch;
  bool active;
  uint64_t active_ns;       /* so far, without the time since since_ns */
  uint64_t since_ns;        /* when it became active; or idle, as the daemon was told */
  uint64_t calls;           /* at the last look, */
  uint64_t called_ns;       /* and when they had grown the last time */
  uint64_t finished_ns;     /* since when nothing is left to do; 0: something is */
  struct patience patience; /* how long that must last */
  uint64_t tell_at_ns;      /* the next message, while it is active */
  struct marks marks;
  uint64_t mark_calls, mark_active_ns; /* at the last one; 0: none, or a break */
} progresses[GS_GPUS_PER_CLIENT];      /* under client.lock */

static bool started;
static bool begun;               /* a job is watched, or active again, and nobody has looked since */
static struct condition changed; /* likewise */

static struct progress *progress_of(const struct gpu *gpu) { return &progresses[gpu->device]; }

static uint64_t active_ns(const struct progress *progress, uint64_t now_ns) {
  return progress->active_ns + (progress->active ? now_ns - progress->since_ns : 0);
}

static void tell(struct gpu *gpu, uint64_t now_ns) {
  struct progress *progress = progress_of(gpu);
  struct gs_msg msg = wire_msg(GS_PROGRESS, (uint32_t)gpu->device);
  msg.progress.submissions = progress->calls;
  msg.progress.active_ns = active_ns(progress, now_ns);
  msg.progress.mark_submissions = progress->mark_calls;
  msg.progress.mark_active_ns = progress->mark_active_ns;
  msg.progress.flags = progress->active ? GS_PROGRESS_ACTIVE : 0;
  progress->tell_at_ns = progress->watch == GS_WATCH_PROGRESS ? now_ns + TELL_NS : UINT64_MAX;
  if (client_connected(gpu))
    client_send(&msg);
}

/* A break is told before the next mark: counters that go back void the daemon's present window. */
static void note_pause(struct progress *progress, uint64_t calls, bool idle, uint64_t now_ns) {
  if (progress->watch != GS_WATCH_PROGRESS)
    return;
  enum marks_sign sign = marks_pause(&progress->marks, calls, now_ns - progress->called_ns, idle);
  if (sign == MARKS_NONE)
    return;
  progress->mark_calls = sign == MARKS_MARK ? calls : 0;
  progress->mark_active_ns = sign == MARKS_MARK ? active_ns(progress, now_ns) : 0;
  progress->tell_at_ns = sign == MARKS_MARK ? progress->tell_at_ns : now_ns;
}

static void begin(struct gpu *gpu, uint64_t now_ns) {
  struct progress *progress = progress_of(gpu);
  progress->active_ns = active_ns(progress, now_ns);
  progress->active = true;
  progress->since_ns = progress->called_ns = now_ns;
  progress->finished_ns = 0;
  progress->calls = gate_calls();
  gate_watch(gpu->device, false);
  tell(gpu, now_ns);
  begun = true;
  condition_wake_all(&changed);
}

void client_submits(CUdevice device) {
  struct gpu *gpu = client_gpu(device);
  if (!gpu)
    return;
  lock_take(&client.lock);
  struct progress *progress = progress_of(gpu);
  uint64_t now_ns = clock_now_ns();
  if (progress->watch && !progress->active) {
    patience_learn(&progress->patience, now_ns - progress->since_ns >= SHORT_NS, PATIENCE_LEAST_NS,
                   PATIENCE_MOST_NS);
    note_pause(progress, gate_calls(), true, now_ns);
    begin(gpu, now_ns);
  }
  lock_release(&client.lock);
}

/* ---- looks ---- */

/* A submission that is not seen here sees that it is to be told of. */
static void try_end(struct gpu *gpu, uint64_t now_ns) {
  struct progress *progress = progress_of(gpu);
  gate_watch(gpu->device, true);
  if (gate_in_flight() || gate_waiting(gpu->device) || gate_calls() != progress->calls) {
    gate_watch(gpu->device, false);
    return;
  }
  progress->active_ns += progress->finished_ns - progress->since_ns;
  progress->active = false;
  progress->since_ns = now_ns;
  tell(gpu, now_ns);
}

static uint64_t patience(const struct progress *progress) {
  return patience_ns(&progress->patience, PATIENCE_LEAST_NS, PATIENCE_MOST_NS);
}

/* A pause has ended before it was believed: what if that had been sooner? */
static void learn_from(struct progress *progress, uint64_t pause_ns) {
  uint64_t sooner_ns = patience(progress) / PATIENCE_STEP;
  if (pause_ns >= sooner_ns + SHORT_NS)
    patience_learn(&progress->patience, true, PATIENCE_LEAST_NS, PATIENCE_MOST_NS);
}

static void note_calls(struct progress *progress, uint64_t calls, uint64_t now_ns) {
  if (progress->finished_ns)
    learn_from(progress, now_ns - progress->finished_ns);
  note_pause(progress, progress->calls, false, now_ns);
  progress->calls = calls;
  progress->called_ns = now_ns;
}

/* Nothing has been submitted since calls were counted. Lets go of the lock meanwhile. */
static void ask(struct gpu *gpu, uint64_t now_ns) {
  struct progress *progress = progress_of(gpu);
  uint64_t quiet_ns = now_ns - progress->called_ns, since_ns = progress->since_ns;
  lock_release(&client.lock);
  bool finished = streams_have_finished(gpu->device, quiet_ns);
  lock_take(&client.lock);
  if (finished && progress->since_ns == since_ns) /* else it has begun anew */
    progress->finished_ns = now_ns;
}

/* Lets go of the lock meanwhile. */
static void look(struct gpu *gpu) {
  struct progress *progress = progress_of(gpu);
  uint64_t now_ns = clock_now_ns(), calls = gate_calls();
  bool same = calls == progress->calls;
  if (!same)
    note_calls(progress, calls, now_ns);
  else if (share_stands_still(gpu))
    return; /* it can't be told whether it has finished */
  if (!same || gate_in_flight() || gate_waiting(gpu->device) || gpu->stopped)
    progress->finished_ns = 0;
  else if (!progress->finished_ns)
    ask(gpu, now_ns);
  if (progress->watch && progress->active && progress->finished_ns &&
      now_ns - progress->finished_ns >= patience(progress))
    try_end(gpu, now_ns);
}

/* What has finished is looked at when that is believed, and for marks now and then. */
static uint64_t next_look_ns(const struct progress *progress, uint64_t now_ns) {
  uint64_t pause_ns = (now_ns - progress->called_ns) / LOOK_PART;
  pause_ns = pause_ns < LOOK_NS ? LOOK_NS : pause_ns > LOOK_MOST_NS ? LOOK_MOST_NS : pause_ns;
  if (progress->watch == GS_WATCH_WORK)
    return now_ns + LOOK_WORK_NS;
  if (!progress->finished_ns)
    return now_ns + pause_ns;
  uint64_t due_ns = progress->finished_ns + patience(progress);
  return due_ns > now_ns && due_ns < now_ns + LOOK_NS ? due_ns : now_ns + LOOK_NS;
}

/* Returns when to look again. */
static uint64_t look_if_active(struct gpu *gpu) {
  struct progress *progress = progress_of(gpu);
  if (!progress->watch || !progress->active)
    return UINT64_MAX;
  look(gpu);
  uint64_t now_ns = clock_now_ns();
  if (!progress->watch || !progress->active)
    return UINT64_MAX;
  if (now_ns >= progress->tell_at_ns)
    tell(gpu, now_ns);
  return next_look_ns(progress, now_ns);
}

uint64_t progress_look(void) {
  uint64_t next_ns = begun ? 0 : UINT64_MAX; /* while one is looked at, another one may begin */
  begun = false;
  for (struct gpu *gpu = client.gpus; gpu < client.gpus + GS_GPUS_PER_CLIENT; gpu++) {
    uint64_t again_ns = gpu->used ? look_if_active(gpu) : UINT64_MAX;
    next_ns = again_ns < next_ns ? again_ns : next_ns;
  }
  return next_ns;
}

static void *progress_run(void *unused) {
  thread_begin("gpushare-look");
  /* What this thread asks the driver must not disturb the captures of others. */
  driver.cuThreadExchangeStreamCaptureMode(&(CUstreamCaptureMode){CU_STREAM_CAPTURE_MODE_RELAXED});
  lock_take(&client.lock);
  for (;;)
    condition_wait(&changed, &client.lock, progress_look());
  return unused;
}

/* ---- the daemon's wish ---- */

void progress_watch(struct gpu *gpu, enum gs_watch watch) {
  struct progress *progress = progress_of(gpu);
  if (progress->watch == watch)
    return;
  started = started || thread_start_needed(progress_run, NULL) == 0;
  progress->watch = started ? watch : GS_WATCH_NOT; /* without the thread: a job that tells nothing */
  if (!progress->watch) {
    gate_watch(gpu->device, false);
    return;
  }
  progress->patience = (struct patience){0};
  progress->marks = (struct marks){0};
  progress->mark_calls = progress->mark_active_ns = 0;
  begin(gpu, clock_now_ns());
}

void progress_fork_child(void) {
  started = false;
  for (struct progress *p = progresses; p < progresses + GS_GPUS_PER_CLIENT; p++)
    *p = (struct progress){.watch = GS_WATCH_NOT};
}
