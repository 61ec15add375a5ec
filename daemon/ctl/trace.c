/* trace.c - events of the daemon as a trace, and its file in the Trace Event Format. */
#include "ctl/trace.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "common/parse.h"
#include "ctl/event.h"
#include "ctl/figures.h"

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

static json_t *entry(const char *phase, const char *name, uint32_t gpu, uint64_t thread) {
  json_t *object = json_object();
  output_text(object, "ph", phase);
  output_text(object, "name", name);
  output_number(object, "pid", gpu + UINT64_C(1));
  output_number(object, "tid", thread);
  return object;
}

/* The end of the object. args NULL: it has none. */
static void write_entry(struct trace *trace, json_t *object, json_t *args) {
  if (args)
    json_object_set_new(object, "args", args);
  fputs(trace->entries++ ? ",\n" : "\n", trace->out);
  if (json_dumpf(object, trace->out, JSON_COMPACT | JSON_REAL_PRECISION(15)) < 0 && !ferror(trace->out))
    trace->failed = true;
  json_decref(object);
}

static void write_at(struct trace *trace, json_t *object, uint64_t at_ns, json_t *args) {
  json_object_set_new(object, "ts", json_real(microseconds(trace, at_ns)));
  write_entry(trace, object, args);
}

static void write_slice(struct trace *trace, struct lane *lane, const char *name, uint64_t from_ns,
                        uint64_t to_ns, json_t *args) {
  from_ns = from_ns > lane->end_ns ? from_ns : lane->end_ns;
  from_ns = from_ns > trace->origin_ns ? from_ns : trace->origin_ns;
  to_ns = to_ns > from_ns ? to_ns : from_ns;
  lane->end_ns = to_ns;
  json_t *object = entry("X", name, lane->gpu, lane->thread);
  json_object_set_new(object, "dur", json_real((double)(to_ns - from_ns) / 1000));
  write_at(trace, object, from_ns, args);
}

static void write_instant(struct trace *trace, uint32_t gpu, uint64_t thread, const char *name,
                          uint64_t at_ns, json_t *args) {
  json_t *object = entry("i", name, gpu, thread);
  output_text(object, "s", "t");
  write_at(trace, object, at_ns, args);
}

static void write_counter(struct trace *trace, uint32_t gpu, const char *name, uint64_t at_ns,
                          const char *key, double value) {
  json_t *args = json_object();
  json_object_set_new(args, key, json_real(value));
  write_at(trace, entry("C", name, gpu, 0), at_ns, args);
}

static void write_name(struct trace *trace, uint32_t gpu, uint64_t thread, const char *what,
                       const char *name) {
  json_t *args = json_object();
  output_text(args, "name", name);
  write_entry(trace, entry("M", what, gpu, thread), args);
}

static void write_thread(struct trace *trace, uint32_t gpu, uint64_t thread, const char *name) {
  json_t *args = json_object();
  output_number(args, "sort_index", thread);
  write_name(trace, gpu, thread, "thread_name", name);
  write_entry(trace, entry("M", "thread_sort_index", gpu, thread), args);
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

static void count_waiting(struct trace *trace, struct gpu *gpu, int change, uint64_t at_ns) {
  gpu->waiting += (unsigned)change;
  if (change)
    write_counter(trace, gpu->index, "waiting", at_ns, "jobs", gpu->waiting);
}

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
  count_waiting(trace, gpu, (phase == PHASE_WAITS) - (track->phase == PHASE_WAITS), at_ns);
  track->phase = phase;
  track->since_ns = at_ns;
}

/* What it must have done before the first event that there is of it. */
static enum phase phase_before(unsigned kind) {
  switch (kind) {
  case GS_EVENT_GRANTED:
    return PHASE_WAITS;
  case GS_EVENT_RUNS:
    return PHASE_RESTORES;
  case GS_EVENT_DROP:
  case GS_EVENT_RELEASED:
    return PHASE_RUNS;
  default:
    return PHASE_NONE;
  }
}

static struct track *track_of(struct trace *trace, struct gpu *gpu, const struct gs_msg *event) {
  bool fresh;
  struct track *track = provide_track(trace, event->gpu, event->event.job, &fresh);
  if (!track || !fresh)
    return track;
  name_track(trace, track, event->event.name, event->event.pid);
  set_phase(trace, gpu, track, phase_before(event->event.kind), trace->origin_ns);
  return track;
}

