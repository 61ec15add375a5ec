/* show.c - the daemon's state, as a table for people and as JSON for programs. */
#include <jansson.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/parse.h"
#include "ctl/ctl.h"

/* ---- figures ---- */

static const char *const states[] = {
    [GS_JOB_IDLE] = "idle",         [GS_JOB_WAITING] = "waiting",   [GS_JOB_HOLDING] = "holding",
    [GS_JOB_DROPPING] = "dropping", [GS_JOB_BYPASSED] = "bypassed",
};

static const char *state_name(unsigned state) {
  return state < sizeof states / sizeof *states ? states[state] : "?";
}

static const char *user_name(uint32_t uid, char buffer[16]) {
  const struct passwd *user = getpwuid(uid);
  if (user)
    return user->pw_name;
  snprintf(buffer, 16, "%u", uid);
  return buffer;
}

static double seconds(uint64_t ns) { return (double)ns / (double)NS_PER_S; }

static const char *bytes_text(uint64_t bytes, char buffer[24]) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = (double)bytes;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
    value /= 1024;
  snprintf(buffer, 24, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return buffer;
}

/* Time that the jobs of a GPU have held it, all together. gpu: its STATUS_GPU; the jobs follow. */
static uint64_t held_sum_ns(const struct gs_msg *gpu, const struct gs_msg *end) {
  uint64_t sum_ns = 0;
  for (const struct gs_msg *job = gpu + 1; job < end && job->type == GS_STATUS_JOB; job++)
    sum_ns += job->job_status.held_ns;
  return sum_ns;
}

static double share(const struct gs_msg *job, uint64_t sum_ns) {
  return sum_ns ? (double)job->job_status.held_ns / (double)sum_ns : 0;
}

/* ---- table ---- */

static void show_daemon(const struct gs_msg *msg) {
  char host[24];
  printf("gpushare-daemon %s, pid %d, up %.0f s: %u job%s, host memory %s, grace %g s\n", msg->daemon.release,
         msg->daemon.pid, seconds(msg->daemon.uptime_ns), msg->daemon.jobs, msg->daemon.jobs == 1 ? "" : "s",
         bytes_text(msg->daemon.host_memory_bytes, host), seconds(msg->daemon.grace_ns));
  if (msg->daemon.gpus == 0)
    printf("no program has used a GPU yet; the quantum will be %g s\n", seconds(msg->daemon.default_tq_ns));
}

static void show_gpu(const struct gs_msg *msg) {
  char uuid[GS_UUID_TEXT_SIZE], used[24], capacity[24], moved[24];
  format_uuid(msg->gpu_status.uuid, uuid);
  printf("\nGPU %u  %s  %s\n", msg->gpu, uuid, msg->gpu_status.name);
  printf("  mode %s (%s), quantum %g s, memory %s of %s, %lu hand-overs, %s moved\n",
         mode_name(msg->gpu_status.mode),
         msg->gpu_status.flags & GS_GPU_SERIALIZED ? "taking turns" : "all run",
         seconds(msg->gpu_status.tq_ns), bytes_text(msg->gpu_status.used_bytes, used),
         bytes_text(msg->gpu_status.capacity_bytes, capacity), (unsigned long)msg->gpu_status.handovers,
         bytes_text(msg->gpu_status.moved_bytes, moved));
  if (msg->gpu_status.jobs > 0)
    printf("  %6s %8s %-10s %-16s %-24s %10s %6s %9s %6s %10s\n", "JOB", "PID", "USER", "NAME", "STATE",
           "MEMORY", "SHARE", "WAITED", "TURNS", "MOVED");
}

static const char *state_text(const struct gs_msg *msg, char buffer[64]) {
  unsigned flags = msg->job_status.flags;
  int length = snprintf(buffer, 64, "%s", state_name(msg->job_status.state));
  if (msg->job_status.queue)
    snprintf(buffer + length, 64 - (size_t)length, " (%u)", msg->job_status.queue);
  else if (flags)
    snprintf(buffer + length, 64 - (size_t)length, "%s%s%s", flags & GS_STATE_CAPTURING ? ", capturing" : "",
             flags & GS_STATE_DRAINING ? ", draining" : "", flags & GS_STATE_OVERDUE ? ", overdue" : "");
  return buffer;
}

static void show_job(const struct gs_msg *msg, uint64_t sum_ns) {
  char user[16], state[64], used[24], moved[24];
  printf("  %6u %8d %-10s %-16s %-24s %10s %5.1f%% %8.1fs %6lu %10s\n", msg->job_status.job,
         msg->job_status.pid, user_name(msg->job_status.uid, user), msg->job_status.name,
         state_text(msg, state), bytes_text(msg->job_status.used_bytes, used), 100 * share(msg, sum_ns),
         seconds(msg->job_status.waited_ns), (unsigned long)msg->job_status.turns,
         bytes_text(msg->job_status.moved_bytes, moved));
}

