/* event_text.c - an event of the daemon, in words. */
#include <inttypes.h>
#include <time.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "common/words.h"
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
  static const char *const names[] = {[GS_END_EXIT] = "exit",
                                      [GS_END_ABRUPT] = "abrupt",
                                      [GS_END_CLOSED] = "closed",
                                      [GS_END_EVICTED] = "evicted"};
  return end < sizeof names / sizeof *names ? names[end] : "unknown";
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
  fprintf(out, "%s%s", words_bytes(bytes, text), after);
}

static void tell_duration(FILE *out, uint64_t ns) {
  char text[24];
  fputs(words_duration(ns, text), out);
}

static void tell_end(FILE *out, const struct gs_msg *event) {
  if (event->event.detail == GS_END_EXIT)
    fprintf(out, "with status %d", event->event.end.status);
  else if (event->event.detail == GS_END_CLOSED)
    fputs("for the daemon, which has closed its connection", out);
  else if (event->event.detail == GS_END_EVICTED)
    fputs("for the daemon, which has evicted it", out);
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

static void tell_value(FILE *out, const struct gs_msg *event, uint64_t value) {
  char text[WORDS_SIZE];
  unsigned detail = event->event.detail;
  fputs(event->event.kind == GS_EVENT_TERM ? words_term_value(detail, value, text)
                                           : words_setting_value(detail, value, text),
        out);
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
    fprintf(out, " has %s ", words_term(event->event.detail));
    tell_value(out, event, event->event.change.value);
    fputs(" instead of ", out);
    tell_value(out, event, event->event.change.before);
  }
  tell_actor(out, event);
}

static void tell_expulsion(FILE *out, const struct gs_msg *event) {
  if (event->event.change.by_pid)
    tell_actor(out, event);
  else
    fputs(", as it does not stop, and others wait", out);
  fputs("; ", out);
  tell_bytes(out, event->event.change.value, " stay on the card");
}

static void tell_setting(FILE *out, const struct gs_msg *event) {
  fprintf(out, "%s is ", words_setting(event->event.detail));
  tell_value(out, event, event->event.change.value);
  tell_actor(out, event);
}

static void tell_command(FILE *out, const struct gs_msg *event) { fputs(event->event.text, out); }

static void tell_memory(FILE *out, const struct gs_msg *event) {
  tell_bytes(out, event->event.turn.used_bytes, "");
}

static void tell_refusal(FILE *out, const struct gs_msg *event) {
  const char *why = words_refusal(event->event.detail);
  tell_bytes(out, event->event.turn.bytes, " in all");
  if (*why)
    fprintf(out, ": %s", why);
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
    [GS_EVENT_EXPELLED] = {" loses its place", tell_expulsion},
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
