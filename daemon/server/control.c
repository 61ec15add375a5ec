/* control.c - what gpusharectl asks for: status, and changes of settings by those who may; and whether
 * programs are to use MPS. */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/parse.h"
#include "common/wire.h"
#include "common/words.h"
#include "server/daemon.h"
#include "server/daemon_log.h"
#include "server/events.h"
#include "server/keep.h"
#include "server/process.h"
#include "server/shares.h"
#include "shared/printable.h"

#define NOT_PERMITTED                                                                                        \
  "not permitted: be root, the daemon's user, or in the group of its setting 'group'; in no container"

/* What was asked for is done, and kept. */
static void reply_done(struct daemon *daemon, struct peer *peer, uint64_t now_ns) {
  struct gs_msg msg = wire_msg(GS_REPLY, GS_GPU_ALL);
  keep_answer(daemon, peer, &msg, now_ns);
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
  const struct record *record = msg->get_events.record == GS_RECORD_RUNS    ? &daemon->runs
                                : msg->get_events.record == GS_RECORD_USAGE ? &daemon->usage
                                                                            : &daemon->events;
  struct gs_msg begin = wire_msg(GS_EVENTS_BEGIN, GS_GPU_ALL);
  begin.events.now_ns = now_ns;
  begin.events.realtime_ns = clock_realtime_ns();
  begin.events.next_seq = record->next_seq;
  begin.events.record = record == &daemon->runs    ? GS_RECORD_RUNS
                        : record == &daemon->usage ? GS_RECORD_USAGE
                                                   : GS_RECORD_EVENTS;
  uint64_t known_seq = msg->get_events.from_seq;
  bool knows = known_seq != 0 && known_seq < record->next_seq;
  int err = peer_read(peer, record, from_seq(record, msg, now_ns), knows ? known_seq : record->next_seq,
                      msg->get_events.follow);
  if (err < 0)
    peer_reply(peer, err, "this user follows too many events already: end one of the others");
  else
    peer_send(peer, &begin);
}

/* ---- who has done what, in the log ---- */

/* What those who may change settings do is never left out of the log: they are trusted with more than its
 * size. */
#define AUDIT(trusted, peer, ...)                                                                            \
  ((trusted) ? log_info(__VA_ARGS__) : log_for((peer)->uid, LOG_LEVEL_INFO, __VA_ARGS__))

static void note_terms(bool trusted, const struct peer *peer, const struct peer *client,
                       const struct gs_msg *msg) {
  char value[WORDS_SIZE];
  if (msg->set_terms.term == GS_TERM_PAUSED)
    AUDIT(trusted, peer, "%s %s %s", label_peer(peer).text, msg->set_terms.value ? "paused" : "resumed",
          label_job(client).text);
  else
    AUDIT(trusted, peer, "%s set the %s of %s to %s", label_peer(peer).text,
          words_term_title(msg->set_terms.term), label_job(client).text,
          words_term_value(msg->set_terms.term, msg->set_terms.value, value));
}

/* ---- changes ---- */

/* NULL, or what is wrong with the value. */
static const char *value_wrong(const struct gs_msg *msg, const struct sched_gpu *gpu) {
  const char *wrong = decisions_wrong(keep_field(msg->type), msg->set.value);
  if (!wrong && msg->type == GS_SET_CAPACITY && gpu && gpu->total_bytes && msg->set.value > gpu->total_bytes)
    return "the capacity is more than the card has: 0 takes all of it";
  return wrong;
}

