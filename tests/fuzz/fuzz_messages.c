/*
 * fuzz_messages.c - bytes as the messages of several clients: through wire_check and the daemon's handling
 * into the scheduler, its invariants checked after each.
 *
 * Input: records of one byte and one message. The byte says who sends it (bits 0-2) and what happens: bit 3,
 * the header is made right first, so that mutations get past it; bits 4-5, how much time passes; bit 6, the
 * sender may change settings; bit 7, the sender's connection ends afterwards.
 *
 * Built with -fsanitize=fuzzer this is a libFuzzer target. Otherwise it has a main:
 *   fuzz_messages FILE...              replays files
 *   fuzz_messages --random SEED RUNS   random messages, mostly sensible ones; the seed of a failure is
 * printed fuzz_messages --corpus FOLDER      writes a small corpus to start fuzzing from
 *
 * fuzz_cost is the same for 2,048 clients of several users, compiled with -fsanitize-coverage=trace-pc: see
 * its part below.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/splitmix.h"
#include "common/wire.h"
#include "fuzz_files.h"
#include "server/daemon.h"

#ifdef GS_COST
#define PEERS 2048
#define USERS 8
#define CLIENTS_PER_USER PEERS
#define IS_COUNTED true /* nothing is done here that would be */
#define ORDERS_PER_TURN 64
#else
#define PEERS 8
#define USERS 2
#define CLIENTS_PER_USER 3
#define IS_COUNTED false
#define ORDERS_PER_TURN 1 /* most are told late */
#endif
#define RECORD (1 + GS_MSG_SIZE)

struct world {
  struct daemon daemon;
  struct users users;
  struct peer peers[PEERS];
  bool connected[PEERS];
  bool permitted;
  uint64_t now_ns;
};

static struct world world;

static void require(bool right, const char *what) {
  if (right)
    return;
  fprintf(stderr, "broken: %s\n", what);
  abort();
}

/* ---- the socket side, as peer.h wants it ---- */

static uint64_t sends;

/* It is told late, and still true. */
static void check_turn(const struct peer *peer, const struct gs_msg *msg) {
  const struct sched_job *job = &peer->attachments[msg->gpu]->job;
  bool stops = job->state == GS_JOB_DROPPING || job->state == GS_JOB_BYPASSED;
  require(msg->epoch == job->epoch, "a word about another turn");
  require(stops || (msg->type == GS_LOCK_OK && job->state == GS_JOB_HOLDING),
          "a word about a turn that is over");
}

static void check_sent(const struct peer *peer, const struct gs_msg *msg) {
  struct gs_msg copy = *msg;
  if (peer->closed || IS_COUNTED)
    return;
  require(wire_check(&copy, sizeof copy) == 0, "the daemon sends what it would not take");
  require(msg->gpu < GS_GPUS_PER_CLIENT || msg->gpu == GS_GPU_ALL, "a message about no GPU");
  if (msg->type == GS_LOCK_OK || msg->type == GS_DROP_LOCK)
    check_turn(peer, msg);
}

void peer_set_ready(struct peer *peer) { (void)peer; }
bool peer_is_behind(const struct peer *peer) { return !peer; }
void peer_send(struct peer *peer, const struct gs_msg *msg) {
  sends++;
  check_sent(peer, msg);
}

void peer_send_passing(struct peer *peer, const struct gs_msg *msg, int passed) {
  require(passed >= 0, "no descriptor goes along");
  peer_send(peer, msg);
}

void peer_send_status(struct peer *peer, uint32_t details) {
  (void)details;
  size_t count;
  struct gs_msg *msgs = status_collect(&world.daemon, world.now_ns, &count);
  require(msgs && count >= 2 && msgs[count - 1].type == GS_STATUS_END, "a status without an end");
  for (size_t i = 0; i < count; i++)
    check_sent(peer, &msgs[i]);
  free(msgs);
}

void peer_reload(struct peer *peer, bool only_looks) { (void)peer, (void)only_looks; }

