/* shares.c - the shares of users and pods, and what pods have been allotted. */
#include "server/shares.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/parse.h"
#include "server/daemon.h"
#include "server/daemon_log.h"

struct allotment {
  struct list link; /* daemon->allotments */
  char pod[GS_POD_SIZE];
  char namespace[GS_POD_TEXT_SIZE], name[GS_POD_TEXT_SIZE]; /* its; empty: not told */
  uint8_t uuid[GS_UUID_SIZE];
  uint64_t share, limit_bytes;
  uint32_t weight, class;
};

static bool is_in_pod(const struct peer *peer, const char *pod) {
  return peer->origin.kind == GS_ORIGIN_POD && strcmp(peer->origin.name, pod) == 0;
}

static struct allotment *find(const struct daemon *daemon, const char *pod,
                              const uint8_t uuid[GS_UUID_SIZE]) {
  list_each(node, &daemon->allotments) {
    struct allotment *allotment = list_entry(node, struct allotment, link);
    if (memcmp(allotment->uuid, uuid, GS_UUID_SIZE) == 0 && strcmp(allotment->pod, pod) == 0)
      return allotment;
  }
  return NULL;
}

/* ---- shares ---- */

/* A new one if there is none. NULL: no memory. */
static struct sched_share *provide(struct sched_gpu *gpu, uint64_t user, uint32_t weight,
                                   uint64_t max_bytes) {
  struct sched_share *share = scheduler_find_share(gpu, user);
  if (share || !(share = malloc(sizeof *share)))
    return share;
  scheduler_add_share(gpu, share, user, weight, max_bytes);
  return share;
}

static struct sched_share *provide_allotted(struct sched_gpu *gpu, const struct allotment *allotment) {
  return provide(gpu, SHARE_OF_PODS | allotment->share, allotment->weight, allotment->limit_bytes);
}

struct sched_share *shares_provide(const struct daemon *daemon, struct sched_gpu *gpu,
                                   const struct peer *peer) {
  const struct allotment *allotment =
      peer->origin.kind == GS_ORIGIN_POD ? find(daemon, peer->origin.name, gpu->uuid) : NULL;
  if (allotment)
    return provide_allotted(gpu, allotment);
  struct user_limit limit = clients_limit_of(daemon, peer->uid);
  return provide(gpu, peer->uid, limit.weight, limit.max_memory_bytes);
}

void shares_leave(struct sched_gpu *gpu) {
  for (struct list *node = gpu->shares.next, *next; node != &gpu->shares; node = next) {
    struct sched_share *share = list_entry(node, struct sched_share, link);
    next = node->next;
    if (share->job_count > 0 || sched_share_is_shunned(share))
      continue;
    scheduler_remove_share(share);
    free(share);
  }
}

/* ---- the class of a pod ---- */

static void set_class(struct peer *peer, uint32_t class) {
  struct gs_msg term = wire_msg(GS_SET_TERMS, GS_GPU_ALL);
  term.set_terms.term = GS_TERM_CLASS;
  term.set_terms.value = class;
  terms_set(&peer->terms, &term, false);
}

void shares_on_register(struct daemon *daemon, struct peer *peer) {
  list_each(node, &daemon->allotments) {
    const struct allotment *allotment = list_entry(node, struct allotment, link);
    if (allotment->class != GS_CLASS_UNSAID && is_in_pod(peer, allotment->pod))
      set_class(peer, allotment->class);
  }
}

/* ---- names ---- */

void shares_name_pod(struct daemon *daemon, const struct gs_msg *msg) {
  list_each(node, &daemon->allotments) {
    struct allotment *allotment = list_entry(node, struct allotment, link);
    if (strcmp(allotment->pod, msg->pod.pod) == 0)
      strcpy(msg->type == GS_POD_NAME ? allotment->name : allotment->namespace, msg->pod.text);
  }
}

struct pod_names shares_pod_names(const struct daemon *daemon, const struct sched_gpu *gpu,
                                  const struct peer *peer) {
  const struct allotment *allotment =
      peer->origin.kind == GS_ORIGIN_POD ? find(daemon, peer->origin.name, gpu->uuid) : NULL;
  return allotment ? (struct pod_names){allotment->namespace, allotment->name} : (struct pod_names){"", ""};
}

