/*
 * child.h - the processes that the benchmark starts. Each dies with it, and none is waited for longer than
 * until the benchmark's own end, which --seconds or a signal sets.
 */
#ifndef GS_BENCH_CHILD_H
#define GS_BENCH_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CHILD_TEXT_SIZE 128
#define CHILD_ENVIRONMENT_MAX 16

struct child {
  const char *name; /* for people */
  pid_t pid;        /* 0: not there */
  int fd;           /* our end of the socket that is its standard input */
};

/* Everything ends by then, or when SIGINT, SIGTERM or SIGHUP comes. */
void deadline_set(uint64_t seconds);
uint64_t deadline_left_ns(void);
/* Milliseconds, for poll(2): at most `most_ms`. */
int deadline_poll_ms(int most_ms);

/* No time left, which is said once; false. */
bool complain_late(const char *awaited);

/* One line to stderr; false, so that it can be returned. */
bool complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Starts argv[0]. `environment`: "NAME=value" to set, "NAME" to unset, NULL at the end. Its standard output
 * goes to our stderr. */
bool child_start(struct child *child, const char *name, char *const argv[], const char *const *environment);

/* One packet from it. False, and a line: it is gone, or there is no time left. */
bool child_hear(const struct child *child, char text[CHILD_TEXT_SIZE]);
bool child_expect(const struct child *child, const char *text);
bool child_say(const struct child *child, const char *text);
/* Has it said something, or ended? Does not wait. */
bool child_stirs(const struct child *child);

/* Waits for its end. False, and a line, unless it exits with 0. */
bool child_wait(struct child *child);
/* SIGKILL, if it is there. */
void child_kill(struct child *child);

#endif