/* What is kept is in order, and each of it could be sent. */
int peer_read(struct peer *peer, const struct record *record, uint64_t from_seq, uint64_t since_seq,
              bool follow) {
  uint64_t last_ns = 0, last_seq = 0;
  peer->closed |= follow && world.permitted;
  if (IS_COUNTED)
    return 0;
  require(from_seq >= 1 && from_seq <= record->next_seq, "events from nowhere");
  require(since_seq >= 1, "events that were displaced by none");
  for (const struct record_entry *entry; (entry = record_next(record, last_seq + 1));) {
    const struct gs_msg *event = &entry->msg;
    require(event->type == GS_EVENT && event->event.seq > last_seq, "not an event, or none of these");
    last_seq = event->event.seq;
    require(event->event.at_ns >= last_ns, "events in disorder");
    last_ns = event->event.at_ns;
    struct gs_msg copy = *event;
    require(wire_check(&copy, sizeof copy) == 0, "an event that nobody would take");
  }
  return 0;
}

void peer_close(struct peer *peer, const char *why) {
  require(*why, "a connection ends without a reason");
  peer->closed = true;
}

void peer_settle(struct peer *peer, enum peer_role role) { peer->role = role; }

bool peer_is_stopped(const struct peer *peer) {
  (void)peer;
  return false;
}

void peer_read_name(pid_t pid, char name[GS_NAME_SIZE]) {
  (void)pid;
  strcpy(name, "fuzz");
}

struct origin peer_find_origin(const struct peer *peer) {
  return (struct origin){.kind = (enum gs_origin)(peer->job_id % (GS_ORIGIN_POD + 1)),
                         .name = {(char)('0' + peer->job_id % 3)}};
}

enum presence_verdict peer_check_presence(struct peer *peer, const struct gs_msg *attach) {
  (void)peer;
  return attach->attach.total_bytes % 64 == 63 ? PRESENCE_REFUSED : PRESENCE_ADMITTED;
}

bool peer_may_change(const struct peer *peer) {
  (void)peer;
  return world.permitted;
}

static void connect_peer(int i) {
  struct peer *peer = &world.peers[i];
  *peer = (struct peer){.uid = (uid_t)i % USERS, .pid = i + 1, .pidfd = -1, .tokens = 1};
  peer->user = users_find(&world.users, peer->uid);
  if (!peer->user || user_charge(peer->user, USER_CONNECTIONS, 1) < 0)
    abort();
  world.connected[i] = true;
}

static void end_peer(int i) {
  world.peers[i].closed = true;
  while (!daemon_on_gone(&world.daemon, &world.peers[i], world.now_ns))
    ;
  user_release(world.peers[i].user, USER_CONNECTIONS, 1);
  world.connected[i] = false;
}

static void bury_closed(void) {
  for (int i = 0; i < PEERS; i++)
    if (world.connected[i] && world.peers[i].closed)
      end_peer(i);
}

/* ---- invariants ---- */

static bool must_be_waited_for(const struct sched_gpu *gpu) {
  return !list_empty(&gpu->dropping) || !list_empty(&gpu->overdue);
}

/* For what its user's silence has cost others: not for ever. */
static bool is_barred(const struct sched_job *job) {
  bool barred =
      job->share && sched_share_is_shunned(job->share) && job->gpu->job_count > job->share->job_count;
  require(!barred || job->gpu->deadline_ns != SCHED_NEVER, "somebody is barred for ever");
  return barred;
}

static void check_gpu(const struct sched_gpu *gpu) {
  uint64_t used_bytes = 0, resident_bytes = 0, claim_bytes = 0, reach_bytes = 0;
  uint32_t holding = 0, waiting = 0, jobs = 0;
  bool claimed = false; /* for a gang whose other GPUs are yet to be had */
  list_each(node, &gpu->jobs) {
    const struct sched_job *job = list_entry(node, struct sched_job, link);
    used_bytes += job->used_bytes;
    resident_bytes += job->resident_bytes;
    claim_bytes += job->claim_bytes;
    reach_bytes += job->reach_bytes;
    holding += job->state == GS_JOB_HOLDING;
    waiting += job->state == GS_JOB_WAITING && !sched_job_too_big(job) && !job->gang && !is_barred(job);
    claimed |= job->gang && job->gang->claims;
    jobs++;
    require(job->room_seq > 0 && job->room_bytes <= job->reach_bytes, "an impossible room");
    require((job->todo != 0) == !list_empty(&job->todo_link), "a decision is not on its way");
    require(job->terms.weight >= 1 && job->terms.weight <= SCHED_WEIGHT_MAX &&
                job->terms.priority >= -SCHED_PRIORITY_MAX && job->terms.priority <= SCHED_PRIORITY_MAX &&
                job->terms.class <= GS_CLASS_OPPORTUNISTIC,
            "impossible terms");
    require(job->resident_bytes <= job->used_bytes && job->pinned_bytes <= job->used_bytes,
            "impossible sizes");
  }
  require(used_bytes == gpu->used_bytes && jobs == gpu->job_count, "a sum is wrong");
  require(resident_bytes == gpu->resident_bytes && claim_bytes == gpu->claim_bytes &&
              reach_bytes == gpu->reach_bytes,
          "a sum is wrong");
  require(holding == gpu->holder_count, "a count is wrong");
  require(!gpu->serialized || gpu->settings.mode != GS_MODE_ON || holding <= 1, "two hold");
  require(!gpu->serialized || holding > 0 || waiting == 0 || must_be_waited_for(gpu) || claimed,
          "somebody waits for nothing");
  require(gpu->serialized || gpu->waiting_count == 0, "somebody waits without turns");
}

