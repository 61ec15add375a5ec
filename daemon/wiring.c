/* wiring.c - clients' messages become events of the scheduler. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/parse.h"
#include "common/wire.h"
#include "events.h"
#include "printable.h"

/* ---- a client comes and goes ---- */

static void reject(struct daemon *daemon, struct peer *peer, enum gs_reject_reason reason, uint64_t value,
                   const char *why) {
  daemon->rejected_counts[reason]++;
  struct gs_msg msg = wire_msg(GS_REJECTED, 0);
  msg.status = reason == GS_REJECT_VERSION ? -EPROTONOSUPPORT : -EUSERS;
  msg.registered.reason = reason;
  msg.registered.value = value;
  peer_send(peer, &msg);
  peer_close(peer, why);
}

static uint32_t new_job_id(struct daemon *daemon) {
  if (++daemon->last_job_id == 0)
    daemon->last_job_id = 1;
  return daemon->last_job_id;
}

static void on_register(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  if (peer->role != PEER_FRESH) {
    peer_close(peer, "REGISTER twice");
    return;
  }
  if (peer->user->clients >= daemon->max_clients_per_user) {
    reject(daemon, peer, GS_REJECT_LIMIT, daemon->max_clients_per_user, "too many clients of this user");
    return;
  }
  peer->user->clients++;
  daemon->client_count++;
  daemon->registered_count++;
  peer_settle(peer, PEER_CLIENT);
  peer->job_id = new_job_id(daemon);
  printable_copy(peer->name, msg->reg.name, sizeof peer->name);
  peer->own_pid = msg->reg.pid > 0 ? msg->reg.pid : 0;
  peer->origin = peer_find_origin(peer);
  peer->command_hash = msg->reg.command_hash;
  peer->started_ns = now_ns;
  peer->uses_mps = msg->reg.flags & GS_REGISTER_MPS;
  peer->terms.bounds = &daemon->bounds;
  if (daemon->learns)
    peer->terms.learnt_ns = history_expected_ns(&daemon->history, peer->uid, peer->command_hash);
  log_debug("job %u: pid %d, uid %u, %s", peer->job_id, peer->pid, peer->uid, peer->name);
  struct gs_msg answer = wire_msg(GS_REGISTERED, 0);
  answer.registered.job = peer->job_id;
  peer_send(peer, &answer);
  events_on_start(daemon, peer, now_ns);
}

static void on_command(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  if (*peer->command) {
    peer_close(peer, "COMMAND twice");
    return;
  }
  printable_copy(peer->command, msg->command.text, sizeof peer->command);
  events_on_command(daemon, peer, now_ns);
}

static void on_exiting(struct peer *peer, const struct gs_msg *msg) {
  peer->exits = true;
  peer->exit_status = msg->exiting.status;
}

static struct rates *rates_of(const struct attachment *attachment) {
  return &gpu_of(attachment->job.gpu)->rates;
}

static void apply_terms(struct attachment *attachment, uint64_t now_ns) {
  struct sched_terms terms = terms_of(&attachment->peer->terms), before = attachment->job.terms;
  struct sched_change change;
  change_init(&change);
  scheduler_set_terms(&attachment->job, &terms, now_ns, &change);
  events_on_terms(attachment, &before, now_ns);
  daemon_execute(&change, now_ns);
  rates_set_terms(rates_of(attachment), &attachment->rates, &terms, now_ns);
  events_on_limit(attachment, now_ns);
}

static void apply_changed_terms(struct attachment *attachment, uint64_t now_ns) {
  uint64_t limit_bytes = attachment->job.terms.limit_bytes;
  apply_terms(attachment, now_ns);
  if (attachment->job.terms.limit_bytes == limit_bytes)
    return;
  struct gs_msg msg = orders_attached(GS_CAPACITY, attachment);
  peer_send(attachment->peer, &msg);
}

