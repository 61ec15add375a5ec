/* test_usage.c - accounts of GPUs: what jobs have had, in spans, with users and time that are played. */
#include <errno.h>
#include <string.h>

#include "common/clock.h"
#include "common/wire.h"
#include "played_daemon.h"
#include "server/usage.h"
#include "suite.h"

#define PEERS 300
#define MIB (UINT64_C(1) << 20)
#define CARD (UINT64_C(1) << 40)

static struct peer peers[PEERS];

static void say(int i, enum gs_msg_type type) {
  struct gs_msg msg = wire_msg(type, 0);
  if (peers[i].attachments[0])
    msg.epoch = peers[i].attachments[0]->job.epoch;
  played_say(&peers[i], &msg);
}

static void come(int i, uid_t uid, uint8_t card) {
  struct gs_msg attach = wire_msg(GS_ATTACH, 0);
  played_come(&peers[i], uid, 1000 + i);
  attach.attach.uuid[0] = card;
  attach.attach.total_bytes = CARD;
  attach.attach.used_bytes = attach.attach.resident_bytes = MIB;
  say(i, GS_REGISTER);
  played_say(&peers[i], &attach);
  ck_assert_ptr_nonnull(peers[i].attachments[0]);
}

static void run(int i) {
  say(i, GS_REQ_LOCK);
  say(i, GS_LOCK_ACTIVE);
}

/* Time passes as the daemon's loop has it: it wakes when it wants to. */
static void pass(uint64_t ns) {
  uint64_t end_ns = now_ns + ns;
  while (now_ns < end_ns) {
    uint64_t next_ns = daemon_deadline_ns(&it);
    now_ns = next_ns <= now_ns ? now_ns + 1 : next_ns < end_ns ? next_ns : end_ns;
    daemon_on_time(&it, now_ns);
  }
}

static size_t spans(void) { return it.usage.count; }

/* Of all spans of the job. */
struct sum {
  unsigned spans;
  uint64_t held_ns, waited_ns, energy_mj, since_ns, until_ns;
};

static struct sum sum_of(uint32_t job) {
  struct sum sum = {.since_ns = UINT64_MAX};
  const struct record_entry *entry = record_next(&it.usage, 0);
  for (; entry; entry = record_next(&it.usage, entry->msg.event.seq + 1)) {
    const struct gs_msg *msg = &entry->msg;
    if (msg->event.job != job)
      continue;
    ck_assert_int_eq(msg->event.kind, GS_EVENT_USAGE);
    if (sum.spans++)
      ck_assert_uint_eq(msg->event.usage.since_ns, sum.until_ns); /* no gap, and nothing twice */
    else
      sum.since_ns = msg->event.usage.since_ns;
    sum.until_ns = msg->event.at_ns;
    sum.held_ns += msg->event.usage.held_ns;
    sum.waited_ns += msg->event.usage.waited_ns;
    sum.energy_mj += msg->energy_mj;
  }
  return sum;
}

static void set_up(void) {
  played_begin(peers, PEERS);
  scheduler_set_mode(&it.scheduler, NULL, GS_MODE_ON, now_ns, &it.actions);
}

static void tear_down(void) { played_end(); }

TEST(what_a_job_has_had_is_kept_as_it_ends) {
  come(0, 7, 1);
  uint32_t job = peers[0].job_id;
  pass(NS_PER_S);
  run(0);
  pass(5 * NS_PER_S);
  ck_assert_uint_eq(spans(), 0);
  played_go(&peers[0]);
  ck_assert_uint_eq(spans(), 1);
  const struct gs_msg *span = &record_next(&it.usage, 0)->msg;
  ck_assert_uint_eq(span->event.job, job);
  ck_assert_uint_eq(span->event.uid, 7);
  ck_assert_uint_ge(span->event.usage.held_ns, 5 * NS_PER_S);
  ck_assert_uint_lt(span->event.usage.held_ns, 6 * NS_PER_S);
  ck_assert_uint_ge(span->event.at_ns - span->event.usage.since_ns, 6 * NS_PER_S);
}

/* NVML tells so of the card. */
static void tell_energy(uint8_t card, uint64_t used_mj) {
  struct card_readings *readings = &it.card_query.readings;
  readings->at_ns = now_ns;
  readings->until_ns = UINT64_MAX;
  readings->count = 1;
  readings->list[0] =
      (struct card_reading){.uuid = {card}, .does = {.known = NVML_ENERGY, .energy_mj = used_mj}};
  usage_on_readings(&it, now_ns);
  usage_on_readings(&it, now_ns + 1); /* it is the same reading */
}

