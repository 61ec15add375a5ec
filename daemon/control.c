/* control.c - what gpusharectl asks for: status, and changes of settings by those who may. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/parse.h"
#include "common/wire.h"
#include "events.h"

/* A status costs the daemon as much as so many messages of one job. */
#define STATUS_COST_DIVISOR 16
#define NOT_PERMITTED                                                                                        \
  "not permitted: be root, the daemon's user, or in the group of its setting 'group'; in no container"

static void reply(struct peer *peer, int status, const char *text) {
  struct gs_msg msg = wire_msg(GS_REPLY, GS_GPU_ALL);
  msg.status = status;
  strncpy(msg.reply.text, text, sizeof msg.reply.text - 1);
  peer_send(peer, &msg);
}

static void send_status(struct daemon *daemon, struct peer *peer, uint64_t now_ns) {
  size_t count;
  struct gs_msg *msgs = status_collect(daemon, now_ns, &count);
  if (!msgs) {
    reply(peer, -ENOMEM, "the daemon is out of memory");
    return;
  }
  uint64_t cost = count / STATUS_COST_DIVISOR;
  peer->tokens -= cost < peer->tokens ? cost : peer->tokens;
  peer_send_many(peer, msgs, count);
}

static struct gs_msg events_begin(const struct record *record, uint64_t now_ns) {
  struct gs_msg msg = wire_msg(GS_EVENTS_BEGIN, GS_GPU_ALL);
  msg.events.now_ns = now_ns;
  msg.events.realtime_ns = clock_realtime_ns();
  msg.events.next_seq = record->next_seq;
  return msg;
}

/* Of those that are asked for; those that it has missed count if it names a number. */
static uint64_t from_seq(const struct record *record, const struct gs_msg *msg, uint64_t now_ns) {
  uint64_t age_ns = msg->get_events.age_ns, seq = msg->get_events.from_seq;
  uint64_t first_seq = age_ns && age_ns < now_ns ? record_find(record, now_ns - age_ns) : 0;
  if (seq == 0 && first_seq == 0)
    return record_first_seq(record);
  if (seq < first_seq)
    return first_seq;
  return seq < record->next_seq ? seq : record->next_seq;
}

static void send_events(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  const struct record *record = msg->get_events.record == GS_RECORD_RUNS ? &daemon->runs : &daemon->events;
  struct gs_msg begin = events_begin(record, now_ns);
  int err = peer_read(peer, record, from_seq(record, msg, now_ns), msg->get_events.follow);
  if (err < 0)
    reply(peer, err, "this user follows too many events already: end one of the others");
  else
    peer_send(peer, &begin);
}

static bool names_all(const uint8_t uuid[GS_UUID_SIZE]) {
  static const uint8_t zero[GS_UUID_SIZE];
  return memcmp(uuid, zero, sizeof zero) == 0;
}

/* NULL, or what is wrong with the value. */
static const char *value_wrong(const struct gs_msg *msg, const struct sched_gpu *gpu) {
  if (msg->type == GS_SET_TQ)
    return msg->set.value != SCHED_TQ_AUTO && (msg->set.value < GS_TQ_MIN_NS || msg->set.value > GS_TQ_MAX_NS)
               ? "the quantum must be auto, or from " TQ_RANGE
               : NULL;
  if (msg->type == GS_SET_MODE)
    return msg->set.value > GS_MODE_OFF ? "the mode must be auto, on or off" : NULL;
  if (msg->type == GS_SET_POLICY)
    return msg->set.value > GS_POLICY_PACK ? "the policy must be " POLICY_NAMES : NULL;
  return gpu && gpu->total_bytes && msg->set.value > gpu->total_bytes
             ? "the capacity is more than the card has: 0 takes all of it"
             : NULL;
}

/* A GPU that is forgotten while nobody uses it gets its settings again when it comes back. */
static void keep(struct daemon *daemon, const struct sched_gpu *gpu, const struct gs_msg *msg) {
  unsigned field = msg->type == GS_SET_TQ       ? OVERRIDE_TQ
                   : msg->type == GS_SET_MODE   ? OVERRIDE_MODE
                   : msg->type == GS_SET_POLICY ? OVERRIDE_POLICY
                                                : OVERRIDE_CAPACITY;
  if (!gpu) {
    overrides_clear(&daemon->overrides, field);
    return;
  }
  struct override *own = overrides_provide(&daemon->overrides, gpu->uuid);
  if (!own)
    return;
  own->fields |= field;
  if (field == OVERRIDE_TQ)
    own->settings.tq_ns = gpu->settings.tq_ns;
  else if (field == OVERRIDE_MODE)
    own->settings.mode = gpu->settings.mode;
  else if (field == OVERRIDE_POLICY)
    own->settings.policy = gpu->settings.policy;
  else
    own->settings.capacity_bytes = gpu->settings.capacity_bytes;
}

static void set(struct daemon *daemon, struct sched_gpu *gpu, const struct gs_msg *msg, uint64_t now_ns) {
  struct sched_change change;
  change_init(&change);
  if (msg->type == GS_SET_TQ)
    scheduler_set_tq(&daemon->scheduler, gpu, msg->set.value, now_ns, &change);
  else if (msg->type == GS_SET_MODE)
    scheduler_set_mode(&daemon->scheduler, gpu, (enum gs_mode)msg->set.value, now_ns, &change);
  else if (msg->type == GS_SET_POLICY)
    scheduler_set_policy(&daemon->scheduler, gpu, (enum gs_policy)msg->set.value, now_ns, &change);
  else
    scheduler_set_capacity(&daemon->scheduler, gpu, msg->set.value, now_ns, &change);
  keep(daemon, gpu, msg);
  daemon_execute(&change, now_ns);
}

