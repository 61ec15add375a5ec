/* test_daemon_protocol.c - the real daemon, asked over its socket: conversations, limits, permissions, death.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire.h"
#include "daemon_process.h"
#include "suite.h"

#define GIB (UINT64_C(1) << 30)
#define MANAGED GS_ATTACH_MANAGED

static struct daemon_process daemon_process, *const it = &daemon_process;

static void start(const char *const *arguments) {
  if (it->pid)
    daemon_clean_up(it);
  daemon_start(it, arguments);
}

static void set_up(void) { start((const char *const[]){NULL}); }

static void tear_down(void) { daemon_clean_up(it); }

static void start_on(void) {
  start((const char *const[]){"--mode", "on", "--tq", "10ms", "--host-memory", "1T", NULL});
}

/* ---- conversations ---- */

TEST(turns_off_grant_at_once) {
  int fd = attach_client(it, GIB);
  struct gs_msg msg = expect(fd, GS_LOCK_OK);
  ck_assert_uint_eq(msg.room.quantum_ns, 0);
  ck_assert_uint_eq(msg.epoch, 1);
}

TEST(two_clients_take_turns) {
  start_on();
  int a = attach_client(it, 10 * GIB), b = register_client(it);
  attach_card_with(b, 1, 10 * GIB, 6 * GIB, MANAGED);
  tell_simple(a, GS_REQ_LOCK);
  uint64_t first = expect(a, GS_LOCK_OK).epoch;
  tell_active(a, first);
  expect_silence(it, a);
  tell_simple(b, GS_REQ_LOCK);
  struct gs_msg msg = hear(a);
  if (msg.type == GS_LOCK_WANTED) /* or the quantum is over already */
    msg = hear(a);
  ck_assert_uint_eq(msg.type, GS_DROP_LOCK);
  ck_assert_uint_eq(msg.epoch, first);
  ck_assert_uint_eq(msg.room.room_bytes, 6 * GIB);
  uint64_t seq = msg.room.room_seq;
  expect_silence(it, b);
  tell_released(a, first);
  msg = expect(b, GS_LOCK_OK);
  ck_assert_uint_eq(msg.room.room_bytes, 6 * GIB);
  ck_assert_uint_eq(msg.room.target_bytes, 10 * GIB);
  ck_assert_uint_eq(msg.room.quantum_ns, 10 * NS_PER_MS);
  tell_resident(a, 8 * GIB, seq); /* on its way out */
  msg = expect(b, GS_ROOM);
  ck_assert_uint_eq(msg.room.room_bytes, 8 * GIB);
  tell_resident(a, 6 * GIB, seq);
  msg = expect(b, GS_ROOM);
  ck_assert_uint_eq(msg.room.room_bytes, 10 * GIB);
}

TEST(memory_requests_are_answered) {
  start((const char *const[]){"--host-memory", "4G", NULL});
  int fd = attach_client(it, 0);
  expect(fd, GS_LOCK_OK);
  struct gs_msg msg = wire_msg(GS_MEM_REQUEST, 0);
  msg.mem.total_bytes = 20 * GIB;
  tell(fd, &msg);
  ck_assert_uint_eq(expect(fd, GS_CAPACITY).attached.host_tight, 1); /* what comes of it is told first */
  expect(fd, GS_SCHED_ON);
  struct gs_msg reply = expect(fd, GS_MEM_REPLY);
  ck_assert_int_eq(reply.status, 0);
  ck_assert_uint_eq(reply.mem_reply.granted_bytes, 20 * GIB);
  msg.mem.total_bytes++;
  tell(fd, &msg);
  ck_assert_int_eq(expect(fd, GS_MEM_REPLY).status, -ENOMEM);
}

/* Programs are told at once, and those that come later from the start. */
TEST(host_copies_are_told) {
  int fd = register_client(it);
  ck_assert_uint_eq(attach_card(fd, 1, 0, 0).attached.host_copies, GS_HOST_COPIES_AUTO);
  expect(fd, GS_LOCK_OK);
  FILE *file = fopen(it->config, "w");
  fputs("host_copies = on\n", file);
  fclose(file);
  kill(it->pid, SIGHUP);
  ck_assert_uint_eq(expect(fd, GS_CAPACITY).attached.host_copies, GS_HOST_COPIES_ON);
  int other = register_client(it);
  ck_assert_uint_eq(attach_card(other, 1, 0, 0).attached.host_copies, GS_HOST_COPIES_ON);
}

