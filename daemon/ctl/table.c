/* table.c - the daemon's state for people. */
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "common/parse.h"
#include "common/words.h"
#include "ctl/ctl.h"
#include "ctl/figures.h"

static double seconds(uint64_t ns) { return (double)ns / (double)NS_PER_S; }

static double milliseconds(uint64_t ns) { return (double)ns / (double)NS_PER_MS; }

static double gigabytes(uint64_t bytes) { return (double)bytes / 1e9; }

static const char *tq_text(uint64_t tq_ns, bool found, char buffer[32]) {
  if (found && tq_ns == 0)
    return "auto";
  snprintf(buffer, 32, found ? "%.3g s (auto)" : "%g s", seconds(tq_ns));
  return buffer;
}

static void show_mps(const struct gs_msg *msg) {
  char user[16];
  unsigned programs = msg->daemon.mps_programs;
  if (msg->daemon.mps == GS_MPS_DOWN)
    printf("MPS does not run (the daemon's log tells why): programs share the GPUs by time\n");
  else if (msg->daemon.mps == GS_MPS_RUNS && programs == 0)
    printf("MPS runs: for no program so far\n");
  else if (msg->daemon.mps == GS_MPS_RUNS)
    printf("MPS runs: for %u program%s of %s; a fatal fault of one of them ends all\n", programs,
           programs == 1 ? "" : "s", figures_user_name(msg->daemon.mps_uid, user));
}

static void show_daemon(const struct gs_msg *msg) {
  char host[24], tq[32];
  printf("gpushare-daemon %s, pid %d, up %.0f s: %u job%s, host memory %s, grace %g s\n", msg->daemon.release,
         msg->daemon.pid, seconds(msg->daemon.uptime_ns), msg->daemon.jobs, msg->daemon.jobs == 1 ? "" : "s",
         words_bytes(msg->daemon.host_memory_bytes, host), seconds(msg->daemon.grace_ns));
  show_mps(msg);
  if (msg->daemon.presence == GS_PRESENCE_BLIND)
    printf(
        "not of all programs it can be told whether they have their GPU open (the daemon's log tells why)\n");
  if (msg->daemon.gpus == 0)
    printf("no program has used a GPU yet; the quantum will be %s\n",
           tq_text(msg->daemon.default_tq_ns, msg->daemon.default_tq_ns == 0, tq));
}

/* ---- a GPU ---- */

static const int term_widths[] = {
    [GS_TERM_WEIGHT] = 6,      [GS_TERM_PRIORITY] = 4, [GS_TERM_EXPECTED] = 9, [GS_TERM_LIMIT] = 10,
    [GS_TERM_SOFT_LIMIT] = 10, [GS_TERM_CLASS] = 13,   [GS_TERM_RATE] = 5};

static void show_settings(const struct gs_msg *msg) {
  char uuid[GS_UUID_TEXT_SIZE], tq[32], used[24], capacity[24], moved[24];
  gpu_number_format_uuid(msg->gpu, msg->gpu_status.uuid, uuid);
  printf("\nGPU %s  %s  %s\n", GPU_NUMBER_TEXT(msg->gpu), uuid, msg->gpu_status.name);
  printf("  mode %s (%s), policy %s, quantum %s, memory %s of %s, %lu hand-overs, %s moved%s\n",
         mode_name(msg->gpu_status.mode),
         msg->gpu_status.flags & GS_GPU_SERIALIZED ? "taking turns" : "all run",
         policy_name(msg->gpu_status.policy),
         tq_text(msg->gpu_status.tq_ns, msg->gpu_status.flags & GS_GPU_TQ_AUTO, tq),
         words_bytes(msg->gpu_status.used_bytes, used), words_bytes(msg->gpu_status.capacity_bytes, capacity),
         (unsigned long)msg->gpu_status.handovers, words_bytes(msg->gpu_status.moved_bytes, moved),
         msg->gpu_status.flags & GS_GPU_MPS ? ", spatial mps" : "");
}

