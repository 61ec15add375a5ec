/* daemon_process.c - a real daemon on a socket of its own, and connections to it, for tests. */
#include "daemon_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire.h"
#include "suite.h"

#define PATIENCE_MS 120000
#define CARD_BYTES (UINT64_C(16) << 30)

static void run_daemon(const struct daemon_process *daemon, const char *const *arguments) {
  const char *argv[32] = {"gpushare-daemon", "--socket", daemon->socket, "--config",
                          daemon->config,    "--log",    "warn"};
  int count = 7;
  while (*arguments && count < 31)
    argv[count++] = *arguments++;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("GPUSHARE_NVML", "", 0); /* unless a test plays cards: not those of a host that has some */
  setenv("GPUSHARE_HOST_ROOT", "/nowhere", 0);
  execv(GS_DAEMON, (char *const *)argv);
  _exit(127);
}

static void wait_until_it_answers(const struct daemon_process *daemon) {
  uint64_t end_ns = clock_now_ns() + 20 * NS_PER_S;
  int fd, status;
  while ((fd = wire_connect(daemon->socket)) < 0) {
    ck_assert_msg(waitpid(daemon->pid, &status, WNOHANG) == 0, "the daemon has ended");
    ck_assert_msg(clock_now_ns() < end_ns, "the daemon does not answer");
    poll(NULL, 0, 1); /* nothing tells when another process listens */
  }
  close(fd);
}

void daemon_configure(const struct daemon_process *daemon, const char *text) {
  FILE *file = fopen(daemon->config, "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
  int fd = connect_to(daemon);
  struct gs_msg msg = wire_msg(GS_GET_EVENTS, GS_GPU_ALL);
  msg.get_events.follow = true;
  tell(fd, &msg);
  uint64_t from_seq = expect(fd, GS_EVENTS_BEGIN).events.next_seq;
  kill(daemon->pid, SIGHUP);
  do
    msg = hear(fd);
  while (msg.type != GS_EVENT || msg.event.kind != GS_EVENT_RELOADED || msg.event.seq < from_seq);
  close(fd);
}

void daemon_start(struct daemon_process *daemon, const char *const *arguments) {
  if (!*daemon->folder) {
    strcpy(daemon->folder, "/tmp/gpushare-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(daemon->folder));
    chmod(daemon->folder, 0755);
    snprintf(daemon->socket, sizeof daemon->socket, "%s/daemon.sock", daemon->folder);
    snprintf(daemon->config, sizeof daemon->config, "%s/gpushare.conf", daemon->folder);
    close(open(daemon->config, O_CREAT | O_WRONLY, 0644));
  }
  daemon->pid = fork();
  if (daemon->pid == 0)
    run_daemon(daemon, arguments);
  wait_until_it_answers(daemon);
}

int daemon_wait(struct daemon_process *daemon) {
  int status = 0;
  ck_assert_int_eq(waitpid(daemon->pid, &status, 0), daemon->pid);
  daemon->pid = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void daemon_clean_up(struct daemon_process *daemon) {
  if (daemon->pid > 0) {
    kill(daemon->pid, SIGTERM);
    ck_assert_msg(daemon_wait(daemon) == 0,
                  "the daemon did not end orderly"); /* or leaked, says a sanitizer */
  }
  unlink(daemon->socket);
  unlink(daemon->config);
  rmdir(daemon->folder);
  *daemon = (struct daemon_process){0};
}

int connect_to(const struct daemon_process *daemon) {
  int fd = wire_connect_patiently(daemon->socket, PATIENCE_MS * NS_PER_MS);
  ck_assert_msg(fd >= 0, "connect: %s", strerror(-fd));
  return fd;
}

/* ---- messages ---- */

void tell(int fd, const struct gs_msg *msg) { ck_assert_int_eq(wire_send(fd, msg), 0); }

static int receive(int fd, struct gs_msg *msg) {
  struct pollfd readable = {.fd = fd, .events = POLLIN};
  ck_assert_msg(poll(&readable, 1, PATIENCE_MS) == 1, "nothing comes");
  return wire_recv(fd, msg);
}

static struct gs_msg hear_any(int fd) {
  struct gs_msg msg;
  int err = receive(fd, &msg);
  ck_assert_msg(err == 0, "receive: %s", strerror(-err));
  return msg;
}

struct gs_msg hear(int fd) {
  struct gs_msg msg;
  do
    msg = hear_any(fd);
  while (msg.type == GS_ROOM);
  return msg;
}

struct gs_msg expect(int fd, enum gs_msg_type type) {
  struct gs_msg msg = type == GS_ROOM ? hear_any(fd) : hear(fd);
  ck_assert_msg(msg.type == type, "%s came instead of %s", wire_type_name(msg.type), wire_type_name(type));
  return msg;
}

void expect_silence(const struct daemon_process *daemon, int fd) {
  struct gs_msg msg;
  get_status(daemon, GS_STATUS_DAEMON); /* what the daemon did before this it has done */
  int err;
  do
    err = wire_recv(fd, &msg);
  while (err == 0 && msg.type == GS_ROOM);
  ck_assert_msg(err == -EAGAIN, "%s came", err ? strerror(-err) : wire_type_name(msg.type));
}

void expect_end(int fd) {
  struct gs_msg msg;
  int err;
  do
    err = receive(fd, &msg);
  while (err == 0);
  ck_assert_msg(err == -ECONNRESET, "%s instead of the end", strerror(-err));
  close(fd);
}

/* ---- conversations ---- */

/* Of a process that does nothing else, and ends with this one. */
static int connect_elsewhere(const struct daemon_process *daemon) {
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  int ends[2], fd;
  ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  pid_t parent = getpid(), child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], 0);
    for (int other = 1; other < 1024; other++) /* the other connections end with their own processes */
      close(other);
    fd = wire_connect(daemon->socket);
    if (getppid() != parent || fd < 0 || wire_send_passing(0, &msg, sizeof msg, fd) < 0)
      _exit(1);
    close(fd);
    close(0);
    for (;;)
      pause();
  }
  close(ends[1]);
  ck_assert_int_eq(wire_recv_passed(ends[0], &msg, sizeof msg, &fd), sizeof msg);
  close(ends[0]);
  return fd;
}

