/* evict.c - see evict.h. Its memory stays on the card as long as its process is there: others are told that
 * the card has that much less. */
#include "evict.h"

#include "common/log.h"
#include "common/wire.h"
#include "events.h"

void evict_client(struct daemon *daemon, struct peer *client, const struct peer *by, uint64_t now_ns) {
  struct gs_msg msg = wire_msg(GS_EVICTED, 0);
  msg.evicted.wait_ns = daemon->scheduler.grace_ns;
  msg.evicted.by_uid = by ? by->uid : 0;
  msg.evicted.by_pid = by ? by->pid : 0;
  for (uint32_t i = 0; i < GS_GPUS_PER_CLIENT; i++)
    if (client->attachments[i])
      events_on_expulsion(client->attachments[i], by, now_ns);
  client->evicted = true;
  peer_send(client, &msg);
  peer_close(client, by ? "it is evicted" : "it is evicted: it does not stop, and others wait for it");
}

/* However long they have, which may change: all have the same time. That keeps the list in order. */
void evict_watch(struct attachment *attachment, uint64_t now_ns) {
  struct daemon *daemon = daemon_of(attachment->job.gpu->scheduler);
  list_remove(&attachment->silent_link);
  attachment->silent_epoch = attachment->job.epoch;
  attachment->silent_ns = now_ns;
  list_append(&daemon->silent, &attachment->silent_link);
}

static struct attachment *first_silent(const struct daemon *daemon) {
  struct list *first = list_first(&daemon->silent);
  return first ? list_entry(first, struct attachment, silent_link) : NULL;
}

/* It has not stopped since, nor has its memory become such that others go on without it; and it has not been
 * evicted for another of its GPUs. */
static bool is_silent_still(const struct attachment *attachment) {
  const struct sched_job *job = &attachment->job;
  return !attachment->peer->closed && job->state == GS_JOB_DROPPING && job->flags & GS_STATE_OVERDUE &&
         job->epoch == attachment->silent_epoch;
}

uint64_t evict_deadline_ns(const struct daemon *daemon) {
  const struct attachment *first = first_silent(daemon);
  if (!first || daemon->evict_after == 0)
    return UINT64_MAX;
  return first->silent_ns + (daemon->evict_after - 1) * daemon->scheduler.grace_ns;
}

void evict_on_time(struct daemon *daemon, uint64_t now_ns) {
  while (now_ns >= evict_deadline_ns(daemon)) {
    struct attachment *attachment = first_silent(daemon);
    list_remove(&attachment->silent_link);
    if (is_silent_still(attachment))
      evict_client(daemon, attachment->peer, NULL, now_ns);
  }
}