/* A gang keeps GPUs from others only until those have stopped that are in its way on the rest. */
static void check_gang(const struct gang *gang) {
  bool waits = false, stopping = false;
  uint32_t jobs = 0;
  list_each(node, &gang->sched.members) {
    const struct sched_job *job = list_entry(node, struct sched_job, gang_link);
    waits |= job->state == GS_JOB_WAITING;
    stopping |= must_be_waited_for(job->gpu);
    jobs++;
  }
  require(jobs == gang->jobs && jobs > 0, "a gang without its jobs");
  require(!gang->sched.claims || !waits || stopping, "a gang claims what it could have");
}

/* Each user is charged for what it has, and for nothing else. */
static void check_accounts(void) {
  uint64_t connections = 0, clients = 0, attachments = 0;
  for (int i = 0; i < PEERS; i++) {
    connections += world.connected[i];
    clients += world.connected[i] && world.peers[i].role == PEER_CLIENT;
    for (int gpu = 0; world.connected[i] && gpu < GS_GPUS_PER_CLIENT; gpu++)
      attachments += world.peers[i].attachments[gpu] != NULL;
  }
  const uint64_t *used = world.users.used;
  require(used[USER_CONNECTIONS] == connections && used[USER_CLIENTS] == clients &&
              used[USER_ATTACHMENTS] == attachments && used[USER_DESCRIPTORS] == 0,
          "an account is wrong");
  require((used[USER_BYTES] > 0) == (attachments > 0), "bytes of nobody, or attachments for nothing");
}

/* One event looks at some of the GPUs that are due, and some jobs are told: the loop comes back at once for
 * the others. */
static void do_what_is_due(void) {
  actions_tell_some(&world.daemon, ORDERS_PER_TURN, world.now_ns);
  for (unsigned i = 0; i < 1000 && daemon_deadline_ns(&world.daemon) < world.now_ns; i++)
    daemon_on_time(&world.daemon, world.now_ns);
}

static void check(void) {
  do_what_is_due();
  for (size_t i = 0; i < GANG_BUCKETS; i++)
    list_each(node, &world.daemon.gangs.buckets[i]) { check_gang(list_entry(node, struct gang, link)); }
  check_accounts();
  list_each(node, &world.daemon.scheduler.gpus) { check_gpu(list_entry(node, struct sched_gpu, link)); }
  require(daemon_deadline_ns(&world.daemon) >= world.now_ns, "a deadline was missed");
}

/* ---- one input ---- */

/* A status is made all the time, in the smallest slices: jobs come and go meanwhile. */
static void go_on_with_status(void) {
  size_t count;
  if (!status_go_on(&world.daemon, world.now_ns, 0))
    return;
  struct gs_msg *msgs = status_take(&world.daemon, &count);
  require(!msgs || (count >= 2 && msgs[0].type == GS_STATUS_DAEMON && msgs[count - 1].type == GS_STATUS_END),
          "a status without a beginning, or an end");
  free(msgs);
  status_begin(&world.daemon, world.now_ns);
}