/* 100 W, of which one that holds the GPU has all. */
TEST(energy_falls_to_the_job_that_holds_the_gpu) {
  come(0, 7, 1);
  come(1, 8, 1);
  run(0);
  tell_energy(1, 5000000);
  pass(10 * NS_PER_S);
  tell_energy(1, 6000000);
  pass(300 * NS_PER_S);
  uint64_t used_mj = peers[0].attachments[0]->counted.energy_mj;
  ck_assert_uint_ge(used_mj, 239 * UINT64_C(100000));
  ck_assert_uint_le(used_mj, 311 * UINT64_C(100000));
  ck_assert_uint_eq(peers[0].user->energy_mj, used_mj);
  ck_assert_uint_eq(peers[1].user->energy_mj, 0);
  tell_energy(1, 1000); /* another driver counts from 0: its power is not known yet */
  pass(300 * NS_PER_S);
  ck_assert_uint_eq(peers[0].attachments[0]->counted.energy_mj - used_mj, 0);
}

TEST(spans_have_the_energy_of_their_job) {
  come(0, 7, 1);
  come(1, 7, 1);
  uint32_t job = peers[0].job_id;
  run(0);
  tell_energy(1, 5000000);
  pass(10 * NS_PER_S);
  tell_energy(1, 6000000);
  pass(1000 * NS_PER_S);
  struct user *user = peers[0].user;
  played_go(&peers[0]);
  struct sum sum = sum_of(job);
  ck_assert_uint_ge(sum.spans, 3);
  ck_assert_uint_ge(sum.energy_mj, 999 * UINT64_C(100000));
  ck_assert_uint_eq(sum.energy_mj, user->energy_mj);
}

TEST(energy_is_shared_out_among_jobs_that_hold_the_gpu_together) {
  scheduler_set_mode(&it.scheduler, NULL, GS_MODE_OFF, now_ns, &it.actions);
  for (int i = 0; i < 4; i++) {
    come(i, 7, 1);
    run(i);
  }
  tell_energy(1, 0);
  pass(100 * NS_PER_S);
  tell_energy(1, 100 * 100000);
  uint64_t before_mj = peers[0].user->energy_mj;
  pass(600 * NS_PER_S);
  uint64_t used_mj = peers[0].user->energy_mj - before_mj;
  ck_assert_uint_ge(used_mj, 500 * UINT64_C(100000));
  ck_assert_uint_le(used_mj, 700 * UINT64_C(100000));
}

TEST(a_job_that_has_had_nothing_has_no_account) {
  come(0, 7, 1);
  pass(NS_PER_S);
  played_go(&peers[0]);
  ck_assert_uint_eq(spans(), 0);
}

/* So a daemon that is killed has lost no more than the last of it. */
TEST(a_job_that_stays_has_spans_meanwhile) {
  come(0, 7, 1);
  uint32_t job = peers[0].job_id;
  run(0);
  pass(150 * NS_PER_S);
  struct sum sum = sum_of(job);
  ck_assert_uint_ge(sum.spans, 2);
  ck_assert_uint_ge(sum.held_ns, 119 * NS_PER_S);
  pass(3600 * NS_PER_S);
  sum = sum_of(job);
  ck_assert_uint_le(sum.spans, 8 + 18 + 2); /* of a minute, then each an eighth longer */
  ck_assert_uint_ge(sum.held_ns, (3750 * 8 / 9 - 120) * NS_PER_S);
  pass(30 * 24 * 3600 * NS_PER_S);
  sum = sum_of(job);
  ck_assert_uint_le(sum.spans, 30 * 24 + 50);
  ck_assert_uint_ge(sum.held_ns, (30 * 24 * 3600 - 60) * NS_PER_S);
  uint64_t last_ns = now_ns;
  played_go(&peers[0]);
  sum = sum_of(job);
  ck_assert_uint_eq(sum.until_ns, last_ns);
  ck_assert_uint_le(sum.since_ns + sum.held_ns, last_ns);
  ck_assert_uint_ge(sum.since_ns + sum.held_ns, last_ns - NS_PER_S);
}

