/* test_readers.c - peers that read a record; the rest of the server is played, and the socket is one of the
 * kernel's. */
#include "server/server.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/wire.h"
#include "server/record.h"
#include "server/usage.h"
#include "suite.h"

#define OWN 1000
#define OTHER 1001

static struct daemon daemon_;
static struct server server;
static struct peer peer;
static int other_fd;
static bool ready;
static uint64_t missed; /* events, as the peer has been told so far */

/* ---- the rest of the server ---- */

void peer_set_ready(struct peer *reader) { ready |= reader == &peer; }
void peer_set_events(struct peer *reader, uint32_t events) {
  struct epoll_event event = {.events = events | EPOLLET};
  epoll_ctl(server.epoll_fd, EPOLL_CTL_MOD, reader->fd, &event);
}
void peer_hang_up(struct peer *reader) { ck_abort_msg("fd %d", reader->fd); }
void peer_set_due(struct peer *reader, uint64_t now_ns) { reader->due_ns = now_ns; }
void peer_set_patient(struct peer *reader) { reader->due_ns = 0; }
void peer_send(struct peer *reader, const struct gs_msg *msg) {
  ck_abort_msg("%u to fd %d", msg->type, reader->fd);
}

/* Nobody asks for a picture. */
void status_begin(struct daemon *daemon, uint64_t now_ns) { ck_abort_msg("%p %lu", (void *)daemon, now_ns); }
bool status_go_on(struct daemon *daemon, uint64_t now_ns, uint64_t until_ns) {
  return daemon && now_ns < until_ns;
}
struct gs_msg *status_take(struct daemon *daemon, size_t *count) {
  *count = daemon != NULL;
  return NULL;
}

/* ---- spans that go on: of jobs 1 to open_jobs, in this order ---- */

static uint32_t open_jobs;
static void (*as_it_is_told)(uint32_t job);

int usage_tell_next(struct daemon *daemon, struct usage_place *place, uint64_t now_ns, struct gs_msg *span) {
  ck_assert_ptr_eq(daemon, &daemon_);
  if (place->key == open_jobs)
    return -ENODATA;
  uint32_t job = (uint32_t)++place->key;
  *span = wire_msg(GS_EVENT, 0);
  span->event.kind = GS_EVENT_USAGE;
  span->event.at_ns = now_ns;
  span->event.job = job;
  span->event.uid = job == 2 ? OTHER : OWN;
  as_it_is_told(job);
  return job != 3; /* which has had nothing */
}

bool usage_is_told(const struct usage_place *place, const struct gs_msg *span) {
  return span->event.job <= place->key;
}

int peer_narrow(struct peer *reader) { return reader == &peer ? 0 : -EDQUOT; }
bool peer_may_change(const struct peer *reader) { return reader != &peer; }

static void set_up(void) {
  int fds[2];
  struct epoll_event event = {.events = EPOLLIN | EPOLLET};
  ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
  server = (struct server){.daemon = &daemon_, .epoll_fd = epoll_create1(0)};
  ck_assert_int_eq(epoll_ctl(server.epoll_fd, EPOLL_CTL_ADD, fds[0], &event), 0);
  list_init(&server.readers);
  users_init(&server.users, 1024);
  record_init(&daemon_.events, 1024);
  record_init(&daemon_.usage, 1024);
  peer = (struct peer){.server = &server, .fd = fds[0], .uid = OWN, .user = users_find(&server.users, OWN)};
  list_init(&peer.reading.link);
  other_fd = fds[1];
  ready = false;
  missed = 0;
}

static void tear_down(void) {
  readers_leave(&peer);
  close(peer.fd);
  close(other_fd);
  close(server.epoll_fd);
  record_end(&daemon_.events);
  record_end(&daemon_.usage);
  users_end(&server.users);
}

static void add(enum gs_event_kind kind, uid_t uid, int count) {
  struct gs_msg event = wire_msg(GS_EVENT, 0);
  event.event.kind = kind;
  event.event.job = 1;
  event.event.uid = uid;
  for (int i = 0; i < count; i++)
    record_add(&daemon_.events, &event);
}

/* The loop, until there is nothing to do for the peer. How many events it has had. */
static int run(void) {
  struct epoll_event event;
  struct gs_msg msg;
  int count = 0;
  readers_on_news(&server);
  while (ready || epoll_wait(server.epoll_fd, &event, 1, 0) > 0) {
    ready = false;
    readers_on_writable(&peer);
    while (wire_recv(other_fd, &msg) == 0)
      if (msg.type == GS_EVENTS_MISSED)
        missed += msg.missed.count;
      else
        count += msg.type == GS_EVENT;
  }
  return count;
}

