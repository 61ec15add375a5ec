/* test_card_query.c - the helper that asks NVML, which is played: it answers, fails, crashes, hangs, babbles.
 */
#include "server/cards.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "suite.h"

#define PATIENCE_S 30 /* of the test */
#define LATER_NS (UINT64_C(1) << 62)

static char script[] = "/tmp/gpushare-nvml-XXXXXX";
static struct card_query query;
static struct cards cards;
static char why[NVML_WHY_SIZE];
static struct card_watch watch;

static bool fork_fails;

pid_t __real_fork(void);
pid_t __wrap_fork(void);
pid_t __wrap_fork(void) {
  errno = EAGAIN;
  return fork_fails ? -1 : __real_fork();
}

static void write_script(const char *text) {
  FILE *file = fopen(script, "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
}

static void set_up(void) {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, NULL);
  close(mkstemp(script));
  setenv("GS_NVML_SCRIPT", script, 1);
  query = (struct card_query){.library = GS_NVML, .patience_ns = NS_PER_S};
  cards = (struct cards){0};
  watch = (struct card_watch){.library = GS_NVML};
  fork_fails = false;
}

static void tear_down(void) {
  card_watch_end(&watch);
  card_query_end(&query);
  unlink(script);
  strcpy(script, "/tmp/gpushare-nvml-XXXXXX");
}

static void await_child(void) {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  struct timespec left = {.tv_sec = PATIENCE_S};
  ck_assert_int_eq(sigtimedwait(&child, NULL, &left), SIGCHLD);
}

/* What card_query_on_child says of the helper's end. */
static int await_end(void) {
  await_child();
  return card_query_on_child(&query, &cards, why);
}

static int ask(const char *text) {
  write_script(text);
  ck_assert_int_eq(card_query_begin(&query, clock_now_ns()), 0);
  return await_end();
}

TEST(it_tells_of_the_cards) {
  ck_assert_int_eq(ask("gpus=3 mig=1:2"), 1);
  ck_assert_int_eq(cards.source, CARDS_NVML);
  ck_assert_uint_eq(cards.count, 5);
  static const uint32_t numbers[] = {0, 1, GS_GPU_NUMBER(1u, 1u), GS_GPU_NUMBER(1u, 2u), 2};
  for (int i = 0; i < 5; i++)
    ck_assert_uint_eq(cards.list[i].number, numbers[i]);
  ck_assert_uint_eq(cards.list[0].total_bytes, UINT64_C(79) << 30); /* without what the driver keeps */
  ck_assert_uint_eq(cards.list[0].minor, 100);
  ck_assert_str_eq(cards.list[0].name, "Played 80GB");
  ck_assert(cards.list[1].split && !cards.list[2].split && !cards.list[0].split);
  ck_assert_uint_eq(cards.list[3].total_bytes, UINT64_C(10) << 30);
  ck_assert_uint_eq(cards.list[3].minor, 101);
  ck_assert_int_eq(ask("gpus=1"), 1); /* and again */
  ck_assert_uint_eq(cards.count, 1);
}

TEST(it_may_have_nothing_to_tell) {
  ck_assert_int_eq(ask("gpus=0"), -ENODEV);
  ck_assert_str_eq(why, "NVML knows no GPU");
  ck_assert_int_eq(ask("gpus=1 do=fail"), -ENODEV);
  ck_assert_str_eq(why, "nvmlInit says 999");
  query.library = "/nowhere/at/all.so";
  ck_assert_int_eq(ask("gpus=1"), -ENODEV);
  ck_assert_ptr_nonnull(strstr(why, "/nowhere/at/all.so"));
  query.library = NULL;
  ck_assert_int_eq(card_query_begin(&query, 1), -ENOENT);
  ck_assert_uint_eq(cards.count, 0);
}

TEST(it_may_crash) {
  ck_assert_int_eq(ask("gpus=1 do=crash"), -EFAULT);
  ck_assert_uint_eq(cards.count, 0);
  ck_assert_int_eq(ask("gpus=1"), 1);
}