void daemon_apply_terms(struct peer *peer, uint64_t now_ns) {
  for (uint32_t i = 0; i < GS_GPUS_PER_CLIENT; i++)
    if (peer->attachments[i])
      apply_changed_terms(peer->attachments[i], now_ns);
}

static void note_cut(struct peer *peer) {
  if (peer->cut_noted || !terms_are_cut(&peer->terms))
    return;
  struct sched_terms given = terms_of(&peer->terms);
  peer->cut_noted = true;
  log_info(
      "job %u (pid %d, %s) asks for more than programs may: it is given weight %u, priority %d and class "
      "%s (settings max_weight, max_priority and production)",
      peer->job_id, peer->pid, peer->name, given.weight, given.priority, class_name(given.class));
}

static void on_declare(struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  terms_declare(&peer->terms, msg);
  strcpy(peer->gang, msg->declare.gang);
  note_cut(peer);
  daemon_apply_terms(peer, now_ns);
}

void daemon_set_bounds(struct daemon *daemon, const struct terms_bounds *bounds, uint64_t now_ns) {
  daemon->bounds = *bounds;
  list_each(gpu_node, &daemon->scheduler.gpus) {
    list_each(node, &list_entry(gpu_node, struct sched_gpu, link)->jobs) {
      struct attachment *attachment = attachment_of(list_entry(node, struct sched_job, link));
      note_cut(attachment->peer);
      apply_terms(attachment, now_ns);
    }
  }
}

static void leave_gang(struct attachment *attachment) {
  if (attachment->gang)
    gang_table_leave(attachment->gang);
  attachment->gang = NULL;
}

static void leave(struct attachment *attachment, uint64_t now_ns, struct sched_change *change) {
  const struct peer *peer = attachment->peer;
  log_warn("job %u (pid %d, %s) is on its own on %s: its gang '%s' has another job there", peer->job_id,
           peer->pid, peer->name, attachment->job.gpu->name, attachment->gang->shown);
  scheduler_join(&attachment->job, NULL, now_ns, change);
  leave_gang(attachment);
  attachment->apart = true;
}

/* The gang's other job on this GPU; of the two, the one with less memory is on its own. False: this one is.
 */
static bool oust(struct attachment *attachment, uint64_t now_ns, struct sched_change *change) {
  list_each(node, &attachment->gang->sched.members) {
    struct attachment *other = attachment_of(list_entry(node, struct sched_job, gang_link));
    if (other->job.gpu != attachment->job.gpu)
      continue;
    if (other->job.used_bytes >= attachment->job.used_bytes)
      return false;
    leave(other, now_ns, change);
    return scheduler_join(&attachment->job, &attachment->gang->sched, now_ns, change);
  }
  return false;
}

/* As soon as it has memory there, or wants to run. Each process of a distributed program may well have a
 * context on every GPU, and use one of them. */
static void join_gang(struct daemon *daemon, struct attachment *attachment, uint64_t now_ns) {
  struct peer *peer = attachment->peer;
  if (!*peer->gang || attachment->gang || attachment->apart)
    return;
  struct sched_change change;
  change_init(&change);
  attachment->gang = gang_table_enter(&daemon->gangs, peer->uid, peer->gang);
  if (!attachment->gang)
    return;
  if (!scheduler_join(&attachment->job, &attachment->gang->sched, now_ns, &change) &&
      !oust(attachment, now_ns, &change))
    leave(attachment, now_ns, &change);
  daemon_execute(&change, now_ns);
}

/* The program goes on without sharing this GPU, if there is one at all: the others of its GPUs are shared. */
static void refuse_gpu(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg,
                       uint64_t retry_ns) {
  char uuid[GS_UUID_TEXT_SIZE];
  format_uuid(msg->attach.uuid, uuid);
  daemon->rejected_counts[GS_REJECT_GPU]++;
  if (!peer->refusal_noted)
    log_warn("job %u (pid %d, uid %u, %s) names %s: this host has no such GPU", peer->job_id, peer->pid,
             peer->uid, peer->name, uuid);
  peer->refusal_noted = true;
  struct gs_msg answer = wire_msg(GS_REJECTED, msg->gpu);
  answer.status = -ENODEV;
  answer.registered.job = peer->job_id;
  answer.registered.reason = GS_REJECT_GPU;
  answer.registered.value = retry_ns;
  peer_send(peer, &answer);
}

