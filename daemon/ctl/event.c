/* event.c - an event of the daemon, in words, and for programs. gpusharectl events: what has happened, and
 * what happens; history: programs that have ended, what they have had, and how they ended. */
#include "ctl/event.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "common/wire.h"
#include "common/words.h"
#include "ctl/figures.h"
#include "ctl/gpu_choice.h"
#include "ctl/table.h"

/* ---- names ---- */

const char *event_kind_name(unsigned kind) {
#define X(name, value, word) [value] = word,
  static const char *const names[] = {GS_EVENT_KINDS(X)};
#undef X
  return kind < sizeof names / sizeof *names && names[kind] ? names[kind] : "unknown";
}

static const char *refusal_name(unsigned why) {
#define X(name, value, word) [value] = word,
  static const char *const names[] = {GS_REFUSALS(X)};
#undef X
  return names[why < sizeof names / sizeof *names ? why : GS_REFUSAL_UNKNOWN];
}

/* ---- when ---- */

uint64_t event_realtime_ns(const struct gs_msg *begin, uint64_t at_ns) {
  return begin->events.realtime_ns + at_ns - begin->events.now_ns;
}

static void local_time(uint64_t realtime_ns, char text[EVENT_TIME_SIZE]) {
  time_t seconds = (time_t)(realtime_ns / NS_PER_S);
  struct tm when;
  localtime_r(&seconds, &when);
  size_t size = strftime(text, EVENT_TIME_SIZE, "%Y-%m-%d %H:%M:%S", &when);
  snprintf(text + size, EVENT_TIME_SIZE - size, ".%03u", (unsigned)(realtime_ns % NS_PER_S / NS_PER_MS));
}

void event_utc_time(uint64_t realtime_ns, char text[EVENT_TIME_SIZE]) {
  time_t seconds = (time_t)(realtime_ns / NS_PER_S);
  struct tm when;
  gmtime_r(&seconds, &when);
  size_t size = strftime(text, EVENT_TIME_SIZE, "%Y-%m-%dT%H:%M:%S", &when);
  snprintf(text + size, EVENT_TIME_SIZE - size, ".%06uZ", (unsigned)(realtime_ns % NS_PER_S / 1000));
}

/* ---- in words: what, by kind ---- */

static void tell_end(FILE *out, const struct gs_msg *event) {
  if (event->event.detail == GS_END_EXIT)
    fprintf(out, "with status %d", event->event.end.status);
  else if (event->event.detail == GS_END_CLOSED)
    fputs("for the daemon, which has closed its connection", out);
  else if (event->event.detail == GS_END_EVICTED)
    fputs("for the daemon, which has evicted it", out);
  else
    fputs("without a word: killed, or by _exit", out);
  fprintf(out, "; it had the GPU for %s, and waited %s", DURATION_TEXT(event->event.end.gpu_ns),
          DURATION_TEXT(event->event.end.waited_ns));
}

static void tell_grant(FILE *out, const struct gs_msg *event) {
  if (event->event.detail)
    fputs(", a hand-over", out);
  if (event->event.turn.ns)
    fprintf(out, ", for %s", DURATION_TEXT(event->event.turn.ns));
  if (event->event.turn.bytes)
    fprintf(out, "; %s have to come", BYTES_TEXT(event->event.turn.bytes));
}

static void tell_move(FILE *out, const struct gs_msg *event) {
  fprintf(out, "%s in %s, has %s there", BYTES_TEXT(event->event.turn.bytes),
          DURATION_TEXT(event->event.turn.ns), BYTES_TEXT(event->event.turn.resident_bytes));
}

static void tell_handover(FILE *out, const struct gs_msg *event) {
  fprintf(out, "drain %s, moves %s; %s out, %s in", DURATION_TEXT(event->event.handover.drain_ns),
          DURATION_TEXT(event->event.handover.move_ns), BYTES_TEXT(event->event.handover.evicted_bytes),
          BYTES_TEXT(event->event.handover.restored_bytes));
}

static void tell_limit(FILE *out, const struct gs_msg *event) {
  if (event->event.detail == GS_LIMITED_NOT)
    fputs(" is not limited any more", out);
  else
    fprintf(out, " may use %.3g %% (%s)", 100 * (double)event->event.turn.bytes / (double)GS_LIMITED_WHOLE,
            figures_limited_name(event->event.detail));
}