TEST(waiting_is_counted) {
  come(0, 7, 1);
  come(1, 8, 1);
  uint32_t job = peers[1].job_id;
  scheduler_set_tq(&it.scheduler, NULL, 3600 * NS_PER_S, now_ns, &it.actions);
  run(0);
  say(1, GS_REQ_LOCK);
  pass(100 * NS_PER_S);
  ck_assert_uint_ge(peers[1].user->waited_ns, 39 * NS_PER_S); /* for the metrics, to the minute */
  ck_assert_uint_ge(peers[0].user->held_ns, 39 * NS_PER_S);
  ck_assert_uint_eq(peers[1].user->held_ns, 0);
  played_go(&peers[1]);
  struct sum sum = sum_of(job);
  ck_assert_uint_ge(sum.waited_ns, 99 * NS_PER_S);
  ck_assert_uint_le(sum.waited_ns, 101 * NS_PER_S);
  ck_assert_uint_eq(sum.held_ns, 0);
}

/* However many there are, and whoever leaves meanwhile. */
TEST(all_jobs_have_spans) {
  uint32_t jobs[PEERS];
  for (int i = 0; i < PEERS; i++) {
    come(i, 7 + (uid_t)i % 3, (uint8_t)(1 + i % 4));
    jobs[i] = peers[i].job_id;
    say(i, GS_REQ_LOCK);
  }
  pass(61 * NS_PER_S);
  for (int i = 0; i < PEERS; i += 7)
    played_go(&peers[i]);
  pass(61 * NS_PER_S);
  for (int i = 0; i < PEERS; i++) {
    struct sum sum = sum_of(jobs[i]);
    ck_assert_msg(sum.held_ns + sum.waited_ns >= 59 * NS_PER_S, "job %u: %lu of %u spans", jobs[i],
                  sum.held_ns + sum.waited_ns, sum.spans);
  }
}

TEST(the_daemons_end_ends_all_spans) {
  come(0, 7, 1);
  uint32_t job = peers[0].job_id;
  run(0);
  pass(5 * NS_PER_S);
  usage_end(&it, now_ns);
  ck_assert_uint_ge(sum_of(job).held_ns, 4 * NS_PER_S);
  played_go(&peers[0]);
  ck_assert_uint_lt(sum_of(job).held_ns, 6 * NS_PER_S);
}

/* A reader of accounts, who is as slow as one likes: what it has had of each job, by number. */
static struct reader {
  uint64_t next_seq;
  struct usage_place place;
  struct sum sums[2 * PEERS];
} reader;

static void take(const struct gs_msg *span) {
  struct sum *sum = &reader.sums[span->event.job];
  if (sum->spans++)
    ck_assert_uint_eq(span->event.usage.since_ns, sum->until_ns); /* no gap, and nothing twice */
  else
    sum->since_ns = span->event.usage.since_ns;
  sum->until_ns = span->event.at_ns;
  sum->held_ns += span->event.usage.held_ns;
  sum->waited_ns += span->event.usage.waited_ns;
  sum->energy_mj += span->energy_mj;
}

/* False: it has had all. */
static bool read_on(void) {
  struct gs_msg span;
  const struct record_entry *entry;
  while ((entry = record_next(&it.usage, reader.next_seq))) {
    reader.next_seq = entry->msg.event.seq + 1;
    if (!usage_is_told(&reader.place, &entry->msg))
      take(&entry->msg);
  }
  int told = usage_tell_next(&it, &reader.place, now_ns, &span);
  if (told > 0)
    take(&span);
  return told != -ENODATA;
}

TEST(a_span_that_goes_on_is_told_up_to_now) {
  come(0, 7, 1);
  come(1, 8, 1);
  uint32_t job = peers[0].job_id, waiting = peers[1].job_id;
  run(0);
  say(1, GS_REQ_LOCK);
  tell_energy(1, 5000000);
  pass(10 * NS_PER_S);
  tell_energy(1, 6000000);
  pass(5 * NS_PER_S);
  uint64_t held_ns = peers[0].user->held_ns, energy_mj = peers[0].user->energy_mj;
  reader = (struct reader){0};
  while (read_on())
    ;
  ck_assert_uint_eq(reader.sums[job].spans, 1);
  ck_assert_uint_eq(reader.sums[job].until_ns, now_ns);
  ck_assert_uint_ge(reader.sums[job].held_ns, 14 * NS_PER_S);
  ck_assert_uint_ge(reader.sums[job].energy_mj, 1400000);
  ck_assert_uint_ge(reader.sums[waiting].waited_ns, 14 * NS_PER_S);
  ck_assert_uint_eq(spans(), 0); /* nothing is written down, and nobody is told of it otherwise */
  ck_assert_uint_eq(peers[0].user->held_ns, held_ns);
  ck_assert_uint_eq(peers[0].user->energy_mj, energy_mj);
  pass(5 * NS_PER_S);
  played_go(&peers[0]);
  ck_assert_uint_eq(sum_of(job).spans, 1);
  ck_assert_uint_ge(sum_of(job).held_ns, 19 * NS_PER_S);
  ck_assert_uint_lt(sum_of(job).held_ns, 21 * NS_PER_S);
}

