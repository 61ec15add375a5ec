/* actions.c - the scheduler's decisions become messages to clients, and events. */
#include <errno.h>
#include <string.h>

#include "common/wire.h"
#include "server/daemon.h"
#include "server/daemon_log.h"
#include "server/events.h"
#include "server/shares.h"

/* To a program with a limit the GPU is not larger than that. */
static uint64_t capacity_bytes(const struct attachment *attachment) {
  uint64_t usable_bytes = sched_job_usable_bytes(&attachment->job);
  const struct sched_share *share = attachment->job.share;
  const uint64_t limits_bytes[] = {terms_of(&attachment->peer->terms).limit_bytes,
                                   share_is_allotted(share) ? share->max_bytes : 0};
  for (size_t i = 0; i < sizeof limits_bytes / sizeof *limits_bytes; i++)
    if (limits_bytes[i] && limits_bytes[i] < usable_bytes)
      usable_bytes = limits_bytes[i];
  return usable_bytes;
}

struct gs_msg actions_attached(enum gs_msg_type type, const struct attachment *attachment) {
  const struct sched_gpu *gpu = attachment->job.gpu;
  struct gs_msg msg = wire_msg(type, attachment->index);
  msg.attached.capacity_bytes = capacity_bytes(attachment);
  msg.attached.mode = gpu->settings.mode;
  msg.attached.memory = gpu->settings.memory;
  msg.attached.host_tight = gpu->scheduler->host_tight;
  msg.attached.host_copies = daemon_of(gpu->scheduler)->host_copies;
  msg.attached.limited = msg.attached.capacity_bytes < sched_job_usable_bytes(&attachment->job);
  return msg;
}

/* ---- to whom memory that leaves is passed ---- */

/* Each of a set of holders that lack memory will do: so many are looked at, those granted last first. And so
 * many that leave, those that have for longest. */
#define COMERS_LOOKED_AT 16
#define LEAVING_LOOKED_AT 64

/* The driver clears memory that one program gives back before another one has it; what is passed nobody
 * clears. So it stays with the same user, and in the same container: what is in no container that is known
 * may be in one that the daemon can't see. */
static bool may_pass(const struct attachment *from, const struct attachment *to) {
  const struct origin *a = &from->peer->origin, *b = &to->peer->origin;
  return from->peer != to->peer && from->peer->uid == to->peer->uid && to->peer->own_pid && to->pass.name &&
         !from->job.managed && !to->job.managed && a->kind == b->kind && strcmp(a->name, b->name) == 0 &&
         strcmp(a->container, b->container) == 0 && (*a->container || (from->peer->near && to->peer->near));
}

static bool is_coming(const struct sched_job *job) {
  return job->state == GS_JOB_HOLDING && sched_job_lacking_bytes(job) > 0;
}

/* A holder whose memory comes in; NULL: none that this one may pass memory to. */
static const struct attachment *comer_for(const struct attachment *leaving) {
  const struct sched_gpu *gpu = leaving->job.gpu;
  unsigned looks = COMERS_LOOKED_AT;
  if (!gpu->serialized)
    return NULL;
  list_each_back(node, &gpu->holders) {
    const struct sched_job *job = list_entry(node, struct sched_job, turn);
    if (looks-- == 0)
      break;
    if (is_coming(job) && may_pass(leaving, attachment_of(job)))
      return attachment_of(job);
  }
  return NULL;
}

/* Jobs that are leaving already hear of the one that comes. */
static void tell_leaving(const struct attachment *comer) {
  const struct sched_gpu *gpu = comer->job.gpu;
  unsigned looks = LEAVING_LOOKED_AT;
  if (!gpu->serialized || !is_coming(&comer->job))
    return;
  list_each(node, &gpu->leaving) {
    if (looks-- == 0)
      break;
    struct sched_job *job = list_entry(node, struct sched_job, leaving_link);
    const struct attachment *leaving = attachment_of(job);
    if (leaving->passes_to != comer->pass.name && may_pass(leaving, comer))
      scheduler_tell_room(job, &daemon_of(gpu->scheduler)->actions);
  }
}