static void tell_actor(FILE *out, const struct gs_msg *event) {
  int32_t pid = event->event.change.by_pid;
  if (pid == 0)
    fputs(", by the configuration or a signal", out);
  else if (event->event.kind == GS_EVENT_TERM && pid == event->event.pid)
    fputs(", as it asks itself", out);
  else
    fprintf(out, ", by %s (pid %d)", user_name(event->event.change.by_uid), pid);
}

static void tell_term(FILE *out, const struct gs_msg *event) {
  char now[WORDS_SIZE], before[WORDS_SIZE];
  unsigned term = event->event.detail;
  if (term == GS_TERM_PAUSED)
    fputs(event->event.change.value ? " is paused" : " is resumed", out);
  else
    fprintf(out, " has %s %s instead of %s", words_term(term),
            words_term_value(term, event->event.change.value, now),
            words_term_value(term, event->event.change.before, before));
  tell_actor(out, event);
}

static void tell_expulsion(FILE *out, const struct gs_msg *event) {
  if (event->event.change.by_pid)
    tell_actor(out, event);
  else
    fputs(", as it does not stop, and others wait", out);
  fprintf(out, "; %s stay on the card", BYTES_TEXT(event->event.change.value));
}

static void tell_setting(FILE *out, const struct gs_msg *event) {
  char value[WORDS_SIZE];
  fprintf(out, "%s is %s", words_setting(event->event.detail),
          words_setting_value(event->event.detail, event->event.change.value, value));
  tell_actor(out, event);
}

static void tell_command(FILE *out, const struct gs_msg *event) { fputs(event->event.text, out); }

static void tell_memory(FILE *out, const struct gs_msg *event) {
  fputs(BYTES_TEXT(event->event.turn.used_bytes), out);
}

static void tell_refusal(FILE *out, const struct gs_msg *event) {
  const char *why = words_refusal(event->event.detail);
  fprintf(out, "%s in all%s%s", BYTES_TEXT(event->event.turn.bytes), *why ? ": " : "", why);
}

static void tell_time(FILE *out, const struct gs_msg *event) {
  fputs(DURATION_TEXT(event->event.turn.ns), out);
}

static void tell_silence(FILE *out, const struct gs_msg *event) {
  fputs(event->event.detail ? "wait for it" : "go on without it", out);
}

static void tell_turns(FILE *out, const struct gs_msg *event) {
  fputs(event->event.detail ? "turns begin" : "turns end: all run", out);
}

/* In words, of which the rest is told by the function; and, of those that tell of a turn, what JSON calls its
 * parts: detail (whether), bytes and ns. NULL: it has none. */
static const struct {
  const char *words;
  void (*tell)(FILE *out, const struct gs_msg *event);
  const char *detail, *bytes, *ns;
} kinds[] = {
    [GS_EVENT_STARTED] = {.words = " has started"},
    [GS_EVENT_COMMAND] = {.words = " is: ", .tell = tell_command},
    [GS_EVENT_ENDED] = {.words = " ended ", .tell = tell_end},
    [GS_EVENT_ATTACHED] = {.words = " has come, with ", .tell = tell_memory, .detail = "running"},
    [GS_EVENT_DETACHED] = {.words = " has left"},
    [GS_EVENT_ASKED] = {.words = " waits"},
    [GS_EVENT_GRANTED] = {.words = " is granted",
                          .tell = tell_grant,
                          .detail = "handover",
                          .bytes = "lacking_bytes"},
    [GS_EVENT_RUNS] = {.words = " runs, after ",
                       .tell = tell_time,
                       .bytes = "restored_bytes",
                       .ns = "restore_ns"},
    [GS_EVENT_DROP] = {.words = " is told to stop", .bytes = "room_bytes"},
    [GS_EVENT_RELEASED] = {.words = " has stopped; drain ", .tell = tell_time, .ns = "drain_ns"},
    [GS_EVENT_EVICTED] = {.words = " has evicted ", .tell = tell_move, .bytes = "bytes", .ns = "duration_ns"},
    [GS_EVENT_RESTORED] = {.words = " has restored ",
                           .tell = tell_move,
                           .bytes = "bytes",
                           .ns = "duration_ns"},
    [GS_EVENT_MEMORY] = {.words = " has ", .tell = tell_memory},
    [GS_EVENT_REFUSED] = {.words = " is refused to grow to ", .tell = tell_refusal, .bytes = "wanted_bytes"},
    [GS_EVENT_SILENT] = {.words = " does not stop in time: others ",
                         .tell = tell_silence,
                         .detail = "others_wait"},
    [GS_EVENT_STAYS] = {.words = " does not leave the card"},
    [GS_EVENT_TOO_BIG] = {.words = " needs more than the GPU has for it: it waits"},
    [GS_EVENT_LIMIT] = {.words = "", .tell = tell_limit},
    [GS_EVENT_TERM] = {.words = "", .tell = tell_term},
    [GS_EVENT_HANDOVER] = {.words = " ends a hand-over: ", .tell = tell_handover},
    [GS_EVENT_TURNS] = {.words = "", .tell = tell_turns},
    [GS_EVENT_SETTING] = {.words = "", .tell = tell_setting},
    [GS_EVENT_EXPELLED] = {.words = " loses its place", .tell = tell_expulsion},
    [GS_EVENT_RELOADED] = {.words = "the configuration has been read again"},
};
#define KINDS (sizeof kinds / sizeof *kinds)

