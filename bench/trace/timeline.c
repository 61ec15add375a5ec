/* timeline.c - who ran when, as JSON. */
#include "trace/timeline.h"

#include <errno.h>
#include <stdlib.h>

#include "common/clock.h"

struct span {
  unsigned index; /* of the job */
  uint64_t from_ns, to_ns;
};

struct spans {
  struct span *list;
  unsigned count, room;
  int last[TRACE_JOBS_MAX]; /* each job's last span, from 1; 0: none */
  bool failed;
};

static struct span *add_span(struct spans *spans) {
  if (spans->count == spans->room) {
    unsigned room = spans->room ? spans->room * 2 : 1024;
    struct span *list = realloc(spans->list, room * sizeof *list);
    if (!list)
      return NULL;
    spans->list = list;
    spans->room = room;
  }
  return &spans->list[spans->count++];
}

/* A time that follows the job's last one becomes a part of that. */
static void note_ran(void *context, unsigned index, uint64_t from_ns, uint64_t to_ns) {
  struct spans *spans = context;
  struct span *last = spans->last[index] ? &spans->list[spans->last[index] - 1] : NULL;
  if (from_ns == to_ns)
    return;
  if (last && last->to_ns == from_ns) {
    last->to_ns = to_ns;
    return;
  }
  struct span *span = add_span(spans);
  if (!span) {
    spans->failed = true;
    return;
  }
  *span = (struct span){.index = index, .from_ns = from_ns, .to_ns = to_ns};
  spans->last[index] = (int)spans->count;
}

static double seconds(uint64_t ns) { return (double)ns / (double)NS_PER_S; }

static void write_job(FILE *file, const struct trace_job *job, unsigned index, const struct spans *spans) {
  const char *comma = "";
  fprintf(file, "%s\n    {\"name\": \"%s\", \"bytes\": %llu, \"arrives_s\": %.3f, \"ran_s\": [",
          index ? "," : "", job->name, (unsigned long long)job->peak_bytes, seconds(job->arrives_ns));
  for (unsigned i = 0; i < spans->count; i++) {
    const struct span *span = &spans->list[i];
    if (span->index != index)
      continue;
    fprintf(file, "%s[%.3f, %.3f]", comma, seconds(span->from_ns), seconds(span->to_ns));
    comma = ", ";
  }
  fprintf(file, "]}");
}

int timeline_open(struct timeline *timeline, const char *path) {
  *timeline = (struct timeline){.file = fopen(path, "w")};
  if (!timeline->file)
    return -errno;
  fprintf(timeline->file, "{\"policies\": [");
  return 0;
}

int timeline_write(struct timeline *timeline, const struct trace *trace,
                   const struct policy_under_test *policy) {
  struct spans spans = {0};
  struct outcome outcome;
  struct machine_watcher watcher = {.ran = note_ran, .context = &spans};
  int err = machine_run(trace, policy, &outcome, &watcher);
  if (err == 0 && spans.failed)
    err = -ENOMEM;
  if (err == 0) {
    fprintf(timeline->file, "%s\n  {\"name\": \"%s%s\", \"jobs\": [", timeline->policies++ ? "," : "",
            policy->engine->prefix, policy->name);
    for (unsigned i = 0; i < trace->count; i++)
      write_job(timeline->file, &trace->jobs[i], i, &spans);
    fprintf(timeline->file, "]}");
  }
  free(spans.list);
  return err;
}

int timeline_close(struct timeline *timeline) {
  fprintf(timeline->file, "\n]}\n");
  bool failed = ferror(timeline->file);
  return fclose(timeline->file) != 0 || failed ? -EIO : 0;
}
