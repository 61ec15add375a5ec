/* test_accounts.c - what one user does costs no other: users are served in turn, and each has an account. As
 * root only, who can be two users. */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire.h"
#include "runner.h"
#include "scene.h"

#define CARD "small,capacity=32MiB"
#define OTHER_UID 54321
#define GIB (UINT64_C(1) << 30)
#define CLIENTS_MAX 4 /* where connections are counted */
#define CONNECTIONS_MAX (CLIENTS_MAX + 128)

static struct scene scene;
static int other = -1; /* to the other user's process */
static pid_t other_pid;

/* ---- two users ---- */

static void begin(void) {
  if (geteuid() != 0)
    test_skip("only root can be two users");
  scene_begin(&scene, CARD);
  CHECK(chmod(scene.folder, 0755) == 0);
}

static void say(int fd) { CHECK(write(fd, "", 1) == 1); }

static void await_word(int fd) {
  struct pollfd readable = {.fd = fd, .events = POLLIN};
  char byte;
  CHECK(poll(&readable, 1, deadline_left_ms(deadline_in(60))) == 1, "the other process says nothing");
  CHECK(read(fd, &byte, 1) == 1, "the other process has ended");
}

/* Another user does this, with the descriptor to tell us, and then keeps its connections. */
static void start_other(void (*be_other)(int fd)) {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  other_pid = fork();
  if (other_pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(setresgid(OTHER_UID, OTHER_UID, OTHER_UID) == 0 && setresuid(OTHER_UID, OTHER_UID, OTHER_UID) == 0);
    be_other(pair[1]);
    for (;;)
      pause();
  }
  close(pair[1]);
  other = pair[0];
}

static void end_other(void) {
  kill(other_pid, SIGKILL);
  waitpid(other_pid, NULL, 0);
  close(other);
}

/* ---- messages ---- */

static struct gs_msg await_type(int fd, enum gs_msg_type type) {
  struct gs_msg msg;
  do
    CHECK(scene_receive(fd, &msg) == 0, "it has ended before %s", wire_type_name(type));
  while (msg.type != type);
  return msg;
}

static void tell(int fd, const struct gs_msg *msg) {
  struct pollfd writable = {.fd = fd, .events = POLLOUT};
  int err;
  while ((err = wire_send(fd, msg)) == -EAGAIN)
    CHECK(poll(&writable, 1, deadline_left_ms(deadline_in(60))) == 1, "the daemon does not read");
  CHECK(err == 0 || err == -EPIPE || err == -ECONNRESET, "send: %d", err);
}

static int client(void) {
  struct gs_msg hello = wire_msg(GS_REGISTER, 0), attach = wire_msg(GS_ATTACH, 0);
  int fd = scene_connect(&scene);
  attach.attach.uuid[0] = 1;
  attach.attach.total_bytes = 16 * GIB;
  attach.attach.flags = GS_ATTACH_MANAGED;
  tell(fd, &hello);
  await_type(fd, GS_REGISTERED);
  tell(fd, &attach);
  await_type(fd, GS_ATTACHED);
  return fd;
}

/* ---- users in turn ---- */

#define FLOODERS 200
#define EACH 100

/* Each message is an event, so that the record tells what was done before what. */
static void flood(int fd) {
  int fds[FLOODERS];
  for (int i = 0; i < FLOODERS; i++)
    fds[i] = client();
  say(fd);
  await_word(fd);
  for (int n = 0; n < EACH; n++) {
    struct gs_msg msg = wire_msg(n % 2 ? GS_MEM_REPORT : GS_MEM_REQUEST, 0);
    msg.mem.total_bytes = n % 2 ? GIB : 2 * GIB;
    for (int i = 0; i < FLOODERS; i++)
      tell(fds[i], &msg);
  }
  say(fd);
}

/* How much of the flood has been handled before this process has registered; of how much. */
static int count_before_register(int *all) {
  struct gs_msg msg = wire_msg(GS_GET_EVENTS, GS_GPU_ALL);
  int fd = scene_connect(&scene), before = -1;
  *all = 0;
  tell(fd, &msg);
  while (scene_receive(fd, &msg) == 0 && msg.type != GS_EVENTS_END) {
    *all += msg.type == GS_EVENT && msg.event.kind == GS_EVENT_MEMORY && msg.event.uid == OTHER_UID;
    if (msg.type == GS_EVENT && msg.event.kind == GS_EVENT_STARTED && msg.event.uid == 0)
      before = *all;
  }
  close(fd);
  return before;
}

TEST(one_user_s_flood_holds_up_no_other) {
  struct gs_msg hello = wire_msg(GS_REGISTER, 0);
  int all, before;
  begin();
  scene_start_daemon(&scene, "--host-memory", "8T", NULL);
  start_other(flood);
  await_word(other);
  process_signal(scene.daemon, SIGSTOP);
  say(other);
  await_word(other);
  int fd = scene_connect(&scene); /* behind all that */
  tell(fd, &hello);
  process_signal(scene.daemon, SIGCONT);
  await_type(fd, GS_REGISTERED);
  do {
    before = count_before_register(&all);
  } while (all < FLOODERS * EACH);
  CHECK(before >= 0 && before < all / 2, "%d of %d messages of another user were handled first", before, all);
  close(fd);
  end_other();
  scene_end(&scene);
}

/* ---- accounts ---- */

