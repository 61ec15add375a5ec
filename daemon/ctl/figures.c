/* figures.c - what a status shows of GPUs and jobs beyond what the daemon's messages say as such. */
#include "ctl/figures.h"

#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"

void figures_say(FILE *out, const char *text, void (*put)(FILE *out, char code, const void *context),
                 const void *context) {
  for (; *text; text++)
    if (*text == '$')
      put(out, *++text, context);
    else
      fputc(*text, out);
}

/* ---- a GPU ---- */

static void note_terms(struct gpu_figures *figures, const struct gs_msg *msg) {
  figures->terms_shown[GS_TERM_WEIGHT] |= msg->terms_status.weight != GS_WEIGHT_DEFAULT;
  figures->terms_shown[GS_TERM_PRIORITY] |= msg->terms_status.priority != 0;
  figures->terms_shown[GS_TERM_EXPECTED] |= msg->terms_status.remaining_ns != 0;
  figures->terms_shown[GS_TERM_LIMIT] |= msg->terms_status.limit_bytes != 0;
  figures->terms_shown[GS_TERM_SOFT_LIMIT] |= msg->terms_status.soft_limit_bytes != 0;
  figures->terms_shown[GS_TERM_RATE] |= msg->terms_status.rate != 0;
  figures->terms_shown[GS_TERM_CLASS] |= msg->terms_status.class != GS_CLASS_STANDARD;
  int width = (int)strlen(msg->terms_status.gang);
  if (width > figures->gang_width)
    figures->gang_width = width;
}

static void note_origin(struct gpu_figures *figures, const struct gs_msg *msg, int32_t pid) {
  char text[FIGURES_FROM_SIZE];
  int width = (int)strlen(figures_from(msg, text)), own_pid = msg->origin_status.own_pid;
  if (width > figures->from_width)
    figures->from_width = width;
  figures->own_pids |= own_pid != 0 && own_pid != pid;
}

struct gpu_figures figures_of_gpu(const struct gs_msg *gpu, const struct gs_msg *end) {
  static const struct gs_msg none;
  struct gpu_figures figures = {.gpu = gpu, .handover = &none};
  int32_t pid = 0; /* of the last job */
  for (const struct gs_msg *msg = gpu + 1; msg < end && msg->type != GS_STATUS_GPU; msg++) {
    if (msg->type == GS_STATUS_HANDOVER) {
      figures.handover = msg;
    } else if (msg->type == GS_STATUS_JOB) {
      figures.held_sum_ns += msg->job_status.held_ns;
      pid = msg->job_status.pid;
      figures.preempting += msg->job_status.flags & GS_STATE_PREEMPTS ? 1 : 0;
      figures.own_contexts += msg->job_status.flags & GS_STATE_OWN_CONTEXT ? 1 : 0;
    } else if (msg->type == GS_STATUS_TERMS) {
      note_terms(&figures, msg);
    } else if (msg->type == GS_STATUS_ORIGIN) {
      note_origin(&figures, msg, pid);
    }
  }
  return figures;
}

/* ---- a job ---- */

struct job_figures figures_of_job(const struct gs_msg *job, const struct gs_msg *end) {
  static const struct gs_msg usual = {.terms_status.weight = GS_WEIGHT_DEFAULT},
                             unknown = {.wait_status.reason = GS_REASON_IDLE},
                             nowhere = {.origin_status.kind = GS_ORIGIN_NONE};
  struct job_figures figures = {.job = job, .terms = &usual, .wait = &unknown, .origin = &nowhere};
  for (const struct gs_msg *msg = job + 1; msg < end; msg++)
    if (msg->type == GS_STATUS_TERMS)
      figures.terms = msg;
    else if (msg->type == GS_STATUS_WAIT)
      figures.wait = msg;
    else if (msg->type == GS_STATUS_ORIGIN)
      figures.origin = msg;
    else
      break;
  return figures;
}

