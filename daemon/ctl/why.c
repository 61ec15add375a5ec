/* why.c - gpusharectl why JOB: what a job does, or waits for, how long that should take, and what helps, in
 * words. */
#include <stdlib.h>
#include <string.h>

#include "common/gpu_number.h"
#include "ctl/figures.h"

struct why {
  const struct status *status;
  const struct job_figures *job;
};

/* ---- words ---- */

static void tell_job(FILE *out, const struct gs_msg *job) {
  fprintf(out, "job %u (pid %d, %s)", job->job_status.job, job->job_status.pid, job->job_status.name);
}

static const struct job_figures *find_figures(const struct why *why, uint32_t job) {
  const struct gpu_figures *gpu = why->job->gpu;
  for (size_t i = 0; job && i < gpu->job_count; i++)
    if (gpu->jobs[i].job->job_status.job == job)
      return &gpu->jobs[i];
  return NULL;
}

/* Another job of the GPU. NULL: there is no such job. */
static const struct gs_msg *find_other(const struct why *why, uint32_t job) {
  const struct job_figures *other = find_figures(why, job);
  return other ? other->job : NULL;
}

/* Or `otherwise`. */
static void tell_other(FILE *out, const struct why *why, uint32_t job, const char *otherwise) {
  const struct gs_msg *other = find_other(why, job);
  if (other)
    tell_job(out, other);
  else
    fputs(otherwise, out);
}

/* What stands for a code in the sentences below. */
static void put(FILE *out, const struct why *why, char code) {
  const struct gs_msg *job = why->job->job, *wait = why->job->wait;
  if (code == 'j') /* the job; the one of its gang that it waits for; its place */
    fprintf(out, "%u", job->job_status.job);
  else if (code == 'm')
    fprintf(out, "%u", wait->wait_status.awaited);
  else if (code == 'q')
    fprintf(out, "%u", job->job_status.queue);
  else if (code == 'a') /* whom it waits for */
    tell_other(out, why, wait->wait_status.awaited, "others");
  else if (code == 'A')
    tell_other(out, why, wait->wait_status.awaited, "another job");
  else if (code == 'p') /* for whom it is limited, and to how much */
    tell_other(out, why, wait->wait_status.limited_for, "jobs");
  else if (code == '2' || code == '3')
    fprintf(out, "%.*g %%", code - '0', 100 * figures_limit_share(wait));
  else /* bytes: used, expected, lacking, pinned, of the soft limit; the GPU's capacity */
    fputs(BYTES_TEXT(code == 'u'   ? job->job_status.used_bytes
                     : code == 'e' ? wait->wait_status.expected_bytes
                     : code == 'l' ? wait->wait_status.lacking_bytes
                     : code == 'P' ? wait->wait_status.pinned_bytes
                     : code == 's' ? why->job->terms->terms_status.soft_limit_bytes
                                   : why->job->gpu->gpu->gpu_status.capacity_bytes),
          out);
}

/* The text, in which a code is replaced by what stands for it: "$x". */
static void say(FILE *out, const struct why *why, const char *text) {
  for (; *text; text++)
    if (*text == '$')
      put(out, why, *++text);
    else
      fputc(*text, out);
}

static const char silent[] =
    " has been told to stop and does not answer. A debugger or SIGSTOP may be why; where its work can't be "
    "stopped, also a kernel that does not end, or an open stream capture. If nothing helps, evict it "
    "(gpusharectl evict), or end the process: its GPU is free then.";

static const char *const reasons[] = {
    [GS_REASON_IDLE] = " is idle: it has nothing for the GPU to do.",
    [GS_REASON_RUNS] = " runs.",
    [GS_REASON_STOPS] = " gives the GPU back: its submitted work finishes, as it can't be stopped.",
    [GS_REASON_SILENT] = silent,
    [GS_REASON_TOO_BIG] = " cannot run: it uses $u, and without page faults all of that must fit the GPU, of "
                          "which jobs may use "
                          "$c. It waits until it needs less or there is more (gpusharectl set-capacity; what "
                          "others have pinned "
                          "is missing). With GPUSHARE_MEMORY=managed it would run.",
    [GS_REASON_STAYING] =
        " waits for memory of other jobs that does not leave the card, for want of host memory. It runs when "
        "one of them ends or needs less, or when the host has more memory for them (setting host_memory of "
        "the daemon).",
    [GS_REASON_PAUSED] = " is paused: gpusharectl resume $j lets it go on.",
    [GS_REASON_MEMORY] =
        " waits for memory: it will have $e, as it has said, and card and host have not so much left beside "
        "what the others have and will have. It begins when they end or need less, who came first going "
        "first. If it needs less: gpusharectl set-expected-memory $j.",
    [GS_REASON_RESTORE] = " has its turn, and its memory comes to the card.",
    [GS_REASON_ROOM] = " has its turn, but the memory of $a leaves the card first.",
    [GS_REASON_STOP] = " is next: the work of $a has yet to stop.",
    [GS_REASON_TURN] = " waits for its turn",
};