static void show_direction(const char *name, uint64_t bytes, uint64_t per_s, uint64_t last_per_s) {
  char text[24];
  printf("; %s %s at %.1f GB/s (last %.1f)", name, words_bytes(bytes, text), gigabytes(per_s),
         gigabytes(last_per_s));
}

static void show_handovers(const struct gpu_figures *figures) {
  const struct gs_msg *msg = figures->handover;
  struct handover_rates rates = figures_rates(figures);
  printf("  hand-over: drain %.1f ms (last %.1f), moves %.1f ms (last %.1f)",
         milliseconds(figures_mean_ns(figures, msg->handover_status.drain_ns)),
         milliseconds(msg->handover_status.drain_last_ns),
         milliseconds(figures_mean_ns(figures, msg->handover_status.move_ns)),
         milliseconds(msg->handover_status.move_last_ns));
  show_direction("out", msg->handover_status.evicted_bytes, rates.evicted_per_s, rates.evicted_last_per_s);
  show_direction("in", msg->handover_status.restored_bytes, rates.restored_per_s, rates.restored_last_per_s);
  printf("\n");
}

/* Of a column with this name. */
static int column_width(int width, const char *name) {
  return width > (int)strlen(name) ? width : (int)strlen(name);
}

static void show_header(const struct gpu_figures *figures) {
  static const char *const names[] = {
      [GS_TERM_WEIGHT] = "WEIGHT", [GS_TERM_PRIORITY] = "PRIO",         [GS_TERM_EXPECTED] = "LEFT",
      [GS_TERM_LIMIT] = "LIMIT",   [GS_TERM_SOFT_LIMIT] = "SOFT LIMIT", [GS_TERM_CLASS] = "CLASS",
      [GS_TERM_RATE] = "RATE"};
  printf("  %6s %8s %-10s %-16s %10s %10s %6s %9s %6s %10s", "JOB", "PID", "USER", "NAME", "MEMORY",
         "ON CARD", "SHARE", "WAITED", "TURNS", "MOVED");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (figures->terms_shown[i])
      printf(" %*s", term_widths[i], names[i]);
  if (figures->gang_width)
    printf(" %-*s", column_width(figures->gang_width, "GANG"), "GANG");
  if (figures->own_pids)
    printf(" %8s", "OWN PID");
  if (figures->from_width)
    printf(" %-*s", column_width(figures->from_width, "FROM"), "FROM");
  printf("  STATE\n");
}

#define OWN_CONTEXT_BYTES (UINT64_C(260) << 20) /* about: H100, driver 580 */

/* How its jobs' turns end, and what that takes of the card. */
static void show_means(const struct gpu_figures *figures) {
  char text[24];
  printf("  work of %u of %u jobs can be stopped in its middle", figures->preempting,
         figures->gpu->gpu_status.jobs);
  if (figures->own_contexts > 0)
    printf("; %u have a context of ours to move memory in, about %s beside the capacity",
           figures->own_contexts, words_bytes(figures->own_contexts * OWN_CONTEXT_BYTES, text));
  printf("\n");
}

static void show_gpu(const struct gpu_figures *figures) {
  char text[24];
  uint64_t hidden_bytes = figures->handover->handover_status.hidden_bytes;
  uint64_t overhead_bytes = figures->handover->handover_status.overhead_bytes;
  show_settings(figures->gpu);
  if (figures->gpu->gpu_status.handovers > 0)
    show_handovers(figures);
  if (hidden_bytes > 0)
    printf("  moved behind turns: %s\n", words_bytes(hidden_bytes, text));
  if (overhead_bytes > 0)
    printf("  the driver has refused %s of the capacity\n", words_bytes(overhead_bytes, text));
  if (figures->gpu->gpu_status.jobs > 0) {
    show_means(figures);
    show_header(figures);
  }
}

/* ---- a job ---- */