static void on_attach(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  if (msg->gpu >= GS_GPUS_PER_CLIENT || peer->attachments[msg->gpu]) {
    peer_close(peer, "ATTACH of an impossible or attached GPU");
    return;
  }
  uint64_t retry_ns = 0;
  struct attachment *attachment = malloc(sizeof *attachment);
  struct sched_gpu *gpu = attachment ? gpus_provide(daemon, peer, msg, now_ns, &retry_ns) : NULL;
  if (!gpu) {
    free(attachment);
    if (retry_ns)
      refuse_gpu(daemon, peer, msg, retry_ns);
    else
      peer_close(peer, "no room for another GPU");
    return;
  }
  gpus_enter(daemon, gpu, peer, msg, now_ns);
  struct sched_change change;
  change_init(&change);
  *attachment = (struct attachment){.peer = peer, .index = msg->gpu, .told.limit = GS_LIMITED_WHOLE};
  peer->attachments[msg->gpu] = attachment;
  rates_enter(&attachment->rates, &attachment->job);
  scheduler_attach(gpu, &attachment->job,
                   &(struct sched_attach){.id = peer->job_id,
                                          .owner = attachment,
                                          .used_bytes = msg->attach.used_bytes,
                                          .resident_bytes = msg->attach.resident_bytes,
                                          .flags = msg->attach.flags},
                   now_ns, &change);
  daemon_execute(&change, now_ns);
  apply_terms(attachment, now_ns);
  if (attachment->job.used_bytes)
    join_gang(daemon, attachment, now_ns);
}

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void note_times(struct peer *peer, const struct sched_job *job, uint64_t now_ns) {
  peer->gpu_ns = most(peer->gpu_ns, sched_job_gpu_ns(job, now_ns));
  peer->waited_ns = most(peer->waited_ns, sched_job_waited_ns(job, now_ns));
  peer->turns = most(peer->turns, job->turns);
}

static void detach(struct daemon *daemon, struct peer *peer, uint32_t index, uint64_t now_ns) {
  struct attachment *attachment = peer->attachments[index];
  struct sched_gpu *gpu = attachment->job.gpu;
  struct sched_change change;
  change_init(&change);
  peer->attachments[index] = NULL;
  note_times(peer, &attachment->job, now_ns);
  events_end_moves(attachment, now_ns);
  events_on_job(attachment, &(struct job_event){.kind = GS_EVENT_DETACHED}, now_ns);
  rates_leave(rates_of(attachment), &attachment->rates, now_ns);
  scheduler_detach(&attachment->job, now_ns, &change);
  leave_gang(attachment);
  free(attachment);
  daemon_execute(&change, now_ns);
  gpus_leave(daemon, gpu, peer, now_ns);
}

void daemon_on_gone(struct daemon *daemon, struct peer *peer, uint64_t now_ns) {
  if (peer->role == PEER_SPATIAL)
    spatial_leave(&daemon->spatial);
  if (peer->role != PEER_CLIENT)
    return;
  for (uint32_t i = 0; i < GS_GPUS_PER_CLIENT; i++)
    if (peer->attachments[i])
      detach(daemon, peer, i, now_ns);
  history_add(&daemon->history, peer->uid, peer->command_hash, peer->gpu_ns);
  events_on_end(daemon, peer, now_ns);
  peer->user->clients--;
  daemon->client_count--;
}

/* ---- messages to events ---- */

