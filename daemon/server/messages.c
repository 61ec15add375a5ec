/* messages.c - clients' messages become events of the scheduler. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/parse.h"
#include "common/wire.h"
#include "common/words.h"
#include "server/daemon.h"
#include "server/daemon_log.h"
#include "server/events.h"
#include "server/keep.h"
#include "server/shares.h"
#include "server/usage.h"
#include "shared/printable.h"

/* ---- a client comes and goes ---- */

/* Beside it a gang that has no other job. */
static const struct user_cost attachment_cost = {
    .of = {[USER_ATTACHMENTS] = 1,
           [USER_BYTES] = sizeof(struct attachment) + sizeof(struct sched_share) + sizeof(struct gang)}};

/* At the end of an event. What it has left of its orders is told at the cost of the user who has caused it.
 */
static void tell_some(struct daemon *daemon, uid_t by, uint64_t now_ns) {
  actions_tell_some(daemon, daemon->actions_per_event, now_ns);
  if (!actions_are_told(daemon))
    daemon->actions_uid = by;
}

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

static void on_register(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  if (peer->role != PEER_FRESH) {
    peer_close(peer, "REGISTER twice");
    return;
  }
  uint64_t max_jobs = clients_limit_of(daemon, peer->uid).max_jobs;
  if (peer->user->used[USER_CLIENTS] >= max_jobs || user_charge(peer->user, USER_CLIENTS, 1) < 0) {
    uint64_t share = user_share(peer->user, USER_CLIENTS);
    reject(daemon, peer, GS_REJECT_LIMIT, max_jobs < share ? max_jobs : share,
           "too many clients of this user");
    return;
  }
  peer_settle(peer, PEER_CLIENT);
  printable_copy(peer->name, msg->reg.name, sizeof peer->name);
  peer->own_pid = msg->reg.pid > 0 ? msg->reg.pid : 0;
  peer->origin = peer_find_origin(peer);
  peer->command_hash = msg->reg.command_hash;
  peer->started_ns = now_ns;
  keep_register(daemon, peer, now_ns);
  clients_add(daemon, peer);
  peer->uses_mps = msg->reg.flags & GS_REGISTER_MPS;
  shares_on_register(daemon, peer);
  peer->bounded = !peer_may_change(peer);
  clients_bound(daemon, peer);
  if (daemon->learns)
    peer->terms.learnt_ns = history_expected_ns(&daemon->history, peer->uid, peer->command_hash);
  log_for(peer->uid, LOG_LEVEL_DEBUG, "job %u: pid %d, uid %u, %s", peer->job_id, peer->pid, peer->uid,
          peer->name);
  struct gs_msg answer = wire_msg(GS_REGISTERED, 0);
  answer.registered.job = peer->job_id;
  keep_answer(daemon, peer, &answer, now_ns);
  events_on_start(daemon, peer, now_ns);
}

static void on_declare(const struct daemon *daemon, struct peer *peer, const struct gs_msg *msg,
                       uint64_t now_ns) {
  terms_declare(&peer->terms, msg);
  strcpy(peer->gang, msg->declare.gang);
  clients_bound(daemon, peer);
  clients_note_cut(peer);
  clients_apply_terms(peer, now_ns);
}

/* The program goes on without sharing this GPU, if there is one at all: the others of its GPUs are shared. */
static void refuse_gpu(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg,
                       enum gs_reject_reason reason, uint64_t retry_ns) {
  char uuid[GS_UUID_TEXT_SIZE];
  format_uuid(msg->attach.uuid, uuid);
  daemon->rejected_counts[reason]++;
  if (!peer->refusal_noted)
    log_for(peer->uid, LOG_LEVEL_WARN, "%s is refused %s: %s", label_job(peer).text, uuid,
            reason == GS_REJECT_DEVICE      ? "its process does not have the GPU's device open"
            : cards_are_all(&daemon->cards) ? "this host has no such GPU"
                                            : "there is no room for another GPU");
  peer->refusal_noted = true;
  struct gs_msg answer = wire_msg(GS_REJECTED, msg->gpu);
  answer.status = reason == GS_REJECT_DEVICE ? -EACCES : -ENODEV;
  answer.registered.job = peer->job_id;
  answer.registered.reason = reason;
  answer.registered.value = retry_ns;
  peer_send(peer, &answer);
}