/* What it may use beside production jobs. */
static const char *const limits[] = {
    [GS_LIMITED_IDLE] = " It may use all of the GPU while production $p is idle.",
    [GS_LIMITED_LOOK] = " It may not use the GPU for the moment: it is measured what production $p does "
                        "undisturbed, for a tenth of a second.",
    [GS_LIMITED_BACK] = " It may not use the GPU for the moment: production $p has just begun to work.",
    [GS_LIMITED_CROWD] = " It may not use the GPU for the moment: production $p works: beside so many "
                         "production jobs no speed is measured.",
    [GS_LIMITED_GROWS] =
        " It is limited to $2 of the GPU, and more and more until production $p loses speed.",
    [GS_LIMITED_FOUND] = " It is limited to $2 of the GPU, by which production $p keeps its speed.",
    [GS_LIMITED_SET] =
        " It is limited to $3 of the GPU, as has been set, until 'gpusharectl set-rate $j auto'.",
};

/* ---- what it does, or waits for ---- */

/* Nothing but a signal from outside lets it go on. */
static void tell_stopped(FILE *out, const struct gs_msg *job) {
  if (job && job->job_status.flags & GS_STATE_STOPPED)
    fprintf(out,
            " Job %u (pid %d) is stopped (SIGSTOP, Ctrl-Z or a debugger) and can't give back what it has: "
            "'kill -CONT %d' lets it go on.",
            job->job_status.job, job->job_status.pid, job->job_status.pid);
}

static void tell_expected(FILE *out, const struct why *why) {
  uint64_t ns = why->job->wait->wait_status.expected_ns;
  if (ns > 365 * WORDS_DAY_NS)
    fputs(" How long that takes cannot be told.", out);
  else
    fprintf(out, " It should run in about %s.", DURATION_TEXT(ns));
}

static const char *sentence(const struct why *why) {
  unsigned flags = why->job->job->job_status.flags, reason = why->job->wait->wait_status.reason;
  if (reason == GS_REASON_STOPS && flags & GS_STATE_OVERDUE)
    return silent;
  if (reason == GS_REASON_STOPS && flags & GS_STATE_CAPTURING)
    return " gives the GPU back as soon as its stream capture ends.";
  if (reason == GS_REASON_STOPS && flags & GS_STATE_PREEMPTS)
    return " gives the GPU back: its work is being stopped.";
  if (reason == GS_REASON_PAUSED && why->job->wait->wait_status.awaited)
    return " waits for job $m of its gang, which is paused: gpusharectl resume $m lets both go on.";
  return reason < sizeof reasons / sizeof *reasons
             ? reasons[reason]
             : " waits for something that this gpusharectl does not know.";
}

/* It is to run sooner or later. */
static void tell_waiting(FILE *out, const struct why *why) {
  const struct gs_msg *job = why->job->job, *wait = why->job->wait;
  uint64_t used_bytes = job->job_status.used_bytes, lacking_bytes = wait->wait_status.lacking_bytes;
  uint64_t soft_bytes = why->job->terms->terms_status.soft_limit_bytes;
  const char *gang = why->job->terms->terms_status.gang;
  unsigned gang_size = 0; /* wherever its members are attached */
  tell_stopped(out, find_other(why, wait->wait_status.awaited));
  if (lacking_bytes)
    say(out, why, " $l of its memory are not on the card.");
  if (soft_bytes && lacking_bytes && used_bytes > soft_bytes)
    say(out, why, " What it has beyond its soft limit of $s leaves before the memory of others.");
  if (wait->wait_status.expected_bytes > used_bytes)
    say(out, why, " Beside others it counts with $e: it has said so, or frees and allocates that again.");
  for (size_t i = 0; *gang && i < why->status->job_count; i++) {
    const struct job_figures *other = &why->status->jobs[i];
    gang_size += other->job->job_status.uid == job->job_status.uid &&
                 strcmp(other->terms->terms_status.gang, gang) == 0;
  }
  if (gang_size > 1)
    fprintf(out, " Its gang '%s' gets all its %u GPUs at the same time.", gang, gang_size);
  tell_expected(out, why);
}

/* What the job has pinned by kind, and what lets it leave. */
static void tell_kinds(FILE *out, const struct job_figures *job) {
  const char *before = " Of that:";
  for (int kind = 0; kind < GS_PINNED_COUNT; kind++) {
    uint64_t bytes = job->memory->memory_status.kind_bytes[kind];
    struct words_pinned words = words_pinned((enum gs_pinned)kind);
    if (bytes)
      fprintf(out, "%s %s of %s (%s)", before, BYTES_TEXT(bytes), words.title, words.help);
    before = bytes ? "," : before;
  }
  if (*before == ',')
    fputc('.', out);
}