TEST(it_may_tell_nonsense) {
  ck_assert_int_eq(ask("gpus=2 do=babble"), -EPROTO);
  ck_assert_ptr_nonnull(strstr(why, "makes no sense"));
  ck_assert_uint_eq(cards.count, 0);
}

TEST(it_may_hang_and_is_ended) {
  write_script("gpus=1 do=hang");
  ck_assert_int_eq(card_query_begin(&query, 5), 0);
  pid_t helper = query.pid;
  ck_assert_int_eq(card_query_begin(&query, 6), 0); /* there is never another one beside it */
  ck_assert_int_eq(query.pid, helper);
  ck_assert(query.again);
  ck_assert_int_eq(card_query_on_child(&query, &cards, why), 0);
  ck_assert_uint_eq(card_query_deadline_ns(&query), 5 + NS_PER_S);
  card_query_on_time(&query, 4 + NS_PER_S);
  ck_assert(!query.killed);
  card_query_on_time(&query, 5 + NS_PER_S);
  ck_assert_uint_eq(card_query_deadline_ns(&query), UINT64_MAX);
  ck_assert_int_eq(await_end(), -ETIMEDOUT);
  ck_assert_int_eq(query.pid, 0);
  ck_assert_int_eq(ask("gpus=1"), 1);
}

/* A connection that the daemon ends has ended, though a helper hangs. */
TEST(it_keeps_nothing_open) {
  int ends[2];
  char byte;
  ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
  write_script("gpus=1 do=hang");
  ck_assert_int_eq(card_query_begin(&query, clock_now_ns()), 0);
  close(ends[1]);
  struct pollfd reader = {.fd = ends[0], .events = POLLIN};
  ck_assert_int_eq(poll(&reader, 1, PATIENCE_S * 1000), 1);
  ck_assert_int_eq(read(ends[0], &byte, 1), 0);
  card_query_on_time(&query, LATER_NS);
  await_end();
}

/* ---- what cards do ---- */

static pid_t jobs[2]; /* is_job's; 0: no more */
static bool unseen;   /* there is a job whose process can't be seen */

static bool is_job(void *of, pid_t pid) {
  ck_assert_ptr_eq(of, jobs);
  return pid == 0 ? unseen : pid == jobs[0] || pid == jobs[1];
}

static const struct card_reading *reading_of(unsigned gpu) {
  const uint8_t uuid[GS_UUID_SIZE] = {0, 0, 0, (uint8_t)gpu, 0, 0, 0x40, 0, 0x80};
  return card_query_find_reading(&query, uuid, clock_now_ns());
}

static void read_cards(const char *text) {
  write_script(text);
  uint64_t now_ns = query.rest_ns > clock_now_ns() ? query.rest_ns : clock_now_ns();
  card_query_want_readings(&query, now_ns, 0);
  ck_assert_uint_eq(card_query_deadline_ns(&query), now_ns);
  card_query_on_time(&query, now_ns);
  ck_assert(query.pid && query.only_reads);
  ck_assert_int_eq(await_end(), 0); /* which cards there are it does not tell */
}

static void play_jobs(void) {
  query.is_job = is_job;
  query.of = jobs;
  jobs[0] = jobs[1] = 0;
  unseen = false;
}

TEST(it_tells_what_cards_do) {
  play_jobs();
  read_cards("gpus=3 quiet=1 pid=77");
  ck_assert_uint_eq(cards.count, 0);
  ck_assert_uint_eq(query.readings.count, 3);
  const struct nvml_reading *does = &reading_of(2)->does;
  ck_assert_uint_eq(does->known, NVML_TEMPERATURE | NVML_POWER | NVML_UTILIZATION | NVML_ENERGY);
  ck_assert_uint_eq(does->temperature_c, 63);
  ck_assert_uint_eq(does->power_mw, 250502);
  ck_assert_uint_eq(does->gpu_percent, 97);
  ck_assert_uint_eq(does->memory_percent, 40);
  ck_assert_uint_eq(does->energy_mj, 1234567);
  ck_assert_uint_eq(reading_of(1)->does.known, 0);
  ck_assert_ptr_null(reading_of(3));
}