/* One that was not told to stop has drained all the same: that was the last it did in its turn. */
static void take_release(struct trace *trace, struct gpu *gpu, struct track *track,
                         const struct gs_msg *event) {
  uint64_t at_ns = event->event.at_ns, drain_ns = event->event.turn.ns;
  uint64_t ran_ns = at_ns - track->since_ns;
  if (track->phase == PHASE_RUNS && drain_ns > 0 && drain_ns < ran_ns)
    set_phase(trace, gpu, track, PHASE_DRAINS, at_ns - drain_ns);
  set_phase(trace, gpu, track, PHASE_NONE, at_ns);
}

static void take_grant(struct trace *trace, struct gpu *gpu, struct track *track,
                       const struct gs_msg *event) {
  set_phase(trace, gpu, track, PHASE_RESTORES, event->event.at_ns);
  if (event->event.detail)
    write_instant(trace, gpu->index, HANDOVERS, "hand-over", event->event.at_ns,
                  number_arg("to_job", track->job));
}

static void take_move(struct trace *trace, struct track *track, const struct gs_msg *event) {
  uint64_t until_ns = event->event.turn.until_ns;
  write_slice(trace, &track->moves, event->event.kind == GS_EVENT_EVICTED ? "evicts" : "restores",
              before(until_ns, event->event.turn.ns), until_ns, number_arg("bytes", event->event.turn.bytes));
}

static void take_limit(struct trace *trace, const struct track *track, const struct gs_msg *event) {
  char name[32];
  snprintf(name, sizeof name, "job %u limit", track->job);
  write_counter(trace, track->gpu, name, event->event.at_ns, "percent",
                100 * (double)event->event.turn.bytes / (double)GS_LIMITED_WHOLE);
}

static void take_phase(struct trace *trace, struct gpu *gpu, struct track *track,
                       const struct gs_msg *event) {
  uint64_t at_ns = event->event.at_ns;
  switch (event->event.kind) {
  case GS_EVENT_ATTACHED:
    set_phase(trace, gpu, track, event->event.detail ? PHASE_RUNS : PHASE_NONE, at_ns);
    break;
  case GS_EVENT_ASKED:
    set_phase(trace, gpu, track, PHASE_WAITS, at_ns);
    break;
  case GS_EVENT_GRANTED:
    take_grant(trace, gpu, track, event);
    break;
  case GS_EVENT_RUNS:
    set_phase(trace, gpu, track, PHASE_RUNS, at_ns);
    break;
  case GS_EVENT_DROP:
    set_phase(trace, gpu, track, PHASE_DRAINS, at_ns);
    break;
  case GS_EVENT_RELEASED:
    take_release(trace, gpu, track, event);
    break;
  case GS_EVENT_DETACHED:
    set_phase(trace, gpu, track, PHASE_NONE, at_ns);
    break;
  default:
    break;
  }
}

static void count_memory(struct trace *trace, struct track *track, const struct gs_msg *event) {
  char name[32];
  bool gone = event->event.kind == GS_EVENT_DETACHED;
  uint64_t bytes = gone ? 0 : event->event.turn.resident_bytes;
  if (bytes == track->resident_bytes)
    return;
  track->resident_bytes = bytes;
  snprintf(name, sizeof name, "job %u on card", track->job);
  write_counter(trace, track->gpu, name, event->event.at_ns, "MiB", (double)bytes / (double)(1 << 20));
}

static void take_turn(struct trace *trace, struct gpu *gpu, const struct gs_msg *event) {
  struct track *track = track_of(trace, gpu, event);
  if (!track)
    return;
  unsigned kind = event->event.kind;
  take_phase(trace, gpu, track, event);
  count_memory(trace, track, event);
  if (kind == GS_EVENT_EVICTED || kind == GS_EVENT_RESTORED)
    take_move(trace, track, event);
  else if (kind == GS_EVENT_LIMIT)
    take_limit(trace, track, event);
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
  json_t *args = json_object();
  output_text(args, "text", words);
  write_instant(trace, gpu->index, HANDOVERS, event_kind_name(event->event.kind), event->event.at_ns, args);
}

static void take_gpu_event(struct trace *trace, const struct gs_msg *event) {
  struct gpu *gpu = provide_gpu(trace, event->gpu, "");
  if (!gpu)
    return;
  switch (event->event.kind) {
  case GS_EVENT_HANDOVER:
    take_handover(trace, gpu, event);
    break;
  case GS_EVENT_TURNS:
  case GS_EVENT_SETTING:
  case GS_EVENT_TERM:
  case GS_EVENT_EXPELLED:
    take_words(trace, gpu, event);
    break;
  default:
    take_turn(trace, gpu, event);
  }
}

static void take_event(struct trace *trace, const struct gs_msg *event) {
  if (trace->origin_ns == UINT64_MAX)
    trace->origin_ns = event->event.at_ns;
  trace->last_ns = event->event.at_ns;
  if (event->gpu != GS_GPU_ALL)
    take_gpu_event(trace, event);
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
