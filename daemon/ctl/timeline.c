/* timeline.c - gpusharectl timeline: what has happened, as a trace for a viewer. */
#include <stdlib.h>
#include <string.h>

#include "ctl/draft.h"
#include "ctl/event.h"
#include "ctl/trace.h"

static void take_status(struct trace *trace, enum gs_msg_type type, const struct gs_msg *msgs, size_t count) {
  for (const struct gs_msg *msg = msgs; msg < msgs + count; msg++)
    if (msg->type == type && type == GS_STATUS_GPU)
      trace_gpu(trace, msg);
    else if (msg->type == type)
      trace_job(trace, msg);
}

static int take(void *trace, const struct gs_msg *msg) {
  trace_take(trace, msg);
  return CTL_OK;
}

static int write_trace(const struct request *request, const struct gs_msg *msgs, size_t count, FILE *out) {
  struct trace trace;
  trace_begin(&trace, out);
  take_status(&trace, GS_STATUS_GPU, msgs, count);
  int code = event_read(request, GS_RECORD_EVENTS, take, &trace);
  take_status(&trace, GS_STATUS_JOB, msgs, count);
  if (trace_end(&trace) == 0 || code != CTL_OK)
    return code;
  fprintf(stderr, "gpusharectl: out of memory\n");
  return CTL_REFUSED;
}

static int complain(const char *path, int err) {
  fprintf(stderr, "gpusharectl: can't write %s: %s\n", path, strerror(-err));
  return CTL_REFUSED;
}

/* Without a daemon, also if that ends meanwhile, the file stays as it is. */
static int write_file(const struct request *request, const struct gs_msg *msgs, size_t count) {
  struct draft draft;
  int err = draft_open(&draft, request->file);
  if (err)
    return complain(request->file, err);
  int code = write_trace(request, msgs, count, draft.out);
  if (code != CTL_OK) {
    draft_drop(&draft);
    return code;
  }
  err = draft_keep(&draft);
  return err ? complain(request->file, err) : CTL_OK;
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
