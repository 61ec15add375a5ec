/* test_page.c - the meter page: which ones are taken, and that nobody who waits in one is left behind when
 * another takes its place. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../suite.h"
#include "meter/page.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static void set_up(void) {}
static void tear_down(void) {}

/* A page as the daemon would make it. */
static int make(size_t bytes, int seals, uint32_t version) {
  int fd = memfd_create("gpushare-meter", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
  ck_assert_int_eq(pwrite(fd, &version, sizeof version, 0), sizeof version);
  ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

static int attach_descriptor(int fd) {
  struct gs_meter *page;
  int err = page_map(fd, &page);
  return err < 0 ? err : page_attach(0, page);
}

static int attach(size_t bytes, int seals, uint32_t version) {
  int fd = make(bytes, seals, version);
  int err = attach_descriptor(fd);
  close(fd);
  return err;
}

static void attach_good(void) { ck_assert_int_eq(attach(GS_METER_SIZE, SEALS, GS_METER_VERSION), 0); }

START_TEST(a_page_that_is_not_fit_is_refused) {
  int fds[2];
  ck_assert_int_eq(pipe(fds), 0);
  ck_assert_int_eq(attach_descriptor(fds[0]), -EINVAL);
  ck_assert_int_eq(attach(GS_METER_SIZE, 0, GS_METER_VERSION), -EINVAL); /* it could become shorter */
  ck_assert_int_eq(attach(GS_METER_SIZE / 2, SEALS, GS_METER_VERSION), -EINVAL);
  ck_assert_int_eq(attach(GS_METER_SIZE, SEALS, GS_METER_VERSION + 1), -EPROTONOSUPPORT);
  ck_assert_ptr_null(page_of(0));
  attach_good();
  ck_assert_ptr_nonnull(page_of(0));
}
END_TEST

START_TEST(it_stays_where_it_is) {
  attach_good();
  struct gs_meter *page = page_of(0);
  uint32_t state = page_state(page);
  page->kernels = 5;
  attach_good();
  ck_assert_ptr_eq(page_of(0), page);
  ck_assert_uint_eq(page->kernels, 0);
  ck_assert_uint_ne(page_state(page), state);
  state = page_state(page);
  page_detach(0);
  ck_assert_ptr_eq(page_of(0), page);
  ck_assert_uint_eq(page->limit, GS_LIMIT_NONE);
  ck_assert_uint_eq(page->wanted, 0);
  ck_assert_uint_ne(page_state(page), state);
}
END_TEST

static _Atomic unsigned rounds; /* that the waiting thread has seen */
static _Atomic unsigned round_now;

/* As a thread that waits for a limit: until what it has seen is no longer so. */
static void *wait_for_rounds(void *argument) {
  struct gs_meter *page = argument;
  while (atomic_load(&rounds) < 300) {
    uint32_t state = page_state(page);
    if (atomic_load(&rounds) == atomic_load(&round_now))
      page_wait(page, state, UINT64_MAX);
    else
      atomic_fetch_add(&rounds, 1);
  }
  return NULL;
}

/* Whatever kind of page comes after whatever kind, at any moment. */
START_TEST(nobody_is_left_behind) {
  pthread_t thread;
  attach_good();
  pthread_create(&thread, NULL, wait_for_rounds, page_of(0));
  for (unsigned round = 1; round <= 300; round++) {
    for (unsigned i = 0; i < round % 7; i++)
      sched_yield();
    atomic_store(&round_now, round);
    if (round % 3 == 0)
      page_touch(page_of(0));
    else if (round % 3 == 1)
      page_detach(0);
    else
      attach_good();
    while (atomic_load(&rounds) < round)
      sched_yield();
  }
  pthread_join(thread, NULL);
}
END_TEST

START_TEST(a_child_has_its_own) {
  attach_good();
  struct gs_meter *page = page_of(0);
  atomic_store(&page->limit, 7);
  uint32_t state = page_state(page);
  pid_t child = fork();
  if (child == 0) {
    page_fork_child();
    bool own = page->limit == GS_LIMIT_NONE;
    page->kernels = 9;
    page_touch(page);
    _exit(own ? 0 : 1);
  }
  int status;
  waitpid(child, &status, 0);
  ck_assert_int_eq(status, 0);
  ck_assert_uint_eq(page->kernels, 0);
  ck_assert_uint_eq(page_state(page), state);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_page_that_is_not_fit_is_refused, it_stays_where_it_is,
                                nobody_is_left_behind, a_child_has_its_own, NULL};
  return suite_main("page", tests, set_up, tear_down);
}
