/* event_json.c - an event of the daemon, for programs. The keys are promised in docs/schema. */
#include "common/parse.h"
#include "ctl/event.h"
#include "ctl/figures.h"
#include "ctl/json_put.h"

static void put_job(json_t *object, const struct gs_msg *event) {
  char user[16];
  json_put_number(object, "job", event->event.job);
  json_put_number(object, "pid", (uint64_t)event->event.pid);
  json_put_number(object, "uid", event->event.uid);
  json_put_text(object, "user", figures_user_name(event->event.uid, user));
  if (event->event.kind == GS_EVENT_COMMAND)
    json_put_text(object, "command", event->event.text);
  else
    json_put_text(object, "name", event->event.name);
}

static void put_end(json_t *object, const struct gs_msg *begin, const struct gs_msg *event) {
  char when[EVENT_TIME_SIZE];
  bool exited = event->event.detail == GS_END_EXIT;
  event_utc_time(event_realtime_ns(begin, event->event.end.started_ns), when);
  json_put_text(object, "started", when);
  json_put_text(object, "end", event_end_name(event->event.detail));
  json_object_set_new(object, "status", exited ? json_integer(event->event.end.status) : json_null());
  json_put_number(object, "gpu_ns", event->event.end.gpu_ns);
  json_put_number(object, "waited_ns", event->event.end.waited_ns);
  json_put_number(object, "turns", event->event.end.turns);
}

static const char *refusal_name(unsigned why) {
  static const char *const names[] = {
#define X(name, value, word) [value] = word,
      GS_REFUSALS(X)
#undef X
  };
  return names[why < sizeof names / sizeof *names ? why : GS_REFUSAL_UNKNOWN];
}

/* What only some kinds have. */
static void put_turn(json_t *object, const struct gs_msg *event) {
  uint64_t bytes = event->event.turn.bytes, ns = event->event.turn.ns;
  switch (event->event.kind) {
  case GS_EVENT_ATTACHED:
    json_put_bool(object, "running", event->event.detail);
    break;
  case GS_EVENT_GRANTED:
    json_put_bool(object, "handover", event->event.detail);
    json_put_number(object, "lacking_bytes", bytes);
    json_put_known(object, "quantum_ns", ns);
    break;
  case GS_EVENT_RUNS:
    json_put_number(object, "restored_bytes", bytes);
    json_put_number(object, "restore_ns", ns);
    break;
  case GS_EVENT_DROP:
    json_put_number(object, "room_bytes", bytes);
    break;
  case GS_EVENT_RELEASED:
    json_put_number(object, "drain_ns", ns);
    break;
  case GS_EVENT_EVICTED:
  case GS_EVENT_RESTORED:
    json_put_number(object, "bytes", bytes);
    json_put_number(object, "duration_ns", ns);
    json_put_number(object, "until_ns", event->event.turn.until_ns);
    break;
  case GS_EVENT_REFUSED:
    json_put_number(object, "wanted_bytes", bytes);
    json_put_text(object, "why", refusal_name(event->event.detail));
    break;
  case GS_EVENT_SILENT:
    json_put_bool(object, "others_wait", event->event.detail);
    break;
  case GS_EVENT_LIMIT:
    json_put_text(object, "limited", figures_limited_name(event->event.detail));
    json_object_set_new(object, "limit_share", json_real((double)bytes / (double)GS_LIMITED_WHOLE));
    break;
  default:
    break;
  }
}

static void put_memory(json_t *object, const struct gs_msg *event) {
  json_put_number(object, "used_bytes", event->event.turn.used_bytes);
  json_put_number(object, "resident_bytes", event->event.turn.resident_bytes);
  json_put_known(object, "epoch", event->epoch);
}

static json_t *value_json(unsigned kind, unsigned detail, uint64_t value) {
  const char *name = event_value_name(kind, detail, value);
  return name ? json_string(name) : json_integer((json_int_t)value);
}

void event_put_change(json_t *object, unsigned kind, unsigned detail, uint64_t value) {
  if (kind == GS_EVENT_TERM)
    json_put_text(object, "term", event_term_name(detail));
  else
    json_put_text(object, "setting", event_setting_name(detail));
  json_object_set_new(object, "value", value_json(kind, detail, value));
}

static void put_change(json_t *object, const struct gs_msg *event) {
  unsigned kind = event->event.kind, detail = event->event.detail;
  event_put_change(object, kind, detail, event->event.change.value);
  if (kind == GS_EVENT_TERM)
    json_object_set_new(object, "before", value_json(kind, detail, event->event.change.before));
  json_put_known(object, "by_pid", (uint64_t)event->event.change.by_pid);
  json_object_set_new(object, "by_uid",
                      event->event.change.by_pid ? json_integer(event->event.change.by_uid) : json_null());
}

static void put_handover(json_t *object, const struct gs_msg *event) {
  json_put_number(object, "drain_ns", event->event.handover.drain_ns);
  json_put_number(object, "move_ns", event->event.handover.move_ns);
  json_put_number(object, "evicted_bytes", event->event.handover.evicted_bytes);
  json_put_number(object, "restored_bytes", event->event.handover.restored_bytes);
}

static void put_details(json_t *object, const struct gs_msg *begin, const struct gs_msg *event) {
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
    put_change(object, event);
    break;
  case GS_EVENT_HANDOVER:
    put_handover(object, event);
    break;
  case GS_EVENT_TURNS:
    json_put_bool(object, "taken", event->event.detail);
    break;
  default:
    put_memory(object, event);
    put_turn(object, event);
  }
}

json_t *event_json(const struct gs_msg *begin, const struct gs_msg *event) {
  char when[EVENT_TIME_SIZE];
  json_t *object = json_object();
  event_utc_time(event_realtime_ns(begin, event->event.at_ns), when);
  json_put_number(object, "seq", event->event.seq);
  json_put_text(object, "time", when);
  json_put_number(object, "at_ns", event->event.at_ns);
  json_put_text(object, "event", event_kind_name(event->event.kind));
  if (event->gpu == GS_GPU_ALL)
    json_object_set_new(object, "gpu", json_null());
  else
    json_put_gpu(object, "gpu", event->gpu);
  if (event->event.job)
    put_job(object, event);
  put_details(object, begin, event);
  return object;
}
