/*
 * bench_orders.c - what the worst event of the daemon costs, with the messages that come of it: 2,048 jobs on
 * a GPU, each a socket that is really written to.
 *
 * Turns begin and end, a mode and a capacity are set, jobs of all classes come and go. What is measured is an
 * event as the loop has it: a message, an end, or the time; and a slice of what is told later. Time is that
 * of the thread. The scene is played several times, always alike; of each event the shortest time counts.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "arguments.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/wire.h"
#include "played_peers.h"
#include "report.h"
#include "server/daemon.h"

#define CROWD 2048
#define PERSON CROWD
#define MIB (UINT64_C(1) << 20)
#define CARD (UINT64_C(16) << 30)
#define EVENTS_MAX 100000
#define WORST_NS NS_PER_MS
#define TELLERS 64
#define STEP_NS (100 * NS_PER_MS)

static struct daemon it;
static struct users users;
static struct peer peers[CROWD + 1];
static int ends[CROWD + 1]; /* of the sockets: the programs' */
static uint64_t now_ns, times = 5;

enum kind { ATTACH, MEMORY, MODE, CAPACITY, CLASS, PROGRESS, GONE, TIME, SLICE, KINDS };
static const char *const kind_names[] = {"attach",   "memory", "mode", "capacity", "class",
                                         "progress", "gone",   "time", "slice"};
static uint64_t costs_ns[EVENTS_MAX];
static uint8_t kinds[EVENTS_MAX];
static unsigned events;
static uint64_t begun_ns;

static void send_it(struct peer *peer, const struct gs_msg *msg) { wire_send(peer->fd, msg); }

static uint64_t thread_ns(void) { return clock_read_ns(CLOCK_THREAD_CPUTIME_ID); }

static void end_event(enum kind kind) {
  uint64_t took_ns = thread_ns() - begun_ns;
  if (events == EVENTS_MAX)
    return;
  if (costs_ns[events] == 0 || took_ns < costs_ns[events])
    costs_ns[events] = took_ns;
  kinds[events++] = (uint8_t)kind;
}

/* As the programs do, and the loop: at once. */
static void go_on(void) {
  struct gs_msg msg;
  while (!actions_are_told(&it)) {
    begun_ns = thread_ns();
    actions_tell_some(&it, 32, now_ns);
    end_event(SLICE);
  }
  for (int i = 0; i <= CROWD; i++)
    while (peers[i].user && wire_recv(ends[i], &msg) == 0)
      ;
}

static void say(int i, const struct gs_msg *msg, enum kind kind) {
  begun_ns = thread_ns();
  daemon_on_message(&it, &peers[i], msg, now_ns += NS_PER_MS);
  end_event(kind);
  go_on();
}

/* What it has been told. */
static void obey(int i, const struct sched_job *job) {
  struct gs_msg msg = wire_msg(job->state == GS_JOB_DROPPING ? GS_LOCK_RELEASED : GS_LOCK_ACTIVE, 0);
  msg.epoch = job->epoch;
  if (job->state == GS_JOB_DROPPING || (job->state == GS_JOB_HOLDING && !job->active))
    daemon_on_message(&it, &peers[i], &msg, now_ns);
}

/* Those that are asked tell how they get on, some by turns that they rest. */
static void tell_progress(uint64_t time) {
  for (int i = 0; i < TELLERS; i++) {
    struct attachment *attachment = peers[i].user ? peers[i].attachments[0] : NULL;
    if (!attachment || !attachment->rates.told.watch)
      continue;
    struct gs_msg msg = wire_msg(GS_PROGRESS, 0);
    msg.progress.active_ns = time;
    msg.progress.submissions = time / NS_PER_MS;
    msg.progress.flags = time / NS_PER_S % 2 ? 0 : GS_PROGRESS_ACTIVE;
    obey(i, &attachment->job);
    say(i, &msg, PROGRESS);
  }
}

static void pass(uint64_t ns) {
  for (uint64_t end_ns = now_ns + ns; now_ns < end_ns; now_ns += STEP_NS) {
    tell_progress(now_ns);
    for (int i = 0; i < 100 && daemon_deadline_ns(&it) <= now_ns; i++) {
      begun_ns = thread_ns();
      daemon_on_time(&it, now_ns);
      end_event(TIME);
      go_on();
    }
  }
}

static void come(int i, uid_t uid) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0) {
    perror("bench_orders: socketpair");
    exit(EXIT_FAILURE);
  }
  peers[i] = (struct peer){
      .fd = fds[0], .uid = uid, .pid = i + 1, .pidfd = -1, .tokens = 1, .user = users_find(&users, uid)};
  user_charge(peers[i].user, USER_CONNECTIONS, 1);
  ends[i] = fds[1];
}

static void go(int i) {
  peers[i].closed = true;
  begun_ns = thread_ns();
  while (!daemon_on_gone(&it, &peers[i], now_ns))
    ;
  end_event(GONE);
  user_release(peers[i].user, USER_CONNECTIONS, 1);
  peers[i].user = NULL;
  close(peers[i].fd);
  close(ends[i]);
  go_on();
}

