/*
 * test_meter.c - what a process counts in its meter page, and that it does so only while the page is there
 * and somebody reads it. The daemon is played by the test.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "fake_daemon.h"
#include "runner.h"
#include "scene.h"

#define MIB (UINT64_C(1) << 20)

static struct scene scene;
static struct fake_daemon fake;
static struct process *job;

static void pass_ms(uint64_t ms) {
  nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

static void take_in(void) {
  fake_accept(&fake, 64 * MIB, GS_MEMORY_MANAGED);
  fake.slack_bytes = MIB;
  if (!fake.metering)
    return;
  fake_touch_meter(&fake);
  fake_await_seen(&fake);
}

static void begin(bool metering) {
  scene_begin(&scene, "small,capacity=64MiB");
  fake_listen(&fake, scene.socket);
  fake.metering = metering;
  job = scene_start(&scene, NULL, "metered", NULL);
  take_in();
  fake_grant(&fake, fake.used_bytes);
  fake_await_active(&fake);
  fake_await_used(&fake, 1);
  process_expect(job, "ready", NULL, 0);
}

static void run(const char *command) {
  process_say(job, command);
  process_expect(job, "done", NULL, 0);
}

static void finish(void) {
  process_finish(job);
  fake_end(&fake);
  scene_end(&scene);
}

static bool holds(uint64_t submissions, uint64_t kernels, uint64_t blocks, uint64_t bytes) {
  const struct gs_meter *m = fake.meter;
  return m->submissions == submissions && m->kernels == kernels && m->blocks == blocks && m->bytes == bytes;
}

static void expect(uint64_t submissions, uint64_t kernels, uint64_t blocks, uint64_t bytes) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S / 3);
  for (; !holds(submissions, kernels, blocks, bytes); pass_ms(1))
    CHECK(deadline_left_ms(deadline) > 0, "submissions %lu kernels %lu blocks %lu bytes %lu",
          fake.meter->submissions, fake.meter->kernels, fake.meter->blocks, fake.meter->bytes);
}

TEST(kernels_and_copies_are_counted) {
  begin(true);
  expect(0, 0, 0, 0);
  run("launch 1");
  expect(1, 1, 30, 0);
  run("launch 999");
  expect(1000, 1000, 30000, 0);
  run("copies");
  expect(1006, 1000, 30000, 14000);
  run("refused");
  run("launch 1");
  expect(1007, 1001, 30030, 14000);
  finish();
}

TEST(graphs_count_by_their_nodes) {
  begin(true);
  run("graph");
  expect(0, 0, 0, 0);
  run("replay");
  expect(1, 3, 31, 1000);
  run("edit");
  run("replay");
  expect(2, 6, 31 + 120, 1000 + 460);
  run("update");
  run("replay");
  expect(3, 9, 151 + 49, 1460 + 1000);
  run("edit");
  run("replay");
  expect(4, 12, 200 + 130, 2460 + 460);
  run("disable");
  run("replay");
  expect(5, 14, 330 + 113, 2920 + 460);
  run("destroy");
  run("graph");
  run("replay");
  expect(6, 17, 443 + 31, 3380 + 1000);
  finish();
}

static uint64_t graph_queries(void) { return scene_process(&scene, job, 0).counters[GS_SIM_graph_queries]; }

/* An update asks the driver a few things, however large the graph is; after some of them all is known. */
TEST(updates_of_large_graphs_ask_little) {
  begin(true);
  run("long");
  run("replay");
  expect(1, 1000, 2000, 0);
  uint64_t before = graph_queries();
  run("renew 10");
  uint64_t asked = graph_queries() - before;
  CHECK(asked <= 10 * 9, "10 updates have asked %lu things", asked);
  run("replay");
  expect(2, 2000, 2000 + 2000 + 80, 0);
  run("renew 115");
  run("replay");
  expect(3, 3000, 4080 + 3000, 0);
  finish();
}

TEST(what_is_recorded_counts_when_it_is_launched) {
  begin(true);
  run("record");
  run("launch 1");
  expect(1, 1, 30, 0);
  run("replay");
  run("replay");
  expect(3, 5, 150, 0);
  finish();
}

static void await_idle(bool idle) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S / 3);
  for (; fake.meter->idle != idle; pass_ms(1))
    CHECK(deadline_left_ms(deadline) > 0, "idle: %u", fake.meter->idle);
}

/* It goes to sleep, and what comes then counts all the same. */
TEST(an_idle_process_says_so) {
  begin(true);
  for (unsigned i = 1; i <= 5; i++) {
    await_idle(true);
    run("launch 3");
    expect(3 * i, 3 * i, 90 * i, 0);
  }
  finish();
}

static uint64_t service_of(const char *command) {
  await_idle(true);
  uint64_t before_ns = fake.meter->service_ns;
  run(command);
  await_idle(true);
  return fake.meter->service_ns - before_ns;
}

