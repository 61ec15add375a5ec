/* show.c - gpusharectl status, plan and jobs: the daemon's state, for people; and for programs, to whom the
 * keys are promised in docs/schema. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "ctl/figures.h"
#include "ctl/table.h"

static int compare_numbers(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

#define OWN_CONTEXT_BYTES (UINT64_C(260) << 20) /* about: H100, driver 580 */

/* ---- status: figures of hand-overs and jobs ---- */

/* The job's share of the time that its GPU was held. */
static double held_share(const struct job_figures *job) {
  return job->gpu->held_sum_ns ? (double)job->job->job_status.held_ns / (double)job->gpu->held_sum_ns : 0;
}

/* A hand-over's mean; 0 if there was none. */
static uint64_t mean_ns(const struct gpu_figures *gpu, uint64_t sum_ns) {
  uint64_t count = gpu->gpu->gpu_status.handovers;
  return count ? sum_ns / count : 0;
}

/* Bytes moved in hand-overs, by their time, the drain included; or in the last one. */
static uint64_t per_s(const struct gs_msg *handover, bool last, uint64_t bytes) {
  uint64_t ns = last ? handover->handover_status.drain_last_ns + handover->handover_status.move_last_ns
                     : handover->handover_status.drain_ns + handover->handover_status.move_ns;
  return ns ? (uint64_t)((unsigned __int128)bytes * NS_PER_S / ns) : 0;
}

/* ---- status, for people ---- */

static double seconds(uint64_t ns) { return (double)ns / (double)NS_PER_S; }

static double milliseconds(uint64_t ns) { return (double)ns / (double)NS_PER_MS; }

static const char *tq_text(uint64_t tq_ns, bool found, char buffer[32]) {
  if (found && tq_ns == 0)
    return "auto";
  snprintf(buffer, 32, found ? "%.3g s (auto)" : "%g s", seconds(tq_ns));
  return buffer;
}

static void show_daemon(const struct gs_msg *msg) {
  char tq[32];
  unsigned programs = msg->daemon.mps_programs;
  printf("gpushare-daemon %s, pid %d, up %.0f s: %u job%s, host memory %s, grace %g s\n", msg->daemon.release,
         msg->daemon.pid, seconds(msg->daemon.uptime_ns), msg->daemon.jobs, msg->daemon.jobs == 1 ? "" : "s",
         BYTES_TEXT(msg->daemon.host_memory_bytes), seconds(msg->daemon.grace_ns));
  if (msg->daemon.mps == GS_MPS_DOWN)
    printf("MPS does not run (the daemon's log tells why): programs share the GPUs by time\n");
  else if (msg->daemon.mps == GS_MPS_RUNS && programs == 0)
    printf("MPS runs: for no program so far\n");
  else if (msg->daemon.mps == GS_MPS_RUNS)
    printf("MPS runs: for %u program%s of %s; a fatal fault of one of them ends all\n", programs,
           programs == 1 ? "" : "s", user_name(msg->daemon.mps_uid));
  if (msg->daemon.presence == GS_PRESENCE_BLIND)
    printf(
        "not of all programs it can be told whether they have their GPU open (the daemon's log tells why)\n");
  if (msg->daemon.gpus == 0)
    printf("no program has used a GPU yet; the quantum will be %s\n",
           tq_text(msg->daemon.default_tq_ns, msg->daemon.default_tq_ns == 0, tq));
}

static void show_direction(const char *name, const struct gs_msg *handover, uint64_t bytes, uint64_t last) {
  printf("; %s %s at %.1f GB/s (last %.1f)", name, BYTES_TEXT(bytes),
         (double)per_s(handover, false, bytes) / 1e9, (double)per_s(handover, true, last) / 1e9);
}

static void show_handovers(const struct gpu_figures *gpu) {
  const struct gs_msg *msg = gpu->handover;
  if (gpu->gpu->gpu_status.handovers > 0) {
    printf("  hand-over: drain %.1f ms (last %.1f), moves %.1f ms (last %.1f)",
           milliseconds(mean_ns(gpu, msg->handover_status.drain_ns)),
           milliseconds(msg->handover_status.drain_last_ns),
           milliseconds(mean_ns(gpu, msg->handover_status.move_ns)),
           milliseconds(msg->handover_status.move_last_ns));
    show_direction("out", msg, msg->handover_status.evicted_bytes, msg->handover_status.evicted_last_bytes);
    show_direction("in", msg, msg->handover_status.restored_bytes, msg->handover_status.restored_last_bytes);
    printf("\n");
  }
  if (msg->handover_status.hidden_bytes > 0)
    printf("  moved behind turns: %s\n", BYTES_TEXT(msg->handover_status.hidden_bytes));
  if (msg->handover_status.overhead_bytes > 0)
    printf("  the driver has refused %s of the capacity\n", BYTES_TEXT(msg->handover_status.overhead_bytes));
}

