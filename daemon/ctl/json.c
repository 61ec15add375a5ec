/* json.c - the daemon's state for programs. The keys are promised in docs/schema. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/gpu_number.h"
#include "common/parse.h"
#include "ctl/ctl.h"
#include "ctl/figures.h"
#include "ctl/json_put.h"
#include "ctl/why.h"

/* The user is null without programs. */
static void put_mps(json_t *object, const struct gs_msg *msg) {
  char user[16];
  json_put_text(object, "mps", figures_mps_name(msg->daemon.mps));
  json_put_number(object, "mps_programs", msg->daemon.mps_programs);
  json_object_set_new(object, "mps_user",
                      msg->daemon.mps_programs ? json_string(figures_user_name(msg->daemon.mps_uid, user))
                                               : json_null());
}

static const char *presence_name(unsigned presence) {
  static const char *const names[] = {
      [GS_PRESENCE_OFF] = "off", [GS_PRESENCE_ON] = "on", [GS_PRESENCE_BLIND] = "blind"};
  return presence < sizeof names / sizeof *names ? names[presence] : "unknown";
}

static json_t *daemon_json(const struct gs_msg *msg) {
  json_t *object = json_object();
  json_put_text(object, "release", msg->daemon.release);
  json_put_number(object, "pid", (uint64_t)msg->daemon.pid);
  json_put_number(object, "uptime_ns", msg->daemon.uptime_ns);
  json_put_known(object, "default_tq_ns", msg->daemon.default_tq_ns);
  json_put_number(object, "grace_ns", msg->daemon.grace_ns);
  json_put_number(object, "host_memory_bytes", msg->daemon.host_memory_bytes);
  json_put_number(object, "jobs", msg->daemon.jobs);
  put_mps(object, msg);
  json_put_text(object, "presence", presence_name(msg->daemon.presence));
  return object;
}

static json_t *handover_json(const struct gpu_figures *figures) {
  const struct gs_msg *msg = figures->handover;
  struct handover_rates rates = figures_rates(figures);
  json_t *object = json_object();
  json_put_number(object, "count", figures->gpu->gpu_status.handovers);
  json_put_number(object, "drain_ns", msg->handover_status.drain_ns);
  json_put_number(object, "drain_mean_ns", figures_mean_ns(figures, msg->handover_status.drain_ns));
  json_put_number(object, "drain_last_ns", msg->handover_status.drain_last_ns);
  json_put_number(object, "move_ns", msg->handover_status.move_ns);
  json_put_number(object, "move_mean_ns", figures_mean_ns(figures, msg->handover_status.move_ns));
  json_put_number(object, "move_last_ns", msg->handover_status.move_last_ns);
  json_put_number(object, "evicted_bytes", msg->handover_status.evicted_bytes);
  json_put_number(object, "evicted_last_bytes", msg->handover_status.evicted_last_bytes);
  json_put_number(object, "evicted_bytes_per_s", rates.evicted_per_s);
  json_put_number(object, "evicted_last_bytes_per_s", rates.evicted_last_per_s);
  json_put_number(object, "restored_bytes", msg->handover_status.restored_bytes);
  json_put_number(object, "restored_last_bytes", msg->handover_status.restored_last_bytes);
  json_put_number(object, "restored_bytes_per_s", rates.restored_per_s);
  json_put_number(object, "restored_last_bytes_per_s", rates.restored_last_per_s);
  json_put_number(object, "hidden_bytes", msg->handover_status.hidden_bytes);
  json_put_number(object, "overhead_bytes", msg->handover_status.overhead_bytes);
  return object;
}

