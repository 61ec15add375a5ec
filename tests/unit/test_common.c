/* test_common.c - parsing, messages and log lines, as both sides use them. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/parse.h"
#include "common/spelling.h"
#include "common/text_file.h"
#include "common/wire.h"
#include "common/words.h"
#include "suite.h"

START_TEST(durations) {
  static const struct {
    const char *text;
    uint64_t ns;
  } good[] = {{"20", 20 * NS_PER_S},
              {"0.5", NS_PER_S / 2},
              {"20s", 20 * NS_PER_S},
              {"1ms", NS_PER_MS},
              {"250us", 250000},
              {"7ns", 7},
              {"2m", 120 * NS_PER_S},
              {"1.5h", 5400 * NS_PER_S},
              {"0.000000001", 1},
              {"2min", 120 * NS_PER_S},
              {"0", 0}};
  static const char *const bad[] = {"",   "s",  "-1", "+1",           " 1",  "1 ",
                                    "1x", "1.", ".5", "1.0000000001", "1e3", "0x1"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    uint64_t ns = UINT64_MAX;
    ck_assert_msg(parse_duration_ns(good[i].text, &ns) == 0, "%s", good[i].text);
    ck_assert_uint_eq(ns, good[i].ns);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    uint64_t ns = 42;
    ck_assert_msg(parse_duration_ns(bad[i], &ns) == -EINVAL, "'%s'", bad[i]);
    ck_assert_uint_eq(ns, 42);
  }
  uint64_t ns;
  ck_assert_int_eq(parse_duration_ns("18446744074", &ns), -ERANGE);
  ck_assert_int_eq(parse_duration_ns("99999999999999999999999", &ns), -ERANGE);
}
END_TEST

START_TEST(sizes) {
  uint64_t bytes;
  ck_assert_int_eq(parse_bytes("1.5GiB", &bytes), 0);
  ck_assert_uint_eq(bytes, UINT64_C(3) << 29);
  ck_assert_int_eq(parse_bytes("16G", &bytes), 0);
  ck_assert_uint_eq(bytes, UINT64_C(16) << 30);
  ck_assert_int_eq(parse_bytes("18446744073709551615", &bytes), 0);
  ck_assert_uint_eq(bytes, UINT64_MAX);
  ck_assert_int_eq(parse_bytes("18446744073709551616", &bytes), -ERANGE);
  ck_assert_int_eq(parse_bytes("16777216T", &bytes), -ERANGE);
  ck_assert_int_eq(parse_bytes("16GB", &bytes), -EINVAL);
}
END_TEST

START_TEST(modes_and_truth) {
  enum gs_mode mode;
  bool value;
  for (unsigned i = GS_MODE_AUTO; i <= GS_MODE_OFF; i++) {
    ck_assert_int_eq(parse_mode(mode_name(i), &mode), 0);
    ck_assert_uint_eq(mode, i);
  }
  ck_assert_int_eq(parse_mode("ON", &mode), -EINVAL);
  enum gs_policy policy;
  for (unsigned i = GS_POLICY_RR; i <= GS_POLICY_PACK; i++) {
    ck_assert_int_eq(parse_policy(policy_name(i), &policy), 0);
    ck_assert_uint_eq(policy, i);
  }
  ck_assert_int_eq(parse_policy("random", &policy), -EINVAL);
  ck_assert_str_eq(policy_name(GS_POLICY_PACK + 1), "?");
  enum gs_memory memory = GS_MEMORY_MANAGED;
  ck_assert_int_eq(parse_memory("swap", &memory), 0);
  ck_assert_int_eq(memory, GS_MEMORY_SWAP);
  ck_assert_int_eq(parse_memory("off", &memory), 0);
  ck_assert_int_eq(memory, GS_MEMORY_OFF);
  ck_assert_int_eq(parse_memory("", &memory), -EINVAL);
  ck_assert_int_eq(parse_memory("swapped", &memory), -EINVAL);
  ck_assert_int_eq(memory, GS_MEMORY_OFF);
  ck_assert_int_eq(parse_memory("managed", &memory), 0);
  ck_assert_int_eq(memory, GS_MEMORY_MANAGED);
  ck_assert_str_eq(mode_name(99), "?");
  ck_assert_int_eq(parse_bool("yes", &value), 0);
  ck_assert(value);
  ck_assert_int_eq(parse_bool("off", &value), 0);
  ck_assert(!value);
  ck_assert_int_eq(parse_bool("maybe", &value), -EINVAL);
}
END_TEST

START_TEST(quanta) {
  static const struct {
    const char *text;
    int err;
    uint64_t ns;
  } texts[] = {{"auto", 0, 0},
               {"1ms", 0, GS_TQ_MIN_NS},
               {"24h", 0, GS_TQ_MAX_NS},
               {"0", -ERANGE, 7},
               {"999us", -ERANGE, 7},
               {"86400.000000001", -ERANGE, 7},
               {"99999999999999999999", -ERANGE, 7},
               {"Auto", -EINVAL, 7},
               {"", -EINVAL, 7}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    uint64_t ns = 7;
    ck_assert_msg(parse_tq_ns(texts[i].text, &ns) == texts[i].err, "%s", texts[i].text);
    ck_assert_msg(ns == texts[i].ns, "%s", texts[i].text);
  }
}
END_TEST

START_TEST(weights_and_priorities) {
  static const char *const no_weights[] = {"", "0", "10001", "-1", "+1", " 1", "1.5", "1x", "4294967297"};
  static const char *const no_priorities[] = {"",    "-",  "21", "-21",
                                              "--1", "+1", "5 ", "18446744073709551615"};
  uint32_t weight = 7;
  int32_t priority = 7;
  for (size_t i = 0; i < sizeof no_weights / sizeof *no_weights; i++)
    ck_assert_msg(parse_weight(no_weights[i], &weight) == -EINVAL && weight == 7, "%s", no_weights[i]);
  for (size_t i = 0; i < sizeof no_priorities / sizeof *no_priorities; i++)
    ck_assert_msg(parse_priority(no_priorities[i], &priority) == -EINVAL && priority == 7, "%s",
                  no_priorities[i]);
  ck_assert_int_eq(parse_weight("1", &weight), 0);
  ck_assert_uint_eq(weight, 1);
  ck_assert_int_eq(parse_weight("10000", &weight), 0);
  ck_assert_uint_eq(weight, 10000);
  ck_assert_int_eq(parse_priority("-20", &priority), 0);
  ck_assert_int_eq(priority, -20);
  ck_assert_int_eq(parse_priority("20", &priority), 0);
  ck_assert_int_eq(priority, 20);
  ck_assert_int_eq(parse_priority("-0", &priority), 0);
  ck_assert_int_eq(priority, 0);
}
END_TEST

START_TEST(misspelt_words) {
  static const struct {
    const char *a, *b;
    unsigned distance;
  } words[] = {{"", "", 0},         {"", "tq", 2},           {"tq", "tq", 0},         {"tq", "qt", 1},
               {"tq", "tqq", 1},    {"tq", "q", 1},          {"tq", "xx", 2},         {"weight", "wieght", 1},
               {"grace", "gra", 2}, {"abcdef", "badcfe", 3}, {"kitten", "sitting", 3}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t a = strlen(words[i].a), b = strlen(words[i].b);
    ck_assert_msg(spelling_distance(words[i].a, a, words[i].b, b) == words[i].distance, "%s", words[i].b);
    ck_assert_msg(spelling_distance(words[i].b, b, words[i].a, a) == words[i].distance, "%s", words[i].b);
  }
  unsigned best = UINT_MAX;
  ck_assert(!spelling_is_nearer("xx", "tq", &best)); /* too far from it */
  ck_assert(spelling_is_nearer("qt", "tq", &best));
  ck_assert_uint_eq(best, 1);
  ck_assert(!spelling_is_nearer("qt", "q", &best)); /* as near */
  ck_assert(spelling_is_nearer("tq", "tq", &best));
  best = UINT_MAX;
  ck_assert(!spelling_is_nearer("a_word_that_is_longer_than_any_name", "a_word_that_is_longer_than_any_name",
                                &best));
}
END_TEST