TEST(status_shows_gpus_and_jobs) {
  int fd = attach_client(it, 3 * GIB);
  expect(fd, GS_LOCK_OK);
  struct gs_msg gpu = get_status(it, GS_STATUS_GPU), job = get_status(it, GS_STATUS_JOB);
  ck_assert_uint_eq(gpu.gpu_status.used_bytes, 3 * GIB);
  ck_assert_uint_eq(gpu.gpu_status.holders, 1);
  ck_assert_str_eq(gpu.gpu_status.name, "card");
  ck_assert_int_eq(job.job_status.pid, getpid());
  ck_assert_uint_eq(job.job_status.state, GS_JOB_HOLDING);
  ck_assert_str_eq(job.job_status.name, "test");
  ck_assert_uint_eq(get_status(it, GS_STATUS_DAEMON).daemon.jobs, 1);
}

static void tell_pinned(int fd, enum gs_msg_type type, uint64_t total_bytes, uint64_t pinned_bytes,
                        uint64_t array_bytes) {
  struct gs_msg msg = wire_msg(type, 0);
  msg.mem.total_bytes = total_bytes;
  msg.mem.pinned_bytes = pinned_bytes;
  msg.mem.kind_bytes[GS_PINNED_ARRAYS] = array_bytes;
  tell(fd, &msg);
}

static void await_kind(enum gs_pinned kind, uint64_t bytes) {
  while (get_status(it, GS_STATUS_MEMORY).memory_status.kind_bytes[kind] != bytes)
    poll(NULL, 0, 1);
}

/* What is refused is no part of it; and what an older library does not tell is of no kind. */
TEST(status_shows_what_is_pinned_by_kind) {
  int fd = attach_client(it, 0);
  expect(fd, GS_LOCK_OK);
  tell_pinned(fd, GS_MEM_REQUEST, 3 * GIB, 2 * GIB, GIB);
  ck_assert_int_eq(expect(fd, GS_MEM_REPLY).status, 0);
  struct gs_msg memory = get_status(it, GS_STATUS_MEMORY);
  ck_assert_uint_eq(memory.memory_status.job, get_status(it, GS_STATUS_JOB).job_status.job);
  ck_assert_uint_eq(memory.memory_status.kind_bytes[GS_PINNED_ARRAYS], GIB);
  ck_assert_uint_eq(memory.memory_status.kind_bytes[GS_PINNED_OTHER], GIB);
  tell_pinned(fd, GS_MEM_REQUEST, 100 * GIB, 99 * GIB, 99 * GIB);
  ck_assert_int_eq(expect(fd, GS_MEM_REPLY).status, -ENOMEM);
  await_kind(GS_PINNED_ARRAYS, GIB);
  tell_pinned(fd, GS_MEM_REPORT, 2 * GIB, GIB, 7 * GIB);
  await_kind(GS_PINNED_OTHER, 0);
  await_kind(GS_PINNED_ARRAYS, GIB);
  tell_pinned(fd, GS_MEM_REPORT, 2 * GIB, GIB, 0);
  await_kind(GS_PINNED_OTHER, GIB);
}

/* Of what has left since its grant a third was clean. */
TEST(status_shows_what_need_not_be_copied) {
  start_on();
  int fd = attach_client(it, 3 * GIB);
  tell_simple(fd, GS_REQ_LOCK);
  struct gs_msg grant = expect(fd, GS_LOCK_OK), msg = wire_msg(GS_RESIDENT, 0);
  msg.resident.room_seq = grant.room.room_seq;
  msg.resident.resident_bytes = 3 * GIB;
  msg.resident.evicted_bytes = 2 * GIB;
  msg.resident.spared_bytes = GIB;
  msg.resident.copies_bytes = 5;
  tell(fd, &msg);
  while (get_status(it, GS_STATUS_MEMORY).memory_status.copies_bytes != 5)
    poll(NULL, 0, 1);
  struct gs_msg memory = get_status(it, GS_STATUS_MEMORY);
  ck_assert_uint_eq(memory.memory_status.left_copied_bytes, 2 * GIB);
  ck_assert_uint_eq(memory.memory_status.left_spared_bytes, GIB);
  ck_assert_uint_eq(memory.memory_status.clean_bytes, GIB);
}