TEST(processes_that_are_no_jobs_are_unshared) {
  play_jobs();
  read_cards("gpus=2 pid=77");
  ck_assert(reading_of(0)->processes_known && reading_of(1)->processes_known);
  ck_assert_uint_eq(reading_of(0)->unshared, 1);
  ck_assert_uint_eq(reading_of(0)->unshared_bytes, UINT64_C(512) << 20);
  ck_assert_uint_eq(reading_of(1)->unshared, 0);
  jobs[1] = 77;
  read_cards("gpus=2 pid=77");
  ck_assert(reading_of(0)->processes_known);
  ck_assert_uint_eq(reading_of(0)->unshared, 0);
  jobs[1] = 78;
  unseen = true; /* it may be that one */
  read_cards("gpus=2 pid=77");
  ck_assert(!reading_of(0)->processes_known);
  unseen = false;
  read_cards("gpus=2 do=hide");
  ck_assert(reading_of(0)->processes_known && !reading_of(1)->processes_known);
}

/* MPS' own process has a context in place of its programs. */
TEST(mps_is_not_unshared) {
  char text[64];
  play_jobs();
  pid_t server = fork();
  if (server == 0) {
    prctl(PR_SET_NAME, "nvidia-cuda-mps-server");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
      pause();
  }
  char path[64], comm[32] = "";
  snprintf(path, sizeof path, "/proc/%d/comm", server);
  while (strncmp(comm, "nvidia-cuda-mps", 15) != 0) {
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(comm, sizeof comm, file));
    fclose(file);
  }
  snprintf(text, sizeof text, "gpus=1 pid=%d", server);
  read_cards(text);
  ck_assert(reading_of(0)->processes_known);
  ck_assert_uint_eq(reading_of(0)->unshared, 0);
  kill(server, SIGKILL);
  ck_assert_int_eq(waitpid(server, NULL, 0), server);
}

TEST(a_lost_card_has_no_reading) {
  char folder[] = "/tmp/gpushare-lost-XXXXXX", lost[64];
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(lost, sizeof lost, "%s/1", folder);
  close(open(lost, O_CREAT | O_CLOEXEC, 0600));
  setenv("GS_NVML_LOST", folder, 1);
  read_cards("gpus=2");
  unsetenv("GS_NVML_LOST");
  ck_assert(card_query_has_readings(&query, clock_now_ns()));
  ck_assert_ptr_nonnull(reading_of(0));
  ck_assert_ptr_null(reading_of(1));
  unlink(lost);
  rmdir(folder);
}

/* What is old is worse than nothing. */
TEST(without_an_answer_there_are_no_readings) {
  read_cards("gpus=1");
  ck_assert_ptr_nonnull(reading_of(0));
  ck_assert(!card_query_has_readings(&query, query.readings.until_ns));
  read_cards("gpus=1 do=crash");
  ck_assert(!card_query_has_readings(&query, clock_now_ns()));
  ck_assert_ptr_null(reading_of(0));
}

TEST(cards_are_read_while_somebody_wants_that) {
  uint64_t now_ns = clock_now_ns();
  ck_assert_uint_eq(card_query_deadline_ns(&query), UINT64_MAX);
  write_script("gpus=1");
  card_query_want_readings(&query, now_ns, 100 * NS_PER_S);
  card_query_want_readings(&query, now_ns, 0); /* it is wanted no shorter for that */
  card_query_on_time(&query, now_ns);
  ck_assert_int_eq(await_end(), 0);
  uint64_t next_ns = card_query_deadline_ns(&query);
  ck_assert_uint_ge(next_ns, now_ns + CARD_READ_PAUSE_NS);
  card_query_on_time(&query, next_ns - 1);
  ck_assert_int_eq(query.pid, 0);
  query.wanted_ns = now_ns; /* nobody does any more */
  card_query_on_time(&query, next_ns);
  ck_assert_int_ne(query.pid, 0);
  ck_assert_int_eq(await_end(), 0);
  ck_assert_uint_eq(card_query_deadline_ns(&query), UINT64_MAX);
  query.library = NULL;
  card_query_want_readings(&query, now_ns, 100 * NS_PER_S);
  ck_assert_uint_eq(card_query_deadline_ns(&query), UINT64_MAX);
}