static void on_set(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  struct sched_change *change = &daemon->actions;
  bool all = uuid_is_zero(msg->set.uuid);
  struct sched_gpu *gpu = all ? NULL : scheduler_find_gpu(&daemon->scheduler, msg->set.uuid);
  char text[WORDS_SIZE];
  uint64_t value = msg->set.value;
  if (!peer_may_change(peer)) {
    log_for(peer->uid, LOG_LEVEL_WARN, "%s may not set the %s of %s to %s", label_peer(peer).text,
            words_setting_title(msg->type), all || gpu ? label_gpu(gpu).text : "an unknown GPU",
            words_setting_value(msg->type, value, text));
    peer_reply(peer, -EACCES, NOT_PERMITTED);
    return;
  }
  if (!all && !gpu) {
    peer_reply(peer, -ENOENT,
               cards_are_all(&daemon->cards) ? "this host has no such GPU: see gpusharectl status"
                                             : "no program has used this GPU yet: see gpusharectl status");
    return;
  }
  const char *wrong = value_wrong(msg, gpu);
  if (wrong) {
    peer_reply(peer, -EINVAL, wrong);
    return;
  }
  log_info("%s set the %s of %s to %s", label_peer(peer).text, words_setting_title(msg->type),
           label_gpu(gpu).text, words_setting_value(msg->type, value, text));
  events_on_setting(daemon, gpu, msg->type, value, peer, now_ns);
  keep_setting(daemon, gpu ? gpu->uuid : NULL, msg->type, value, now_ns);
  if (msg->type == GS_SET_TQ)
    scheduler_set_tq(&daemon->scheduler, gpu, value, now_ns, change);
  else if (msg->type == GS_SET_MODE)
    scheduler_set_mode(&daemon->scheduler, gpu, (enum gs_mode)value, now_ns, change);
  else if (msg->type == GS_SET_POLICY)
    scheduler_set_policy(&daemon->scheduler, gpu, (enum gs_policy)value, now_ns, change);
  else
    scheduler_set_capacity(&daemon->scheduler, gpu, value, now_ns, change);
  reply_done(daemon, peer, now_ns);
}

/* NULL: there is none, or it is on no GPU, or has lost its connection. */
static struct peer *find_client(struct daemon *daemon, uint32_t job_id) {
  struct peer *client = clients_find(daemon, job_id);
  for (uint32_t i = 0; client && !client->closed && i < GS_GPUS_PER_CLIENT; i++)
    if (client->attachments[i])
      return client;
  return NULL;
}

/* Why find_client has found none. Numbers are given upwards. */
static const char *tell_absence(struct daemon *daemon, uint32_t job_id) {
  const struct peer *client = clients_find(daemon, job_id);
  if (client && !client->closed)
    return "its program is on no GPU: see gpusharectl status";
  return job_id <= daemon->last_job_id ? "there is no such job any more: see gpusharectl history"
                                       : "there is no such job: see gpusharectl status";
}

/* 0, or -errno and why. client: NULL if there is none. */
static int check_terms(struct daemon *daemon, const struct peer *peer, const struct peer *client,
                       const struct gs_msg *msg, const char **why) {
  if ((*why = terms_wrong(msg)))
    return -EINVAL;
  if (!client) {
    *why = tell_absence(daemon, msg->set_terms.job);
    return -ENOENT;
  }
  if (msg->set_terms.term == GS_TERM_RATE && msg->set_terms.value > 0 &&
      terms_of(&client->terms).class != GS_CLASS_OPPORTUNISTIC) {
    *why = "only opportunistic jobs have a rate: see gpusharectl set-class";
    return -EINVAL;
  }
  if (peer_may_change(peer) || (peer->uid == client->uid && terms_owner_may(&client->terms, msg)))
    return 0;
  *why = peer->uid != client->uid || msg->set_terms.term == GS_TERM_RATE ? NOT_PERMITTED
         : msg->set_terms.term == GS_TERM_PAUSED
             ? "not permitted: somebody has paused it who may change settings"
             : "not permitted: its owner may only ask for less";
  return -EACCES;
}

