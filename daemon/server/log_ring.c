/* log_ring.c - see log_ring.h. */
#include "server/log_ring.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/thread.h"

struct slot {
  size_t length;
  unsigned lines; /* that are lost with it */
  char text[LOG_LINE_SIZE];
};

static struct {
  struct slot slots[LOG_RING_LINES];
  unsigned put;   /* of the event loop: lines so far */
  unsigned taken; /* of the writer */
  sem_t empty;    /* slots: the writer posts each that it has written */
  sem_t filled;   /* and the event loop each that it has filled */
  pid_t owner;    /* a child that is forked has no writer */
} ring;

/* Another process may have made stderr non-blocking for all who share it. */
static void write_line(const struct slot *slot) {
  for (size_t written = 0; written < slot->length;) {
    ssize_t n = write(STDERR_FILENO, slot->text + written, slot->length - written);
    if (n > 0) {
      written += (size_t)n;
    } else if (n < 0 && errno == EAGAIN) {
      poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, -1);
    } else if (n == 0 || errno != EINTR) {
      log_note_lost(slot->lines);
      return;
    }
  }
}

static void *write_lines(void *unused) {
  (void)unused;
  thread_begin("log");
  for (;;) {
    if (sem_wait(&ring.filled) < 0)
      continue;
    write_line(&ring.slots[ring.taken++ % LOG_RING_LINES]);
    sem_post(&ring.empty);
  }
  return NULL;
}

static bool take_line(const char *text, size_t length, unsigned lines) {
  if (getpid() != ring.owner)
    return write(STDERR_FILENO, text, length) > 0;
  if (sem_trywait(&ring.empty) < 0)
    return false;
  struct slot *slot = &ring.slots[ring.put++ % LOG_RING_LINES];
  memcpy(slot->text, text, length);
  slot->length = length;
  slot->lines = lines;
  sem_post(&ring.filled);
  return true;
}

void log_ring_start(void) {
  sem_init(&ring.empty, 0, LOG_RING_LINES); /* also where no thread takes lines from them: all are empty */
  sem_init(&ring.filled, 0, 0);
  ring.owner = getpid();
  int err = thread_start(NULL, write_lines, NULL);
  if (err == 0)
    log_to(take_line);
  else
    log_warn("no thread for the log (%s): who stops reading it stops the daemon", strerror(-err));
}

bool log_ring_flush(uint64_t end_ns) {
  if (!ring.owner)
    return true; /* it has never been started */
  struct timespec end = {.tv_sec = (time_t)(end_ns / NS_PER_S), .tv_nsec = (long)(end_ns % NS_PER_S)};
  unsigned empty = 0;
  while (empty < LOG_RING_LINES) {
    if (sem_clockwait(&ring.empty, CLOCK_MONOTONIC, &end) == 0)
      empty++;
    else if (errno != EINTR)
      break;
  }
  for (unsigned i = 0; i < empty; i++)
    sem_post(&ring.empty);
  return empty == LOG_RING_LINES;
}

void log_ring_end(uint64_t end_ns) {
  if (!log_ring_flush(end_ns))
    return;
  if (log_has_lost())
    log_info("the log ends");
  if (log_ring_flush(end_ns))
    log_to(NULL);
}
