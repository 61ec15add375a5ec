/* played_daemon.c - see played_daemon.h. */
#include "played_daemon.h"

#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "suite.h"

struct daemon it;
struct users users;
uint64_t now_ns;

static struct {
  struct peer *list;
  size_t count;
} known;

void played_begin(struct peer *peers, size_t count) {
  log_setup("test", LOG_LEVEL_ERROR);
  now_ns = NS_PER_S;
  known.list = peers;
  known.count = count;
  memset(peers, 0, count * sizeof *peers);
  users_init(&users, 100000);
  users_bound_clients(&users, 2048);
  daemon_init(&it, now_ns);
}

void played_end(void) {
  for (size_t i = 0; i < known.count; i++)
    played_go(&known.list[i]);
  daemon_end(&it);
  ck_assert(users_are_clear(&users));
  users_end(&users);
}

void played_come(struct peer *peer, uid_t uid, pid_t pid) {
  *peer = (struct peer){.uid = uid, .pid = pid, .pidfd = -1, .tokens = 1, .user = users_find(&users, uid)};
  ck_assert_int_eq(user_charge(peer->user, USER_CONNECTIONS, 1), 0);
}

void played_go(struct peer *peer) {
  if (!peer->user)
    return;
  peer->closed = true;
  while (!daemon_on_gone(&it, peer, now_ns))
    ;
  user_release(peer->user, USER_CONNECTIONS, 1);
  *peer = (struct peer){.fd = -1};
}

void played_say(struct peer *peer, const struct gs_msg *msg) {
  now_ns += 1000;
  daemon_on_message(&it, peer, msg, now_ns);
}