/* What it may use beside production jobs. */
static void show_limit(const struct gs_msg *wait) {
  if (figures_has_limit(wait))
    printf(", limited to %.1f %%", 100 * figures_limit_share(wait));
}

static void show_state(const struct gpu_figures *figures, const struct job_figures *job) {
  const struct gs_msg *msg = job->job;
  static const struct {
    unsigned flag;
    const char *text;
  } flags[] = {{GS_STATE_CAPTURING, "capturing"},
               {GS_STATE_DRAINING, "draining"},
               {GS_STATE_OVERDUE, "overdue"},
               {GS_STATE_TOO_BIG, "too big for the capacity"},
               {GS_STATE_STOPPED, "its process is stopped"},
               {GS_STATE_MPS, "by MPS"}};
  printf("%s", figures_state_name(msg->job_status.state));
  if (msg->job_status.queue)
    printf(" (%u)", msg->job_status.queue);
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (msg->job_status.flags & flags[i].flag)
      printf(", %s", flags[i].text);
  printf("%s", figures_waits_for_room(figures, msg) ? ", waits for room" : "");
  printf("%s", figures_waits_for_memory(job) ? ", waits for memory" : "");
  printf("%s", job->terms->terms_status.paused ? ", paused" : "");
  show_limit(job->wait);
  printf("\n");
}

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

static void show_terms(const struct gpu_figures *figures, const struct gs_msg *terms) {
  char text[24];
  for (size_t i = 0; i < sizeof term_widths / sizeof *term_widths; i++)
    if (figures->terms_shown[i])
      printf(" %*s", term_widths[i], term_text((enum gs_term)i, terms, text));
  if (figures->gang_width)
    printf(" %-*s", column_width(figures->gang_width, "GANG"),
           *terms->terms_status.gang ? terms->terms_status.gang : "-");
}

/* "-": 0. */
static const char *pid_text(int32_t pid, char buffer[16]) {
  snprintf(buffer, 16, pid ? "%d" : "-", pid);
  return buffer;
}

static void show_origin(const struct gpu_figures *figures, const struct gs_msg *origin) {
  char pid[16], from[FIGURES_FROM_SIZE];
  if (figures->own_pids)
    printf(" %8s", pid_text(origin->origin_status.own_pid, pid));
  if (figures->from_width)
    printf(" %-*s", column_width(figures->from_width, "FROM"), *figures_from(origin, from) ? from : "-");
}

static void show_job(const struct gpu_figures *figures, const struct job_figures *job) {
  const struct gs_msg *msg = job->job;
  char pid[16], user[16], used[24], resident[24], moved[24];
  printf("  %6u %8s %-10s %-16s %10s %10s %5.1f%% %8.1fs %6lu %10s", msg->job_status.job,
         pid_text(msg->job_status.pid, pid), figures_user_name(msg->job_status.uid, user),
         msg->job_status.name, words_bytes(msg->job_status.used_bytes, used),
         words_bytes(msg->job_status.resident_bytes, resident), 100 * figures_share(figures, msg),
         seconds(msg->job_status.waited_ns), (unsigned long)msg->job_status.turns,
         words_bytes(msg->job_status.moved_bytes, moved));
  show_terms(figures, job->terms);
  show_origin(figures, job->origin);
  printf("  ");
  show_state(figures, job);
}

void table_show(const struct gs_msg *msgs, size_t count) {
  struct gpu_figures figures = {0};
  for (const struct gs_msg *msg = msgs; msg < msgs + count; msg++) {
    if (msg->type == GS_STATUS_DAEMON) {
      show_daemon(msg);
    } else if (msg->type == GS_STATUS_GPU) {
      figures = figures_of_gpu(msg, msgs + count);
      show_gpu(&figures);
    } else if (msg->type == GS_STATUS_JOB) {
      struct job_figures job = figures_of_job(msg, msgs + count);
      show_job(&figures, &job);
    }
  }
}