static void attach(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  uint64_t retry_ns = 0;
  if (user_charge_all(peer->user, &attachment_cost) < 0) {
    reject(daemon, peer, GS_REJECT_LIMIT, user_share(peer->user, USER_ATTACHMENTS),
           "too many jobs of this user on GPUs");
    return;
  }
  struct attachment *attachment = malloc(sizeof *attachment);
  struct sched_gpu *gpu = attachment ? gpus_provide(daemon, peer, msg, now_ns, &retry_ns) : NULL;
  struct sched_share *share = gpu ? shares_provide(daemon, gpu, peer) : NULL;
  if (!share) {
    free(attachment);
    user_release_all(peer->user, &attachment_cost);
    if (retry_ns)
      refuse_gpu(daemon, peer, msg, GS_REJECT_GPU, retry_ns);
    else
      peer_close(peer, "out of memory");
    return;
  }
  gpus_enter(daemon, gpu, peer, msg, now_ns);
  clients_bound(daemon, peer); /* settings may have changed while it was on no GPU */
  evict_return(daemon, gpu, peer, now_ns);
  *attachment = (struct attachment){
      .peer = peer, .index = msg->gpu, .pass = msg->attach.pass, .told.limit = GS_LIMITED_WHOLE};
  list_init(&attachment->silent_link);
  peer->attachments[msg->gpu] = attachment;
  peer->attached = true;
  struct sched_terms terms = terms_of(&peer->terms);
  scheduler_attach(gpu, &attachment->job,
                   &(struct sched_attach){.id = peer->job_id,
                                          .owner = attachment,
                                          .used_bytes = msg->attach.used_bytes,
                                          .resident_bytes = msg->attach.resident_bytes,
                                          .flags = msg->attach.flags,
                                          .share = share,
                                          .terms = &terms},
                   now_ns, &daemon->actions);
  usage_begin(attachment, now_ns);
  actions_plan(daemon);
  actions_tell(daemon, peer, now_ns);
  rates_enter(rates_of(attachment), &attachment->rates, &attachment->job);
  clients_on_terms(attachment, &SCHED_TERMS_NONE, now_ns);
  if (attachment->job.used_bytes)
    clients_join_gang(daemon, attachment, now_ns);
}

static void on_verdict(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg,
                       enum presence_verdict verdict, uint64_t now_ns) {
  if (verdict == PRESENCE_ADMITTED)
    attach(daemon, peer, msg, now_ns);
  else if (verdict == PRESENCE_REFUSED)
    refuse_gpu(daemon, peer, msg, GS_REJECT_DEVICE, gpus_retry_ns(daemon, msg->attach.uuid, now_ns));
}

void daemon_on_presence(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg,
                        enum presence_verdict verdict, uint64_t now_ns) {
  on_verdict(daemon, peer, msg, verdict, now_ns);
  actions_tell(daemon, peer, now_ns);
  tell_some(daemon, peer->uid, now_ns);
}

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void detach(struct daemon *daemon, struct peer *peer, uint32_t index, uint64_t now_ns) {
  struct attachment *attachment = peer->attachments[index];
  status_on_detach(daemon, &attachment->job);
  peer->attachments[index] = NULL;
  peer->gpu_ns = most(peer->gpu_ns, sched_job_gpu_ns(&attachment->job, now_ns));
  peer->waited_ns = most(peer->waited_ns, sched_job_waited_ns(&attachment->job, now_ns));
  peer->turns = most(peer->turns, attachment->job.turns);
  events_end_moves(attachment, now_ns);
  events_on_job(attachment, &(struct job_event){.kind = GS_EVENT_DETACHED}, now_ns);
  usage_end_span(attachment, now_ns);
  rates_leave(rates_of(attachment), &attachment->rates, now_ns);
  list_remove(&attachment->silent_link);
  struct sched_gpu *gpu = attachment->job.gpu;
  /* What has page faults makes way by itself. */
  uint64_t stays_bytes = peer->evicted && !attachment->job.managed ? attachment->job.resident_bytes : 0;
  scheduler_detach(&attachment->job, now_ns, &daemon->actions);
  evict_leave_bytes(daemon, gpu, peer, stays_bytes, now_ns);
  shares_leave(gpu);
  clients_leave_gang(attachment);
  free(attachment);
  user_release_all(peer->user, &attachment_cost);
  gpus_leave(daemon, gpu, peer, now_ns);
}

