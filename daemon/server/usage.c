/* usage.c - see usage.h. */
#include "server/usage.h"

#include <errno.h>
#include <string.h>

#include "common/clock.h"
#include "common/wire.h"
#include "server/keep.h"

#define JOBS_PER_TURN 64 /* that are looked at */

static struct usage usage_so_far(const struct sched_job *job, uint64_t now_ns) {
  return (struct usage){.until_ns = now_ns,
                        .held_ns = sched_job_held_ns(job, now_ns),
                        .gpu_ns = sched_job_gpu_ns(job, now_ns),
                        .waited_ns = sched_job_waited_ns(job, now_ns),
                        .moved_bytes = job->moved_bytes};
}

void usage_begin(struct attachment *attachment, uint64_t now_ns) {
  attachment->began_ns = now_ns;
  attachment->kept = attachment->counted = usage_so_far(&attachment->job, now_ns);
}

/* ---- energy ---- */

#define JOB_MW_MAX UINT64_C(100000000) /* more than any card takes: the driver counts anew */

static void note_energy(struct gpu *gpu, uint64_t used_mj, uint64_t now_ns) {
  struct energy *energy = &gpu->energy, before = *energy;
  uint64_t held_ns = 0;
  for (unsigned i = 0; i <= GS_CLASS_OPPORTUNISTIC; i++)
    held_ns += sched_gpu_tally(&gpu->sched, (enum gs_class)i, now_ns).held_ns;
  *energy = (struct energy){.at_ns = now_ns, .used_mj = used_mj, .held_ns = held_ns};
  if (before.at_ns == 0 || now_ns <= before.at_ns)
    return;
  uint64_t time_ns = now_ns - before.at_ns, by_jobs_ns = held_ns - before.held_ns;
  uint64_t most_ns = by_jobs_ns > time_ns ? by_jobs_ns : time_ns;
  double job_mw = (double)(used_mj - before.used_mj) * (double)NS_PER_S / (double)most_ns;
  energy->job_mw = job_mw < (double)JOB_MW_MAX ? (uint64_t)job_mw : 0;
}

void usage_on_readings(struct daemon *daemon, uint64_t now_ns) {
  list_each(node, &daemon->scheduler.gpus) {
    struct gpu *gpu = gpu_of(list_entry(node, struct sched_gpu, link));
    const struct card_reading *reading =
        card_query_find_reading(&daemon->card_query, gpu->sched.uuid, now_ns);
    if (!reading || !(reading->does.known & NVML_ENERGY))
      gpu->energy = (struct energy){.at_ns = 0};
    else if (daemon->card_query.readings.at_ns != gpu->energy.at_ns)
      note_energy(gpu, reading->does.energy_mj, daemon->card_query.readings.at_ns);
  }
}

/* ---- spans ---- */

static struct usage usage_now(const struct attachment *attachment, uint64_t now_ns) {
  const struct usage *counted = &attachment->counted;
  struct usage now = usage_so_far(&attachment->job, now_ns);
  uint64_t held_ms = (now.held_ns - counted->held_ns) / NS_PER_MS;
  now.energy_mj = counted->energy_mj + held_ms * gpu_of(attachment->job.gpu)->energy.job_mw / 1000;
  return now;
}

/* For its user. */
static void count(struct attachment *attachment, const struct usage *now) {
  struct user *user = attachment->peer->user;
  const struct usage *before = &attachment->counted;
  user->held_ns += now->held_ns - before->held_ns;
  user->waited_ns += now->waited_ns - before->waited_ns;
  user->moved_bytes += now->moved_bytes - before->moved_bytes;
  user->energy_mj += now->energy_mj - before->energy_mj;
  attachment->counted = *now;
}

/* From the end of the last one until now. False: the job has had nothing in it, and has not waited. */
static bool describe_span(const struct attachment *attachment, const struct usage *now, struct gs_msg *msg) {
  const struct peer *peer = attachment->peer;
  const struct usage *before = &attachment->kept;
  *msg = wire_msg(GS_EVENT, gpu_of(attachment->job.gpu)->number);
  msg->event.kind = GS_EVENT_USAGE;
  msg->event.detail = (uint16_t)attachment->job.terms.class;
  msg->event.at_ns = now->until_ns;
  msg->event.job = peer->job_id;
  msg->event.pid = peer->pid;
  msg->event.uid = peer->uid;
  memcpy(msg->event.name, peer->name, sizeof msg->event.name);
  msg->event.usage.since_ns = before->until_ns;
  msg->event.usage.held_ns = now->held_ns - before->held_ns;
  msg->event.usage.gpu_ns = now->gpu_ns - before->gpu_ns;
  msg->event.usage.waited_ns = now->waited_ns - before->waited_ns;
  msg->event.usage.moved_bytes = now->moved_bytes - before->moved_bytes;
  msg->energy_mj = now->energy_mj - before->energy_mj;
  return msg->event.usage.held_ns || msg->event.usage.waited_ns || msg->event.usage.moved_bytes;
}