static void begin(void) {
  memset(&world, 0, sizeof world);
  world.now_ns = NS_PER_S;
  log_setup("fuzz", LOG_LEVEL_ERROR);
  daemon_init(&world.daemon, world.now_ns);
  world.daemon.scheduler.deferred = true;
  if (!IS_COUNTED)
    world.daemon.actions_per_event = 1;
  users_init(&world.users, 4 * PEERS + 1024);
  users_bound_clients(&world.users, CLIENTS_PER_USER);
}

static void end(void) {
  for (int i = 0; i < PEERS; i++)
    if (world.connected[i])
      end_peer(i);
  require(world.daemon.gangs.count == 0, "a gang is left over");
  require(users_are_clear(&world.users) && world.daemon.client_count == 0, "a client is left over");
  require(scheduler_overflow_bytes(&world.daemon.scheduler) == 0, "memory of nobody");
  daemon_end(&world.daemon);
  users_end(&world.users);
}

static void pass_time(unsigned choice) {
  static const uint64_t steps_ns[] = {0, NS_PER_MS, NS_PER_S, 40 * NS_PER_S};
  world.now_ns += steps_ns[choice];
  daemon_on_time(&world.daemon, world.now_ns);
  bury_closed();
}

static void deliver(int i, struct gs_msg *msg) {
  int err = wire_check(msg, sizeof *msg);
  if (err < 0)
    daemon_on_bad_message(&world.daemon, &world.peers[i], err);
  else
    daemon_on_message(&world.daemon, &world.peers[i], msg, world.now_ns);
}

static void play(const uint8_t record[RECORD]) {
  struct gs_msg msg;
  int i = record[0] & 7;
  memcpy(&msg, record + 1, sizeof msg);
  if (record[0] & 8) {
    msg.magic = GS_MAGIC;
    msg.version = GS_PROTOCOL_VERSION;
  }
  if (record[0] >> 4 & 3) { /* else one plan for this message and the one before */
    pass_time(record[0] >> 4 & 3);
    check();
  }
  world.permitted = record[0] & 64;
  if (!world.connected[i])
    connect_peer(i);
  go_on_with_status();
  deliver(i, &msg);
  if (record[0] & 128)
    world.peers[i].closed = true;
  bury_closed();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  begin();
  for (; size >= RECORD; data += RECORD, size -= RECORD)
    play(data);
  end();
  return 0;
}

#ifndef GS_LIBFUZZER

/* ---- without libFuzzer ---- */

#define RECORDS 400
#define UNIT (UINT64_C(1) << 22)

static uint64_t random_state;

static uint64_t random_bits(void) { return splitmix_next(&random_state); }

static unsigned random_below(unsigned bound) { return (unsigned)(random_bits() % bound); }

static void randomize(void *bytes, size_t size) {
  for (size_t i = 0; i < size; i++)
    ((uint8_t *)bytes)[i] = (uint8_t)random_bits();
}

/* A message that a client in this state might send, some of its fields random. */
static struct gs_msg sensible_msg(const struct peer *peer, bool connected) {
  static const enum gs_msg_type types[] = {
      GS_REQ_LOCK,     GS_LOCK_RELEASED, GS_LOCK_RELEASED, GS_LOCK_ACTIVE, GS_MEM_REQUEST, GS_MEM_REPORT,
      GS_CLIENT_STATE, GS_REQ_LOCK,      GS_RESIDENT,      GS_RESIDENT,    GS_RESIDENT,    GS_MEM_SHORT,
      GS_DECLARE,      GS_EXITING,       GS_COMMAND,       GS_PROGRESS,    GS_PROGRESS};
  uint32_t gpu = random_below(2);
  if (!connected || peer->role == PEER_FRESH)
    return wire_msg(random_below(8) ? GS_REGISTER : GS_GET_STATUS, 0);
  if (peer->role == PEER_CTL)
    return wire_msg((enum gs_msg_type)(GS_SET_TQ + random_below(9)), 0);
  if (!peer->attachments[gpu])
    return wire_msg(random_below(4) ? GS_ATTACH : GS_DECLARE, gpu);
  struct gs_msg msg = wire_msg(types[random_below(sizeof types / sizeof *types)], gpu);
  const struct sched_job *job = &peer->attachments[gpu]->job;
  msg.epoch = random_below(8) ? job->epoch : random_below(4);
  if (msg.type == GS_RESIDENT) {
    msg.resident.resident_bytes = random_below(2) ? job->room_bytes : random_below(1000) * UNIT;
    msg.resident.room_seq = job->room_seq - random_below(2);
  }
  return msg;
}