void show_table(const struct gs_msg *msgs, size_t count) {
  uint64_t sum_ns = 0;
  for (const struct gs_msg *msg = msgs; msg < msgs + count; msg++) {
    if (msg->type == GS_STATUS_DAEMON) {
      show_daemon(msg);
    } else if (msg->type == GS_STATUS_GPU) {
      sum_ns = held_sum_ns(msg, msgs + count);
      show_gpu(msg);
    } else if (msg->type == GS_STATUS_JOB) {
      show_job(msg, sum_ns);
    }
  }
}

/* ---- JSON; its keys are promised in gpusharectl --help ---- */

static void put_number(json_t *object, const char *key, uint64_t value) {
  json_object_set_new(object, key, json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

static void put_text(json_t *object, const char *key, const char *text) {
  json_object_set_new(object, key, json_string(text));
}

static void put_bool(json_t *object, const char *key, bool value) {
  json_object_set_new(object, key, json_boolean(value));
}

static json_t *daemon_json(const struct gs_msg *msg) {
  json_t *object = json_object();
  put_text(object, "release", msg->daemon.release);
  put_number(object, "pid", (uint64_t)msg->daemon.pid);
  put_number(object, "uptime_ns", msg->daemon.uptime_ns);
  put_number(object, "default_tq_ns", msg->daemon.default_tq_ns);
  put_number(object, "grace_ns", msg->daemon.grace_ns);
  put_number(object, "host_memory_bytes", msg->daemon.host_memory_bytes);
  put_number(object, "jobs", msg->daemon.jobs);
  return object;
}

static json_t *gpu_json(const struct gs_msg *msg) {
  char uuid[GS_UUID_TEXT_SIZE];
  json_t *object = json_object();
  format_uuid(msg->gpu_status.uuid, uuid);
  put_number(object, "index", msg->gpu);
  put_text(object, "uuid", uuid);
  put_text(object, "name", msg->gpu_status.name);
  put_text(object, "mode", mode_name(msg->gpu_status.mode));
  put_bool(object, "serialized", msg->gpu_status.flags & GS_GPU_SERIALIZED);
  put_number(object, "tq_ns", msg->gpu_status.tq_ns);
  put_number(object, "total_bytes", msg->gpu_status.total_bytes);
  put_number(object, "capacity_bytes", msg->gpu_status.capacity_bytes);
  put_number(object, "used_bytes", msg->gpu_status.used_bytes);
  put_number(object, "holders", msg->gpu_status.holders);
  put_number(object, "waiting", msg->gpu_status.waiting);
  put_number(object, "handovers", msg->gpu_status.handovers);
  put_number(object, "moved_bytes", msg->gpu_status.moved_bytes);
  json_object_set_new(object, "jobs", json_array());
  return object;
}

static json_t *job_json(const struct gs_msg *msg, uint64_t sum_ns) {
  char user[16];
  json_t *object = json_object();
  put_number(object, "job", msg->job_status.job);
  put_number(object, "pid", (uint64_t)msg->job_status.pid);
  put_number(object, "uid", msg->job_status.uid);
  put_text(object, "user", user_name(msg->job_status.uid, user));
  put_text(object, "name", msg->job_status.name);
  put_text(object, "state", state_name(msg->job_status.state));
  put_number(object, "queue", msg->job_status.queue);
  put_bool(object, "capturing", msg->job_status.flags & GS_STATE_CAPTURING);
  put_bool(object, "draining", msg->job_status.flags & GS_STATE_DRAINING);
  put_bool(object, "overdue", msg->job_status.flags & GS_STATE_OVERDUE);
  put_number(object, "used_bytes", msg->job_status.used_bytes);
  put_number(object, "held_ns", msg->job_status.held_ns);
  json_object_set_new(object, "held_share", json_real(share(msg, sum_ns)));
  put_number(object, "waited_ns", msg->job_status.waited_ns);
  put_number(object, "turns", msg->job_status.turns);
  put_number(object, "moved_bytes", msg->job_status.moved_bytes);
  put_number(object, "drain_max_ns", msg->job_status.drain_max_ns);
  return object;
}

int show_json(const struct gs_msg *msgs, size_t count) {
  json_t *root = json_object(), *gpus = json_array(), *jobs = NULL;
  uint64_t sum_ns = 0;
  for (const struct gs_msg *msg = msgs; msg < msgs + count; msg++) {
    if (msg->type == GS_STATUS_DAEMON) {
      json_object_set_new(root, "daemon", daemon_json(msg));
    } else if (msg->type == GS_STATUS_GPU) {
      json_t *gpu = gpu_json(msg);
      sum_ns = held_sum_ns(msg, msgs + count);
      jobs = json_object_get(gpu, "jobs");
      json_array_append_new(gpus, gpu);
    } else if (msg->type == GS_STATUS_JOB) {
      json_array_append_new(jobs, job_json(msg, sum_ns));
    }
  }
  json_object_set_new(root, "gpus", gpus);
  int failed = json_dumpf(root, stdout, JSON_INDENT(2)) < 0;
  if (failed && !ferror(stdout)) /* a write error is told by main.c, for all commands */
    fprintf(stderr, "gpusharectl: out of memory\n");
  printf("\n");
  json_decref(root);
  return failed ? CTL_REFUSED : CTL_OK;
}
