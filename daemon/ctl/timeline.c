/* timeline.c - gpusharectl timeline: what has happened, as a trace for a viewer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

static int complain(const char *path) {
  fprintf(stderr, "gpusharectl: can't write %s: %s\n", path, strerror(errno ? errno : EIO));
  return CTL_REFUSED;
}

static int write_file(const struct request *request, const struct gs_msg *msgs, size_t count) {
  FILE *out = fopen(request->file, "w");
  if (!out)
    return complain(request->file);
  int code = write_trace(request, msgs, count, out);
  bool lost = ferror(out);
  lost |= fclose(out) != 0;
  if (code == CTL_OK && lost)
    code = complain(request->file);
  return code;
}

/* Without a daemon, the file stays as it is. */
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
