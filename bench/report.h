/* report.h - how a benchmark tells its figures: "name value [unit]" lines, or one JSON object with --json. */
#ifndef GS_REPORT_H
#define GS_REPORT_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool report_json;
static int report_count;

/* Takes --json from the arguments. */
static inline void report_begin(int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    report_json |= strcmp(argv[i], "--json") == 0;
  if (report_json)
    printf("{");
}

static inline void report(const char *name, double value, const char *unit) {
  if (report_json)
    printf("%s\"%s\": %.6g", report_count++ ? ", " : "", name, value);
  else
    printf("%s %.6g%s%s\n", name, value, *unit ? " " : "", unit);
  fflush(stdout);
}

static inline void report_end(void) {
  if (report_json)
    printf("}\n");
}

#endif