/* ---- messages ---- */

static struct gs_msg turn_msg(enum gs_msg_type type, struct attachment *attachment,
                              const struct sched_action *action) {
  struct gs_msg msg = wire_msg(type, attachment->index);
  msg.epoch = action->epoch;
  msg.room.room_bytes = action->room_bytes;
  msg.room.room_seq = action->room_seq;
  msg.room.target_bytes = action->target_bytes;
  if (type == GS_LOCK_OK) {
    msg.room.quantum_ns = action->quantum_ns;
    msg.room.steps = action->steps;
  }
  bool leaves = action->room_bytes < attachment->job.resident_bytes;
  const struct attachment *comer = leaves ? comer_for(attachment) : NULL;
  attachment->passes_to = comer ? comer->pass.name : 0;
  if (comer) {
    msg.room.pass = comer->pass;
    msg.room.pass_pid = comer->peer->own_pid;
  }
  return msg;
}

/* What a person may want to know about a job. */
static void note(const struct attachment *attachment, const char *format) {
  log_for(attachment->peer->uid, LOG_LEVEL_WARN, format, label_job(attachment->peer).text);
}

/* NULL: nobody is. */
static void tell_in_the_way(const struct sched_job *job) {
  if (!job)
    return;
  struct gs_msg msg = actions_attached(GS_CAPACITY, attachment_of(job));
  msg.attached.in_the_way = 1;
  peer_send(attachment_of(job)->peer, &msg);
}

static void write_kind(struct attachment *attachment, enum gs_event_kind kind, bool detail, uint64_t now_ns) {
  events_on_job(attachment, &(struct job_event){.kind = kind, .detail = detail}, now_ns);
}

struct gs_msg actions_granted(const struct attachment *attachment, uint64_t granted_bytes) {
  struct gs_msg reply = wire_msg(GS_MEM_REPLY, attachment->index);
  reply.mem_reply.granted_bytes = granted_bytes;
  reply.mem_reply.pinned_bytes = attachment->job.pinned_reach_bytes;
  return reply;
}