/* Spans end, jobs come and leave, and some are on several GPUs, while it reads. */
TEST(a_slow_reader_misses_nothing_and_has_nothing_twice) {
  uint32_t jobs[PEERS];
  uint64_t came_ns[PEERS], gone_ns[PEERS] = {0}, begin_ns;
  for (int i = 0; i < PEERS / 2; i++) {
    came_ns[i] = now_ns;
    come(i, 7, (uint8_t)(1 + i % 4));
    jobs[i] = peers[i].job_id;
    say(i, GS_REQ_LOCK);
  }
  pass(50 * NS_PER_S);
  reader = (struct reader){0};
  begin_ns = now_ns;
  for (int i = 0; read_on(); i++) {
    pass(i % 3 * NS_PER_S / 2);
    if (i % 5 == 0 && i < PEERS / 2) {
      int leaves = i * 37 % (PEERS / 2), comes = PEERS / 2 + i / 5;
      gone_ns[leaves] = now_ns;
      played_go(&peers[leaves]);
      come(comes, 7, 2);
      say(comes, GS_REQ_LOCK);
    }
  }
  for (int i = 0; i < PEERS / 2; i++) {
    const struct sum *sum = &reader.sums[jobs[i]];
    ck_assert_uint_ge(sum->spans, 1);
    ck_assert_uint_ge(came_ns[i] + NS_PER_MS, sum->since_ns);
    ck_assert_msg(sum->until_ns >= begin_ns || sum->until_ns == gone_ns[i], "job %u: until %lu of %lu",
                  jobs[i], sum->until_ns, begin_ns);
    ck_assert_uint_ge(sum->held_ns + sum->waited_ns + NS_PER_MS, sum->until_ns - sum->since_ns);
  }
}

/* Each of its GPUs, whatever the client calls them. */
TEST(a_reader_has_all_gpus_of_a_job) {
  struct gs_msg attach = wire_msg(GS_ATTACH, 5);
  come(1, 7, 1);
  come(0, 7, 2); /* the second card that is known */
  attach.attach.uuid[0] = 1;
  attach.attach.total_bytes = CARD;
  attach.attach.used_bytes = attach.attach.resident_bytes = MIB;
  played_say(&peers[0], &attach);
  uint32_t job = peers[0].job_id;
  run(0);
  struct gs_msg ask = wire_msg(GS_REQ_LOCK, 5);
  ask.epoch = peers[0].attachments[5]->job.epoch;
  played_say(&peers[0], &ask);
  pass(5 * NS_PER_S);
  struct usage_place place = {0};
  struct gs_msg span;
  uint64_t held_ns = 0;
  unsigned told = 0, gpus = 0;
  for (int one; (one = usage_tell_next(&it, &place, now_ns, &span)) != -ENODATA;) {
    if (one == 0)
      continue;
    ck_assert_uint_eq(span.event.job, job); /* the other one has had nothing */
    ck_assert(usage_is_told(&place, &span));
    gpus |= 1u << span.gpu;
    held_ns += span.event.usage.held_ns;
    told++;
  }
  ck_assert_uint_eq(told, 2);
  ck_assert_uint_eq(gpus, 3);
  ck_assert_uint_ge(held_ns, 9 * NS_PER_S);
}

/* One user's spans displace none of another's. */
TEST(accounts_are_bounded_fairly) {
  come(0, 7, 1);
  uint32_t job = peers[0].job_id;
  run(0);
  pass(NS_PER_S);
  played_go(&peers[0]);
  for (unsigned i = 0; i < DAEMON_USAGE + 10; i++) {
    struct gs_msg msg = wire_msg(GS_EVENT, 0);
    msg.event.kind = GS_EVENT_USAGE;
    msg.event.job = 1000;
    msg.event.uid = 8;
    msg.event.at_ns = now_ns;
    record_add(&it.usage, &msg);
  }
  ck_assert_uint_eq(it.usage.count, DAEMON_USAGE);
  ck_assert_uint_eq(sum_of(job).spans, 1);
}

int main(void) { return suite_run_all("usage", set_up, tear_down); }