/* They would take the message for the end of the daemon. */
TEST(an_older_reader_is_told_what_it_knows) {
  struct gs_msg msg;
  expect(attach_client(it, GIB), GS_LOCK_OK);
  int fd = connect_to(it);
  tell_simple(fd, GS_GET_STATUS);
  while ((msg = hear(fd)).type != GS_STATUS_END)
    ck_assert_int_ne(msg.type, GS_STATUS_MEMORY);
  ck_assert_uint_eq(get_status(it, GS_STATUS_MEMORY).type, GS_STATUS_MEMORY);
}

TEST(status_shows_what_hand_overs_cost) {
  start_on();
  int a = attach_client(it, 10 * GIB), b = register_client(it);
  attach_card_with(b, 1, 10 * GIB, 6 * GIB, MANAGED);
  tell_simple(a, GS_REQ_LOCK);
  tell_active(a, expect(a, GS_LOCK_OK).epoch);
  tell_simple(b, GS_REQ_LOCK);
  struct gs_msg msg = hear(a);
  while (msg.type != GS_DROP_LOCK)
    msg = hear(a);
  tell_released(a, msg.epoch);
  tell_moves(a, 6 * GIB, msg.room.room_seq, 4 * GIB, 0);
  msg = expect(b, GS_LOCK_OK);
  tell_moves(b, 10 * GIB, msg.room.room_seq, 0, 4 * GIB);
  tell_active(b, msg.epoch);
  msg = get_status(it, GS_STATUS_HANDOVER);
  ck_assert_uint_eq(msg.handover_status.evicted_bytes, 4 * GIB);
  ck_assert_uint_eq(msg.handover_status.restored_last_bytes, 4 * GIB);
  ck_assert_uint_gt(msg.handover_status.drain_ns, 0);
  ck_assert_uint_eq(msg.handover_status.hidden_bytes, 0);
  ck_assert_uint_eq(get_status(it, GS_STATUS_JOB).job_status.resident_bytes, 6 * GIB);
}

TEST(what_the_driver_refuses_is_told_and_shown) {
  int fd = attach_client(it, 3 * GIB);
  expect(fd, GS_LOCK_OK);
  struct gs_msg msg = wire_msg(GS_MEM_SHORT, 0);
  msg.mem_short.short_bytes = GIB;
  tell(fd, &msg);
  ck_assert_uint_eq(expect(fd, GS_CAPACITY).attached.capacity_bytes, 15 * GIB);
  ck_assert_uint_eq(expect(fd, GS_ROOM).room.room_bytes, 3 * GIB); /* to be tried again */
  ck_assert_uint_eq(get_status(it, GS_STATUS_HANDOVER).handover_status.overhead_bytes, GIB);
  ck_assert_uint_eq(get_status(it, GS_STATUS_GPU).gpu_status.capacity_bytes, 16 * GIB);
}

TEST(a_status_larger_than_the_socket_buffer_arrives) {
  enum { CLIENTS = 900 };
  for (int i = 0; i < CLIENTS; i++)
    expect(attach_client(it, 1), GS_LOCK_OK);
  int fd = connect_to(it);
  tell_simple(fd, GS_GET_STATUS);
  int jobs = 0;
  struct gs_msg msg;
  while ((msg = hear(fd)).type != GS_STATUS_END)
    jobs += msg.type == GS_STATUS_JOB;
  ck_assert_int_eq(jobs, CLIENTS);
}

TEST(detach_gives_up_the_lock) {
  start_on();
  int a = attach_client(it, GIB), b = attach_client(it, GIB);
  tell_simple(a, GS_REQ_LOCK);
  expect(a, GS_LOCK_OK);
  tell_simple(a, GS_DETACH);
  tell_simple(b, GS_REQ_LOCK);
  expect(b, GS_LOCK_OK);
  attach_card(a, 1, GIB, MANAGED); /* and it may come back */
}

TEST(names_are_made_harmless) {
  int fd = connect_to(it);
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  strcpy(msg.reg.name, "a\033[2Jb\n");
  tell(fd, &msg);
  expect(fd, GS_REGISTERED);
  attach_card(fd, 1, 0, MANAGED);
  expect(fd, GS_LOCK_OK);
  ck_assert_str_eq(get_status(it, GS_STATUS_JOB).job_status.name, "a?[2Jb?");
}

/* ---- who breaks the rules loses the connection, and nobody else anything ---- */

