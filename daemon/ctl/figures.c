/* figures.c - the daemon's answer to the question for its state, taken apart, and what it says in words. */
#include "ctl/figures.h"

#include <errno.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/gpu_number.h"

/* ---- the answer, taken apart ---- */

static void note_job(struct gpu_figures *gpu, const struct gs_msg *msg) {
  gpu->held_sum_ns += msg->job_status.held_ns;
  gpu->card_bytes += msg->job_status.resident_bytes;
  gpu->away_bytes += figures_away_bytes(msg);
  gpu->preempting += msg->job_status.flags & GS_STATE_PREEMPTS ? 1 : 0;
  gpu->own_contexts += msg->job_status.flags & GS_STATE_OWN_CONTEXT ? 1 : 0;
}

static struct job_figures *begin_job(struct status *status, struct gpu_figures *gpu,
                                     const struct gs_msg *msg) {
  static const struct gs_msg usual = {.terms_status.weight = GS_WEIGHT_DEFAULT},
                             unknown = {.wait_status.reason = GS_REASON_IDLE},
                             nowhere = {.origin_status.kind = GS_ORIGIN_NONE},
                             silent = {.type = GS_STATUS_COMMAND}, untold;
  struct job_figures *job = &status->jobs[status->job_count++];
  *job = (struct job_figures){gpu, msg, &usual, &unknown, &nowhere, &silent, &untold};
  gpu->job_count++;
  note_job(gpu, msg);
  return job;
}

static void read_all(struct status *status, size_t count) {
  static const struct gs_msg none;
  struct gpu_figures *gpu = NULL;
  struct job_figures *job = NULL;
  for (size_t i = 0; i < count; i++) { /* none: msgs is NULL */
    const struct gs_msg *msg = &status->msgs[i];
    if (msg->type == GS_STATUS_DAEMON) {
      status->daemon = msg;
    } else if (msg->type == GS_STATUS_GPU) {
      gpu = &status->gpus[status->gpu_count++];
      *gpu = (struct gpu_figures){.gpu = msg, .handover = &none, .jobs = status->jobs + status->job_count};
      job = NULL;
    } else if (msg->type == GS_STATUS_HANDOVER && gpu) {
      gpu->handover = msg;
    } else if (msg->type == GS_STATUS_CARD && gpu) {
      gpu->card = msg;
    } else if (msg->type == GS_STATUS_JOB && gpu) {
      job = begin_job(status, gpu, msg);
    } else if (msg->type == GS_STATUS_TERMS && job) {
      job->terms = msg;
    } else if (msg->type == GS_STATUS_WAIT && job) {
      job->wait = msg;
    } else if (msg->type == GS_STATUS_ORIGIN && job) {
      job->origin = msg;
    } else if (msg->type == GS_STATUS_COMMAND && job) {
      job->command = msg;
    } else if (msg->type == GS_STATUS_MEMORY && job) {
      job->memory = msg;
    }
  }
}

int status_read(struct status *status, struct gs_msg *msgs, size_t count) {
  size_t gpus = 0, jobs = 0;
  for (size_t i = 0; i < count; i++) {
    gpus += msgs[i].type == GS_STATUS_GPU;
    jobs += msgs[i].type == GS_STATUS_JOB;
  }
  *status = (struct status){.msgs = msgs,
                            .gpus = calloc(gpus + 1, sizeof *status->gpus),
                            .jobs = calloc(jobs + 1, sizeof *status->jobs)};
  if (!status->gpus || !status->jobs) {
    status_free(status);
    return -ENOMEM;
  }
  read_all(status, count);
  return 0;
}

void status_free(struct status *status) {
  free(status->msgs);
  free(status->gpus);
  free(status->jobs);
  *status = (struct status){0};
}

int status_fetch(const struct request *request, struct status *status) {
  struct gs_msg *msgs;
  struct ask_error error;
  size_t count;
  int code = ask_say(ask_status(daemon_path(&request->run), &msgs, &count, &error), &error);
  if (code == CTL_OK && status_read(status, msgs, count) < 0)
    return command_error(CTL_REFUSED, "out of memory");
  return code;
}

/* ---- names ---- */

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

/* What is given a script to run, and its options that take another word. */
static bool is_interpreter(const char *name, size_t size) {
  static const char *const names[] = {"python", "pypy", "bash",  "sh",     "perl",
                                      "ruby",   "node", "julia", "Rscript"};
  while (size > 0 && strchr("0123456789.", name[size - 1]))
    size--;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strlen(names[i]) == size && strncmp(names[i], name, size) == 0)
      return true;
  return false;
}

static const char *next_word(const char *word) {
  word += strcspn(word, " ");
  return word + strspn(word, " ");
}