/* The daemon is asked which cards there are while it reads what they do. */
TEST(which_cards_there_are_is_asked_after_a_reading) {
  write_script("gpus=1");
  card_query_want_readings(&query, clock_now_ns(), 0);
  card_query_on_time(&query, clock_now_ns());
  ck_assert_int_eq(card_query_begin(&query, clock_now_ns()), 0);
  ck_assert(query.again);
  ck_assert_int_eq(await_end(), 0);
  ck_assert(query.pid && !query.only_reads);
  ck_assert_int_eq(await_end(), 1);
  ck_assert_uint_eq(cards.count, 1);
}

/* ---- what is in use ---- */

static pid_t begin_watch(const char *text, uint64_t now_ns) {
  ck_assert_int_eq(ask("gpus=2"), 1);
  write_script(text);
  card_watch_go_on(&watch, &cards, true, now_ns);
  ck_assert_int_ne(watch.pid, 0);
  return watch.pid;
}

/* It is still there, and nobody has ended it. */
static void check_watch(pid_t pid) {
  card_watch_on_child(&watch);
  ck_assert_int_eq(watch.pid, pid);
}

static void await_watch_end(void) {
  await_child();
  card_watch_on_child(&watch);
  ck_assert_int_eq(watch.pid, 0);
}

static void await_figure(uint32_t card, uint64_t used_bytes) {
  uint64_t bytes, at_ns, end_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
  while (!card_watch_read(&watch, card, &bytes, &at_ns)) {
    ck_assert_uint_lt(clock_now_ns(), end_ns);
    clock_sleep(NS_PER_MS);
  }
  ck_assert_uint_eq(bytes, used_bytes);
  ck_assert_uint_le(at_ns, clock_now_ns());
}

TEST(a_watch_lasts_while_it_is_needed) {
  uint64_t now_ns = clock_now_ns(), bytes, at_ns;
  pid_t pid = begin_watch("gpus=2 bytes=12345", now_ns);
  await_figure(0, 12345);
  await_figure(1, 12345);
  card_watch_go_on(&watch, &cards, false, now_ns + CARD_WATCH_IDLE_NS - 1);
  check_watch(pid);
  card_watch_go_on(&watch, &cards, false, now_ns + CARD_WATCH_IDLE_NS);
  await_watch_end();
  begin_watch("gpus=2 bytes=12345", now_ns + CARD_WATCH_IDLE_NS);
  card_watch_stop(&watch);
  ck_assert(!card_watch_read(&watch, 0, &bytes, &at_ns));
  await_watch_end();
}

TEST(a_watch_that_hangs_is_ended_and_begun_anew) {
  uint64_t now_ns = clock_now_ns();
  pid_t pid = begin_watch("gpus=2 do=hang", now_ns);
  card_watch_go_on(&watch, &cards, true, now_ns + CARD_QUERY_NS - 1);
  check_watch(pid);
  card_watch_go_on(&watch, &cards, true, now_ns + CARD_QUERY_NS);
  await_watch_end();
  begin_watch("gpus=2 bytes=7", now_ns + CARD_QUERY_NS);
  await_figure(1, 7);
}

TEST(a_watch_without_a_process_is_tried_again) {
  uint64_t now_ns = clock_now_ns();
  fork_fails = true;
  card_watch_go_on(&watch, &cards, true, now_ns);
  ck_assert_int_eq(watch.pid, 0);
  fork_fails = false;
  card_watch_go_on(&watch, &cards, true, now_ns + CARD_QUERY_PAUSE_NS - 1);
  ck_assert_int_eq(watch.pid, 0);
  card_watch_go_on(&watch, &cards, true, now_ns + CARD_QUERY_PAUSE_NS);
  ck_assert_int_gt(watch.pid, 0);
}

int main(void) { return suite_run_all("card_query", set_up, tear_down); }
