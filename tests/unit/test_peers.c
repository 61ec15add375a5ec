/* test_peers.c - whom the loop serves when: connections are the kernel's, users, processes, the daemon's
 * state and the time are played. */
#include "server/server.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/wire.h"
#include "server/daemon_log.h"
#include "server/process.h"
#include "suite.h"

#define MANY 64
#define DEBTOR 1000
#define OTHER 1001
#define US UINT64_C(1000)
#define NOTHING ((enum gs_job_state) - 1)

static struct daemon daemon_state;
static struct server server;

/* ---- the time: it passes while something is done ---- */

static uint64_t now_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
  (void)clock;
  *now = (struct timespec){.tv_sec = (time_t)(now_ns / NS_PER_S), .tv_nsec = (long)(now_ns % NS_PER_S)};
  return 0;
}

/* ---- connections ---- */

struct connection {
  int fd; /* the program's end */
  uid_t uid;
  struct peer *peer;
  struct attachment attachment; /* to a GPU, if it holds something */
  unsigned gpus;
  bool gone;
  unsigned place;    /* among those that are gone, from 1 */
  unsigned messages; /* heard of it */
};

static struct connection connections[MANY];
static unsigned count, gone_count;
static uid_t next_uid;

int __real_getsockopt(int fd, int level, int option, void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *size) {
  if (option != SO_PEERCRED)
    return __real_getsockopt(fd, level, option, value, size);
  *(struct ucred *)value = (struct ucred){.pid = getpid(), .uid = next_uid};
  return 0;
}

static struct connection *connection_of(const struct peer *peer) {
  for (unsigned i = 0; i < count; i++)
    if (connections[i].peer == peer)
      return &connections[i];
  ck_abort_msg("a peer that has not come");
}

/* ---- processes ---- */

static int process_ends[2]; /* readable: the process has ended */
static int process_error;   /* not 0: there is no descriptor of it */
static bool process_is_known, looked_before, process_is_gone, looks_near;

int process_open(int socket, pid_t pid) {
  (void)socket, (void)pid;
  process_is_known = true;
  return process_error ? process_error : dup(process_ends[0]);
}

bool process_has_ended(int pidfd) { return pidfd >= 0 && process_is_gone; }

void process_read(pid_t pid, const char *name, char *text, size_t size) {
  (void)pid, (void)name, (void)size;
  *text = '\0';
}

struct origin origin_parse(char *text) {
  (void)text;
  return (struct origin){.kind = GS_ORIGIN_NONE};
}

bool process_is_stopped(pid_t pid) {
  (void)pid;
  return false;
}

bool permission_is_near(pid_t pid) {
  (void)pid;
  looked_before |= !process_is_known;
  return looks_near;
}

bool permission_granted(int fd, gid_t group) {
  (void)fd, (void)group;
  return true;
}

/* ---- the daemon's state ---- */

static uint64_t message_ns, gone_ns; /* what they cost */

void daemon_on_message(struct daemon *daemon, struct peer *peer, const struct gs_msg *msg, uint64_t then_ns) {
  (void)msg, (void)then_ns;
  daemon->scheduler.dirty = true;
  connection_of(peer)->messages++;
  now_ns += message_ns;
}

void daemon_on_bad_message(struct daemon *daemon, struct peer *peer, int error) {
  (void)daemon;
  ck_abort_msg("fd %d: %s", peer->fd, strerror(-error));
}

static unsigned plan_count;
static uint64_t plan_ns; /* what it costs */

void daemon_plan(struct daemon *daemon, uid_t by) {
  (void)by;
  now_ns += plan_ns;
  daemon->scheduler.dirty = false;
  plan_count++;
}

/* None has been looked at. */
void daemon_on_presence(struct daemon *daemon, struct peer *peer, const struct gs_msg *attach,
                        enum presence_verdict verdict, uint64_t then_ns) {
  (void)daemon, (void)attach, (void)verdict, (void)then_ns;
  ck_abort_msg("fd %d", peer->fd);
}

struct peer *presence_next_settled(struct server *of, struct gs_msg *attach, enum presence_verdict *verdict) {
  (void)of, (void)attach, (void)verdict;
  return NULL;
}

bool daemon_on_gone(struct daemon *daemon, struct peer *peer, uint64_t then_ns) {
  struct connection *connection = connection_of(peer);
  (void)daemon, (void)then_ns;
  now_ns += gone_ns;
  if (connection->gpus > 1) {
    connection->gpus--;
    return false;
  }
  connection->gone = true;
  connection->peer = NULL;
  connection->place = ++gone_count;
  return true;
}

/* ---- the rest of the server ---- */

struct log_text label_peer(const struct peer *peer) {
  (void)peer;
  return (struct log_text){.text = "test"};
}

void log_for(uid_t uid, enum log_level level, const char *format, ...) {
  (void)uid, (void)level, (void)format;
}
void presence_forget(struct peer *peer) { (void)peer; }
void readers_leave(struct peer *peer) { (void)peer; }
void readers_on_writable(struct peer *peer) { (void)peer; }
void pictures_leave(struct peer *peer) { (void)peer; }
void pictures_send(struct peer *peer) { (void)peer; }