static int register_on(int fd) {
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  strcpy(msg.reg.name, "test");
  tell(fd, &msg);
  ck_assert_uint_ne(expect(fd, GS_REGISTERED).registered.job, 0);
  return fd;
}

int register_client(const struct daemon_process *daemon) { return register_on(connect_to(daemon)); }

int register_elsewhere(const struct daemon_process *daemon) { return register_on(connect_elsewhere(daemon)); }

struct gs_msg attach_card_with(int fd, uint8_t card, uint64_t used_bytes, uint64_t resident_bytes,
                               uint32_t flags) {
  struct gs_msg msg = wire_msg(GS_ATTACH, 0);
  msg.attach.uuid[0] = card;
  msg.attach.total_bytes = CARD_BYTES;
  msg.attach.used_bytes = used_bytes;
  msg.attach.resident_bytes = resident_bytes;
  msg.attach.flags = flags;
  strcpy(msg.attach.name, "card");
  tell(fd, &msg);
  struct gs_msg attached = expect(fd, GS_ATTACHED);
  msg = hear(fd);
  ck_assert(msg.type == GS_SCHED_ON || msg.type == GS_SCHED_OFF);
  return attached;
}

struct gs_msg attach_card(int fd, uint8_t card, uint64_t used_bytes, uint32_t flags) {
  return attach_card_with(fd, card, used_bytes, used_bytes, flags);
}

int attach_client(const struct daemon_process *daemon, uint64_t used_bytes) {
  int fd = register_client(daemon);
  attach_card(fd, 1, used_bytes, GS_ATTACH_MANAGED);
  return fd;
}

void tell_simple(int fd, enum gs_msg_type type) {
  struct gs_msg msg = wire_msg(type, 0);
  tell(fd, &msg);
}

void tell_active(int fd, uint64_t epoch) {
  struct gs_msg msg = wire_msg(GS_LOCK_ACTIVE, 0);
  msg.epoch = epoch;
  tell(fd, &msg);
}

void tell_moves(int fd, uint64_t resident_bytes, uint64_t room_seq, uint64_t evicted_bytes,
                uint64_t restored_bytes) {
  struct gs_msg msg = wire_msg(GS_RESIDENT, 0);
  msg.resident.resident_bytes = resident_bytes;
  msg.resident.room_seq = room_seq;
  msg.resident.evicted_bytes = evicted_bytes;
  msg.resident.restored_bytes = restored_bytes;
  tell(fd, &msg);
}

void tell_resident(int fd, uint64_t resident_bytes, uint64_t room_seq) {
  tell_moves(fd, resident_bytes, room_seq, 0, 0);
}

void tell_released(int fd, uint64_t epoch) {
  struct gs_msg msg = wire_msg(GS_LOCK_RELEASED, 0);
  msg.epoch = epoch;
  tell(fd, &msg);
}

/* The daemon's verdict on a change. */
static int ask_to_change(const struct daemon_process *daemon, const struct gs_msg *change) {
  int fd = connect_to(daemon);
  tell(fd, change);
  struct gs_msg msg = expect(fd, GS_REPLY);
  close(fd);
  ck_assert(msg.status == 0 || *msg.reply.text);
  return msg.status;
}

int change_setting(const struct daemon_process *daemon, enum gs_msg_type type, uint64_t value) {
  struct gs_msg msg = wire_msg(type, GS_GPU_ALL);
  msg.set.value = value;
  return ask_to_change(daemon, &msg);
}

struct gs_msg get_status(const struct daemon_process *daemon, enum gs_msg_type type) {
  int fd = connect_to(daemon);
  struct gs_msg msg = wire_msg(GS_GET_STATUS, GS_GPU_ALL), found = {0};
  msg.get_status.details = GS_DETAILS_CARDS;
  tell(fd, &msg);
  while ((msg = hear(fd)).type != GS_STATUS_END)
    if (msg.type == type && found.type == 0)
      found = msg;
  close(fd);
  return found;
}

int set_terms(const struct daemon_process *daemon, uint32_t job, enum gs_term term, uint64_t value) {
  struct gs_msg msg = wire_msg(GS_SET_TERMS, GS_GPU_ALL);
  msg.set_terms.job = job;
  msg.set_terms.term = term;
  msg.set_terms.value = value;
  return ask_to_change(daemon, &msg);
}

int evict(const struct daemon_process *daemon, uint32_t job) {
  struct gs_msg msg = wire_msg(GS_EVICT, GS_GPU_ALL);
  msg.evict.job = job;
  return ask_to_change(daemon, &msg);
}