void usage_end_span(struct attachment *attachment, uint64_t now_ns) {
  struct daemon *daemon = daemon_with(attachment);
  struct usage now = usage_now(attachment, now_ns);
  struct gs_msg msg;
  bool worth = describe_span(attachment, &now, &msg);
  count(attachment, &now);
  attachment->kept = now;
  if (!worth)
    return;
  record_add(&daemon->usage, &msg);
  keep_record(daemon, &msg, now_ns);
}

void usage_end(struct daemon *daemon, uint64_t now_ns) {
  list_each(gpu, &daemon->scheduler.gpus) {
    list_each(job, &list_entry(gpu, struct sched_gpu, link)->jobs) {
      usage_end_span(attachment_of(list_entry(job, struct sched_job, link)), now_ns);
    }
  }
}

/* ---- spans that go on ---- */

static uint64_t key_of(uint32_t job_id, uint32_t gpu) { return (uint64_t)job_id << 32 | gpu; }

bool usage_is_told(const struct usage_place *place, const struct gs_msg *span) {
  uint32_t bucket = span->event.job % DAEMON_CLIENT_BUCKETS;
  return bucket < place->bucket ||
         (bucket == place->bucket && key_of(span->event.job, span->gpu) <= place->key);
}

/* The one that is next in the place's bucket, by key: whoever comes or goes, none is told twice or left out.
 */
static const struct attachment *find_next(struct daemon *daemon, const struct usage_place *place,
                                          uint64_t *key) {
  const struct attachment *next = NULL;
  list_each(node, &daemon->clients[place->bucket]) {
    const struct peer *peer = list_entry(node, struct peer, client_link);
    for (uint32_t i = 0; i < GS_GPUS_PER_CLIENT; i++) {
      const struct attachment *attachment = peer->attachments[i];
      uint64_t its = attachment ? key_of(peer->job_id, gpu_of(attachment->job.gpu)->number) : 0;
      if (its > place->key && its < *key) {
        next = attachment;
        *key = its;
      }
    }
  }
  return next;
}

int usage_tell_next(struct daemon *daemon, struct usage_place *place, uint64_t now_ns, struct gs_msg *span) {
  uint64_t key = UINT64_MAX;
  while (place->bucket < DAEMON_CLIENT_BUCKETS && list_empty(&daemon->clients[place->bucket]))
    *place = (struct usage_place){.bucket = place->bucket + 1};
  if (place->bucket == DAEMON_CLIENT_BUCKETS)
    return -ENODATA;
  const struct attachment *next = find_next(daemon, place, &key);
  if (!next) {
    *place = (struct usage_place){.bucket = place->bucket + 1};
    return 0;
  }
  place->key = key;
  struct usage now = usage_now(next, now_ns);
  return describe_span(next, &now, span);
}

/* ---- from time to time ---- */

static bool is_due(const struct attachment *attachment, uint64_t now_ns) {
  uint64_t part_ns = (attachment->kept.until_ns - attachment->began_ns) / USAGE_PART;
  uint64_t length_ns = part_ns < USAGE_SHORT_NS  ? USAGE_SHORT_NS
                       : part_ns > USAGE_LONG_NS ? USAGE_LONG_NS
                                                 : part_ns;
  return now_ns - attachment->kept.until_ns >= length_ns;
}

static void look_at(struct attachment *attachment, uint64_t now_ns) {
  if (is_due(attachment, now_ns)) {
    usage_end_span(attachment, now_ns);
    return;
  }
  struct usage now = usage_now(attachment, now_ns);
  count(attachment, &now);
}

uint64_t usage_deadline_ns(const struct daemon *daemon) {
  return daemon->client_count ? daemon->usage_next_ns : UINT64_MAX;
}

void usage_on_time(struct daemon *daemon, uint64_t now_ns) {
  struct sched_gpu *gpu;
  struct sched_job *job;
  if (now_ns < usage_deadline_ns(daemon))
    return;
  for (unsigned i = 0; i < JOBS_PER_TURN; i++) {
    if (!walk_next(&daemon->usage_walk, &gpu, &job)) {
      walk_begin(&daemon->usage_walk, &daemon->scheduler.gpus);
      daemon->usage_next_ns = now_ns + USAGE_SHORT_NS;
      card_query_want_readings(&daemon->card_query, now_ns, 0); /* what cards do is known while jobs run */
      return;
    }
    if (job)
      look_at(attachment_of(job), now_ns);
  }
}