START_TEST(uuids) {
  static const char text[] = "GPU-00010203-0405-0607-0809-0a0b0c0dfeff";
  uint8_t uuid[GS_UUID_SIZE];
  char again[GS_UUID_TEXT_SIZE];
  ck_assert_int_eq(parse_uuid(text, uuid), 0);
  ck_assert_uint_eq(uuid[15], 0xff);
  format_uuid(uuid, again);
  ck_assert_str_eq(again, text);
  ck_assert_int_eq(parse_uuid(text + 4, uuid), 0);
  ck_assert_int_eq(parse_uuid("GPU-0001", uuid), -EINVAL);
  ck_assert_int_eq(parse_uuid("GPU-00010203-0405-0607-0809-0a0b0c0dfefff", uuid), -EINVAL);
  ck_assert_int_eq(parse_uuid("GPU-00010203+0405-0607-0809-0a0b0c0dfeff", uuid), -EINVAL);
  ck_assert_int_eq(parse_uuid("GPU-0001020g-0405-0607-0809-0a0b0c0dfeff", uuid), -EINVAL);
  memset(uuid, 0, sizeof uuid);
  ck_assert(uuid_is_zero(uuid));
  uuid[GS_UUID_SIZE - 1] = 1;
  ck_assert(!uuid_is_zero(uuid));
  uuid[GS_UUID_SIZE - 1] = 0;
  uuid[0] = 1;
  ck_assert(!uuid_is_zero(uuid));
}
END_TEST