/* The client is told, and what happens is written down. */
static void carry_out(const struct sched_action *action, uint64_t now_ns) {
  struct attachment *attachment = attachment_of(action->job);
  struct gs_msg msg;
  switch (action->type) {
  case SCHED_TELL_ATTACHED:
    msg = actions_attached(GS_ATTACHED, attachment);
    write_kind(attachment, GS_EVENT_ATTACHED, action->job->active, now_ns);
    break;
  case SCHED_TELL_CAPACITY:
    msg = actions_attached(GS_CAPACITY, attachment);
    break;
  case SCHED_TELL_SCHED:
    msg = wire_msg(action->job->gpu->serialized ? GS_SCHED_ON : GS_SCHED_OFF, attachment->index);
    events_on_turns(action->job->gpu, now_ns);
    break;
  case SCHED_TELL_LOCK_OK:
    msg = turn_msg(GS_LOCK_OK, attachment, action);
    tell_leaving(attachment);
    events_expect_moves(attachment, now_ns);
    events_on_job(attachment,
                  &(struct job_event){.kind = GS_EVENT_GRANTED,
                                      .detail = action->took_over,
                                      .epoch = action->epoch,
                                      .bytes = sched_job_lacking_bytes(action->job),
                                      .ns = action->quantum_ns},
                  now_ns);
    break;
  case SCHED_TELL_LOCK_WANTED:
    msg = wire_msg(GS_LOCK_WANTED, attachment->index);
    msg.epoch = action->epoch;
    msg.wanted.left_ns = action->wanted ? GS_LEFT_UNKNOWN : GS_LEFT_NOBODY;
    break;
  case SCHED_TELL_DROP_LOCK:
    msg = turn_msg(GS_DROP_LOCK, attachment, action);
    events_on_job(
        attachment,
        &(struct job_event){.kind = GS_EVENT_DROP, .epoch = action->epoch, .bytes = action->room_bytes},
        now_ns);
    break;
  case SCHED_TELL_ROOM:
    msg = turn_msg(GS_ROOM, attachment, action);
    msg.epoch = 0;
    events_expect_moves(attachment, now_ns);
    break;
  case SCHED_TELL_MEMORY:
    msg = actions_granted(attachment, action->granted_bytes);
    if (action->granted_bytes) {
      events_on_memory(attachment, now_ns);
      break;
    }
    msg.status = -ENOMEM; /* of a job that waited for its first memory */
    msg.mem_reply.why =
        sched_job_why_refused(action->job, action->job->entry.total_bytes, action->job->entry.pinned_bytes);
    events_on_job(attachment,
                  &(struct job_event){.kind = GS_EVENT_REFUSED,
                                      .bytes = action->job->entry.total_bytes,
                                      .detail = (uint16_t)msg.mem_reply.why},
                  now_ns);
    break;
  case SCHED_NOTE_BYPASSED:
    note(attachment, "%s has not answered DROP_LOCK within the grace: others go on without it");
    write_kind(attachment, GS_EVENT_SILENT, false, now_ns);
    return;
  case SCHED_NOTE_OVERDUE:
    note(attachment,
         "%s has not answered DROP_LOCK within the grace: others wait, because its memory is not managed");
    write_kind(attachment, GS_EVENT_SILENT, true, now_ns);
    evict_watch(attachment, now_ns);
    return;
  case SCHED_NOTE_STAYS:
    note(attachment, "%s does not leave the card's memory: others are asked instead");
    write_kind(attachment, GS_EVENT_STAYS, false, now_ns);
    return;
  case SCHED_NOTE_TOO_BIG:
    note(attachment,
         "%s uses more memory than the GPU has for it: it waits until there is more, others go on");
    write_kind(attachment, GS_EVENT_TOO_BIG, false, now_ns);
    tell_in_the_way(sched_job_kept_by(action->job));
    return;
  default:
    return;
  }
  peer_send(attachment->peer, &msg);
}

static void tell_job(struct sched_job *job, uint64_t now_ns) {
  struct sched_action action;
  while (change_next_of(job, &action))
    carry_out(&action, now_ns);
  rates_on_state(&gpu_of(job->gpu)->rates, &attachment_of(job)->rates, now_ns);
}

/* A process that is stopped leaves them unread: it does not lose its place for as many as there may come. */
bool actions_tell_share(struct rates_job *job, uint64_t now_ns) {
  struct attachment *attachment = list_entry(job, struct attachment, rates);
  if (peer_is_behind(attachment->peer))
    return false;
  struct gs_msg msg = wire_msg(GS_SHARE, attachment->index);
  msg.share.share_ppm = job->told.share_ppm;
  msg.share.slice_us = job->told.slice_us;
  msg.share.watch = job->told.watch;
  peer_send(attachment->peer, &msg);
  events_on_limit(attachment, now_ns);
  return true;
}

void actions_tell(struct daemon *daemon, struct peer *client, uint64_t now_ns) {
  for (uint32_t i = 0; i < GS_GPUS_PER_CLIENT && !actions_are_told(daemon); i++)
    if (client->attachments[i])
      tell_job(&client->attachments[i]->job, now_ns);
}

void actions_tell_some(struct daemon *daemon, unsigned jobs, uint64_t now_ns) {
  struct sched_job *job;
  while (jobs-- > 0 && (job = change_first(&daemon->actions)))
    tell_job(job, now_ns);
}

void actions_plan(struct daemon *daemon) {
  if (daemon->scheduler.dirty)
    scheduler_plan(&daemon->scheduler, &daemon->actions);
}