static void attach(int i, enum gs_class class, uint64_t bytes) {
  struct gs_msg msg = wire_msg(GS_REGISTER, 0);
  come(i, 100);
  daemon_on_message(&it, &peers[i], &msg, now_ns);
  msg = wire_msg(GS_DECLARE, 0);
  msg.declare.class = class;
  daemon_on_message(&it, &peers[i], &msg, now_ns);
  msg = wire_msg(GS_ATTACH, 0);
  msg.attach.uuid[0] = 1;
  msg.attach.total_bytes = CARD;
  msg.attach.used_bytes = bytes;
  say(i, &msg, ATTACH);
}

static void set(enum gs_msg_type type, uint64_t value, enum kind kind) {
  struct gs_msg msg = wire_msg(type, GS_GPU_ALL);
  msg.set.value = value;
  say(PERSON, &msg, kind);
}

static void ask_for(int i, uint64_t bytes) {
  struct gs_msg msg = wire_msg(GS_MEM_REQUEST, 0);
  msg.mem.total_bytes = bytes;
  say(i, &msg, MEMORY);
}

static void set_class(int i, enum gs_class class) {
  struct gs_msg msg = wire_msg(GS_DECLARE, 0);
  msg.declare.class = class;
  say(i, &msg, CLASS);
}

/* A crowd of that class, of which so many are production jobs. Limits are found while one job is of the other
 * class. */
struct crowd {
  const char *name;
  enum gs_class class;
  int production;
};

static void play(const struct crowd *crowd) {
  enum gs_class class = crowd->class;
  daemon_init(&it, now_ns = NS_PER_S);
  users_init(&users, 100000);
  users_bound_clients(&users, CROWD);
  come(PERSON, 0);
  for (int i = 0; i < CROWD; i++)
    attach(i, i < crowd->production ? GS_CLASS_PRODUCTION : class, MIB);
  for (int time = 0; time < 3; time++) {
    ask_for(0, CARD); /* turns begin */
    pass(NS_PER_S);
    ask_for(0, MIB); /* and end */
    pass(NS_PER_S);
    set(GS_SET_MODE, GS_MODE_ON, MODE);
    pass(NS_PER_S);
    set(GS_SET_MODE, GS_MODE_AUTO, MODE);
    pass(NS_PER_S);
    set(GS_SET_CAPACITY, CARD / 2, CAPACITY);
    set(GS_SET_CAPACITY, CARD, CAPACITY);
    pass(NS_PER_S);
    obey(0, &peers[0].attachments[0]->job);
    set_class(0, class == GS_CLASS_PRODUCTION ? GS_CLASS_OPPORTUNISTIC : GS_CLASS_PRODUCTION);
    pass(5 * NS_PER_S); /* until a limit has been found */
    set_class(0, class);
    pass(NS_PER_S);
    go(1); /* and another one comes that does not fit */
    attach(1, class, CARD);
    go(1);
    attach(1, class, MIB);
  }
  for (int i = 0; i <= CROWD; i++)
    go(i);
  daemon_end(&it);
  users_end(&users);
}

static void measure(const struct crowd *crowd) {
  const char *name = crowd->name;
  uint64_t most_ns[KINDS] = {0}, worst_ns = 0;
  memset(costs_ns, 0, sizeof costs_ns);
  for (uint64_t time = 0; time < times; time++) {
    events = 0;
    play(crowd);
  }
  for (unsigned i = 0; i < events; i++)
    most_ns[kinds[i]] = costs_ns[i] > most_ns[kinds[i]] ? costs_ns[i] : most_ns[kinds[i]];
  for (int kind = 0; kind < KINDS; kind++) {
    report(report_name("orders_%s_%s_us", name, kind_names[kind]), (double)most_ns[kind] / 1000, "us");
    worst_ns = most_ns[kind] > worst_ns ? most_ns[kind] : worst_ns;
  }
  report_verdict(report_name("orders_worst_%s_ms", name), (double)worst_ns / NS_PER_MS,
                 (double)WORST_NS / NS_PER_MS, worst_ns <= WORST_NS, true);
}

static const struct crowd crowds[] = {{"standard", GS_CLASS_STANDARD, 0},
                                      {"opportunistic", GS_CLASS_OPPORTUNISTIC, 0},
                                      {"production", GS_CLASS_PRODUCTION, CROWD},
                                      {"watched", GS_CLASS_OPPORTUNISTIC, RATE_WATCHED_MOST - 1}};

static const struct argument known[] = {{"times", .number = &times, .least = 1, .most = 1000}, {0}};

int main(int argc, char **argv) {
  struct rlimit limit;
  daemon_keep_heap();
  played_sent = send_it;
  arguments_read(argc, argv, "usage: bench_orders [--json] [--times N]\n", known);
  log_setup("bench_orders", LOG_LEVEL_ERROR);
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  report_begin();
  for (unsigned i = 0; i < sizeof crowds / sizeof *crowds; i++)
    measure(&crowds[i]);
  report_end();
  return EXIT_SUCCESS;
}