bool daemon_on_gone(struct daemon *daemon, struct peer *peer, uint64_t now_ns) {
  keep_drop_answer(peer);
  if (peer->role == PEER_SPATIAL)
    spatial_leave(&daemon->spatial);
  if (peer->role != PEER_CLIENT)
    return true;
  unsigned gpus = 0;
  for (uint32_t i = 0; i < GS_GPUS_PER_CLIENT && gpus < 2; i++)
    if (peer->attachments[i] && gpus++ == 0)
      detach(daemon, peer, i, now_ns);
  tell_some(daemon, peer->uid, now_ns);
  if (gpus == 2) /* it is on others still */
    return false;
  if (!peer->resumed)
    history_add(&daemon->history, peer->uid, peer->command_hash, peer->gpu_ns);
  keep_end_of(daemon, peer, now_ns);
  events_on_end(daemon, peer, now_ns);
  clients_remove(daemon, peer);
  user_release(peer->user, USER_CLIENTS, 1);
  return true;
}

/* ---- messages to events ---- */

/* Whoever has memory may be waited for by others, and is given more or refused. */
static bool must_wait(struct attachment *attachment, const struct gs_msg *msg, uint64_t now_ns) {
  const struct peer *peer = attachment->peer;
  for (uint32_t i = 0; i < GS_GPUS_PER_CLIENT; i++)
    if (peer->attachments[i] && peer->attachments[i]->job.used_bytes)
      return false;
  if (!scheduler_memory_await(&attachment->job, msg->mem.total_bytes, msg->mem.pinned_bytes, now_ns,
                              &daemon_with(attachment)->actions))
    return false;
  log_for(peer->uid, LOG_LEVEL_INFO, "%s waits for memory: it says that it needs %lu bytes",
          label_job(peer).text, sched_job_expected_bytes(&attachment->job));
  return true;
}

static void note_kind(struct sched_job *job, const struct gs_msg *msg) {
  if (msg->mem.flags & GS_MEM_FIXED)
    scheduler_memory_fixed(job);
  scheduler_memory_paging(job, msg->mem.paging_bytes);
}

static void note_pinned(struct attachment *attachment, const struct gs_msg *msg) {
  memcpy(attachment->kind_bytes, msg->mem.kind_bytes, sizeof attachment->kind_bytes);
}

/* Whoever allocates does not ask for that: it takes a look at all jobs of the GPU. */
static void tell_most(const struct sched_job *job, struct gs_msg *reply) {
  struct sched_most most = sched_job_most(job);
  reply->mem_reply.knows_most = 1;
  reply->mem_reply.most_bytes = most.total_bytes;
  reply->mem_reply.most_pinned_bytes = most.pinned_bytes;
  reply->mem_reply.making_way_bytes = most.making_way_bytes;
}

/* It is within what has been granted: how much more could be had? */
static void answer_question(struct attachment *attachment, const struct gs_msg *msg, uint64_t now_ns) {
  struct daemon *daemon = daemon_with(attachment);
  struct sched_job *job = &attachment->job;
  scheduler_memory_report(job, msg->mem.total_bytes, msg->mem.pinned_bytes, now_ns, &daemon->actions);
  note_pinned(attachment, msg);
  struct gs_msg reply = actions_granted(attachment, job->reach_bytes);
  tell_most(job, &reply);
  actions_plan(daemon);
  actions_tell(daemon, attachment->peer, now_ns);
  peer_send(attachment->peer, &reply);
  events_on_memory(attachment, now_ns);
}

/* What comes of the request is told before its answer: so who may use the memory knows of its room by then.
 */
