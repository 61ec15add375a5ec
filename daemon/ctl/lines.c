/* lines.c - a job's output among ours, line by line. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ctl/sweep.h"

#define ROOM 8192

int lines_open(struct lines *lines) {
  int fds[2];
  char *text = malloc(ROOM);
  if (!text)
    return -ENOMEM;
  if (pipe2(fds, O_CLOEXEC) < 0) {
    int err = -errno;
    free(text);
    return err;
  }
  *lines = (struct lines){.fd = fds[0], .text = text};
  return fds[1];
}

static void print(const char *text, size_t size, size_t index, FILE *to) {
  fprintf(to, "[%zu] ", index);
  fwrite(text, 1, size, to);
  fputc('\n', to);
}

static void print_whole(struct lines *lines, size_t index, FILE *to) {
  char *text = lines->text, *end;
  size_t left = lines->filled;
  for (; (end = memchr(text, '\n', left)); text = end + 1) {
    print(text, (size_t)(end - text), index, to);
    left -= (size_t)(end + 1 - text);
  }
  if (left == ROOM) {
    print(text, left, index, to);
    left = 0;
  }
  memmove(lines->text, text, left);
  lines->filled = left;
}

static void end(struct lines *lines, size_t index, FILE *to) {
  if (lines->filled)
    print(lines->text, lines->filled, index, to);
  close(lines->fd);
  free(lines->text);
  *lines = (struct lines){.fd = -1};
}

/* Once; more than 0: so many bytes. */
static ssize_t copy(struct lines *lines, size_t index, FILE *to) {
  ssize_t count = read(lines->fd, lines->text + lines->filled, ROOM - lines->filled);
  if (count > 0) {
    lines->filled += (size_t)count;
    print_whole(lines, index, to);
  }
  return count;
}

void lines_copy(struct lines *lines, size_t index, FILE *to) {
  if (copy(lines, index, to) == 0)
    end(lines, index, to);
  fflush(to);
}

/* Not until its end: a process that has left the job's group may hold it open. */
void lines_close(struct lines *lines, size_t index, FILE *to) {
  int left;
  if (lines->fd < 0)
    return;
  if (ioctl(lines->fd, FIONREAD, &left) < 0)
    left = 0;
  for (ssize_t count = 1; left > 0 && count > 0; left -= (int)count)
    count = copy(lines, index, to);
  end(lines, index, to);
  fflush(to);
}
