/* evict.c - jobs that lose their place. Their memory stays on the card as long as the process is there:
 * others are told that the card has that much less, until it ends, or comes back and tells itself. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/wire.h"
#include "server/daemon.h"
#include "server/events.h"
#include "server/process.h"

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
  struct daemon *daemon = daemon_with(attachment);
  list_remove(&attachment->silent_link);
  attachment->silent_epoch = attachment->job.epoch;
  attachment->silent_ns = now_ns;
  list_append(&daemon->silent, &attachment->silent_link);
}

static struct attachment *first_silent(const struct daemon *daemon) {
  struct list *first = list_first(&daemon->silent);
  return first ? list_entry(first, struct attachment, silent_link) : NULL;
}

/* ---- what stays ---- */

#define STAYED_MAX 256     /* processes and GPUs; more count as overhead, which is tried after a while */
#define STAYED_PER_USER 32 /* of these */
#define STAYED_LOOK_NS (NS_PER_S / 2)

/* The GPU may be forgotten, and come back. */
struct stayed {
  struct list link;
  pid_t pid;
  uid_t uid;
  uint64_t start; /* of the process: its number may be another's later */
  uint8_t uuid[GS_UUID_SIZE];
  uint64_t bytes;
};

static struct stayed *stayed_of(struct list *node) { return list_entry(node, struct stayed, link); }

static bool is_on(const struct stayed *stayed, const uint8_t uuid[GS_UUID_SIZE]) {
  return memcmp(stayed->uuid, uuid, GS_UUID_SIZE) == 0;
}

static void forget(struct daemon *daemon, struct stayed *stayed) {
  list_remove(&stayed->link);
  daemon->stayed_count--;
  free(stayed);
}

static void settle(struct daemon *daemon, struct sched_gpu *gpu, uint64_t now_ns) {
  uint64_t bytes = 0;
  list_each(node, &daemon->stayed) {
    if (is_on(stayed_of(node), gpu->uuid))
      bytes += stayed_of(node)->bytes;
  }
  scheduler_set_away(gpu, bytes, now_ns, &daemon->actions);
}

static struct stayed *find(const struct daemon *daemon, const struct peer *peer, uint64_t start,
                           const struct sched_gpu *gpu) {
  list_each(node, &daemon->stayed) {
    struct stayed *stayed = stayed_of(node);
    if (stayed->pid == peer->pid && stayed->uid == peer->uid && stayed->start == start &&
        is_on(stayed, gpu->uuid))
      return stayed;
  }
  return NULL;
}

/* A process has one connection at a time that has memory: however many of its are evicted, what each said
 * to have there was the same memory. */
void evict_leave_bytes(struct daemon *daemon, struct sched_gpu *gpu, const struct peer *peer, uint64_t bytes,
                       uint64_t now_ns) {
  uint64_t start = bytes ? process_start_ticks(peer->pid) : 0;
  if (bytes == 0 || process_has_ended(peer->pidfd))
    return;
  uint64_t most_bytes = sched_gpu_capacity_bytes(gpu);
  bytes = bytes < most_bytes ? bytes : most_bytes;
  struct stayed *stayed = find(daemon, peer, start, gpu);
  if (stayed) {
    stayed->bytes = bytes > stayed->bytes ? bytes : stayed->bytes;
    settle(daemon, gpu, now_ns);
    return;
  }
  uint32_t count = 0;
  list_each(node, &daemon->stayed) count += stayed_of(node)->uid == peer->uid;
  bool has_room = count < STAYED_PER_USER && daemon->stayed_count < STAYED_MAX;
  stayed = start && has_room ? malloc(sizeof *stayed) : NULL;
  if (!stayed) {
    scheduler_note_taken(gpu, bytes, now_ns, &daemon->actions);
    return;
  }
  *stayed = (struct stayed){.pid = peer->pid, .uid = peer->uid, .start = start, .bytes = bytes};
  memcpy(stayed->uuid, gpu->uuid, GS_UUID_SIZE);
  if (daemon->stayed_count++ == 0)
    daemon->stayed_ns = now_ns + STAYED_LOOK_NS;
  list_append(&daemon->stayed, &stayed->link);
  settle(daemon, gpu, now_ns);
}

/* Its number is this process' as long as that is there. */
void evict_return(struct daemon *daemon, struct sched_gpu *gpu, const struct peer *peer, uint64_t now_ns) {
  for (struct list *node = daemon->stayed.next, *next; node != &daemon->stayed; node = next) {
    struct stayed *stayed = stayed_of(node);
    next = node->next;
    if (stayed->pid == peer->pid && stayed->uid == peer->uid && is_on(stayed, gpu->uuid))
      forget(daemon, stayed);
  }
  settle(daemon, gpu, now_ns);
}

#define LOOKS 16 /* at a time: each takes microseconds; one that has ended concerns all jobs of its GPU */

static void look(struct daemon *daemon, uint64_t now_ns) {
  daemon->stayed_ns = now_ns + STAYED_LOOK_NS;
  for (int i = 0; i < LOOKS && !list_empty(&daemon->stayed); i++) {
    struct stayed *stayed = stayed_of(list_first(&daemon->stayed));
    list_remove(&stayed->link);
    list_append(&daemon->stayed, &stayed->link);
    /* Ended, also if nobody has waited for it yet. Where the kernel has no descriptors of processes, its
     * number tells. */
    int pidfd = process_open_since(stayed->pid, stayed->start);
    bool ended = pidfd >= 0 ? process_has_ended(pidfd)
                            : pidfd == -ESRCH || process_start_ticks(stayed->pid) != stayed->start;
    if (pidfd >= 0)
      close(pidfd);
    if (!ended)
      continue;
    struct sched_gpu *gpu = scheduler_find_gpu(&daemon->scheduler, stayed->uuid);
    forget(daemon, stayed);
    if (gpu)
      settle(daemon, gpu, now_ns);
    daemon->stayed_ns = now_ns;
    return;
  }
}

void evict_end(struct daemon *daemon) {
  while (!list_empty(&daemon->stayed))
    forget(daemon, stayed_of(list_first(&daemon->stayed)));
}

/* ---- time ---- */

#define EVICTIONS 16 /* at a time: each is told, and written down */

static uint64_t silent_deadline_ns(const struct daemon *daemon) {
  const struct attachment *first = first_silent(daemon);
  if (!first || daemon->evict_after == 0)
    return UINT64_MAX;
  return first->silent_ns + (daemon->evict_after - 1) * daemon->scheduler.grace_ns;
}

uint64_t evict_deadline_ns(const struct daemon *daemon) {
  uint64_t silent_ns = silent_deadline_ns(daemon);
  uint64_t stayed_ns = daemon->stayed_count ? daemon->stayed_ns : UINT64_MAX;
  return silent_ns < stayed_ns ? silent_ns : stayed_ns;
}

void evict_on_time(struct daemon *daemon, uint64_t now_ns) {
  if (daemon->stayed_count && now_ns >= daemon->stayed_ns)
    look(daemon, now_ns);
  for (int i = 0; i < EVICTIONS && now_ns >= silent_deadline_ns(daemon); i++) {
    struct attachment *attachment = first_silent(daemon);
    const struct sched_job *job = &attachment->job;
    list_remove(&attachment->silent_link);
    /* Unless it has stopped since, or its memory has become such that others go on without it, or it has been
     * evicted for another of its GPUs. */
    if (!attachment->peer->closed && job->state == GS_JOB_DROPPING && job->flags & GS_STATE_OVERDUE &&
        job->epoch == attachment->silent_epoch)
      evict_client(daemon, attachment->peer, NULL, now_ns);
  }
}