/* Of who polls it is known only by the next look but one, 10 ms at least. */
TEST(service_is_the_time_until_it_is_waited_for) {
  uint64_t waited_ns = 0, polled_ns = 0;
  begin(true);
  for (int i = 0; i < 20 && waited_ns * 3 >= polled_ns * 2;
       i++) { /* what a busy machine adds comes on top of both */
    waited_ns = service_of("serve");
    polled_ns = service_of("poll");
    CHECK(waited_ns >= 10 * 2 * NS_PER_MS, "%lu ns", waited_ns);
  }
  CHECK(waited_ns * 3 < polled_ns * 2, "%lu and %lu ns", waited_ns, polled_ns);
  finish();
}

/* What is left of that beside the time waited. */
static uint64_t own_of(const char *command) {
  uint64_t before_ns = fake.meter->waited_ns, ns = service_of(command);
  return ns - (fake.meter->waited_ns - before_ns);
}

/* And which of it is the host's own; of who polls nobody knows. */
TEST(waits_are_told_by_what_waits) {
  begin(true);
  CHECK(own_of("serve") > 0);
  CHECK(own_of("fetch") > 0);
  CHECK(own_of("poll") == 0);
  CHECK(own_of("ask") == 0);
  CHECK(own_of("await") == 0);
  CHECK(fake.meter->served > 0 && fake.meter->served <= fake.meter->submissions);
  finish();
}

TEST(nothing_is_told_while_nobody_reads) {
  begin(true);
  atomic_store(&fake.meter->wanted, 0);
  run("launch 1"); /* which wakes it, should it have been idle before */
  fake_touch_meter(&fake);
  fake_await_seen(&fake);
  CHECK(holds(1, 1, 30, 0));
  run("launch 5");
  pass_ms(50);
  CHECK(holds(1, 1, 30, 0));
  atomic_store(&fake.meter->wanted, 1);
  fake_touch_meter(&fake);
  expect(6, 6, 180, 0);
  finish();
}

TEST(the_page_says_until_when_it_tells) {
  begin(true);
  for (int i = 0; i < 2; i++) {
    uint64_t before_ns = clock_now_ns();
    fake_touch_meter(&fake);
    fake_await_seen(&fake);
    CHECK(fake.meter->at_ns > before_ns && fake.meter->at_ns < clock_now_ns());
  }
  finish();
}

TEST(a_child_does_not_count_for_its_parent) {
  begin(true);
  run("launch 5");
  expect(5, 5, 150, 0);
  await_idle(true);
  uint32_t state = fake.meter->limit_seq;
  run("fork");
  CHECK(fake.meter->limit_seq == state);
  run("launch 5");
  expect(10, 10, 300, 0);
  finish();
}

/* Each connection has its own page, which counts from there on; the one before is not touched any more. */
TEST(each_connection_has_its_page) {
  begin(true);
  for (int i = 0; i < 4; i++) {
    run("launch 5");
    expect(5, 5, 150, 0);
    fake_hang_up(&fake);
    take_in();
  }
  fake.metering = false;
  fake_hang_up(&fake);
  take_in();
  run("launch 5");
  finish();
}

static int count_pages(pid_t pid) {
  char path[64], line[512];
  int count = 0;
  snprintf(path, sizeof path, "/proc/%d/maps", pid);
  FILE *maps = fopen(path, "r");
  while (maps && fgets(line, sizeof line, maps))
    count += strstr(line, "gpushare-meter") != NULL;
  if (maps)
    fclose(maps);
  return count;
}

static void await_pages(int count) {
  uint64_t deadline = deadline_in(PROCESS_LIMIT_S / 3);
  for (; count_pages(job->pid) != count; pass_ms(1))
    CHECK(deadline_left_ms(deadline) > 0, "%d pages", count_pages(job->pid));
}

static int count_descriptors(pid_t pid) {
  char path[64];
  int count = 0;
  snprintf(path, sizeof path, "/proc/%d/fd", pid);
  DIR *fds = opendir(path);
  while (fds && readdir(fds))
    count++;
  if (fds)
    closedir(fds);
  return count;
}

TEST(nothing_is_left_of_a_page) {
  begin(true);
  run("launch 1");
  expect(1, 1, 30, 0);
  int before = count_descriptors(job->pid);
  for (int i = 0; i < 3; i++) {
    CHECK(count_pages(job->pid) == 1);
    fake_hang_up(&fake);
    take_in();
    run("launch 1");
    expect(1, 1, 30, 0);
  }
  CHECK(count_pages(job->pid) == 1 && count_descriptors(job->pid) == before);
  fake.metering = false;
  fake_hang_up(&fake);
  take_in();
  await_pages(0);
  finish();
}

TEST(without_a_page_all_is_as_before) {
  begin(false);
  run("launch 10");
  run("graph");
  run("replay");
  CHECK(count_pages(job->pid) == 0);
  finish();
}