static json_t *gpu_json(const struct gpu_figures *figures) {
  const struct gs_msg *msg = figures->gpu;
  char uuid[GS_UUID_TEXT_SIZE];
  json_t *object = json_object();
  gpu_number_format_uuid(msg->gpu, msg->gpu_status.uuid, uuid);
  json_put_gpu(object, "index", msg->gpu);
  json_put_text(object, "uuid", uuid);
  json_put_text(object, "name", msg->gpu_status.name);
  json_put_text(object, "mode", mode_name(msg->gpu_status.mode));
  json_put_text(object, "policy", policy_name(msg->gpu_status.policy));
  json_put_text(object, "spatial", msg->gpu_status.flags & GS_GPU_MPS ? "mps" : "none");
  json_put_bool(object, "serialized", msg->gpu_status.flags & GS_GPU_SERIALIZED);
  json_put_number(object, "tq_ns", msg->gpu_status.tq_ns);
  json_put_bool(object, "tq_auto", msg->gpu_status.flags & GS_GPU_TQ_AUTO);
  json_put_number(object, "total_bytes", msg->gpu_status.total_bytes);
  json_put_number(object, "capacity_bytes", msg->gpu_status.capacity_bytes);
  json_put_number(object, "used_bytes", msg->gpu_status.used_bytes);
  json_put_number(object, "holders", msg->gpu_status.holders);
  json_put_number(object, "waiting", msg->gpu_status.waiting);
  json_put_number(object, "handovers", msg->gpu_status.handovers);
  json_put_number(object, "moved_bytes", msg->gpu_status.moved_bytes);
  uint64_t left_ns = figures->handover->handover_status.left_ns;
  json_object_set_new(object, "left_ns",
                      left_ns <= INT64_MAX ? json_integer((json_int_t)left_ns) : json_null());
  json_object_set_new(object, "handover", handover_json(figures));
  json_object_set_new(object, "jobs", json_array());
  return object;
}

static void put_state(json_t *object, const struct gpu_figures *figures, const struct gs_msg *msg) {
  unsigned flags = msg->job_status.flags;
  json_put_text(object, "state", figures_state_name(msg->job_status.state));
  json_put_number(object, "queue", msg->job_status.queue);
  json_put_bool(object, "capturing", flags & GS_STATE_CAPTURING);
  json_put_bool(object, "draining", flags & GS_STATE_DRAINING);
  json_put_bool(object, "overdue", flags & GS_STATE_OVERDUE);
  json_put_bool(object, "too_big", flags & GS_STATE_TOO_BIG);
  json_put_bool(object, "stopped", flags & GS_STATE_STOPPED);
  json_put_bool(object, "mps", flags & GS_STATE_MPS);
  json_put_bool(object, "preempts", flags & GS_STATE_PREEMPTS);
  json_put_bool(object, "own_context", flags & GS_STATE_OWN_CONTEXT);
  json_put_bool(object, "waits_for_room", figures_waits_for_room(figures, msg));
}

static void put_terms(json_t *object, const struct gs_msg *terms) {
  json_put_number(object, "weight", terms->terms_status.weight);
  json_object_set_new(object, "priority", json_integer(terms->terms_status.priority));
  json_put_number(object, "gpu_ns", terms->terms_status.gpu_ns);
  json_put_known(object, "remaining_ns", terms->terms_status.remaining_ns);
  json_put_number(object, "limit_bytes", terms->terms_status.limit_bytes);
  json_put_number(object, "soft_limit_bytes", terms->terms_status.soft_limit_bytes);
  json_put_text(object, "class", class_name(terms->terms_status.class));
  json_put_bool(object, "paused", terms->terms_status.paused);
  json_put_known(object, "rate_percent", terms->terms_status.rate);
  json_object_set_new(object, "gang",
                      *terms->terms_status.gang ? json_string(terms->terms_status.gang) : json_null());
}

static void put_wait(json_t *object, const struct gs_msg *wait) {
  uint64_t expected_ns = wait->wait_status.expected_ns;
  json_put_text(object, "reason", figures_reason_name(wait->wait_status.reason));
  json_put_known(object, "awaited_job", wait->wait_status.awaited);
  json_object_set_new(object, "expected_ns",
                      expected_ns <= INT64_MAX ? json_integer((json_int_t)expected_ns) : json_null());
  json_put_number(object, "lacking_bytes", wait->wait_status.lacking_bytes);
  json_put_number(object, "expected_memory_bytes", wait->wait_status.expected_bytes);
  json_put_text(object, "limited", figures_limited_name(wait->wait_status.limited));
  json_object_set_new(object, "limit_share",
                      figures_has_limit(wait) ? json_real(figures_limit_share(wait)) : json_null());
  json_put_known(object, "limited_for", wait->wait_status.limited_for);
}