/* How its jobs' turns end, and what that takes of the card. */
static void show_work(const struct gpu_figures *gpu) {
  printf("  work of %u of %u jobs can be stopped in its middle", gpu->preempting, gpu->gpu->gpu_status.jobs);
  if (gpu->own_contexts > 0)
    printf("; %u have a context of ours to move memory in, about %s beside the capacity", gpu->own_contexts,
           BYTES_TEXT(gpu->own_contexts * OWN_CONTEXT_BYTES));
  printf("\n");
}

static void show_gpu(const struct gpu_figures *gpu) {
  const struct gs_msg *msg = gpu->gpu;
  char tq[32], card[FIGURES_CARD_SIZE];
  printf("\nGPU %s  %s  %s\n", GPU_NUMBER_TEXT(msg->gpu), UUID_TEXT(msg), msg->gpu_status.name);
  printf("  mode %s (%s), policy %s, quantum %s, memory %s of %s, %lu hand-overs, %s moved%s\n",
         mode_name(msg->gpu_status.mode),
         msg->gpu_status.flags & GS_GPU_SERIALIZED ? "taking turns" : "all run",
         policy_name(msg->gpu_status.policy),
         tq_text(msg->gpu_status.tq_ns, msg->gpu_status.flags & GS_GPU_TQ_AUTO, tq),
         BYTES_TEXT(msg->gpu_status.used_bytes), BYTES_TEXT(msg->gpu_status.capacity_bytes),
         (unsigned long)msg->gpu_status.handovers, BYTES_TEXT(msg->gpu_status.moved_bytes),
         msg->gpu_status.flags & GS_GPU_MPS ? ", spatial mps" : "");
  if (msg->gpu_status.flags & GS_GPU_TOGETHER)
    printf("  %s\n", TOGETHER_TEXT(gpu));
  if (*figures_card(gpu, card))
    printf("  %s\n", card);
  show_handovers(gpu);
  if (msg->gpu_status.jobs > 0)
    show_work(gpu);
}

/* ---- status, for people: the table of a GPU's jobs ---- */

/* What is most important is seen on a terminal of 80 columns. Terms have a column where some job has another
 * one than most. */
static const struct table_column job_columns[] = {
    {"JOB", 6, 22, NULL, 0, false},       {"PID", 8, 14, NULL, 0, false},
    {"USER", -10, 20, NULL, 0, false},    {"NAME", -16, 19, NULL, 0, false},
    {"MEMORY", 10, 17, NULL, 0, false},   {"ON CARD", 10, 16, NULL, 0, false},
    {"SHARE", 6, 12, NULL, 0, false},     {"WAITED", 9, 13, NULL, 0, false},
    {"TURNS", 6, 2, NULL, 0, false},      {"MOVED", 10, 3, NULL, 0, false},
    {"WEIGHT", 6, 11, "100", 0, false},   {"PRIO", 4, 10, "0", 0, false},
    {"LEFT", 9, 9, "-", 0, false},        {"LIMIT", 10, 8, "-", 0, false},
    {"SOFT LIMIT", 10, 7, "-", 0, false}, {"CLASS", 13, 18, "-", 0, false},
    {"RATE", 5, 6, "-", 0, false},        {"GANG", -4, 5, "-", 0, false},
    {"OWN PID", 8, 1, "-", 0, false},     {"FROM", -4, 4, "-", 0, false},
    {"STATE", -5, 21, NULL, 12, true},    {"COMMAND", -7, 15, "", 20, true},
};

/* A text, or what stands for none. */
#define OR_NONE(there, text) ((there) ? (text) : "-")

