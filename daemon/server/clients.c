/* clients.c - the programs that are registered: found by job, given their terms, joined to gangs. */
#include <stdlib.h>
#include <string.h>

#include "server/daemon.h"
#include "server/daemon_log.h"
#include "server/events.h"
#include "server/keep.h"
#include "server/shares.h"
#include "shared/printable.h"

/* ---- by job ---- */

static struct list *client_bucket(struct daemon *daemon, uint32_t job_id) {
  return &daemon->clients[job_id % DAEMON_CLIENT_BUCKETS];
}

struct peer *clients_find(struct daemon *daemon, uint32_t job_id) {
  list_each(node, client_bucket(daemon, job_id)) {
    struct peer *peer = list_entry(node, struct peer, client_link);
    if (peer->job_id == job_id)
      return peer;
  }
  return NULL;
}

void clients_add(struct daemon *daemon, struct peer *peer) {
  list_append(client_bucket(daemon, peer->job_id), &peer->client_link);
  list_append(daemon_process_bucket(daemon, peer->pid), &peer->process_link);
  list_init(&peer->unapplied_link);
  list_init(&peer->spoke_link);
  daemon->client_count++;
  daemon->registered_count++;
}

void clients_remove(struct daemon *daemon, struct peer *peer) {
  list_remove(&peer->client_link);
  list_remove(&peer->process_link);
  list_remove(&peer->unapplied_link);
  list_remove(&peer->spoke_link);
  daemon->client_count--;
}

/* ---- terms ---- */

struct user_limit clients_limit_of(const struct daemon *daemon, uid_t uid) {
  struct user_limit general = {.weight = SCHED_WEIGHT, .max_jobs = UINT64_MAX, .bounds = daemon->bounds};
  return user_limits_of(&daemon->users, uid, &general);
}

void clients_bound(const struct daemon *daemon, struct peer *peer) {
  peer->bounds = clients_limit_of(daemon, peer->uid).bounds;
  peer->terms.bounds = peer->bounded ? &peer->bounds : NULL;
}

void clients_note_cut(struct peer *peer) {
  if (peer->cut_noted || !terms_are_cut(&peer->terms))
    return;
  struct sched_terms given = terms_of(&peer->terms);
  peer->cut_noted = true;
  log_for(peer->uid, LOG_LEVEL_INFO,
          "%s asks for more than programs may: it is given weight %u, priority %d and class "
          "%s (settings max_weight, max_priority and production)",
          label_job(peer).text, given.weight, given.priority, class_name(given.class));
}

/* The job has been given others than these. */
void clients_on_terms(struct attachment *attachment, const struct sched_terms *before, uint64_t now_ns) {
  events_on_terms(attachment, before, now_ns);
  actions_plan(daemon_with(attachment));
  actions_tell(daemon_with(attachment), attachment->peer, now_ns);
  rates_set_terms(rates_of(attachment), &attachment->rates, &attachment->job.terms, now_ns);
  events_on_limit(attachment, now_ns);
}

static void apply_terms(struct attachment *attachment, uint64_t now_ns) {
  struct sched_terms terms = terms_of(&attachment->peer->terms), before = attachment->job.terms;
  scheduler_set_terms(&attachment->job, &terms, now_ns, &daemon_with(attachment)->actions);
  clients_on_terms(attachment, &before, now_ns);
}

/* Returns how many jobs that are. */
int clients_apply_terms(struct peer *peer, uint64_t now_ns) {
  int count = 0;
  for (uint32_t i = 0; i < GS_GPUS_PER_CLIENT; i++) {
    struct attachment *attachment = peer->attachments[i];
    if (!attachment)
      continue;
    uint64_t limit_bytes = attachment->job.terms.limit_bytes;
    apply_terms(attachment, now_ns);
    count++;
    if (attachment->job.terms.limit_bytes == limit_bytes)
      continue;
    struct gs_msg msg = actions_attached(GS_CAPACITY, attachment);
    peer_send(peer, &msg);
  }
  return count;
}

/* In a turn of the loop, or little more: each may cost something at all jobs of its GPU. */
#define APPLIED_AT_ONCE 16

void clients_apply_terms_soon(struct daemon *daemon, struct peer *peer) {
  if (list_empty(&peer->unapplied_link))
    list_append(&daemon->unapplied, &peer->unapplied_link);
}

void clients_apply_some_terms(struct daemon *daemon, uint64_t now_ns) {
  struct list *first;
  for (int left = APPLIED_AT_ONCE; left > 0 && (first = list_first(&daemon->unapplied));) {
    list_remove(first);
    left -= 1 + clients_apply_terms(list_entry(first, struct peer, unapplied_link), now_ns);
  }
}

/* ---- bounds ---- */

/* True: its terms are others now, by what bounds may cut. */
static bool bound_job(const struct daemon *daemon, struct attachment *attachment, uint64_t now_ns) {
  clients_bound(daemon, attachment->peer);
  clients_note_cut(attachment->peer);
  struct sched_terms terms = terms_of(&attachment->peer->terms), before = attachment->job.terms;
  if (terms.weight == before.weight && terms.priority == before.priority && terms.class == before.class)
    return false;
  apply_terms(attachment, now_ns);
  return true;
}

#define BOUNDS_LOOKS 256 /* at jobs, in one event */