START_TEST(small_files_are_text) {
  char path[] = "/tmp/gpushare-text-XXXXXX", text[8];
  int fd = mkstemp(path);
  ck_assert_int_eq(write(fd, "1234567", 7), 7);
  errno = EDOM;
  ck_assert_int_eq(text_file_read(AT_FDCWD, path, text, sizeof text), 7);
  ck_assert_str_eq(text, "1234567");
  ck_assert_int_eq(text_file_read_open(fd, text, 8), 7); /* wherever its offset is */
  ck_assert_int_eq(text_file_read(AT_FDCWD, path, text, 7), 7);
  ck_assert_str_eq(text, "123456");
  ck_assert_int_eq(text_file_read(AT_FDCWD, "/nowhere", text, sizeof text), -ENOENT);
  ck_assert_str_eq(text, "");
  strcpy(text, "before");
  ck_assert_int_eq(text_file_read(AT_FDCWD, "/", text, sizeof text), -EISDIR);
  ck_assert_str_eq(text, "");
  ck_assert_int_eq(errno, EDOM);
  ck_assert_int_eq(ftruncate(fd, 0), 0);
  ck_assert_int_eq(text_file_read(AT_FDCWD, path, text, sizeof text), 0);
  ck_assert_str_eq(text, "");
  close(fd);
  unlink(path);
}
END_TEST

/* The kernel gives of such a file a page at a time. */
START_TEST(files_of_the_kernel_come_whole) {
  static char text[1 << 20];
  ssize_t length = text_file_read(AT_FDCWD, "/proc/self/smaps", text, sizeof text);
  ck_assert_int_gt(length, 3 * sysconf(_SC_PAGESIZE));
  ck_assert_int_lt(length, (ssize_t)sizeof text);
  ck_assert_ptr_nonnull(strstr(text, "[stack]"));
}
END_TEST

/* Whatever a stranger has sent. */
START_TEST(texts_end_within_their_messages) {
#define TEXT(type, field)                                                                                    \
  { type, offsetof(struct gs_msg, field), sizeof((struct gs_msg *)0)->field }
  static const struct {
    enum gs_msg_type type;
    size_t at, size;
  } texts[] = {TEXT(GS_REGISTER, reg.name),
               TEXT(GS_ATTACH, attach.name),
               TEXT(GS_COMMAND, command.text),
               TEXT(GS_EVENT, event.name),
               TEXT(GS_DECLARE, declare.gang),
               TEXT(GS_REPLY, reply.text),
               TEXT(GS_STATUS_DAEMON, daemon.release),
               TEXT(GS_STATUS_GPU, gpu_status.name),
               TEXT(GS_STATUS_JOB, job_status.name),
               TEXT(GS_STATUS_TERMS, terms_status.gang),
               TEXT(GS_STATUS_ORIGIN, origin_status.name),
               TEXT(GS_STATUS_ORIGIN, origin_status.container)};
#undef TEXT
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    struct gs_msg msg, header = wire_msg(texts[i].type, 0);
    memset(&msg, 'x', sizeof msg);
    memcpy(&msg, &header, offsetof(struct gs_msg, reg));
    ck_assert_int_eq(wire_check(&msg, sizeof msg), 0);
    const char *text = (const char *)&msg + texts[i].at;
    ck_assert_msg(strnlen(text, texts[i].size) == texts[i].size - 1, "%s", wire_type_name(texts[i].type));
  }
}
END_TEST

