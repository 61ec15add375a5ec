/* presence.c - see presence.h. */
#include "presence.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "peers.h"
#include "process.h"

#define LOOK_NS NS_PER_S  /* for an answer */
#define START_NS NS_PER_S /* between starts of a lookout */
#define ASKED_MOST 64     /* at once */

static struct look *look_of(struct list *node) { return list_entry(node, struct look, link); }

static struct peer *peer_of(struct look *look) {
  return (struct peer *)(void *)((char *)look - offsetof(struct peer, look));
}

/* ---- what the host has ---- */

/* A text of the kernel's; below another root for tests. "": there is none. */
static void read_text(const char *path, char *text, size_t size) {
  const char *root = secure_getenv("GPUSHARE_HOST_ROOT");
  char whole[512];
  snprintf(whole, sizeof whole, "%s%s", root ? root : "", path);
  int fd = open(whole, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
  if (fd >= 0)
    close(fd);
  text[length > 0 ? length : 0] = '\0';
}

/* "195 nvidia", or with older drivers "195 nvidia-frontend". Not its other devices. */
static uint32_t read_major(void) {
  char text[8192], name[32];
  unsigned major;
  read_text("/proc/devices", text, sizeof text);
  for (char *rest, *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    if (sscanf(line, "%u %31s", &major, name) == 2 &&
        (strcmp(name, "nvidia") == 0 || strcmp(name, "nvidia-frontend") == 0))
      return major;
  return 0;
}

/* Of the GPU's device file, as the host tells; negative: it is not known. */
static int minor_of(const struct daemon *daemon, const uint8_t uuid[GS_UUID_SIZE]) {
  const struct card *card = cards_find(&daemon->cards, uuid);
  return card && card->minor != CARD_MINOR_UNKNOWN ? (int)card->minor : -1;
}

/* ---- the lookout ---- */

static void start(struct server *server, uint64_t now_ns) {
  struct presence *presence = &server->presence;
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = presence};
  presence->start_ns = 0;
  int err = lookout_start(&presence->lookout);
  if (err == 0 && epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, presence->lookout.fd, &event) < 0) {
    err = -errno;
    lookout_end(&presence->lookout);
  }
  if (err == 0)
    return;
  log_warn("can't start the process that looks who has a GPU's device open: %s", strerror(-err));
  presence->start_ns = now_ns + START_NS;
}

/* The daemon gives up what the lookout needs as soon as there is one: so there is one from the start. */
void presence_open(struct server *server) {
  struct presence *presence = &server->presence;
  *presence = (struct presence){.lookout = {.fd = -1}};
  list_init(&presence->waiting);
  list_init(&presence->asked);
  if (geteuid() != 0 && lookout_is_able())
    start(server, clock_now_ns());
}

void presence_set(struct server *server, enum gs_require require) {
  struct presence *presence = &server->presence;
  presence->require = require;
  presence->major = read_major();
  server->daemon->presence = require == GS_REQUIRE_NO || !presence->major ? GS_PRESENCE_OFF : GS_PRESENCE_ON;
  presence->blind = presence->slow = false;
}

/* All peers are gone. */
void presence_close(struct server *server) { lookout_end(&server->presence.lookout); }

/* ---- looks ---- */

static bool has_begun(const struct presence *presence) { return presence->lookout.worker > 0; }

static void ask(struct presence *presence, struct look *look, uint64_t now_ns) {
  struct peer *peer = peer_of(look);
  struct lookout_question question = {.id = ++presence->questions,
                                      .start_ticks = peer->pidfd >= 0 ? 0 : look->start_ticks,
                                      .pid = peer->pid,
                                      .major = presence->major,
                                      .minor = look->minor};
  if (lookout_ask(&presence->lookout, &question) < 0)
    return; /* an answer will come, or its end */
  look->id = question.id;
  look->until_ns = now_ns + LOOK_NS;
  peer->user->looked_for = true;
  list_remove(&look->link);
  list_append(&presence->asked, &look->link);
}

/* What can be asked now, in the order in which they have come, as far as their users have no other. */
static void ask_more(struct server *server, uint64_t now_ns) {
  struct presence *presence = &server->presence;
  unsigned count = 0;
  if (list_empty(&presence->waiting))
    return;
  if (presence->lookout.fd < 0 && now_ns >= presence->start_ns)
    start(server, now_ns);
  if (!has_begun(presence))
    return;
  list_each(node, &presence->asked) { count++; }
  for (struct list *node = presence->waiting.next, *next; node != &presence->waiting && count < ASKED_MOST;
       node = next) {
    next = node->next;
    if (peer_of(look_of(node))->user->looked_for)
      continue;
    ask(presence, look_of(node), now_ns);
    count++;
  }
}

/* It is not known what has become of them. */
static void ask_anew(struct presence *presence) {
  while (!list_empty(&presence->asked)) {
    struct look *look = look_of(list_first(&presence->asked));
    peer_of(look)->user->looked_for = false;
    list_remove(&look->link);
    list_append(&presence->waiting, &look->link);
  }
}

void presence_forget(struct peer *peer) {
  struct look *look = &peer->look;
  if (!look->attach)
    return;
  if (look->id)
    peer->user->looked_for = false;
  list_remove(&look->link);
  free(look->attach);
  *look = (struct look){.attach = NULL};
}

