/* show_events.c - gpusharectl events: what has happened, and what happens. */
#include <stdlib.h>
#include <unistd.h>

#include "common/parse.h"
#include "common/wire.h"
#include "ctl/event.h"
#include "ctl/json_put.h"

/* CTL_OK: *question is what the request asks for. What follows begins now unless it says since when. */
static int make_question(const struct request *request, enum gs_record record, struct gs_msg *question) {
  *question = wire_msg(GS_GET_EVENTS, GS_GPU_ALL);
  question->get_events.record = record;
  question->get_events.follow = request->follow;
  question->get_events.from_seq = request->follow && !request->since ? UINT64_MAX : 0;
  if (request->since && parse_duration_ns(request->since, &question->get_events.age_ns) < 0)
    return usage_error("not a duration (90, 15m, 2.5h):", request->since);
  return CTL_OK;
}

int event_read(const struct request *request, enum gs_record record,
               int (*take)(void *reader, const struct gs_msg *msg), void *reader) {
  struct gs_msg question;
  int fd, code = make_question(request, record, &question);
  if (code == CTL_OK)
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
};

static void show_missed(const struct reader *reader, uint64_t count) {
  if (reader->request->json)
    printf("{\"event\":\"missed\",\"count\":%lu}\n", count);
  else
    printf("(%lu events are missing here: this reader is too slow)\n", count);
}

static int show_event(const struct reader *reader, const struct gs_msg *event) {
  if (reader->request->json)
    return json_print_line(event_json(&reader->begin, event));
  event_tell(stdout, &reader->begin, event);
  printf("\n");
  return CTL_OK;
}

static int show(void *argument, const struct gs_msg *msg) {
  struct reader *reader = argument;
  int code = CTL_OK;
  if (msg->type == GS_EVENTS_BEGIN)
    reader->begin = *msg;
  else if (msg->type == GS_EVENTS_MISSED)
    show_missed(reader, msg->missed.count);
  else if (msg->type == GS_EVENT)
    code = show_event(reader, msg);
  if (reader->request->follow)
    fflush(stdout);
  return ferror(stdout) ? CTL_REFUSED : code; /* ctl_main.c says why */
}

int events_command(const struct request *request) {
  struct reader reader = {.request = request};
  return event_read(request, GS_RECORD_EVENTS, show, &reader);
}
