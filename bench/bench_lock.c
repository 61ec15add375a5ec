/*
 * bench_lock.c - how long the lock takes from hand to hand: from LOCK_RELEASED sent by its holder to LOCK_OK
 * received by the one that waits, with 2 and with 1,000 registered clients, beside a bare ping-pong over the
 * same kind of socket.
 *
 * The two clients are two processes, and so are the two players of the ping-pong; the daemon is a third. A
 * hand-over and a round trip of the ping-pong both wake two processes up. Waking a process on another core
 * can cost ten times as much as on the same one, and where processes run is luck, so it is fixed, the same
 * way for both: first every message crosses from core to core (clients on one core, daemon on the other; one
 * player on each), then all is on one core (figures named one_core). The rounds are interleaved. Each process
 * notes the time at which it sends where the other one can read it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arguments.h"
#include "common/clock.h"
#include "common/wire.h"
#include "quantile.h"

#define ROUNDS 7
#define TURNS 2000  /* per round; all turns of one connection stay below what the daemon takes for a flood */
#define WARM_UP 200 /* of these not counted */
#define IDLE 998

struct shared {
  uint64_t sent_ns;
  uint64_t took_ns[TURNS];
};

static struct shared *shared;
static int idle_fds[IDLE];

/* ---- the daemon ---- */

static char folder[] = "/tmp/gpushare-bench-XXXXXX", socket_path[64];
static pid_t daemon_pid;

static void daemon_stop(void) {
  if (daemon_pid > 0 && kill(daemon_pid, SIGTERM) == 0)
    waitpid(daemon_pid, NULL, 0);
  daemon_pid = 0;
  unlink(socket_path);
  rmdir(folder);
}

_Noreturn static void die(const char *what, int err) {
  fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(err < 0 ? -err : err));
  daemon_stop();
  exit(EXIT_FAILURE);
}

/* On a socket in a folder of its own; it dies with this program. */
static void daemon_begin(void) {
  int fd;
  if (!mkdtemp(folder))
    die("mkdtemp", errno);
  snprintf(socket_path, sizeof socket_path, "%s/daemon.sock", folder);
  const char *const argv[] = {
      "gpushare-daemon", "--socket", socket_path, "--config", "/dev/null", "--mode", "on",
      "--log",           "warn",     "--tq",      "1h",       NULL};
  daemon_pid = fork();
  if (daemon_pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(GS_DAEMON, (char *const *)(uintptr_t)argv);
    _exit(127);
  }
  while ((fd = wire_connect(socket_path)) < 0) {
    if (waitpid(daemon_pid, NULL, WNOHANG) != 0) {
      daemon_pid = 0;
      die(GS_DAEMON, ENOEXEC);
    }
    poll(NULL, 0, 1); /* nothing tells when another process listens */
  }
  close(fd);
}

/* ---- where processes run ---- */

static int cores[2]; /* two that we may use, or the same one twice */

static void find_cores(void) {
  cpu_set_t allowed;
  int found = 0;
  if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
    die("sched_getaffinity", errno);
  for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
    if (CPU_ISSET(core, &allowed))
      cores[found++] = core;
  if (found == 1)
    cores[1] = cores[0];
}

static void pin(pid_t pid, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (sched_setaffinity(pid, sizeof set, &set) < 0)
    die("sched_setaffinity", errno);
}

/* ---- messages ---- */

static struct gs_msg receive(int fd) {
  struct gs_msg msg;
  int err = wire_recv(fd, &msg);
  if (err < 0)
    die("receive", err);
  return msg;
}

static uint64_t receive_type(int fd, enum gs_msg_type type) {
  struct gs_msg msg;
  while ((msg = receive(fd)).type != type)
    ;
  return msg.epoch;
}

static void tell(int fd, enum gs_msg_type type, uint64_t epoch) {
  struct gs_msg msg = wire_msg(type, 0);
  msg.epoch = epoch;
  int err = wire_send(fd, &msg);
  if (err < 0)
    die("send", err);
}

static int new_client(uint8_t card) {
  int fd = wire_connect(socket_path);
  if (fd < 0)
    die("connect", fd);
  fcntl(fd, F_SETFL, 0); /* blocking: one call per message, as in the ping-pong */
  struct gs_msg msg = wire_msg(GS_ATTACH, 0);
  msg.attach.uuid[0] = card;
  msg.attach.total_bytes = 1;
  msg.attach.flags = GS_ATTACH_MANAGED;
  tell(fd, GS_REGISTER, 0);
  receive_type(fd, GS_REGISTERED);
  wire_send(fd, &msg);
  receive_type(fd, GS_SCHED_ON);
  return fd;
}

/* Until the daemon has buried all clients: that is work which must not disturb the next round. */
static void wait_until_alone(void) {
  int fd = wire_connect(socket_path);
  uint32_t jobs;
  if (fd < 0)
    die("connect", fd);
  fcntl(fd, F_SETFL, 0);
  do {
    struct gs_msg msg;
    tell(fd, GS_GET_STATUS, 0);
    jobs = receive(fd).daemon.jobs; /* STATUS_DAEMON comes first */
    do
      msg = receive(fd);
    while (msg.type != GS_STATUS_END);
  } while (jobs > 0);
  close(fd);
}