/* What a job is beside its state; without a text it is told to programs only. */
static const struct {
  unsigned flag;
  const char *key, *text;
} flags[] = {{GS_STATE_CAPTURING, "capturing", "capturing"},
             {GS_STATE_DRAINING, "draining", "draining"},
             {GS_STATE_OVERDUE, "overdue", "overdue"},
             {GS_STATE_TOO_BIG, "too_big", "too big for the capacity"},
             {GS_STATE_STOPPED, "stopped", "its process is stopped"},
             {GS_STATE_MPS, "mps", "by MPS"},
             {GS_STATE_PREEMPTS, "preempts", NULL},
             {GS_STATE_OWN_CONTEXT, "own_context", NULL}};
#define FLAGS (sizeof flags / sizeof *flags)
#define PINNED_SHOWN 16 /* from so large a part of the capacity on */

#define STATE_SIZE 256

static const char *state_text(const struct job_figures *job, char text[STATE_SIZE]) {
  const struct gs_msg *msg = job->job;
  snprintf(text, STATE_SIZE, "%s", figures_state_name(msg->job_status.state));
  if (msg->job_status.queue)
    append_text(text, STATE_SIZE, " (%u)", msg->job_status.queue);
  for (size_t i = 0; i < FLAGS; i++)
    if (flags[i].text && msg->job_status.flags & flags[i].flag)
      append_text(text, STATE_SIZE, ", %s", flags[i].text);
  append_text(text, STATE_SIZE, "%s%s%s", figures_waits_for_room(job) ? ", waits for room" : "",
              figures_waits_for_memory(job) ? ", waits for memory" : "",
              job->terms->terms_status.paused ? ", paused" : "");
  uint64_t pinned_bytes = job->wait->wait_status.pinned_bytes;
  if (pinned_bytes && pinned_bytes >= job->gpu->gpu->gpu_status.capacity_bytes / PINNED_SHOWN)
    append_text(text, STATE_SIZE, ", %s pinned", BYTES_TEXT(pinned_bytes));
  if (figures_has_limit(job->wait)) /* beside production jobs */
    append_text(text, STATE_SIZE, ", limited to %.1f %%", 100 * figures_limit_share(job->wait));
  return text;
}

static void add_number(struct table *table, int64_t number) {
  if (number)
    table_add(table, "%" PRId64, number);
  else
    table_add(table, "-");
}

static bool has_other_pid(const struct job_figures *job) {
  int32_t own_pid = job->origin->origin_status.own_pid;
  return own_pid && own_pid != job->job->job_status.pid;
}

/* own_pids: they are shown, as some job has another pid in its own pid namespace. */
static void add_job(struct table *table, const struct job_figures *job, bool own_pids) {
  const struct gs_msg *msg = job->job, *terms = job->terms, *origin = job->origin;
  uint64_t limit_bytes = terms->terms_status.limit_bytes, soft_bytes = terms->terms_status.soft_limit_bytes;
  char text[STATE_SIZE];
  table_add(table, "%u", msg->job_status.job);
  add_number(table, msg->job_status.pid);
  table_add(table, "%s", user_name(msg->job_status.uid));
  table_add(table, "%s", msg->job_status.name);
  table_add(table, "%s", BYTES_TEXT(msg->job_status.used_bytes));
  table_add(table, "%s", BYTES_TEXT(msg->job_status.resident_bytes));
  table_add(table, "%.1f%%", 100 * held_share(job));
  table_add(table, "%.1fs", seconds(msg->job_status.waited_ns));
  table_add(table, "%" PRIu64, msg->job_status.turns);
  table_add(table, "%s", BYTES_TEXT(msg->job_status.moved_bytes));
  table_add(table, "%u", terms->terms_status.weight);
  table_add(table, "%d", terms->terms_status.priority);
  table_add(table, terms->terms_status.remaining_ns ? "%.1fs" : "-",
            seconds(terms->terms_status.remaining_ns));
  table_add(table, "%s", OR_NONE(limit_bytes, BYTES_TEXT(limit_bytes)));
  table_add(table, "%s", OR_NONE(soft_bytes, BYTES_TEXT(soft_bytes)));
  table_add(table, "%s",
            OR_NONE(terms->terms_status.class != GS_CLASS_STANDARD, class_name(terms->terms_status.class)));
  table_add(table, terms->terms_status.rate ? "%u%%" : "-", terms->terms_status.rate);
  table_add(table, "%s", OR_NONE(*terms->terms_status.gang, terms->terms_status.gang));
  add_number(table, own_pids ? origin->origin_status.own_pid : 0);
  const char *from = figures_from(origin, (char[FIGURES_FROM_SIZE]){0});
  table_add(table, "%s", OR_NONE(*from, from));
  table_add(table, "%s", state_text(job, text));
  table_add(table, "%s", figures_command(job->command, (char[GS_COMMAND_SIZE]){0}));
}