static bool is_setting(unsigned type) {
  return type == GS_SET_TQ || type == GS_SET_MODE || type == GS_SET_CAPACITY || type == GS_SET_POLICY;
}

static uint64_t unit_of(unsigned term) {
  if (term == GS_TERM_CLASS || term == GS_TERM_RATE || term == GS_TERM_PAUSED)
    return 1;
  return term >= GS_TERM_LIMIT ? 300 * UNIT : 7;
}

static void fill_in(struct gs_msg *msg) {
  if (msg->type == GS_ATTACH) {
    msg->attach.uuid[0] = (uint8_t)(1 + msg->gpu);
    msg->attach.total_bytes = 1000 * UNIT;
    msg->attach.used_bytes = random_below(800) * UNIT;
    msg->attach.resident_bytes = random_below(800) * UNIT;
    msg->attach.flags = random_below(4);
  } else if (msg->type == GS_MEM_REQUEST || msg->type == GS_MEM_REPORT) {
    msg->mem.total_bytes = random_below(1000) * UNIT;
    msg->mem.pinned_bytes = random_below(200) * UNIT;
    msg->mem.paging_bytes = random_below(400) * UNIT;
    msg->mem.kind_bytes[random_below(GS_PINNED_COUNT)] = random_bits();
  } else if (msg->type == GS_PROGRESS) {
    msg->progress.submissions = random_below(8) ? random_below(1000) : random_bits();
    msg->progress.active_ns = random_below(8) ? random_below(1000000000) : random_bits();
    msg->progress.flags = random_below(2);
  } else if (msg->type == GS_MEM_SHORT) {
    msg->mem_short.short_bytes = random_below(50) * UNIT;
  } else if (msg->type == GS_REGISTER) {
    msg->reg.command_hash = random_below(4);
  } else if (msg->type == GS_DECLARE) {
    msg->declare.gang[0] = "\0\0ab"[random_below(4)];
    msg->declare.weight = random_below(3) * SCHED_WEIGHT_MAX;
    msg->declare.priority = (int32_t)random_below(100) - 50;
    msg->declare.expected_ns = random_below(4) * NS_PER_S;
    msg->declare.limit_bytes = random_below(3) * 300 * UNIT;
    msg->declare.soft_limit_bytes = random_below(3) * 300 * UNIT;
    msg->declare.expected_bytes = random_below(3) * 300 * UNIT;
    msg->declare.class = (uint32_t)random_below(4);
  } else if (msg->type == GS_COMMAND) {
    randomize(msg->command.text, sizeof msg->command.text);
  } else if (msg->type == GS_GET_EVENTS) {
    msg->get_events.from_seq = random_below(2) ? random_below(500) : random_bits();
    msg->get_events.age_ns = random_below(3) * 20 * NS_PER_S;
    msg->get_events.record = random_below(3);
  } else if (msg->type == GS_SET_TERMS) {
    msg->set_terms.job = random_below(20);
    msg->set_terms.term = random_below(GS_TERM_COUNT + 1);
    msg->set_terms.value = random_below(4) * unit_of(msg->set_terms.term);
  } else if (msg->type == GS_ALLOT) {
    sprintf(msg->allot.pod, "%u", random_below(3));
    msg->allot.uuid[0] = (uint8_t)random_below(4);
    msg->allot.share = random_below(3);
    msg->allot.limit_bytes = random_below(3) * 300 * UNIT;
    msg->allot.weight = random_below(3) * SCHED_WEIGHT_MAX / 2;
    msg->allot.class = random_below(5);
  } else if (msg->type == GS_POD_NAME || msg->type == GS_POD_NAMESPACE) {
    sprintf(msg->pod.pod, "%u", random_below(3));
    randomize(msg->pod.text, sizeof msg->pod.text);
  } else if (msg->type == GS_EVICT) {
    msg->evict.job = random_below(20);
  } else if (msg->type == GS_GET_PROCESS) {
    msg->get_process.job = random_below(20);
  } else if (is_setting(msg->type)) {
    msg->set.value = random_below(7);
    if (msg->type == GS_SET_TQ)
      msg->set.value *= NS_PER_S;
    else if (msg->type == GS_SET_CAPACITY)
      msg->set.value *= 300 * UNIT;
  }
}