/* ---- the loop, as server.c has it ---- */

static void hear(void) {
  struct epoll_event events[MANY];
  server.turn_ns = now_ns;
  int ready = epoll_wait(server.epoll_fd, events, MANY, 0);
  for (int i = 0; i < ready; i++)
    peers_on_event(events[i].data.ptr, events[i].events);
}

static void turn(void) {
  hear();
  peers_serve_leaving(&server, now_ns + 250 * US);
  peers_serve(&server, now_ns + 500 * US);
}

/* It has a job in this state on a GPU; NOTHING: none. */
static struct connection *come(uid_t uid, enum gs_job_state hold) {
  int ends[2];
  struct connection *connection = &connections[count++];
  ck_assert_uint_le(count, MANY);
  ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  next_uid = uid;
  *connection = (struct connection){.fd = ends[1], .uid = uid, .gpus = 1};
  peers_add(&server, ends[0], now_ns);
  connection->peer = list_entry(server.open.previous, struct peer, link);
  ck_assert_int_eq(connection->peer->fd, ends[0]);
  turn();
  ck_assert(connection->peer->admitted);
  connection->attachment.job.state = hold;
  if (hold != NOTHING)
    connection->peer->attachments[0] = &connection->attachment;
  return connection;
}

static void say(const struct connection *connection, int messages) {
  struct gs_msg msg = wire_msg(GS_REQ_LOCK, 0);
  for (int i = 0; i < messages; i++)
    ck_assert_int_eq(wire_send(connection->fd, &msg), 0);
}

static struct user *user_of(uid_t uid) { return users_find(&server.users, uid); }

/* The user owes more than the others will have had for long, and another one has always something to do. */
static struct connection *owe(void) {
  struct connection *busy = come(OTHER, NOTHING);
  rota_spend(&user_of(DEBTOR)->rota, 5 * NS_PER_S);
  message_ns = 100 * US;
  say(busy, 100);
  return busy;
}

static void set_up(void) {
  now_ns = NS_PER_S;
  message_ns = gone_ns = plan_ns = 0;
  count = gone_count = 0;
  process_is_known = looked_before = process_is_gone = looks_near = false;
  process_error = 0;
  ck_assert_int_eq(pipe(process_ends), 0);
  server = (struct server){.daemon = &daemon_state, .epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
  list_init(&server.open);
  list_init(&server.closed);
  list_init(&server.due);
  rota_init(&server.rota);
  rota_init(&server.leaving);
  users_init(&server.users, 1024);
}

static void tear_down(void) {
  peers_close_all(&server);
  ck_assert(users_are_clear(&server.users));
  users_end(&server.users);
  for (unsigned i = 0; i < count; i++)
    close(connections[i].fd);
  close(process_ends[0]);
  close(process_ends[1]);
  close(server.epoll_fd);
}

/* ---- who comes ---- */

/* Once there is a descriptor of the process, its number becomes nobody else's unnoticed. */
TEST(it_is_looked_where_a_process_is_once_its_end_would_be_told) {
  looks_near = true;
  ck_assert(come(OTHER, NOTHING)->peer->near);
  ck_assert(!looked_before);
  looks_near = false;
  ck_assert(!come(OTHER, NOTHING)->peer->near);
}

/* What has been looked at may be the next one of its number. */
TEST(nothing_is_known_of_a_process_that_has_ended) {
  looks_near = process_is_gone = true;
  ck_assert(!come(OTHER, NOTHING)->peer->near);
}

TEST(the_number_counts_where_the_kernel_has_no_descriptors) {
  looks_near = true;
  process_error = -ENOSYS;
  ck_assert(come(OTHER, NOTHING)->peer->near);
  process_error = -EMFILE;
  ck_assert(!come(OTHER, NOTHING)->peer->near);
}

/* ---- who ends ---- */

TEST(what_an_evicted_program_had_is_free_whatever_its_user_owes) {
  struct connection *holder = come(DEBTOR, GS_JOB_HOLDING), *busy = owe();
  peer_close(holder->peer, "it is evicted");
  turn();
  ck_assert(holder->gone);
  ck_assert_uint_gt(busy->messages, 0); /* who is served beside that */
}

TEST(so_is_what_a_program_had_that_closes) {
  struct connection *holder = come(DEBTOR, GS_JOB_HOLDING);
  owe();
  say(holder, 3);
  close(holder->fd);
  holder->fd = -1;
  for (int i = 0; i < 4; i++)
    turn();
  ck_assert(holder->gone);
  ck_assert_uint_eq(holder->messages, 3); /* what it has said before that */
}

/* A child has the socket. */
TEST(so_is_what_a_program_had_whose_process_has_ended) {
  struct connection *holder = come(DEBTOR, GS_JOB_HOLDING);
  close(holder->peer->pidfd);
  int ended[2];
  ck_assert_int_eq(pipe(ended), 0);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = (char *)holder->peer + 1};
  holder->peer->pidfd = ended[0];
  ck_assert_int_eq(epoll_ctl(server.epoll_fd, EPOLL_CTL_ADD, ended[0], &event), 0);
  owe();
  say(holder, 3);
  ck_assert_int_eq(write(ended[1], "", 1), 1);
  for (int i = 0; i < 4; i++)
    turn();
  ck_assert(holder->gone);
  ck_assert_uint_eq(holder->messages, 3);
  close(ended[1]);
}

