/* snapshot.c - see snapshot.h. */
#include "web/snapshot.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/wire.h"
#include "ctl/event.h"
#include "ctl/figures.h"

#define PATIENCE_NS (5 * NS_PER_S)  /* with the daemon; less than the HTTP server has with who asks */
#define CONNECT_NS (50 * NS_PER_MS) /* to the next try, where as many wait as may */
#define WINDOW_NS (60 * NS_PER_S)   /* events are kept so long, */
#define LINES_MAX 8192              /* and so many */
#define LINES_ROOM (2 * LINES_MAX)  /* older ones go when there are as many as this */

void snapshot_open(struct snapshot *snapshot, const char *socket) {
  *snapshot = (struct snapshot){.socket = socket, .fd = -1};
}

/* ---- events ---- */

/* Until fewer are left than may be, and none is older. */
static void forget_lines(struct snapshot *snapshot, uint64_t now_ns) {
  size_t old = 0;
  while (old < snapshot->line_count &&
         (snapshot->line_count - old > LINES_MAX || snapshot->lines[old].at_ns + WINDOW_NS < now_ns))
    old++;
  size_t bytes = old ? snapshot->lines[old - 1].end : 0;
  if (!old)
    return;
  snapshot->line_count -= old;
  snapshot->size -= bytes;
  memmove(snapshot->lines, snapshot->lines + old, snapshot->line_count * sizeof *snapshot->lines);
  memmove(snapshot->text, snapshot->text + bytes, snapshot->size);
  for (size_t i = 0; i < snapshot->line_count; i++)
    snapshot->lines[i].end -= bytes;
}

/* False: no memory. */
static bool provide_room(struct snapshot *snapshot, size_t length) {
  if (!snapshot->lines && !(snapshot->lines = calloc(LINES_ROOM, sizeof *snapshot->lines)))
    return false;
  if (snapshot->size + length <= snapshot->room)
    return true;
  size_t room = 2 * (snapshot->size + length);
  char *grown = realloc(snapshot->text, room);
  if (!grown)
    return false;
  snapshot->text = grown;
  snapshot->room = room;
  return true;
}

/* A command line tells more than status does: it is for its owner. Without memory an event is missing. */
static void keep_event(struct snapshot *snapshot, const struct gs_msg *event) {
  if (event->event.kind == GS_EVENT_COMMAND || event->event.kind == GS_EVENT_USAGE)
    return;
  json_t *object = event_json(&snapshot->begin, event);
  char *line = json_dumps(object, JSON_COMPACT);
  size_t length = line ? strlen(line) : 0;
  json_decref(object);
  if (snapshot->line_count == LINES_ROOM)
    forget_lines(snapshot, 0);
  if (line && provide_room(snapshot, length + 1)) {
    memcpy(snapshot->text + snapshot->size, line, length);
    snapshot->size += length;
    snapshot->text[snapshot->size++] = '\n';
    snapshot->lines[snapshot->line_count++] =
        (struct snapshot_line){event->event.seq, event->event.at_ns, snapshot->size};
  }
  free(line);
}

char *snapshot_events(const struct snapshot *snapshot, uint64_t after_seq, size_t *size) {
  char when[EVENT_TIME_SIZE], now[160];
  size_t from = 0;
  for (size_t i = snapshot->line_count; i > 0 && !from; i--)
    if (snapshot->lines[i - 1].seq <= after_seq)
      from = snapshot->lines[i - 1].end;
  event_utc_time(snapshot->begin.events.realtime_ns, when);
  int head = snprintf(now, sizeof now, "{\"event\":\"now\",\"time\":\"%s\",\"at_ns\":%lu}\n", when,
                      (unsigned long)snapshot->begin.events.now_ns);
  *size = (size_t)head + snapshot->size - from;
  char *text = malloc(*size);
  if (!text)
    return NULL;
  memcpy(text, now, (size_t)head);
  if (snapshot->size > from)
    memcpy(text + head, snapshot->text + from, snapshot->size - from);
  return text;
}

/* ---- state ---- */

/* What each job does or waits for, in the words of gpusharectl why. */
static json_t *why_json(const struct status *status) {
  json_t *root = json_object(), *jobs = json_array();
  for (const struct job_figures *job = status->jobs; job < status->jobs + status->job_count; job++) {
    json_t *object = json_object();
    char *text = why_text(status, job);
    output_number(object, "job", job->job->job_status.job);
    figures_put_gpu(object, "gpu", job->gpu->gpu);
    output_text(object, "rule", figures_rule(job->wait).name);
    output_text(object, "rule_text", figures_rule(job->wait).text);
    output_text(object, "text", text);
    json_array_append_new(jobs, object);
    free(text);
  }
  json_object_set_new(root, "jobs", jobs);
  return root;
}

static char *dump(json_t *root) {
  char *text = json_dumps(root, JSON_COMPACT);
  json_decref(root);
  return text;
}