static void on_memory_request(struct attachment *attachment, const struct gs_msg *msg, uint64_t now_ns) {
  struct daemon *daemon = daemon_with(attachment);
  uint64_t granted_bytes = 0;
  struct sched_job *job = &attachment->job;
  uint64_t paging_bytes = job->paging_bytes;
  bool managed = job->managed;
  note_kind(job, msg);
  if (msg->mem.flags & GS_MEM_ASKS) {
    answer_question(attachment, msg, now_ns);
    return;
  }
  if (must_wait(attachment, msg, now_ns)) {
    note_pinned(attachment, msg);
    struct gs_msg reply = wire_msg(GS_MEM_REPLY, attachment->index);
    reply.status = -EAGAIN;
    peer_send(attachment->peer, &reply); /* before what it waits for, if that comes at once */
    return;
  }
  int status = scheduler_memory_request(job, msg->mem.total_bytes, msg->mem.pinned_bytes, now_ns,
                                        &daemon->actions, &granted_bytes);
  struct gs_msg reply = actions_granted(attachment, granted_bytes);
  reply.status = status;
  if (reply.status < 0) {
    reply.mem_reply.why = sched_job_why_refused(job, msg->mem.total_bytes, msg->mem.pinned_bytes);
    scheduler_memory_paging(job, paging_bytes);
    scheduler_memory_managed(job, managed);
    tell_most(job, &reply);
  }
  actions_plan(daemon);
  actions_tell(daemon, attachment->peer, now_ns);
  peer_send(attachment->peer, &reply);
  if (reply.status >= 0) {
    note_pinned(attachment, msg);
    events_on_memory(attachment, now_ns);
    return;
  }
  log_for(attachment->peer->uid, LOG_LEVEL_INFO, "%s is refused %lu bytes: %s",
          label_job(attachment->peer).text, msg->mem.total_bytes,
          words_refusal((enum gs_refusal)reply.mem_reply.why));
  events_on_job(attachment,
                &(struct job_event){.kind = GS_EVENT_REFUSED,
                                    .bytes = msg->mem.total_bytes,
                                    .detail = (uint16_t)reply.mem_reply.why},
                now_ns);
}

static void on_job_message(struct sched_job *job, const struct gs_msg *msg, uint64_t now_ns,
                           struct sched_change *change) {
  struct attachment *attachment = attachment_of(job);
  struct rates *rates = rates_of(attachment);
  switch (msg->type) {
  case GS_REQ_LOCK:
    if (job->state == GS_JOB_IDLE)
      events_on_job(attachment, &(struct job_event){.kind = GS_EVENT_ASKED}, now_ns);
    scheduler_request(job, now_ns, change);
    break;
  case GS_LOCK_RELEASED: {
    struct sched_release release = {.epoch = msg->epoch, .drain_ns = msg->released.drain_ns};
    if (!scheduler_release(job, &release, now_ns, change))
      break;
    events_end_moves(attachment, now_ns);
    events_on_job(
        attachment,
        &(struct job_event){.kind = GS_EVENT_RELEASED, .epoch = release.epoch, .ns = release.drain_ns},
        now_ns);
    break;
  }
  case GS_LOCK_ACTIVE: {
    struct sched_active active = {.epoch = msg->epoch,
                                  .restore_ns = msg->active.restore_ns,
                                  .restore_bytes = msg->active.restore_bytes};
    bool handover = job->gpu->handover.open;
    if (!scheduler_active(job, &active, now_ns, change))
      break;
    events_end_moves(attachment, now_ns);
    events_on_job(attachment,
                  &(struct job_event){.kind = GS_EVENT_RUNS,
                                      .epoch = active.epoch,
                                      .bytes = active.restore_bytes,
                                      .ns = active.restore_ns},
                  now_ns);
    if (handover)
      events_on_handover(attachment, now_ns);
    break;
  }
  case GS_RESIDENT: {
    struct sched_residence residence = {.resident_bytes = msg->resident.resident_bytes,
                                        .room_seq = msg->resident.room_seq,
                                        .evicted_bytes = msg->resident.evicted_bytes,
                                        .restored_bytes = msg->resident.restored_bytes,
                                        .spared_bytes = msg->resident.spared_bytes};
    attachment->copies_bytes = msg->resident.copies_bytes;
    scheduler_resident(job, &residence, now_ns, change);
    events_on_moves(attachment, residence.evicted_bytes, residence.restored_bytes, now_ns);
    break;
  }
  case GS_MEM_SHORT:
    scheduler_short(job, msg->mem_short.short_bytes, now_ns, change);
    break;
  case GS_MEM_REPORT:
    note_kind(job, msg);
    scheduler_memory_report(job, msg->mem.total_bytes, msg->mem.pinned_bytes, now_ns, change);
    note_pinned(attachment, msg);
    events_on_memory(attachment, now_ns);
    break;
  case GS_PROGRESS: {
    struct rate_progress progress = {.submissions = msg->progress.submissions,
                                     .active_ns = msg->progress.active_ns,
                                     .mark_submissions = msg->progress.mark_submissions,
                                     .mark_active_ns = msg->progress.mark_active_ns,
                                     .active = msg->progress.flags & GS_PROGRESS_ACTIVE};
    rates_on_progress(rates, &attachment->rates, &progress, now_ns);
    return;
  }
  case GS_CLIENT_STATE:
    attachment->abilities = msg->state.flags & (GS_STATE_PREEMPTS | GS_STATE_OWN_CONTEXT);
    rates_on_sliced(rates, &attachment->rates, msg->state.flags & GS_STATE_SLICES, now_ns);
    scheduler_set_flags(job, msg->state.flags);
    break;
  }
  rates_on_state(rates, &attachment->rates, now_ns);
}

