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
#include <unistd.h>

#include "common/clock.h"
#include "suite.h"

#define PATIENCE_S 30 /* of the test */
#define LATER_NS (UINT64_C(1) << 62)

static char script[] = "/tmp/gpushare-nvml-XXXXXX";
static struct card_query query;
static struct cards cards;
static char why[NVML_WHY_SIZE];

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
}

static void tear_down(void) {
  card_query_end(&query);
  unlink(script);
  strcpy(script, "/tmp/gpushare-nvml-XXXXXX");
}

/* What card_query_on_child says of the helper's end. */
static int await_end(void) {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  struct timespec left = {.tv_sec = PATIENCE_S};
  ck_assert_int_eq(sigtimedwait(&child, NULL, &left), SIGCHLD);
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

int main(void) { return suite_run_all("card_query", set_up, tear_down); }
