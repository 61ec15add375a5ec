/* runner.c - runs each test in a process of its own; see runner.h. */
#include "runner.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "process.h"

#define EXIT_SKIPPED 77
#define TEST_LIMIT_S 400

static struct test *tests;

void test_register(struct test *test) {
  struct test **end = &tests;
  while (*end)
    end = &(*end)->next;
  *end = test;
}

void test_fail(const char *file, int line, const char *format, ...) {
  va_list list;
  va_start(list, format);
  printf("%s:%d: ", file, line);
  vprintf(format, list);
  printf("\n");
  va_end(list);
  process_dump_all();
  fflush(stdout);
  _exit(1);
}

void test_skip(const char *format, ...) {
  va_list list;
  va_start(list, format);
  printf("skipped: ");
  vprintf(format, list);
  printf("\n");
  va_end(list);
  fflush(stdout);
  _exit(EXIT_SKIPPED);
}

uint64_t test_seed(void) {
  const char *given = getenv("GS_TEST_SEED");
  uint64_t seed = given ? strtoull(given, NULL, 0) : clock_now_ns() ^ (uint64_t)getpid() << 32;
  seed = seed ? seed : 1;
  printf("seed: GS_TEST_SEED=%llu\n", (unsigned long long)seed);
  return seed;
}

uint64_t random_next(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

unsigned test_scale(void) {
  const char *given = getenv("GS_TEST_SCALE");
  unsigned scale = given ? (unsigned)atoi(given) : 1;
  return scale ? scale : 1;
}

struct test_time test_time(void) {
  struct test_time now = {.now_ns = clock_now_ns()};
  unsigned long long total_us;
  FILE *file = fopen("/proc/pressure/cpu", "r");
  if (file && fscanf(file, "some %*s %*s %*s total=%llu", &total_us) == 1)
    now.pressed_ns = total_us * (NS_PER_MS / 1000);
  if (file)
    fclose(file);
  return now;
}

uint64_t test_calm_ns(struct test_time since) {
  struct test_time now = test_time();
  uint64_t passed_ns = now.now_ns - since.now_ns, pressed_ns = now.pressed_ns - since.pressed_ns;
  return pressed_ns < passed_ns ? passed_ns - pressed_ns : 0;
}

unsigned test_seconds(unsigned usual) {
  const char *given = getenv("GS_TEST_SECONDS");
  unsigned seconds = given ? (unsigned)atoi(given) : 0;
  return seconds > usual ? seconds : usual;
}

uint64_t deadline_in(unsigned seconds) { return clock_now_ns() + seconds * NS_PER_S * test_scale(); }

int deadline_left_ms(uint64_t deadline_ns) {
  uint64_t now = clock_now_ns();
  return deadline_ns > now ? (int)((deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS) : 0;
}

int test_descriptors(pid_t pid) {
  char path[32];
  int count = 0;
  snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  DIR *folder = opendir(path);
  while (folder && readdir(folder))
    count++;
  if (folder)
    closedir(folder);
  return count;
}

/* In the test's own process. */
_Noreturn static void run_here(const struct test *test) {
  int before = test_descriptors(getpid());
  test->run();
  process_check_none_left();
  int after = test_descriptors(getpid());
  CHECK(after == before, "the test leaves %d descriptors behind", after - before);
  fflush(stdout);
  _exit(0);
}

/* -1: there is none. */
static pid_t first_child(void) {
  char path[64];
  int pid = -1;
  snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
  FILE *children = fopen(path, "r");
  if (children && fscanf(children, "%d", &pid) != 1)
    pid = -1;
  if (children)
    fclose(children);
  return pid;
}

static bool ends_until(pid_t pid, uint64_t deadline_ns) {
  struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
  bool ends = poll(&ended, 1, deadline_left_ms(deadline_ns)) > 0;
  close(ended.fd);
  return ends && waitpid(pid, NULL, 0) == pid;
}

#define ENDING_S 5

/* We are the subreaper: whatever the test's process left running is our child now. What is about to end, as
 * the daemon that it belonged to has ended, is nobody's fault. Returns how many others there were. */
static int kill_leftovers(void) {
  uint64_t deadline_ns = deadline_in(ENDING_S);
  int killed = 0;
  pid_t pid;
  while ((pid = first_child()) > 0)
    if (!ends_until(pid, deadline_ns)) {
      kill(pid, SIGKILL);
      waitpid(pid, NULL, 0);
      killed++;
    }
  return killed;
}

/* Wait status of the child; SIGKILLs it at the limit. */
static int wait_limited(pid_t pid, bool *late) {
  int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
  struct pollfd ended = {.fd = pidfd, .events = POLLIN};
  uint64_t deadline = deadline_in(TEST_LIMIT_S + test_seconds(0));
  int status = 0;
  *late = false;
  while (poll(&ended, 1, deadline_left_ms(deadline)) < 0)
    ;
  if (!ended.revents) {
    *late = true;
    kill(pid, SIGUSR1); /* it says what it knows, and ends */
    if (poll(&ended, 1, 2000) <= 0)
      kill(pid, SIGKILL);
  }
  waitpid(pid, &status, 0);
  close(pidfd);
  return status;
}

static void on_limit(int signal_number) {
  (void)signal_number;
  process_dump_all();
  fflush(stdout);
  _exit(1);
}

static int verdict_of(int status, bool late, int leftovers) {
  if (late)
    printf("did not end within %u s\n", (TEST_LIMIT_S + test_seconds(0)) * test_scale());
  else if (WIFSIGNALED(status))
    printf("killed by signal %d\n", WTERMSIG(status));
  if (late || !WIFEXITED(status))
    return 1;
  if (WEXITSTATUS(status) == 0 && leftovers) {
    printf("leaves %d processes behind\n", leftovers);
    return 1;
  }
  return WEXITSTATUS(status);
}

static int run_one(const struct test *test) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGUSR1, on_limit);
    run_here(test);
  }
  bool late;
  int status = wait_limited(pid, &late);
  int verdict = verdict_of(status, late, kill_leftovers());
  printf("%s: %s\n", test->name, verdict == 0 ? "passed" : verdict == EXIT_SKIPPED ? "skipped" : "FAILED");
  return verdict;
}

static bool is_wanted(const struct test *test, int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], test->name) == 0)
      return true;
  return argc == 1;
}

int main(int argc, char **argv) {
  int ran = 0, failed = 0, skipped = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (argc == 2 && strcmp(argv[1], "--list") == 0) {
    for (const struct test *test = tests; test; test = test->next)
      printf("%s\n", test->name);
    return 0;
  }
  for (const struct test *test = tests; test; test = test->next) {
    if (!is_wanted(test, argc, argv))
      continue;
    int verdict = run_one(test);
    ran++;
    skipped += verdict == EXIT_SKIPPED;
    failed += verdict != 0 && verdict != EXIT_SKIPPED;
  }
  if (!ran)
    printf("no such test\n");
  return failed || !ran ? 1 : skipped == ran ? EXIT_SKIPPED : 0;
}
