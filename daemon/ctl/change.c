/* change.c - gpusharectl's commands that change settings of GPUs, and what jobs are given; and reload. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/wire.h"
#include "ctl/event.h"
#include "ctl/gpu_choice.h"

/* ---- a change ---- */

/* Of whom, and what: the keys are those of the event that it makes. */
static json_t *change_json(const struct gs_msg *msg) {
  char uuid[GS_UUID_TEXT_SIZE];
  json_t *object = json_object();
  if (msg->type == GS_EVICT) {
    output_number(object, "job", msg->evict.job);
    output_bool(object, "evicted", true);
  } else if (msg->type == GS_SET_TERMS) {
    output_number(object, "job", msg->set_terms.job);
    event_put_change(object, GS_EVENT_TERM, msg->set_terms.term, msg->set_terms.value);
  } else {
    format_uuid(msg->set.uuid, uuid);
    output_text(object, "uuid", uuid_is_zero(msg->set.uuid) ? NULL : uuid);
    event_put_change(object, GS_EVENT_SETTING, msg->type, msg->set.value);
  }
  return object;
}

static int try_change(const struct request *request, const struct gs_msg *msg, struct ask_error *error) {
  int fd, code = ask_try_connect(daemon_path(&request->run), &fd, error);
  if (code != CTL_OK)
    return code;
  code = ask_try_change(fd, msg, error);
  close(fd);
  return code == CTL_OK && request->json ? output_line(change_json(msg)) : code;
}

static int send_change(const struct request *request, const struct gs_msg *msg) {
  struct ask_error error;
  return ask_say(try_change(request, msg, &error), &error);
}

/* ---- of GPUs: COMMAND [VALUE] ---- */

/* What is to be set, and to what. */
static int read_setting(const struct request *request, struct gs_msg *msg) {
  const char *command = request->words[0], *text = request->words[1];
  enum gs_policy policy;
  enum gs_mode mode;
  if (parse_mode(command, &mode) == 0) { /* the command is a mode's name */
    *msg = wire_msg(GS_SET_MODE, GS_GPU_ALL);
    msg->set.value = mode;
  } else if (strcmp(command, "set-policy") == 0) {
    if (parse_policy(text, &policy) < 0)
      return usage_error("the policy is " POLICY_NAMES ", not", text);
    *msg = wire_msg(GS_SET_POLICY, GS_GPU_ALL);
    msg->set.value = policy;
  } else if (strcmp(command, "set-capacity") == 0) {
    *msg = wire_msg(GS_SET_CAPACITY, GS_GPU_ALL);
    if (parse_bytes(text, &msg->set.value) < 0)
      return usage_error("not a size (16G, 512M, 0):", text);
  } else {
    *msg = wire_msg(GS_SET_TQ, GS_GPU_ALL);
    int err = parse_tq_ns(text, &msg->set.value);
    if (err == -ERANGE)
      return usage_error("the quantum is from " TQ_RANGE " (turns without an end: set-policy fifo), not",
                         text);
    if (err < 0)
      return usage_error("neither auto nor a duration (20, 0.5, 250ms, 2m):", text);
  }
  return CTL_OK;
}

/* The GPUs that the request names. */
static int choose_gpus(const struct request *request, struct gpu_choice *choice) {
  struct status status = {0};
  struct ask_error error;
  int code = gpu_choice_needs_status(request->gpu) ? status_fetch(request, &status) : CTL_OK;
  if (code != CTL_OK)
    return code;
  code = ask_say(gpu_choice_read(choice, request->gpu, &status, &error), &error);
  status_free(&status);
  return code;
}

int change_gpus(const struct request *request) {
  struct gpu_choice choice;
  struct gs_msg msg;
  int code = read_setting(request, &msg);
  if (code != CTL_OK)
    return code;
  if (!request->gpu || strcmp(request->gpu, "all") == 0)
    return send_change(request, &msg);
  code = choose_gpus(request, &choice);
  for (size_t i = 0; code == CTL_OK && i < choice.count; i++) {
    memcpy(msg.set.uuid, choice.uuids[i], GS_UUID_SIZE);
    code = send_change(request, &msg);
  }
  return code;
}

/* ---- of jobs: COMMAND JOB VALUE, or COMMAND JOB... ---- */