static void on_set(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  if (!peer_may_change(peer)) {
    reply(peer, -EACCES, NOT_PERMITTED);
    return;
  }
  bool all = names_all(msg->set.uuid);
  struct sched_gpu *gpu = all ? NULL : scheduler_find_gpu(&daemon->scheduler, msg->set.uuid);
  if (!all && !gpu) {
    reply(peer, -ENOENT,
          daemon->cards.source == CARDS_UNKNOWN ? "no program has used this GPU yet: see gpusharectl status"
                                                : "this host has no such GPU: see gpusharectl status");
    return;
  }
  const char *wrong = value_wrong(msg, gpu);
  if (wrong) {
    reply(peer, -EINVAL, wrong);
    return;
  }
  log_info("%s %lu for %s, by uid %u (pid %d)", wire_type_name(msg->type), msg->set.value,
           all ? "all GPUs" : gpu->name, peer->uid, peer->pid);
  events_on_setting(daemon, gpu, msg->type, msg->set.value, peer, now_ns);
  set(daemon, gpu, msg, now_ns);
  reply(peer, 0, "");
}

/* NULL: there is none. */
static struct peer *find_client(const struct daemon *daemon, uint32_t job_id) {
  list_each(gpu_node, &daemon->scheduler.gpus) {
    list_each(node, &list_entry(gpu_node, struct sched_gpu, link)->jobs) {
      const struct sched_job *job = list_entry(node, struct sched_job, link);
      if (job->id == job_id)
        return attachment_of(job)->peer;
    }
  }
  return NULL;
}

static bool is_rate_for_nothing(const struct peer *client, const struct gs_msg *msg) {
  return msg->set_terms.term == GS_TERM_RATE && msg->set_terms.value > 0 &&
         terms_of(&client->terms).class != GS_CLASS_OPPORTUNISTIC;
}

static const char *owner_may_not(const struct gs_msg *msg) {
  if (msg->set_terms.term == GS_TERM_RATE)
    return NOT_PERMITTED;
  return msg->set_terms.term == GS_TERM_PAUSED
             ? "not permitted: somebody has paused it who may change settings"
             : "not permitted: its owner may only ask for less";
}

/* 0, or -errno and why. client: NULL if there is none. */
static int check_terms(const struct peer *peer, const struct peer *client, const struct gs_msg *msg,
                       const char **why) {
  if ((*why = terms_wrong(msg)))
    return -EINVAL;
  if (!client) {
    *why = "there is no such job: see gpusharectl status";
    return -ENOENT;
  }
  if (is_rate_for_nothing(client, msg)) {
    *why = "only opportunistic jobs have a rate: see gpusharectl set-class";
    return -EINVAL;
  }
  if (peer_may_change(peer) || (peer->uid == client->uid && terms_owner_may(&client->terms, msg)))
    return 0;
  *why = peer->uid == client->uid ? owner_may_not(msg) : NOT_PERMITTED;
  return -EACCES;
}

static void set_terms(const struct peer *peer, struct peer *client, const struct gs_msg *msg,
                      uint64_t now_ns) {
  log_info("SET_TERMS %u to %ld for job %u (pid %d, %s), by uid %u (pid %d)", msg->set_terms.term,
           (long)msg->set_terms.value, client->job_id, client->pid, client->name, peer->uid, peer->pid);
  terms_set(&client->terms, msg, !peer_may_change(peer));
  daemon_apply_terms(client, now_ns);
}

/* Those that hold together are paused together, and go on together: as far as that is permitted. */
static void set_for_gang(const struct peer *peer, const struct gang *gang, const struct gs_msg *msg,
                         uint64_t now_ns) {
  list_each(node, &gang->sched.members) {
    struct peer *member = attachment_of(list_entry(node, struct sched_job, gang_link))->peer;
    const char *why;
    bool differs = terms_of(&member->terms).paused != msg->set_terms.value;
    if (differs && check_terms(peer, member, msg, &why) == 0)
      set_terms(peer, member, msg, now_ns);
  }
}

static void set_for_gangs(const struct peer *peer, const struct peer *client, const struct gs_msg *msg,
                          uint64_t now_ns) {
  for (uint32_t i = 0; i < GS_GPUS_PER_CLIENT; i++)
    if (client->attachments[i] && client->attachments[i]->gang)
      set_for_gang(peer, client->attachments[i]->gang, msg, now_ns);
}

static void on_set_terms(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg,
                         uint64_t now_ns) {
  struct peer *client = find_client(daemon, msg->set_terms.job);
  const char *why;
  int err = check_terms(peer, client, msg, &why);
  if (err < 0) {
    reply(peer, err, why);
    return;
  }
  set_terms(peer, client, msg, now_ns);
  if (msg->set_terms.term == GS_TERM_PAUSED)
    set_for_gangs(peer, client, msg, now_ns);
  reply(peer, 0, "");
}

void control_on_message(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  if (peer->role == PEER_FRESH)
    peer_settle(peer, PEER_CTL);
  if (msg->type == GS_GET_STATUS)
    send_status(daemon, peer, now_ns);
  else if (msg->type == GS_GET_EVENTS)
    send_events(daemon, peer, msg, now_ns);
  else if (msg->type == GS_SET_TERMS)
    on_set_terms(daemon, peer, msg, now_ns);
  else
    on_set(daemon, peer, msg, now_ns);
}