/* Once, until the settings are read again: what it is that can't be told. */
static void complain(struct server *server, const struct peer *peer, bool *said, const char *why) {
  if (*said)
    return;
  *said = true;
  server->daemon->presence = GS_PRESENCE_BLIND;
  log_warn("can't tell whether pid %d of uid %u has the GPU's device open: %s; such programs are %s",
           peer->pid, peer->uid, why,
           server->presence.require == GS_REQUIRE_YES ? "refused" : "let in (require_device = auto)");
}

static void settle(struct peer *peer, enum presence_verdict verdict, uint64_t now_ns) {
  struct gs_msg attach = *peer->look.attach;
  uint64_t begin_ns = clock_now_ns();
  presence_forget(peer);
  peers_set_events(peer, EPOLLIN);
  daemon_on_presence(peer->server->daemon, peer, &attach, verdict, now_ns);
  rota_spend(&peer->user->rota, clock_now_ns() - begin_ns); /* not in its user's turn */
}

static enum presence_verdict without_knowing(const struct presence *presence) {
  return presence->require == GS_REQUIRE_YES ? PRESENCE_REFUSED : PRESENCE_ADMITTED;
}

static void on_answer(struct server *server, struct peer *peer, int found, uint64_t now_ns) {
  enum presence_verdict verdict = found == 1 ? PRESENCE_ADMITTED : PRESENCE_REFUSED;
  if (found == -EACCES || found == -EPERM) {
    complain(server, peer, &server->presence.blind,
             "the daemon lacks CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH");
    verdict = without_knowing(&server->presence);
  }
  if (found == 1 && process_has_ended(peer->pidfd)) /* its number may have been another's */
    verdict = PRESENCE_REFUSED;
  settle(peer, verdict, now_ns);
}

static struct look *find_asked(const struct presence *presence, uint64_t id) {
  list_each(node, &presence->asked) {
    if (look_of(node)->id == id)
      return look_of(node);
  }
  return NULL;
}

/* It is started again when it is needed, at once if that is now. */
static void on_loss(struct server *server, uint64_t now_ns) {
  struct presence *presence = &server->presence;
  lookout_end(&presence->lookout);
  ask_anew(presence);
  presence->start_ns = now_ns;
  ask_more(server, now_ns);
  presence->start_ns = now_ns + START_NS;
}

void presence_on_event(struct server *server) {
  struct presence *presence = &server->presence;
  struct lookout_answer answer;
  uint64_t now_ns = clock_now_ns();
  int err = 0;
  while (presence->lookout.fd >= 0 && (err = lookout_hear(&presence->lookout, &answer)) == 0) {
    struct look *look = find_asked(presence, answer.id);
    if (answer.id == 0) {
      presence->lookout.worker = answer.found;
      ask_anew(presence);
    } else if (look) { /* else it was forgotten */
      on_answer(server, peer_of(look), answer.found, now_ns);
    }
  }
  if (err == -EAGAIN)
    ask_more(server, now_ns);
  else if (err < 0)
    on_loss(server, now_ns);
}

void presence_on_child(struct server *server) {
  if (lookout_on_child(&server->presence.lookout))
    on_loss(server, clock_now_ns());
}

uint64_t presence_deadline_ns(const struct server *server) {
  const struct presence *presence = &server->presence;
  struct list *first = list_first(&presence->asked);
  uint64_t next_ns = first ? look_of(first)->until_ns : UINT64_MAX;
  bool starts = presence->lookout.fd < 0 && !list_empty(&presence->waiting);
  return starts && presence->start_ns < next_ns ? presence->start_ns : next_ns;
}

void presence_on_time(struct server *server, uint64_t now_ns) {
  struct presence *presence = &server->presence;
  struct list *first;
  while ((first = list_first(&presence->asked)) && now_ns >= look_of(first)->until_ns) {
    struct peer *peer = peer_of(look_of(first));
    complain(server, peer, &presence->slow, "the look takes too long");
    settle(peer, without_knowing(presence), now_ns);
    lookout_replace(&presence->lookout);
  }
  ask_more(server, now_ns);
}

/* ---- what wiring.c asks for ---- */

enum presence_verdict peer_check_presence(struct peer *peer, const struct gs_msg *attach) {
  struct server *server = peer->server;
  struct presence *presence = &server->presence;
  if (presence->require == GS_REQUIRE_NO)
    return PRESENCE_ADMITTED;
  const struct daemon *daemon = server->daemon;
  const uint8_t *uuid = attach->attach.uuid;
  int minor = minor_of(daemon, uuid);
  if (minor < 0 && daemon->cards.source != CARDS_UNKNOWN && !cards_find(&daemon->cards, uuid))
    return PRESENCE_ADMITTED; /* for gpus.c to refuse it, or to ask the host again */
  if (minor < 0 || presence->major == 0)
    return without_knowing(presence);
  uint64_t start_ticks = peer->pidfd >= 0 ? 0 : process_start_ticks(peer->pid);
  if (peer->pid <= 0 || (peer->pidfd < 0 && start_ticks == 0)) {
    complain(server, peer, &presence->blind, "it is in a pid namespace that the daemon does not see");
    return without_knowing(presence);
  }
  struct gs_msg *kept = malloc(sizeof *kept);
  if (!kept) {
    peer_close(peer, "out of memory");
    return PRESENCE_ASKED;
  }
  *kept = *attach;
  peer->look = (struct look){.attach = kept, .start_ticks = start_ticks, .minor = (uint32_t)minor};
  list_append(&presence->waiting, &peer->look.link);
  peers_set_events(peer, 0);
  ask_more(server, clock_now_ns());
  return PRESENCE_ASKED;
}
