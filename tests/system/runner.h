/*
 * runner.h - a tiny test runner: each test is a function, runs in a process of its own under a time limit,
 * and may leave behind neither descriptors nor processes.
 *
 * A test program has any number of TEST(name) { ... } and links runner.c. Its arguments name the tests to
 * run; none: all. Exit: 0 passed, 1 failed, 77 skipped.
 */
#ifndef TEST_RUNNER_H
#define TEST_RUNNER_H

#include <stdint.h>
#include <sys/types.h>

struct test {
  const char *name;
  void (*run)(void);
  struct test *next;
};

void test_register(struct test *test);

#define TEST(name_)                                                                                          \
  static void test_##name_(void);                                                                            \
  static struct test entry_##name_ = {#name_, test_##name_, 0};                                              \
  __attribute__((constructor)) static void register_##name_(void) { test_register(&entry_##name_); }         \
  static void test_##name_(void)

/* End the test here. Prints the place, the text, and the log of every process of the test. */
_Noreturn void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define CHECK(condition, ...)                                                                                \
  ((condition) ? (void)0 : test_fail(__FILE__, __LINE__, #condition ": " __VA_ARGS__))

/* A number that differs from run to run, printed; GS_TEST_SEED repeats one. */
uint64_t test_seed(void);

/* xorshift64*: the next number of a seed. */
uint64_t random_next(uint64_t *state);

/* How many descriptors the process has open, and some more that are the same each time. */
int test_descriptors(pid_t pid);

/* How much slower than usual things may be here (sanitizers): GS_TEST_SCALE, default 1. */
unsigned test_scale(void);

/* A time, and for how long something had waited for a processor by then: 0 where the kernel does not tell
 * (PSI). */
struct test_time {
  uint64_t now_ns, pressed_ns;
};
struct test_time test_time(void);

/* How much time has passed since then in which nothing waited for a processor. The rest says nothing about
 * what a test waits for. */
uint64_t test_calm_ns(struct test_time since);

/* For how long a test goes on that could do so for ever: GS_TEST_SECONDS, or what is usual. */
unsigned test_seconds(unsigned usual);

/* CLOCK_MONOTONIC deadline, `seconds` (times the scale) from now. */
uint64_t deadline_in(unsigned seconds);
/* Milliseconds left, for poll(2); 0 when it has passed. */
int deadline_left_ms(uint64_t deadline_ns);

#endif
