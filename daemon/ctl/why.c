/* why.c - gpusharectl why JOB: what a job does, or waits for, how long that should take, and what helps, in
 * words. */
#include "ctl/why.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "common/parse.h"
#include "common/words.h"
#include "ctl/output.h"
#include "ctl/show_status.h"

/* ---- words ---- */

static void tell_job(FILE *out, const struct gs_msg *job) {
  fprintf(out, "job %u (pid %d, %s)", job->job_status.job, job->job_status.pid, job->job_status.name);
}

/* Another job of the GPU. NULL: there is no such job. */
static const struct gs_msg *find_other(const struct why *why, uint32_t job) {
  for (const struct gs_msg *msg = why->msgs; job && msg < why->end; msg++)
    if (msg->type == GS_STATUS_JOB && msg->gpu == why->job.job->gpu && msg->job_status.job == job)
      return msg;
  return NULL;
}

/* Or `otherwise`. */
static void tell_other(FILE *out, const struct why *why, uint32_t job, const char *otherwise) {
  const struct gs_msg *other = find_other(why, job);
  if (other)
    tell_job(out, other);
  else
    fputs(otherwise, out);
}

static void tell_awaited(FILE *out, const struct why *why, const char *otherwise) {
  tell_other(out, why, why->job.wait->wait_status.awaited, otherwise);
}

/* Nothing but a signal from outside lets it go on. */
static void tell_stopped(FILE *out, const struct gs_msg *job) {
  if (!job || !(job->job_status.flags & GS_STATE_STOPPED))
    return;
  fprintf(
      out,
      " Job %u (pid %d) is stopped (SIGSTOP, Ctrl-Z or a debugger) and can't give back what it has: 'kill "
      "-CONT %d' lets it go on.",
      job->job_status.job, job->job_status.pid, job->job_status.pid);
}

/* All whose memory others may wait for. */
static void tell_all_stopped(FILE *out, const struct why *why) {
  for (const struct gs_msg *msg = why->msgs; msg < why->end; msg++)
    if (msg->type == GS_STATUS_JOB && msg->gpu == why->job.job->gpu && msg != why->job.job &&
        msg->job_status.resident_bytes > 0)
      tell_stopped(out, msg);
}

static void tell_expected(FILE *out, const struct why *why) {
  uint64_t ns = why->job.wait->wait_status.expected_ns;
  if (ns > 365 * WORDS_DAY_NS) {
    fputs(" How long that takes cannot be told.", out);
    return;
  }
  fprintf(out, " It should run in about %s.", DURATION_TEXT(ns));
}

/* What is away of its memory, and why; and with how much it counts. */
static void tell_memory_of(FILE *out, const struct why *why) {
  uint64_t used_bytes = why->job.job->job_status.used_bytes;
  uint64_t lacking_bytes = why->job.wait->wait_status.lacking_bytes;
  uint64_t soft_bytes = why->job.terms->terms_status.soft_limit_bytes;
  if (lacking_bytes)
    fprintf(out, " %s of its memory are not on the card.", BYTES_TEXT(lacking_bytes));
  if (soft_bytes && lacking_bytes && used_bytes > soft_bytes)
    fprintf(out, " What it has beyond its soft limit of %s leaves before the memory of others.",
            BYTES_TEXT(soft_bytes));
  if (why->job.wait->wait_status.expected_bytes > used_bytes)
    fprintf(out, " Beside others it counts with %s: it has said so, or frees and allocates that again.",
            BYTES_TEXT(why->job.wait->wait_status.expected_bytes));
}

/* Wherever they are attached. */
static void tell_gang(FILE *out, const struct why *why) {
  const char *gang = why->job.terms->terms_status.gang;
  unsigned size = 0;
  for (const struct gs_msg *msg = why->msgs; *gang && msg < why->end; msg++)
    if (msg->type == GS_STATUS_JOB && msg->job_status.uid == why->job.job->job_status.uid)
      size += strcmp(figures_of_job(msg, why->end).terms->terms_status.gang, gang) == 0;
  if (size > 1)
    fprintf(out, " Its gang '%s' gets all its %u GPUs at the same time.", gang, size);
}

/* ---- what it may use beside production jobs ---- */

static void tell_production(FILE *out, const struct why *why) {
  fputs("production ", out);
  tell_other(out, why, why->job.wait->wait_status.limited_for, "jobs");
}

static void tell_pause(FILE *out, const struct why *why, const char *before, const char *after) {
  fprintf(out, " It may not use the GPU for the moment: %s", before);
  tell_production(out, why);
  fputs(after, out);
}