static void put_origin(json_t *object, const struct gs_msg *origin) {
  const char *name = origin->origin_status.name, *container = origin->origin_status.container;
  bool known = origin->origin_status.kind != GS_ORIGIN_NONE;
  json_put_known(object, "own_pid", (uint64_t)origin->origin_status.own_pid);
  json_object_set_new(object, "origin",
                      known ? json_string(figures_origin_name(origin->origin_status.kind)) : json_null());
  json_object_set_new(object, "origin_name", known ? json_string(name) : json_null());
  json_object_set_new(object, "container", *container ? json_string(container) : json_null());
}

static json_t *job_json(const struct gpu_figures *figures, const struct job_figures *of) {
  const struct gs_msg *msg = of->job;
  char user[16];
  json_t *object = json_object();
  json_put_number(object, "job", msg->job_status.job);
  json_put_known(object, "pid", (uint64_t)msg->job_status.pid);
  json_put_number(object, "uid", msg->job_status.uid);
  json_put_text(object, "user", figures_user_name(msg->job_status.uid, user));
  json_put_text(object, "name", msg->job_status.name);
  put_state(object, figures, msg);
  json_put_number(object, "used_bytes", msg->job_status.used_bytes);
  json_put_number(object, "resident_bytes", msg->job_status.resident_bytes);
  json_put_number(object, "held_ns", msg->job_status.held_ns);
  json_object_set_new(object, "held_share", json_real(figures_share(figures, msg)));
  json_put_number(object, "waited_ns", msg->job_status.waited_ns);
  json_put_number(object, "turns", msg->job_status.turns);
  json_put_number(object, "moved_bytes", msg->job_status.moved_bytes);
  json_put_number(object, "drain_max_ns", msg->job_status.drain_max_ns);
  put_terms(object, of->terms);
  put_wait(object, of->wait);
  put_origin(object, of->origin);
  return object;
}

static json_t *status_json(const struct gs_msg *msgs, const struct gs_msg *end) {
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

int json_show(const struct gs_msg *msgs, size_t count) { return json_print(status_json(msgs, msgs + count)); }

int json_show_line(const struct gs_msg *msgs, size_t count) {
  return json_print_line(status_json(msgs, msgs + count));
}

/* NULL: no memory. */
static json_t *why_text(const struct why *why) {
  char *text = NULL;
  size_t size;
  FILE *stream = open_memstream(&text, &size);
  if (!stream)
    return NULL;
  why_tell(stream, why);
  json_t *string = fclose(stream) == 0 ? json_string(text) : NULL;
  free(text);
  return string;
}

static json_t *why_json(const struct why *why) {
  char uuid[GS_UUID_TEXT_SIZE];
  json_t *object = json_object();
  gpu_number_format_uuid(why->gpu.gpu->gpu, why->gpu.gpu->gpu_status.uuid, uuid);
  json_put_gpu(object, "gpu", why->gpu.gpu->gpu);
  json_put_text(object, "uuid", uuid);
  json_put_text(object, "state", figures_state_name(why->job.job->job_status.state));
  put_wait(object, why->job.wait);
  json_object_set_new(object, "text", why_text(why));
  return object;
}

int json_show_why(struct why *why, uint32_t job) {
  json_t *root = json_object(), *gpus = json_array();
  json_put_number(root, "job", job);
  for (const struct gs_msg *msg = why->msgs; (msg = why_find(why, msg, job)); msg++)
    json_array_append_new(gpus, why_json(why));
  json_object_set_new(root, "gpus", gpus);
  return json_print(root);
}
