/* presence.c - see presence.h. */
#include "server/presence.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/text_file.h"
#include "server/process.h"
#include "server/server.h"

#define LOOK_NS NS_PER_S  /* for an answer, once it is looked */
#define START_NS NS_PER_S /* between starts of a lookout */
/* From its ATTACH on. Programs wait for 2 s. */
#define PATIENCE_NS (1500 * NS_PER_MS)

static struct look *due_look_of(struct list *node) { return list_entry(node, struct look, due_link); }

static struct look *look_of(struct list *node) { return list_entry(node, struct look, link); }

static struct peer *peer_of(struct look *look) {
  return (struct peer *)(void *)((char *)look - offsetof(struct peer, look));
}

/* ---- what the host has ---- */

/* "195 nvidia", or with older drivers "195 nvidia-frontend". Not its other devices. */
static uint32_t read_major(void) {
  const char *root = secure_getenv("GPUSHARE_HOST_ROOT"); /* for tests */
  char path[512], text[8192], name[32];
  unsigned major;
  snprintf(path, sizeof path, "%s/proc/devices", root ? root : "");
  text_file_read(AT_FDCWD, path, text, sizeof text);
  for (char *rest, *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    if (sscanf(line, "%u %31s", &major, name) == 2 &&
        (strcmp(name, "nvidia") == 0 || strcmp(name, "nvidia-frontend") == 0))
      return major;
  return 0;
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
  list_init(&presence->users);
  list_init(&presence->asked);
  list_init(&presence->due);
  list_init(&presence->settled);
  presence->able = lookout_is_able();
  if (geteuid() != 0 && presence->able)
    start(server, clock_now_ns());
}

/* As far as it is known yet. */
void presence_on_cards(struct server *server) {
  const struct presence *presence = &server->presence;
  server->presence.major = read_major();
  server->daemon->presence = presence->require == GS_REQUIRE_NO || !presence->major ? GS_PRESENCE_OFF
                             : presence->lost || presence->blind || presence->slow  ? GS_PRESENCE_BLIND
                                                                                    : GS_PRESENCE_ON;
}

void presence_set(struct server *server, enum gs_require require) {
  struct presence *presence = &server->presence;
  presence->require = require;
  presence->blind = presence->slow = false;
  presence_on_cards(server);
}

/* All peers are gone. */
void presence_close(struct server *server) { lookout_end(&server->presence.lookout); }

/* ---- looks ---- */

static bool has_begun(const struct presence *presence) { return presence->lookout.worker > 0; }

/* The next of its user's. */
static void wait_for_turn(struct presence *presence, struct look *look) {
  struct user *user = peer_of(look)->user;
  look->id = 0;
  list_append(&user->looks, &look->link);
  if (list_empty(&user->looks_link))
    list_append(&presence->users, &user->looks_link);
}

/* The user's next turn comes after those of the others. */
static bool ask(struct presence *presence, struct look *look, uint64_t now_ns) {
  struct peer *peer = peer_of(look);
  struct user *user = peer->user;
  struct lookout_question question = {.id = presence->questions + 1,
                                      .start_ticks = peer->pidfd >= 0 ? 0 : look->start_ticks,
                                      .pid = peer->pid,
                                      .major = presence->major,
                                      .minor = look->minor};
  if (lookout_ask(&presence->lookout, &question) < 0)
    return false; /* an answer will come, or its end */
  if (presence->answered == presence->questions)
    presence->busy_ns = now_ns;
  look->id = ++presence->questions;
  presence->asked_uids[look->id % LOOKS_ASKED] = user->uid;
  list_remove(&look->link);
  list_append(&presence->asked, &look->link);
  list_remove(&user->looks_link);
  if (!list_empty(&user->looks))
    list_append(&presence->users, &user->looks_link);
  return true;
}

/* The user whose turn it is, and who has no other look. The lookout may have a question about a process of
 * the user's that has left since. */
static struct user *next_user(const struct presence *presence) {
  list_each(node, &presence->users) {
    struct user *user = list_entry(node, struct user, looks_link);
    bool looked_for = false;
    for (uint64_t id = presence->answered + 1; id <= presence->questions; id++)
      looked_for |= presence->asked_uids[id % LOOKS_ASKED] == user->uid;
    if (!looked_for)
      return user;
  }
  return NULL;
}

/* What can be asked now. */
static void ask_more(struct server *server, uint64_t now_ns) {
  struct presence *presence = &server->presence;
  struct user *user;
  if (list_empty(&presence->users))
    return;
  if (presence->lookout.fd < 0 && now_ns >= presence->start_ns)
    start(server, now_ns);
  while (has_begun(presence) && presence->questions - presence->answered < LOOKS_ASKED &&
         (user = next_user(presence)))
    if (!ask(presence, look_of(list_first(&user->looks)), now_ns))
      return;
}

/* It is not known what has become of them. */
static void ask_anew(struct presence *presence) {
  presence->answered = presence->questions;
  while (!list_empty(&presence->asked)) {
    struct look *look = look_of(list_first(&presence->asked));
    list_remove(&look->link);
    wait_for_turn(presence, look);
  }
}

void presence_forget(struct peer *peer) {
  struct look *look = &peer->look;
  if (!look->attach)
    return;
  list_remove(&look->link);
  list_remove(&look->due_link);
  if (list_empty(&peer->user->looks))
    list_remove(&peer->user->looks_link);
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

/* It is told to whoever asks for what is settled. */
static void settle(struct peer *peer, enum presence_verdict verdict) {
  struct look *look = &peer->look;
  list_remove(&look->link);
  list_remove(&look->due_link);
  if (list_empty(&peer->user->looks))
    list_remove(&peer->user->looks_link);
  look->verdict = verdict;
  list_append(&peer->server->presence.settled, &look->link);
}

struct peer *presence_next_settled(struct server *server, struct gs_msg *attach,
                                   enum presence_verdict *verdict) {
  struct list *first = list_first(&server->presence.settled);
  if (!first)
    return NULL;
  struct peer *peer = peer_of(look_of(first));
  *attach = *peer->look.attach;
  *verdict = peer->look.verdict;
  presence_forget(peer);
  peer_set_events(peer, EPOLLIN);
  return peer;
}

static enum presence_verdict without_knowing(const struct presence *presence) {
  return presence->require == GS_REQUIRE_YES ? PRESENCE_REFUSED : PRESENCE_ADMITTED;
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
  /* Only a daemon that is root has what another one needs. */
  if (geteuid() != 0 && !presence->lost && presence->able) {
    presence->lost = true;
    if (server->daemon->presence == GS_PRESENCE_ON)
      server->daemon->presence = GS_PRESENCE_BLIND;
    log_warn(
        "the process that looks who has a GPU's device open has ended, and the daemon can't give another one "
        "its capabilities: restart the daemon");
  }
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
      continue;
    }
    if (answer.id > presence->answered)
      presence->answered = answer.id;
    presence->busy_ns = now_ns;
    if (!look) /* it was forgotten */
      continue;
    struct peer *peer = peer_of(look);
    enum presence_verdict verdict = answer.found == 1 ? PRESENCE_ADMITTED : PRESENCE_REFUSED;
    if (answer.found == -EACCES || answer.found == -EPERM) {
      complain(server, peer, &presence->blind, "the daemon lacks CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH");
      verdict = without_knowing(presence);
    }
    if (answer.found == 1 && process_has_ended(peer->pidfd)) /* its number may have been another's */
      verdict = PRESENCE_REFUSED;
    settle(peer, verdict);
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

static uint64_t stuck_ns(const struct presence *presence) {
  bool asked = has_begun(presence) && presence->answered < presence->questions;
  return asked ? presence->busy_ns + LOOK_NS : UINT64_MAX;
}

uint64_t presence_deadline_ns(const struct server *server) {
  const struct presence *presence = &server->presence;
  struct list *first = list_first(&presence->due);
  uint64_t next_ns = first ? due_look_of(first)->until_ns : UINT64_MAX, stop_ns = stuck_ns(presence);
  next_ns = stop_ns < next_ns ? stop_ns : next_ns;
  bool starts = presence->lookout.fd < 0 && !list_empty(&presence->users);
  return starts && presence->start_ns < next_ns ? presence->start_ns : next_ns;
}

static void give_up(struct server *server, struct look *look) {
  complain(server, peer_of(look), &server->presence.slow, "the look takes too long");
  settle(peer_of(look), without_knowing(&server->presence));
}

void presence_on_time(struct server *server, uint64_t now_ns) {
  struct presence *presence = &server->presence;
  if (now_ns >= stuck_ns(presence)) {
    struct look *look = find_asked(presence, presence->answered + 1);
    if (look) /* else it was forgotten, or has waited too long before */
      give_up(server, look);
    lookout_replace(&presence->lookout);
  }
  struct list *first =
      list_first(&presence->due); /* one at a time: its job may be let in, which concerns others */
  if (first && now_ns >= due_look_of(first)->until_ns)
    give_up(server, due_look_of(first));
  ask_more(server, now_ns);
}

/* ---- what messages.c asks for ---- */

enum presence_verdict peer_check_presence(struct peer *peer, const struct gs_msg *attach) {
  struct server *server = peer->server;
  struct presence *presence = &server->presence;
  if (presence->require == GS_REQUIRE_NO)
    return PRESENCE_ADMITTED;
  const struct daemon *daemon = server->daemon;
  const uint8_t *uuid = attach->attach.uuid;
  const struct card *card = cards_find(&daemon->cards, uuid);
  if (!card && cards_are_all(&daemon->cards))
    return PRESENCE_ADMITTED; /* for gpus.c to refuse it, or to ask the host again */
  if (!card || card->minor > INT32_MAX || presence->major == 0) /* CARD_MINOR_UNKNOWN is more */
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
  uint64_t now_ns = clock_now_ns();
  peer->look = (struct look){
      .attach = kept, .until_ns = now_ns + PATIENCE_NS, .start_ticks = start_ticks, .minor = card->minor};
  list_append(&presence->due, &peer->look.due_link);
  wait_for_turn(presence, &peer->look);
  peer_set_events(peer, 0);
  ask_more(server, now_ns);
  return PRESENCE_ASKED;
}
