/* test_looks.c - who is looked at when, and what an answer decides. The lookout is played here: it answers
 * when the test says so, and what the test says. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/wire.h"
#include "server/lookout.h"
#include "server/process.h"
#include "server/server.h"
#include "suite.h"

#define MANY 64

static struct daemon daemon_state;
static struct server server;

/* ---- the lookout ---- */

static struct lookout_question questions[MANY];
static struct lookout_answer answers[MANY];
static int asked, answered, heard;

bool lookout_is_able(void) { return true; }

int lookout_start(struct lookout *lookout) {
  *lookout = (struct lookout){.fd = eventfd(0, EFD_CLOEXEC)};
  return lookout->fd < 0 ? -errno : 0;
}

void lookout_end(struct lookout *lookout) {
  if (lookout->fd >= 0)
    close(lookout->fd);
  *lookout = (struct lookout){.fd = -1};
}

bool lookout_on_child(struct lookout *lookout) {
  (void)lookout;
  return false;
}

int lookout_ask(const struct lookout *lookout, const struct lookout_question *question) {
  (void)lookout;
  ck_assert_int_lt(asked, MANY);
  questions[asked++] = *question;
  return 0;
}

int lookout_hear(const struct lookout *lookout, struct lookout_answer *answer) {
  (void)lookout;
  if (heard == answered)
    return -EAGAIN;
  *answer = answers[heard++];
  return 0;
}

void lookout_replace(struct lookout *lookout) { lookout->worker = 0; }

static struct peer *settled[MANY];
static enum presence_verdict verdicts[MANY];
static int settled_count;

static void answer(uint64_t id, int found) {
  struct gs_msg attach;
  answers[answered++] = (struct lookout_answer){.id = id, .found = found};
  presence_on_event(&server);
  while ((settled[settled_count] = presence_next_settled(&server, &attach, &verdicts[settled_count])))
    settled_count++;
}

/* One that looks begins: what was asked before is forgotten. */
static void begin_looking(void) { answer(0, 1); }

/* ---- the daemon around it ---- */

static bool card_is_told;

const struct card *cards_find(const struct cards *cards, const uint8_t uuid[GS_UUID_SIZE]) {
  static const struct card card = {.minor = 3};
  (void)cards, (void)uuid;
  return card_is_told ? &card : NULL;
}

void peer_set_events(struct peer *peer, uint32_t events) { (void)peer, (void)events; }

void peer_close(struct peer *peer, const char *why) {
  (void)why;
  peer->closed = true;
}

/* ---- programs ---- */

static struct peer peers[MANY];

/* Its process is this one, which the lookout would know by its start. */
static struct peer *come(int i, uid_t uid) {
  struct peer *peer = &peers[i];
  *peer = (struct peer){
      .server = &server, .uid = uid, .pid = getpid(), .pidfd = -1, .user = users_find(&server.users, uid)};
  ck_assert_ptr_nonnull(peer->user);
  return peer;
}

static void attach(struct peer *peer) {
  struct gs_msg msg = wire_msg(GS_ATTACH, 0);
  ck_assert_int_eq(peer_check_presence(peer, &msg), PRESENCE_ASKED);
}

static void set_up(void) {
  card_is_told = true;
  daemon_state.cards = (struct cards){.source = CARDS_HOST};
  users_init(&server.users, 1024);
  rota_init(&server.rota);
  server.daemon = &daemon_state;
  server.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  ck_assert_int_ge(server.epoll_fd, 0);
  presence_open(&server);
  presence_set(&server, GS_REQUIRE_YES);
  server.presence.major = 195; /* whatever this host has */
  asked = answered = heard = settled_count = 0;
  attach(come(0, 1000)); /* that starts the lookout */
  begin_looking();
  answer(1, 1);
  ck_assert_int_eq(settled_count, 1);
  asked = settled_count = 0;
}

static void tear_down(void) {
  presence_close(&server);
  close(server.epoll_fd);
}

/* ---- tests ---- */

TEST(who_has_it_open_is_admitted) {
  attach(come(0, 1000));
  answer(2, 1);
  attach(come(1, 1000));
  answer(3, 0);
  ck_assert_int_eq(settled_count, 2);
  ck_assert_int_eq(verdicts[0], PRESENCE_ADMITTED);
  ck_assert_int_eq(verdicts[1], PRESENCE_REFUSED);
}