/* Opens so many connections: how many stay. The others are told why not. */
static int open_connections(int count) {
  int fds[CONNECTIONS_MAX + 8], kept = 0;
  for (int i = 0; i < count; i++)
    fds[i] = scene_connect(&scene);
  for (int i = 0; i < count; i++) {
    struct gs_msg msg = wire_msg(GS_GET_STATUS, 0);
    tell(fds[i], &msg);
    CHECK(scene_receive(fds[i], &msg) == 0, "closed without a reason");
    kept += msg.type == GS_STATUS_DAEMON;
    if (msg.type != GS_STATUS_DAEMON)
      CHECK(msg.type == GS_REJECTED && msg.registered.reason == GS_REJECT_LIMIT &&
            msg.registered.value == CONNECTIONS_MAX);
    if (msg.type != GS_STATUS_DAEMON)
      close(fds[i]);
  }
  return kept;
}

static void fill(int fd) {
  CHECK(open_connections(CONNECTIONS_MAX + 8) == CONNECTIONS_MAX);
  say(fd);
}

TEST(connections_have_a_limit_that_is_told) {
  struct scene_status status;
  begin();
  scene_start_daemon(&scene, "--max-clients-per-user", "4", NULL);
  start_other(fill);
  await_word(other);
  CHECK(scene_ask_status(&scene, &status) == 0, "another user is held up");
  end_other();
  scene_end(&scene);
}

/* Root's account is full: gpusharectl gets in, programs don't. */
TEST(an_administrator_gets_in) {
  int fds[CONNECTIONS_MAX];
  char text[4096];
  begin();
  scene_start_daemon(&scene, "--max-clients-per-user", "4", NULL);
  for (int i = 0; i < CONNECTIONS_MAX; i++)
    fds[i] = scene_connect(&scene);
  CHECK(scene_ctl(&scene, text, sizeof text, "status", NULL) == 0, "%s", text);
  CHECK(scene_order(&scene, GS_SET_TQ, 1000000000) == 0);
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  int fd = scene_connect(&scene);
  tell(fd, &msg);
  CHECK(scene_receive(fd, &msg) == 0 && msg.type == GS_REJECTED);
  close(fd);
  for (int i = 0; i < CONNECTIONS_MAX; i++)
    close(fds[i]);
  scene_end(&scene);
}

static uint64_t daemon_bytes(void) {
  char path[64], line[256];
  unsigned long kib = 0;
  snprintf(path, sizeof path, "/proc/%d/status", (int)scene.daemon->pid);
  FILE *file = fopen(path, "re");
  CHECK(file);
  while (fgets(line, sizeof line, file) && sscanf(line, "VmRSS: %lu", &kib) != 1)
    ;
  fclose(file);
  return (uint64_t)kib << 10;
}

#define ASKERS 600

/* The last one reads its answer, and is given it behind the others. */
static void ask_and_do_not_read(int fd) {
  struct gs_msg msg = wire_msg(GS_GET_STATUS, 0);
  int fds[ASKERS];
  for (int i = 0; i < ASKERS; i++)
    client();
  say(fd);
  await_word(fd);
  for (int i = 0; i < ASKERS; i++)
    tell(fds[i] = scene_connect(&scene), &msg);
  await_type(fds[ASKERS - 1], GS_STATUS_END);
  say(fd);
}

TEST(many_who_ask_and_do_not_read_share_what_they_ask_for) {
  begin();
  scene_start_daemon(&scene, NULL);
  start_other(ask_and_do_not_read);
  await_word(other);
  uint64_t before_bytes = daemon_bytes();
  say(other);
  await_word(other);
  uint64_t more_bytes = daemon_bytes() - before_bytes;
  CHECK(more_bytes < (UINT64_C(32) << 20) * test_scale(), "%lu MiB more", (unsigned long)(more_bytes >> 20));
  end_other();
  scene_end(&scene);
}

#define SILENT 400
#define UNREAD 250

/* The answers are memory of the daemon's kernel side: more than 64 MiB of them. */
static void leave_unread(int fd) {
  struct gs_msg msg = wire_msg(GS_MEM_REQUEST, 0);
  int fds[SILENT], ended = 0, fence = client();
  for (int i = 0; i < SILENT; i++)
    fds[i] = client();
  for (int i = 0; i < SILENT; i++)
    for (int n = 0; n < UNREAD; n++)
      tell(fds[i], &msg);
  for (int open = SILENT; open > 0;) {
    tell(fence, &msg); /* a round trip meanwhile */
    await_type(fence, GS_MEM_REPLY);
    for (int i = open = ended = 0; i < SILENT; i++) {
      struct pollfd state = {.fd = fds[i], .events = 0};
      int queued = 0;
      bool has_ended = poll(&state, 1, 0) == 1 && state.revents & POLLHUP;
      CHECK(ioctl(fds[i], SIOCOUTQ, &queued) == 0);
      ended += has_ended;
      open += !has_ended && queued > 0;
    }
  }
  CHECK(ended > 0 && ended < SILENT, "%d connections of %d were closed", ended, SILENT);
  say(fd);
}

TEST(what_is_left_unread_is_charged) {
  begin();
  scene_start_daemon(&scene, NULL);
  int bystander = client();
  start_other(leave_unread);
  await_word(other);
  struct gs_msg question = wire_msg(GS_MEM_REQUEST, 0);
  tell(bystander, &question);
  await_type(bystander, GS_MEM_REPLY);
  close(bystander);
  end_other();
  scene_end(&scene);
}
