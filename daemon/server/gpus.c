/*
 * gpus.c - the GPUs that the daemon knows, and what is to be done for each from time to time.
 *
 * Where the host tells which cards it has (cards.h), these are the GPUs, by nvidia-smi's index, whether
 * programs use them or not, and no others. The exception: a GPU that the host has no more, or had not told of
 * yet, or does not tell of, stays until its last job has gone. Elsewhere a GPU comes with the first program
 * that names it, as what most users say that it is (claims); it makes way, once it is unused, when there
 * are too many.
 */
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/gpu_number.h"
#include "common/parse.h"
#include "server/daemon_log.h"
#include "server/events.h"
#include "server/keep.h"
#include "shared/printable.h"

/* A GPU that is refused may be asked for again after so long if the host is being asked. */
#define LOOKING_NS NS_PER_S
#define LOOK_PAUSE_NS (60 * NS_PER_S) /* where the host did not tell */

static struct gpu *gpu_at(struct list *node) { return gpu_of(list_entry(node, struct sched_gpu, link)); }

static void forget(struct daemon *daemon, struct sched_gpu *gpu) {
  status_on_forget(daemon, gpu);
  while (!list_empty(&gpu->shares)) {
    struct sched_share *share = list_entry(list_first(&gpu->shares), struct sched_share, link);
    scheduler_remove_share(share);
    free(share);
  }
  scheduler_remove_gpu(&daemon->scheduler, gpu);
  free(gpu_of(gpu));
  daemon->gpu_count--;
}

/* ---- what it is, and its place ---- */

/* The host's word, then the administrator's, then that of most users. A size that turns out to be another one
 * is told to the jobs, and it is in the log who has caused that. */
static void settle_truth(struct daemon *daemon, struct gpu *gpu, uid_t by, uint64_t now_ns) {
  const struct card *card = cards_find(&daemon->cards, gpu->sched.uuid);
  struct sched_settings own =
      overrides_settings(&daemon->overrides, gpu->sched.uuid, (struct sched_settings){0});
  uint64_t bytes = card && card->total_bytes ? card->total_bytes
                   : own.card_bytes          ? own.card_bytes
                                             : gpu->claims.total_bytes;
  bytes = bytes < SCHED_BYTES_MAX ? bytes : SCHED_BYTES_MAX;
  memcpy(gpu->sched.name, card && *card->name ? card->name : gpu->claims.name, sizeof gpu->sched.name);
  if (bytes == gpu->sched.total_bytes)
    return;
  char uuid[GS_UUID_TEXT_SIZE];
  format_uuid(gpu->sched.uuid, uuid);
  if (gpu->sched.job_count > 0)
    log_for(by, LOG_LEVEL_WARN, "%s (%s) has %lu bytes, not %lu", uuid, gpu->sched.name, bytes,
            gpu->sched.total_bytes);
  scheduler_set_size(&gpu->sched, bytes, now_ns, &daemon->actions);
}

void gpus_settle(struct daemon *daemon, uint64_t now_ns) {
  list_each(node, &daemon->scheduler.gpus) { settle_truth(daemon, gpu_at(node), LOG_NOBODY, now_ns); }
}

/* Behind the host's cards, in the order of appearance. */
static uint32_t spare_number(const struct daemon *daemon) {
  uint32_t number = 0;
  for (uint32_t i = 0; i < daemon->cards.count; i++)
    if (GS_GPU_CARD(daemon->cards.list[i].number) >= number)
      number = GS_GPU_CARD(daemon->cards.list[i].number) + 1;
  list_each(node, &daemon->scheduler.gpus) { /* in the order of the numbers */
    number += gpu_at(node)->number == number;
  }
  return number;
}

/* The scheduler's list is in the order of the numbers. */
static void place(struct daemon *daemon, struct gpu *gpu, uint32_t number) {
  struct list *before = &daemon->scheduler.gpus;
  gpu->number = number;
  list_remove(&gpu->sched.link);
  list_each(node, &daemon->scheduler.gpus) {
    if (gpu_number_compare(gpu_at(node)->number, number) > 0) {
      before = node;
      break;
    }
  }
  list_append(before, &gpu->sched.link);
}

