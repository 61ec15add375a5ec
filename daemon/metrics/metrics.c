/* metrics.c - the daemon's figures as a text: each measure with its samples of all GPUs or jobs. */
#include "metrics/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "common/parse.h"
#include "metrics/measures.h"

#define STEPS_PER_LOOK 4 /* at the clock */
#define ROOM_STEP ((size_t)64 << 10)

static void put(const struct measure *measure, const struct scene *scene) {
  if (measure->put)
    measure->put(scene);
  else
    exposition_put(scene->exposition, measure->value(scene));
}

static void put_gpu(const struct measure *measure, struct scene *scene, struct exposition *exposition) {
  char uuid[GS_UUID_TEXT_SIZE];
  gpu_number_format_uuid(gpu_of(scene->gpu)->number, scene->gpu->uuid, uuid);
  exposition->labels[0] = (struct label){"gpu", uuid};
  exposition->label_count = 1;
  put(measure, scene);
}

/* Not "job": so Prometheus calls what it has the samples from. */
static void put_job(const struct measure *measure, struct scene *scene, struct exposition *exposition) {
  char uuid[GS_UUID_TEXT_SIZE], id[16];
  gpu_number_format_uuid(gpu_of(scene->gpu)->number, scene->gpu->uuid, uuid);
  snprintf(id, sizeof id, "%" PRIu32, scene->job->id);
  exposition->labels[0] = (struct label){"gpu", uuid};
  exposition->labels[1] = (struct label){"job_id", id};
  exposition->labels[2] = (struct label){"name", attachment_of(scene->job)->peer->name};
  exposition->labels[3] = (struct label){"class", class_name(scene->job->terms.class)};
  exposition->label_count = 4;
  put(measure, scene);
}

/* ---- the making, step by step ---- */

enum { OF_DAEMON, OF_GPUS, OF_JOBS, TABLES };
static const struct measure *const tables[TABLES] = {
    [OF_DAEMON] = measures_of_daemon, [OF_GPUS] = measures_of_gpu, [OF_JOBS] = measures_of_job};

static void begin_family(struct metrics *metrics) {
  exposition_begin(&metrics->exposition, &metrics->measure->family);
  metrics->exposition.label_count = 0;
  metrics->jobs = 0;
  walk_begin(&metrics->daemon->metrics_walk, &metrics->daemon->scheduler.gpus);
}

/* Not open_memstream: it copies all that there is, and clears as much again, whenever it needs more room. */
static ssize_t append(void *cookie, const char *more, size_t size) {
  struct metrics *metrics = cookie;
  if (metrics->room - metrics->size < size) {
    size_t room = metrics->size + size + ROOM_STEP;
    char *grown = realloc(metrics->text, room);
    if (!grown)
      return 0;
    metrics->text = grown;
    metrics->room = room;
  }
  memcpy(metrics->text + metrics->size, more, size);
  metrics->size += size;
  return (ssize_t)size;
}

int metrics_begin(struct metrics *metrics, struct daemon *daemon, enum dialect dialect) {
  *metrics = (struct metrics){
      .daemon = daemon, .exposition.dialect = dialect, .table = OF_DAEMON, .measure = tables[OF_DAEMON]};
  metrics->exposition.out = fopencookie(metrics, "w", (cookie_io_functions_t){.write = append});
  if (!metrics->exposition.out)
    return -ENOMEM;
  begin_family(metrics);
  return 0;
}

/* The samples of one GPU, or of one job. False: the family has no more. */
static bool put_next(struct metrics *metrics, struct scene *scene) {
  struct walk *walk = &metrics->daemon->metrics_walk;
  struct sched_gpu *gpu;
  struct sched_job *job;
  while (metrics->jobs < METRICS_JOBS_MAX && walk_next(walk, &gpu, &job)) {
    scene->gpu = gpu;
    scene->job = job;
    if (metrics->table == OF_GPUS) {
      walk_skip_jobs(walk, gpu);
      put_gpu(metrics->measure, scene, &metrics->exposition);
      return true;
    }
    if (job) {
      metrics->jobs++;
      put_job(metrics->measure, scene, &metrics->exposition);
      return true;
    }
  }
  return false;
}

/* False: that was all. */
static bool step(struct metrics *metrics, uint64_t now_ns) {
  struct scene scene = {.exposition = &metrics->exposition, .daemon = metrics->daemon, .now_ns = now_ns};
  if (metrics->table == OF_DAEMON)
    put(metrics->measure, &scene);
  else if (put_next(metrics, &scene))
    return true;
  metrics->measure++;
  if (!metrics->measure->family.name) {
    if (++metrics->table == TABLES)
      return false;
    metrics->measure = tables[metrics->table];
  }
  begin_family(metrics);
  return true;
}

bool metrics_go_on(struct metrics *metrics, uint64_t now_ns, uint64_t until_ns) {
  for (unsigned i = 1; step(metrics, now_ns); i++)
    if (i % STEPS_PER_LOOK == 0 && clock_now_ns() >= until_ns)
      return false;
  exposition_end(&metrics->exposition);
  return true;
}

char *metrics_take(struct metrics *metrics, size_t *size) {
  FILE *out = metrics->exposition.out;
  bool failed = ferror(out);
  failed |= fclose(out) != 0;
  failed |= append(metrics, "", 1) == 0; /* for those who read it as a string */
  char *text = metrics->text;
  *size = metrics->size - 1;
  *metrics = (struct metrics){.text = NULL};
  if (!failed)
    return text;
  free(text);
  return NULL;
}

char *metrics_text(struct daemon *daemon, enum dialect dialect, uint64_t now_ns, size_t *size) {
  struct metrics metrics;
  if (metrics_begin(&metrics, daemon, dialect) < 0)
    return NULL;
  metrics_go_on(&metrics, now_ns, UINT64_MAX);
  return metrics_take(&metrics, size);
}