/* ---- two processes, in turns ---- */

static void note_sending(void) { __atomic_store_n(&shared->sent_ns, clock_now_ns(), __ATOMIC_RELEASE); }

static void note_arrival(int turn) {
  shared->took_ns[turn] = clock_now_ns() - __atomic_load_n(&shared->sent_ns, __ATOMIC_ACQUIRE);
}

/* The player of the even or of the odd turns. It holds, says that it runs, waits until the other one wants
 * the lock, gives it away, and queues up again. */
static void pass_lock(int fd, int first) {
  for (int turn = first; turn < TURNS; turn += 2) {
    uint64_t epoch = receive_type(fd, GS_LOCK_OK);
    note_arrival(turn);
    if (turn == TURNS - 1)
      return; /* nobody will want it */
    tell(fd, GS_LOCK_ACTIVE, epoch);
    receive_type(fd, GS_LOCK_WANTED);
    note_sending();
    tell(fd, GS_LOCK_RELEASED, epoch);
    if (turn + 2 < TURNS)
      tell(fd, GS_REQ_LOCK, 0);
  }
}

static void lock_round(int a, int b) {
  tell(a, GS_REQ_LOCK, 0);
  pid_t child = fork();
  if (child == 0) {
    tell(b, GS_REQ_LOCK, 0);
    pass_lock(b, 1);
    _exit(0);
  }
  note_sending();
  pass_lock(a, 0);
  waitpid(child, NULL, 0);
  close(a);
  close(b);
}

static void echo(int fd) {
  for (int turn = 0; turn < TURNS; turn++) {
    struct gs_msg msg = receive(fd);
    wire_send(fd, &msg);
  }
  _exit(0);
}

static void pingpong_round(int other_core) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
    die("socketpair", errno);
  pid_t child = fork();
  if (child == 0) {
    pin(0, other_core);
    echo(fds[1]);
  }
  for (int turn = 0; turn < TURNS; turn++) {
    note_sending();
    tell(fds[0], GS_LOCK_RELEASED, 0);
    receive(fds[0]);
    note_arrival(turn);
  }
  waitpid(child, NULL, 0);
  close(fds[0]);
  close(fds[1]);
}

/* ---- figures ---- */

struct figures {
  uint64_t ns[ROUNDS * (TURNS - WARM_UP)];
  size_t count;
  double p99_us[ROUNDS];
};

/* Of one placement. */
struct results {
  struct figures pingpong, lock_2, lock_1000;
};

static struct results two_cores, one_core;

static int compare_ns(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static double percentile_us(uint64_t *ns, size_t count, double part) {
  qsort(ns, count, sizeof *ns, compare_ns);
  return (double)ns[(size_t)((double)(count - 1) * part)] / 1000;
}

static void collect(struct figures *figures, int round) {
  memcpy(figures->ns + figures->count, shared->took_ns + WARM_UP, (TURNS - WARM_UP) * sizeof *figures->ns);
  figures->p99_us[round] = percentile_us(figures->ns + figures->count, TURNS - WARM_UP, 0.99);
  figures->count += TURNS - WARM_UP;
}

/* The p99 is the median of the rounds' p99s: a disturbance from outside spoils one round, not the figure. */
static double report_figures(struct figures *figures, const char *where, const char *what,
                             const char *clients) {
  double p99_us = median(figures->p99_us, ROUNDS);
  report(report_name("%s%s_p50_us%s", where, what, clients), percentile_us(figures->ns, figures->count, 0.5),
         "us");
  report(report_name("%s%s_p99_us%s", where, what, clients), p99_us, "us");
  return p99_us;
}

static void measure(struct results *results, int round, int other_core) {
  pin(daemon_pid, other_core);
  wait_until_alone();
  pingpong_round(other_core);
  collect(&results->pingpong, round);
  lock_round(new_client(1), new_client(1));
  collect(&results->lock_2, round);
  for (int i = 0; i < IDLE; i++)
    idle_fds[i] = new_client(1);
  lock_round(new_client(1), new_client(1));
  collect(&results->lock_1000, round);
  for (int i = 0; i < IDLE; i++)
    close(idle_fds[i]);
}

static void report_results(struct results *results, const char *where) {
  double pingpong_us = report_figures(&results->pingpong, where, "pingpong", "");
  double few_us = report_figures(&results->lock_2, where, "lock", "_2");
  double many_us = report_figures(&results->lock_1000, where, "lock", "_1000");
  report(report_name("%slock_over_pingpong", where), few_us / pingpong_us, "");
  report(report_name("%sidle_dependence", where), many_us / few_us, "");
}

int main(int argc, char **argv) {
  arguments_read(argc, argv, "usage: bench_lock [--json]\n", (struct argument[]){{0}});
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED)
    die("mmap", errno);
  find_cores();
  daemon_begin();
  pin(0, cores[0]);
  for (int round = 0; round < ROUNDS; round++) {
    measure(&two_cores, round, cores[1]);
    measure(&one_core, round, cores[0]);
  }
  daemon_stop();
  report_begin();
  report_results(&two_cores, "");
  report_results(&one_core, "one_core_");
  report_end();
  return 0;
}
