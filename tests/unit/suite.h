/* suite.h - run a list of Check tests as a program. */
#ifndef GS_TEST_SUITE_H
#define GS_TEST_SUITE_H

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* Check notes the place of each assertion that holds by a write(2), to tell it where a test crashes. Here a
 * crash is told by its test alone: random histories make millions of assertions. */
#define _mark_point(file, line) ((void)0)

static inline int suite_run(Suite *suite) {
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Of the environment: of random histories, GPUSHARE_SEED, and GPUSHARE_RUNS, how many. */
static inline uint64_t suite_number(const char *variable, uint64_t otherwise) {
  const char *text = getenv(variable);
  return text ? strtoull(text, NULL, 0) : otherwise;
}

/* Between two looks whether something is so. Why not sched_yield: since Linux 6.18 a thread that yields again
 * and again falls ever further behind the others of a busy processor, by minutes. */
static inline void suite_pause(void) { nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); }

/* Tests that register themselves: TEST(what_holds) { ... } */
struct suite_entry {
  const TTest *test;
  int times;
  struct suite_entry *next;
};

static struct suite_entry *suite_first, **suite_end = &suite_first;

static inline void suite_register(struct suite_entry *entry) {
  *suite_end = entry;
  suite_end = &entry->next;
}

#define TEST(name) TEST_LOOP(name, 1)

/* So many times, with _i from 0 on. */
#define TEST_LOOP(name, count)                                                                               \
  static void name(int _i);                                                                                  \
  static const TTest name##_test = {#name, name, __FILE__, __LINE__};                                        \
  static struct suite_entry name##_entry = {.test = &name##_test, .times = (int)(count)};                    \
  __attribute__((constructor)) static void name##_register(void) { suite_register(&name##_entry); }          \
  static void name(int _i __attribute__((unused)))

/* No test takes so long, however busy the machine is. */
#define SUITE_LIMIT_S 300

static inline int suite_run_all(const char *name, void (*set_up)(void), void (*tear_down)(void)) {
  Suite *suite = suite_create(name);
  TCase *cases = tcase_create(name);
  tcase_add_checked_fixture(cases, set_up, tear_down);
  tcase_set_timeout(cases, SUITE_LIMIT_S);
  for (const struct suite_entry *entry = suite_first; entry; entry = entry->next)
    tcase_add_loop_test(cases, entry->test, 0, entry->times);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}

/* Tests end with NULL. */
static inline int suite_main(const char *name, const TTest *const *tests, void (*set_up)(void),
                             void (*tear_down)(void)) {
  Suite *suite = suite_create(name);
  TCase *cases = tcase_create(name);
  tcase_add_checked_fixture(cases, set_up, tear_down);
  tcase_set_timeout(cases, SUITE_LIMIT_S);
  for (; *tests; tests++)
    tcase_add_test(cases, *tests);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}

#endif
