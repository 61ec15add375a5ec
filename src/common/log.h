/*
 * log.h - one line per event, by write(2) on stderr: no allocation, no stdio, no locks, errno kept.
 * Safe on look-up paths, before constructors, after fork and in signal handlers.
 */
#ifndef GS_LOG_H
#define GS_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Who speaks, and how much. name must outlive all calls. */
void log_setup(const char *name, enum log_level level);
enum log_level log_level(void);

/* stderr is the program's in which we are guests. Lines go there only as long as descriptor 2 is the file
 * that it is now; a line that can't be written at once, or that nobody would read, is lost, and the next one
 * says how many were. No line raises a signal. */
void log_as_guest(void);

/* stderr goes to systemd's journal: lines begin with their priority ("<3>") instead of name, pid and level.
 */
void log_for_journal(void);

/* Lines go to this instead of stderr; NULL: to stderr again. Where it does not take one, that is lost, and
 * the next one says how many were. `lines` is how many are lost with this one: itself, and those that it
 * tells of. */
void log_to(bool (*take)(const char *text, size_t length, unsigned lines));

/* What was taken has been lost since; and whether there are lost lines that none has told of. */
void log_note_lost(unsigned lines);
bool log_has_lost(void);

/* "error", "warn", "info", "debug" -> level. 0 or -EINVAL. */
int log_level_parse(const char *text, enum log_level *level);

/* %s %d %u %ld %lu %lld %llu %zu %x %lx %p %c %% , all without width and precision. Lines are cut at 512
 * bytes. */
#define LOG_LINE_SIZE 512
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_line_list(enum log_level level, const char *format, va_list args);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