static int show_status(const struct status *status) {
  size_t width = table_screen_width();
  int code = CTL_OK;
  if (status->daemon)
    show_daemon(status->daemon);
  for (const struct gpu_figures *gpu = status->gpus; gpu < status->gpus + status->gpu_count; gpu++) {
    struct table table = {.columns = job_columns, .count = sizeof job_columns / sizeof *job_columns};
    show_gpu(gpu);
    bool own_pids = false;
    for (size_t i = 0; i < gpu->job_count; i++)
      own_pids |= has_other_pid(&gpu->jobs[i]);
    for (size_t i = 0; i < gpu->job_count; i++)
      add_job(&table, &gpu->jobs[i], own_pids);
    if (gpu->job_count > 0 && code == CTL_OK)
      code = table_print(&table, stdout, 2, width);
  }
  return code;
}

/* ---- status, for programs: keys are mostly the fields' names ---- */

#define GPU(name) OUTPUT_FIELD(gpu_status, name)
#define JOB(name) OUTPUT_FIELD(job_status, name)

static json_t *daemon_json(const struct gs_msg *msg) {
  static const char *const
      mps[] = {[GS_MPS_OFF] = "off", [GS_MPS_RUNS] = "runs", [GS_MPS_DOWN] = "down"},
      *const presence[] = {[GS_PRESENCE_OFF] = "off", [GS_PRESENCE_ON] = "on", [GS_PRESENCE_BLIND] = "blind"};
  json_t *object = json_object();
  output_text(object, "release", msg->daemon.release);
  output_number(object, "pid", (uint64_t)msg->daemon.pid);
  output_number(object, "uptime_ns", msg->daemon.uptime_ns);
  output_known(object, "default_tq_ns", msg->daemon.default_tq_ns);
  output_number(object, "grace_ns", msg->daemon.grace_ns);
  output_number(object, "host_memory_bytes", msg->daemon.host_memory_bytes);
  output_number(object, "jobs", msg->daemon.jobs);
  output_text(object, "mps", msg->daemon.mps <= GS_MPS_DOWN ? mps[msg->daemon.mps] : "?");
  output_number(object, "mps_programs", msg->daemon.mps_programs);
  output_text(object, "mps_user", msg->daemon.mps_programs ? user_name(msg->daemon.mps_uid) : NULL);
  output_text(object, "presence",
              msg->daemon.presence <= GS_PRESENCE_BLIND ? presence[msg->daemon.presence] : "unknown");
  return object;
}

/* What has moved in one direction: in all, and in the last hand-over. */
static void put_direction(json_t *object, const struct gs_msg *msg, const char *name, uint64_t bytes,
                          uint64_t last_bytes) {
  const uint64_t values[] = {bytes, last_bytes, per_s(msg, false, bytes), per_s(msg, true, last_bytes)};
  static const char *const keys[] = {"bytes", "last_bytes", "bytes_per_s", "last_bytes_per_s"};
  char key[40];
  for (size_t i = 0; i < 4; i++) {
    snprintf(key, sizeof key, "%s_%s", name, keys[i]);
    output_number(object, key, values[i]);
  }
}

static json_t *handover_json(const struct gpu_figures *gpu) {
  const struct gs_msg *msg = gpu->handover;
  json_t *object = json_object();
  output_number(object, "count", gpu->gpu->gpu_status.handovers);
  output_number(object, "drain_ns", msg->handover_status.drain_ns);
  output_number(object, "drain_mean_ns", mean_ns(gpu, msg->handover_status.drain_ns));
  output_number(object, "drain_last_ns", msg->handover_status.drain_last_ns);
  output_number(object, "move_ns", msg->handover_status.move_ns);
  output_number(object, "move_mean_ns", mean_ns(gpu, msg->handover_status.move_ns));
  output_number(object, "move_last_ns", msg->handover_status.move_last_ns);
  put_direction(object, msg, "evicted", msg->handover_status.evicted_bytes,
                msg->handover_status.evicted_last_bytes);
  put_direction(object, msg, "restored", msg->handover_status.restored_bytes,
                msg->handover_status.restored_last_bytes);
  output_number(object, "hidden_bytes", msg->handover_status.hidden_bytes);
  output_number(object, "overhead_bytes", msg->handover_status.overhead_bytes);
  return object;
}

