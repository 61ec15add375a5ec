/* trace.c - gpusharectl timeline: events of the daemon as a trace, and its file in the Trace Event Format. */
#include "ctl/trace.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "ctl/event.h"
#include "ctl/figures.h"

#define ID(number) ((json_int_t)(number))
#define HANDOVERS 1 /* the thread; a job's come behind it */

/* What a job does on a GPU. */
enum phase { PHASE_NONE, PHASE_WAITS, PHASE_RESTORES, PHASE_RUNS, PHASE_DRAINS };
static const char *const phase_names[] = {"", "waits", "restores", "runs", "drains"};

/* A thread's slices: each begins where the one before has ended, or later. */
struct lane {
  uint32_t gpu;
  uint64_t thread, end_ns;
};

struct gpu {
  uint32_t index; /* the key */
  struct lane handovers;
  unsigned waiting;
};

struct track {
  uint32_t gpu, job; /* the key */
  enum phase phase;
  uint64_t since_ns;
  uint64_t resident_bytes; /* as told last */
  struct lane turns, moves;
};

/* ---- the file ---- */

static double microseconds(const struct trace *trace, uint64_t at_ns) {
  return at_ns > trace->origin_ns ? (double)(at_ns - trace->origin_ns) / 1000 : 0;
}

/* The end of the object. */
static void write_entry(struct trace *trace, json_t *object) {
  fputs(trace->entries++ ? ",\n" : "\n", trace->out);
  if (json_dumpf(object, trace->out, JSON_COMPACT | JSON_REAL_PRECISION(15)) < 0 && !ferror(trace->out))
    trace->failed = true;
  json_decref(object);
}

/* Takes over args; NULL: there are none. What overlaps with the slice before is cut. */
static void write_slice(struct trace *trace, struct lane *lane, const char *name, uint64_t from_ns,
                        uint64_t to_ns, json_t *args) {
  from_ns = from_ns > lane->end_ns ? from_ns : lane->end_ns;
  from_ns = from_ns > trace->origin_ns ? from_ns : trace->origin_ns;
  to_ns = to_ns > from_ns ? to_ns : from_ns;
  lane->end_ns = to_ns;
  write_entry(trace, json_pack("{ss ss sI sI sf sf so*}", "ph", "X", "name", name, "pid", ID(lane->gpu + 1),
                               "tid", ID(lane->thread), "dur", (double)(to_ns - from_ns) / 1000, "ts",
                               microseconds(trace, from_ns), "args", args));
}

static void write_instant(struct trace *trace, uint32_t gpu, uint64_t thread, const char *name,
                          uint64_t at_ns, json_t *args) {
  write_entry(trace, json_pack("{ss ss sI sI ss sf so*}", "ph", "i", "name", name, "pid", ID(gpu + 1), "tid",
                               ID(thread), "s", "t", "ts", microseconds(trace, at_ns), "args", args));
}

static void write_counter(struct trace *trace, uint32_t gpu, const char *name, uint64_t at_ns,
                          const char *key, double value) {
  write_entry(trace, json_pack("{ss ss sI si sf s{sf}}", "ph", "C", "name", name, "pid", ID(gpu + 1), "tid",
                               0, "ts", microseconds(trace, at_ns), "args", key, value));
}

/* what: "process_name". */
static void write_name(struct trace *trace, uint32_t gpu, uint64_t thread, const char *what,
                       const char *name) {
  write_entry(trace, json_pack("{ss ss sI sI s{ss}}", "ph", "M", "name", what, "pid", ID(gpu + 1), "tid",
                               ID(thread), "args", "name", name));
}

/* A thread, which stands in the order of the threads' numbers. */
static void write_thread(struct trace *trace, uint32_t gpu, uint64_t thread, const char *name) {
  write_name(trace, gpu, thread, "thread_name", name);
  write_entry(trace, json_pack("{ss ss sI sI s{sI}}", "ph", "M", "name", "thread_sort_index", "pid",
                               ID(gpu + 1), "tid", ID(thread), "args", "sort_index", ID(thread)));
}

static json_t *number_arg(const char *key, uint64_t value) {
  json_t *args = json_object();
  output_number(args, key, value);
  return args;
}

static uint64_t before(uint64_t at_ns, uint64_t ns) { return at_ns > ns ? at_ns - ns : 0; }

/* ---- GPUs and jobs ---- */

static int compare_gpus(const void *a, const void *b) {
  uint32_t one = ((const struct gpu *)a)->index, other = ((const struct gpu *)b)->index;
  return one < other ? -1 : one > other;
}