/* Before its end has been seen: what it has said is still heard. */
TEST(so_is_what_a_program_had_that_is_told_something_at_its_end) {
  struct gs_msg grant = wire_msg(GS_LOCK_OK, 0);
  struct connection *waiter = come(DEBTOR, GS_JOB_WAITING);
  owe();
  say(waiter, 3);
  close(waiter->fd);
  waiter->fd = -1;
  peer_send(waiter->peer, &grant);
  ck_assert(!waiter->peer->closed);
  for (int i = 0; i < 4; i++)
    turn();
  ck_assert(waiter->gone);
  ck_assert_uint_eq(waiter->messages, 3);
}

TEST(a_program_on_several_gpus_leaves_all) {
  struct connection *holder = come(DEBTOR, GS_JOB_HOLDING);
  owe();
  gone_ns = 100 * US;
  holder->gpus = 8;
  peer_close(holder->peer, "it is evicted");
  for (int i = 0; i < 8 && !holder->gone; i++)
    turn();
  ck_assert(holder->gone);
}

TEST(the_cost_is_its_users) {
  struct connection *holder = come(DEBTOR, GS_JOB_HOLDING);
  int64_t before_ns = user_of(DEBTOR)->rota.credit_ns;
  gone_ns = 700 * US;
  peer_close(holder->peer, "it is evicted");
  peers_serve_leaving(&server, now_ns + 250 * US);
  ck_assert(holder->gone);
  ck_assert_int_eq(user_of(DEBTOR)->rota.credit_ns, before_ns - (int64_t)(700 * US));
}

TEST(who_holds_nothing_waits_for_its_users_turn) {
  struct connection *idle = come(DEBTOR, NOTHING), *busy = owe();
  peer_close(idle->peer, "it floods the daemon");
  turn();
  ck_assert(!idle->gone);
  ck_assert_uint_gt(busy->messages, 0);
}

/* ---- plans ---- */

static void hear_many(int messages_each) {
  for (int i = 0; i < MANY; i++)
    say(come(DEBTOR, NOTHING), messages_each);
  plan_count = 0;
  turn();
  for (int i = 0; i < MANY; i++)
    ck_assert_int_eq(connections[i].messages, messages_each);
}

TEST(one_plan_is_made_for_all_that_a_user_says_at_a_time) {
  hear_many(3);
  ck_assert_uint_eq(plan_count, 1);
  turn();
  ck_assert_uint_eq(plan_count, 1); /* nothing has happened since */
}

/* It may take long: nobody pays for what others have said. */
TEST(each_user_has_a_plan_of_its_own) {
  struct connection *one = come(DEBTOR, NOTHING), *other = come(OTHER, NOTHING);
  say(one, 2);
  say(other, 2);
  plan_count = 0;
  plan_ns = 300 * US;
  int64_t before_ns = user_of(OTHER)->rota.credit_ns;
  turn();
  turn();
  ck_assert_uint_eq(plan_count, 2);
  ck_assert_int_ge(before_ns - user_of(OTHER)->rota.credit_ns, (int64_t)(300 * US) - 2 * ROTA_QUANTUM_NS);
}

/* ---- many at once ---- */

/* Some turns of the loop are needed for all: each is as short as others. */
TEST(a_turn_of_the_loop_is_short_however_many_end) {
  for (int i = 0; i < MANY; i++)
    come(DEBTOR, GS_JOB_WAITING);
  gone_ns = 100 * US;
  for (int i = 0; i < MANY; i++)
    peer_close(connections[i].peer, "it is evicted");
  for (int turns = 1; gone_count < MANY; turns++) {
    uint64_t begin_ns = now_ns;
    ck_assert_int_le(turns, MANY);
    turn();
    ck_assert_uint_le(now_ns - begin_ns, 250 * US + gone_ns);
  }
}

TEST(one_users_many_do_not_hold_up_another_users) {
  for (int i = 0; i < MANY - 1; i++)
    come(DEBTOR, GS_JOB_HOLDING);
  struct connection *last = come(OTHER, GS_JOB_WAITING);
  gone_ns = 100 * US;
  for (int i = 0; i < MANY; i++)
    peer_close(connections[i].peer, "it is evicted");
  while (!last->gone)
    turn();
  ck_assert_uint_le(last->place, 3);
}

TEST(who_keeps_others_from_running_is_first_of_its_users) {
  for (int i = 0; i < MANY - 1; i++)
    come(DEBTOR, GS_JOB_WAITING);
  struct connection *holder = come(DEBTOR, GS_JOB_HOLDING);
  gone_ns = 100 * US;
  for (int i = 0; i < MANY; i++)
    peer_close(connections[i].peer, "it is evicted");
  while (!holder->gone)
    turn();
  ck_assert_uint_eq(holder->place, 1);
}

int main(void) { return suite_run_all("peers", set_up, tear_down); }
