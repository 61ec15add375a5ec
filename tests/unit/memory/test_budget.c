/* test_budget.c - the budget's arithmetic at its edges, its word with the daemon, and racing threads. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "../suite.h"
#include "client/client.h"
#include "common/clock.h"
#include "common/host.h"
#include "memory/budget.h"
#include "memory/device.h"
#include "settings.h"

#define GIB (UINT64_C(1) << 30)

/* The world that the budget sees. */

static struct settings set = {.memory = GS_MEMORY_MANAGED};
static uint64_t card_bytes = 16 * GIB, capacity_bytes, spare_bytes = 64 * GIB;
static int answer = -ENOTCONN; /* the daemon's, up to its limit; -ENOTCONN: there is none */
static uint64_t daemon_limit = UINT64_MAX;
static _Atomic uint64_t told_bytes; /* what the daemon was last told */
static _Atomic uint64_t told_pinned_bytes;

const struct settings *settings(void) { return &set; }
uint64_t device_card_bytes(CUdevice device) { return device < 2 ? card_bytes : 0; }
static struct memory_bounds bounds = {.why = GS_REFUSAL_SPENT};
struct memory_bounds client_bounds(CUdevice device) {
  (void)device;
  return bounds;
}

static void (*_Atomic on_capacity)(void);
uint64_t client_capacity(CUdevice device) {
  void (*called)(void) = atomic_exchange(&on_capacity, NULL); /* once */
  if (called)
    called();
  return device == 0 ? capacity_bytes : 0;
}
uint64_t host_available_bytes(void) { return spare_bytes; }

enum wait { NO_WAIT, WAIT_SEEN, WAIT_UNSEEN };
static _Atomic int
    next_wait; /* of the next request: until `go`; that thread shows that it is there, or not */
static _Atomic bool waits, go;
static _Atomic unsigned asked_anew;

int client_memory_request(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes, bool anew,
                          _Atomic uint64_t *seen_ns) {
  (void)device;
  int wait = atomic_exchange(&next_wait, NO_WAIT);
  atomic_store(&waits, wait != NO_WAIT);
  while (wait != NO_WAIT && !go) {
    if (wait == WAIT_SEEN)
      atomic_store(seen_ns, clock_now_ns());
    clock_sleep(NS_PER_MS);
  }
  asked_anew += anew;
  if (answer == 0 && total_bytes > daemon_limit)
    return -ENOMEM;
  atomic_store(&told_bytes, total_bytes);
  atomic_store(&told_pinned_bytes, pinned_bytes);
  return answer;
}

void client_memory_report(CUdevice device, uint64_t total_bytes, uint64_t pinned_bytes) {
  (void)device;
  atomic_store(&told_bytes, total_bytes);
  atomic_store(&told_pinned_bytes, pinned_bytes);
}

const struct memory_port memory_port = {.capacity = client_capacity,
                                        .bounds = client_bounds,
                                        .request = client_memory_request,
                                        .report = client_memory_report};

static void expect(uint64_t total, uint64_t left) {
  ck_assert_uint_eq(budget_total_bytes(0), total);
  ck_assert_uint_eq(budget_free_bytes(0), left);
}

START_TEST(free_and_used_make_the_total) {
  expect(16 * GIB, 16 * GIB);
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 5 * GIB, false), 0);
  ck_assert_int_eq(budget_reserve(0, BACKING_PINNED_PLAIN, GIB, false), 0);
  expect(16 * GIB, 10 * GIB);
  ck_assert_uint_eq(budget_free_bytes(1), 16 * GIB); /* per card */
  budget_release(0, BACKING_CONVERTED, 5 * GIB);
  expect(16 * GIB, 15 * GIB);
  ck_assert_uint_eq(budget_pinned_bytes(0), GIB);
}
END_TEST

START_TEST(no_more_is_left_than_the_daemon_would_grant) {
  answer = 0;
  ck_assert_int_eq(budget_reserve(0, BACKING_PINNED_PLAIN, GIB, false), 0);
  ck_assert_uint_eq(asked_anew, 0);
  struct budget_left left = budget_ask_left(0);
  ck_assert(left.bytes == 15 * GIB && left.pinned_bytes == 15 * GIB); /* it does not say */
  bounds = (struct memory_bounds){
      .knows_most = true, .most_bytes = 6 * GIB, .most_pinned_bytes = 3 * GIB, .making_way_bytes = GIB};
  left = budget_ask_left(0);
  ck_assert(left.bytes == 5 * GIB && left.pinned_bytes == 2 * GIB && left.making_way_bytes == GIB);
  ck_assert_uint_eq(asked_anew, 2);
  bounds.most_bytes = 24 * GIB; /* with host memory */
  ck_assert_uint_eq(budget_ask_left(0).bytes, 15 * GIB);
  bounds.most_bytes = bounds.most_pinned_bytes = 0; /* it has got less since */
  ck_assert_uint_eq(budget_ask_left(0).bytes, 0);
}
END_TEST