static void tell_share(FILE *out, const struct why *why, const char *after) {
  fprintf(out, " It is limited to %.2g %% of the GPU", 100 * figures_limit_share(why->job.wait));
  fputs(after, out);
  tell_production(out, why);
}

static void tell_limit(FILE *out, const struct why *why) {
  switch (why->job.wait->wait_status.limited) {
  case GS_LIMITED_IDLE:
    fputs(" It may use all of the GPU while ", out);
    tell_production(out, why);
    fputs(" is idle.", out);
    break;
  case GS_LIMITED_LOOK:
    tell_pause(out, why, "it is measured what ", " does undisturbed, for a tenth of a second.");
    break;
  case GS_LIMITED_BACK:
    tell_pause(out, why, "", " has just begun to work.");
    break;
  case GS_LIMITED_CROWD:
    tell_pause(out, why, "", " works: beside so many production jobs no speed is measured.");
    break;
  case GS_LIMITED_GROWS:
    tell_share(out, why, ", and more and more until ");
    fputs(" loses speed.", out);
    break;
  case GS_LIMITED_FOUND:
    tell_share(out, why, ", by which ");
    fputs(" keeps its speed.", out);
    break;
  case GS_LIMITED_SET:
    fprintf(out,
            " It is limited to %.3g %% of the GPU, as has been set, until 'gpusharectl set-rate %u auto'.",
            100 * figures_limit_share(why->job.wait), why->job.job->job_status.job);
    break;
  }
}

/* ---- what it waits for ---- */

static void tell_turn(FILE *out, const struct why *why) {
  fputs(" waits for its turn", out);
  if (why->job.job->job_status.queue > 1)
    fprintf(out, ", as number %u", why->job.job->job_status.queue);
  if (why->job.wait->wait_status.awaited) {
    fputs(": ", out);
    tell_awaited(out, why, "another job");
    fputs(" has the GPU", out);
  }
  fputs(".", out);
  if (why->job.terms->terms_status.class == GS_CLASS_OPPORTUNISTIC)
    fputs(" An opportunistic job runs when no other one wants to.", out);
}

static void tell_too_big(FILE *out, const struct why *why) {
  fprintf(out,
          " cannot run: it uses %s, and without page faults all of that must fit the GPU, of which jobs may "
          "use %s. It waits until it needs less or there is more (gpusharectl set-capacity; what others have "
          "pinned is missing). With GPUSHARE_MEMORY=managed it would run.",
          BYTES_TEXT(why->job.job->job_status.used_bytes),
          BYTES_TEXT(why->gpu.gpu->gpu_status.capacity_bytes));
}

static void tell_memory(FILE *out, const struct why *why) {
  fprintf(
      out,
      " waits for memory: it will have %s, as it has said, and card and host have not so much left beside "
      "what the others have and will have. It begins when they end or need less, who came first going "
      "first. If it needs less: gpusharectl set-expected-memory %u.",
      BYTES_TEXT(why->job.wait->wait_status.expected_bytes), why->job.job->job_status.job);
  tell_expected(out, why);
}

static void tell_paused(FILE *out, const struct why *why) {
  uint32_t member = why->job.wait->wait_status.awaited;
  if (!member) {
    fprintf(out, " is paused: gpusharectl resume %u lets it go on.", why->job.job->job_status.job);
    return;
  }
  fprintf(out, " waits for job %u of its gang, which is paused: gpusharectl resume %u lets both go on.",
          member, member);
}

static void tell_silent(FILE *out) {
  fputs(
      " has been told to stop and does not answer. A debugger or SIGSTOP may be why; where its work can't be "
      "stopped, also a kernel that does not end, or an open stream capture. If nothing helps, evict it "
      "(gpusharectl evict), or end the process: its GPU is free then.",
      out);
}

static void tell_stops(FILE *out, const struct why *why) {
  unsigned flags = why->job.job->job_status.flags;
  if (flags & GS_STATE_OVERDUE)
    tell_silent(out);
  else if (flags & GS_STATE_CAPTURING)
    fputs(" gives the GPU back as soon as its stream capture ends.", out);
  else if (flags & GS_STATE_PREEMPTS)
    fputs(" gives the GPU back: its work is being stopped.", out);
  else
    fputs(" gives the GPU back: its submitted work finishes, as it can't be stopped.", out);
}

static void tell_waiting(FILE *out, const struct why *why) {
  tell_stopped(out, find_other(why, why->job.wait->wait_status.awaited));
  tell_memory_of(out, why);
  tell_gang(out, why);
  tell_expected(out, why);
}

