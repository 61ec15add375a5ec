/* records.c - gpusharectl events: what has happened, and what happens; history: programs that have ended,
 * what they have had, and how they ended; timeline: what has happened, as a trace for a viewer. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/parse.h"
#include "common/wire.h"
#include "common/words.h"
#include "ctl/event.h"
#include "ctl/figures.h"
#include "ctl/trace.h"

/* ---- from the daemon ---- */

/* What is not older than the request says (`since`), and, if it follows, what comes: begins now unless it
 * says since when. A line on stderr unless CTL_OK. */
static int read_record(const struct request *request, enum gs_record record,
                       int (*take)(void *reader, const struct gs_msg *msg), void *reader) {
  struct gs_msg question = wire_msg(GS_GET_EVENTS, GS_GPU_ALL);
  int fd, code;
  question.get_events.record = record;
  question.get_events.follow = request->follow;
  question.get_events.from_seq = request->follow && !request->since ? UINT64_MAX : 0;
  if (request->since && parse_duration_ns(request->since, &question.get_events.age_ns) < 0)
    return usage_error("not a duration (90, 15m, 2.5h):", request->since);
  code = connect_daemon(request, &fd);
  if (code != CTL_OK)
    return code;
  code = ask_events(fd, &question, take, reader);
  close(fd);
  return code;
}

struct reader {
  const struct request *request;
  struct gs_msg begin;
  struct gs_msg command; /* history: of the run that comes next, if it may be seen */
  json_t *runs;          /* history: NULL: a table */
};

/* ---- events ---- */

static int take_event(void *argument, const struct gs_msg *msg) {
  struct reader *reader = argument;
  bool json = reader->request->json;
  int code = CTL_OK;
  if (msg->type == GS_EVENTS_BEGIN) {
    reader->begin = *msg;
  } else if (msg->type == GS_EVENTS_MISSED) {
    printf(json ? "{\"event\":\"missed\",\"count\":%lu}\n"
                : "(%lu events are missing here: this reader is too slow)\n",
           msg->missed.count);
  } else if (msg->type == GS_EVENT && json) {
    code = output_line(event_json(&reader->begin, msg));
  } else if (msg->type == GS_EVENT) {
    event_tell(stdout, &reader->begin, msg);
    printf("\n");
  }
  if (reader->request->follow)
    fflush(stdout);
  return ferror(stdout) ? CTL_REFUSED : code; /* ctl_main.c says why */
}

int events_command(const struct request *request) {
  struct reader reader = {.request = request};
  return read_record(request, GS_RECORD_EVENTS, take_event, &reader);
}

/* ---- history ---- */

static void show_run(const struct reader *reader, const struct gs_msg *end, const char *command) {
  char when[EVENT_TIME_SIZE], how[16];
  uint64_t started_ns = end->event.end.started_ns;
  event_local_time(event_realtime_ns(&reader->begin, started_ns), when);
  when[strlen("2026-01-31 12:00:00")] = '\0';
  snprintf(how, sizeof how, "exit %d", end->event.end.status);
  printf("%6u %8d %-10s %-16s %s %10s %10s %10s %6lu %-8s %s\n", end->event.job, end->event.pid,
         USER_TEXT(end->event.uid), end->event.name, when, DURATION_TEXT(end->event.at_ns - started_ns),
         DURATION_TEXT(end->event.end.gpu_ns), DURATION_TEXT(end->event.end.waited_ns), end->event.end.turns,
         end->event.detail == GS_END_EXIT ? how : event_end_name(end->event.detail), command ? command : "-");
}

static int take_run(void *argument, const struct gs_msg *msg) {
  struct reader *reader = argument;
  if (msg->type == GS_EVENTS_BEGIN)
    reader->begin = *msg;
  if (msg->type != GS_EVENT)
    return CTL_OK;
  if (msg->event.kind == GS_EVENT_COMMAND) {
    reader->command = *msg;
    return CTL_OK;
  }
  /* NULL: unknown, or not for everybody. */
  bool is_its = reader->command.type == GS_EVENT && reader->command.event.job == msg->event.job;
  const char *command = is_its ? reader->command.event.text : NULL;
  if (!reader->runs) {
    show_run(reader, msg, command);
    return CTL_OK;
  }
  json_t *run = event_json(&reader->begin, msg);
  output_text(run, "command", command);
  return json_array_append_new(reader->runs, run) == 0 ? CTL_OK : command_error(CTL_REFUSED, "out of memory");
}

int history_command(const struct request *request) {
  struct reader reader = {.runs = request->json ? json_array() : NULL};
  if (!request->json)
    printf("%6s %8s %-10s %-16s %-19s %10s %10s %10s %6s %-8s %s\n", "JOB", "PID", "USER", "NAME", "STARTED",
           "TOOK", "GPU TIME", "WAITED", "TURNS", "END", "COMMAND");
  int code = read_record(request, GS_RECORD_RUNS, take_run, &reader);
  if (!request->json)
    return code;
  json_t *root = json_object();
  json_object_set_new(root, "runs", reader.runs);
  if (code == CTL_OK)
    return output_json(root);
  json_decref(root);
  return code;
}

/* ---- timeline ---- */

static void take_status(struct trace *trace, enum gs_msg_type type, const struct gs_msg *msgs, size_t count) {
  for (const struct gs_msg *msg = msgs; msg < msgs + count; msg++)
    if (msg->type == type)
      (type == GS_STATUS_GPU ? trace_gpu : trace_job)(trace, msg);
}

static int take_traced(void *trace, const struct gs_msg *msg) {
  trace_take(trace, msg);
  return CTL_OK;
}

static int write_trace(const struct request *request, const struct gs_msg *msgs, size_t count, FILE *out) {
  struct trace trace;
  trace_begin(&trace, out);
  take_status(&trace, GS_STATUS_GPU, msgs, count);
  int code = read_record(request, GS_RECORD_EVENTS, take_traced, &trace);
  take_status(&trace, GS_STATUS_JOB, msgs, count);
  if (trace_end(&trace) == 0 || code != CTL_OK)
    return code;
  return command_error(CTL_REFUSED, "out of memory");
}

/* Without a daemon, also if that ends meanwhile, the file stays as it is. */
static int write_file(const struct request *request, const struct gs_msg *msgs, size_t count) {
  struct draft draft;
  int err = draft_open(&draft, request->file);
  if (err == 0) {
    int code = write_trace(request, msgs, count, draft.out);
    if (code != CTL_OK) {
      draft_drop(&draft);
      return code;
    }
    err = draft_keep(&draft);
  }
  return err ? command_error(CTL_REFUSED, "can't write %s: %s", request->file, strerror(-err)) : CTL_OK;
}

int timeline_command(const struct request *request) {
  struct gs_msg *msgs;
  size_t count;
  int code = fetch_status(request, &msgs, &count);
  if (code != CTL_OK)
    return code;
  code = request->file ? write_file(request, msgs, count) : write_trace(request, msgs, count, stdout);
  free(msgs);
  return code;
}
