/*
 * directions.c - how fast the memory of one job leaves, and how fast it comes back, with nothing else moving:
 * the job has filled its memory and does nothing more, a small one holds the GPU and does nothing either, and
 * the capacity goes down and up. The daemon tells how much of the job is on the card.
 */
#include <poll.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "measure.h"
#include "quantile.h"
#include "stage.h"

#define SMALL_BYTES (UINT64_C(8) << 20)
#define LOW_BYTES (UINT64_C(64) << 20) /* the small one, with what it may allocate unasked, and some more */
#define HOUR_NS (3600 * NS_PER_S)
#define POLL_NS (NS_PER_MS / 5)
#define BEGIN_NS (5 * NS_PER_S) /* for the first byte to move */
#define QUIET_NS (NS_PER_S / 4) /* no byte has moved for so long: that was it */

enum { ROUNDS = 3, WARM_UP = 1 };

struct scene {
  struct child daemon, job, small;
  uint64_t high_bytes; /* capacity with which everything fits */
};

static void scene_kill(struct scene *scene) {
  child_kill(&scene->job);
  child_kill(&scene->small);
  daemon_stop(&scene->daemon);
}

static const struct gs_msg *job_of(const struct status *status, pid_t pid) {
  int place = status_find(status, pid);
  return place < 0 ? NULL : &status->jobs[place];
}

/* What the daemon says of the job. NULL, and a line: it says nothing. */
static const struct gs_msg *job_ask(const struct scene *scene, struct status *status) {
  nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL); /* nothing tells when figures change */
  if (deadline_left_ns() == 0)
    complain_late("the memory to move");
  else if (daemon_ask(status)) {
    const struct gs_msg *msg = job_of(status, scene->job.pid);
    if (!msg)
      complain("the daemon does not know the job");
    return msg;
  }
  return NULL;
}

/* Until the small one has taken the GPU over. */
static bool await_idle(const struct scene *scene) {
  struct status status;
  const struct gs_msg *msg;
  do
    msg = job_ask(scene, &status);
  while (msg && msg->job_status.state != GS_JOB_IDLE);
  return msg != NULL;
}

static bool scene_start(struct scene *scene, const struct setup *setup) {
  scene->high_bytes = setup->bytes + 4 * LOW_BYTES;
  return daemon_start(&scene->daemon, "on", scene->high_bytes, HOUR_NS) &&
         stage_job(&scene->job, "idle", setup->bytes, setup->memory) && child_expect(&scene->job, "filled") &&
         stage_job(&scene->small, "idle", SMALL_BYTES, setup->memory) &&
         child_expect(&scene->small, "filled") && await_idle(scene);
}

static bool scene_finish(struct scene *scene) {
  return child_say(&scene->job, "stop") && child_expect(&scene->job, "0 wrong") && child_wait(&scene->job);
}

/* Sets the capacity, waits until the job's bytes have stopped moving, and tells how fast they were. */
static bool move(const struct scene *scene, uint64_t capacity_bytes, double *rate) {
  struct status status;
  const struct gs_msg *msg = job_ask(scene, &status);
  if (!msg || !daemon_set_capacity(capacity_bytes))
    return false;
  uint64_t first = msg->job_status.resident_bytes, last = first, start_ns = clock_now_ns();
  uint64_t last_ns = start_ns, patience_ns = BEGIN_NS;
  while (clock_now_ns() - last_ns < patience_ns) {
    if (!(msg = job_ask(scene, &status)))
      return false;
    if (msg->job_status.resident_bytes == last)
      continue;
    last = msg->job_status.resident_bytes;
    last_ns = clock_now_ns();
    patience_ns = QUIET_NS;
  }
  if (last == first)
    return complain("nothing moves when the capacity changes");
  *rate = (double)(last > first ? last - first : first - last) / (double)(last_ns - start_ns);
  return true;
}

static bool move_rounds(const struct scene *scene, struct directions *directions) {
  double out[ROUNDS], in[ROUNDS];
  for (int round = -WARM_UP; round < ROUNDS; round++) {
    int into = round < 0 ? 0 : round;
    if (!move(scene, LOW_BYTES, &out[into]) || !move(scene, scene->high_bytes, &in[into]))
      return false;
  }
  *directions = (struct directions){.out = median(out, ROUNDS), .in = median(in, ROUNDS)};
  return true;
}

bool measure_directions(const struct setup *setup, struct directions *directions) {
  struct scene scene = {.daemon.name = "daemon"};
  bool ok = scene_start(&scene, setup) && move_rounds(&scene, directions) && scene_finish(&scene);
  scene_kill(&scene);
  return ok;
}
