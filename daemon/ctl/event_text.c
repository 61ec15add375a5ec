/* event_text.c - an event of the daemon, in words. */
#include <inttypes.h>
#include <time.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "common/parse.h"
#include "ctl/event.h"
#include "ctl/figures.h"

/* ---- names ---- */

const char *event_kind_name(unsigned kind) {
  switch (kind) {
#define X(name, value, word)                                                                                 \
  case value:                                                                                                \
    return word;
    GS_EVENT_KINDS(X)
#undef X
  default:
    return "unknown";
  }
}

const char *event_end_name(unsigned end) {
  static const char *const names[] = {
      [GS_END_EXIT] = "exit", [GS_END_ABRUPT] = "abrupt", [GS_END_CLOSED] = "closed"};
  return end < sizeof names / sizeof *names ? names[end] : "unknown";
}

const char *event_term_name(unsigned term) {
  static const char *const names[GS_TERM_COUNT] = {[GS_TERM_WEIGHT] = "weight",
                                                   [GS_TERM_PRIORITY] = "priority",
                                                   [GS_TERM_EXPECTED] = "expected",
                                                   [GS_TERM_LIMIT] = "limit",
                                                   [GS_TERM_SOFT_LIMIT] = "soft_limit",
                                                   [GS_TERM_CLASS] = "class",
                                                   [GS_TERM_RATE] = "rate",
                                                   [GS_TERM_PAUSED] = "paused",
                                                   [GS_TERM_EXPECTED_MEMORY] = "expected_memory"};
  return term < GS_TERM_COUNT ? names[term] : "unknown";
}

const char *event_setting_name(unsigned type) {
  switch (type) {
  case GS_SET_TQ:
    return "tq";
  case GS_SET_MODE:
    return "mode";
  case GS_SET_CAPACITY:
    return "capacity";
  case GS_SET_POLICY:
    return "policy";
  default:
    return "unknown";
  }
}

const char *event_value_name(unsigned kind, unsigned detail, uint64_t value) {
  if (kind == GS_EVENT_TERM)
    return detail == GS_TERM_CLASS ? class_name((unsigned)value) : NULL;
  if (detail == GS_SET_MODE)
    return mode_name((unsigned)value);
  return detail == GS_SET_POLICY ? policy_name((unsigned)value) : NULL;
}

/* ---- when ---- */

uint64_t event_realtime_ns(const struct gs_msg *begin, uint64_t at_ns) {
  return begin->events.realtime_ns + at_ns - begin->events.now_ns;
}