static int compare_tracks(const void *a, const void *b) {
  const struct track *one = a, *other = b;
  if (one->gpu != other->gpu)
    return one->gpu < other->gpu ? -1 : 1;
  return one->job < other->job ? -1 : one->job > other->job;
}

/* The one like `key`, of so many bytes; *fresh: it was made. NULL: no memory. */
static void *provide(void **tree, const void *key, size_t size, int (*compare)(const void *, const void *),
                     bool *fresh) {
  void **found = tfind(key, tree, compare);
  *fresh = !found;
  if (found)
    return *found;
  void *made = malloc(size);
  if (made && tsearch(memcpy(made, key, size), tree, compare))
    return made;
  free(made);
  return NULL;
}

static struct gpu *provide_gpu(struct trace *trace, uint32_t index, const char *model) {
  char name[64];
  bool fresh;
  struct gpu key = {.index = index, .handovers = {.gpu = index, .thread = HANDOVERS}};
  struct gpu *gpu = provide(&trace->gpus, &key, sizeof key, compare_gpus, &fresh);
  trace->failed |= !gpu;
  if (!gpu || !fresh)
    return gpu;
  snprintf(name, sizeof name, "GPU %s %s", GPU_NUMBER_TEXT(index), model);
  write_name(trace, index, 0, "process_name", name);
  write_thread(trace, index, HANDOVERS, "hand-overs");
  return gpu;
}

static void name_track(struct trace *trace, const struct track *track, const char *program, int32_t pid) {
  char name[96];
  snprintf(name, sizeof name, "job %u %s (pid %d)", track->job, program, pid);
  write_thread(trace, track->gpu, track->turns.thread, name);
  snprintf(name, sizeof name, "job %u memory", track->job);
  write_thread(trace, track->gpu, track->moves.thread, name);
}

static struct track *provide_track(struct trace *trace, uint32_t gpu, uint32_t job, bool *fresh) {
  uint64_t thread = HANDOVERS + UINT64_C(2) * job;
  struct track key = {.gpu = gpu,
                      .job = job,
                      .turns = {.gpu = gpu, .thread = thread},
                      .moves = {.gpu = gpu, .thread = thread + 1}};
  struct track *track = provide(&trace->tracks, &key, sizeof key, compare_tracks, fresh);
  trace->failed |= !track;
  return track;
}

/* ---- what a job does ---- */

/* One without length is told only where it is all of a turn, or its beginning: as of a job that ends when it
 * is granted one. */
static void end_phase(struct trace *trace, struct track *track, enum phase next, uint64_t at_ns) {
  bool turn = track->phase == PHASE_RESTORES && next != PHASE_RUNS;
  if (track->phase != PHASE_NONE && (at_ns > track->since_ns || turn))
    write_slice(trace, &track->turns, phase_names[track->phase], track->since_ns, at_ns, NULL);
}

static void set_phase(struct trace *trace, struct gpu *gpu, struct track *track, enum phase phase,
                      uint64_t at_ns) {
  end_phase(trace, track, phase, at_ns);
  int change = (phase == PHASE_WAITS) - (track->phase == PHASE_WAITS);
  gpu->waiting += (unsigned)change;
  if (change)
    write_counter(trace, gpu->index, "waiting", at_ns, "jobs", gpu->waiting);
  track->phase = phase;
  track->since_ns = at_ns;
}

/* What a job does from an event on, and what it must have done before, if that is the first one there is. */
static const struct {
  bool changes;
  enum phase before, after;
} phases[] = {
    [GS_EVENT_ATTACHED] = {true, PHASE_NONE, PHASE_NONE}, /* or, if it runs at once, PHASE_RUNS */
    [GS_EVENT_DETACHED] = {true, PHASE_NONE, PHASE_NONE},
    [GS_EVENT_ASKED] = {true, PHASE_NONE, PHASE_WAITS},
    [GS_EVENT_GRANTED] = {true, PHASE_WAITS, PHASE_RESTORES},
    [GS_EVENT_RUNS] = {true, PHASE_RESTORES, PHASE_RUNS},
    [GS_EVENT_DROP] = {true, PHASE_RUNS, PHASE_DRAINS},
    [GS_EVENT_RELEASED] = {true, PHASE_RUNS, PHASE_NONE},
};
#define PHASES (sizeof phases / sizeof *phases)

static struct track *track_of(struct trace *trace, struct gpu *gpu, const struct gs_msg *event) {
  bool fresh;
  struct track *track = provide_track(trace, event->gpu, event->event.job, &fresh);
  if (!track || !fresh)
    return track;
  name_track(trace, track, event->event.name, event->event.pid);
  set_phase(trace, gpu, track, event->event.kind < PHASES ? phases[event->event.kind].before : PHASE_NONE,
            trace->origin_ns);
  return track;
}