static const char *const states[] = {
    [GS_JOB_IDLE] = "idle",         [GS_JOB_WAITING] = "waiting",   [GS_JOB_HOLDING] = "holding",
    [GS_JOB_DROPPING] = "dropping", [GS_JOB_BYPASSED] = "bypassed",
};
static const char *const reasons[] = {
    [GS_REASON_IDLE] = "idle",       [GS_REASON_RUNS] = "runs",       [GS_REASON_STOPS] = "stops",
    [GS_REASON_SILENT] = "silent",   [GS_REASON_RESTORE] = "restore", [GS_REASON_ROOM] = "room",
    [GS_REASON_STOP] = "stop",       [GS_REASON_TURN] = "turn",       [GS_REASON_TOO_BIG] = "too_big",
    [GS_REASON_STAYING] = "staying", [GS_REASON_PAUSED] = "paused",   [GS_REASON_MEMORY] = "memory",
};
static const char *const limits[] = {
    [GS_LIMITED_NOT] = "not",     [GS_LIMITED_IDLE] = "idle",   [GS_LIMITED_LOOK] = "look",
    [GS_LIMITED_GROWS] = "grows", [GS_LIMITED_FOUND] = "found", [GS_LIMITED_SET] = "set",
    [GS_LIMITED_CROWD] = "crowd", [GS_LIMITED_BACK] = "back",
};
static const char *const origins[] = {
    [GS_ORIGIN_NONE] = "",
    [GS_ORIGIN_UNIT] = "unit",
    [GS_ORIGIN_CONTAINER] = "container",
    [GS_ORIGIN_DOCKER] = "docker",
    [GS_ORIGIN_PODMAN] = "podman",
    [GS_ORIGIN_LXC] = "lxc",
    [GS_ORIGIN_APPTAINER] = "apptainer",
    [GS_ORIGIN_SLURM] = "slurm",
    [GS_ORIGIN_POD] = "pod",
};
#define NAME(names, number)                                                                                  \
  ((number) < sizeof(names) / sizeof *(names) && (names)[number] ? (names)[number] : "?")

const char *figures_state_name(unsigned state) { return NAME(states, state); }
const char *figures_reason_name(unsigned reason) { return NAME(reasons, reason); }
const char *figures_limited_name(unsigned limited) { return NAME(limits, limited); }
const char *figures_origin_name(unsigned kind) { return NAME(origins, kind); }

const char *figures_from(const struct gs_msg *origin, char buffer[FIGURES_FROM_SIZE]) {
  const char *name = origin->origin_status.name, *container = origin->origin_status.container;
  unsigned kind = origin->origin_status.kind;
  if (kind == GS_ORIGIN_NONE || kind == GS_ORIGIN_UNIT)
    snprintf(buffer, FIGURES_FROM_SIZE, "%s", name);
  else if (kind == GS_ORIGIN_POD)
    snprintf(buffer, FIGURES_FROM_SIZE, "pod:%.8s%s%.8s", name, *container ? "/" : "", container);
  else
    snprintf(buffer, FIGURES_FROM_SIZE, "%s:%.*s", figures_origin_name(kind),
             kind == GS_ORIGIN_SLURM || kind == GS_ORIGIN_LXC ? GS_ORIGIN_SIZE : 12, name);
  return buffer;
}

bool figures_has_limit(const struct gs_msg *wait) {
  return wait->wait_status.limited != GS_LIMITED_NOT && wait->wait_status.limited != GS_LIMITED_IDLE;
}

double figures_limit_share(const struct gs_msg *wait) {
  return (double)wait->wait_status.limit / (double)GS_LIMITED_WHOLE;
}

bool figures_waits_for_memory(const struct job_figures *job) {
  return job->wait->wait_status.reason == GS_REASON_MEMORY;
}

bool figures_waits_for_room(const struct gpu_figures *figures, const struct gs_msg *job) {
  uint64_t needs = job->job_status.used_bytes, most = figures->gpu->gpu_status.capacity_bytes;
  most -= figures->handover->handover_status.overhead_bytes < most
              ? figures->handover->handover_status.overhead_bytes
              : most;
  return job->job_status.state == GS_JOB_HOLDING && figures->gpu->gpu_status.flags & GS_GPU_SERIALIZED &&
         job->job_status.resident_bytes < (needs < most ? needs : most);
}

const char *figures_user_name(uint32_t uid, char buffer[16]) {
  const struct passwd *user = getpwuid(uid);
  if (user)
    return user->pw_name;
  snprintf(buffer, 16, "%u", uid);
  return buffer;
}
