/* guest.c - see guest.h. */
#include "guest.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void say(const char *format, ...) {
  va_list list;
  va_start(list, format);
  vprintf(format, list);
  va_end(list);
  printf("\n");
  fflush(stdout);
}

const char *result_name(CUresult result) {
  const char *name = NULL;
  return cuGetErrorName(result, &name) == CUDA_SUCCESS && name ? name : "?";
}

/* The simulated driver looks at the other processes on its card, at any time. */
static int is_driver_look(int fd) {
  char link[32], target[64];
  int pid, end = 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, target, sizeof target - 1);
  target[length > 0 ? length : 0] = 0;
  return length <= 0 || (sscanf(target, "/proc/%d/stat%n", &pid, &end) == 1 && end == length);
}

void say_descriptors(void) {
  for (int fd = 0; fd < GUEST_OWN; fd++) {
    struct stat file;
    if (fstat(fd, &file) == 0 && !is_driver_look(fd))
      say("descriptor %d: type %o, mode %o, flags %d", fd, (unsigned)(file.st_mode & S_IFMT) >> 12,
          (unsigned)fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK), fcntl(fd, F_GETFD));
  }
}

void say_thread(void) {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, NULL, &mask);
  for (int signal_number = 1; signal_number < NSIG; signal_number++) {
    struct sigaction action;
    if (sigismember(&mask, signal_number) == 1)
      say("signal %d is blocked", signal_number);
    if (sigaction(signal_number, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
      say("signal %d is %s", signal_number, action.sa_handler == SIG_IGN ? "ignored" : "handled");
  }
  struct sched_param parameters;
  int policy;
  pthread_getschedparam(pthread_self(), &policy, &parameters);
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  int state, type;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
  pthread_setcancelstate(state, NULL);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
  pthread_setcanceltype(type, NULL);
  say("policy %d, priority %d, processors %d, cancellation %d %d", policy, parameters.sched_priority,
      CPU_COUNT(&set), state, type);
}

uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void await(int (*holds)(void *argument), void *argument, const char *what) {
  for (uint64_t end_ns = now_ns() + UINT64_C(20000000000); !holds(argument);) {
    if (now_ns() > end_ns) {
      say("waited in vain: %s", what);
      exit(1);
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

void use_gpu(const struct gpu *gpu) {
  CUdeviceptr at = gpu_alloc(8);
  gpu_fill(gpu, NULL, at, 8, 1);
  gpu_verify(at, 8, 1, 0);
  MUST(cuMemFree(at));
}