TEST(all_is_read_however_much_it_is) {
  add(GS_EVENT_ATTACHED, OTHER, 300);
  ck_assert_int_eq(peer_read(&peer, &daemon_.events, 1, 1, true), 0);
  ck_assert_int_eq(run(), 300);
  add(GS_EVENT_ATTACHED, OTHER, 300);
  ck_assert_int_eq(run(), 300);
}

/* Of these nothing is sent, so the socket does not become writable again: it was all the time. */
TEST(what_it_may_not_see_does_not_hold_it_up) {
  ck_assert_int_eq(peer_read(&peer, &daemon_.events, 1, 1, true), 0);
  add(GS_EVENT_COMMAND, OTHER, 200);
  add(GS_EVENT_COMMAND, OWN, 1);
  ck_assert_int_eq(run(), 1);
  add(GS_EVENT_COMMAND, OTHER, 200);
  add(GS_EVENT_ATTACHED, OTHER, 1);
  ck_assert_int_eq(run(), 1);
  add(GS_EVENT_ATTACHED, OTHER, 1);
  ck_assert_int_eq(run(), 1);
}

static void make_room_for(size_t events) {
  record_end(&daemon_.events);
  record_init(&daemon_.events, events);
}

/* Wherever they have been. */
TEST(what_has_gone_meanwhile_is_told) {
  make_room_for(8);
  add(GS_EVENT_ATTACHED, OWN, 2);
  add(GS_EVENT_ATTACHED, OTHER, 8); /* of these, 5 to 10 are left */
  ck_assert_int_eq(peer_read(&peer, &daemon_.events, 1, daemon_.events.next_seq, true), 0);
  ck_assert_int_eq(run(), 8);
  ck_assert_uint_eq(missed, 0); /* they had gone before */
  add(GS_EVENT_ATTACHED, OWN, 1);
  add(GS_EVENT_ATTACHED, OTHER, 8); /* of these, 12 and 13 are gone */
  ck_assert_int_eq(run(), 1 + 5);
  ck_assert_uint_eq(missed, 3);
  readers_leave(&peer);
  missed = 0;
  ck_assert_int_eq(peer_read(&peer, &daemon_.events, 3, 3, true), 0); /* it names what it has had */
  ck_assert_int_eq(run(), 6);
  ck_assert_uint_eq(missed, 19 - 2 - 6);
}

/* It ends where it ended when it was asked for. */
TEST(what_has_gone_before_its_end_is_told) {
  make_room_for(8);
  add(GS_EVENT_ATTACHED, OTHER, 4);
  ck_assert_int_eq(peer_read(&peer, &daemon_.events, 1, daemon_.events.next_seq, false), 0);
  add(GS_EVENT_ATTACHED, OTHER, 10);
  ck_assert_int_eq(run(), 0);
  ck_assert_uint_eq(missed, 4);
}

static void end_span(uint32_t job) {
  struct gs_msg span = wire_msg(GS_EVENT, 0);
  span.event.kind = GS_EVENT_USAGE;
  span.event.job = job;
  span.event.uid = OWN;
  record_add(&daemon_.usage, &span);
}

static void end_spans_meanwhile(uint32_t job) {
  if (job != 4)
    return;
  end_span(1); /* which has been told, up to now */
  end_span(5);
}

/* Who asks for accounts has all spans that have ended, then those that go on, and of each job no span that
 * ends after that one; of others nothing. */
TEST(accounts_end_with_spans_that_go_on) {
  open_jobs = 6;
  as_it_is_told = end_spans_meanwhile;
  end_span(1);
  end_span(5);
  ck_assert_int_eq(peer_read(&peer, &daemon_.usage, 1, 3, false), 0);
  end_span(6); /* since it has asked */
  char text[64] = "";
  struct gs_msg msg;
  do
    readers_on_writable(&peer);
  while (peer.reading.record);
  while (wire_recv(other_fd, &msg) == 0 && msg.type == GS_EVENT)
    sprintf(text + strlen(text), "%s%u ", msg.event.seq ? "" : "+", msg.event.job);
  ck_assert_int_eq(msg.type, GS_EVENTS_END);
  ck_assert_str_eq(text, "1 5 6 +1 +4 5 +5 +6 ");
}

int main(void) { return suite_run_all("readers", set_up, tear_down); }