START_TEST(messages_are_checked) {
  struct gs_msg msg = wire_msg(GS_REGISTER, 3);
  ck_assert_uint_eq(msg.gpu, 3);
  memset(msg.reg.name, 'x', sizeof msg.reg.name);
  ck_assert_int_eq(wire_check(&msg, sizeof msg), 0);
  ck_assert_uint_eq(strlen(msg.reg.name), sizeof msg.reg.name - 1);
  ck_assert_int_eq(wire_check(&msg, sizeof msg - 1), -EBADMSG);
  msg.type = 1000;
  ck_assert_int_eq(wire_check(&msg, sizeof msg), -ENOSYS);
  msg.version++;
  ck_assert_int_eq(wire_check(&msg, sizeof msg), -EPROTONOSUPPORT);
  msg.magic++;
  ck_assert_int_eq(wire_check(&msg, sizeof msg), -EBADMSG);
  ck_assert_str_eq(wire_type_name(GS_DROP_LOCK), "DROP_LOCK");
  ck_assert_str_eq(wire_type_name(31), "?");
}
END_TEST

START_TEST(messages_travel) {
  int fds[2];
  struct gs_msg msg = wire_msg(GS_LOCK_OK, 1), got;
  ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
  ck_assert_int_eq(wire_recv(fds[1], &got), -EAGAIN);
  msg.epoch = 7;
  ck_assert_int_eq(wire_send(fds[0], &msg), 0);
  ck_assert_int_eq(wire_recv(fds[1], &got), 0);
  ck_assert_mem_eq(&got, &msg, sizeof msg);
  char large[GS_MSG_SIZE + 1] = {0};
  memcpy(large, &msg, sizeof msg);
  ck_assert_int_eq(send(fds[0], large, sizeof large, 0), sizeof large);
  ck_assert_int_eq(wire_recv(fds[1], &got), -EBADMSG);
  int err;
  while ((err = wire_send(fds[0], &msg)) == 0)
    ;
  ck_assert_int_eq(err, -EAGAIN);
  while (wire_recv(fds[1], &got) == 0)
    ;
  close(fds[1]);
  ck_assert_int_eq(wire_send(fds[0], &msg), -EPIPE); /* and no signal */
  ck_assert_int_eq(wire_recv(fds[0], &got), -ECONNRESET);
  close(fds[0]);
}
END_TEST

/* The lowest free descriptor: the same again when nothing was left open. */
static int lowest_free(void) {
  int fd = dup(STDERR_FILENO);
  close(fd);
  return fd;
}