/* Send it so many times, or until the connection is closed: then false. */
static bool keep_telling(int fd, const struct gs_msg *msg, int times) {
  struct pollfd writable = {.fd = fd, .events = POLLOUT};
  while (times > 0) {
    int err = wire_send(fd, msg);
    if (err == 0)
      times--;
    else if (err == -EAGAIN)
      poll(&writable, 1, -1);
    else {
      ck_assert(err == -EPIPE || err == -ECONNRESET);
      return false;
    }
  }
  return true;
}

/* Whatever it goes on to say before it reads. */
TEST(another_version_is_told_so) {
  int fd = connect_to(it);
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  msg.version = GS_PROTOCOL_VERSION + 1;
  ck_assert(!keep_telling(fd, &msg, 20000));
  msg = expect(fd, GS_REJECTED);
  ck_assert_uint_eq(msg.registered.reason, GS_REJECT_VERSION);
  ck_assert_uint_eq(msg.registered.value, GS_PROTOCOL_VERSION);
  expect_end(fd);
}

static void send_bytes_and_end(const void *bytes, size_t size) {
  int fd = connect_to(it);
  ck_assert_int_eq(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
  expect_end(fd);
}

TEST(malformed_packets_cost_the_connection) {
  int bystander = attach_client(it, GIB);
  char bytes[256] = {0};
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  memcpy(bytes, &msg, sizeof msg);
  send_bytes_and_end(bytes, sizeof msg - 1);
  send_bytes_and_end(bytes, sizeof msg + 1);
  send_bytes_and_end(bytes, 1);
  msg.magic++;
  send_bytes_and_end(&msg, sizeof msg);
  msg = wire_msg((enum gs_msg_type)77, 0);
  send_bytes_and_end(&msg, sizeof msg);
  expect(bystander, GS_LOCK_OK);
  expect_silence(it, bystander);
}

TEST(an_empty_packet_costs_the_connection) {
  int fd = connect_to(it);
  ck_assert_int_eq(send(fd, "", 0, MSG_NOSIGNAL), 0);
  expect_end(fd);
}

TEST(messages_out_of_place_cost_the_connection) {
  static const enum gs_msg_type before_register[] = {
      GS_ATTACH, GS_DETACH,     GS_REQ_LOCK, GS_LOCK_RELEASED, GS_LOCK_OK, GS_MEM_REPORT,
      GS_REPLY,  GS_STATUS_END, GS_REJECTED, GS_MEM_REQUEST,   GS_RESIDENT};
  for (size_t i = 0; i < sizeof before_register / sizeof *before_register; i++) {
    int fd = connect_to(it);
    tell_simple(fd, before_register[i]);
    expect_end(fd);
  }
  static const enum gs_msg_type before_attach[] = {
      GS_REGISTER,   GS_REQ_LOCK, GS_DETACH,      GS_MEM_REQUEST, GS_MEM_REPORT, GS_CLIENT_STATE,
      GS_GET_STATUS, GS_SET_MODE, GS_LOCK_ACTIVE, GS_LOCK_WANTED, GS_MEM_SHORT,  GS_ROOM};
  for (size_t i = 0; i < sizeof before_attach / sizeof *before_attach; i++) {
    int fd = register_client(it);
    tell_simple(fd, before_attach[i]);
    expect_end(fd);
  }
}

TEST(an_impossible_gpu_costs_the_connection) {
  int fd = register_client(it);
  struct gs_msg msg = wire_msg(GS_ATTACH, GS_GPUS_PER_CLIENT);
  tell(fd, &msg);
  expect_end(fd);
  fd = attach_client(it, 0);
  tell_simple(fd, GS_ATTACH); /* twice */
  expect_end(fd);
}

/* So many at once may come, and so many a second (peers.c); and the socket holds fewer than a thousand. */
static uint64_t most_that_are_no_flood(uint64_t since_ns) {
  return 50000 + 20000 * ((clock_now_ns() - since_ns) / NS_PER_MS + 1) / 1000 + 1000;
}

TEST(a_flood_costs_the_connection) {
  int bystander = attach_client(it, GIB);
  expect(bystander, GS_LOCK_OK);
  int fd = attach_client(it, GIB);
  struct gs_msg msg = wire_msg(GS_CLIENT_STATE, 0);
  uint64_t sent = 0, start_ns = clock_now_ns();
  for (; keep_telling(fd, &msg, 1000); sent += 1000) {
    ck_assert_msg(sent <= most_that_are_no_flood(start_ns), "it can flood for ever");
    if (clock_now_ns() - start_ns > 30 * NS_PER_S) {
      puts("not tried: this machine is too busy for a flood");
      return;
    }
  }
  ck_assert_uint_gt(sent, 20000);
  expect_end(fd);
  tell_simple(bystander, GS_REQ_LOCK);
  expect_silence(it, bystander);
}

/* Too few for a flood. */
TEST(who_does_not_read_is_closed) {
  int bystander = attach_client(it, GIB), fd = attach_client(it, GIB);
  expect(bystander, GS_LOCK_OK);
  struct gs_msg msg = wire_msg(GS_MEM_REQUEST, 0);
  ck_assert_msg(!keep_telling(fd, &msg, 20000), "its answers pile up");
  expect_silence(it, bystander);
}

TEST(clients_per_user_are_limited) {
  start((const char *const[]){"--max-clients-per-user", "3", NULL});
  int clients[3];
  for (int i = 0; i < 3; i++)
    clients[i] = register_client(it);
  int fd = connect_to(it);
  tell_simple(fd, GS_REGISTER);
  struct gs_msg msg = expect(fd, GS_REJECTED);
  ck_assert_uint_eq(msg.registered.reason, GS_REJECT_LIMIT);
  ck_assert_uint_eq(msg.registered.value, 3);
  expect_end(fd);
  close(clients[0]);
  get_status(it, GS_STATUS_DAEMON);
  register_client(it);
}

TEST(who_says_nothing_is_closed) {
  uint64_t start_ns = clock_now_ns();
  int fd = connect_to(it), client = register_client(it);
  expect_end(fd);
  ck_assert_uint_ge(clock_now_ns() - start_ns, 9 * NS_PER_S);
  expect_silence(it, client);
}

TEST(running_out_of_descriptors_is_survived) {
  enum { ROOM = 16, CONNECTIONS = 40 };
  struct rlimit limit;
  int fds[CONNECTIONS];
  ck_assert_int_eq(prlimit(it->pid, RLIMIT_NOFILE, NULL, &limit), 0);
  limit.rlim_cur = ROOM;
  ck_assert_int_eq(prlimit(it->pid, RLIMIT_NOFILE, &limit, NULL), 0);
  int early = attach_client(it, GIB);
  expect(early, GS_LOCK_OK);
  for (int i = 0; i < CONNECTIONS; i++) {
    fds[i] = connect_to(it);
    tell_simple(fds[i], GS_REGISTER);
  }
  expect(fds[0], GS_REGISTERED);
  struct gs_msg request = wire_msg(GS_MEM_REQUEST, 0);
  tell(early, &request);
  expect(early, GS_MEM_REPLY); /* those who are in are served */
  for (int i = 0; i < CONNECTIONS - 1; i++)
    close(fds[i]);
  expect(fds[CONNECTIONS - 1], GS_REGISTERED); /* and there is room again */
}

/* ---- permissions ---- */

/* What a process of another user gets as answer to SET_TQ. */
static int change_as(uid_t uid, gid_t gid) {
  pid_t child = fork();
  if (child == 0) {
    if (setgid(gid) < 0 || setuid(uid) < 0)
      _exit(255);
    struct gs_msg msg = wire_msg(GS_SET_TQ, GS_GPU_ALL);
    int fd = wire_connect(it->socket);
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    msg.set.value = NS_PER_S;
    if (fd < 0 || wire_send(fd, &msg) < 0 || poll(&readable, 1, -1) != 1 || wire_recv(fd, &msg) < 0)
      _exit(254);
    _exit(-msg.status);
  }
  int status;
  waitpid(child, &status, 0);
  return -WEXITSTATUS(status);
}

TEST(strangers_may_not_change_settings) {
  if (geteuid() != 0)
    return; /* only root can be somebody else */
  start((const char *const[]){"--group", "64000", NULL});
  ck_assert_int_eq(change_as(65534, 65534), -EACCES);
  ck_assert_uint_eq(get_status(it, GS_STATUS_DAEMON).daemon.default_tq_ns, 20 * NS_PER_S);
  ck_assert_int_eq(change_as(65534, 64000), 0);
  ck_assert_uint_eq(get_status(it, GS_STATUS_DAEMON).daemon.default_tq_ns, NS_PER_S);
  ck_assert_int_eq(change_as(0, 0), 0);
}

static void pass_byte(int fd) {
  if (write(fd, "", 1) != 1)
    _exit(1);
}

static void await_byte(int fd) {
  char byte;
  if (read(fd, &byte, 1) != 1)
    _exit(1);
}

/* A process in a namespace of its own connects with the descriptor that we keep, and ends once the daemon has
 * taken the connection up. The number that it had here; 0: that is not allowed here. */
static pid_t connect_apart(int fd) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int connected[2], numbers[2], go[2];
  pid_t first = 0;
  snprintf(address.sun_path, sizeof address.sun_path, "%s", it->socket);
  ck_assert(pipe(connected) == 0 && pipe(numbers) == 0 && pipe(go) == 0);
  pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWPID) == 0 && (first = fork()) == 0) {
      if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        _exit(1);
      pass_byte(connected[1]);
      await_byte(go[0]);
      _exit(0);
    }
    if (first)
      await_byte(connected[0]);
    if (write(numbers[1], &first, sizeof first) != sizeof first)
      _exit(1);
    waitpid(first, NULL, 0);
    _exit(0);
  }
  ck_assert_int_eq(read(numbers[0], &first, sizeof first), sizeof first);
  get_status(it, GS_STATUS_DAEMON); /* connections are taken up in their order */
  pass_byte(go[1]);
  waitpid(child, NULL, 0);
  for (int i = 0; i < 2; i++) {
    close(connected[i]);
    close(numbers[i]);
    close(go[i]);
  }
  return first;
}

