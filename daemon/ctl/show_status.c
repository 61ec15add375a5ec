/* show_status.c - gpusharectl status: the daemon's state, for people; and for programs, to whom the keys are
 * promised in docs/schema. */
#include "ctl/show_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "common/parse.h"
#include "common/words.h"
#include "ctl/output.h"

#define OWN_CONTEXT_BYTES (UINT64_C(260) << 20) /* about: H100, driver 580 */

/* ---- what both tell ---- */

/* The job's share of the time that its GPU was held. */
static double held_share(const struct gpu_figures *figures, const struct gs_msg *job) {
  return figures->held_sum_ns ? (double)job->job_status.held_ns / (double)figures->held_sum_ns : 0;
}

/* A hand-over's mean; 0 if there was none. */
static uint64_t mean_ns(const struct gpu_figures *figures, uint64_t sum_ns) {
  uint64_t count = figures->gpu->gpu_status.handovers;
  return count ? sum_ns / count : 0;
}

/* Bytes moved in hand-overs, by their time, the drain included; or in the last one. */
static uint64_t per_s(const struct gs_msg *handover, bool last, uint64_t bytes) {
  uint64_t ns = last ? handover->handover_status.drain_last_ns + handover->handover_status.move_last_ns
                     : handover->handover_status.drain_ns + handover->handover_status.move_ns;
  return ns ? (uint64_t)((unsigned __int128)bytes * NS_PER_S / ns) : 0;
}

/* ---- for people: the daemon ---- */

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
           programs == 1 ? "" : "s", USER_TEXT(msg->daemon.mps_uid));
  if (msg->daemon.presence == GS_PRESENCE_BLIND)
    printf(
        "not of all programs it can be told whether they have their GPU open (the daemon's log tells why)\n");
  if (msg->daemon.gpus == 0)
    printf("no program has used a GPU yet; the quantum will be %s\n",
           tq_text(msg->daemon.default_tq_ns, msg->daemon.default_tq_ns == 0, tq));
}

/* ---- a GPU ---- */

/* Terms have a column where some job has another one than most. */
static const struct {
  const char *title;
  int width;
} term_columns[] = {[GS_TERM_WEIGHT] = {"WEIGHT", 6},
                    [GS_TERM_PRIORITY] = {"PRIO", 4},
                    [GS_TERM_EXPECTED] = {"LEFT", 9},
                    [GS_TERM_LIMIT] = {"LIMIT", 10},
                    [GS_TERM_SOFT_LIMIT] = {"SOFT LIMIT", 10},
                    [GS_TERM_CLASS] = {"CLASS", 13},
                    [GS_TERM_RATE] = {"RATE", 5}};
#define TERM_COLUMNS (sizeof term_columns / sizeof *term_columns)

/* A cell of a column as wide as its longest text. */
static void show_wide(int width, const char *title, const char *text) {
  printf(" %-*s", width > (int)strlen(title) ? width : (int)strlen(title), *text ? text : "-");
}

static void show_direction(const char *name, const struct gs_msg *handover, uint64_t bytes, uint64_t last) {
  printf("; %s %s at %.1f GB/s (last %.1f)", name, BYTES_TEXT(bytes),
         (double)per_s(handover, false, bytes) / 1e9, (double)per_s(handover, true, last) / 1e9);
}

