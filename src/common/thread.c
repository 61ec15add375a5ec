/* thread.c - see thread.h. */
#include "common/thread.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/clock.h"

#define TRIES 20
#define PAUSE_NS (50 * NS_PER_MS)

/* What the process was given from outside, by taskset or nice: as it is when the library is loaded. A program
 * that later sets a thread's means that thread. */
static struct {
  cpu_set_t processors[8]; /* of 1024 each */
  size_t size;             /* of it, in bytes; 0: unknown */
  int nice;
  bool known_nice;
} initial;

__attribute__((constructor)) static void look_at_process(void) {
  int kept = errno;
  long bytes = syscall(SYS_sched_getaffinity, 0, sizeof initial.processors, initial.processors);
  initial.size = bytes > 0 ? (size_t)bytes : 0;
  errno = 0;
  initial.nice = getpriority(PRIO_PROCESS, 0);
  initial.known_nice = errno == 0;
  errno = kept;
}

/* The thread that starts another one sets these, before the other runs: one that began with a processor and a
 * real-time priority of the program's might never get to run. */
static void set_scheduling(pthread_attr_t *attributes) {
  pthread_attr_setinheritsched(attributes, PTHREAD_EXPLICIT_SCHED);
  pthread_attr_setschedpolicy(attributes, SCHED_OTHER);
  pthread_attr_setschedparam(attributes, &(struct sched_param){0});
  if (initial.size)
    pthread_attr_setaffinity_np(attributes, initial.size, initial.processors);
}

static int create(pthread_t *thread, bool detached, bool scheduled, void *(*body)(void *), void *argument) {
  pthread_attr_t attributes;
  int err = pthread_attr_init(&attributes);
  if (err)
    return -err;
  if (detached)
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (scheduled)
    set_scheduling(&attributes);
  err = pthread_create(thread, &attributes, body, argument);
  pthread_attr_destroy(&attributes);
  return -err;
}

void thread_block_signals(sigset_t *before) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, before);
}

void thread_restore_signals(const sigset_t *before) { pthread_sigmask(SIG_SETMASK, before, NULL); }

int thread_start(pthread_t *thread, void *(*body)(void *), void *argument) {
  sigset_t before;
  pthread_t unused;
  int kept = errno;
  thread_block_signals(&before);
  int err = create(thread ? thread : &unused, !thread, true, body, argument);
  if (err == -EPERM || err == -EINVAL) /* a processor is gone, or a sandbox forbids it */
    err = create(thread ? thread : &unused, !thread, false, body, argument);
  thread_restore_signals(&before);
  errno = kept;
  return err;
}

int thread_start_needed(void *(*body)(void *), void *argument) {
  int err = thread_start(NULL, body, argument);
  for (int tries = 1; err == -EAGAIN && tries < TRIES; tries++) {
    clock_sleep(PAUSE_NS);
    err = thread_start(NULL, body, argument);
  }
  return err;
}

/* Without privileges a nice value can only be raised: where the starting thread's is higher, it stays. */
void thread_begin(const char *name) {
  prctl(PR_SET_NAME, name);
  if (initial.known_nice)
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), initial.nice);
}
