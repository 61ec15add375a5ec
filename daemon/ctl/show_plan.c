/* show_plan.c - gpusharectl plan: of each GPU which jobs have a seat among those that run, which are next,
 * and the rule that gives each its seat or denies it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "common/parse.h"
#include "ctl/output.h"
#include "ctl/show_status.h"

/* In the order in which they are shown: those with seats, those that get one, those that wait, others. */
enum part { SEATED, STOPS, NEXT, LATER, WAITS, RESTS };

static const struct {
  const char *text;
  enum part part;
} rules[] = {
    [GS_RULE_IDLE] = {"has nothing for the GPU to do", RESTS},
    [GS_RULE_SEATED] = {"has a seat", SEATED},
    [GS_RULE_MAKES_WAY] = {"has a seat until the quantum is over", SEATED},
    [GS_RULE_STOPS] = {"has lost its seat, and is to stop", STOPS},
    [GS_RULE_NEXT] = {"has a seat as soon as the jobs that must stop have stopped", NEXT},
    [GS_RULE_LATER] = {"will have a seat when the quantum is over", LATER},
    [GS_RULE_ONE_AT_A_TIME] = {"waits: in mode on there is one seat", WAITS},
    [GS_RULE_DOES_NOT_FIT] = {"waits: it does not fit beside the jobs with seats", WAITS},
    [GS_RULE_TOO_BIG] = {"cannot run: its memory is more than the GPU has for it", WAITS},
    [GS_RULE_STAYING] = {"waits: memory of other jobs does not leave the card", WAITS},
    [GS_RULE_SILENT_USER] = {"waits: another job of its user kept the GPU without an answer", WAITS},
    [GS_RULE_GANG] = {"waits: its gang cannot have seats on all of its GPUs yet", WAITS},
    [GS_RULE_GANG_HELD_UP] = {"waits: a member of its gang is paused, or cannot run", WAITS},
    [GS_RULE_FAR_BEHIND] = {"waits: too many jobs are before it", WAITS},
    [GS_RULE_PAUSED] = {"is paused", RESTS},
    [GS_RULE_ENTERS] = {"waits for memory to begin with", WAITS},
};

/* Of a newer daemon it may be another one. */
static unsigned rule_of(const struct gs_msg *wait) {
  return wait->wait_status.rule < sizeof rules / sizeof *rules ? wait->wait_status.rule : GS_RULE_IDLE;
}

const char *plan_rule_text(const struct gs_msg *wait) { return rules[rule_of(wait)].text; }

const char *plan_rule_name(const struct gs_msg *wait) {
  static const char *const names[] = {
#define X(name, value, word) [value] = (word),
      GS_RULES(X)
#undef X
  };
  return names[rule_of(wait)];
}

bool plan_denies(const struct gs_msg *wait) { return rules[rule_of(wait)].part == WAITS; }

void plan_put(json_t *object, const struct gs_msg *wait) {
  output_text(object, "rule", plan_rule_name(wait));
  output_number(object, "need_bytes", wait->wait_status.need_bytes);
  output_number(object, "budget_bytes", wait->wait_status.room_bytes);
  output_number(object, "planned_bytes", wait->wait_status.planned_bytes);
}

/* Those with a seat come first, and those that wait in the order of the queue. */
static int compare(const void *a, const void *b) {
  const struct job_figures *x = a, *y = b;
  enum part part_x = rules[rule_of(x->wait)].part, part_y = rules[rule_of(y->wait)].part;
  if (part_x != part_y)
    return part_x < part_y ? -1 : 1;
  if (x->job->job_status.queue != y->job->job_status.queue)
    return x->job->job_status.queue < y->job->job_status.queue ? -1 : 1;
  return x->job->job_status.job < y->job->job_status.job ? -1 : 1;
}

/* ---- for people ---- */

