/*
 * bench_hostile.c - what one hostile user costs the others: how long an honest user's REGISTER and round
 * trips take beside it, and what the daemon holds in memory.
 *
 * The hostile user is a process of another uid (only root can be somebody else) with many connections, each a
 * job on one card unless the flood says otherwise. It sends as fast as it can: one message per connection and
 * round. The honest user connects and registers, then attaches and asks for the lock, again and again; a
 * round trip is a request for memory on a connection that stays, so the longest one bounds the longest gap of
 * the daemon's loop. Answers are read, but for the floods that ask and do not read.
 *
 * With --rival there is another user whose programs always have work for the daemon, too: what each of the
 * two has of the loop's time the daemon's metrics tell.
 */
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "arguments.h"
#include "common/clock.h"
#include "own_daemon.h"
#include "quantile.h"

#define SAMPLES 100000
#define PATIENCE_MS 60000
#define UNREAD_MAX 4 /* questions of one connection that reads no answers */
#define HOSTILE_UID 54321
#define RIVAL_UID 54322
#define CARD (UINT64_C(16) << 30)

static const char help[] =
    "usage: bench_hostile [OPTION]...\n"
    "  --flood KIND         request, memory, declare, attach, status or connect (request)\n"
    "  --connections N      of the hostile user (2000)\n"
    "  --rival N            connections of another user, who asks for turns and gives them back as fast as "
    "it can (0)\n"
    "  --seconds N          (10)\n"
    "  --json\n";

struct shared {
  uint32_t ready;
  uint64_t sent, ends; /* messages, and connections that the daemon has ended */
};

static struct shared *shared, *shared_by_rival;
static char metrics_path[64], metrics_address[80];
static pid_t hostile_pid, rival_pid; /* they die with this one */
static uint64_t connections = 2000, rival = 0, seconds = 10;
static const char *flood = "request";

static void start_daemon(void) {
  folder_make();
  snprintf(metrics_path, sizeof metrics_path, "%s/metrics.sock", folder);
  snprintf(metrics_address, sizeof metrics_address, "unix:%s", metrics_path);
  daemon_begin((const char *[]){"--mode", "on", "--log", "error", "--host-memory", "1T",
                                rival ? "--metrics" : NULL, metrics_address, NULL});
}

/* ---- messages ---- */

static struct gs_msg attach_msg(uint8_t card) {
  struct gs_msg msg = wire_msg(GS_ATTACH, 0);
  msg.attach.uuid[0] = card;
  msg.attach.total_bytes = CARD;
  msg.attach.used_bytes = msg.attach.resident_bytes = UINT64_C(1) << 20;
  msg.attach.flags = GS_ATTACH_MANAGED;
  return msg;
}

/* Up to a message of this type. 0, or -errno. */
static int await_type(int fd, enum gs_msg_type type) {
  struct pollfd readable = {.fd = fd, .events = POLLIN};
  struct gs_msg msg;
  int err;
  do {
    if (poll(&readable, 1, PATIENCE_MS) != 1)
      return -ETIMEDOUT;
    err = wire_recv(fd, &msg);
  } while (err == 0 && msg.type != type && msg.type != GS_REJECTED);
  return err == 0 && msg.type != type ? -EUSERS : err;
}

static int ask(int fd, const struct gs_msg *msg, enum gs_msg_type answer) {
  int err = wire_send(fd, msg);
  return err < 0 ? err : await_type(fd, answer);
}

/* ---- the hostile user ---- */

static bool is(const char *kind) { return strcmp(flood, kind) == 0; }

static bool is_of_jobs(void) { return !is("status") && !is("connect"); }

static int begin_hostile(bool is_job) {
  struct gs_msg hello = wire_msg(GS_REGISTER, 0), attach = attach_msg(1);
  int fd = wire_connect_patiently(socket_path, 60 * NS_PER_S);
  if (fd < 0 || !is_job)
    return fd;
  if (ask(fd, &hello, GS_REGISTERED) == 0 && ask(fd, &attach, GS_ATTACHED) == 0)
    return fd;
  close(fd);
  return -1;
}

static struct gs_msg hostile_msg(uint64_t round) {
  struct gs_msg msg = wire_msg(GS_GET_STATUS, 0);
  if (is("request")) {
    msg.type = round % 2 ? GS_LOCK_RELEASED : GS_REQ_LOCK;
    msg.epoch = round;
  } else if (is("memory")) {
    msg.type = GS_MEM_REPORT;
    msg.mem.total_bytes = (round % 64 + 1) << 20;
  } else if (is("declare")) {
    msg.type = GS_DECLARE;
    msg.declare.weight = (uint32_t)(round % 100 + 1);
  } else if (is("attach")) {
    msg = attach_msg(1);
    msg.type = round % 2 ? GS_DETACH : GS_ATTACH;
  }
  return msg;
}

