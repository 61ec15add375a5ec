/* test_meters.c - the daemon's side of meter pages. */
#include "meters.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "suite.h"

/* The daemon forks to ask the host for its cards: thousands of pages would make that long. */
START_TEST(a_child_has_no_pages) {
  struct meter meter = {.fd = -1};
  int status;
  meter_make(&meter);
  ck_assert_ptr_nonnull(meter.page);
  pid_t child = fork();
  if (child == 0)
    _exit(msync(meter.page, GS_METER_SIZE, MS_ASYNC) < 0 && errno == ENOMEM ? 0 : 1);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  meter_end(&meter);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_child_has_no_pages, NULL};
  return suite_main("meters", tests, NULL, NULL);
}
