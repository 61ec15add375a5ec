/* log.c - log lines by write(2); see log.h for what it promises. */
#include "common/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

static const char *speaker = "gpushare";
static enum log_level threshold = LOG_LEVEL_WARN;
static bool to_journal;
static const char *const level_names[] = {"error", "warn", "info", "debug"};

struct line {
  char text[512];
  size_t length;
};

void log_setup(const char *name, enum log_level level) {
  speaker = name;
  threshold = level;
}

enum log_level log_level(void) { return threshold; }

void log_for_journal(void) { to_journal = true; }

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

static void write_all(const char *text, size_t length) {
  while (length > 0) {
    ssize_t n = write(STDERR_FILENO, text, length);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return;
    text += n;
    length -= (size_t)n;
  }
}

void log_line(enum log_level level, const char *format, ...) {
  if (level > threshold)
    return;
  int saved = errno;
  struct line line = {.length = 0};
  put_heading(&line, level);
  va_list args;
  va_start(args, format);
  while (*format)
    if (*format == '%')
      format = put_conversion(&line, format + 1, &args);
    else
      put_char(&line, *format++);
  va_end(args);
  line.text[line.length++] = '\n';
  write_all(line.text, line.length);
  errno = saved;
}