static void tell_reason(FILE *out, const struct why *why) {
  switch (why->job.wait->wait_status.reason) {
  case GS_REASON_IDLE:
    fputs(" is idle: it has nothing for the GPU to do.", out);
    return;
  case GS_REASON_RUNS:
    fputs(" runs.", out);
    return;
  case GS_REASON_STOPS:
    tell_stops(out, why);
    return;
  case GS_REASON_SILENT:
    tell_silent(out);
    return;
  case GS_REASON_TOO_BIG:
    tell_too_big(out, why);
    return;
  case GS_REASON_STAYING:
    fputs(
        " waits for memory of other jobs that does not leave the card, for want of host memory. It runs when "
        "one of them ends or needs less, or when the host has more memory for them (setting host_memory of "
        "the daemon).",
        out);
    tell_all_stopped(out, why);
    return;
  case GS_REASON_PAUSED:
    tell_paused(out, why);
    return;
  case GS_REASON_MEMORY:
    tell_memory(out, why);
    return;
  case GS_REASON_RESTORE:
    fputs(" has its turn, and its memory comes to the card.", out);
    break;
  case GS_REASON_ROOM:
    fputs(" has its turn, but the memory of ", out);
    tell_awaited(out, why, "others");
    fputs(" leaves the card first.", out);
    break;
  case GS_REASON_STOP:
    fputs(" is next: the work of ", out);
    tell_awaited(out, why, "others");
    fputs(" has yet to stop.", out);
    break;
  case GS_REASON_TURN:
    tell_turn(out, why);
    break;
  default:
    fputs(" waits for something that this gpusharectl does not know.", out);
    return;
  }
  tell_waiting(out, why);
}

static void tell(FILE *out, const struct why *why) {
  fprintf(out, "GPU %s: ", GPU_NUMBER_TEXT(why->job.job->gpu));
  tell_job(out, why->job.job);
  tell_reason(out, why);
  tell_stopped(out, why->job.job);
  tell_limit(out, why);
}

char *why_text(const struct why *why) {
  char *text = NULL;
  size_t size;
  FILE *stream = open_memstream(&text, &size);
  if (!stream)
    return NULL;
  tell(stream, why);
  if (fclose(stream) == 0)
    return text;
  free(text);
  return NULL;
}

/* ---- the command ---- */

/* The next one of this job, at or after `from`; the first: from = msgs. NULL: there is no more. */
static const struct gs_msg *find_job(struct why *why, const struct gs_msg *from, uint32_t job) {
  for (const struct gs_msg *msg = from; msg < why->end; msg++)
    if (msg->type == GS_STATUS_GPU) {
      why->gpu = figures_of_gpu(msg, why->end);
    } else if (msg->type == GS_STATUS_JOB && msg->job_status.job == job) {
      why->job = figures_of_job(msg, why->end);
      return msg;
    }
  return NULL;
}

static json_t *why_json(const struct why *why) {
  char uuid[GS_UUID_TEXT_SIZE], *text = why_text(why);
  json_t *object = json_object();
  gpu_number_format_uuid(why->gpu.gpu->gpu, why->gpu.gpu->gpu_status.uuid, uuid);
  output_gpu(object, "gpu", why->gpu.gpu->gpu);
  output_text(object, "uuid", uuid);
  output_text(object, "state", figures_state_name(why->job.job->job_status.state));
  status_put_wait(object, why->job.wait);
  json_object_set_new(object, "text", json_string(text));
  free(text);
  return object;
}

static int answer(const struct request *request, struct why *why, uint32_t job) {
  const struct gs_msg *msg = find_job(why, why->msgs, job);
  if (!msg)
    return command_error(CTL_REFUSED, "no job on a GPU has the number %u: see gpusharectl status", job);
  json_t *root = json_object(), *gpus = json_array();
  for (; msg; msg = find_job(why, msg + 1, job))
    if (request->json) {
      json_array_append_new(gpus, why_json(why));
    } else {
      tell(stdout, why);
      printf("\n");
    }
  output_number(root, "job", job);
  json_object_set_new(root, "gpus", gpus);
  if (request->json)
    return output_json(root);
  json_decref(root);
  return CTL_OK;
}

int why_command(const struct request *request) {
  struct gs_msg *msgs;
  size_t count;
  int64_t job;
  if (parse_integer(request->words[1], 1, UINT32_MAX, &job) < 0)
    return usage_error("not the number of a job (see gpusharectl status):", request->words[1]);
  int code = fetch_status(request, &msgs, &count);
  if (code != CTL_OK)
    return code;
  code = answer(request, &(struct why){.msgs = msgs, .end = msgs + count}, (uint32_t)job);
  free(msgs);
  return code;
}
