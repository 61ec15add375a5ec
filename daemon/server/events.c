/* events.c - what is written in the daemon's records. */
#include "server/events.h"

#include <string.h>

#include "common/clock.h"
#include "common/wire.h"
#include "server/keep.h"

#define MOVE_NS NS_PER_S                  /* a longer move is told in parts */
#define MEMORY_BYTES (UINT64_C(64) << 20) /* smaller changes of memory are not told */
#define MEMORY_DIVISOR 8                  /* nor are those by a smaller part of it */
#define LIMIT_DIVISOR 4                   /* nor changes of a limit */
#define LIMIT_LEAST (GS_LIMITED_WHOLE / 100)

/* ---- what all have ---- */

static struct gs_msg event_of(enum gs_event_kind kind, uint32_t gpu, uint64_t now_ns) {
  struct gs_msg msg = wire_msg(GS_EVENT, gpu);
  msg.event.kind = kind;
  msg.event.at_ns = now_ns;
  return msg;
}

static void name_job(struct gs_msg *msg, const struct peer *peer) {
  msg->event.job = peer->job_id;
  msg->event.pid = peer->pid;
  msg->event.uid = peer->uid;
  memcpy(msg->event.name, peer->name, sizeof msg->event.name);
}

static struct gs_msg event_on(const struct attachment *attachment, enum gs_event_kind kind, uint64_t now_ns) {
  struct gs_msg msg = event_of(kind, gpu_of(attachment->job.gpu)->number, now_ns);
  name_job(&msg, attachment->peer);
  return msg;
}

static struct record *record_of(const struct sched_gpu *gpu) { return &daemon_of(gpu->scheduler)->events; }

/* ---- programs ---- */

void events_on_start(struct daemon *daemon, const struct peer *peer, uint64_t now_ns) {
  struct gs_msg msg = event_of(GS_EVENT_STARTED, GS_GPU_ALL, now_ns);
  name_job(&msg, peer);
  record_add(&daemon->events, &msg);
}

static struct gs_msg command_event(const struct peer *peer, uint64_t now_ns) {
  struct gs_msg msg = event_of(GS_EVENT_COMMAND, GS_GPU_ALL, now_ns);
  name_job(&msg, peer);
  memcpy(msg.event.text, peer->command, sizeof msg.event.text);
  return msg;
}

void events_on_command(struct daemon *daemon, const struct peer *peer, uint64_t now_ns) {
  struct gs_msg msg = command_event(peer, now_ns);
  record_add(&daemon->events, &msg);
}

void events_on_end(struct daemon *daemon, const struct peer *peer, uint64_t now_ns) {
  struct gs_msg msg = event_of(GS_EVENT_ENDED, GS_GPU_ALL, now_ns);
  name_job(&msg, peer);
  msg.event.detail = peer->exits      ? GS_END_EXIT
                     : peer->evicted  ? GS_END_EVICTED
                     : peer->expelled ? GS_END_CLOSED
                                      : GS_END_ABRUPT;
  msg.event.end.status = peer->exit_status;
  msg.event.end.started_ns = peer->started_ns;
  msg.event.end.gpu_ns = peer->gpu_ns;
  msg.event.end.waited_ns = peer->waited_ns;
  msg.event.end.turns = peer->turns;
  record_add(&daemon->events, &msg);
  if (!peer->attached) /* else connections that do nothing would displace what others have run */
    return;
  if (*peer->command) {
    struct gs_msg command = command_event(peer, now_ns);
    record_add(&daemon->runs, &command);
    keep_record(daemon, &command, now_ns);
  }
  record_add(&daemon->runs, &msg);
  keep_record(daemon, &msg, now_ns);
  hook_add(&daemon->hook, &msg, peer->command);
}

/* ---- jobs on GPUs ---- */

void events_on_job(struct attachment *attachment, const struct job_event *event, uint64_t now_ns) {
  struct gs_msg msg = event_on(attachment, event->kind, now_ns);
  msg.epoch = event->epoch;
  msg.event.detail = event->detail;
  msg.event.turn.used_bytes = attachment->told.used_bytes = attachment->job.used_bytes;
  msg.event.turn.resident_bytes = attachment->job.resident_bytes;
  msg.event.turn.bytes = event->bytes;
  msg.event.turn.ns = event->ns;
  msg.event.turn.until_ns = event->until_ns;
  gpu_of(attachment->job.gpu)->event_counts[event->kind]++;
  record_add(record_of(attachment->job.gpu), &msg);
}

void events_on_memory(struct attachment *attachment, uint64_t now_ns) {
  uint64_t told_bytes = attachment->told.used_bytes, used_bytes = attachment->job.used_bytes;
  uint64_t change_bytes = used_bytes > told_bytes ? used_bytes - told_bytes : told_bytes - used_bytes;
  if (change_bytes >= MEMORY_BYTES && change_bytes >= told_bytes / MEMORY_DIVISOR)
    events_on_job(attachment, &(struct job_event){.kind = GS_EVENT_MEMORY}, now_ns);
}

/* ---- moves ---- */

static bool is_open(const struct moves *moves) { return moves->evicted_bytes || moves->restored_bytes; }

void events_expect_moves(struct attachment *attachment, uint64_t now_ns) {
  if (!is_open(&attachment->moves))
    attachment->moves.since_ns = now_ns;
}

static void write_moves(struct attachment *attachment, enum gs_event_kind kind, uint64_t bytes,
                        uint64_t now_ns) {
  const struct moves *moves = &attachment->moves;
  if (bytes)
    events_on_job(attachment,
                  &(struct job_event){.kind = kind,
                                      .bytes = bytes,
                                      .ns = moves->until_ns - moves->since_ns,
                                      .until_ns = moves->until_ns},
                  now_ns);
}

