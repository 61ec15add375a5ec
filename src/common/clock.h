/* clock.h - the one clock: CLOCK_MONOTONIC in nanoseconds. And the one on the wall, for people. */
#ifndef GS_CLOCK_H
#define GS_CLOCK_H

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

static inline uint64_t clock_read_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_now_ns(void) { return clock_read_ns(CLOCK_MONOTONIC); }

static inline struct timespec clock_timespec(uint64_t ns) {
  return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

/* In a thread of the program: no cancellation point, and shorter where a signal comes. Changes errno. */
static inline void clock_sleep(uint64_t ns) {
  struct timespec time = clock_timespec(ns);
  syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL);
}

/* Since 1970. It may jump. */
static inline uint64_t clock_realtime_ns(void) { return clock_read_ns(CLOCK_REALTIME); }

#endif