static void show_gpu(const struct gpu_figures *gpu) {
  uint64_t left_ns = gpu->handover->handover_status.left_ns;
  printf("GPU %s  %s: %s, %s for jobs", GPU_NUMBER_TEXT(gpu->gpu->gpu), gpu->gpu->gpu_status.name,
         gpu->gpu->gpu_status.flags & GS_GPU_SERIALIZED ? "taking turns" : "all run",
         BYTES_TEXT(gpu->gpu->gpu_status.capacity_bytes));
  if (left_ns != UINT64_MAX)
    printf("; the quantum is over in %.1f s", (double)left_ns / (double)NS_PER_S);
  printf("\n  %6s %-16s %10s %10s %10s  %s\n", "JOB", "NAME", "NEEDS", "BUDGET", "PLANNED", "RULE");
}

static void show_job(const struct job_figures *job) {
  printf("  %6u %-16s %10s %10s %10s  %s\n", job->job->job_status.job, job->job->job_status.name,
         BYTES_TEXT(job->wait->wait_status.need_bytes), BYTES_TEXT(job->wait->wait_status.room_bytes),
         BYTES_TEXT(job->wait->wait_status.planned_bytes), plan_rule_text(job->wait));
}

/* ---- for programs ---- */

static json_t *gpu_json(const struct gpu_figures *gpu) {
  char uuid[GS_UUID_TEXT_SIZE];
  json_t *object = json_object();
  gpu_number_format_uuid(gpu->gpu->gpu, gpu->gpu->gpu_status.uuid, uuid);
  output_gpu(object, "index", gpu->gpu->gpu);
  output_text(object, "uuid", uuid);
  output_bool(object, "serialized", gpu->gpu->gpu_status.flags & GS_GPU_SERIALIZED);
  output_number(object, "capacity_bytes", gpu->gpu->gpu_status.capacity_bytes);
  output_bounded(object, "left_ns", gpu->handover->handover_status.left_ns);
  return object;
}

static json_t *job_json(const struct job_figures *job) {
  json_t *object = json_object();
  output_number(object, "job", job->job->job_status.job);
  output_known(object, "pid", (uint64_t)job->job->job_status.pid);
  output_text(object, "name", job->job->job_status.name);
  output_number(object, "queue", job->job->job_status.queue);
  plan_put(object, job->wait);
  return object;
}

/* ---- both ---- */

/* The plan of the GPU at `msg`. Jobs of the next GPU come after that. */
static int tell_gpu(const struct gs_msg *msg, const struct gs_msg *end, json_t *gpus) {
  struct gpu_figures gpu = figures_of_gpu(msg, end);
  struct job_figures *jobs = calloc((size_t)(end - msg), sizeof *jobs);
  size_t count = 0;
  if (!jobs)
    return command_error(CTL_REFUSED, "out of memory");
  json_t *object = gpus ? gpu_json(&gpu) : NULL, *list = gpus ? json_array() : NULL;
  for (const struct gs_msg *next = msg + 1; next < end && next->type != GS_STATUS_GPU; next++)
    if (next->type == GS_STATUS_JOB)
      jobs[count++] = figures_of_job(next, end);
  qsort(jobs, count, sizeof *jobs, compare);
  if (!gpus)
    show_gpu(&gpu);
  for (size_t i = 0; i < count; i++)
    if (gpus)
      json_array_append_new(list, job_json(&jobs[i]));
    else
      show_job(&jobs[i]);
  if (gpus) {
    json_object_set_new(object, "jobs", list);
    json_array_append_new(gpus, object);
  }
  free(jobs);
  return CTL_OK;
}

int plan_command(const struct request *request) {
  struct gs_msg *msgs;
  size_t count;
  int code = fetch_status(request, &msgs, &count);
  if (code != CTL_OK)
    return code;
  json_t *gpus = request->json ? json_array() : NULL;
  for (const struct gs_msg *msg = msgs; msg < msgs + count && code == CTL_OK; msg++)
    if (msg->type == GS_STATUS_GPU)
      code = tell_gpu(msg, msgs + count, gpus);
  if (gpus && code == CTL_OK)
    code = output_json(json_pack("{s:O}", "gpus", gpus));
  json_decref(gpus);
  free(msgs);
  return code;
}