void events_end_moves(struct attachment *attachment, uint64_t now_ns) {
  struct moves *moves = &attachment->moves;
  write_moves(attachment, GS_EVENT_EVICTED, moves->evicted_bytes, now_ns);
  write_moves(attachment, GS_EVENT_RESTORED, moves->restored_bytes, now_ns);
  *moves = (struct moves){.since_ns = is_open(moves) ? moves->until_ns : now_ns};
}

void events_on_moves(struct attachment *attachment, uint64_t evicted_bytes, uint64_t restored_bytes,
                     uint64_t now_ns) {
  const struct sched_job *job = &attachment->job;
  struct moves *moves = &attachment->moves;
  if ((evicted_bytes && moves->restored_bytes) || (restored_bytes && moves->evicted_bytes))
    events_end_moves(attachment, now_ns);
  moves->evicted_bytes += evicted_bytes;
  moves->restored_bytes += restored_bytes;
  moves->until_ns = now_ns;
  uint64_t most_bytes = job->used_bytes < job->room_bytes ? job->used_bytes : job->room_bytes;
  bool is_where_it_is_to_be =
      moves->evicted_bytes ? job->resident_bytes <= job->room_bytes : job->resident_bytes >= most_bytes;
  if (is_open(moves) && (is_where_it_is_to_be || now_ns - moves->since_ns >= MOVE_NS))
    events_end_moves(attachment, now_ns);
}

/* ---- GPUs ---- */

void events_on_handover(const struct attachment *attachment, uint64_t now_ns) {
  const struct sched_cost *last = &attachment->job.gpu->handover.last;
  struct gs_msg msg = event_on(attachment, GS_EVENT_HANDOVER, now_ns);
  msg.event.handover.drain_ns = last->drain_ns;
  msg.event.handover.move_ns = last->move_ns;
  msg.event.handover.evicted_bytes = last->evicted_bytes;
  msg.event.handover.restored_bytes = last->restored_bytes;
  record_add(record_of(attachment->job.gpu), &msg);
}

void events_on_turns(struct sched_gpu *gpu, uint64_t now_ns) {
  if (gpu_of(gpu)->turns_told == gpu->serialized)
    return;
  struct gs_msg msg = event_of(GS_EVENT_TURNS, gpu_of(gpu)->number, now_ns);
  msg.event.detail = gpu_of(gpu)->turns_told = gpu->serialized;
  record_add(record_of(gpu), &msg);
}

/* What a limit is for the moment comes and goes many times a second: only what it comes back to is told. */
static bool differs(const struct rates_limit *limit, const struct told *told) {
  uint64_t more = limit->limit > told->limit ? limit->limit : told->limit;
  uint64_t less = limit->limit > told->limit ? told->limit : limit->limit;
  bool passing =
      limit->why == GS_LIMITED_IDLE || limit->why == GS_LIMITED_LOOK || limit->why == GS_LIMITED_BACK;
  if (passing)
    return false;
  return limit->why != told->limited || (more - less >= LIMIT_LEAST && more - less > more / LIMIT_DIVISOR);
}

void events_on_limit(struct attachment *attachment, uint64_t now_ns) {
  struct rates_limit limit = rates_limit(rates_of(attachment), &attachment->rates);
  if (!differs(&limit, &attachment->told))
    return;
  attachment->told.limited = limit.why;
  attachment->told.limit = limit.limit;
  events_on_job(
      attachment,
      &(struct job_event){.kind = GS_EVENT_LIMIT, .detail = (uint16_t)limit.why, .bytes = limit.limit},
      now_ns);
}

/* ---- what persons and programs change ---- */

static void write_change(struct record *record, struct gs_msg *msg, uint64_t before, uint64_t value,
                         const struct peer *by) {
  msg->event.change.before = before;
  msg->event.change.value = value;
  msg->event.change.by_uid = by ? by->uid : 0;
  msg->event.change.by_pid = by ? by->pid : 0;
  record_add(record, msg);
}

void events_on_expulsion(const struct attachment *attachment, const struct peer *by, uint64_t now_ns) {
  struct gs_msg msg = event_on(attachment, GS_EVENT_EXPELLED, now_ns);
  gpu_of(attachment->job.gpu)->event_counts[GS_EVENT_EXPELLED]++;
  write_change(record_of(attachment->job.gpu), &msg, 0, attachment->job.resident_bytes, by);
}

void events_on_terms(const struct attachment *attachment, const struct sched_terms *before, uint64_t now_ns) {
  const struct daemon *daemon = daemon_with(attachment);
  for (unsigned term = 0; term < GS_TERM_COUNT; term++) {
    uint64_t was = terms_value(before, term), is = terms_value(&attachment->job.terms, term);
    struct gs_msg msg = event_on(attachment, GS_EVENT_TERM, now_ns);
    msg.event.detail = (uint16_t)term;
    if (was != is)
      write_change(record_of(attachment->job.gpu), &msg, was, is, daemon->acting);
  }
}

void events_on_setting(struct daemon *daemon, struct sched_gpu *gpu, unsigned type, uint64_t value,
                       const struct peer *by, uint64_t now_ns) {
  struct gs_msg msg = event_of(GS_EVENT_SETTING, gpu ? gpu_of(gpu)->number : GS_GPU_ALL, now_ns);
  msg.event.detail = (uint16_t)type;
  write_change(&daemon->events, &msg, 0, value, by);
}

void events_on_reload(struct daemon *daemon, uint64_t now_ns) {
  struct gs_msg msg = event_of(GS_EVENT_RELOADED, GS_GPU_ALL, now_ns);
  record_add(&daemon->events, &msg);
}