START_TEST(all_that_is_free_can_be_had_and_no_byte_more) {
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 3 * GIB + 1, false), 0);
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, budget_free_bytes(0) + 1, false), -ENOMEM);
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, budget_free_bytes(0), false), 0);
  expect(16 * GIB, 0);
  ck_assert_int_eq(budget_reserve(0, BACKING_PINNED_PLAIN, 1, false), -ENOMEM);
  expect(16 * GIB, 0);
}
END_TEST

START_TEST(the_capacity_bounds_the_card_and_not_the_reverse) {
  capacity_bytes = 4 * GIB;
  expect(4 * GIB, 4 * GIB);
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 4 * GIB + 1, false), -ENOMEM);
  capacity_bytes = 400 * GIB;
  expect(16 * GIB, 16 * GIB);
}
END_TEST

START_TEST(a_shrinking_capacity_never_underflows) {
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 10 * GIB, false), 0);
  capacity_bytes = 4 * GIB;
  expect(4 * GIB, 0);
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 1, false), -ENOMEM);
  budget_release(0, BACKING_CONVERTED, 10 * GIB);
  budget_release(0, BACKING_CONVERTED, 10 * GIB); /* too much: must not wrap around */
  expect(4 * GIB, 4 * GIB);
}
END_TEST

START_TEST(sizes_near_2_to_the_64_are_refused) {
  uint64_t huge[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 16 * GIB, UINT64_C(1) << 63, 16 * GIB + 1};
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, GIB, false), 0);
  for (int oversubscribe = 0; oversubscribe < 2; oversubscribe++) {
    set.single_oversubscribe = oversubscribe;
    for (size_t i = 0; i + oversubscribe < sizeof huge / sizeof *huge; i++)
      for (int backing = 0; backing < BACKINGS; backing++)
        if (backing != BACKING_APP || huge[i] > 100 * GIB)
          ck_assert_int_eq(budget_reserve(0, backing, huge[i], false), -ENOMEM);
  }
  expect(16 * GIB, 15 * GIB);
}
END_TEST

START_TEST(sums_near_2_to_the_64_are_refused) {
  answer = 0; /* a daemon that grants everything */
  set.single_oversubscribe = true;
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, UINT64_MAX - 10, false), 0);
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 11, false), -ENOMEM);
  ck_assert_int_eq(budget_reserve(0, BACKING_PINNED_PLAIN, 11, false), -ENOMEM);
  ck_assert_int_eq(budget_reserve(0, BACKING_PINNED_PLAIN, 10, false), 0);
  ck_assert_uint_eq(budget_sum_bytes(0), UINT64_MAX);
  expect(16 * GIB, 0);
}
END_TEST

START_TEST(unified_memory_of_the_program_may_exceed_the_card) {
  ck_assert_int_eq(budget_reserve(0, BACKING_APP, 40 * GIB, false), 0);
  expect(16 * GIB, 0);
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 16 * GIB, false),
                   0); /* the driver makes room, as ever */
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 1, false), -ENOMEM);
}
END_TEST

START_TEST(without_a_daemon_the_host_bounds_the_rest) {
  set.single_oversubscribe = true;
  spare_bytes = 8 * GIB;
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 16 * GIB, false), 0);
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 5 * GIB, false), 0);
  spare_bytes = 7 * GIB; /* untouched memory costs the host nothing yet: the first answer counts */
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 3 * GIB + 1, false), -ENOMEM);
  ck_assert_int_eq(budget_reserve(1, BACKING_CONVERTED, 19 * GIB + 1, false),
                   -ENOMEM); /* one host for all cards */
  ck_assert_int_eq(budget_reserve(1, BACKING_CONVERTED, 16 * GIB, false), 0);
  spare_bytes = GIB;
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 2 * GIB, false), -ENOMEM);
  spare_bytes = 7 * GIB;
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 3 * GIB, false), 0);
}
END_TEST