/* Nobody uses it yet, but on others it may be the event that they have waited for. NULL: no memory. */
static struct gpu *add(struct daemon *daemon, const uint8_t uuid[GS_UUID_SIZE], uint64_t now_ns) {
  struct gpu *gpu = calloc(1, sizeof *gpu);
  if (!gpu)
    return NULL;
  scheduler_add_gpu(&daemon->scheduler, &gpu->sched, uuid, "", 0);
  gpu->number = GS_GPU_ALL; /* until it is placed */
  rates_init(&gpu->rates, actions_tell_share);
  daemon->gpu_count++;
  overrides_apply(&daemon->overrides, &gpu->sched, now_ns, &daemon->actions);
  settle_truth(daemon, gpu, LOG_NOBODY, now_ns);
  return gpu;
}

/* ---- the host's cards ---- */

/* NULL if it is none, or none that programs see. */
static const struct card *listed_card(const struct cards *cards, const uint8_t uuid[GS_UUID_SIZE]) {
  const struct card *card = cards_find(cards, uuid);
  return card && !card->split ? card : NULL;
}

/* A GPU without a place among the cards is numbered anew, behind them. */
static void place_all(struct daemon *daemon) {
  struct list strangers;
  list_init(&strangers);
  for (struct list *node = daemon->scheduler.gpus.next, *next; node != &daemon->scheduler.gpus; node = next) {
    next = node->next;
    list_remove(node);
    list_append(&strangers, node);
  }
  for (int known = 1; known >= 0; known--)
    for (struct list *node = strangers.next, *next; node != &strangers; node = next) {
      struct gpu *gpu = gpu_at(node);
      next = node->next;
      if (gpu->known == known)
        place(daemon, gpu,
              known ? cards_find(&daemon->cards, gpu->sched.uuid)->number : spare_number(daemon));
    }
}

bool gpus_find_numbered(struct overrides *overrides, const struct cards *cards) {
  bool some = false;
  for (size_t i = 0; i < overrides->count; i++) {
    struct override *own = &overrides->list[i];
    const struct card *card = own->numbered ? cards_at(cards, own->number) : NULL;
    some |= card != NULL;
    if (card)
      memcpy(own->uuid, card->uuid, sizeof own->uuid);
    else if (own->numbered)
      memset(own->uuid, 0, sizeof own->uuid);
  }
  return some;
}

void gpus_on_cards(struct daemon *daemon, const struct cards *cards, uint64_t now_ns) {
  static struct overrides configured;
  daemon->cards = *cards;
  card_watch_stop(&daemon->card_watch); /* it looks at the cards that there were */
  configured = daemon->configured_overrides;
  bool numbered = gpus_find_numbered(&configured, cards);
  if (numbered)
    keep_configure(daemon, &daemon->configured_general, &configured, now_ns);
  for (struct list *node = daemon->scheduler.gpus.next, *next; node != &daemon->scheduler.gpus; node = next) {
    struct gpu *gpu = gpu_at(node);
    next = node->next;
    gpu->known = cards_find(cards, gpu->sched.uuid);
    if (cards->source != CARDS_UNKNOWN && gpu->sched.job_count == 0 && !listed_card(cards, gpu->sched.uuid))
      forget(daemon, &gpu->sched);
  }
  for (uint32_t i = 0; i < cards->count; i++) {
    const struct card *card = &cards->list[i];
    if (card->split || scheduler_find_gpu(&daemon->scheduler, card->uuid) ||
        daemon->gpu_count >= DAEMON_GPUS_MAX)
      continue;
    struct gpu *gpu = add(daemon, card->uuid, now_ns);
    if (gpu)
      gpu->known = true;
  }
  place_all(daemon);
  status_on_order(daemon, now_ns);
  list_each(node, &daemon->scheduler.gpus) {
    if (numbered)
      overrides_apply(&daemon->overrides, &gpu_at(node)->sched, now_ns, &daemon->actions);
  }
  gpus_settle(daemon, now_ns);
}