static void put_if(json_t *object, const char *key, bool known, json_t *value) {
  json_object_set(object, key, known ? value : json_null());
  json_decref(value);
}

/* null: NVML has not told lately. */
static json_t *card_json(const struct gs_msg *msg) {
  if (!msg)
    return json_null();
  json_t *object = json_object();
  unsigned facts = msg->card_status.facts;
  bool utilization = facts & GS_CARD_UTILIZATION, processes = facts & GS_CARD_PROCESSES;
  output_bool(object, "answers", facts & GS_CARD_ANSWERS);
  put_if(object, "temperature_celsius", facts & GS_CARD_TEMPERATURE,
         json_integer(msg->card_status.temperature_c));
  put_if(object, "power_watts", facts & GS_CARD_POWER, json_real(msg->card_status.power_mw / 1e3));
  put_if(object, "energy_joules", facts & GS_CARD_ENERGY,
         json_real((double)msg->card_status.energy_mj / 1e3));
  put_if(object, "gpu_utilization", utilization, json_real(msg->card_status.gpu_percent / 1e2));
  put_if(object, "memory_utilization", utilization, json_real(msg->card_status.memory_percent / 1e2));
  put_if(object, "unshared_processes", processes, json_integer(msg->card_status.unshared));
  put_if(object, "unshared_bytes", processes, json_integer((json_int_t)msg->card_status.unshared_bytes));
  return object;
}

/* null: it is unknown, or not for this user. */
static void put_command(json_t *object, const struct job_figures *job) {
  const char *text = job->command->command_status.text;
  output_text(object, "command", *text ? text : NULL);
}

static json_t *job_json(const struct job_figures *job) {
  static const struct output_field use[] = {JOB(used_bytes), JOB(resident_bytes), JOB(held_ns)},
                                   moves[] = {JOB(waited_ns), JOB(turns), JOB(moved_bytes),
                                              JOB(drain_max_ns)};
  const struct gs_msg *msg = job->job, *terms = job->terms, *origin = job->origin;
  bool from = origin->origin_status.kind != GS_ORIGIN_NONE;
  json_t *object = json_object();
  output_number(object, "job", msg->job_status.job);
  output_known(object, "pid", (uint64_t)msg->job_status.pid);
  output_number(object, "uid", msg->job_status.uid);
  output_text(object, "user", user_name(msg->job_status.uid));
  output_text(object, "name", msg->job_status.name);
  put_command(object, job);
  output_text(object, "state", figures_state_name(msg->job_status.state));
  output_number(object, "queue", msg->job_status.queue);
  for (size_t i = 0; i < FLAGS; i++)
    output_bool(object, flags[i].key, msg->job_status.flags & flags[i].flag);
  output_bool(object, "waits_for_room", figures_waits_for_room(job));
  OUTPUT_FIELDS(object, msg, use);
  json_object_set_new(object, "held_share", json_real(held_share(job)));
  OUTPUT_FIELDS(object, msg, moves);
  output_number(object, "weight", terms->terms_status.weight);
  json_object_set_new(object, "priority", json_integer(terms->terms_status.priority));
  output_number(object, "gpu_ns", terms->terms_status.gpu_ns);
  output_known(object, "remaining_ns", terms->terms_status.remaining_ns);
  output_number(object, "limit_bytes", terms->terms_status.limit_bytes);
  output_number(object, "soft_limit_bytes", terms->terms_status.soft_limit_bytes);
  output_text(object, "class", class_name(terms->terms_status.class));
  output_bool(object, "paused", terms->terms_status.paused);
  output_known(object, "rate_percent", terms->terms_status.rate);
  output_text(object, "gang", *terms->terms_status.gang ? terms->terms_status.gang : NULL);
  figures_put_wait(object, job->wait);
  figures_put_memory(object, job->memory);
  output_known(object, "own_pid", (uint64_t)origin->origin_status.own_pid);
  output_text(object, "origin", from ? figures_origin_name(origin->origin_status.kind) : NULL);
  output_text(object, "origin_name", from ? origin->origin_status.name : NULL);
  output_text(object, "container", *origin->origin_status.container ? origin->origin_status.container : NULL);
  return object;
}