/* Takes the messages over. Command lines are left out: whoever looks at the page is nobody's owner. */
static void tell(struct snapshot *snapshot, struct answer *answer) {
  struct status status;
  size_t count = 0;
  for (size_t i = 0; i < answer->count; i++)
    if (answer->msgs[i].type != GS_STATUS_COMMAND)
      answer->msgs[count++] = answer->msgs[i];
  int err = status_read(&status, answer->msgs, count);
  *answer = (struct answer){0};
  free(snapshot->status);
  free(snapshot->why);
  snapshot->status = err < 0 ? NULL : dump(status_json(&status));
  snapshot->why = err < 0 ? NULL : dump(why_json(&status));
  if (err == 0)
    status_free(&status);
}

/* ---- the conversation ---- */

static void hang_up(struct snapshot *snapshot) {
  answer_drop(&snapshot->answer);
  if (snapshot->fd >= 0)
    close(snapshot->fd);
  snapshot->fd = -1;
}

static void end(struct snapshot *snapshot, uint64_t now_ns) {
  snapshot->step = SNAPSHOT_RESTS;
  snapshot->made_ns = now_ns;
}

/* The next daemon has other events. */
static void fail(struct snapshot *snapshot, uint64_t now_ns) {
  hang_up(snapshot);
  snapshot->next_seq = 0;
  snapshot->line_count = snapshot->size = 0;
  end(snapshot, now_ns);
}

static int ask_for_status(struct snapshot *snapshot) {
  int code = snapshot->fd < 0 ? ask_connect_now(snapshot->socket, &snapshot->fd, &snapshot->error) : CTL_OK;
  if (code == CTL_OK)
    code = answer_begin(&snapshot->answer, snapshot->fd, &snapshot->error);
  if (code == CTL_OK)
    snapshot->step = SNAPSHOT_STATUS;
  return code == CTL_OK ? ASK_MORE : code;
}

static int take_status(struct snapshot *snapshot) {
  struct gs_msg question = wire_msg(GS_GET_EVENTS, GS_GPU_ALL);
  int code = answer_take(&snapshot->answer, snapshot->fd, &snapshot->error);
  if (code != CTL_OK)
    return code;
  tell(snapshot, &snapshot->answer);
  question.get_events.record = GS_RECORD_EVENTS;
  question.get_events.from_seq = snapshot->next_seq;
  question.get_events.age_ns = WINDOW_NS;
  snapshot->step = SNAPSHOT_EVENTS;
  if (!snapshot->status || !snapshot->why)
    return ask_complain(&snapshot->error, CTL_REFUSED, "out of memory");
  return wire_send(snapshot->fd, &question) < 0 ? ask_silence(&snapshot->error) : ASK_MORE;
}

/* Up to the end of those that there are. */
static int take_events(struct snapshot *snapshot) {
  struct gs_msg msg;
  int code;
  while ((code = ask_take(snapshot->fd, &msg, &snapshot->error)) == CTL_OK && msg.type != GS_EVENTS_END) {
    if (msg.type == GS_REPLY)
      return ask_complain(&snapshot->error, CTL_REFUSED, "%s", msg.reply.text);
    if (msg.type == GS_EVENTS_BEGIN) {
      snapshot->begin = msg;
      snapshot->next_seq = msg.events.next_seq;
    } else if (msg.type == GS_EVENT) {
      keep_event(snapshot, &msg);
    }
  }
  if (code == CTL_OK)
    forget_lines(snapshot, snapshot->begin.events.now_ns);
  return code;
}

void snapshot_begin(struct snapshot *snapshot, uint64_t now_ns) {
  if (snapshot->step != SNAPSHOT_RESTS)
    return;
  snapshot->begun_ns = now_ns;
  snapshot->step = SNAPSHOT_CONNECTS;
  *snapshot->error.text = '\0';
}

bool snapshot_go_on(struct snapshot *snapshot, uint64_t now_ns) {
  enum snapshot_step step;
  int code = ASK_MORE;
  if (snapshot->step == SNAPSHOT_RESTS)
    return false;
  do {
    step = snapshot->step;
    code = step == SNAPSHOT_CONNECTS ? ask_for_status(snapshot)
           : step == SNAPSHOT_STATUS ? take_status(snapshot)
                                     : take_events(snapshot);
  } while (code == ASK_MORE && snapshot->step != step);
  if (code == ASK_MORE && now_ns - snapshot->begun_ns >= PATIENCE_NS)
    code = ask_silence(&snapshot->error);
  if (code == CTL_OK)
    end(snapshot, now_ns);
  else if (code != ASK_MORE)
    fail(snapshot, now_ns);
  return code != ASK_MORE;
}

uint64_t snapshot_deadline_ns(const struct snapshot *snapshot) {
  if (snapshot->step == SNAPSHOT_RESTS)
    return SNAPSHOT_NEVER;
  if (snapshot->step == SNAPSHOT_CONNECTS)
    return snapshot->fd < 0 ? clock_now_ns() + CONNECT_NS : 0;
  return snapshot->begun_ns + PATIENCE_NS;
}