/* As with one: unified memory counts, and a limit is one for those that may exceed the card. */
START_TEST(without_a_daemon_the_programs_own_limit_holds) {
  set.limit_bytes = 4 * GIB;
  for (int oversubscribe = 0; oversubscribe < 2; oversubscribe++) {
    set.single_oversubscribe = oversubscribe;
    expect(4 * GIB, 4 * GIB);
    ck_assert_int_eq(budget_reserve(0, BACKING_APP, 3 * GIB, false), 0);
    ck_assert_int_eq(budget_reserve(0, BACKING_APP, GIB + 1, false), -ENOMEM);
    ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, GIB + 1, false), -ENOMEM);
    ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, GIB, false), 0);
    expect(4 * GIB, 0);
    budget_release(0, BACKING_APP, 3 * GIB);
    budget_release(0, BACKING_CONVERTED, GIB);
  }
  answer = 0; /* a daemon has come, and has been told to lift it */
  capacity_bytes = 16 * GIB;
  expect(16 * GIB, 16 * GIB);
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 5 * GIB, false), 0);
}
END_TEST

START_TEST(the_daemon_decides_on_the_sum_and_hears_of_frees) {
  answer = 0;
  daemon_limit = 6 * GIB;
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 4 * GIB, false), 0);
  ck_assert_int_eq(budget_reserve(0, BACKING_PINNED_PLAIN, GIB, false), 0);
  ck_assert_uint_eq(told_bytes, 5 * GIB);
  ck_assert_uint_eq(told_pinned_bytes, GIB);
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 2 * GIB, false), -ENOMEM);
  expect(16 * GIB, 11 * GIB); /* a refusal leaves no trace */
  budget_release(0, BACKING_CONVERTED, 4 * GIB);
  ck_assert_uint_eq(told_bytes, GIB);
}
END_TEST

#define THREADS 8
#define ROUNDS 2000

static atomic_int over;

static void *reserve_and_release(void *argument) {
  uint64_t bytes = (uint64_t)(uintptr_t)argument * GIB;
  for (int round = 0; round < ROUNDS; round++) {
    if (budget_reserve(0, BACKING_CONVERTED, bytes, false))
      continue;
    if (budget_sum_bytes(0) > card_bytes)
      atomic_store(&over, 1);
    budget_release(0, BACKING_CONVERTED, bytes);
  }
  return NULL;
}

START_TEST(racing_threads_never_exceed_the_card_and_leave_nothing) {
  pthread_t threads[THREADS];
  answer = _i ? 0 : -ENOTCONN;
  for (uintptr_t i = 0; i < THREADS; i++)
    pthread_create(&threads[i], NULL, reserve_and_release, (void *)(i + 1));
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  ck_assert_int_eq(atomic_load(&over), 0);
  expect(16 * GIB, 16 * GIB);
  ck_assert_uint_eq(told_bytes, 0); /* the last word to the daemon is the truth */
}
END_TEST

/* ---- who reserves is left by a jump, or ends, while the daemon lets him wait ---- */

static sigjmp_buf out;
static _Atomic bool has_left, may_end;

static void jump(int number) {
  (void)number;
  siglongjmp(out, 1);
}

static void *leave_by_a_jump(void *unused) {
  if (sigsetjmp(out, 1) == 0)
    budget_reserve(0, BACKING_PINNED_PLAIN, 5 * GIB, true);
  has_left = true;
  while (!may_end)
    suite_pause();
  return unused;
}

static _Atomic int waiting_err = 1;

static void *end_in_the_wait(void *unused) {
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  waiting_err = budget_reserve(0, BACKING_PINNED_PLAIN, 5 * GIB, true);
  return unused;
}

static pthread_t start_waiting(void *(*body)(void *), enum wait wait) {
  pthread_t thread;
  answer = 0;
  next_wait = wait;
  pthread_create(&thread, NULL, body, NULL);
  while (!waits)
    suite_pause();
  ck_assert_uint_eq(budget_awaited_bytes(0), 5 * GIB);
  return thread;
}

static void check_nothing_is_left(void) {
  ck_assert_uint_eq(budget_awaited_bytes(0), 0);
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 16 * GIB, false), 0);
  ck_assert_uint_eq(told_bytes, 16 * GIB);
  budget_release(0, BACKING_CONVERTED, 16 * GIB);
  expect(16 * GIB, 16 * GIB);
  ck_assert_uint_eq(told_bytes, 0);
}

START_TEST(a_thread_that_has_jumped_out_reserves_again) {
  answer = 0;
  next_wait = WAIT_SEEN;
  sigaction(SIGALRM, &(struct sigaction){.sa_handler = jump}, NULL);
  if (sigsetjmp(out, 1) == 0) {
    alarm(1);
    budget_reserve(0, BACKING_PINNED_PLAIN, 5 * GIB, true);
    ck_abort_msg("it waits for ever");
  }
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 16 * GIB, false), 0);
  budget_release(0, BACKING_CONVERTED, 16 * GIB);
  check_nothing_is_left();
}
END_TEST

