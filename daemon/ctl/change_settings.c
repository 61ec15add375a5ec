/* change_settings.c - gpusharectl's commands that change settings of GPUs, and what jobs are given. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/parse.h"
#include "common/wire.h"
#include "ctl/event.h"
#include "ctl/gpu_choice.h"
#include "ctl/json_put.h"

/* Of whom, and what: the keys are those of the event that it makes. */
static json_t *change_json(const struct gs_msg *msg) {
  char uuid[GS_UUID_TEXT_SIZE];
  json_t *object = json_object();
  if (msg->type == GS_EVICT) {
    json_put_number(object, "job", msg->evict.job);
    json_put_bool(object, "evicted", true);
    return object;
  }
  if (msg->type == GS_SET_TERMS) {
    json_put_number(object, "job", msg->set_terms.job);
    event_put_change(object, GS_EVENT_TERM, msg->set_terms.term, msg->set_terms.value);
    return object;
  }
  format_uuid(msg->set.uuid, uuid);
  json_object_set_new(object, "uuid", uuid_is_zero(msg->set.uuid) ? json_null() : json_string(uuid));
  event_put_change(object, GS_EVENT_SETTING, msg->type, msg->set.value);
  return object;
}

static int send_change(const struct request *request, const struct gs_msg *msg) {
  int fd, code = connect_daemon(request, &fd);
  if (code != CTL_OK)
    return code;
  code = ask_change(fd, msg);
  close(fd);
  return code == CTL_OK && request->json ? json_print_line(change_json(msg)) : code;
}

/* ---- of GPUs ---- */

/* The GPUs that the request names. */
static int choose_gpus(const struct request *request, struct gpu_choice *choice) {
  struct gs_msg *msgs = NULL;
  size_t count = 0;
  int code = gpu_choice_needs_status(request->gpu) ? fetch_status(request, &msgs, &count) : CTL_OK;
  if (code != CTL_OK)
    return code;
  code = gpu_choice_read(choice, request->gpu, msgs, count);
  free(msgs);
  if (code != CTL_OK)
    fprintf(stderr, "gpusharectl: %s\n", choice->error);
  return code;
}

static int change_gpu(const struct request *request, enum gs_msg_type type, uint64_t value) {
  struct gs_msg msg = wire_msg(type, GS_GPU_ALL);
  msg.set.value = value;
  if (!request->gpu || strcmp(request->gpu, "all") == 0)
    return send_change(request, &msg);
  struct gpu_choice choice;
  int code = choose_gpus(request, &choice);
  for (size_t i = 0; code == CTL_OK && i < choice.count; i++) {
    memcpy(msg.set.uuid, choice.uuids[i], GS_UUID_SIZE);
    code = send_change(request, &msg);
  }
  return code;
}

int change_tq(const struct request *request) {
  uint64_t ns;
  int err = parse_tq_ns(request->words[1], &ns);
  if (err == -ERANGE)
    return usage_error("the quantum is from " TQ_RANGE " (turns without an end: set-policy fifo), not",
                       request->words[1]);
  if (err < 0)
    return usage_error("neither auto nor a duration (20, 0.5, 250ms, 2m):", request->words[1]);
  return change_gpu(request, GS_SET_TQ, ns);
}

int change_mode(const struct request *request) {
  enum gs_mode mode = GS_MODE_AUTO;
  parse_mode(request->words[0], &mode); /* the command is a mode's name */
  return change_gpu(request, GS_SET_MODE, mode);
}

int change_capacity(const struct request *request) {
  uint64_t bytes;
  if (parse_bytes(request->words[1], &bytes) < 0)
    return usage_error("not a size (16G, 512M, 0):", request->words[1]);
  return change_gpu(request, GS_SET_CAPACITY, bytes);
}

int change_policy(const struct request *request) {
  enum gs_policy policy;
  if (parse_policy(request->words[1], &policy) < 0)
    return usage_error("the policy is " POLICY_NAMES ", not", request->words[1]);
  return change_gpu(request, GS_SET_POLICY, policy);
}

/* ---- of jobs: COMMAND JOB, and mostly a VALUE ---- */

/* CTL_OK, or a complaint. */
static int read_job(const struct request *request, uint32_t *job) {
  int64_t number;
  if (parse_integer(request->words[1], 1, UINT32_MAX, &number) < 0)
    return usage_error("not the number of a job (see gpusharectl status):", request->words[1]);
  *job = (uint32_t)number;
  return CTL_OK;
}

int change_evict(const struct request *request) {
  struct gs_msg msg = wire_msg(GS_EVICT, GS_GPU_ALL);
  int code = read_job(request, &msg.evict.job);
  return code == CTL_OK ? send_change(request, &msg) : code;
}

static int change_job(const struct request *request, enum gs_term term, uint64_t value) {
  struct gs_msg msg = wire_msg(GS_SET_TERMS, GS_GPU_ALL);
  int code = read_job(request, &msg.set_terms.job);
  if (code != CTL_OK)
    return code;
  msg.set_terms.term = term;
  msg.set_terms.value = value;
  return send_change(request, &msg);
}

int change_weight(const struct request *request) {
  uint32_t weight;
  if (parse_weight(request->words[2], &weight) < 0)
    return usage_error("the weight is " WEIGHT_RANGE ", not", request->words[2]);
  return change_job(request, GS_TERM_WEIGHT, weight);
}

int change_priority(const struct request *request) {
  int32_t priority;
  if (parse_priority(request->words[2], &priority) < 0)
    return usage_error("the priority is " PRIORITY_RANGE ", not", request->words[2]);
  return change_job(request, GS_TERM_PRIORITY, (uint64_t)(int64_t)priority);
}

int change_expected(const struct request *request) {
  uint64_t ns;
  if (parse_duration_ns(request->words[2], &ns) < 0)
    return usage_error("not a duration (90, 15m, 2.5h; 0: unknown):", request->words[2]);
  return change_job(request, GS_TERM_EXPECTED, ns);
}

static int change_bytes(const struct request *request, enum gs_term term, const char *wrong) {
  uint64_t bytes;
  if (parse_bytes(request->words[2], &bytes) < 0)
    return usage_error(wrong, request->words[2]);
  return change_job(request, term, bytes);
}

static int change_bound(const struct request *request, enum gs_term term) {
  return change_bytes(request, term, "not a size (16G, 512M; 0: no limit):");
}

int change_limit(const struct request *request) { return change_bound(request, GS_TERM_LIMIT); }

int change_soft_limit(const struct request *request) { return change_bound(request, GS_TERM_SOFT_LIMIT); }

int change_expected_memory(const struct request *request) {
  return change_bytes(request, GS_TERM_EXPECTED_MEMORY, "not a size (16G, 512M; 0: unknown):");
}

int change_class(const struct request *request) {
  enum gs_class class;
  if (parse_class(request->words[2], &class) < 0)
    return usage_error("the class is " CLASS_NAMES ", not", request->words[2]);
  return change_job(request, GS_TERM_CLASS, class);
}

int change_rate(const struct request *request) {
  uint32_t percent = 0;
  if (strcmp(request->words[2], "auto") != 0 && parse_percent(request->words[2], 1, 100, &percent) < 0)
    return usage_error("the rate is auto, or " RATE_RANGE " of a GPU, not", request->words[2]);
  return change_job(request, GS_TERM_RATE, percent);
}

/* The command's name says it. */
int change_paused(const struct request *request) {
  return change_job(request, GS_TERM_PAUSED, strcmp(request->words[0], "pause") == 0);
}