/* ---- GPUs that programs name ---- */

static unsigned count_brought(const struct daemon *daemon, uid_t uid) {
  unsigned count = 0;
  list_each(node, &daemon->scheduler.gpus) {
    count += !gpu_at(node)->known && gpu_at(node)->brought_by == uid;
  }
  return count;
}

/* One that nobody uses, of those that the user has brought. */
static bool forget_unused_of(struct daemon *daemon, uid_t uid) {
  list_each(node, &daemon->scheduler.gpus) {
    struct gpu *gpu = gpu_at(node);
    if (gpu->known || gpu->brought_by != uid || gpu->sched.job_count > 0)
      continue;
    forget(daemon, &gpu->sched);
    return true;
  }
  return false;
}

/* The user who has brought the most unused ones has to make room: never somebody who has brought fewer. */
static bool forget_unused(struct daemon *daemon) {
  const struct gpu *most = NULL;
  unsigned most_count = 0;
  list_each(node, &daemon->scheduler.gpus) {
    const struct gpu *gpu = gpu_at(node);
    unsigned count = gpu->known || gpu->sched.job_count > 0 ? 0 : count_brought(daemon, gpu->brought_by);
    if (count > most_count) {
      most = gpu;
      most_count = count;
    }
  }
  return most && forget_unused_of(daemon, most->brought_by);
}

/* A place for a GPU that this user brings. As of all resources (users.h), it has at most half of what others
 * do not use. */
static bool make_room(struct daemon *daemon, uid_t uid) {
  unsigned others = 0;
  list_each(node, &daemon->scheduler.gpus) {
    const struct gpu *gpu = gpu_at(node);
    others += gpu->known || (gpu->brought_by != uid && gpu->sched.job_count > 0);
  }
  unsigned share = others < DAEMON_GPUS_MAX ? (DAEMON_GPUS_MAX - others) / 2 : 0;
  share = share < GS_GPUS_PER_CLIENT ? share : GS_GPUS_PER_CLIENT;
  if (count_brought(daemon, uid) >= share)
    return forget_unused_of(daemon, uid);
  return daemon->gpu_count < DAEMON_GPUS_MAX || forget_unused_of(daemon, uid) || forget_unused(daemon);
}

/* The host is asked again, now and then: it may have got a card, or other MIG instances, or its driver, or a
 * card is used for the first time. */
uint64_t gpus_retry_ns(struct daemon *daemon, const uint8_t uuid[GS_UUID_SIZE], uint64_t now_ns) {
  struct card_query *query = &daemon->card_query;
  uint64_t pause_ns = daemon->cards.source == CARDS_UNKNOWN ? LOOK_PAUSE_NS : CARD_QUERY_PAUSE_NS;
  if (cards_find(&daemon->cards, uuid))
    return GPUS_REFUSED_NS;
  bool looks = query->pid && !query->only_reads;
  if (!looks && query->asked && now_ns - query->asked_ns >= pause_ns)
    card_query_begin(query, now_ns);
  return query->pid && !query->killed ? LOOKING_NS : GPUS_REFUSED_NS;
}

struct sched_gpu *gpus_provide(struct daemon *daemon, const struct peer *peer, const struct gs_msg *msg,
                               uint64_t now_ns, uint64_t *retry_ns) {
  const uint8_t *uuid = msg->attach.uuid;
  struct sched_gpu *found = scheduler_find_gpu(&daemon->scheduler, uuid);
  const struct card *card = cards_find(&daemon->cards, uuid); /* then it is one in MIG mode */
  *retry_ns = 0;
  if (found && (card || !daemon->cards.partial))
    return found;
  uint64_t again_ns = gpus_retry_ns(daemon, uuid, now_ns);
  if (found)
    return found;
  if (cards_are_all(&daemon->cards) && !card) {
    *retry_ns = again_ns;
    return NULL;
  }
  if (!make_room(daemon, peer->uid)) {
    *retry_ns = GPUS_REFUSED_NS;
    return NULL;
  }
  struct gpu *gpu = add(daemon, uuid, now_ns);
  if (!gpu)
    return NULL;
  gpu->known = card;
  gpu->brought_by = peer->uid;
  place(daemon, gpu, card ? card->number : spare_number(daemon));
  return &gpu->sched;
}