/* The next message of this one. */
static struct gs_msg make_msg(int i) {
  struct gs_msg msg = sensible_msg(&world.peers[i], world.connected[i]);
  fill_in(&msg);
  if (random_below(30) == 0)
    randomize((uint8_t *)&msg + 8 + random_below(100), 8);
  return msg;
}

#ifdef GS_COST

/* ---- what an event costs ---- */

/*
 * Cost: basic blocks of the daemon that an event runs through, which is the same on each machine. What is
 * measured is the most that any event of a kind has cost, with FEW clients and with MANY. An event may cost
 * in proportion to the clients, at most: twice as much as that fails, and so does one of more than
 * BLOCKS_MAX.
 */
#define FEW (PEERS / 8)
#define MANY PEERS
#define EVENTS 3000
#define BLOCKS_MAX 1000000 /* 1 to 3 ms, with the counting: a generous bound */
#define BLOCKS_FREE 50000  /* where there is nothing to complain of */
/* Of what concerns all jobs, an event tells some, and the loop the others: that costs far more than blocks.
 */
#define SENDS_MAX 64

/* Beside the types of messages. */
enum { KIND_GONE = 128, KIND_TIME, KIND_PLAN, KINDS };

static uint64_t blocks;

#ifdef __clang__
#define NOT_COUNTED __attribute__((no_sanitize("coverage")))
#else
#define NOT_COUNTED __attribute__((no_sanitize_coverage))
#endif

void __sanitizer_cov_trace_pc(void);
NOT_COUNTED void __sanitizer_cov_trace_pc(void) { blocks++; }

struct cost {
  uint64_t most_blocks, most_ns, most_sends, events;
};

static struct cost costs[2][KINDS];

static const char *kind_name(unsigned kind) {
  return kind == KIND_GONE   ? "(a connection ends)"
         : kind == KIND_TIME ? "(time passes)"
         : kind == KIND_PLAN ? "(a plan)"
                             : wire_type_name(kind);
}

/* The event is over that began at so many blocks. */
static void note_cost(struct cost *all, unsigned kind, uint64_t from_blocks, uint64_t from_ns) {
  struct cost *cost = &all[kind];
  uint64_t ns = clock_now_ns() - from_ns, passed = blocks - from_blocks;
  cost->most_blocks = passed > cost->most_blocks ? passed : cost->most_blocks;
  cost->most_ns = ns > cost->most_ns ? ns : cost->most_ns;
  cost->most_sends = sends > cost->most_sends ? sends : cost->most_sends;
  cost->events++;
}

static void plan_counted(struct cost *all) {
  if (!world.daemon.scheduler.dirty)
    return;
  uint64_t from_blocks = blocks, from_ns = clock_now_ns();
  sends = 0;
  daemon_plan(&world.daemon, 0);
  note_cost(all, KIND_PLAN, from_blocks, from_ns);
}

static void deliver_counted(struct cost *all, int i, struct gs_msg *msg) {
  if (!world.connected[i])
    connect_peer(i);
  uint64_t from_blocks = blocks, from_ns = clock_now_ns();
  sends = 0;
  deliver(i, msg);
  note_cost(all, msg->type < KIND_GONE ? msg->type : 0, from_blocks, from_ns);
  plan_counted(all);
}

static void end_counted(struct cost *all, int i) {
  uint64_t from_blocks = blocks, from_ns = clock_now_ns();
  sends = 0;
  end_peer(i);
  note_cost(all, KIND_GONE, from_blocks, from_ns);
  plan_counted(all);
}

static void pass_counted(struct cost *all, uint64_t ns) {
  world.now_ns += ns;
  uint64_t from_blocks = blocks, from_ns = clock_now_ns();
  sends = 0;
  daemon_on_time(&world.daemon, world.now_ns);
  note_cost(all, KIND_TIME, from_blocks, from_ns);
  do_what_is_due();
}