void event_local_time(uint64_t realtime_ns, char text[EVENT_TIME_SIZE]) {
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

/* ---- what ---- */

static void tell_bytes(FILE *out, uint64_t bytes, const char *after) {
  char text[24];
  fprintf(out, "%s%s", figures_bytes(bytes, text), after);
}

static void tell_duration(FILE *out, uint64_t ns) {
  char text[24];
  fputs(figures_duration(ns, text), out);
}

static void tell_end(FILE *out, const struct gs_msg *event) {
  if (event->event.detail == GS_END_EXIT)
    fprintf(out, "with status %d", event->event.end.status);
  else if (event->event.detail == GS_END_CLOSED)
    fputs("for the daemon, which has closed its connection", out);
  else
    fputs("without a word: killed, or by _exit", out);
  fputs("; it had the GPU for ", out);
  tell_duration(out, event->event.end.gpu_ns);
  fputs(", and waited ", out);
  tell_duration(out, event->event.end.waited_ns);
}

static void tell_grant(FILE *out, const struct gs_msg *event) {
  if (event->event.detail)
    fputs(", a hand-over", out);
  if (event->event.turn.ns) {
    fputs(", for ", out);
    tell_duration(out, event->event.turn.ns);
  }
  if (event->event.turn.bytes) {
    fputs("; ", out);
    tell_bytes(out, event->event.turn.bytes, " have to come");
  }
}

static void tell_move(FILE *out, const struct gs_msg *event) {
  tell_bytes(out, event->event.turn.bytes, " in ");
  tell_duration(out, event->event.turn.ns);
  fputs(", has ", out);
  tell_bytes(out, event->event.turn.resident_bytes, " there");
}

static void tell_after(FILE *out, const char *what, uint64_t ns) {
  fputs(what, out);
  tell_duration(out, ns);
}

static void tell_handover(FILE *out, const struct gs_msg *event) {
  tell_after(out, "drain ", event->event.handover.drain_ns);
  tell_after(out, ", moves ", event->event.handover.move_ns);
  fputs("; ", out);
  tell_bytes(out, event->event.handover.evicted_bytes, " out, ");
  tell_bytes(out, event->event.handover.restored_bytes, " in");
}

static void tell_limit(FILE *out, const struct gs_msg *event) {
  if (event->event.detail == GS_LIMITED_NOT)
    fputs(" is not limited any more", out);
  else
    fprintf(out, " may use %.3g %% (%s)", 100 * (double)event->event.turn.bytes / (double)GS_LIMITED_WHOLE,
            figures_limited_name(event->event.detail));
}

static bool is_bytes(const struct gs_msg *event) {
  if (event->event.kind == GS_EVENT_SETTING)
    return event->event.detail == GS_SET_CAPACITY;
  return event->event.detail == GS_TERM_LIMIT || event->event.detail == GS_TERM_SOFT_LIMIT ||
         event->event.detail == GS_TERM_EXPECTED_MEMORY;
}

static bool is_duration(const struct gs_msg *event) {
  return event->event.detail == (event->event.kind == GS_EVENT_SETTING ? GS_SET_TQ : GS_TERM_EXPECTED);
}

static void tell_value(FILE *out, const struct gs_msg *event, uint64_t value) {
  const char *name = event_value_name(event->event.kind, event->event.detail, value);
  if (name)
    fputs(name, out);
  else if (is_bytes(event))
    tell_bytes(out, value, "");
  else if (is_duration(event) && value)
    tell_duration(out, value);
  else if (event->event.kind == GS_EVENT_SETTING && value == 0)
    fputs("auto", out);
  else
    fprintf(out, "%" PRId64, (int64_t)value);
}

static void tell_actor(FILE *out, const struct gs_msg *event) {
  char user[16];
  int32_t pid = event->event.change.by_pid;
  if (pid == 0)
    fputs(", by the configuration or a signal", out);
  else if (event->event.kind == GS_EVENT_TERM && pid == event->event.pid)
    fputs(", as it asks itself", out);
  else
    fprintf(out, ", by %s (pid %d)", figures_user_name(event->event.change.by_uid, user), pid);
}

static void tell_term(FILE *out, const struct gs_msg *event) {
  if (event->event.detail == GS_TERM_PAUSED) {
    fputs(event->event.change.value ? " is paused" : " is resumed", out);
  } else {
    fprintf(out, " has %s ", event_term_name(event->event.detail));
    tell_value(out, event, event->event.change.value);
    fputs(" instead of ", out);
    tell_value(out, event, event->event.change.before);
  }
  tell_actor(out, event);
}

static void tell_setting(FILE *out, const struct gs_msg *event) {
  fprintf(out, "%s is ", event_setting_name(event->event.detail));
  tell_value(out, event, event->event.change.value);
  tell_actor(out, event);
}

static void tell_command(FILE *out, const struct gs_msg *event) { fputs(event->event.text, out); }

static void tell_memory(FILE *out, const struct gs_msg *event) {
  tell_bytes(out, event->event.turn.used_bytes, "");
}

static void tell_refusal(FILE *out, const struct gs_msg *event) {
  static const char *const reasons[] = {
      [GS_REFUSAL_LIMIT] = ": its memory limit is less",
      [GS_REFUSAL_CAPACITY] = ": without page faults all must fit the GPU, beside what others have pinned",
      [GS_REFUSAL_PINNED] = ": it can't leave the card, and others' pinned memory neither",
      [GS_REFUSAL_SPENT] = ": card and host memory are spent",
  };
  unsigned why = event->event.detail;
  tell_bytes(out, event->event.turn.bytes, " in all");
  if (why < sizeof reasons / sizeof *reasons && reasons[why])
    fputs(reasons[why], out);
}

static void tell_time(FILE *out, const struct gs_msg *event) { tell_duration(out, event->event.turn.ns); }

static void tell_silence(FILE *out, const struct gs_msg *event) {
  fputs(event->event.detail ? "wait for it" : "go on without it", out);
}

static void tell_turns(FILE *out, const struct gs_msg *event) {
  fputs(event->event.detail ? "turns begin" : "turns end: all run", out);
}

/* By kind; what follows the words is told by the function. */
static const struct {
  const char *words;
  void (*tell)(FILE *out, const struct gs_msg *event);
} sentences[] = {
    [GS_EVENT_STARTED] = {" has started", NULL},
    [GS_EVENT_COMMAND] = {" is: ", tell_command},
    [GS_EVENT_ENDED] = {" ended ", tell_end},
    [GS_EVENT_ATTACHED] = {" has come, with ", tell_memory},
    [GS_EVENT_DETACHED] = {" has left", NULL},
    [GS_EVENT_ASKED] = {" waits", NULL},
    [GS_EVENT_GRANTED] = {" is granted", tell_grant},
    [GS_EVENT_RUNS] = {" runs, after ", tell_time},
    [GS_EVENT_DROP] = {" is told to stop", NULL},
    [GS_EVENT_RELEASED] = {" has stopped; drain ", tell_time},
    [GS_EVENT_EVICTED] = {" has evicted ", tell_move},
    [GS_EVENT_RESTORED] = {" has restored ", tell_move},
    [GS_EVENT_MEMORY] = {" has ", tell_memory},
    [GS_EVENT_REFUSED] = {" is refused to grow to ", tell_refusal},
    [GS_EVENT_SILENT] = {" does not stop in time: others ", tell_silence},
    [GS_EVENT_STAYS] = {" does not leave the card", NULL},
    [GS_EVENT_TOO_BIG] = {" needs more than the GPU has for it: it waits", NULL},
    [GS_EVENT_LIMIT] = {"", tell_limit},
    [GS_EVENT_TERM] = {"", tell_term},
    [GS_EVENT_HANDOVER] = {" ends a hand-over: ", tell_handover},
    [GS_EVENT_TURNS] = {"", tell_turns},
    [GS_EVENT_SETTING] = {"", tell_setting},
    [GS_EVENT_RELOADED] = {"the configuration has been read again", NULL},
};

static void tell_what(FILE *out, const struct gs_msg *event) {
  unsigned kind = event->event.kind;
  if (kind >= sizeof sentences / sizeof *sentences || !sentences[kind].words) {
    fputs(" did something that this gpusharectl does not know", out);
    return;
  }
  fputs(sentences[kind].words, out);
  if (sentences[kind].tell)
    sentences[kind].tell(out, event);
}

static void tell_job(FILE *out, const struct gs_msg *event) {
  fprintf(out, "job %u", event->event.job);
  if (event->event.kind != GS_EVENT_COMMAND)
    fprintf(out, " (pid %d, %s)", event->event.pid, event->event.name);
}

void event_tell(FILE *out, const struct gs_msg *begin, const struct gs_msg *event) {
  char when[EVENT_TIME_SIZE];
  event_local_time(event_realtime_ns(begin, event->event.at_ns), when);
  fprintf(out, "%s  ", when);
  if (event->gpu != GS_GPU_ALL)
    fprintf(out, "GPU %s: ", GPU_NUMBER_TEXT(event->gpu));
  else if (event->event.kind == GS_EVENT_SETTING)
    fputs("all GPUs: ", out);
  if (event->event.job)
    tell_job(out, event);
  tell_what(out, event);
}