void event_tell(FILE *out, const struct gs_msg *begin, const struct gs_msg *event) {
  unsigned kind = event->event.kind;
  char when[EVENT_TIME_SIZE];
  local_time(event_realtime_ns(begin, event->event.at_ns), when);
  fprintf(out, "%s  ", when);
  if (event->gpu != GS_GPU_ALL)
    fprintf(out, "GPU %s: ", GPU_NUMBER_TEXT(event->gpu));
  else if (kind == GS_EVENT_SETTING)
    fputs("all GPUs: ", out);
  if (event->event.job)
    fprintf(out, "job %u", event->event.job);
  if (event->event.job && kind != GS_EVENT_COMMAND)
    fprintf(out, " (pid %d, %s)", event->event.pid, event->event.name);
  if (kind >= KINDS || !kinds[kind].words) {
    fputs(" did something that this gpusharectl does not know", out);
    return;
  }
  fputs(kinds[kind].words, out);
  if (kinds[kind].tell)
    kinds[kind].tell(out, event);
}

/* ---- for programs ---- */

#define EVENT(part, name) OUTPUT_FIELD(event.part, name)

static json_t *value_json(unsigned kind, unsigned detail, uint64_t value) {
  const char *name = kind == GS_EVENT_TERM ? words_of_term(detail, value) : words_of_setting(detail, value);
  return name ? json_string(name) : json_integer((json_int_t)value);
}

void event_put_change(json_t *object, unsigned kind, unsigned detail, uint64_t value) {
  if (kind == GS_EVENT_TERM)
    output_text(object, "term", words_term(detail));
  else
    output_text(object, "setting", words_setting(detail));
  json_object_set_new(object, "value", value_json(kind, detail, value));
}

static void put_end(json_t *object, const struct gs_msg *begin, const struct gs_msg *event) {
  char when[EVENT_TIME_SIZE];
  static const struct output_field times[] = {EVENT(end, gpu_ns), EVENT(end, waited_ns), EVENT(end, turns)};
  bool exited = event->event.detail == GS_END_EXIT;
  event_utc_time(event_realtime_ns(begin, event->event.end.started_ns), when);
  output_text(object, "started", when);
  output_text(object, "end", words_end(event->event.detail));
  json_object_set_new(object, "status", exited ? json_integer(event->event.end.status) : json_null());
  OUTPUT_FIELDS(object, event, times);
}

static void put_change(json_t *object, const struct gs_msg *event) {
  unsigned kind = event->event.kind, detail = event->event.detail;
  if (kind == GS_EVENT_EXPELLED)
    output_number(object, "resident_bytes", event->event.change.value);
  else
    event_put_change(object, kind, detail, event->event.change.value);
  if (kind == GS_EVENT_TERM)
    json_object_set_new(object, "before", value_json(kind, detail, event->event.change.before));
  output_known(object, "by_pid", (uint64_t)event->event.change.by_pid);
  json_object_set_new(object, "by_uid",
                      event->event.change.by_pid ? json_integer(event->event.change.by_uid) : json_null());
}