void gpus_enter(struct daemon *daemon, struct sched_gpu *gpu, const struct peer *peer,
                const struct gs_msg *msg, uint64_t now_ns) {
  char name[GS_NAME_SIZE];
  printable_copy(name, msg->attach.name, sizeof name);
  claims_enter(&gpu_of(gpu)->claims, peer->uid, msg->attach.total_bytes, name);
  settle_truth(daemon, gpu_of(gpu), peer->uid, now_ns);
}

void gpus_leave(struct daemon *daemon, struct sched_gpu *gpu, const struct peer *peer, uint64_t now_ns) {
  claims_leave(&gpu_of(gpu)->claims, peer->uid);
  if (gpu->job_count == 0 && daemon->cards.source != CARDS_UNKNOWN && !listed_card(&daemon->cards, gpu->uuid))
    forget(daemon, gpu);
  else
    settle_truth(daemon, gpu_of(gpu), peer->uid, now_ns);
}

bool gpus_have_job(void *of, pid_t pid) {
  list_each(node, daemon_process_bucket(of, pid)) {
    if (list_entry(node, struct peer, process_link)->pid == pid)
      return true;
  }
  return false;
}

/* ---- time ---- */

/* The one that is due first; NULL: none ever. */
static struct gpu *first_due(const struct daemon *daemon) {
  struct gpu *first = NULL;
  uint64_t first_ns = RATE_NEVER;
  list_each(node, &daemon->scheduler.gpus) {
    uint64_t due_ns = rates_deadline_ns(&gpu_at(node)->rates);
    if (due_ns < first_ns) {
      first = gpu_at(node);
      first_ns = due_ns;
    }
  }
  return first;
}

uint64_t gpus_deadline_ns(const struct daemon *daemon) {
  const struct gpu *first = first_due(daemon);
  return first ? rates_deadline_ns(&first->rates) : RATE_NEVER;
}

/* One GPU at a time: all its jobs may have to be told. Other events come between. */
void gpus_on_time(struct daemon *daemon, uint64_t now_ns) {
  struct gpu *gpu = first_due(daemon);
  if (gpu)
    rates_on_time(&gpu->rates, now_ns);
}

/* ---- what is on the cards ---- */

static bool is_watched(const struct daemon *daemon) {
  if (!daemon->card_watch.library || daemon->cards.source != CARDS_NVML)
    return false;
  list_each(node, &daemon->scheduler.gpus) {
    if (sched_gpu_is_watched(&gpu_at(node)->sched))
      return true;
  }
  return false;
}

uint64_t gpus_watch_deadline_ns(const struct daemon *daemon) {
  return daemon->card_watch.pid || is_watched(daemon) ? daemon->card_watch.next_ns : UINT64_MAX;
}

void gpus_watch_on_time(struct daemon *daemon, uint64_t now_ns) {
  struct card_watch *watch = &daemon->card_watch;
  uint64_t bytes, at_ns;
  if (now_ns < gpus_watch_deadline_ns(daemon))
    return;
  card_watch_go_on(watch, &daemon->cards, is_watched(daemon), now_ns);
  for (uint32_t i = 0; i < daemon->cards.count; i++) {
    struct sched_gpu *gpu = scheduler_find_gpu(&daemon->scheduler, daemon->cards.list[i].uuid);
    if (gpu && card_watch_read(watch, i, &bytes, &at_ns) && at_ns <= now_ns)
      scheduler_set_occupied(gpu, bytes, at_ns, now_ns, &daemon->actions);
  }
}

void gpus_end(struct daemon *daemon) {
  while (!list_empty(&daemon->scheduler.gpus))
    forget(daemon, &gpu_at(list_first(&daemon->scheduler.gpus))->sched);
}