static void on_gpu_message(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg,
                           uint64_t now_ns) {
  struct attachment *attachment = msg->gpu < GS_GPUS_PER_CLIENT ? peer->attachments[msg->gpu] : NULL;
  if (!attachment) {
    peer_close(peer, "a message about a GPU that is not attached");
    return;
  }
  if (msg->type == GS_REQ_LOCK || (msg->type == GS_MEM_REQUEST && msg->mem.total_bytes))
    clients_join_gang(daemon, attachment, now_ns);
  if (msg->type == GS_DETACH)
    detach(daemon, peer, msg->gpu, now_ns);
  else if (msg->type == GS_MEM_REQUEST)
    on_memory_request(attachment, msg, now_ns);
  else
    on_job_message(&attachment->job, msg, now_ns, &daemon->actions);
}

static void handle(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  if (msg->type == GS_REGISTER) {
    on_register(daemon, peer, msg, now_ns);
  } else if (msg->type == GS_ASK_SPATIAL) {
    daemon_on_ask_spatial(daemon, peer, msg);
  } else if (msg->type >= GS_SET_TQ && msg->type < GS_REPLY && peer->role != PEER_CLIENT) {
    control_on_message(daemon, peer, msg, now_ns);
  } else if (msg->type < GS_REGISTER || msg->type > GS_PROGRESS || peer->role != PEER_CLIENT) {
    peer_close(peer, "a message out of place");
  } else if (msg->type == GS_COMMAND) {
    if (*peer->command) {
      peer_close(peer, "COMMAND twice");
      return;
    }
    printable_copy(peer->command, msg->command.text, sizeof peer->command);
    events_on_command(daemon, peer, now_ns);
  } else if (msg->type == GS_EXITING) {
    peer->exits = true;
    peer->exit_status = msg->exiting.status;
  } else if (msg->type == GS_DECLARE) {
    on_declare(daemon, peer, msg, now_ns);
  } else if (msg->type == GS_ATTACH) {
    if (msg->gpu >= GS_GPUS_PER_CLIENT || peer->attachments[msg->gpu])
      peer_close(peer, "ATTACH of an impossible or attached GPU");
    else if (uuid_is_zero(msg->attach.uuid))
      peer_close(peer, "ATTACH of no GPU");
    else
      on_verdict(daemon, peer, msg, peer_check_presence(peer, msg), now_ns);
  } else {
    on_gpu_message(daemon, peer, msg, now_ns);
  }
}

/* What it has not been told yet came before what it says. */
void daemon_on_message(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  daemon->acting = peer;
  actions_tell(daemon, peer, now_ns);
  handle(daemon, peer, msg, now_ns);
  if (!daemon->scheduler.dirty) {
    actions_tell(daemon, peer, now_ns);
    tell_some(daemon, peer->uid, now_ns);
  } else if (peer->role == PEER_CLIENT && list_empty(&peer->spoke_link)) {
    list_append(&daemon->spoken, &peer->spoke_link);
  }
  daemon->acting = NULL;
}