/* Its memory, and what only some kinds have. */
static void put_turn(json_t *object, const struct gs_msg *event) {
  unsigned kind = event->event.kind;
  uint64_t bytes = event->event.turn.bytes, ns = event->event.turn.ns;
  output_number(object, "used_bytes", event->event.turn.used_bytes);
  output_number(object, "resident_bytes", event->event.turn.resident_bytes);
  output_known(object, "epoch", event->epoch);
  if (kind < KINDS && kinds[kind].detail)
    output_bool(object, kinds[kind].detail, event->event.detail);
  if (kind < KINDS && kinds[kind].bytes)
    output_number(object, kinds[kind].bytes, bytes);
  if (kind < KINDS && kinds[kind].ns)
    output_number(object, kinds[kind].ns, ns);
  if (kind == GS_EVENT_GRANTED) {
    output_known(object, "quantum_ns", ns);
  } else if (kind == GS_EVENT_EVICTED || kind == GS_EVENT_RESTORED) {
    output_number(object, "until_ns", event->event.turn.until_ns);
  } else if (kind == GS_EVENT_REFUSED) {
    output_text(object, "why", refusal_name(event->event.detail));
  } else if (kind == GS_EVENT_LIMIT) {
    output_text(object, "limited", figures_limited_name(event->event.detail));
    json_object_set_new(object, "limit_share", json_real((double)bytes / (double)GS_LIMITED_WHOLE));
  }
}

static void put_details(json_t *object, const struct gs_msg *begin, const struct gs_msg *event) {
  static const struct output_field handover[] = {EVENT(handover, drain_ns), EVENT(handover, move_ns),
                                                 EVENT(handover, evicted_bytes),
                                                 EVENT(handover, restored_bytes)};
  switch (event->event.kind) {
  case GS_EVENT_STARTED:
  case GS_EVENT_COMMAND:
  case GS_EVENT_RELOADED:
    break;
  case GS_EVENT_ENDED:
    put_end(object, begin, event);
    break;
  case GS_EVENT_TERM:
  case GS_EVENT_SETTING:
  case GS_EVENT_EXPELLED:
    put_change(object, event);
    break;
  case GS_EVENT_HANDOVER:
    OUTPUT_FIELDS(object, event, handover);
    break;
  case GS_EVENT_TURNS:
    output_bool(object, "taken", event->event.detail);
    break;
  default:
    put_turn(object, event);
  }
}

json_t *event_json(const struct gs_msg *begin, const struct gs_msg *event) {
  bool is_command = event->event.kind == GS_EVENT_COMMAND;
  char when[EVENT_TIME_SIZE];
  json_t *object = json_object();
  event_utc_time(event_realtime_ns(begin, event->event.at_ns), when);
  output_number(object, "seq", event->event.seq);
  output_text(object, "time", when);
  output_number(object, "at_ns", event->event.at_ns);
  output_text(object, "event", event_kind_name(event->event.kind));
  if (event->gpu == GS_GPU_ALL)
    output_text(object, "gpu", NULL);
  else
    output_gpu(object, "gpu", event->gpu);
  if (event->event.job) {
    output_number(object, "job", event->event.job);
    output_number(object, "pid", (uint64_t)event->event.pid);
    output_number(object, "uid", event->event.uid);
    output_text(object, "user", user_name(event->event.uid));
    output_text(object, is_command ? "command" : "name", is_command ? event->event.text : event->event.name);
  }
  put_details(object, begin, event);
  return object;
}

/* ---- from the daemon ---- */

int event_read(const struct request *request, enum gs_record record,
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
  uint32_t job;                  /* events: of which; 0: of all */
  uint32_t gpus[GPU_CHOICE_MAX]; /* likewise, by number */
  size_t gpu_count;              /* 0: of all, and those of none */
  bool told;                     /* of one at least */
  struct gs_msg begin;
  struct gs_msg command; /* history: of the run that comes next, if it may be seen */
  json_t *runs;          /* history; NULL: a table: */
  struct table table;
};

/* ---- events ---- */

/* A setting of all GPUs is one of each. */
static bool is_wanted(const struct reader *reader, const struct gs_msg *msg) {
  bool wanted = reader->gpu_count == 0 || (msg->gpu == GS_GPU_ALL && msg->event.kind == GS_EVENT_SETTING);
  for (size_t i = 0; i < reader->gpu_count; i++)
    wanted |= msg->gpu == reader->gpus[i];
  return wanted && (!reader->job || msg->event.job == reader->job);
}

