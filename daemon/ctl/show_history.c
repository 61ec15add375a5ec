/* show_history.c - gpusharectl history: programs that have ended, what they have had, and how they ended. */
#include <string.h>

#include "common/clock.h"
#include "common/words.h"
#include "ctl/event.h"
#include "ctl/figures.h"
#include "ctl/json_put.h"

struct reader {
  json_t *runs; /* NULL: a table */
  struct gs_msg begin;
  struct gs_msg command; /* of the run that comes next, if it may be seen */
};

/* Of the program that has ended; NULL: unknown, or not for everybody. */
static const char *command_of(const struct reader *reader, const struct gs_msg *end) {
  bool is_its = reader->command.type == GS_EVENT && reader->command.event.job == end->event.job;
  return is_its ? reader->command.event.text : NULL;
}

/* ---- for people ---- */

static void show_header(void) {
  printf("%6s %8s %-10s %-16s %-19s %10s %10s %10s %6s %-8s %s\n", "JOB", "PID", "USER", "NAME", "STARTED",
         "TOOK", "GPU TIME", "WAITED", "TURNS", "END", "COMMAND");
}

static const char *end_text(const struct gs_msg *end, char buffer[16]) {
  if (end->event.detail != GS_END_EXIT)
    return event_end_name(end->event.detail);
  snprintf(buffer, 16, "exit %d", end->event.end.status);
  return buffer;
}

static void show_run(const struct reader *reader, const struct gs_msg *end) {
  char when[EVENT_TIME_SIZE], user[16], took[24], gpu[24], waited[24], how[16];
  const char *command = command_of(reader, end);
  uint64_t started_ns = end->event.end.started_ns;
  event_local_time(event_realtime_ns(&reader->begin, started_ns), when);
  when[strlen("2026-01-31 12:00:00")] = '\0';
  printf("%6u %8d %-10s %-16s %s %10s %10s %10s %6lu %-8s %s\n", end->event.job, end->event.pid,
         figures_user_name(end->event.uid, user), end->event.name, when,
         words_duration(end->event.at_ns - started_ns, took), words_duration(end->event.end.gpu_ns, gpu),
         words_duration(end->event.end.waited_ns, waited), end->event.end.turns, end_text(end, how),
         command ? command : "-");
}

/* ---- for programs ---- */

static int append_run(struct reader *reader, const struct gs_msg *end) {
  const char *command = command_of(reader, end);
  json_t *run = event_json(&reader->begin, end);
  json_object_set_new(run, "command", command ? json_string(command) : json_null());
  if (json_array_append_new(reader->runs, run) == 0)
    return CTL_OK;
  fprintf(stderr, "gpusharectl: out of memory\n");
  return CTL_REFUSED;
}

/* ---- both ---- */

static int take(void *argument, const struct gs_msg *msg) {
  struct reader *reader = argument;
  if (msg->type == GS_EVENTS_BEGIN)
    reader->begin = *msg;
  else if (msg->type == GS_EVENT && msg->event.kind == GS_EVENT_COMMAND)
    reader->command = *msg;
  else if (msg->type == GS_EVENT && reader->runs)
    return append_run(reader, msg);
  else if (msg->type == GS_EVENT)
    show_run(reader, msg);
  return CTL_OK;
}

static int print_json(const struct request *request) {
  struct reader reader = {.runs = json_array()};
  int code = event_read(request, GS_RECORD_RUNS, take, &reader);
  json_t *root = json_object();
  json_object_set_new(root, "runs", reader.runs);
  if (code == CTL_OK)
    return json_print(root);
  json_decref(root);
  return code;
}

static int print_table(const struct request *request) {
  show_header();
  return event_read(request, GS_RECORD_RUNS, take, &(struct reader){0});
}

int history_command(const struct request *request) {
  return request->json ? print_json(request) : print_table(request);
}