static json_t *gpu_json(const struct gpu_figures *gpu) {
  static const struct output_field memory[] = {GPU(total_bytes), GPU(capacity_bytes), GPU(used_bytes),
                                               GPU(holders),     GPU(waiting),        GPU(handovers),
                                               GPU(moved_bytes)};
  const struct gs_msg *msg = gpu->gpu;
  json_t *object = json_object(), *jobs = json_array();
  figures_put_gpu(object, "index", msg);
  output_text(object, "name", msg->gpu_status.name);
  output_text(object, "mode", mode_name(msg->gpu_status.mode));
  output_text(object, "policy", policy_name(msg->gpu_status.policy));
  output_text(object, "spatial", msg->gpu_status.flags & GS_GPU_MPS ? "mps" : "none");
  output_bool(object, "serialized", msg->gpu_status.flags & GS_GPU_SERIALIZED);
  output_number(object, "tq_ns", msg->gpu_status.tq_ns);
  output_bool(object, "tq_auto", msg->gpu_status.flags & GS_GPU_TQ_AUTO);
  OUTPUT_FIELDS(object, msg, memory);
  figures_put_occupied(object, gpu);
  output_bounded(object, "left_ns", gpu->handover->handover_status.left_ns);
  json_object_set_new(object, "handover", handover_json(gpu));
  json_object_set_new(object, "card", card_json(gpu->card));
  for (size_t i = 0; i < gpu->job_count; i++)
    json_array_append_new(jobs, job_json(&gpu->jobs[i]));
  json_object_set_new(object, "jobs", jobs);
  return object;
}

json_t *status_json(const struct status *status) {
  json_t *root = json_object(), *gpus = json_array();
  if (status->daemon)
    json_object_set_new(root, "daemon", daemon_json(status->daemon));
  for (size_t i = 0; i < status->gpu_count; i++)
    json_array_append_new(gpus, gpu_json(&status->gpus[i]));
  json_object_set_new(root, "gpus", gpus);
  return root;
}

int status_command(const struct request *request) {
  struct status status;
  int code = status_fetch(request, &status);
  if (code != CTL_OK)
    return code;
  if (request->json)
    code = output_json(status_json(&status));
  else
    code = show_status(&status);
  status_free(&status);
  return code;
}

/* ---- plan: of each GPU which jobs have a seat among those that run, which are next, and by which rule ----
 */

/* Those with a seat come first, and those that wait in the order of the queue. */
static int compare_planned(const void *a, const void *b) {
  const struct job_figures *x = a, *y = b;
  int order = (int)figures_rule(x->wait).part - (int)figures_rule(y->wait).part;
  if (order == 0)
    order = compare_numbers(x->job->job_status.queue, y->job->job_status.queue);
  return order ? order : compare_numbers(x->job->job_status.job, y->job->job_status.job);
}

static void show_plan(const struct gpu_figures *gpu) {
  const struct gs_msg *msg = gpu->gpu;
  uint64_t left_ns = gpu->handover->handover_status.left_ns;
  printf("GPU %s  %s: %s, %s for jobs", GPU_NUMBER_TEXT(msg->gpu), msg->gpu_status.name,
         msg->gpu_status.flags & GS_GPU_SERIALIZED ? "taking turns" : "all run",
         BYTES_TEXT(msg->gpu_status.capacity_bytes));
  if (left_ns != UINT64_MAX)
    printf("; the quantum is over in %.1f s", seconds(left_ns));
  if (msg->gpu_status.flags & GS_GPU_TOGETHER)
    printf("; %s", TOGETHER_TEXT(gpu));
  printf("\n  %6s %-16s %10s %10s %10s  %s\n", "JOB", "NAME", "NEEDS", "BUDGET", "PLANNED", "RULE");
  for (const struct job_figures *job = gpu->jobs; job < gpu->jobs + gpu->job_count; job++)
    printf("  %6u %-16s %10s %10s %10s  %s\n", job->job->job_status.job, job->job->job_status.name,
           BYTES_TEXT(job->wait->wait_status.need_bytes), BYTES_TEXT(job->wait->wait_status.room_bytes),
           BYTES_TEXT(job->wait->wait_status.planned_bytes), figures_rule(job->wait).text);
}

