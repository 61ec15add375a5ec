/* test_log_for.c - one user's lines do not fill the log, and nobody's are left out without a word. */
#include <stdio.h>
#include <string.h>

#include "server/daemon_log.h"
#include "suite.h"

static unsigned passed, told; /* lines; and what others have said to be left out */
static uint64_t started_ns;

static uint64_t late_ns; /* so much more time has passed */

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
  int err = __real_clock_gettime(clock, now);
  now->tv_sec += (time_t)(late_ns / NS_PER_S);
  return err;
}

static bool count_line(const char *text, size_t length, unsigned lines) {
  (void)lines;
  char line[LOG_LINE_SIZE + 1];
  unsigned long count;
  snprintf(line, sizeof line, "%.*s", (int)length, text);
  const char *words = strstr(line, "info: ") + strlen("info: ");
  if (strstr(line, "left out") && sscanf(words, "%lu", &count) == 1)
    told += count;
  else
    passed++;
  return true;
}

static void set_up(void) {
  passed = told = 0;
  late_ns = 0;
  started_ns = clock_now_ns();
  log_setup("test", LOG_LEVEL_INFO);
  log_to(count_line);
}

static void tear_down(void) { log_to(NULL); }

/* What a bucket lets pass, however slow this machine is. */
static unsigned most(void) {
  return LOG_FOR_BURST + (unsigned)((clock_now_ns() - started_ns) / LOG_FOR_INTERVAL_NS);
}

static void say(uid_t uid, unsigned times) {
  for (unsigned i = 0; i < times; i++)
    log_for(uid, LOG_LEVEL_INFO, "number %u of %s", i, "many");
}

TEST(a_burst_passes_and_the_rest_is_counted) {
  ck_assert_uint_eq(log_for_deadline_ns(), UINT64_MAX);
  say(1000, 500);
  ck_assert_uint_ge(passed, LOG_FOR_BURST);
  ck_assert_uint_le(passed, most());
  uint64_t deadline_ns = log_for_deadline_ns();
  ck_assert_uint_ge(deadline_ns, started_ns + LOG_FOR_TELL_NS);
  ck_assert_uint_le(deadline_ns, clock_now_ns() + LOG_FOR_TELL_NS);
  log_for_on_time(deadline_ns - 1);
  ck_assert_uint_eq(told, 0);
  log_for_on_time(deadline_ns);
  ck_assert_uint_eq(passed + told, 500);
  ck_assert_uint_eq(log_for_deadline_ns(), UINT64_MAX);
}

TEST(others_and_other_kinds_are_not_left_out) {
  say(1000, 500);
  unsigned before = passed;
  say(1001, LOG_FOR_BURST);
  ck_assert_uint_eq(passed, before + LOG_FOR_BURST);
  for (unsigned i = 0; i < LOG_FOR_BURST; i++)
    log_for(1000, LOG_LEVEL_INFO, "another kind");
  ck_assert_uint_eq(passed, before + 2 * LOG_FOR_BURST);
}

TEST(quiet_lines_take_nothing) {
  for (unsigned i = 0; i < 500; i++)
    log_for(1000, LOG_LEVEL_DEBUG, "quiet");
  ck_assert_uint_eq(log_for_deadline_ns(), UINT64_MAX);
  ck_assert_uint_eq(passed, 0);
}

TEST(many_users_together_are_bounded) {
  for (uid_t uid = 1000; uid < 5000; uid++)
    say(uid, 30);
  ck_assert_uint_le(passed, (LOG_FOR_BUCKETS + 1) * most());
  log_for_end();
  ck_assert_uint_eq(passed + told, 4000 * 30);
}

/* The loop has been held up: by then the bucket is full again, but what it has left out is not told yet. */
TEST(nor_do_others_take_the_place_of_what_is_left_out) {
  say(1000, 500);
  ck_assert_uint_lt(passed, 500);
  late_ns = 60 * NS_PER_S;
  for (uid_t uid = 2000; uid < 2000 + 2 * LOG_FOR_BUCKETS; uid++)
    say(uid, 1);
  log_for_end();
  ck_assert_uint_eq(passed + told, 500 + 2 * LOG_FOR_BUCKETS);
}

static char last[LOG_LINE_SIZE];

static bool keep_line(const char *text, size_t length, unsigned lines) {
  (void)lines;
  snprintf(last, sizeof last, "%.*s", (int)length, text);
  return true;
}

/* The most important of them says how loud that is. */
TEST(what_is_left_out_is_as_loud_as_it_was) {
  static const enum log_level levels[] = {LOG_LEVEL_INFO, LOG_LEVEL_WARN};
  for (unsigned i = 0; i < 500; i++)
    log_for(1000, levels[i >= 250], "of two levels");
  log_to(keep_line);
  log_for_end();
  ck_assert_ptr_nonnull(strstr(last, "warn"));
  ck_assert_ptr_nonnull(strstr(last, "left out"));
}

static void use_names_of(const char *path) {
  struct user_names names = user_names_read(path);
  user_names_use(&names);
}

TEST(who_and_what_is_left_out) {
  char path[] = "/tmp/gpushare-passwd-XXXXXX";
  FILE *file = fdopen(mkstemp(path), "w");
  fputs("root:x:0:0::/root:/bin/sh\nal\tice:x:1000:1000::/:\nother:x:1000:1000::/:\nno user\n", file);
  fclose(file);
  use_names_of(path);
  remove(path);
  ck_assert_str_eq(user_names_find(1000), "al?ice");
  ck_assert_ptr_null(user_names_find(1001));
  say(1000, 30);
  log_to(keep_line);
  log_for_end();
  ck_assert_ptr_nonnull(
      strstr(last, " more lines like this, caused by al?ice (uid 1000), are left out: number ... of ...\n"));
  use_names_of("/nowhere");
  ck_assert_ptr_null(user_names_find(1000));
}

int main(void) { return suite_run_all("log_for", set_up, tear_down); }