/* Another process may have had its number by the time of the look. */
TEST(what_is_found_of_a_process_that_has_ended_is_not_its_own) {
  int ends[2];
  char byte;
  ck_assert_int_eq(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    (void)!read(ends[0], &byte, 1);
    _exit(0);
  }
  struct peer *peer = come(0, 1000);
  peer->pid = child;
  peer->pidfd = process_open_since(child, process_start_ticks(child));
  if (peer->pidfd < 0)
    return; /* the kernel has no descriptors of processes */
  attach(peer);
  answer(2, 1);
  ck_assert_int_eq(verdicts[0], PRESENCE_ADMITTED);
  attach(peer);
  close(ends[1]);
  ck_assert_int_eq(waitpid(child, NULL, 0), child);
  answer(3, 1);
  ck_assert_int_eq(settled_count, 2);
  ck_assert_int_eq(verdicts[1], PRESENCE_REFUSED);
}

/* Its device is not known either. */
TEST(of_a_gpu_that_the_host_does_not_tell_of_nothing_is_known) {
  struct gs_msg msg = wire_msg(GS_ATTACH, 0);
  card_is_told = false;
  ck_assert_int_eq(peer_check_presence(come(0, 1000), &msg), PRESENCE_ADMITTED); /* gpus.c refuses it */
  daemon_state.cards.partial = true;
  ck_assert_int_eq(peer_check_presence(come(0, 1000), &msg), PRESENCE_REFUSED);
  presence_set(&server, GS_REQUIRE_AUTO);
  ck_assert_int_eq(peer_check_presence(come(0, 1000), &msg), PRESENCE_ADMITTED);
  ck_assert_int_eq(asked, 0);
}

TEST(a_user_has_one_look_at_a_time) {
  for (int i = 0; i < 3; i++)
    attach(come(i, 1000));
  ck_assert_int_eq(asked, 1);
  attach(come(3, 1001));
  ck_assert_int_eq(asked, 2);
  answer(2, 1);
  answer(3, 1);
  ck_assert_ptr_eq(settled[0], &peers[0]);
  ck_assert_ptr_eq(settled[1], &peers[3]);
  ck_assert_int_eq(asked, 3);
  answer(4, 1);
  answer(5, 1);
  ck_assert_int_eq(settled_count, 4);
}

TEST(few_questions_wait_at_the_lookout) {
  for (int i = 0; i < 8; i++)
    attach(come(i, 1000 + (uid_t)i));
  for (int i = 0; i < 8; i++) {
    ck_assert_int_eq(asked, i + LOOKS_ASKED < 8 ? i + LOOKS_ASKED : 8);
    answer((uint64_t)i + 2, 1);
  }
  ck_assert_int_eq(settled_count, 8);
}

/* Its question is still with the lookout: it does not get the other place by that. */
TEST(a_user_that_leaves_is_still_looked_for) {
  for (int i = 0; i < 10; i++) {
    attach(come(0, 1000));
    presence_forget(&peers[0]);
  }
  ck_assert_int_eq(asked, 1);
  attach(come(0, 1000));
  attach(come(1, 1001));
  ck_assert_int_eq(asked, 2);
  ck_assert_uint_eq(questions[1].id, 3);
  answer(2, 1);
  ck_assert_int_eq(settled_count, 0);
  ck_assert_int_eq(asked, 3);
  answer(3, 1);
  ck_assert_ptr_eq(settled[0], &peers[1]);
  answer(4, 0);
  ck_assert_ptr_eq(settled[1], &peers[0]);
  ck_assert_int_eq(verdicts[1], PRESENCE_REFUSED);
}

/* It was the only one of its user's that waited for a turn. */
TEST(a_look_that_is_given_up_is_asked_no_more) {
  attach(come(0, 1000));
  attach(come(1, 1000));
  presence_forget(&peers[0]);
  ck_assert_int_eq(asked, 1);
  presence_on_time(&server, clock_now_ns() + 2 * NS_PER_S);
  begin_looking();
  ck_assert_int_eq(asked, 1);
  ck_assert_int_eq(settled_count, 1);
  ck_assert_ptr_eq(settled[0], &peers[1]);
  ck_assert_int_eq(verdicts[0], PRESENCE_REFUSED);
}

/* The same connection asks again, and another one looks: what the first one has found is nobody's. */
TEST(a_late_answer_is_nobodys) {
  attach(come(0, 1000));
  presence_forget(&peers[0]);
  attach(&peers[0]);
  begin_looking();
  ck_assert_int_eq(asked, 2);
  answer(2, 1);
  ck_assert_int_eq(settled_count, 0);
  answer(3, 0);
  ck_assert_int_eq(settled_count, 1);
  ck_assert_int_eq(verdicts[0], PRESENCE_REFUSED);
}

/* It is not known what has become of them: asked again, each once. */
TEST(what_another_lookout_was_asked_is_asked_again) {
  attach(come(0, 1000));
  attach(come(1, 1001));
  attach(come(2, 1000));
  begin_looking();
  ck_assert_int_eq(asked, 4);
  for (uint64_t id = 4; id <= 6; id++)
    answer(id, 1);
  ck_assert_int_eq(settled_count, 3);
}

int main(void) { return suite_run_all("looks", set_up, tear_down); }
