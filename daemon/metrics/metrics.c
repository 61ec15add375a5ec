/* metrics.c - the daemon's figures as a text: each measure with its samples of all GPUs or jobs. */
#include "metrics/metrics.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/gpu_number.h"
#include "common/parse.h"
#include "metrics/measures.h"

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

static void put_all_gpus(const struct measure *measure, struct scene *scene, struct exposition *exposition) {
  list_each(node, &scene->daemon->scheduler.gpus) {
    scene->gpu = list_entry(node, struct sched_gpu, link);
    put_gpu(measure, scene, exposition);
  }
}

static void put_all_jobs(const struct measure *measure, struct scene *scene, struct exposition *exposition) {
  unsigned count = 0;
  list_each(gpu_node, &scene->daemon->scheduler.gpus) {
    scene->gpu = list_entry(gpu_node, struct sched_gpu, link);
    list_each(node, &scene->gpu->jobs) {
      if (count++ == METRICS_JOBS_MAX)
        return;
      scene->job = list_entry(node, struct sched_job, link);
      put_job(measure, scene, exposition);
    }
  }
}

static void put_one(const struct measure *measure, struct scene *scene, struct exposition *exposition) {
  exposition->label_count = 0;
  put(measure, scene);
}

static void put_table(const struct measure *table, struct scene *scene, struct exposition *exposition,
                      void (*put_each)(const struct measure *, struct scene *, struct exposition *)) {
  for (const struct measure *measure = table; measure->family.name; measure++) {
    exposition_begin(exposition, &measure->family);
    put_each(measure, scene, exposition);
  }
}

char *metrics_text(const struct daemon *daemon, enum dialect dialect, uint64_t now_ns, size_t *size) {
  char *text = NULL;
  struct exposition exposition = {.out = open_memstream(&text, size), .dialect = dialect};
  struct scene scene = {.exposition = &exposition, .daemon = daemon, .now_ns = now_ns};
  if (!exposition.out)
    return NULL;
  put_table(measures_of_daemon, &scene, &exposition, put_one);
  put_table(measures_of_gpu, &scene, &exposition, put_all_gpus);
  put_table(measures_of_job, &scene, &exposition, put_all_jobs);
  exposition_end(&exposition);
  bool failed = ferror(exposition.out);
  failed |= fclose(exposition.out) != 0;
  if (!failed)
    return text;
  free(text);
  return NULL;
}