static const struct {
  const char *command;
  enum gs_term term;
  const char *wrong; /* what is said of another value; NULL: the command's name says the value */
} terms[] = {
    {"set-weight", GS_TERM_WEIGHT, "the weight is " WEIGHT_RANGE ", not"},
    {"set-priority", GS_TERM_PRIORITY, "the priority is " PRIORITY_RANGE ", not"},
    {"set-expected", GS_TERM_EXPECTED, "not a duration (90, 15m, 2.5h; 0: unknown):"},
    {"set-limit", GS_TERM_LIMIT, "not a size (16G, 512M; 0: no limit):"},
    {"set-soft-limit", GS_TERM_SOFT_LIMIT, "not a size (16G, 512M; 0: no limit):"},
    {"set-expected-memory", GS_TERM_EXPECTED_MEMORY, "not a size (16G, 512M; 0: unknown):"},
    {"set-class", GS_TERM_CLASS, "the class is " CLASS_NAMES ", not"},
    {"set-rate", GS_TERM_RATE, "the rate is auto, or " RATE_RANGE " of a GPU, not"},
    {"pause", GS_TERM_PAUSED, NULL},
    {"resume", GS_TERM_PAUSED, NULL},
};

/* 0 or below. */
static int parse_term(enum gs_term term, const char *text, uint64_t *value) {
  uint32_t number = 0;
  int32_t priority = 0;
  enum gs_class class = GS_CLASS_STANDARD;
  int err;
  switch (term) {
  case GS_TERM_WEIGHT:
    err = parse_weight(text, &number);
    *value = number;
    return err;
  case GS_TERM_PRIORITY:
    err = parse_priority(text, &priority);
    *value = (uint64_t)(int64_t)priority;
    return err;
  case GS_TERM_CLASS:
    err = parse_class(text, &class);
    *value = class;
    return err;
  case GS_TERM_RATE:
    err = strcmp(text, "auto") == 0 ? 0 : parse_percent(text, 1, 100, &number);
    *value = number;
    return err;
  case GS_TERM_EXPECTED:
    return parse_duration_ns(text, value);
  default:
    return parse_bytes(text, value);
  }
}

struct job_change {
  const struct request *request;
  struct gs_msg msg;
};

static int change_one(void *context, uint32_t job, struct ask_error *error) {
  struct job_change *change = context;
  if (change->msg.type == GS_EVICT)
    change->msg.evict.job = job;
  else
    change->msg.set_terms.job = job;
  return try_change(change->request, &change->msg, error);
}

int change_job(const struct request *request) {
  const char *command = request->words[0];
  struct job_change change = {request, wire_msg(GS_EVICT, GS_GPU_ALL)};
  uint64_t value = strcmp(command, "pause") == 0;
  int end = request->word_count; /* of the jobs */
  for (size_t i = 0; i < sizeof terms / sizeof *terms; i++) {
    if (strcmp(terms[i].command, command) != 0)
      continue;
    if (terms[i].wrong && parse_term(terms[i].term, request->words[--end], &value) < 0)
      return usage_error(terms[i].wrong, request->words[end]);
    change.msg = wire_msg(GS_SET_TERMS, GS_GPU_ALL);
    change.msg.set_terms.term = terms[i].term;
    change.msg.set_terms.value = value;
  }
  return for_each_job(request, end, change_one, &change);
}

/* ---- reload: the daemon reads its configuration again, and says what came of it ---- */

struct news {
  json_t *changed, *restart;
  char wrong[1024];
};

static void take_note(void *argument, enum gs_note kind, const char *text) {
  struct news *news = argument;
  if (kind == GS_NOTE_WRONG)
    snprintf(news->wrong, sizeof news->wrong, "%s", text);
  else
    json_array_append_new(kind == GS_NOTE_RESTART ? news->restart : news->changed, json_string(text));
}

static void print_texts(const json_t *texts) {
  for (size_t i = 0; i < json_array_size(texts); i++)
    printf("%s\n", json_string_value(json_array_get(texts, i)));
}

static int tell_news(const struct request *request, const struct news *news) {
  if (request->json)
    return output_line(json_pack("{sO sO}", "changed", news->changed, "restart", news->restart));
  print_texts(news->changed);
  print_texts(news->restart);
  if (json_array_size(news->changed) + json_array_size(news->restart) == 0)
    puts("nothing has changed");
  return CTL_OK;
}

int reload_command(const struct request *request) {
  struct news news = {.changed = json_array(), .restart = json_array()};
  struct ask_error error;
  int fd, code = connect_daemon(request, &fd);
  if (code == CTL_OK) {
    code = ask_try_reload(fd, false, take_note, &news, &error);
    if (*news.wrong)
      command_error(code, "%s", news.wrong);
    code = ask_say(code, &error);
    close(fd);
  }
  if (code == CTL_OK)
    code = tell_news(request, &news);
  json_decref(news.changed);
  json_decref(news.restart);
  return code;
}