/* It lives on, and never reserves again. */
START_TEST(others_reserve_after_a_thread_that_has_jumped_out) {
  sigaction(SIGUSR1, &(struct sigaction){.sa_handler = jump}, NULL);
  pthread_t thread = start_waiting(leave_by_a_jump, WAIT_SEEN);
  pthread_kill(thread, SIGUSR1);
  while (!has_left)
    suite_pause();
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 16 * GIB, false), 0);
  budget_release(0, BACKING_CONVERTED, 16 * GIB);
  check_nothing_is_left();
  may_end = true;
  pthread_join(thread, NULL);
}
END_TEST

START_TEST(others_reserve_after_a_thread_that_has_ended) {
  pthread_t thread = start_waiting(end_in_the_wait, WAIT_SEEN);
  pthread_cancel(thread);
  pthread_join(thread, NULL);
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 16 * GIB, false), 0);
  budget_release(0, BACKING_CONVERTED, 16 * GIB);
  check_nothing_is_left();
}
END_TEST

static _Atomic int later_err = 1;

static void *reserve_later(void *unused) {
  later_err = budget_reserve(0, BACKING_CONVERTED, 12 * GIB, false);
  return unused;
}

/* Seen: the other one waits for it. Unseen: it finds its turn lost, and no room any more. Either way the
 * books are right. */
START_TEST(a_thread_that_waits_keeps_its_turn_or_starts_over) {
  pthread_t later, thread = start_waiting(end_in_the_wait, _i ? WAIT_UNSEEN : WAIT_SEEN);
  pthread_create(&later, NULL, reserve_later, NULL);
  if (_i)
    pthread_join(later, NULL);
  else
    clock_sleep(2 * NS_PER_S); /* more than the silence after which it would be given up */
  ck_assert_int_eq(later_err, _i ? 0 : 1);
  go = true;
  pthread_join(thread, NULL);
  if (!_i)
    pthread_join(later, NULL);
  ck_assert_int_eq(later_err, _i ? 0 : -ENOMEM);
  ck_assert_int_eq(waiting_err, _i ? -ENOMEM : 0);
  uint64_t used = (_i ? 12 : 5) * GIB;
  expect(16 * GIB, 16 * GIB - used);
  ck_assert_uint_eq(told_bytes, used);
  ck_assert_uint_eq(budget_awaited_bytes(0), _i ? 0 : used);
}
END_TEST

static void *reserve_meanwhile(void *unused) {
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, GIB, false), 0);
  return unused;
}

/* Another thread has had its turn when this one goes on. */
static void be_slow(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, reserve_meanwhile, NULL);
  pthread_join(thread, NULL);
}

START_TEST(who_is_overtaken_before_his_turn_books_beside_the_other) {
  answer = 0;
  on_capacity = be_slow;
  ck_assert_int_eq(budget_reserve(0, BACKING_CONVERTED, 3 * GIB, false), 0);
  expect(16 * GIB, 12 * GIB);
  ck_assert_uint_eq(told_bytes, 4 * GIB);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("budget");
  TCase *cases = tcase_create("budget");
  tcase_set_timeout(cases, SUITE_LIMIT_S);
  tcase_add_test(cases, free_and_used_make_the_total);
  tcase_add_test(cases, no_more_is_left_than_the_daemon_would_grant);
  tcase_add_test(cases, all_that_is_free_can_be_had_and_no_byte_more);
  tcase_add_test(cases, the_capacity_bounds_the_card_and_not_the_reverse);
  tcase_add_test(cases, a_shrinking_capacity_never_underflows);
  tcase_add_test(cases, sizes_near_2_to_the_64_are_refused);
  tcase_add_test(cases, sums_near_2_to_the_64_are_refused);
  tcase_add_test(cases, unified_memory_of_the_program_may_exceed_the_card);
  tcase_add_test(cases, without_a_daemon_the_host_bounds_the_rest);
  tcase_add_test(cases, without_a_daemon_the_programs_own_limit_holds);
  tcase_add_test(cases, the_daemon_decides_on_the_sum_and_hears_of_frees);
  tcase_add_test(cases, who_is_overtaken_before_his_turn_books_beside_the_other);
  tcase_add_test(cases, a_thread_that_has_jumped_out_reserves_again);
  tcase_add_test(cases, others_reserve_after_a_thread_that_has_jumped_out);
  tcase_add_test(cases, others_reserve_after_a_thread_that_has_ended);
  tcase_add_loop_test(cases, a_thread_that_waits_keeps_its_turn_or_starts_over, 0, 2);
  tcase_add_loop_test(cases, racing_threads_never_exceed_the_card_and_leave_nothing, 0, 2);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
