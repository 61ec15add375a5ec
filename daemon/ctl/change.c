/* change.c - gpusharectl's commands that change settings of GPUs, which a text on the command line names, and
 * what jobs are given; and reload. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/gpu_number.h"
#include "common/wire.h"
#include "ctl/change.h"
#include "ctl/event.h"

/* ---- which GPUs ---- */

#define WORD_SIZE 64

/* Go behind the next word of the list; false: there is none. One that is too long is cut, and names no GPU
 * either. */
static bool next_word(const char **list, char word[WORD_SIZE]) {
  if (!*list)
    return false;
  size_t length = strcspn(*list, ",");
  snprintf(word, WORD_SIZE, "%.*s", (int)length, *list);
  *list = (*list)[length] ? *list + length + 1 : NULL;
  return true;
}

bool gpu_choice_needs_status(const char *text) {
  char word[WORD_SIZE];
  uint8_t uuid[GS_UUID_SIZE];
  while (next_word(&text, word))
    if (parse_uuid(word, uuid) < 0)
      return true;
  return false;
}

static int add(struct gpu_choice *choice, const uint8_t uuid[GS_UUID_SIZE], struct ask_error *error) {
  for (size_t i = 0; i < choice->count; i++)
    if (memcmp(choice->uuids[i], uuid, GS_UUID_SIZE) == 0)
      return CTL_OK;
  if (choice->count == GPU_CHOICE_MAX)
    return ask_complain(error, CTL_USAGE, "too many GPUs");
  memcpy(choice->uuids[choice->count++], uuid, GS_UUID_SIZE);
  return CTL_OK;
}

static bool is_prefix(const char *word) {
  return (strncmp(word, "GPU-", 4) == 0 || strncmp(word, "MIG-", 4) == 0) && word[4] &&
         !word[4 + strspn(word + 4, "0123456789abcdefABCDEF-")];
}

static int add_prefix(struct gpu_choice *choice, const char *word, const struct status *status,
                      struct ask_error *error) {
  const struct gs_msg *found = NULL;
  size_t length = 0;
  bool several = false;
  char names[400] = "";
  for (size_t i = 0; i < status->gpu_count; i++) {
    const struct gs_msg *gpu = status->gpus[i].gpu;
    if (strncasecmp(UUID_TEXT(gpu), word, strlen(word)) != 0)
      continue;
    if (length < sizeof names)
      length += (size_t)snprintf(names + length, sizeof names - length, "%s%s (GPU %s)", found ? ", " : "",
                                 UUID_TEXT(gpu), GPU_NUMBER_TEXT(gpu->gpu));
    several |= found != NULL;
    found = gpu;
  }
  if (!found)
    return ask_complain(error, CTL_REFUSED, "no GPU's UUID begins with %s: see gpusharectl status", word);
  if (several)
    return ask_complain(error, CTL_REFUSED, "%s may be any of %s", word, names);
  return add(choice, found->gpu_status.uuid, error);
}

static int add_word(struct gpu_choice *choice, const char *word, const struct status *status,
                    struct ask_error *error) {
  uint8_t uuid[GS_UUID_SIZE];
  uint32_t number;
  bool is_uuid = parse_uuid(word, uuid) == 0, is_number = gpu_number_parse(word, &number) == 0;
  /* On the wire a UUID of zeros means all GPUs; a GPU that is called so there is none. */
  if (is_uuid && uuid_is_zero(uuid))
    return ask_complain(error, CTL_REFUSED, "no GPU has the UUID %s: see gpusharectl status", word);
  if (is_uuid)
    return add(choice, uuid, error);
  for (size_t i = 0; is_number && i < status->gpu_count; i++)
    if (status->gpus[i].gpu->gpu == number)
      return add(choice, status->gpus[i].gpu->gpu_status.uuid, error);
  if (is_number)
    return ask_complain(error, CTL_REFUSED, "there is no GPU %s: see gpusharectl status", word);
  if (is_prefix(word))
    return add_prefix(choice, word, status, error);
  return ask_complain(error, CTL_USAGE,
                      "not a GPU, which is its index, its UUID or how that begins, nor all: '%s'; try --help",
                      word);
}

int gpu_choice_read(struct gpu_choice *choice, const char *text, const struct status *status,
                    struct ask_error *error) {
  char word[WORD_SIZE];
  int code = CTL_OK;
  choice->count = 0;
  while (code == CTL_OK && next_word(&text, word))
    code = add_word(choice, word, status, error);
  return code;
}

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

static int send_change(const struct request *request, const struct gs_msg *msg) {
  struct ask_error error;
  int fd, code = connect_daemon(request, &fd);
  if (code != CTL_OK)
    return code;
  code = ask_say(ask_try_change(fd, msg, &error), &error);
  close(fd);
  return code == CTL_OK && request->json ? output_line(change_json(msg)) : code;
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

/* ---- of jobs: COMMAND JOB, and mostly a VALUE ---- */

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

int change_job(const struct request *request) {
  const char *command = request->words[0];
  struct gs_msg msg = wire_msg(GS_EVICT, GS_GPU_ALL);
  uint64_t value = strcmp(command, "pause") == 0;
  int64_t job;
  for (size_t i = 0; i < sizeof terms / sizeof *terms; i++) {
    if (strcmp(terms[i].command, command) != 0)
      continue;
    if (terms[i].wrong && parse_term(terms[i].term, request->words[2], &value) < 0)
      return usage_error(terms[i].wrong, request->words[2]);
    msg = wire_msg(GS_SET_TERMS, GS_GPU_ALL);
    msg.set_terms.term = terms[i].term;
    msg.set_terms.value = value;
  }
  if (parse_integer(request->words[1], 1, UINT32_MAX, &job) < 0)
    return usage_error("not the number of a job (see gpusharectl status):", request->words[1]);
  if (msg.type == GS_EVICT)
    msg.evict.job = (uint32_t)job;
  else
    msg.set_terms.job = (uint32_t)job;
  return send_change(request, &msg);
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