static json_t *plan_json(const struct gpu_figures *gpu) {
  json_t *object = json_object(), *jobs = json_array();
  figures_put_gpu(object, "index", gpu->gpu);
  output_bool(object, "serialized", gpu->gpu->gpu_status.flags & GS_GPU_SERIALIZED);
  output_number(object, "capacity_bytes", gpu->gpu->gpu_status.capacity_bytes);
  figures_put_occupied(object, gpu);
  output_bounded(object, "left_ns", gpu->handover->handover_status.left_ns);
  for (const struct job_figures *job = gpu->jobs; job < gpu->jobs + gpu->job_count; job++) {
    json_t *planned = json_object();
    output_number(planned, "job", job->job->job_status.job);
    output_known(planned, "pid", (uint64_t)job->job->job_status.pid);
    output_text(planned, "name", job->job->job_status.name);
    output_number(planned, "queue", job->job->job_status.queue);
    figures_put_plan(planned, job->wait);
    json_array_append_new(jobs, planned);
  }
  json_object_set_new(object, "jobs", jobs);
  return object;
}

int plan_command(const struct request *request) {
  struct status status;
  int code = status_fetch(request, &status);
  if (code != CTL_OK)
    return code;
  json_t *gpus = json_array();
  for (const struct gpu_figures *gpu = status.gpus; gpu < status.gpus + status.gpu_count; gpu++) {
    qsort(gpu->jobs, gpu->job_count, sizeof *gpu->jobs, compare_planned);
    if (request->json)
      json_array_append_new(gpus, plan_json(gpu));
    else
      show_plan(gpu);
  }
  if (request->json)
    code = output_json(json_pack("{s:O}", "gpus", gpus));
  json_decref(gpus);
  status_free(&status);
  return code;
}

/* ---- jobs: each once, whatever GPUs it is on, and gangs with their members ---- */

/* A job on a GPU. Those of a job are beside each other, and so are the jobs of a gang. */
struct part {
  const struct job_figures *on;
  const char *gang; /* its job's: that may be in it on some of its GPUs only */
  uint32_t job, uid;
};

/* Those without a gang come first. */
static int compare_parts(const void *a, const void *b) {
  const struct part *one = a, *other = b;
  int order = strcmp(one->gang, other->gang);
  if (order == 0 && *one->gang)
    order = compare_numbers(one->uid, other->uid);
  if (order == 0)
    order = compare_numbers(one->job, other->job);
  return order ? order : gpu_number_compare(one->on->job->gpu, other->on->job->gpu);
}

static bool is_same_job(const struct part *a, const struct part *b) { return a->job == b->job; }

static bool is_same_gang(const struct part *a, const struct part *b) {
  return *a->gang && strcmp(a->gang, b->gang) == 0 && a->uid == b->uid;
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
  return compare_numbers(((const struct part *)a)->job, ((const struct part *)b)->job);
}

/* So many as there are jobs, from malloc; NULL: no memory. */
static struct part *collect(const struct status *status) {
  size_t count = status->job_count;
  struct part *parts = calloc(count + 1, sizeof *parts), *end = parts + count;
  for (size_t i = 0; parts && i < count; i++) {
    const struct job_figures *on = &status->jobs[i];
    parts[i] =
        (struct part){on, on->terms->terms_status.gang, on->job->job_status.job, on->job->job_status.uid};
  }
  if (!parts)
    return NULL;
  qsort(parts, count, sizeof *parts, compare_jobs);
  for (struct part *part = parts; part < end;) {
    const struct part *next = run_end(part, end, is_same_job);
    const char *gang = "";
    for (const struct part *other = part; other < next; other++)
      gang = *other->gang ? other->gang : gang;
    for (; part < next; part++)
      part->gang = gang;
  }
  qsort(parts, count, sizeof *parts, compare_parts);
  return parts;
}

static const struct table_column parts_columns[] = {
    {"JOB", 6, 12, NULL, 0, false},     {"PID", 8, 3, NULL, 0, false},
    {"USER", -10, 10, NULL, 0, false},  {"NAME", -16, 9, NULL, 0, false},
    {"CLASS", -13, 8, NULL, 0, false},  {"MEMORY", 10, 7, NULL, 0, false},
    {"ON CARD", 10, 6, NULL, 0, false}, {"GPU TIME", 10, 2, NULL, 0, false},
    {"WAITED", 10, 1, NULL, 0, false},  {"GPUS", -4, 11, NULL, 12, true},
    {"COMMAND", -7, 5, "", 20, true},
};