static void send_two(int fd, const struct gs_msg *msg, int passed) {
  union {
    char bytes[CMSG_SPACE(2 * sizeof(int))];
    struct cmsghdr align;
  } control = {
      .align = {.cmsg_len = CMSG_LEN(2 * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
  struct iovec part = {.iov_base = (void *)(uintptr_t)msg, .iov_len = sizeof *msg};
  struct msghdr header = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  memcpy(CMSG_DATA(&control.align), (int[]){passed, passed}, 2 * sizeof passed);
  ck_assert_int_eq(sendmsg(fd, &header, 0), sizeof *msg);
}

START_TEST(descriptors_travel_with_messages) {
  int fds[2], passed;
  struct gs_msg msg = wire_msg(GS_ATTACHED, 1), got;
  ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
  int lowest = lowest_free();
  ck_assert_int_eq(wire_recv_passed(fds[1], &got, sizeof got, &passed), -EAGAIN);
  ck_assert_int_eq(passed, -1);
  ck_assert_int_eq(wire_send(fds[0], &msg), 0);
  ck_assert_int_eq(wire_recv_passed(fds[1], &got, sizeof got, &passed), sizeof got);
  ck_assert_int_eq(passed, -1);
  ck_assert_int_eq(wire_send_passing(fds[0], &msg, sizeof msg, fds[0]), 0);
  ck_assert_int_eq(wire_recv_passed(fds[1], &got, sizeof got, &passed), sizeof got);
  ck_assert_int_eq(fcntl(passed, F_GETFD), FD_CLOEXEC);
  close(passed);
  send_two(fds[0], &msg, fds[0]); /* too many */
  ck_assert_int_eq(wire_recv_passed(fds[1], &got, sizeof got, &passed), sizeof got);
  ck_assert_int_eq(passed, -1);
  ck_assert_int_eq(wire_send_passing(fds[0], &msg, sizeof msg, fds[0]), 0); /* too long */
  ck_assert_int_eq(wire_recv_passed(fds[1], &got, sizeof got - 1, &passed), -EBADMSG);
  ck_assert_int_eq(fcntl(passed, F_GETFD), FD_CLOEXEC);
  close(passed);
  ck_assert_int_eq(wire_send_passing(fds[0], &msg, sizeof msg, fds[0]), 0); /* unexpected */
  ck_assert_int_eq(wire_recv(fds[1], &got), 0);
  ck_assert_int_eq(lowest_free(), lowest);
  close(fds[0]);
  close(fds[1]);
}
END_TEST

START_TEST(connecting_fails_clearly) {
  char path[200];
  memset(path, 'x', sizeof path);
  path[sizeof path - 1] = '\0';
  ck_assert_int_eq(wire_connect(path), -ENAMETOOLONG);
  ck_assert_int_eq(wire_connect("/nonexistent/socket"), -ENOENT);
}
END_TEST

/* A socket at `path` at which one connection waits, and no more may. */
static int listen_full(char *path, int *waiting) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(path, sizeof address.sun_path, "/tmp/gpushare-common-%d", getpid());
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
  ck_assert_int_eq(listen(fd, 0), 0);
  *waiting = wire_connect(path);
  ck_assert_int_ge(*waiting, 0);
  ck_assert_int_eq(wire_connect(path), -EAGAIN);
  return fd;
}

START_TEST(connecting_is_tried_again_while_no_more_may_wait) {
  char path[sizeof((struct sockaddr_un *)0)->sun_path];
  int waiting, listener = listen_full(path, &waiting), status;
  uint64_t begin_ns = clock_now_ns();
  ck_assert_int_eq(wire_connect_patiently(path, 50 * NS_PER_MS), -EAGAIN);
  ck_assert_uint_ge(clock_now_ns() - begin_ns, 50 * NS_PER_MS);
  pid_t child = fork();
  if (child == 0)
    _exit(wire_connect_patiently(path, 60 * NS_PER_S) < 0);
  usleep(20000); /* so that it has found no place, mostly */
  close(accept(listener, NULL, NULL));
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  unlink(path);
  ck_assert_int_eq(wire_connect_patiently(path, 60 * NS_PER_S), -ENOENT); /* at once */
  close(waiting);
  close(listener);
}
END_TEST

START_TEST(connecting_is_tried_again_soon_and_not_in_step) {
  uint64_t since_ns = 0, first_ns = 0, patience_ns = NS_PER_S, differ = 0;
  ck_assert_uint_eq(wire_connect_again_ns(-ENOENT, &since_ns, patience_ns), 0);
  ck_assert_uint_eq(wire_connect_again_ns(3, &since_ns, patience_ns), 0);
  for (int i = 0; i < 100; i++) {
    since_ns = clock_now_ns() - 500 * NS_PER_MS;
    uint64_t begin_ns = since_ns, again_ns = wire_connect_again_ns(-EAGAIN, &since_ns, patience_ns);
    ck_assert_uint_eq(since_ns, begin_ns);
    ck_assert_uint_le(again_ns, clock_now_ns() + 20 * NS_PER_MS);
    differ += i > 0 && again_ns - begin_ns != first_ns;
    first_ns = again_ns - begin_ns;
  }
  ck_assert_uint_ge(differ, 90);
  since_ns = clock_now_ns() - patience_ns;
  ck_assert_uint_eq(wire_connect_again_ns(-EAGAIN, &since_ns, patience_ns), 0);
  ck_assert_uint_eq(wire_connect_again_ns(-ECONNREFUSED, &since_ns, patience_ns), 0);
  ck_assert_uint_eq(since_ns, 0);
}
END_TEST

START_TEST(words_for_people) {
  char text[WORDS_SIZE];
  ck_assert_str_eq(words_setting_value(GS_SET_TQ, 20 * NS_PER_S, text), "20 s");
  ck_assert_str_eq(words_setting_value(GS_SET_TQ, 0, text), "auto");
  ck_assert_str_eq(words_setting_value(GS_SET_CAPACITY, 0, text), "all of the card");
  ck_assert_str_eq(words_setting_value(GS_SET_CAPACITY, UINT64_C(3) << 29, text), "1.5 GiB");
  ck_assert_str_eq(words_setting_value(GS_SET_MODE, GS_MODE_OFF, text), "off");
  ck_assert_str_eq(words_setting_value(GS_SET_MODE, UINT64_MAX, text), "?");
  ck_assert_str_eq(words_setting_value(GS_SET_POLICY, UINT64_C(1) << 32, text), "?");
  ck_assert_str_eq(words_term_value(GS_TERM_PRIORITY, (uint64_t)-7, text), "-7");
  ck_assert_str_eq(words_term_value(GS_TERM_RATE, 20, text), "20 %");
  ck_assert_str_eq(words_term_value(GS_TERM_CLASS, UINT64_MAX, text), "?");
  ck_assert_str_eq(words_term_value(GS_TERM_EXPECTED, 0, text), "unknown");
  ck_assert_str_eq(words_term_value(GS_TERM_SOFT_LIMIT, 0, text), "none");
  for (unsigned term = 0; term < GS_TERM_COUNT; term++)
    ck_assert(*words_term(term) && *words_term_title(term));
  ck_assert_str_eq(words_term(GS_TERM_COUNT), "unknown");
  ck_assert_str_eq(words_setting(GS_SET_TERMS), "unknown");
  ck_assert_str_eq(words_refusal(99), "");
}
END_TEST

/* What log_line writes to stderr. */
#define logged(text, ...)                                                                                    \
  do {                                                                                                       \
    char got[600];                                                                                           \
    int fds[2], saved = dup(STDERR_FILENO);                                                                  \
    ck_assert_int_eq(pipe(fds), 0);                                                                          \
    dup2(fds[1], STDERR_FILENO);                                                                             \
    close(fds[1]);                                                                                           \
    errno = EXDEV;                                                                                           \
    log_line(__VA_ARGS__);                                                                                   \
    ck_assert_int_eq(errno, EXDEV);                                                                          \
    dup2(saved, STDERR_FILENO);                                                                              \
    close(saved);                                                                                            \
    ssize_t size = read(fds[0], got, sizeof got - 1);                                                        \
    close(fds[0]);                                                                                           \
    got[size > 0 ? size : 0] = '\0';                                                                         \
    const char *line = strchr(got, ']');                                                                     \
    ck_assert_str_eq(line ? line : "", text);                                                                \
  } while (0)

START_TEST(log_lines) {
  log_setup("test", LOG_LEVEL_INFO);
  logged("] error: a -1 18446744073709551615 ff c %\n", LOG_LEVEL_ERROR, "%s %d %lu %x %c %%", "a", -1,
         ULONG_MAX, 255, 'c');
  logged("] info: -9223372036854775808 4294967295 0x10 7\n", LOG_LEVEL_INFO, "%ld %u %p %zu", LONG_MIN,
         UINT_MAX, (void *)16, (size_t)7);
  logged("", LOG_LEVEL_DEBUG, "quiet");
  enum log_level level;
  ck_assert_int_eq(log_level_parse("warn", &level), 0);
  ck_assert_int_eq(level, LOG_LEVEL_WARN);
  ck_assert_int_eq(log_level_parse("loud", &level), -EINVAL);
}
END_TEST

#define GUEST_LINES 20000

/* What a program does with its stderr meanwhile: `file` and the given one, by turns. */
struct changes {
  int given, file;
  _Atomic bool over;
};

static void *change_stderr(void *argument) {
  struct changes *changes = argument;
  while (!changes->over) {
    dup2(changes->file, STDERR_FILENO);
    dup2(changes->given, STDERR_FILENO);
  }
  return NULL;
}

/* The rest of the process' life is a guest's: the case is a process of its own. */
START_TEST(no_log_line_of_a_guest_comes_into_a_file_of_the_program) {
  char given[] = "/tmp/gpushare-given-XXXXXX", file[] = "/tmp/gpushare-file-XXXXXX";
  struct changes changes = {.given = mkstemp(given), .file = mkstemp(file)};
  pthread_t thread;
  ck_assert(changes.given >= 0 && changes.file >= 0 && unlink(given) == 0 && unlink(file) == 0);
  int before = dup(STDERR_FILENO);
  ck_assert_int_eq(dup2(changes.given, STDERR_FILENO), STDERR_FILENO);
  log_setup("guest", LOG_LEVEL_INFO);
  log_as_guest();
  ck_assert_int_eq(pthread_create(&thread, NULL, change_stderr, &changes), 0);
  for (int i = 0; i < GUEST_LINES; i++)
    log_info("line");
  changes.over = true;
  pthread_join(thread, NULL);
  dup2(before, STDERR_FILENO);
  ck_assert_int_gt(lseek(changes.given, 0, SEEK_END), 0);
  ck_assert_int_eq(lseek(changes.file, 0, SEEK_END), 0);
}
END_TEST

START_TEST(long_log_lines_are_cut) {
  char text[1000], got[1200];
  int fds[2], saved = dup(STDERR_FILENO);
  memset(text, 'x', sizeof text);
  text[sizeof text - 1] = '\0';
  ck_assert_int_eq(pipe(fds), 0);
  dup2(fds[1], STDERR_FILENO);
  log_error("%s", text);
  dup2(saved, STDERR_FILENO);
  ssize_t size = read(fds[0], got, sizeof got);
  ck_assert_int_eq(size, 512);
  ck_assert_int_eq(got[511], '\n');
}
END_TEST

static struct lock low = LOCK(LOCK_CLIENT), high = LOCK(LOCK_GATE), as_high = LOCK(LOCK_GATE);

/* How a child ends that takes one after the other; -1: by a signal. */
static int take_both(struct lock *first, struct lock *second) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    lock_take(first);
    lock_take(second);
    lock_release(first); /* in any order */
    lock_take(&high);
    _exit(0);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? -1 : WEXITSTATUS(status);
}

START_TEST(locks_are_taken_in_the_order_of_their_ranks) {
  struct lock lowest = LOCK(LOCK_MPS);
  setenv("GS_STRICT", "1", 1);
  ck_assert_int_eq(take_both(&lowest, &low), 0);
  ck_assert_int_eq(take_both(&high, &low), -1);
  ck_assert_int_eq(take_both(&high, &as_high), -1);
  unsetenv("GS_STRICT");
  lock_take(&as_high);
  lock_take(&low);
  lock_release(&low);
  ck_assert(lock_try(&high)); /* that does not wait */
  lock_release(&high);
  lock_release(&as_high);
  pthread_mutex_lock(&high.mutex); /* as another thread */
  ck_assert(!lock_try(&high) && !lock_try_until(&high, &(struct timespec){.tv_sec = 0}));
  ck_assert_uint_eq(lock_held.ranks, 0);
  pthread_mutex_unlock(&high.mutex);
  ck_assert(!lock_is_inside());
}
END_TEST

START_TEST(a_child_of_a_fork_has_no_lock) {
  int status;
  setenv("GS_STRICT", "1", 1);
  lock_take(&high);
  pid_t child = fork();
  if (child == 0) {
    lock_fork_child();
    lock_take(&low);
    _exit(0);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  lock_release(&high);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {durations,
                                sizes,
                                modes_and_truth,
                                quanta,
                                weights_and_priorities,
                                misspelt_words,
                                uuids,
                                small_files_are_text,
                                files_of_the_kernel_come_whole,
                                messages_are_checked,
                                texts_end_within_their_messages,
                                messages_travel,
                                descriptors_travel_with_messages,
                                connecting_fails_clearly,
                                connecting_is_tried_again_while_no_more_may_wait,
                                connecting_is_tried_again_soon_and_not_in_step,
                                words_for_people,
                                log_lines,
                                no_log_line_of_a_guest_comes_into_a_file_of_the_program,
                                long_log_lines_are_cut,
                                locks_are_taken_in_the_order_of_their_ranks,
                                a_child_of_a_fork_has_no_lock,
                                NULL};
  return suite_main("common", tests, NULL, NULL);
}