/* ---- ALLOT ---- */

const char *shares_wrong(const struct gs_msg *msg) {
  if (!*msg->allot.pod || msg->allot.pod[strspn(msg->allot.pod, "0123456789abcdef-")])
    return "an allotment is of a pod: give its uid";
  if (uuid_is_zero(msg->allot.uuid))
    return "an allotment is of a GPU: give its UUID";
  if (msg->allot.weight > SCHED_WEIGHT_MAX)
    return "the weight must be at most 10000";
  if (msg->allot.limit_bytes > SCHED_BYTES_MAX)
    return "the memory must be at most 8T";
  return msg->allot.class > GS_CLASS_UNSAID ? "the class must be " CLASS_NAMES : NULL;
}

static void drop(struct daemon *daemon, struct allotment *allotment) {
  list_remove(&allotment->link);
  daemon->allotment_count--;
  free(allotment);
}

void shares_end(struct daemon *daemon) {
  while (!list_empty(&daemon->allotments))
    drop(daemon, list_entry(list_first(&daemon->allotments), struct allotment, link));
}

/* The jobs of the pod that are on the GPU count with this share from now on. */
static void move_jobs(struct daemon *daemon, struct sched_gpu *gpu, const struct allotment *allotment,
                      struct sched_share *share, uint64_t now_ns) {
  list_each(node, &gpu->jobs) {
    struct sched_job *job = list_entry(node, struct sched_job, link);
    struct attachment *attachment = attachment_of(job);
    if (!is_in_pod(attachment->peer, allotment->pod))
      continue;
    scheduler_move_to_share(job, share, now_ns, &daemon->actions);
    if (allotment->class != GS_CLASS_UNSAID) {
      set_class(attachment->peer, allotment->class);
      clients_apply_terms_soon(daemon, attachment->peer);
    }
    struct gs_msg msg = actions_attached(GS_CAPACITY, attachment);
    peer_send(attachment->peer, &msg);
  }
  shares_leave(gpu);
}

/* A new one if there is none; NULL and -errno. */
static struct allotment *provide_allotment(struct daemon *daemon, const struct gs_msg *msg, int *err) {
  struct allotment *allotment = find(daemon, msg->allot.pod, msg->allot.uuid);
  *err = -ENOSPC;
  if (allotment || daemon->allotment_count == ALLOTMENTS_MAX)
    return allotment;
  *err = -ENOMEM;
  if (!(allotment = calloc(1, sizeof *allotment)))
    return NULL;
  strcpy(allotment->pod, msg->allot.pod);
  memcpy(allotment->uuid, msg->allot.uuid, GS_UUID_SIZE);
  list_append(&daemon->allotments, &allotment->link);
  daemon->allotment_count++;
  return allotment;
}

int shares_allot(struct daemon *daemon, const struct gs_msg *msg, uint64_t now_ns) {
  int err;
  struct sched_gpu *gpu = scheduler_find_gpu(&daemon->scheduler, msg->allot.uuid);
  if (msg->allot.weight == 0) {
    struct allotment *gone = find(daemon, msg->allot.pod, msg->allot.uuid);
    if (gone)
      drop(daemon, gone);
    return 0;
  }
  struct allotment *allotment = provide_allotment(daemon, msg, &err);
  if (!allotment)
    return err;
  allotment->share = msg->allot.share & ~SHARE_OF_PODS;
  allotment->limit_bytes = msg->allot.limit_bytes;
  allotment->weight = msg->allot.weight;
  allotment->class = msg->allot.class;
  if (!gpu) /* no job has been there yet */
    return 0;
  struct sched_share *share = provide_allotted(gpu, allotment);
  if (!share)
    return -ENOMEM;
  scheduler_set_share(share, allotment->weight, allotment->limit_bytes, now_ns, &daemon->actions);
  move_jobs(daemon, gpu, allotment, share, now_ns);
  return 0;
}