/* Behind the last slash of the word. */
static const char *without_folder(const char *word) {
  const char *end = word + strcspn(word, " "), *slash = memrchr(word, '/', (size_t)(end - word));
  return slash && slash + 1 < end ? slash + 1 : word;
}

const char *figures_command(const struct gs_msg *command, char buffer[GS_COMMAND_SIZE]) {
  const char *program = without_folder(command->command_status.text), *script = next_word(program);
  if (is_interpreter(program, strcspn(program, " "))) {
    while (*script == '-' && strncmp(script, "-m ", 3) != 0 && strncmp(script, "-c ", 3) != 0)
      script = next_word(strncmp(script, "-W ", 3) == 0 || strncmp(script, "-X ", 3) == 0 ? next_word(script)
                                                                                          : script);
    if (*script && *script != '-')
      program = without_folder(script);
  }
  snprintf(buffer, GS_COMMAND_SIZE, "%s", program);
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

bool figures_waits_for_room(const struct job_figures *job) {
  uint64_t most = job->gpu->gpu->gpu_status.capacity_bytes, needs = job->job->job_status.used_bytes;
  uint64_t overhead = job->gpu->handover->handover_status.overhead_bytes;
  most -= overhead < most ? overhead : most;
  return job->job->job_status.state == GS_JOB_HOLDING &&
         job->gpu->gpu->gpu_status.flags & GS_GPU_SERIALIZED &&
         job->job->job_status.resident_bytes < (needs < most ? needs : most);
}

uint64_t figures_away_bytes(const struct gs_msg *job) {
  uint64_t used = job->job_status.used_bytes, resident = job->job_status.resident_bytes;
  return used > resident ? used - resident : 0;
}

/* A look into the system's list costs as much as a row of a table, so names are remembered. */
const char *user_name(uint32_t uid) {
  static struct {
    uint32_t uid;
    char name[64];
  } known[64];
  size_t i = uid % (sizeof known / sizeof *known);
  if (*known[i].name && known[i].uid == uid)
    return known[i].name;
  const struct passwd *user = getpwuid(uid);
  known[i].uid = uid;
  if (user)
    snprintf(known[i].name, sizeof known[i].name, "%s", user->pw_name);
  else
    snprintf(known[i].name, sizeof known[i].name, "%u", uid);
  return known[i].name;
}

const char *gpu_uuid(const struct gs_msg *gpu, char text[GS_UUID_TEXT_SIZE]) {
  gpu_number_format_uuid(gpu->gpu, gpu->gpu_status.uuid, text);
  return text;
}

const char *figures_together(const struct gpu_figures *gpu, char text[FIGURES_TOGETHER_SIZE]) {
  snprintf(text, FIGURES_TOGETHER_SIZE,
           "what is allocated exceeds the capacity, but only %s of %s are in use on the card",
           BYTES_TEXT(gpu->handover->handover_status.occupied_bytes),
           BYTES_TEXT(gpu->gpu->gpu_status.capacity_bytes));
  return text;
}

void append_text(char *text, size_t size, const char *format, ...) {
  size_t used = strlen(text);
  va_list list;
  va_start(list, format);
  vsnprintf(text + used, size - used, format, list);
  va_end(list);
}

const char *figures_card(const struct gpu_figures *gpu, char buffer[FIGURES_CARD_SIZE]) {
  const struct gs_msg *card = gpu->card;
  unsigned facts = card ? card->card_status.facts : 0;
  *buffer = '\0';
  if (card && !(facts & GS_CARD_ANSWERS))
    append_text(buffer, FIGURES_CARD_SIZE, "the card does not answer: see the kernel's log (dmesg)");
  if (facts & GS_CARD_TEMPERATURE)
    append_text(buffer, FIGURES_CARD_SIZE, "%u C", card->card_status.temperature_c);
  if (facts & GS_CARD_POWER)
    append_text(buffer, FIGURES_CARD_SIZE, "%s%.0f W", *buffer ? ", " : "", card->card_status.power_mw / 1e3);
  if (facts & GS_CARD_UTILIZATION)
    append_text(buffer, FIGURES_CARD_SIZE, "%sGPU %u %%, memory %u %%", *buffer ? ", " : "",
                card->card_status.gpu_percent, card->card_status.memory_percent);
  if (facts & GS_CARD_PROCESSES && card->card_status.unshared)
    append_text(buffer, FIGURES_CARD_SIZE, "%s%u unshared process%s with %s", *buffer ? "; " : "",
                card->card_status.unshared, card->card_status.unshared == 1 ? "" : "es",
                BYTES_TEXT(card->card_status.unshared_bytes));
  return buffer;
}

/* Of a newer daemon it may be another one. */
struct plan_rule figures_rule(const struct gs_msg *wait) {
  static const struct {
    const char *text;
    enum plan_part part;
  } rules[] = {
      [GS_RULE_IDLE] = {"has nothing for the GPU to do", PLAN_RESTS},
      [GS_RULE_SEATED] = {"has a seat", PLAN_SEATED},
      [GS_RULE_MAKES_WAY] = {"has a seat until the quantum is over", PLAN_SEATED},
      [GS_RULE_STOPS] = {"has lost its seat, and is to stop", PLAN_STOPS},
      [GS_RULE_NEXT] = {"has a seat as soon as the jobs that must stop have stopped", PLAN_NEXT},
      [GS_RULE_LATER] = {"will have a seat when the quantum is over", PLAN_LATER},
      [GS_RULE_ONE_AT_A_TIME] = {"waits: in mode on there is one seat", PLAN_WAITS},
      [GS_RULE_DOES_NOT_FIT] = {"waits: it does not fit beside the jobs with seats", PLAN_WAITS},
      [GS_RULE_TOO_BIG] = {"cannot run: its memory is more than the GPU has for it", PLAN_WAITS},
      [GS_RULE_STAYING] = {"waits: memory of other jobs does not leave the card", PLAN_WAITS},
      [GS_RULE_SILENT_USER] = {"waits: another job of its user kept the GPU without an answer", PLAN_WAITS},
      [GS_RULE_GANG] = {"waits: its gang cannot have seats on all of its GPUs yet", PLAN_WAITS},
      [GS_RULE_GANG_HELD_UP] = {"waits: a member of its gang is paused, or cannot run", PLAN_WAITS},
      [GS_RULE_FAR_BEHIND] = {"waits: too many jobs are before it", PLAN_WAITS},
      [GS_RULE_PAUSED] = {"is paused", PLAN_RESTS},
      [GS_RULE_ENTERS] = {"waits for memory to begin with", PLAN_WAITS},
  };
  static const char *const names[] = {
#define X(name, value, word) [value] = (word),
      GS_RULES(X)
#undef X
  };
  unsigned rule =
      wait->wait_status.rule < sizeof rules / sizeof *rules ? wait->wait_status.rule : GS_RULE_IDLE;
  return (struct plan_rule){rules[rule].text, names[rule], rules[rule].part};
}

/* ---- as JSON ---- */

void figures_put_gpu(json_t *object, const char *key, const struct gs_msg *gpu) {
  output_gpu(object, key, gpu->gpu);
  output_text(object, "uuid", UUID_TEXT(gpu));
}

void figures_put_occupied(json_t *object, const struct gpu_figures *gpu) {
  output_known(object, "occupied_bytes", gpu->handover->handover_status.occupied_bytes);
  output_bool(object, "together", gpu->gpu->gpu_status.flags & GS_GPU_TOGETHER);
}

void figures_put_plan(json_t *object, const struct gs_msg *wait) {
  output_text(object, "rule", figures_rule(wait).name);
  output_number(object, "need_bytes", wait->wait_status.need_bytes);
  output_number(object, "budget_bytes", wait->wait_status.room_bytes);
  output_number(object, "planned_bytes", wait->wait_status.planned_bytes);
}

void figures_put_memory(json_t *object, const struct gs_msg *memory) {
  json_t *kinds = json_object();
  for (int kind = 0; kind < GS_PINNED_COUNT; kind++)
    output_number(kinds, words_pinned_name((enum gs_pinned)kind), memory->memory_status.kind_bytes[kind]);
  json_object_set_new(object, "pinned_by_kind", kinds);
  output_number(object, "host_copies_bytes", memory->memory_status.copies_bytes);
  output_number(object, "clean_bytes", memory->memory_status.clean_bytes);
  output_number(object, "left_copied_bytes", memory->memory_status.left_copied_bytes);
  output_number(object, "left_spared_bytes", memory->memory_status.left_spared_bytes);
}

void figures_put_wait(json_t *object, const struct gs_msg *wait) {
  output_text(object, "reason", figures_reason_name(wait->wait_status.reason));
  output_known(object, "awaited_job", wait->wait_status.awaited);
  output_bounded(object, "expected_ns", wait->wait_status.expected_ns);
  output_number(object, "pinned_bytes", wait->wait_status.pinned_bytes);
  output_number(object, "lacking_bytes", wait->wait_status.lacking_bytes);
  output_number(object, "expected_memory_bytes", wait->wait_status.expected_bytes);
  output_text(object, "limited", figures_limited_name(wait->wait_status.limited));
  json_object_set_new(object, "limit_share",
                      figures_has_limit(wait) ? json_real(figures_limit_share(wait)) : json_null());
  output_known(object, "limited_for", wait->wait_status.limited_for);
  figures_put_plan(object, wait);
}