/* A process has no other terms by another connection. */
static void set_terms(struct daemon *daemon, const struct peer *peer, struct peer *client,
                      const struct gs_msg *msg, uint64_t now_ns) {
  bool trusted = peer_may_change(peer);
  struct peer *same = NULL;
  note_terms(trusted, peer, client, msg);
  while ((same = daemon_next_of_process(daemon, client, same))) {
    terms_set(&same->terms, msg, !trusted);
    clients_apply_terms_soon(daemon, same);
  }
  keep_term(daemon, client, (enum gs_term)msg->set_terms.term, now_ns);
  clients_apply_some_terms(daemon, now_ns);
}

/* Those that hold together are paused together, and go on together: as far as that is permitted. */
static void set_for_member(struct daemon *daemon, const struct peer *peer, struct peer *member,
                           const struct gs_msg *msg, uint64_t now_ns) {
  const char *why;
  bool differs = terms_of(&member->terms).paused != msg->set_terms.value;
  if (differs && check_terms(daemon, peer, member, msg, &why) == 0)
    set_terms(daemon, peer, member, msg, now_ns);
}

static void set_for_gang(struct daemon *daemon, const struct peer *peer, uid_t uid, uint64_t key,
                         const struct gs_msg *msg, uint64_t now_ns) {
  const struct gang *gang = gang_table_find(&daemon->gangs, uid, key);
  if (gang)
    list_each(node, &gang->sched.members) {
      struct sched_job *job = list_entry(node, struct sched_job, gang_link);
      set_for_member(daemon, peer, attachment_of(job)->peer, msg, now_ns);
    }
  list_each(node, &daemon->returning) {
    struct peer *member = list_entry(node, struct peer, returning_link);
    if (member->uid == uid && member->kept_gang == key)
      set_for_member(daemon, peer, member, msg, now_ns);
  }
  keep_gang_term(daemon, uid, key, msg, !peer_may_change(peer), now_ns);
}

static void on_set_terms(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg,
                         uint64_t now_ns) {
  struct peer *client = find_client(daemon, msg->set_terms.job);
  const char *why;
  int err = check_terms(daemon, peer, client, msg, &why);
  if (err < 0) {
    char value[WORDS_SIZE];
    if (err == -EACCES && msg->set_terms.term == GS_TERM_PAUSED)
      log_for(peer->uid, LOG_LEVEL_WARN, "%s may not %s %s", label_peer(peer).text,
              msg->set_terms.value ? "pause" : "resume", label_job(client).text);
    else if (err == -EACCES)
      log_for(peer->uid, LOG_LEVEL_WARN, "%s may not set the %s of %s to %s", label_peer(peer).text,
              words_term_title(msg->set_terms.term), label_job(client).text,
              words_term_value(msg->set_terms.term, msg->set_terms.value, value));
    peer_reply(peer, err, why);
    return;
  }
  set_terms(daemon, peer, client, msg, now_ns);
  if (msg->set_terms.term == GS_TERM_PAUSED) {
    for (uint32_t i = 0; i < GS_GPUS_PER_CLIENT; i++)
      if (client->attachments[i] && client->attachments[i]->gang)
        set_for_gang(daemon, peer, client->uid, client->attachments[i]->gang->key, msg, now_ns);
    if (!list_empty(&client->returning_link))
      set_for_gang(daemon, peer, client->uid, client->kept_gang, msg, now_ns);
  }
  reply_done(daemon, peer, now_ns);
}

/* A job that this peer may take hold of: its own, or any, if it may change settings. NULL after a REPLY. */
static struct peer *find_permitted(struct daemon *daemon, struct peer *peer, uint32_t job_id) {
  struct peer *client = find_client(daemon, job_id);
  if (!client)
    peer_reply(peer, -ENOENT, tell_absence(daemon, job_id));
  else if (peer->uid != client->uid && !peer_may_change(peer))
    peer_reply(peer, -EACCES, NOT_PERMITTED);
  else
    return client;
  return NULL;
}

/* Its owner may: the program goes on, and whoever may end it may do this. */
static void on_evict(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  struct peer *client = find_permitted(daemon, peer, msg->evict.job);
  if (!client)
    return;
  AUDIT(peer_may_change(peer), peer, "%s evicted %s", label_peer(peer).text, label_job(client).text);
  evict_client(daemon, client, peer, now_ns);
  peer_reply(peer, 0, "");
}