static int take_event(void *argument, const struct gs_msg *msg) {
  struct reader *reader = argument;
  if (msg->type == GS_EVENT && !is_wanted(reader, msg))
    return CTL_OK;
  bool json = reader->request->json;
  int code = CTL_OK;
  reader->told |= msg->type == GS_EVENT;
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

static int choose_gpus(struct reader *reader) {
  struct gpu_choice choice;
  struct status status;
  struct ask_error error;
  int code = status_fetch(reader->request, &status);
  if (code != CTL_OK)
    return code;
  code = ask_say(gpu_choice_read(&choice, reader->request->gpu, &status, &error), &error);
  for (size_t i = 0; code == CTL_OK && i < status.gpu_count; i++)
    for (size_t k = 0; k < choice.count && reader->gpu_count < GPU_CHOICE_MAX; k++)
      if (memcmp(status.gpus[i].gpu->gpu_status.uuid, choice.uuids[k], GS_UUID_SIZE) == 0)
        reader->gpus[reader->gpu_count++] = status.gpus[i].gpu->gpu;
  if (code == CTL_OK && reader->gpu_count == 0)
    code = command_error(CTL_REFUSED, "the daemon knows no GPU %s: see gpusharectl status",
                         reader->request->gpu);
  status_free(&status);
  return code;
}

int events_command(const struct request *request) {
  struct reader reader = {.request = request};
  int code = request->job ? read_job(request->job, &reader.job) : CTL_OK;
  if (code == CTL_OK && request->gpu && strcmp(request->gpu, "all") != 0)
    code = choose_gpus(&reader);
  if (code != CTL_OK)
    return code;
  code = event_read(request, GS_RECORD_EVENTS, take_event, &reader);
  if (code == CTL_OK && reader.job && !reader.told && !request->follow)
    command_error(code, "no event of job %u%s%s is kept; gpusharectl history has the jobs that have ended",
                  reader.job, reader.gpu_count ? " on that GPU" : "", request->since ? " in that time" : "");
  return code;
}

/* ---- history ---- */

static const struct table_column run_columns[] = {
    {"JOB", 6, 11, NULL, 0, false},      {"PID", 8, 2, NULL, 0, false},
    {"USER", -10, 6, NULL, 0, false},    {"NAME", -16, 9, NULL, 0, false},
    {"STARTED", -19, 8, NULL, 0, false}, {"TOOK", 10, 7, NULL, 0, false},
    {"GPU TIME", 10, 5, NULL, 0, false}, {"WAITED", 10, 4, NULL, 0, false},
    {"TURNS", 6, 1, NULL, 0, false},     {"END", -8, 10, NULL, 0, false},
    {"COMMAND", -7, 3, NULL, 20, false},
};

static void add_run(struct reader *reader, const struct gs_msg *end, const char *command) {
  struct table *table = &reader->table;
  char when[EVENT_TIME_SIZE], how[16];
  uint64_t started_ns = end->event.end.started_ns;
  local_time(event_realtime_ns(&reader->begin, started_ns), when);
  when[strlen("2026-01-31 12:00:00")] = '\0';
  snprintf(how, sizeof how, "exit %d", end->event.end.status);
  table_add(table, "%u", end->event.job);
  table_add(table, "%d", end->event.pid);
  table_add(table, "%s", user_name(end->event.uid));
  table_add(table, "%s", end->event.name);
  table_add(table, "%s", when);
  table_add(table, "%s", DURATION_TEXT(end->event.at_ns - started_ns));
  table_add(table, "%s", DURATION_TEXT(end->event.end.gpu_ns));
  table_add(table, "%s", DURATION_TEXT(end->event.end.waited_ns));
  table_add(table, "%lu", end->event.end.turns);
  table_add(table, "%s", end->event.detail == GS_END_EXIT ? how : words_end(end->event.detail));
  table_add(table, "%s", command ? command : "-");
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
    add_run(reader, msg, command);
    return CTL_OK;
  }
  json_t *run = event_json(&reader->begin, msg);
  output_text(run, "command", command);
  return json_array_append_new(reader->runs, run) == 0 ? CTL_OK : command_error(CTL_REFUSED, "out of memory");
}

int history_command(const struct request *request) {
  struct reader reader = {
      .runs = request->json ? json_array() : NULL,
      .table = {.columns = run_columns, .count = sizeof run_columns / sizeof *run_columns}};
  int code = event_read(request, GS_RECORD_RUNS, take_run, &reader);
  if (!request->json) {
    int shown = table_print(&reader.table, stdout, 0, table_screen_width());
    return code == CTL_OK ? shown : code;
  }
  json_t *root = json_object();
  json_object_set_new(root, "runs", reader.runs);
  if (code == CTL_OK)
    return output_json(root);
  json_decref(root);
  return code;
}
