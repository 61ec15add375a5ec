/* report.h - how a benchmark tells its figures: "name value [unit]" lines, or one JSON object with --json
 * (arguments.h). */
#ifndef GS_REPORT_H
#define GS_REPORT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static bool report_json;
static int report_count;

static inline void report_begin(void) {
  if (report_json)
    printf("{");
}

/* A figure's name, put together; until the next one is. */
__attribute__((format(printf, 1, 2))) static inline const char *report_name(const char *format, ...) {
  static char name[96];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(name, sizeof name, format, arguments);
  va_end(arguments);
  return name;
}

static inline void report(const char *name, double value, const char *unit) {
  if (report_json)
    printf("%s\"%s\": %.6g", report_count++ ? ", " : "", name, value);
  else
    printf("%s %.6g%s%s\n", name, value, *unit ? " " : "", unit);
  fflush(stdout);
}

/* A word without quotes or backslashes. */
static inline void report_text(const char *name, const char *text) {
  if (report_json)
    printf("%s\"%s\": \"%s\"", report_count++ ? ", " : "", name, text);
  else
    printf("%s %s\n", name, text);
  fflush(stdout);
}

/* A figure with its target, which it has reached or not; judged: the machine and the run can tell. */
static inline void report_verdict(const char *name, double value, double target, bool reached, bool judged) {
  char other[128];
  report(name, value, "");
  snprintf(other, sizeof other, "%s_target", name);
  report(other, target, "");
  snprintf(other, sizeof other, "%s_verdict", name);
  report_text(other, !judged ? "not_judged" : reached ? "pass" : "MISSED");
}

static inline void report_at_least(const char *name, double value, double target, bool judged) {
  report_verdict(name, value, target, value >= target, judged);
}

static inline void report_end(void) {
  if (report_json)
    printf("}\n");
}

#endif
