/* log.c - log lines by write(2); see log.h for what it promises. */
#include "common/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/descriptor.h"

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif

static const char *speaker = "gpushare";
static enum log_level threshold = LOG_LEVEL_WARN;
static bool to_journal;
static bool is_guest;
static struct descriptor given = {.fd = -1};                               /* a guest's stderr */
static bool (*take_line)(const char *text, size_t length, unsigned lines); /* NULL: none */
static _Atomic unsigned lost; /* lines since the last one that was written */
static const char *const level_names[] = {"error", "warn", "info", "debug"};

struct line {
  char text[LOG_LINE_SIZE];
  size_t length;
};

void log_setup(const char *name, enum log_level level) {
  speaker = name;
  threshold = level;
}

enum log_level log_level(void) { return threshold; }

void log_as_guest(void) {
  is_guest = true;
  given = descriptor_identify(STDERR_FILENO);
}

void log_for_journal(void) { to_journal = true; }

void log_to(bool (*take)(const char *text, size_t length, unsigned lines)) { take_line = take; }

void log_note_lost(unsigned lines) { atomic_fetch_add(&lost, lines); }

bool log_has_lost(void) { return atomic_load(&lost); }

int log_level_parse(const char *text, enum log_level *level) {
  for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++)
    if (strcmp(text, level_names[i]) == 0) {
      *level = (enum log_level)i;
      return 0;
    }
  return -EINVAL;
}

static void put_char(struct line *line, char c) {
  if (line->length < sizeof line->text - 1) /* room for the newline */
    line->text[line->length++] = c;
}

static void put_text(struct line *line, const char *text) {
  for (const char *p = text ? text : "(null)"; *p; p++)
    put_char(line, *p);
}

static void put_number(struct line *line, uint64_t value, unsigned base) {
  char digits[20];
  int n = 0;
  do
    digits[n++] = "0123456789abcdef"[value % base];
  while (value /= base);
  while (n > 0)
    put_char(line, digits[--n]);
}

static void put_signed(struct line *line, int64_t value) {
  if (value < 0)
    put_char(line, '-');
  put_number(line, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 10);
}

/* One conversion, without its '%'; returns where the format goes on. */
static const char *put_conversion(struct line *line, const char *format, va_list *args) {
  int longs = 0;
  for (; *format == 'l' || *format == 'z'; format++)
    longs++;
  switch (*format) {
  case 's':
    put_text(line, va_arg(*args, const char *));
    break;
  case 'c':
    put_char(line, (char)va_arg(*args, int));
    break;
  case 'd':
    put_signed(line, longs ? va_arg(*args, long) : va_arg(*args, int));
    break;
  case 'u':
    put_number(line, longs ? va_arg(*args, unsigned long) : va_arg(*args, unsigned), 10);
    break;
  case 'x':
    put_number(line, longs ? va_arg(*args, unsigned long) : va_arg(*args, unsigned), 16);
    break;
  case 'p':
    put_text(line, "0x");
    put_number(line, (uintptr_t)va_arg(*args, void *), 16);
    break;
  case '\0':
    return format;
  default:
    put_char(line, *format);
  }
  return format + 1;
}

static void put_heading(struct line *line, enum log_level level) {
  static const char priorities[] = "3467"; /* syslog's: error, warning, informational, debug */
  if (to_journal) {
    put_char(line, '<');
    put_char(line, priorities[level]);
    put_char(line, '>');
    return;
  }
  put_text(line, speaker);
  put_char(line, '[');
  put_signed(line, getpid());
  put_text(line, "] ");
  put_text(line, level_names[level]);
  put_text(line, ": ");
}

static bool write_all(const char *text, size_t length) {
  while (length > 0) {
    ssize_t n = write(STDERR_FILENO, text, length);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    text += n;
    length -= (size_t)n;
  }
  return true;
}

/* ---- as a guest ---- */

/* Without waiting, though the file may be one that is waited for: O_NONBLOCK is the program's, too. A pipe
 * that has room for anything has room for a line (PIPE_BUF). By system calls, as in descriptor.c. Kernels
 * before 6.4 don't know RWF_NOWAIT for pipes: another writer may then fill it between the look and the write.
 */
static ssize_t write_at_once(const char *text, size_t length) {
  struct iovec part = {.iov_base = (void *)(uintptr_t)text, .iov_len = length};
  struct pollfd writable = {.fd = STDERR_FILENO, .events = POLLOUT};
  struct timespec now = {0};
  if (S_ISSOCK(given.type))
    return syscall(SYS_sendto, STDERR_FILENO, text, length, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0);
  if (!S_ISREG(given.type) &&
      (syscall(SYS_ppoll, &writable, 1, &now, NULL, 0) != 1 || writable.revents != POLLOUT))
    return -1;
  if (S_ISFIFO(given.type)) {
    ssize_t n = syscall(SYS_pwritev2, STDERR_FILENO, &part, 1, -1L, -1L, RWF_NOWAIT); /* not in glibc 2.17 */
    if (n >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS))
      return n;
  }
  return syscall(SYS_write, STDERR_FILENO, text, length);
}

struct attempt {
  const char *text;
  size_t length;
  bool written;
};

static void try_to_write(void *argument) {
  struct attempt *attempt = argument;
  attempt->written = descriptor_is_ours(&given) && write_at_once(attempt->text, attempt->length) > 0;
}

/* The program may close 2, and open a file of its own by it, at any moment: also between a check and a write.
 * A pipe without a reader, a file at its limit, and a terminal that is another process group's (stty tostop)
 * answer with signals, which are not for the program. */
static bool write_as_guest(const char *text, size_t length) {
  struct attempt attempt = {.text = text, .length = length};
  return descriptor_frozen(try_to_write, &attempt) && attempt.written;
}

/* ---- a line ---- */

static bool deliver(const struct line *line, unsigned lines) {
  if (is_guest)
    return write_as_guest(line->text, line->length);
  return take_line ? take_line(line->text, line->length, lines) : write_all(line->text, line->length);
}

static void put_list(struct line *line, const char *format, va_list args) {
  va_list left;
  va_copy(left, args);
  while (*format)
    if (*format == '%')
      format = put_conversion(line, format + 1, &left);
    else
      put_char(line, *format++);
  va_end(left);
}

void log_line_list(enum log_level level, const char *format, va_list args) {
  if (level > threshold)
    return;
  int saved = errno;
  struct line line = {.length = 0};
  unsigned lost_before = atomic_exchange(&lost, 0);
  put_heading(&line, level);
  if (lost_before) {
    put_char(&line, '(');
    put_number(&line, lost_before, 10);
    put_text(&line, " lines before this one are lost) ");
  }
  put_list(&line, format, args);
  line.text[line.length++] = '\n';
  if (!deliver(&line, lost_before + 1))
    log_note_lost(lost_before + 1);
  errno = saved;
}

void log_line(enum log_level level, const char *format, ...) {
  va_list args;
  va_start(args, format);
  log_line_list(level, format, args);
  va_end(args);
}