static void drain(int fd) {
  struct gs_msg msg;
  while (wire_recv(fd, &msg) == 0)
    ;
}

/* One message on each connection; those that the daemon has ended are made anew. */
static void flood_once(int *fds, uint64_t round) {
  struct gs_msg msg = hostile_msg(round);
  for (uint64_t i = 0; i < connections; i++) {
    bool enough = round > UNREAD_MAX && is("status");
    int err = fds[i] < 0 || enough ? -EAGAIN : wire_send(fds[i], &msg);
    shared->sent += err == 0;
    if (is_of_jobs() && fds[i] >= 0)
      drain(fds[i]);
    if (is("connect") || (err < 0 && err != -EAGAIN)) {
      shared->ends += !is("connect");
      close(fds[i]);
      fds[i] = -1;
    }
    if (fds[i] < 0)
      fds[i] = is("connect") ? wire_connect(socket_path) : -1;
  }
}

static void be_hostile(uid_t uid) {
  int *fds = malloc(connections * sizeof *fds);
  if (!fds || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
    _exit(1);
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* which another uid takes away */
  for (uint64_t i = 0; i < connections; i++)
    fds[i] = begin_hostile(is_of_jobs());
  __atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
  for (uint64_t round = 1;; round++)
    flood_once(fds, round);
}

static void await_ready(const struct shared *of, pid_t pid) {
  while (!__atomic_load_n(&of->ready, __ATOMIC_ACQUIRE)) {
    if (waitpid(pid, NULL, WNOHANG) != 0)
      die("the hostile user: is this root?", EPERM);
    clock_sleep(NS_PER_MS);
  }
}

static void start_hostile(void) {
  if (rival > 0 && (rival_pid = fork()) == 0) {
    connections = rival;
    flood = "request";
    shared = shared_by_rival;
    be_hostile(RIVAL_UID);
  }
  hostile_pid = fork();
  if (hostile_pid == 0)
    be_hostile(HOSTILE_UID);
  await_ready(shared, hostile_pid);
  if (rival > 0)
    await_ready(shared_by_rival, rival_pid);
}

/* What the daemon says to have spent on this user, in seconds. */
static double handling_seconds(uid_t uid) {
  static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
  static char text[1 << 20];
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char key[64];
  size_t size = 0;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  memcpy(address.sun_path, metrics_path, sizeof metrics_path);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
      write(fd, request, strlen(request)) < 0)
    die("the daemon's metrics", errno);
  for (ssize_t n; size < sizeof text - 1 && (n = read(fd, text + size, sizeof text - 1 - size)) > 0;)
    size += (size_t)n;
  close(fd);
  text[size] = '\0';
  snprintf(key, sizeof key, "\ngpushare_user_handling_seconds_total{uid=\"%u\"} ", uid);
  const char *found = strstr(text, key);
  return found ? strtod(found + strlen(key), NULL) : 0;
}

/* ---- the honest one ---- */

struct samples {
  double ms[SAMPLES];
  size_t count;
};

static void note(struct samples *samples, uint64_t since_ns) {
  if (samples->count < SAMPLES)
    samples->ms[samples->count++] = (double)(clock_now_ns() - since_ns) / 1e6;
}

static void report_samples(const char *what, struct samples *samples) {
  if (samples->count == 0)
    return;
  report(report_name("%s_count", what), (double)samples->count, "");
  report(report_name("%s_p50_ms", what), quantile(samples->ms, samples->count, 0.5), "ms");
  report(report_name("%s_p99_ms", what), quantile(samples->ms, samples->count, 0.99), "ms");
  report(report_name("%s_max_ms", what), quantile(samples->ms, samples->count, 1), "ms");
}

static double number_of(pid_t pid, const char *file, const char *key) {
  char path[64], line[256];
  double value = 0;
  snprintf(path, sizeof path, pid ? "/proc/%d/%s" : "/proc/%.0d%s", pid, file);
  FILE *lines = fopen(path, "re");
  while (lines && fgets(line, sizeof line, lines))
    if (strncmp(line, key, strlen(key)) == 0)
      value = strtod(line + strlen(key), NULL) / 1024;
  if (lines)
    fclose(lines);
  return value;
}

static double rss_mib(void) { return number_of(daemon_pid, "status", "VmRSS:"); }

/* Of the kernel, sockets' buffers among it; everybody's. */
static double kernel_mib(void) { return number_of(0, "meminfo", "Slab:"); }