/* A job whose terms change is an event that all jobs of its GPU may cost something: one at a time. */
void clients_go_on_with_bounds(struct daemon *daemon, uint64_t now_ns) {
  struct sched_gpu *gpu;
  struct sched_job *job;
  for (unsigned looks = 0; looks < BOUNDS_LOOKS; looks++) {
    if (!walk_next(&daemon->bounds_walk, &gpu, &job)) {
      daemon->bounding = false;
      return;
    }
    if (job && bound_job(daemon, attachment_of(job), now_ns))
      return;
    if (job)
      continue;
    list_each(node, &gpu->shares) {
      struct sched_share *share = list_entry(node, struct sched_share, link);
      if (share_is_allotted(share))
        continue;
      struct user_limit limit = clients_limit_of(daemon, (uid_t)share->user);
      if (limit.weight != share->weight || limit.max_memory_bytes != share->max_bytes)
        scheduler_set_share(share, limit.weight, limit.max_memory_bytes, now_ns, &daemon->actions);
    }
  }
}

void clients_set_bounds(struct daemon *daemon, const struct terms_bounds *bounds,
                        const struct user_limits *users, uint64_t now_ns) {
  daemon->bounds = *bounds;
  daemon->users = *users;
  daemon->bounding = true;
  walk_begin(&daemon->bounds_walk, &daemon->scheduler.gpus);
  clients_go_on_with_bounds(daemon, now_ns);
}

/* ---- gangs: by user and name, as many as a user has jobs ---- */

void gang_table_init(struct gang_table *gangs) {
  gangs->count = 0;
  for (size_t i = 0; i < GANG_BUCKETS; i++)
    list_init(&gangs->buckets[i]);
}

/* Who makes names that meet in one bucket has gangs that are slow to find, and others have few there. */
static struct list *bucket_of(struct gang_table *gangs, uid_t uid, uint64_t key) {
  uint64_t mixed = key ^ uid;
  return &gangs->buckets[(mixed ^ mixed >> 32) % GANG_BUCKETS];
}

struct gang *gang_table_find(struct gang_table *gangs, uid_t uid, uint64_t key) {
  list_each(node, bucket_of(gangs, uid, key)) {
    struct gang *gang = list_entry(node, struct gang, link);
    if (gang->uid == uid && gang->key == key)
      return gang;
  }
  return NULL;
}

static struct gang *create(struct gang_table *gangs, uid_t uid, const char *name, uint64_t key) {
  struct gang *gang = calloc(1, sizeof *gang);
  if (!gang)
    return NULL;
  gang_init(&gang->sched);
  gang->uid = uid;
  gang->key = key;
  strncpy(gang->name, name, sizeof gang->name - 1);
  printable_copy(gang->shown, name, sizeof gang->shown);
  gang->table = gangs;
  gangs->count++;
  list_append(bucket_of(gangs, uid, key), &gang->link);
  return gang;
}

struct gang *gang_table_enter(struct gang_table *gangs, uid_t uid, const char *name) {
  uint64_t key = gang_key(name);
  struct gang *gang = gang_table_find(gangs, uid, key);
  if (!gang)
    gang = create(gangs, uid, name, key);
  if (gang)
    gang->jobs++;
  return gang;
}

void gang_table_leave(struct gang *gang) {
  if (--gang->jobs > 0)
    return;
  gang->table->count--;
  list_remove(&gang->link);
  free(gang);
}

/* ---- jobs in gangs ---- */

void clients_leave_gang(struct attachment *attachment) {
  if (attachment->gang)
    gang_table_leave(attachment->gang);
  attachment->gang = NULL;
}

/* The job is in no gang of the core's. */
static void set_apart(struct attachment *attachment) {
  const struct peer *peer = attachment->peer;
  log_for(peer->uid, LOG_LEVEL_WARN, "%s is on its own on %s: its gang '%s' has another job there",
          label_job(peer).text, label_gpu(attachment->job.gpu).text, attachment->gang->shown);
  clients_leave_gang(attachment);
  attachment->apart = true;
}

/* The gang's other job on this GPU; of the two, the one with less memory is on its own. False: this one is.
 */
static bool oust(struct attachment *attachment, uint64_t now_ns) {
  list_each(node, &attachment->gang->sched.members) {
    struct attachment *other = attachment_of(list_entry(node, struct sched_job, gang_link));
    if (other->job.gpu != attachment->job.gpu)
      continue;
    if (other->job.used_bytes >= attachment->job.used_bytes)
      return false;
    scheduler_replace(&other->job, &attachment->job, now_ns, &daemon_with(attachment)->actions);
    set_apart(other);
    return true;
  }
  return false;
}

/* As soon as it has memory there, or wants to run. Each process of a distributed program may well have a
 * context on every GPU, and use one of them. */
void clients_join_gang(struct daemon *daemon, struct attachment *attachment, uint64_t now_ns) {
  struct peer *peer = attachment->peer;
  if (!*peer->gang || attachment->gang || attachment->apart)
    return;
  attachment->gang = gang_table_enter(&daemon->gangs, peer->uid, peer->gang);
  if (!attachment->gang)
    return;
  keep_gang(daemon, peer, now_ns);
  if (!scheduler_join(&attachment->job, &attachment->gang->sched, now_ns, &daemon->actions) &&
      !oust(attachment, now_ns))
    set_apart(attachment);
  actions_tell(daemon, peer, now_ns);
}