/* As of the last message: who asks, and has it at once, has not waited. */
void daemon_plan(struct daemon *daemon, uid_t by) {
  uint64_t now_ns = daemon->scheduler.event_ns;
  struct list *first;
  scheduler_plan(&daemon->scheduler, &daemon->actions);
  while ((first = list_first(&daemon->spoken))) {
    list_remove(first);
    actions_tell(daemon, list_entry(first, struct peer, spoke_link), now_ns);
  }
  tell_some(daemon, by, now_ns);
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
                            .bounds = TERMS_UNBOUNDED,
                            .evict_after = 4,
                            .actions_per_event = ACTIONS_PER_EVENT,
                            .actions_uid = LOG_NOBODY,
                            .learns = true};
  scheduler_init(&daemon->scheduler);
  change_init(&daemon->actions);
  daemon->configured_general = daemon->scheduler.defaults;
  history_init(&daemon->history);
  record_init(&daemon->events, DAEMON_EVENTS);
  record_init(&daemon->runs, DAEMON_RUNS);
  record_init(&daemon->usage, DAEMON_USAGE);
  walk_begin(&daemon->usage_walk, &daemon->scheduler.gpus);
  gang_table_init(&daemon->gangs);
  for (size_t i = 0; i < DAEMON_CLIENT_BUCKETS; i++) {
    list_init(&daemon->clients[i]);
    list_init(&daemon->processes[i]);
  }
  list_init(&daemon->unapplied);
  list_init(&daemon->spoken);
  list_init(&daemon->returning);
  list_init(&daemon->held);
  list_init(&daemon->silent);
  list_init(&daemon->stayed);
  list_init(&daemon->allotments);
  kept_init(&daemon->kept);
}

uint64_t daemon_deadline_ns(const struct daemon *daemon) {
  if (daemon->bounding || !list_empty(&daemon->unapplied))
    return 0;
  const uint64_t all_ns[] = {gpus_deadline_ns(daemon),
                             mps_deadline_ns(&daemon->mps),
                             evict_deadline_ns(daemon),
                             keep_deadline_ns(daemon),
                             usage_deadline_ns(daemon),
                             hook_deadline_ns(&daemon->hook),
                             card_query_deadline_ns(&daemon->card_query),
                             gpus_watch_deadline_ns(daemon)};
  uint64_t next_ns = scheduler_deadline_ns(&daemon->scheduler);
  for (size_t i = 0; i < sizeof all_ns / sizeof *all_ns; i++)
    next_ns = all_ns[i] < next_ns ? all_ns[i] : next_ns;
  return next_ns;
}

void daemon_on_time(struct daemon *daemon, uint64_t now_ns) {
  if (daemon->bounding)
    clients_go_on_with_bounds(daemon, now_ns);
  gpus_on_time(daemon, now_ns);
  mps_on_time(&daemon->mps, now_ns);
  evict_on_time(daemon, now_ns);
  usage_on_time(daemon, now_ns);
  hook_on_time(&daemon->hook, now_ns);
  keep_on_time(daemon, now_ns);
  card_query_on_time(&daemon->card_query, now_ns);
  gpus_watch_on_time(daemon, now_ns);
  clients_apply_some_terms(daemon, now_ns);
  if (now_ns >= scheduler_deadline_ns(&daemon->scheduler))
    scheduler_expire(&daemon->scheduler, now_ns, &daemon->actions);
  actions_tell_some(daemon, daemon->actions_per_event, now_ns);
}

void daemon_end(struct daemon *daemon) {
  evict_end(daemon);
  kept_end(&daemon->kept);
  card_query_end(&daemon->card_query);
  card_watch_end(&daemon->card_watch);
  history_end(&daemon->history);
  record_end(&daemon->events);
  record_end(&daemon->runs);
  record_end(&daemon->usage);
  free(daemon->status.msgs);
  gpus_end(daemon);
  shares_end(daemon);
}