static bool read_namespace(pid_t pid, const char *kind, char text[64]) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, kind);
  ssize_t length = readlink(path, text, 63);
  text[length < 0 ? 0 : length] = '\0';
  return length > 0;
}

static bool in_one_namespace(pid_t one, pid_t other, const char *kind) {
  char ones[64], others[64];
  return read_namespace(one, kind, ones) && read_namespace(other, kind, others) && strcmp(ones, others) == 0;
}

/* A descriptor is passed to a process that could open it itself, by a number: the kernel's rules between
 * processes (signals, ptrace, pidfd_getfd) look at users, and two containers may have the same ones. */
static bool could_open(const struct peer *peer, const struct peer *client) {
  return peer->near || (peer->pidfd >= 0 && in_one_namespace(peer->pid, client->pid, "pid") &&
                        !process_has_ended(peer->pidfd) &&
                        !process_has_ended(client->pidfd)); /* until now the numbers were theirs */
}

/* The descriptor gives no rights: what is done by it is judged by the kernel. */
static void on_get_process(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg) {
  struct peer *client = find_permitted(daemon, peer, msg->get_process.job);
  if (!client)
    return;
  if (client->pidfd < 0) {
    peer_reply(peer, -ENOTSUP, "the daemon has no descriptor of its process: use kill(1) with its pid");
    return;
  }
  if (!could_open(peer, client)) {
    log_for(peer->uid, LOG_LEVEL_WARN, "%s may not have the process of %s: it is in another pid namespace",
            label_peer(peer).text, label_job(client).text);
    peer_reply(peer, -EACCES, "not permitted: it is in another container than this program");
    return;
  }
  AUDIT(peer_may_change(peer), peer, "%s asked for the process of %s", label_peer(peer).text,
        label_job(client).text);
  struct gs_msg reply = wire_msg(GS_REPLY, GS_GPU_ALL);
  snprintf(reply.reply.text, sizeof reply.reply.text, "pid %d, %s", client->pid, client->name);
  peer_send_passing(peer, &reply, client->pidfd);
}

static void on_allot(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  const char *wrong = shares_wrong(msg);
  if (!peer_may_change(peer)) {
    log_for(peer->uid, LOG_LEVEL_WARN, "%s may not allot anything to a pod", label_peer(peer).text);
    peer_reply(peer, -EACCES, NOT_PERMITTED);
    return;
  }
  if (wrong) {
    peer_reply(peer, -EINVAL, wrong);
    return;
  }
  int err = shares_allot(daemon, msg, now_ns);
  if (err == 0)
    log_info("%s allots pod %s %lu bytes at weight %u", label_peer(peer).text, msg->allot.pod,
             msg->allot.limit_bytes, msg->allot.weight);
  peer_reply(peer, err, err < 0 ? "the daemon has no room for what another pod is allotted" : "");
}

static void on_pod(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg) {
  if (!peer_may_change(peer)) {
    log_for(peer->uid, LOG_LEVEL_WARN, "%s may not name a pod", label_peer(peer).text);
    peer_reply(peer, -EACCES, NOT_PERMITTED);
    return;
  }
  char text[GS_POD_TEXT_SIZE];
  printable_copy(text, msg->pod.text, sizeof text);
  shares_name_pod(daemon, msg);
  log_info("%s calls the %s of pod %s %s", label_peer(peer).text,
           msg->type == GS_POD_NAME ? "name" : "namespace", msg->pod.pod, text);
  peer_reply(peer, 0, "");
}

static void on_reload(struct peer *peer, const struct gs_msg *msg) {
  if (peer_may_change(peer)) {
    peer_reload(peer, msg->reload.only_looks);
    return;
  }
  if (!msg->reload.only_looks)
    log_for(peer->uid, LOG_LEVEL_WARN, "%s may not have the configuration read again", label_peer(peer).text);
  peer_reply(peer, -EACCES, NOT_PERMITTED);
}