/* All register, and most of them attach and wait. The first one may change settings. */
static void gather(struct cost *all, int clients, enum gs_policy policy) {
  struct gs_msg msg = wire_msg(GS_SET_POLICY, GS_GPU_ALL);
  msg.set.value = policy;
  world.permitted = true;
  deliver_counted(all, 0, &msg);
  for (int i = 1; i < clients; i++) {
    static const enum gs_msg_type types[] = {GS_REGISTER, GS_DECLARE, GS_ATTACH, GS_REQ_LOCK};
    for (size_t step = 0; step < sizeof types / sizeof *types; step++) {
      msg = wire_msg(types[step], random_below(8) == 0);
      fill_in(&msg);
      deliver_counted(all, i, &msg);
    }
  }
}

static void play_crowd(struct cost *all, int clients, enum gs_policy policy) {
  begin();
  gather(all, clients, policy);
  for (int event = 0; event < EVENTS; event++) {
    int i = (int)random_below((unsigned)clients);
    struct gs_msg msg = make_msg(i);
    world.permitted = random_below(2);
    pass_counted(all, random_below(8) ? 0 : random_below(2) ? NS_PER_MS : NS_PER_S);
    deliver_counted(all, i, &msg);
    if (world.connected[i] && (world.peers[i].closed || random_below(50) == 0))
      end_counted(all, i);
  }
  check();
  end();
}

/* False: it costs too much. */
static bool judge(unsigned kind) {
  const struct cost *few = &costs[0][kind], *many = &costs[1][kind];
  uint64_t bound =
      2 * MANY / FEW * (few->most_blocks > BLOCKS_FREE / 16 ? few->most_blocks : BLOCKS_FREE / 16);
  bool right = many->most_blocks <= bound && many->most_blocks <= BLOCKS_MAX;
  right &= many->most_sends <= SENDS_MAX;
  printf("%-20s %8lu events; blocks at most: %9lu with %u clients, %9lu with %u; %5lu messages; %7.3f ms%s\n",
         kind_name(kind), few->events + many->events, few->most_blocks, FEW, many->most_blocks, MANY,
         many->most_sends, (double)many->most_ns / 1e6, right ? "" : "  TOO MUCH");
  return right;
}

int main(int argc, char **argv) {
  int result = EXIT_SUCCESS;
  random_state = argc == 3 && strcmp(argv[1], "--cost") == 0 ? strtoull(argv[2], NULL, 0) : 1;
  printf("seed %lu\n", random_state);
  for (enum gs_policy policy = GS_POLICY_RR; policy <= GS_POLICY_PACK; policy++) {
    play_crowd(costs[0], FEW, policy);
    play_crowd(costs[1], MANY, policy);
  }
  for (unsigned kind = 0; kind < KINDS; kind++)
    if (costs[1][kind].events && !judge(kind))
      result = EXIT_FAILURE;
  return result;
}

#else

static void make_record(uint8_t record[RECORD]) {
  record[0] = (uint8_t)(random_bits() & (random_below(20) ? 0x5f : 0xff));
  struct gs_msg msg = make_msg(record[0] & 7);
  if (random_below(100) == 0)
    randomize(&msg, 8);
  memcpy(record + 1, &msg, sizeof msg);
}

/* A random history, each record chosen by what the ones before have led to. */
static void random_history(uint8_t *data, unsigned records) {
  begin();
  for (unsigned i = 0; i < records; i++) {
    make_record(data + i * RECORD);
    play(data + i * RECORD);
  }
  end();
}

static uint8_t history[RECORDS * RECORD];

static int run_random(uint64_t seed, uint64_t runs) {
  for (uint64_t i = 0; i < runs; i++) {
    random_state = seed + i;
    fprintf(stderr, "\rseed %llu ", (unsigned long long)random_state);
    random_history(history, RECORDS);
    LLVMFuzzerTestOneInput(history, sizeof history); /* and again, as a fuzzer would */
    randomize(history, sizeof history);
    LLVMFuzzerTestOneInput(history, sizeof history);
  }
  fprintf(stderr, "\n");
  return EXIT_SUCCESS;
}

static int write_corpus(const char *folder) {
  for (unsigned i = 0; i < 32; i++) {
    random_state = i;
    random_history(history, 8 + i);
    if (fuzz_write(folder, "history", i, history, (8 + i) * RECORD) != EXIT_SUCCESS)
      return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

int main(int argc, char **argv) { return fuzz_main(argc, argv, run_random, write_corpus); }

#endif
#endif