static void show_handovers(const struct gpu_figures *figures) {
  const struct gs_msg *msg = figures->handover;
  if (figures->gpu->gpu_status.handovers > 0) {
    printf("  hand-over: drain %.1f ms (last %.1f), moves %.1f ms (last %.1f)",
           milliseconds(mean_ns(figures, msg->handover_status.drain_ns)),
           milliseconds(msg->handover_status.drain_last_ns),
           milliseconds(mean_ns(figures, msg->handover_status.move_ns)),
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

/* How its jobs' turns end, and what that takes of the card; and the head of their table. */
static void show_head(const struct gpu_figures *figures) {
  printf("  work of %u of %u jobs can be stopped in its middle", figures->preempting,
         figures->gpu->gpu_status.jobs);
  if (figures->own_contexts > 0)
    printf("; %u have a context of ours to move memory in, about %s beside the capacity",
           figures->own_contexts, BYTES_TEXT(figures->own_contexts * OWN_CONTEXT_BYTES));
  printf("\n  %6s %8s %-10s %-16s %10s %10s %6s %9s %6s %10s", "JOB", "PID", "USER", "NAME", "MEMORY",
         "ON CARD", "SHARE", "WAITED", "TURNS", "MOVED");
  for (size_t i = 0; i < TERM_COLUMNS; i++)
    if (figures->terms_shown[i])
      printf(" %*s", term_columns[i].width, term_columns[i].title);
  if (figures->gang_width)
    show_wide(figures->gang_width, "GANG", "GANG");
  if (figures->own_pids)
    printf(" %8s", "OWN PID");
  if (figures->from_width)
    show_wide(figures->from_width, "FROM", "FROM");
  printf("  STATE\n");
}

static void show_gpu(const struct gpu_figures *figures) {
  const struct gs_msg *msg = figures->gpu;
  char uuid[GS_UUID_TEXT_SIZE], tq[32];
  gpu_number_format_uuid(msg->gpu, msg->gpu_status.uuid, uuid);
  printf("\nGPU %s  %s  %s\n", GPU_NUMBER_TEXT(msg->gpu), uuid, msg->gpu_status.name);
  printf("  mode %s (%s), policy %s, quantum %s, memory %s of %s, %lu hand-overs, %s moved%s\n",
         mode_name(msg->gpu_status.mode),
         msg->gpu_status.flags & GS_GPU_SERIALIZED ? "taking turns" : "all run",
         policy_name(msg->gpu_status.policy),
         tq_text(msg->gpu_status.tq_ns, msg->gpu_status.flags & GS_GPU_TQ_AUTO, tq),
         BYTES_TEXT(msg->gpu_status.used_bytes), BYTES_TEXT(msg->gpu_status.capacity_bytes),
         (unsigned long)msg->gpu_status.handovers, BYTES_TEXT(msg->gpu_status.moved_bytes),
         msg->gpu_status.flags & GS_GPU_MPS ? ", spatial mps" : "");
  show_handovers(figures);
  if (msg->gpu_status.jobs > 0)
    show_head(figures);
}

/* ---- a job ---- */

/* "-": as most have it. */
static const char *term_text(enum gs_term term, const struct gs_msg *terms, char buffer[24]) {
  strcpy(buffer, "-");
  if (term == GS_TERM_WEIGHT)
    snprintf(buffer, 24, "%u", terms->terms_status.weight);
  else if (term == GS_TERM_PRIORITY)
    snprintf(buffer, 24, "%d", terms->terms_status.priority);
  else if (term == GS_TERM_EXPECTED && terms->terms_status.remaining_ns)
    snprintf(buffer, 24, "%.1fs", seconds(terms->terms_status.remaining_ns));
  else if (term == GS_TERM_CLASS && terms->terms_status.class != GS_CLASS_STANDARD)
    snprintf(buffer, 24, "%s", class_name(terms->terms_status.class));
  else if (term == GS_TERM_RATE && terms->terms_status.rate)
    snprintf(buffer, 24, "%u%%", terms->terms_status.rate);
  else if (term == GS_TERM_LIMIT && terms->terms_status.limit_bytes)
    words_bytes(terms->terms_status.limit_bytes, buffer);
  else if (term == GS_TERM_SOFT_LIMIT && terms->terms_status.soft_limit_bytes)
    words_bytes(terms->terms_status.soft_limit_bytes, buffer);
  return buffer;
}

/* "-": 0. */
static const char *pid_text(int32_t pid, char buffer[16]) {
  snprintf(buffer, 16, pid ? "%d" : "-", pid);
  return buffer;
}

static void show_state(const struct gpu_figures *figures, const struct job_figures *job) {
  static const struct {
    unsigned flag;
    const char *text;
  } flags[] = {{GS_STATE_CAPTURING, "capturing"},
               {GS_STATE_DRAINING, "draining"},
               {GS_STATE_OVERDUE, "overdue"},
               {GS_STATE_TOO_BIG, "too big for the capacity"},
               {GS_STATE_STOPPED, "its process is stopped"},
               {GS_STATE_MPS, "by MPS"}};
  const struct gs_msg *msg = job->job;
  printf("  %s", figures_state_name(msg->job_status.state));
  if (msg->job_status.queue)
    printf(" (%u)", msg->job_status.queue);
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (msg->job_status.flags & flags[i].flag)
      printf(", %s", flags[i].text);
  printf("%s", figures_waits_for_room(figures, msg) ? ", waits for room" : "");
  printf("%s", figures_waits_for_memory(job) ? ", waits for memory" : "");
  printf("%s", job->terms->terms_status.paused ? ", paused" : "");
  if (figures_has_limit(job->wait)) /* beside production jobs */
    printf(", limited to %.1f %%", 100 * figures_limit_share(job->wait));
  printf("\n");
}

static void show_job(const struct gpu_figures *figures, const struct job_figures *job) {
  const struct gs_msg *msg = job->job;
  char pid[16], term[24], from[FIGURES_FROM_SIZE];
  printf("  %6u %8s %-10s %-16s %10s %10s %5.1f%% %8.1fs %6lu %10s", msg->job_status.job,
         pid_text(msg->job_status.pid, pid), USER_TEXT(msg->job_status.uid), msg->job_status.name,
         BYTES_TEXT(msg->job_status.used_bytes), BYTES_TEXT(msg->job_status.resident_bytes),
         100 * held_share(figures, msg), seconds(msg->job_status.waited_ns),
         (unsigned long)msg->job_status.turns, BYTES_TEXT(msg->job_status.moved_bytes));
  for (size_t i = 0; i < TERM_COLUMNS; i++)
    if (figures->terms_shown[i])
      printf(" %*s", term_columns[i].width, term_text((enum gs_term)i, job->terms, term));
  if (figures->gang_width)
    show_wide(figures->gang_width, "GANG", job->terms->terms_status.gang);
  if (figures->own_pids)
    printf(" %8s", pid_text(job->origin->origin_status.own_pid, pid));
  if (figures->from_width)
    show_wide(figures->from_width, "FROM", figures_from(job->origin, from));
  show_state(figures, job);
}

static void show_table(const struct gs_msg *msgs, const struct gs_msg *end) {
  struct gpu_figures figures = {0};
  for (const struct gs_msg *msg = msgs; msg < end; msg++) {
    if (msg->type == GS_STATUS_DAEMON) {
      show_daemon(msg);
    } else if (msg->type == GS_STATUS_GPU) {
      figures = figures_of_gpu(msg, end);
      show_gpu(&figures);
    } else if (msg->type == GS_STATUS_JOB) {
      struct job_figures job = figures_of_job(msg, end);
      show_job(&figures, &job);
    }
  }
}

/* ---- for programs ---- */

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
  output_text(object, "mps_user", msg->daemon.mps_programs ? USER_TEXT(msg->daemon.mps_uid) : NULL);
  output_text(object, "presence",
              msg->daemon.presence <= GS_PRESENCE_BLIND ? presence[msg->daemon.presence] : "unknown");
  return object;
}

static json_t *handover_json(const struct gpu_figures *figures) {
  const struct gs_msg *msg = figures->handover;
  uint64_t evicted = msg->handover_status.evicted_bytes, restored = msg->handover_status.restored_bytes;
  uint64_t evicted_last = msg->handover_status.evicted_last_bytes;
  uint64_t restored_last = msg->handover_status.restored_last_bytes;
  json_t *object = json_object();
  output_number(object, "count", figures->gpu->gpu_status.handovers);
  output_number(object, "drain_ns", msg->handover_status.drain_ns);
  output_number(object, "drain_mean_ns", mean_ns(figures, msg->handover_status.drain_ns));
  output_number(object, "drain_last_ns", msg->handover_status.drain_last_ns);
  output_number(object, "move_ns", msg->handover_status.move_ns);
  output_number(object, "move_mean_ns", mean_ns(figures, msg->handover_status.move_ns));
  output_number(object, "move_last_ns", msg->handover_status.move_last_ns);
  output_number(object, "evicted_bytes", evicted);
  output_number(object, "evicted_last_bytes", evicted_last);
  output_number(object, "evicted_bytes_per_s", per_s(msg, false, evicted));
  output_number(object, "evicted_last_bytes_per_s", per_s(msg, true, evicted_last));
  output_number(object, "restored_bytes", restored);
  output_number(object, "restored_last_bytes", restored_last);
  output_number(object, "restored_bytes_per_s", per_s(msg, false, restored));
  output_number(object, "restored_last_bytes_per_s", per_s(msg, true, restored_last));
  output_number(object, "hidden_bytes", msg->handover_status.hidden_bytes);
  output_number(object, "overhead_bytes", msg->handover_status.overhead_bytes);
  return object;
}

static json_t *gpu_json(const struct gpu_figures *figures) {
  const struct gs_msg *msg = figures->gpu;
  char uuid[GS_UUID_TEXT_SIZE];
  json_t *object = json_object();
  gpu_number_format_uuid(msg->gpu, msg->gpu_status.uuid, uuid);
  output_gpu(object, "index", msg->gpu);
  output_text(object, "uuid", uuid);
  output_text(object, "name", msg->gpu_status.name);
  output_text(object, "mode", mode_name(msg->gpu_status.mode));
  output_text(object, "policy", policy_name(msg->gpu_status.policy));
  output_text(object, "spatial", msg->gpu_status.flags & GS_GPU_MPS ? "mps" : "none");
  output_bool(object, "serialized", msg->gpu_status.flags & GS_GPU_SERIALIZED);
  output_number(object, "tq_ns", msg->gpu_status.tq_ns);
  output_bool(object, "tq_auto", msg->gpu_status.flags & GS_GPU_TQ_AUTO);
  output_number(object, "total_bytes", msg->gpu_status.total_bytes);
  output_number(object, "capacity_bytes", msg->gpu_status.capacity_bytes);
  output_number(object, "used_bytes", msg->gpu_status.used_bytes);
  output_number(object, "holders", msg->gpu_status.holders);
  output_number(object, "waiting", msg->gpu_status.waiting);
  output_number(object, "handovers", msg->gpu_status.handovers);
  output_number(object, "moved_bytes", msg->gpu_status.moved_bytes);
  output_bounded(object, "left_ns", figures->handover->handover_status.left_ns);
  json_object_set_new(object, "handover", handover_json(figures));
  json_object_set_new(object, "jobs", json_array());
  return object;
}

void status_put_wait(json_t *object, const struct gs_msg *wait) {
  output_text(object, "reason", figures_reason_name(wait->wait_status.reason));
  output_known(object, "awaited_job", wait->wait_status.awaited);
  output_bounded(object, "expected_ns", wait->wait_status.expected_ns);
  output_number(object, "lacking_bytes", wait->wait_status.lacking_bytes);
  output_number(object, "expected_memory_bytes", wait->wait_status.expected_bytes);
  output_text(object, "limited", figures_limited_name(wait->wait_status.limited));
  json_object_set_new(object, "limit_share",
                      figures_has_limit(wait) ? json_real(figures_limit_share(wait)) : json_null());
  output_known(object, "limited_for", wait->wait_status.limited_for);
  plan_put(object, wait);
}

static json_t *job_json(const struct gpu_figures *figures, const struct job_figures *job) {
  const struct gs_msg *msg = job->job, *terms = job->terms, *origin = job->origin;
  bool from = origin->origin_status.kind != GS_ORIGIN_NONE;
  unsigned flags = msg->job_status.flags;
  json_t *object = json_object();
  output_number(object, "job", msg->job_status.job);
  output_known(object, "pid", (uint64_t)msg->job_status.pid);
  output_number(object, "uid", msg->job_status.uid);
  output_text(object, "user", USER_TEXT(msg->job_status.uid));
  output_text(object, "name", msg->job_status.name);
  output_text(object, "state", figures_state_name(msg->job_status.state));
  output_number(object, "queue", msg->job_status.queue);
  output_bool(object, "capturing", flags & GS_STATE_CAPTURING);
  output_bool(object, "draining", flags & GS_STATE_DRAINING);
  output_bool(object, "overdue", flags & GS_STATE_OVERDUE);
  output_bool(object, "too_big", flags & GS_STATE_TOO_BIG);
  output_bool(object, "stopped", flags & GS_STATE_STOPPED);
  output_bool(object, "mps", flags & GS_STATE_MPS);
  output_bool(object, "preempts", flags & GS_STATE_PREEMPTS);
  output_bool(object, "own_context", flags & GS_STATE_OWN_CONTEXT);
  output_bool(object, "waits_for_room", figures_waits_for_room(figures, msg));
  output_number(object, "used_bytes", msg->job_status.used_bytes);
  output_number(object, "resident_bytes", msg->job_status.resident_bytes);
  output_number(object, "held_ns", msg->job_status.held_ns);
  json_object_set_new(object, "held_share", json_real(held_share(figures, msg)));
  output_number(object, "waited_ns", msg->job_status.waited_ns);
  output_number(object, "turns", msg->job_status.turns);
  output_number(object, "moved_bytes", msg->job_status.moved_bytes);
  output_number(object, "drain_max_ns", msg->job_status.drain_max_ns);
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
  status_put_wait(object, job->wait);
  output_known(object, "own_pid", (uint64_t)origin->origin_status.own_pid);
  output_text(object, "origin", from ? figures_origin_name(origin->origin_status.kind) : NULL);
  output_text(object, "origin_name", from ? origin->origin_status.name : NULL);
  output_text(object, "container", *origin->origin_status.container ? origin->origin_status.container : NULL);
  return object;
}

json_t *status_json(const struct gs_msg *msgs, const struct gs_msg *end) {
  json_t *root = json_object(), *gpus = json_array(), *jobs = NULL;
  struct gpu_figures figures = {0};
  for (const struct gs_msg *msg = msgs; msg < end; msg++) {
    if (msg->type == GS_STATUS_DAEMON) {
      json_object_set_new(root, "daemon", daemon_json(msg));
    } else if (msg->type == GS_STATUS_GPU) {
      figures = figures_of_gpu(msg, end);
      json_t *gpu = gpu_json(&figures);
      jobs = json_object_get(gpu, "jobs");
      json_array_append_new(gpus, gpu);
    } else if (msg->type == GS_STATUS_JOB) {
      struct job_figures job = figures_of_job(msg, end);
      json_array_append_new(jobs, job_json(&figures, &job));
    }
  }
  json_object_set_new(root, "gpus", gpus);
  return root;
}

int status_command(const struct request *request) {
  struct gs_msg *msgs;
  size_t count;
  int code = fetch_status(request, &msgs, &count);
  if (code != CTL_OK)
    return code;
  if (request->json)
    code = output_json(status_json(msgs, msgs + count));
  else
    show_table(msgs, msgs + count);
  free(msgs);
  return code;
}