/* It can't run beside what others have pinned. */
static void tell_kept_by(FILE *out, const struct why *why) {
  const struct job_figures *other = find_figures(why, why->job->wait->wait_status.awaited);
  if (!other)
    return;
  fprintf(out, " Most of what is in its way is pinned by ");
  tell_job(out, other->job);
  fprintf(out, ": %s that can't leave the card until they are freed.",
          BYTES_TEXT(other->wait->wait_status.pinned_bytes));
  tell_kinds(out, other);
}

static void tell(FILE *out, const struct why *why) {
  const struct gs_msg *job = why->job->job, *wait = why->job->wait;
  unsigned reason = wait->wait_status.reason, limited = wait->wait_status.limited;
  fprintf(out, "GPU %s: ", GPU_NUMBER_TEXT(job->gpu));
  tell_job(out, job);
  say(out, why, sentence(why));
  if (reason == GS_REASON_RUNS && why->job->gpu->gpu->gpu_status.flags & GS_GPU_TOGETHER)
    fprintf(out, " It runs beside the others: %s.", TOGETHER_TEXT(why->job->gpu));
  if (reason == GS_REASON_TURN) {
    say(out, why, job->job_status.queue > 1 ? ", as number $q" : "");
    say(out, why, wait->wait_status.awaited ? ": $A has the GPU." : ".");
    if (figures_rule(wait).part == PLAN_WAITS)
      fprintf(out, " It %s.", figures_rule(wait).text);
    if (why->job->terms->terms_status.class == GS_CLASS_OPPORTUNISTIC)
      fputs(" An opportunistic job runs when no other one wants to.", out);
  }
  if (reason == GS_REASON_RESTORE || reason == GS_REASON_ROOM || reason == GS_REASON_STOP ||
      reason == GS_REASON_TURN)
    tell_waiting(out, why);
  else if (reason == GS_REASON_MEMORY)
    tell_expected(out, why);
  for (size_t i = 0; reason == GS_REASON_STAYING && i < why->job->gpu->job_count; i++) {
    const struct gs_msg *other = why->job->gpu->jobs[i].job;
    if (other != job && other->job_status.resident_bytes > 0)
      tell_stopped(out, other); /* all whose memory it may wait for */
  }
  if (reason == GS_REASON_TOO_BIG)
    tell_kept_by(out, why);
  if (wait->wait_status.pinned_bytes) {
    say(out, why, " $P of its memory can't leave the card.");
    tell_kinds(out, why->job);
  }
  tell_stopped(out, job);
  if (limited < sizeof limits / sizeof *limits && limits[limited])
    say(out, why, limits[limited]);
}

char *why_text(const struct status *status, const struct job_figures *job) {
  char *text = NULL;
  size_t size;
  FILE *stream = open_memstream(&text, &size);
  if (!stream)
    return NULL;
  tell(stream, &(struct why){status, job});
  if (fclose(stream) == 0)
    return text;
  free(text);
  return NULL;
}

/* ---- the command ---- */

static json_t *why_json(const struct status *status, const struct job_figures *job) {
  char *text = why_text(status, job);
  json_t *object = json_object();
  figures_put_gpu(object, "gpu", job->gpu->gpu);
  output_text(object, "state", figures_state_name(job->job->job_status.state));
  figures_put_wait(object, job->wait);
  figures_put_memory(object, job->memory);
  json_object_set_new(object, "text", json_string(text));
  free(text);
  return object;
}

/* Numbers are given upwards. */
static int tell_absence(const struct status *status, uint32_t job) {
  uint32_t last = status->daemon ? status->daemon->daemon.last_job : 0;
  if (job <= last)
    return command_error(CTL_REFUSED, "job %u has ended, or is on no GPU: see gpusharectl history", job);
  return command_error(CTL_REFUSED, "no job on a GPU has the number %u: see gpusharectl status%s", job,
                       last ? "" : ", and history of those that have ended");
}

static int answer(const struct status *status, uint32_t job, bool json) {
  json_t *gpus = json_array();
  bool found = false;
  for (const struct job_figures *each = status->jobs; each < status->jobs + status->job_count; each++) {
    if (each->job->job_status.job != job)
      continue;
    found = true;
    if (json) {
      json_array_append_new(gpus, why_json(status, each));
    } else {
      tell(stdout, &(struct why){status, each});
      printf("\n");
    }
  }
  int code = !found ? tell_absence(status, job)
             : json ? output_json(json_pack("{sI sO}", "job", (json_int_t)job, "gpus", gpus))
                    : CTL_OK;
  json_decref(gpus);
  return code;
}

int why_command(const struct request *request) {
  struct status status;
  uint32_t job;
  int code = read_job(request->words[1], &job);
  if (code == CTL_OK)
    code = status_fetch(request, &status);
  if (code != CTL_OK)
    return code;
  code = answer(&status, job, request->json);
  status_free(&status);
  return code;
}