static void take_phase(struct trace *trace, struct gpu *gpu, struct track *track,
                       const struct gs_msg *event) {
  unsigned kind = event->event.kind;
  uint64_t at_ns = event->event.at_ns, drain_ns = event->event.turn.ns;
  if (kind >= PHASES || !phases[kind].changes)
    return;
  /* One that was not told to stop has drained all the same: that was the last it did in its turn. */
  if (kind == GS_EVENT_RELEASED && track->phase == PHASE_RUNS && drain_ns > 0 &&
      drain_ns < at_ns - track->since_ns)
    set_phase(trace, gpu, track, PHASE_DRAINS, at_ns - drain_ns);
  bool runs = kind == GS_EVENT_ATTACHED && event->event.detail;
  set_phase(trace, gpu, track, runs ? PHASE_RUNS : phases[kind].after, at_ns);
  if (kind == GS_EVENT_GRANTED && event->event.detail)
    write_instant(trace, gpu->index, HANDOVERS, "hand-over", at_ns, number_arg("to_job", track->job));
}

/* A counter of a job. */
static void count_of(struct trace *trace, const struct track *track, const char *what,
                     const struct gs_msg *event, const char *key, double value) {
  char name[32];
  snprintf(name, sizeof name, "job %u %s", track->job, what);
  write_counter(trace, track->gpu, name, event->event.at_ns, key, value);
}

static void take_turn(struct trace *trace, struct gpu *gpu, const struct gs_msg *event) {
  struct track *track = track_of(trace, gpu, event);
  if (!track)
    return;
  unsigned kind = event->event.kind;
  uint64_t bytes = kind == GS_EVENT_DETACHED ? 0 : event->event.turn.resident_bytes;
  take_phase(trace, gpu, track, event);
  if (bytes != track->resident_bytes)
    count_of(trace, track, "on card", event, "MiB", (double)bytes / (double)(1 << 20));
  track->resident_bytes = bytes;
  if (kind == GS_EVENT_EVICTED || kind == GS_EVENT_RESTORED)
    write_slice(trace, &track->moves, kind == GS_EVENT_EVICTED ? "evicts" : "restores",
                before(event->event.turn.until_ns, event->event.turn.ns), event->event.turn.until_ns,
                number_arg("bytes", event->event.turn.bytes));
  else if (kind == GS_EVENT_LIMIT)
    count_of(trace, track, "limit", event, "percent",
             100 * (double)event->event.turn.bytes / (double)GS_LIMITED_WHOLE);
  else if (kind == GS_EVENT_SILENT || kind == GS_EVENT_STAYS || kind == GS_EVENT_TOO_BIG ||
           kind == GS_EVENT_REFUSED)
    write_instant(trace, gpu->index, track->turns.thread, event_kind_name(kind), event->event.at_ns, NULL);
}

/* ---- GPUs ---- */

/* Where several drain, one after the other, their sum may be more than there was time: the slice is cut. */
static void take_handover(struct trace *trace, struct gpu *gpu, const struct gs_msg *event) {
  uint64_t at_ns = event->event.at_ns, drain_ns = event->event.handover.drain_ns;
  uint64_t moves_ns = before(at_ns, event->event.handover.move_ns);
  json_t *args = number_arg("to_job", event->event.job);
  output_number(args, "move_ns", event->event.handover.move_ns);
  output_number(args, "evicted_bytes", event->event.handover.evicted_bytes);
  output_number(args, "restored_bytes", event->event.handover.restored_bytes);
  write_slice(trace, &gpu->handovers, "drain", before(moves_ns, drain_ns), moves_ns,
              number_arg("drain_ns", drain_ns));
  write_slice(trace, &gpu->handovers, "moves", moves_ns, at_ns, args);
}

/* In words, for those that change what a GPU or a job is given. */
static void take_words(struct trace *trace, struct gpu *gpu, const struct gs_msg *event) {
  char words[256] = "";
  FILE *stream = fmemopen(words, sizeof words - 1, "w");
  if (stream) {
    event_tell(stream, &trace->begin, event);
    fclose(stream);
  }
  write_instant(trace, gpu->index, HANDOVERS, event_kind_name(event->event.kind), event->event.at_ns,
                json_pack("{ss}", "text", words));
}

