/* suite.h - run a list of Check tests as a program. */
#ifndef GS_TEST_SUITE_H
#define GS_TEST_SUITE_H

#include <check.h>
#include <stdlib.h>

static inline int suite_run(Suite *suite) {
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Tests end with NULL. */
static inline int suite_main(const char *name, const TTest *const *tests, void (*set_up)(void),
                             void (*tear_down)(void)) {
  Suite *suite = suite_create(name);
  TCase *cases = tcase_create(name);
  tcase_add_checked_fixture(cases, set_up, tear_down);
  tcase_set_timeout(cases, 300);
  for (; *tests; tests++)
    tcase_add_test(cases, *tests);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}

#endif