static void end(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

/* A process of ours with this number; 0: there is none to be had. */
static pid_t start_with_number(pid_t number) {
  for (int i = 0; i < 100; i++) { /* others begin processes, too */
    FILE *last = fopen("/proc/sys/kernel/ns_last_pid", "w");
    bool set = last && fprintf(last, "%d", number - 1) > 0;
    if (!last || fclose(last) != 0 || !set)
      return 0;
    pid_t child = fork();
    if (child == 0)
      for (;;)
        pause();
    if (child == number)
      return child;
    end(child);
  }
  return 0;
}

TEST(nor_may_a_container_whose_number_has_become_anothers) {
  struct gs_msg msg = wire_msg(GS_SET_TQ, GS_GPU_ALL);
  msg.set.value = NS_PER_S;
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  pid_t number = connect_apart(fd), other = number ? start_with_number(number) : 0;
  if (!other) {
    puts("not tried: new namespaces, or the choice of a number, are not allowed here");
    close(fd);
    return;
  }
  int err = wire_send(fd, &msg);
  if (err == 0)
    ck_assert_int_eq(expect(fd, GS_REPLY).status, -EACCES);
  else
    ck_assert_int_eq(err, -EPIPE); /* it has ended with who has made it */
  end(other);
  close(fd);
}

TEST(settings_are_checked) {
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, NS_PER_MS - 1), -EINVAL);
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, 0), 0); /* auto */
  ck_assert_int_eq(change_setting(it, GS_SET_TQ, NS_PER_MS), 0);
  ck_assert_int_eq(change_setting(it, GS_SET_MODE, 3), -EINVAL);
  ck_assert_int_eq(change_setting(it, GS_SET_MODE, GS_MODE_ON), 0);
  ck_assert_int_eq(change_setting(it, GS_SET_CAPACITY, GIB), 0);
  ck_assert_int_eq(change_setting(it, GS_SET_POLICY, GS_POLICY_PACK + 1), -EINVAL);
  ck_assert_int_eq(change_setting(it, GS_SET_POLICY, GS_POLICY_SRTF), 0);
  int fd = attach_client(it, 0);
  ck_assert_uint_eq(get_status(it, GS_STATUS_GPU).gpu_status.capacity_bytes, GIB);
  ck_assert_uint_eq(get_status(it, GS_STATUS_GPU).gpu_status.tq_ns, NS_PER_MS);
  ck_assert_uint_eq(get_status(it, GS_STATUS_GPU).gpu_status.policy, GS_POLICY_SRTF);
  close(fd);
  struct gs_msg msg = wire_msg(GS_SET_TQ, 0);
  msg.set.value = NS_PER_S;
  msg.set.uuid[0] = 200; /* nobody has used it */
  fd = connect_to(it);
  tell(fd, &msg);
  ck_assert_int_eq(expect(fd, GS_REPLY).status, -ENOENT);
}

int main(void) { return suite_run_all("daemon_protocol", set_up, tear_down); }