static void take_event(struct trace *trace, const struct gs_msg *event) {
  unsigned kind = event->event.kind;
  if (trace->origin_ns == UINT64_MAX)
    trace->origin_ns = event->event.at_ns;
  trace->last_ns = event->event.at_ns;
  struct gpu *gpu = event->gpu != GS_GPU_ALL ? provide_gpu(trace, event->gpu, "") : NULL;
  if (!gpu)
    return;
  if (kind == GS_EVENT_HANDOVER)
    take_handover(trace, gpu, event);
  else if (kind == GS_EVENT_TURNS || kind == GS_EVENT_SETTING || kind == GS_EVENT_TERM ||
           kind == GS_EVENT_EXPELLED)
    take_words(trace, gpu, event);
  else
    take_turn(trace, gpu, event);
}

/* ---- the whole ---- */

static void end_track(const void *node, VISIT visit, void *argument) {
  struct trace *trace = argument;
  if (visit != postorder && visit != leaf)
    return;
  struct track *track = *(struct track *const *)node;
  end_phase(trace, track, PHASE_NONE, trace->last_ns);
  track->phase = PHASE_NONE;
}

void trace_begin(struct trace *trace, FILE *out) {
  *trace = (struct trace){.out = out, .origin_ns = UINT64_MAX};
  fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", out);
}

void trace_gpu(struct trace *trace, const struct gs_msg *gpu) {
  provide_gpu(trace, gpu->gpu, gpu->gpu_status.name);
}

static enum phase phase_of(unsigned state) {
  if (state == GS_JOB_HOLDING)
    return PHASE_RUNS;
  if (state == GS_JOB_WAITING)
    return PHASE_WAITS;
  return state == GS_JOB_DROPPING ? PHASE_DRAINS : PHASE_NONE;
}

void trace_job(struct trace *trace, const struct gs_msg *job) {
  bool fresh;
  struct gpu *gpu = provide_gpu(trace, job->gpu, "");
  struct track *track = gpu ? provide_track(trace, job->gpu, job->job_status.job, &fresh) : NULL;
  if (!track || !fresh || trace->origin_ns == UINT64_MAX)
    return;
  name_track(trace, track, job->job_status.name, job->job_status.pid);
  set_phase(trace, gpu, track, phase_of(job->job_status.state), trace->origin_ns);
}

void trace_take(struct trace *trace, const struct gs_msg *msg) {
  if (msg->type == GS_EVENTS_BEGIN)
    trace->begin = *msg;
  else if (msg->type == GS_EVENTS_MISSED)
    twalk_r(trace->tracks, end_track, trace); /* nobody knows what they have done since */
  else if (msg->type == GS_EVENT)
    take_event(trace, msg);
}

int trace_end(struct trace *trace) {
  char when[EVENT_TIME_SIZE] = "";
  trace->last_ns = trace->begin.events.now_ns;
  twalk_r(trace->tracks, end_track, trace);
  if (trace->origin_ns != UINT64_MAX)
    event_utc_time(event_realtime_ns(&trace->begin, trace->origin_ns), when);
  fprintf(trace->out, "\n],\"otherData\":{\"begin\":\"%s\"}}\n", when);
  tdestroy(trace->tracks, free);
  tdestroy(trace->gpus, free);
  return trace->failed ? -ENOMEM : 0;
}

/* ---- the command ---- */

static int take_traced(void *trace, const struct gs_msg *msg) {
  trace_take(trace, msg);
  return CTL_OK;
}

static int write_trace(const struct request *request, const struct status *status, FILE *out) {
  struct trace trace;
  trace_begin(&trace, out);
  for (size_t i = 0; i < status->gpu_count; i++)
    trace_gpu(&trace, status->gpus[i].gpu);
  int code = event_read(request, GS_RECORD_EVENTS, take_traced, &trace);
  for (size_t i = 0; i < status->job_count; i++)
    trace_job(&trace, status->jobs[i].job);
  if (trace_end(&trace) == 0 || code != CTL_OK)
    return code;
  return command_error(CTL_REFUSED, "out of memory");
}

/* Without a daemon, also if that ends meanwhile, the file stays as it is. */
static int write_file(const struct request *request, const struct status *status) {
  struct draft draft;
  int err = draft_open(&draft, request->file);
  if (err == 0) {
    int code = write_trace(request, status, draft.out);
    if (code != CTL_OK) {
      draft_drop(&draft);
      return code;
    }
    err = draft_keep(&draft);
  }
  return err ? command_error(CTL_REFUSED, "can't write %s: %s", request->file, strerror(-err)) : CTL_OK;
}

int timeline_command(const struct request *request) {
  struct status status;
  int code = status_fetch(request, &status);
  if (code != CTL_OK)
    return code;
  code = request->file ? write_file(request, &status) : write_trace(request, &status, stdout);
  status_free(&status);
  return code;
}