static void add_parts(struct table *table, const struct part *part, const struct part *end) {
  const struct job_figures *on = part->on;
  uint64_t used_bytes = 0, resident_bytes = 0, gpu_ns = 0, waited_ns = 0;
  char gpus[STATE_SIZE] = ""; /* "0 holding, 1 waiting" */
  for (const struct part *each = part; each < end; each++) {
    used_bytes += each->on->job->job_status.used_bytes;
    resident_bytes += each->on->job->job_status.resident_bytes;
    gpu_ns += each->on->terms->terms_status.gpu_ns;
    waited_ns += each->on->job->job_status.waited_ns;
    append_text(gpus, sizeof gpus, "%s%s %s%s", each > part ? ", " : "", GPU_NUMBER_TEXT(each->on->job->gpu),
                figures_state_name(each->on->job->job_status.state),
                each->on->terms->terms_status.paused ? " (paused)" : "");
  }
  table_add(table, "%u", part->job);
  table_add(table, "%d", on->job->job_status.pid);
  table_add(table, "%s", user_name(part->uid));
  table_add(table, "%s", on->job->job_status.name);
  table_add(table, "%s", class_name(on->terms->terms_status.class));
  table_add(table, "%s", BYTES_TEXT(used_bytes));
  table_add(table, "%s", BYTES_TEXT(resident_bytes));
  table_add(table, "%s", DURATION_TEXT(gpu_ns));
  table_add(table, "%s", DURATION_TEXT(waited_ns));
  table_add(table, "%s", gpus);
  table_add(table, "%s", figures_command(on->command, (char[GS_COMMAND_SIZE]){0}));
}

static int show_jobs(const struct part *part, const struct part *end) {
  struct table table = {.columns = parts_columns, .count = sizeof parts_columns / sizeof *parts_columns};
  for (const struct part *next, *gang_end = part; part < end; part = next) {
    if (part == gang_end) {
      unsigned jobs = 0;
      gang_end = run_end(part, end, is_same_gang);
      for (const struct part *job = part; job < gang_end; job = run_end(job, gang_end, is_same_job))
        jobs++;
      if (*part->gang)
        table_add_line(&table, "gang %s: %u job%s", part->gang, jobs, jobs == 1 ? "" : "s");
    }
    add_parts(&table, part, next = run_end(part, gang_end, is_same_job));
  }
  return table_print(&table, stdout, 0, table_screen_width());
}

static json_t *parts_json(const struct part *part, const struct part *end) {
  static const struct output_field bytes[] = {JOB(used_bytes), JOB(resident_bytes)};
  const struct gs_msg *job = part->on->job, *terms = part->on->terms;
  json_t *object = json_object(), *gpus = json_array();
  output_number(object, "job", part->job);
  output_number(object, "pid", (uint64_t)job->job_status.pid);
  output_number(object, "uid", part->uid);
  output_text(object, "user", user_name(part->uid));
  output_text(object, "name", job->job_status.name);
  put_command(object, part->on);
  output_text(object, "class", class_name(terms->terms_status.class));
  output_bool(object, "paused", terms->terms_status.paused);
  output_text(object, "gang", *part->gang ? part->gang : NULL);
  for (; part < end; part++) {
    json_t *gpu = json_object();
    job = part->on->job;
    output_gpu(gpu, "gpu", job->gpu);
    output_text(gpu, "state", figures_state_name(job->job_status.state));
    output_text(gpu, "reason", figures_reason_name(part->on->wait->wait_status.reason));
    OUTPUT_FIELDS(gpu, job, bytes);
    output_number(gpu, "gpu_ns", part->on->terms->terms_status.gpu_ns);
    output_number(gpu, "waited_ns", job->job_status.waited_ns);
    json_array_append_new(gpus, gpu);
  }
  json_object_set_new(object, "gpus", gpus);
  return object;
}

static int show_jobs_json(const struct part *part, const struct part *end) {
  json_t *jobs = json_array();
  for (const struct part *next; part < end; part = next) {
    next = run_end(part, end, is_same_job);
    json_array_append_new(jobs, parts_json(part, next));
  }
  return output_json(json_pack("{s:o}", "jobs", jobs));
}

int jobs_command(const struct request *request) {
  struct status status;
  int code = status_fetch(request, &status);
  if (code != CTL_OK)
    return code;
  struct part *parts = collect(&status);
  if (!parts)
    code = command_error(CTL_REFUSED, "out of memory");
  else if (request->json)
    code = show_jobs_json(parts, parts + status.job_count);
  else
    code = show_jobs(parts, parts + status.job_count);
  free(parts);
  status_free(&status);
  return code;
}