static void note_refusal(struct attachment *attachment, const struct gs_msg *msg, enum gs_refusal why,
                         uint64_t now_ns) {
  static const char *const words[] = {
      [GS_REFUSAL_UNKNOWN] = "",
      [GS_REFUSAL_LIMIT] = "its memory limit is less",
      [GS_REFUSAL_CAPACITY] =
          "without page faults all of it must fit the GPU, beside what others have pinned",
      [GS_REFUSAL_PINNED] = "it can't leave the card, and others' pinned memory neither",
      [GS_REFUSAL_SPENT] = "card and host memory are spent",
  };
  const struct peer *peer = attachment->peer;
  log_info("job %u (pid %d, %s) is refused %lu bytes: %s", peer->job_id, peer->pid, peer->name,
           msg->mem.total_bytes, words[why]);
  events_on_job(
      attachment,
      &(struct job_event){.kind = GS_EVENT_REFUSED, .bytes = msg->mem.total_bytes, .detail = (uint16_t)why},
      now_ns);
}

static bool has_memory(const struct peer *peer) {
  for (uint32_t i = 0; i < GS_GPUS_PER_CLIENT; i++)
    if (peer->attachments[i] && peer->attachments[i]->job.used_bytes)
      return true;
  return false;
}

/* Whoever has memory may be waited for by others, and is given more or refused. */
static bool must_wait(struct attachment *attachment, const struct gs_msg *msg) {
  const struct peer *peer = attachment->peer;
  if (has_memory(peer) ||
      !scheduler_memory_await(&attachment->job, msg->mem.total_bytes, msg->mem.pinned_bytes))
    return false;
  log_info("job %u (pid %d, %s) waits for memory: it says that it needs %lu bytes", peer->job_id, peer->pid,
           peer->name, sched_job_expected_bytes(&attachment->job));
  return true;
}

/* What comes of the request is told before its answer: so who may use the memory knows of its room by then.
 */
static void on_memory_request(struct attachment *attachment, const struct gs_msg *msg, uint64_t now_ns) {
  struct sched_change change;
  uint64_t granted_bytes = 0;
  change_init(&change);
  struct gs_msg reply = wire_msg(GS_MEM_REPLY, attachment->index);
  uint64_t paging_bytes = attachment->job.paging_bytes;
  scheduler_memory_paging(&attachment->job, msg->mem.paging_bytes);
  if (must_wait(attachment, msg)) {
    reply.status = -EAGAIN;
    peer_send(attachment->peer, &reply);
    return;
  }
  reply.status = scheduler_memory_request(&attachment->job, msg->mem.total_bytes, msg->mem.pinned_bytes,
                                          now_ns, &change, &granted_bytes);
  reply.mem_reply.granted_bytes = granted_bytes;
  if (reply.status < 0) {
    reply.mem_reply.why =
        sched_job_why_refused(&attachment->job, msg->mem.total_bytes, msg->mem.pinned_bytes);
    scheduler_memory_paging(&attachment->job, paging_bytes);
  }
  daemon_execute(&change, now_ns);
  peer_send(attachment->peer, &reply);
  if (reply.status < 0)
    note_refusal(attachment, msg, (enum gs_refusal)reply.mem_reply.why, now_ns);
  else
    events_on_memory(attachment, now_ns);
}

static void on_request(struct sched_job *job, uint64_t now_ns, struct sched_change *change) {
  if (job->state == GS_JOB_IDLE)
    events_on_job(attachment_of(job), &(struct job_event){.kind = GS_EVENT_ASKED}, now_ns);
  scheduler_request(job, now_ns, change);
}

static void on_released(struct sched_job *job, const struct gs_msg *msg, uint64_t now_ns,
                        struct sched_change *change) {
  struct sched_release release = {.epoch = msg->epoch, .drain_ns = msg->released.drain_ns};
  struct attachment *attachment = attachment_of(job);
  if (!scheduler_release(job, &release, now_ns, change))
    return;
  attachment->told.stop = false;
  events_end_moves(attachment, now_ns);
  events_on_job(
      attachment,
      &(struct job_event){.kind = GS_EVENT_RELEASED, .epoch = release.epoch, .ns = release.drain_ns}, now_ns);
}