static double daemon_seconds(void) {
  char path[64];
  unsigned long user = 0, kernel = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", daemon_pid);
  FILE *file = fopen(path, "re");
  if (!file ||
      fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel) != 2)
    user = kernel = 0;
  if (file)
    fclose(file);
  return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

/* On a card of its own, so that it is given the lock at once. */
static int begin_honest(uint8_t card, struct samples *registers, struct samples *attaches) {
  struct gs_msg hello = wire_msg(GS_REGISTER, 0), attach = attach_msg(card),
                request = wire_msg(GS_REQ_LOCK, 0);
  uint64_t since_ns = clock_now_ns();
  int fd = wire_connect_patiently(socket_path, 60 * NS_PER_S);
  int err = fd < 0 ? fd : ask(fd, &hello, GS_REGISTERED);
  if (err == 0)
    note(registers, since_ns);
  since_ns = clock_now_ns();
  if (err == 0)
    err = ask(fd, &attach, GS_ATTACHED);
  if (err == 0)
    err = ask(fd, &request, GS_LOCK_OK);
  if (err == 0)
    note(attaches, since_ns);
  if (err < 0 && fd >= 0)
    close(fd);
  return err < 0 ? err : fd;
}

static void be_honest(void) {
  static struct samples registers, attaches, trips, none[2];
  struct gs_msg question = wire_msg(GS_MEM_REQUEST, 0);
  uint64_t refused = 0;
  double peak_mib = 0, kernel_peak_mib = 0, kernel_before_mib = kernel_mib();
  int stays = begin_honest(2, &none[0], &none[1]);
  if (stays < 0)
    die("the honest user", stays);
  uint64_t begin_ns = clock_now_ns();
  double before_s = daemon_seconds();
  double hostile_before_s = rival ? handling_seconds(HOSTILE_UID) : 0;
  double rival_before_s = rival ? handling_seconds(RIVAL_UID) : 0;
  question.mem.total_bytes = UINT64_C(1) << 20;
  do {
    uint64_t since_ns = clock_now_ns();
    if (ask(stays, &question, GS_MEM_REPLY) < 0)
      die("a round trip of the honest user", EIO);
    note(&trips, since_ns);
    int fd = begin_honest(3, &registers, &attaches);
    refused += fd < 0;
    if (fd >= 0)
      close(fd);
    peak_mib = rss_mib() > peak_mib ? rss_mib() : peak_mib;
    kernel_peak_mib = kernel_mib() > kernel_peak_mib ? kernel_mib() : kernel_peak_mib;
    clock_sleep(2 * NS_PER_MS);
  } while (clock_now_ns() - begin_ns < seconds * NS_PER_S);
  double took_s = (double)(clock_now_ns() - begin_ns) / 1e9;
  report_samples("register", &registers);
  report_samples("attach_and_lock", &attaches);
  report_samples("round_trip", &trips);
  report("honest_refused", (double)refused, "");
  report("daemon_rss_mib", peak_mib, "MiB");
  report("kernel_growth_mib", kernel_peak_mib - kernel_before_mib, "MiB");
  if (rival) {
    report("hostile_share_of_loop", (handling_seconds(HOSTILE_UID) - hostile_before_s) / took_s, "");
    report("rival_share_of_loop", (handling_seconds(RIVAL_UID) - rival_before_s) / took_s, "");
    report("rival_messages_per_s", (double)shared_by_rival->sent / took_s, "1/s");
    report("rival_connections_ended", (double)shared_by_rival->ends, "");
  }
  report("daemon_busy", (daemon_seconds() - before_s) / took_s, "");
  report("hostile_messages_per_s", (double)shared->sent / took_s, "1/s");
  report("hostile_connections_ended", (double)shared->ends, "");
}

int main(int argc, char **argv) {
  struct rlimit limit;
  arguments_read(
      argc, argv, help,
      (const struct argument[]){{.name = "flood", .text = &flood},
                                {.name = "connections", .number = &connections, .least = 1, .most = 100000},
                                {.name = "rival", .number = &rival, .most = 100000},
                                {.name = "seconds", .number = &seconds, .least = 1, .most = 3600},
                                {0}});
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  signal(SIGPIPE, SIG_IGN);
  shared = mmap(NULL, 2 * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED)
    die("mmap", errno);
  shared_by_rival = shared + 1;
  start_daemon();
  report_begin();
  double before_mib = rss_mib();
  start_hostile();
  shared->sent = shared_by_rival->sent = 0;
  be_honest();
  report("daemon_rss_before_mib", before_mib, "MiB");
  report_end();
  kill(hostile_pid, SIGKILL);
  if (rival > 0)
    kill(rival_pid, SIGKILL);
  daemon_stop();
  return EXIT_SUCCESS;
}