void control_on_message(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t now_ns) {
  if (peer->role == PEER_FRESH) {
    peer_settle(peer, PEER_CTL);
    peer_read_name(peer->pid, peer->name);
  }
  if (msg->type == GS_GET_STATUS)
    peer_send_status(peer, msg->get_status.details);
  else if (msg->type == GS_GET_EVENTS)
    send_events(daemon, peer, msg, now_ns);
  else if (msg->type == GS_SET_TERMS)
    on_set_terms(daemon, peer, msg, now_ns);
  else if (msg->type == GS_RELOAD)
    on_reload(peer, msg);
  else if (msg->type == GS_EVICT)
    on_evict(daemon, peer, msg, now_ns);
  else if (msg->type == GS_GET_PROCESS)
    on_get_process(daemon, peer, msg);
  else if (msg->type == GS_ALLOT)
    on_allot(daemon, peer, msg, now_ns);
  else if (msg->type == GS_POD_NAMESPACE || msg->type == GS_POD_NAME)
    on_pod(daemon, peer, msg);
  else if (msg->type <= GS_SET_POLICY)
    on_set(daemon, peer, msg, now_ns);
  else
    peer_close(peer, "a message out of place");
}

/*
 * ---- programs ask for MPS ----
 *
 * Programs that ask whether they are to use MPS, before their driver begins. Who does keeps the connection
 * open, so its end tells that of the program.
 */

/* ---- who is near ---- */

/* MPS and its programs know each other by process ids, and share memory. */
static bool is_near(pid_t pid) {
  return in_one_namespace(getpid(), pid, "pid") && in_one_namespace(getpid(), pid, "ipc");
}

/* ---- the answer ---- */

/* The least that production leaves over on one of the GPUs: nobody knows yet which one it will be. 0: all. */
static uint32_t leftover_percent(const struct daemon *daemon) {
  uint32_t least = 100;
  list_each(node, &daemon->scheduler.gpus) {
    const struct sched_gpu *gpu = list_entry(node, struct sched_gpu, link);
    uint32_t percent = rates_leftover_percent(&gpu_of(gpu)->rates);
    if (spatial_has(&daemon->spatial, gpu->uuid) && percent < least)
      least = percent;
  }
  if (least == 100)
    return 0;
  return least > SPATIAL_PERCENT_LEAST ? least : SPATIAL_PERCENT_LEAST;
}

void daemon_on_ask_spatial(struct daemon *daemon, struct peer *peer, const struct gs_msg *ask) {
  if (peer->role != PEER_FRESH) {
    peer_close(peer, "ASK_SPATIAL out of place");
    return;
  }
  enum gs_spatial_verdict verdict = spatial_judge(&daemon->spatial, ask, peer->uid, geteuid());
  if (verdict == GS_SPATIAL_ON && !mps_is_ready(&daemon->mps))
    verdict = GS_SPATIAL_DOWN;
  if (verdict == GS_SPATIAL_ON && !is_near(peer->pid))
    verdict = GS_SPATIAL_APART;
  struct gs_msg answer = wire_msg(GS_SPATIAL, 0);
  answer.spatial.verdict = verdict;
  if (verdict == GS_SPATIAL_ON) {
    if (ask->ask_spatial.class == GS_CLASS_OPPORTUNISTIC) {
      answer.spatial.priority = 1;
      answer.spatial.percent = leftover_percent(daemon);
    }
    peer_settle(peer, PEER_SPATIAL);
    spatial_enter(&daemon->spatial, peer->uid);
  }
  log_for(peer->uid, LOG_LEVEL_DEBUG, "pid %d, uid %u asks for MPS: %d", peer->pid, peer->uid, (int)verdict);
  peer_send(peer, &answer);
}