static void on_stopped(struct sched_job *job, const struct gs_msg *msg, uint64_t now_ns,
                       struct sched_change *change) {
  struct sched_stop stop = {.epoch = msg->epoch,
                            .calls = msg->stopped.calls,
                            .round = msg->stopped.round,
                            .drained = msg->stopped.drained};
  scheduler_stopped(job, &stop, now_ns, change);
}

static void on_active(struct sched_job *job, const struct gs_msg *msg, uint64_t now_ns,
                      struct sched_change *change) {
  struct sched_active active = {
      .epoch = msg->epoch, .restore_ns = msg->active.restore_ns, .restore_bytes = msg->active.restore_bytes};
  struct attachment *attachment = attachment_of(job);
  bool handover = job->gpu->handover.open;
  if (!scheduler_active(job, &active, now_ns, change))
    return;
  events_end_moves(attachment, now_ns);
  events_on_job(attachment,
                &(struct job_event){.kind = GS_EVENT_RUNS,
                                    .epoch = active.epoch,
                                    .bytes = active.restore_bytes,
                                    .ns = active.restore_ns},
                now_ns);
  if (handover)
    events_on_handover(attachment, now_ns);
}

static void on_resident(struct sched_job *job, const struct gs_msg *msg, uint64_t now_ns,
                        struct sched_change *change) {
  struct sched_residence residence = {.resident_bytes = msg->resident.resident_bytes,
                                      .room_seq = msg->resident.room_seq,
                                      .evicted_bytes = msg->resident.evicted_bytes,
                                      .restored_bytes = msg->resident.restored_bytes};
  scheduler_resident(job, &residence, now_ns, change);
  events_on_moves(attachment_of(job), residence.evicted_bytes, residence.restored_bytes, now_ns);
}

static void on_memory_report(struct sched_job *job, const struct gs_msg *msg, uint64_t now_ns,
                             struct sched_change *change) {
  scheduler_memory_paging(job, msg->mem.paging_bytes);
  scheduler_memory_report(job, msg->mem.total_bytes, msg->mem.pinned_bytes, now_ns, change);
  events_on_memory(attachment_of(job), now_ns);
}

static void on_job_message(struct sched_job *job, const struct gs_msg *msg, uint64_t now_ns) {
  struct sched_change change;
  change_init(&change);
  switch (msg->type) {
  case GS_REQ_LOCK:
    on_request(job, now_ns, &change);
    break;
  case GS_LOCK_RELEASED:
    on_released(job, msg, now_ns, &change);
    break;
  case GS_LOCK_ACTIVE:
    on_active(job, msg, now_ns, &change);
    break;
  case GS_RESIDENT:
    on_resident(job, msg, now_ns, &change);
    break;
  case GS_MEM_SHORT:
    scheduler_short(job, msg->mem_short.short_bytes, now_ns, &change);
    break;
  case GS_MEM_REPORT:
    on_memory_report(job, msg, now_ns, &change);
    break;
  case GS_STOPPED:
    on_stopped(job, msg, now_ns, &change);
    break;
  case GS_CLIENT_STATE:
    scheduler_set_flags(job, msg->state.flags);
    break;
  }
  daemon_execute(&change, now_ns);
}

static void on_gpu_message(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg,
                           uint64_t now_ns) {
  struct attachment *attachment = msg->gpu < GS_GPUS_PER_CLIENT ? peer->attachments[msg->gpu] : NULL;
  if (!attachment) {
    peer_close(peer, "a message about a GPU that is not attached");
    return;
  }
  if (msg->type == GS_REQ_LOCK || (msg->type == GS_MEM_REQUEST && msg->mem.total_bytes))
    join_gang(daemon, attachment, now_ns);
  if (msg->type == GS_DETACH)
    detach(daemon, peer, msg->gpu, now_ns);
  else if (msg->type == GS_MEM_REQUEST)
    on_memory_request(attachment, msg, now_ns);
  else
    on_job_message(&attachment->job, msg, now_ns);
}

