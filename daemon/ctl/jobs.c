/*
 * jobs.c - gpusharectl jobs: each job once, whatever GPUs it is on, and gangs with their members. What it
 * does on each of its GPUs, in detail, is told by status.
 */
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "common/parse.h"
#include "common/words.h"
#include "ctl/ctl.h"
#include "ctl/figures.h"
#include "ctl/output.h"

/* A job on a GPU. Those of a job are beside each other, and so are the jobs of a gang. */
struct part {
  struct job_figures figures;
  const char *gang;
};

/* ---- in order ---- */

static int compare_numbers(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

/* Those without a gang come first. */
static int compare_parts(const void *a, const void *b) {
  const struct part *one = a, *other = b;
  const struct gs_msg *job = one->figures.job, *next = other->figures.job;
  int order = strcmp(one->gang, other->gang);
  if (order == 0 && *one->gang)
    order = compare_numbers(job->job_status.uid, next->job_status.uid);
  if (order == 0)
    order = compare_numbers(job->job_status.job, next->job_status.job);
  return order ? order : gpu_number_compare(job->gpu, next->gpu);
}

static bool is_same_job(const struct part *a, const struct part *b) {
  return a->figures.job->job_status.job == b->figures.job->job_status.job;
}

static bool is_same_gang(const struct part *a, const struct part *b) {
  return *a->gang && strcmp(a->gang, b->gang) == 0 &&
         a->figures.job->job_status.uid == b->figures.job->job_status.uid;
}

/* Behind the last of the parts that are like the first one. */
static const struct part *run_end(const struct part *first, const struct part *end,
                                  bool (*is_same)(const struct part *, const struct part *)) {
  const struct part *part = first + 1;
  while (part < end && is_same(first, part))
    part++;
  return part;
}

static int compare_jobs(const void *a, const void *b) {
  const struct part *one = a, *other = b;
  return compare_numbers(one->figures.job->job_status.job, other->figures.job->job_status.job);
}

/* A job may be in its gang on some of its GPUs only. */
static void name_gangs(struct part *parts, size_t count) {
  qsort(parts, count, sizeof *parts, compare_jobs);
  for (struct part *part = parts, *end = parts + count; part < end;) {
    const struct part *next = run_end(part, end, is_same_job);
    const char *gang = "";
    for (const struct part *other = part; other < next; other++)
      gang = *other->gang ? other->gang : gang;
    for (; part < next; part++)
      part->gang = gang;
  }
}

/* From malloc; NULL: no memory. */
static struct part *collect(const struct gs_msg *msgs, size_t count, size_t *found) {
  struct part *parts = malloc((count + 1) * sizeof *parts);
  *found = 0;
  for (const struct gs_msg *msg = msgs; parts && msg < msgs + count; msg++)
    if (msg->type == GS_STATUS_JOB) {
      struct part *part = &parts[(*found)++];
      part->figures = figures_of_job(msg, msgs + count);
      part->gang = part->figures.terms->terms_status.gang;
    }
  if (!parts)
    return NULL;
  name_gangs(parts, *found);
  qsort(parts, *found, sizeof *parts, compare_parts);
  return parts;
}

/* ---- for people ---- */

static void show_job(const struct part *part, const struct part *end) {
  const struct gs_msg *job = part->figures.job;
  uint64_t used_bytes = 0, resident_bytes = 0, gpu_ns = 0, waited_ns = 0;
  for (const struct part *each = part; each < end; each++) {
    used_bytes += each->figures.job->job_status.used_bytes;
    resident_bytes += each->figures.job->job_status.resident_bytes;
    gpu_ns += each->figures.terms->terms_status.gpu_ns;
    waited_ns += each->figures.job->job_status.waited_ns;
  }
  printf("%6u %8d %-10s %-16s %-13s %10s %10s %10s %10s ", job->job_status.job, job->job_status.pid,
         USER_TEXT(job->job_status.uid), job->job_status.name,
         class_name(part->figures.terms->terms_status.class), BYTES_TEXT(used_bytes),
         BYTES_TEXT(resident_bytes), DURATION_TEXT(gpu_ns), DURATION_TEXT(waited_ns));
  for (const char *before = " "; part < end; part++, before = ",") /* "0 holding, 1 waiting" */
    printf("%s %s %s%s", before, GPU_NUMBER_TEXT(part->figures.job->gpu),
           figures_state_name(part->figures.job->job_status.state),
           part->figures.terms->terms_status.paused ? " (paused)" : "");
  printf("\n");
}

static void show(const struct part *part, const struct part *end) {
  printf("%6s %8s %-10s %-16s %-13s %10s %10s %10s %10s  %s\n", "JOB", "PID", "USER", "NAME", "CLASS",
         "MEMORY", "ON CARD", "GPU TIME", "WAITED", "GPUS");
  for (const struct part *next, *gang_end = part; part < end; part = next) {
    if (part == gang_end) {
      unsigned jobs = 0;
      gang_end = run_end(part, end, is_same_gang);
      for (const struct part *job = part; job < gang_end; job = run_end(job, gang_end, is_same_job))
        jobs++;
      if (*part->gang)
        printf("gang %s: %u job%s\n", part->gang, jobs, jobs == 1 ? "" : "s");
    }
    show_job(part, next = run_end(part, gang_end, is_same_job));
  }
}

/* ---- for programs ---- */

static json_t *job_json(const struct part *part, const struct part *end) {
  const struct gs_msg *job = part->figures.job, *terms = part->figures.terms;
  json_t *object = json_object(), *gpus = json_array();
  output_number(object, "job", job->job_status.job);
  output_number(object, "pid", (uint64_t)job->job_status.pid);
  output_number(object, "uid", job->job_status.uid);
  output_text(object, "user", USER_TEXT(job->job_status.uid));
  output_text(object, "name", job->job_status.name);
  output_text(object, "class", class_name(terms->terms_status.class));
  output_bool(object, "paused", terms->terms_status.paused);
  output_text(object, "gang", *part->gang ? part->gang : NULL);
  for (; part < end; part++) {
    json_t *gpu = json_object();
    job = part->figures.job;
    output_gpu(gpu, "gpu", job->gpu);
    output_text(gpu, "state", figures_state_name(job->job_status.state));
    output_text(gpu, "reason", figures_reason_name(part->figures.wait->wait_status.reason));
    output_number(gpu, "used_bytes", job->job_status.used_bytes);
    output_number(gpu, "resident_bytes", job->job_status.resident_bytes);
    output_number(gpu, "gpu_ns", part->figures.terms->terms_status.gpu_ns);
    output_number(gpu, "waited_ns", job->job_status.waited_ns);
    json_array_append_new(gpus, gpu);
  }
  json_object_set_new(object, "gpus", gpus);
  return object;
}

static int show_json(const struct part *part, const struct part *end) {
  json_t *root = json_object(), *jobs = json_array();
  for (const struct part *next; part < end; part = next) {
    next = run_end(part, end, is_same_job);
    json_array_append_new(jobs, job_json(part, next));
  }
  json_object_set_new(root, "jobs", jobs);
  return output_json(root);
}

/* ---- the command ---- */

int jobs_command(const struct request *request) {
  struct gs_msg *msgs;
  size_t count, found;
  int code = fetch_status(request, &msgs, &count);
  if (code != CTL_OK)
    return code;
  struct part *parts = collect(msgs, count, &found);
  if (!parts)
    code = command_error(CTL_REFUSED, "out of memory");
  else if (request->json)
    code = show_json(parts, parts + found);
  else
    show(parts, parts + found);
  free(parts);
  free(msgs);
  return code;
}