static bool is_control(unsigned type) { return type >= GS_SET_TQ && type <= GS_GET_EVENTS; }

static bool is_from_client(unsigned type) { return type >= GS_REGISTER && type <= GS_EXITING; }

static void handle(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  if (msg->type == GS_REGISTER)
    on_register(daemon, peer, msg, now_ns);
  else if (msg->type == GS_ASK_SPATIAL)
    daemon_on_ask_spatial(daemon, peer, msg);
  else if (is_control(msg->type) && peer->role != PEER_CLIENT)
    control_on_message(daemon, peer, msg, now_ns);
  else if (!is_from_client(msg->type) || peer->role != PEER_CLIENT)
    peer_close(peer, "a message out of place");
  else if (msg->type == GS_COMMAND)
    on_command(daemon, peer, msg, now_ns);
  else if (msg->type == GS_EXITING)
    on_exiting(peer, msg);
  else if (msg->type == GS_DECLARE)
    on_declare(peer, msg, now_ns);
  else if (msg->type == GS_ATTACH)
    on_attach(daemon, peer, msg, now_ns);
  else
    on_gpu_message(daemon, peer, msg, now_ns);
}

void daemon_on_message(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  daemon->acting = peer;
  handle(daemon, peer, msg, now_ns);
  daemon->acting = NULL;
}

void daemon_on_bad_message(struct daemon *daemon, struct peer *peer, int error) {
  if (error == -EPROTONOSUPPORT)
    reject(daemon, peer, GS_REJECT_VERSION, GS_PROTOCOL_VERSION, "another protocol version");
  else
    peer_close(peer, error == -EBADMSG ? "not a message" : "an unknown message");
}

/* ---- time ---- */

void daemon_init(struct daemon *daemon, uint64_t now_ns) {
  *daemon = (struct daemon){.started_ns = now_ns,
                            .started_realtime_ns = clock_realtime_ns(),
                            .max_clients_per_user = 2048,
                            .bounds = TERMS_UNBOUNDED,
                            .learns = true};
  scheduler_init(&daemon->scheduler);
  history_init(&daemon->history);
  record_init(&daemon->events, DAEMON_EVENTS);
  record_init(&daemon->runs, DAEMON_RUNS);
  list_init(&daemon->gangs);
}

uint64_t daemon_deadline_ns(const struct daemon *daemon) {
  uint64_t next_ns = scheduler_deadline_ns(&daemon->scheduler), tick_ns = gpus_deadline_ns(daemon);
  uint64_t mps_ns = mps_deadline_ns(&daemon->mps), query_ns = card_query_deadline_ns(&daemon->card_query);
  next_ns = tick_ns < next_ns ? tick_ns : next_ns;
  next_ns = query_ns < next_ns ? query_ns : next_ns;
  return mps_ns < next_ns ? mps_ns : next_ns;
}

void daemon_on_time(struct daemon *daemon, uint64_t now_ns) {
  struct sched_change change;
  gpus_on_time(daemon, now_ns);
  mps_on_time(&daemon->mps, now_ns);
  card_query_on_time(&daemon->card_query, now_ns);
  if (now_ns < scheduler_deadline_ns(&daemon->scheduler))
    return;
  change_init(&change);
  scheduler_expire(&daemon->scheduler, now_ns, &change);
  daemon_execute(&change, now_ns);
}

void daemon_end(struct daemon *daemon) {
  card_query_end(&daemon->card_query);
  history_end(&daemon->history);
  record_end(&daemon->events);
  record_end(&daemon->runs);
  gpus_end(daemon);
}
